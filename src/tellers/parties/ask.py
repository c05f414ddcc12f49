"""An asking party: rows in, noisy labels out; nobody else sees either."""

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import LinkFailed, OutcomeChanged, PeerRefused, RoundAborted, TellersError
from ..privacy.rdp import RdpCurve
from ..privacy.release import Release
from ..runs.settings.party import PartySettings
from ._engine import require_engine
from ._guard import FREE, LENT
from ._ledger import query_price
from ._link import EngineLink
from ._messages import (
    Aborted,
    Accepted,
    Agreed,
    Answered,
    Done,
    Held,
    MaskSum,
    Message,
    Open,
    Opened,
    Question,
    Refused,
    ScoreShare,
)
from ._policy import PartyContext
from ._process import require_role
from ._ring import Integers, ring_sum
from ._sums import open_sum
from ._wire import Channel, Pinned
from .programs import ASKER, DecisionProgram

# Of the patience of a phase: whoever is not done by then is left out, before the guardian ends it.
_SHARE = 0.8
_GREETING = 30.0
_AGREEING = 3.0  # Times the patience: the guardian waits for parties to speak, and then for their masks.

Note = Callable[[str, bool], Any]
"""What is told of a query: its id, and whether it may be charged from here on."""


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """The labels of one batch: one class per row or yes and no per label, and who answered.

    `n_void` labels are silent because their votes cannot have come from so many parties.
    """

    qid: str
    labels: Integers
    parties: tuple[str, ...]
    seconds: float
    n_bytes: int
    n_void: int = 0

    def __repr__(self) -> str:
        return f"LabelledBatch(qid={self.qid!r}, n={len(self.labels)}, parties={self.parties})"


@dataclass(frozen=True, eq=False)
class _Opened:
    """What a last step opened, not yet looked at: a sum, or what should be made of the codes."""

    outcome: Integers = field(repr=False)
    program: DecisionProgram | None = None
    codes: Integers | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class SummedPool:
    """One noisy sum: the release that a student learns from, the sums on the directions, who answered."""

    qid: str
    release: Release
    sums: Integers
    parties: tuple[str, ...]
    seconds: float
    n_bytes: int

    def __repr__(self) -> str:
        return f"SummedPool(qid={self.qid!r}, shape={self.sums.shape}, parties={self.parties})"


@dataclass(eq=False)
class _Line:
    """A connection to a party and the link beside it; both end together."""

    channel: Channel
    lane: EngineLink

    @property
    def is_good(self) -> bool:
        return self.channel.fileno() >= 0 and (self.lane.is_open or not self.lane.was_needed)

    def close(self) -> None:
        self.channel.close()
        self.lane.give_up()


