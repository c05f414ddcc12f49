"""Teachers that never show their votes: askers, answerers and a guardian, each its own process.

The protocol is written as functions from a state and a message to a state and what follows (`_guard`,
`_answer`), so that every round can be tried without a socket. `_wire` carries the messages; `_link` speaks to
the engine that computes on shares, so that nobody shows inputs, models or votes to anybody.
"""

from .. import _lazy

_HOME = {
    "AskRole": ".ask",
    "DecisionProgram": ".programs",
    "PoolSum": ".collaboration.sums",
    "Terms": ".collaboration.learning",
    "clear_decision": ".clear",
    "clear_votes": ".clear",
    "collaborate": ".collaboration.learning",
    "deal_members": ".collaboration.members",
    "encode_model": ".models",
    "price_without_guardian": ".prices",
    "program_digest": ".programs",
    "program_for": ".models",
    "read_material": ".collaboration.members",
    "share_sigma": ".prices",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
