"""A guardian at work: the protocol with its ledger, its noise and its clock, still without a socket."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import TellersError
from ..ledger import Ledger
from ..noise import Noise
from . import guardian as protocol
from . import queries
from .books import affords, charge_query, query_price, remembered
from .last_step import LastStep, draw, require_confidential
from .messages import Agreed, Message
from .policy import GuardianPolicy
from .queries import LENT, Charge, Conclude, Send, State


@dataclass(frozen=True, eq=False)
class Finish:
    """The last step of a query, which is charged: run it with the asker, and show its step to nobody.

    >>> from tellers.parties.last_step import Decision
    >>> import numpy as np
    >>> zero = np.zeros((1, 2), dtype=np.int64)
    >>> Finish("0" * 32, "ann", LastStep(Decision("labels", 5, (3, 3)), zero, zero)).asker
    'ann'
    """

    qid: str
    asker: str
    step: LastStep = field(repr=False)


Task = Send | Finish


@dataclass(eq=False)
class Guardian:
    """Keep the state of a session, charge before anything is revealed, and draw the noise.

    Every method returns what to do next, in order: messages to send, and last steps to run. A message that
    does not belong raises PeerRefused and changes nothing: close that connection and say so by `left`.
    `account` says from which account of the ledger an asker pays besides the main one, or None.

    Guarantee: no noise is drawn and no mask is added up before the price of the query is durable on the
               ledger; nothing is given back. A restart on the same ledger forgets nothing that was charged.
    Assumes:   a guardian that follows this program, and answering parties whose masks are fresh.
    Reference: Choquette-Choo et al. 2021 (CaPC); Feldman and Zrnic 2021, by way of the ledger.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=5.0, delta=1e-5)))
    >>> guardian = Guardian(GuardianPolicy.example(), GNMax(sigma=9.0), ledger, noise.secure())
    >>> guardian.joined("north"), guardian.left("north"), guardian.tick()
    ([], [], [])
    >>> from tellers.parties.messages import Open
    >>> asked = guardian.handle("ann", Open(qid="0" * 32, n_queries=1, program="0" * 64, terms="0" * 64))
    >>> asked[0].message.why
    'Fewer parties are connected than the quorum of 2. Nothing was charged.'
    """

    policy: GuardianPolicy
    mechanism: Any
    ledger: Ledger
    noise: Noise
    account: Callable[[str], str | None] | None = None
    clock: Callable[[], float] = time.monotonic
    state: State = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_confidential(self.mechanism)
        self.state = queries.begin(**remembered(self.ledger))
        price = query_price(self.mechanism, 1)
        self.policy = replace(self.policy, affords=lambda n: affords(self.ledger, price * n))
        self._lock = threading.RLock()

    def handle(self, sender: str, message: Message) -> list[Task]:
        """Take a message of a connected party."""
        with self._lock:
            step = protocol.receive(self.policy, self.state, sender, message, now=self.clock())
            return self._follow(step)

    def joined(self, name: str) -> list[Task]:
        """Take note that a party is connected."""
        with self._lock:
            self.state = queries.join(self.state, name)
            return []

    def left(self, name: str) -> list[Task]:
        """Take note that a party's connection is gone."""
        with self._lock:
            return self._follow(protocol.leave(self.policy, self.state, name, now=self.clock()))

    def tick(self) -> list[Task]:
        """Look at the clock; call it about once a second."""
        with self._lock:
            return self._follow(protocol.tick(self.policy, self.state, now=self.clock()))

    def _follow(self, step: queries.Step) -> list[Task]:
        """Do what must be done here, and return the rest."""
        self.state, actions = step
        tasks: list[Task] = []
        for action in actions:
            if isinstance(action, Send):
                tasks.append(action)
            elif isinstance(action, Charge):
                tasks += self._follow(self._charge(action))
            else:
                tasks += self._conclude(action)
        return tasks

    def _charge(self, asked: Charge) -> queries.Step:
        account = None if self.account is None else self.account(asked.asker)
        try:
            charge_query(
                self.ledger, asked.qid, mechanism=self.mechanism, noise=self.noise, n_queries=asked.n_queries,
                asker=asked.asker, parties=asked.parties, left_out=asked.left_out, account=account,
            )  # fmt: skip
        except TellersError as error:
            # What a ledger says of a budget is public: prices do not depend on votes.
            return protocol.refused(self.state, asked.qid, f"{_short(str(error))} {LENT}")
        except (OSError, TimeoutError):
            why = "The ledger cannot be written. If it was written after all, the query stays charged."
            return protocol.refused(self.state, asked.qid, why)
        return protocol.charged(self.policy, self.state, asked.qid, now=self.clock())

    def _conclude(self, asked: Conclude) -> list[Task]:
        n = len(asked.parties)
        voters = self.policy.voters(asked.parties)
        step = draw(self.mechanism, asked.masks, n_answering=n, noise=self.noise, voters=voters)
        return [
            Send(asked.asker, Agreed(qid=asked.qid, parties=asked.parties)),
            Finish(asked.qid, asked.asker, step),
        ]


def _short(words: str) -> str:
    plain = " ".join(words.split())
    return plain if len(plain) <= 370 else f"{plain[:369]}…"