class AskRole:
    """An asker: connections and links are made when they are needed, and kept for the next batch.

    Use it as a context manager, from one thread. `say` is told in words what happens.

    Guarantee: what is sent is shares and ciphertexts; rows stay here, and labels are opened here alone.
    Assumes:   answering parties and a guardian as in "Who learns what".
    Reference: Choquette-Choo et al. 2021 (CaPC).

    >>> from tellers.runs.settings.party import example_settings
    >>> with AskRole(example_settings("asker")) as asker:
    ...     asker.price(100).epsilon(1e-5) > asker.price(1).epsilon(1e-5)
    True
    >>> asker.close()  # as leaving the block did
    """

    def __init__(self, settings: PartySettings, *, say: Callable[[str], Any] | None = None) -> None:
        require_role(settings, "asker")
        self._context, self._say = PartyContext(settings), say or (lambda _: None)
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()

    def price(self, n_queries: int) -> RdpCurve:
        """Return what so many queries cost the answering parties' data, whatever the votes."""
        known = self._context.settings.paid_labels
        return query_price(self._context.mechanism, n_queries, known=known)

    def ask(self, X: ArrayLike, *, n_retries: int = 2, note: Note | None = None) -> LabelledBatch:
        """Return the labels of at most `max_queries` rows; what failed before it cost anybody is tried again.

        RoundAborted says that there are no labels, why, and whether the query was charged. OutcomeChanged is
        one of these: ask on as if there were labels, or the guardian hears which outcome it changed.

        `note` is called with the id of a query and True before it may be charged, and with False if it was
        not after all: who writes that down knows after a crash what may have been paid for.

        >>> from tellers.runs.settings.party import example_settings
        >>> AskRole(example_settings("asker")).ask(np.zeros((101, 1)))
        Traceback (most recent call last):
            ...
        ValueError: Expected from 1 to 100 rows of a batch, got shape (101, 1).
        """
        rows = np.asarray(X, dtype=np.float64)
        most = self._context.settings.session.max_queries
        if rows.ndim != 2 or not 1 <= len(rows) <= most:
            raise ValueError(f"Expected from 1 to {most} rows of a batch, got shape {rows.shape}.")
        if self._context.is_sum:
            raise ValueError("Expected settings for queries of rows, got a Gaussian sum. Use ask_pool().")
        require_engine()
        return self._ask(self._context.vote_program(len(rows)).encode(rows), n_retries, note)

    def ask_pool(self, *, n_retries: int = 2, note: Note | None = None) -> SummedPool:
        """Return one noisy sum of all answering parties' scores of the agreed pool; `note` is as for `ask`.

        A sum that no honest parties can have is refused by ValueError, after it was charged.

        Guarantee: the clear sum of the answering parties' bounded scores, and noise of the guardian's.
        Assumes:   as `_sums`: that answering parties keep the agreed norm.
        Reference: "Gaussian sums"; `_sums`.

        >>> from tellers.runs.settings.party import example_settings
        >>> AskRole(example_settings("asker")).ask_pool()
        Traceback (most recent call last):
            ...
        ValueError: Expected settings for a Gaussian sum, got others. Use ask(X).
        """
        mechanism, hardening = self._context.mechanism, self._context.settings.hardening
        if not self._context.is_sum:
            raise ValueError("Expected settings for a Gaussian sum, got others. Use ask(X).")
        pool = self._context.pool
        batch = self._ask(np.zeros((1, 1), dtype=np.int64), n_retries, note)
        n_parties = len(batch.parties)
        noisy = open_sum(
            batch.labels, mechanism, pool, n_parties=n_parties, share_sigma=hardening.noise_sigma or 0.0
        )
        release = pool.release(noisy, mechanism, n_parties)
        return SummedPool(batch.qid, release, noisy, batch.parties, batch.seconds, batch.n_bytes)

    def _ask(self, encoded: Integers, n_retries: int, note: Note | None) -> LabelledBatch:
        for left in range(n_retries, -1, -1):
            attempt = _Attempt(self, encoded, note)
            try:
                return attempt.run()
            except RoundAborted as aborted:
                if LENT in str(aborted):
                    cost = f"Asked again, these {len(encoded)} queries would be on their books once more."
                    raise RoundAborted(f"{aborted} {cost}") from None
                if attempt.may_be_charged or attempt.was_refused or not left:
                    raise
                self._say(f"{aborted} Trying again under a new id.")
                time.sleep(0.5)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End all connections and links."""
        with self._lock:
            for line in self._lines.values():
                line.close()
            self._lines.clear()

    def __enter__(self) -> "AskRole":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self, name: str, *, until: float | None = None) -> _Line:
        """Return a good connection to a party, a new one if need be, and made in time."""
        with self._lock:
            line = self._lines.pop(name, None)
        if line is not None and not line.is_good:
            line.close()
            line = None
        if line is None:
            left = self._context.patience if until is None else max(0.1, until - time.monotonic())
            channel = self._context.connect(name, timeout=min(_GREETING, left))
            line = _Line(channel, self._context.link(ASKER, channel))
        with self._lock:
            self._lines[name] = line
        return line

    def _drop(self, name: str) -> None:
        with self._lock:
            line = self._lines.pop(name, None)
        if line is not None:
            line.close()


class _Attempt:
    """One query under one id."""

    def __init__(self, asker: AskRole, encoded: Integers, note: Note | None) -> None:
        self._asker, self._encoded, self._note = asker, encoded, note
        self._context = asker._context
        self._guardian = self._context.settings.guardian
        self.qid = secrets.token_hex(16)
        self.may_be_charged = self.was_refused = self.was_lent = False
        self._n_bytes = 0
        self._unasked: set[str] = set()

    def run(self) -> LabelledBatch:
        start = time.monotonic()
        try:
            line = self._asker._line(self._guardian)
            opened = self._open(line)
            shares = self._collect(line, opened)
            parties = self._agree(line, shares)
            outcome = self._last_step(line, {name: shares[name] for name in parties})
        except RoundAborted:
            raise
        except (TellersError, OSError, ValueError) as error:
            self._asker._drop(self._guardian)
            why = str(error) if isinstance(error, TellersError | ConnectionError | TimeoutError) else ""
            charge = LENT if self.was_lent else FREE
            if self.may_be_charged:
                charge = "It may have been charged, and is not tried again."
            raise RoundAborted(f"{why or type(error).__name__} {charge}") from None
        try:
            # Before anybody looks at what came: nothing that the guardian hears depends on it.
            line.channel.send(Done(qid=self.qid))
        except (TellersError, OSError):
            self._asker._drop(self._guardian)  # the outcome is here, whatever became of the guardian
        return self._read(outcome, parties, time.monotonic() - start)

    def _read(self, opened: _Opened, parties: tuple[str, ...], seconds: float) -> LabelledBatch:
        """Return the labels of what was opened, if it is made of the codes that were put in."""
        if opened.program is None or opened.codes is None:
            return LabelledBatch(self.qid, opened.outcome, parties, seconds, self._n_bytes)
        try:
            labels, void = opened.program.decode(opened.outcome, opened.codes)
        except ValueError as error:
            raise OutcomeChanged(f"{error} There are no labels, and the query stays charged.") from None
        n_void = int(void.sum())
        if n_void:
            self._asker._say(
                f"{n_void} of {void.size} answers are void: their votes cannot have come from "
                f"{len(parties)} parties. Somebody does not follow the protocol. They stay charged."
            )
        return LabelledBatch(self.qid, labels, parties, seconds, self._n_bytes, n_void)

    def _mark(self, may_be_charged: bool) -> None:
        if self._note is not None:
            self._note(self.qid, may_be_charged)
        self.may_be_charged = may_be_charged

    def _hear(self, line: _Line, until: float) -> Message:
        """Return the next message about this query; what is left of earlier ones is passed over."""
        while True:
            message = line.channel.receive(timeout=max(0.1, until - time.monotonic()))
            if getattr(message, "qid", self.qid) == self.qid:
                if isinstance(message, Aborted):
                    raise RoundAborted(message.why)
                return message

    def _open(self, line: _Line) -> Opened:
        n, context = len(self._encoded), self._context
        terms = context.settings.terms
        line.channel.send(Open(qid=self.qid, n_queries=n, program=context.program_hash(n), terms=terms))
        try:
            message = self._hear(line, time.monotonic() + context.patience)
        except RoundAborted:
            self.was_refused = True  # by a rule of the guardian's: asking again at once would end the same
            raise
        if not isinstance(message, Opened):
            raise PeerRefused(f"Expected 'opened' from the guardian, got {message.kind!r}.")
        for name in message.suspended:
            self._asker._say(f"{name} is suspended by the guardian until tomorrow (UTC), and is not asked.")
        return message

    def _collect(self, line: _Line, opened: Opened) -> dict[str, Integers]:
        """Compute with all parties at once, and get ready for the last step beside them."""
        shares: dict[str, Integers] = {}
        until = time.monotonic() + _SHARE * opened.seconds
        with ThreadPoolExecutor(len(opened.roster) + 1) as threads:
            meeting = None
            if not self._context.is_sum:
                meeting = threads.submit(self._meet, line, opened.roster, until)
            asked = {name: threads.submit(self._ask_one, name, until) for name in opened.roster}
            try:
                for name, one in asked.items():
                    try:
                        shares[name] = one.result()
                    except (TellersError, OSError, ValueError) as error:
                        self._asker._drop(name)
                        words = error if isinstance(error, TellersError | OSError) else type(error).__name__
                        self._asker._say(f"{name} did not answer. {words}")
                if meeting is not None:
                    meeting.result()
            except KeyboardInterrupt:
                self._asker.close()  # so that nobody waits for what is on its way
                raise
        if self._unasked:
            # To go on would look like a choice of who answers. Who is really gone, the guardian hears of.
            raise PeerRefused(f"Expected to reach all of the roster, got no way to {min(self._unasked)}.")
        return shares

    def _meet(self, line: _Line, roster: tuple[str, ...], until: float) -> None:
        program = self._context.decision_program(roster, len(self._encoded))
        line.lane.need(program, self._dial_engine(line), until=until)

    def _ask_one(self, name: str, until: float) -> Integers:
        context, n = self._context, len(self._encoded)
        self._unasked.add(name)
        line = self._asker._line(name, until=until)
        line.channel.send(
            Question(
                qid=self.qid, n_queries=n, n_features=context.settings.session.n_features,
                n_outputs=context.settings.n_entries,
                program=context.program_hash(n), terms=context.settings.terms,
            )
        )  # fmt: skip
        self._unasked.discard(name)
        answer = self._hear(line, until)
        if isinstance(answer, Refused):
            raise PeerRefused(f"It refused: {answer.why}")
        if not isinstance(answer, Accepted):
            raise PeerRefused(f"Expected 'accepted', got {answer.kind!r}.")
        if context.is_sum:
            return self._table(self._hear(line, until), ScoreShare)
        program = context.vote_program(n)
        line.lane.need(program, self._dial_engine(line), until=until)
        share = line.lane.run(program, {"x": self._encoded}, query=self.qid, timeout=line.lane.left(until))
        if share is None:
            raise LinkFailed("Expected a share from the engine, got none.")
        self._n_bytes += sum(line.lane.traffic)
        return share

    def _dial_engine(self, line: _Line) -> Callable[[float], Any]:
        context, peer = self._context, line.channel.peer
        ends = Pinned(context.identity, peer)
        return lambda left: ends.dial_engine(context.address(peer.name), self.qid, timeout=left)

    def _agree(self, line: _Line, shares: dict[str, Integers]) -> tuple[str, ...]:
        """Say whose shares there are until the guardian agrees; the query is charged by then."""
        mine = tuple(sorted(shares))
        until = time.monotonic() + _AGREEING * self._context.patience
        while True:
            self._mark(True)
            try:
                line.channel.send(Answered(qid=self.qid, parties=mine))
            except (TellersError, OSError):
                self._mark(False)  # a message that was not sent whole is none
                raise
            try:
                message = self._hear(line, until)
            except RoundAborted as aborted:
                if FREE in str(aborted) or LENT in str(aborted):
                    self._mark(False)
                raise
            if isinstance(message, Agreed):
                if not set(message.parties) <= set(mine):
                    raise PeerRefused("Expected an answering set of those who answered, got another.")
                return message.parties
            if not isinstance(message, Held):
                raise PeerRefused(f"Expected 'held' or 'agreed' from the guardian, got {message.kind!r}.")
            self._mark(False)
            self.was_lent = message.lent
            out = [name for name in mine if name not in message.parties]
            self._asker._say(f"The guardian goes on without {', '.join(out)}.")
            mine = tuple(name for name in mine if name in message.parties)

    def _table(self, message: Message, kind: type[ScoreShare] | type[MaskSum]) -> Integers:
        """Return the table of a message that a sum needs, or say what came instead."""
        if not isinstance(message, kind) or message.table.shape != (1, self._context.settings.n_entries):
            raise PeerRefused(f"Expected {kind.kind!r} of the agreed shape, got {message.kind!r}.")
        self._n_bytes += message.table.nbytes
        return message.table

    def _last_step(self, line: _Line, shares: dict[str, Integers]) -> _Opened:
        if self._context.is_sum:
            summed = self._table(self._hear(line, time.monotonic() + self._context.patience), MaskSum)
            return _Opened(ring_sum([summed, *shares.values()]))
        program = self._context.decision_program(tuple(shares), len(self._encoded))
        line.lane.need(program, self._dial_engine(line))
        codes = program.fresh_codes()
        inputs = program.asker_inputs(ring_sum(shares.values()), codes)
        outcome = line.lane.run(program, inputs, query=self.qid)
        self._n_bytes += sum(line.lane.traffic)
        if outcome is None:
            raise LinkFailed("Expected labels from the engine, got none.")
        return _Opened(outcome, program, codes)
