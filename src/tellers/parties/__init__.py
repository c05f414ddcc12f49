"""Teachers that never show their votes: askers, answerers and a guardian, each its own process.

The protocol is written as functions from a state and a message to a state and what follows (`_guard`,
`_answer`), so that every round can be tried without a socket. `_wire` carries the messages; `_link` speaks to
the engine that computes on shares, so that nobody shows inputs, models or votes to anybody.
"""

from .. import _lazy

_HOME = {
    "ask": "AskRole",
    "clear": "clear_decision clear_votes",
    "collaboration.learning": "Terms collaborate",
    "collaboration.members": "deal_members read_material",
    "collaboration.sums": "PoolSum",
    "models": "encode_model program_for",
    "prices": "price_without_guardian share_sigma",
    "programs": "DecisionProgram program_digest",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
