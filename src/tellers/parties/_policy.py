"""The policy of a party, and the context that a role gets from its settings."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..privacy._files import cap, read_bounded
from ..runs.settings.party import HardeningConfig, PartyLimitsConfig, PartySettings, SessionConfig
from ._certificates import MASK_KEY, read_secret
from ._hardening import pair_keys
from ._last_step import decision_of, is_sum
from ._ledger import utc_day
from ._link import EngineLink
from ._messages import Expect, Limits, Open, Question
from ._ring import Integers
from ._sums import read_pool
from ._wire import Channel, Identity, Peer, Pinned, connect
from .collaboration.sums import ScoredPool
from .models import Labels, count_voters, encode_known
from .programs import DecisionProgram, VoteProgram, program_digest


@dataclass(frozen=True)
class Policy:
    """The rules of a session at one party: what all agreed on, and what this party lets askers have.

    `quotas` holds the askers, each with the number of queries that are answered for it, ever. `terms` is the
    hash of the settings that all share, `program_for` that of the public program for so many queries.
    `labels` holds the label sets of those that do not know all. `pair_keys` are an answering party's, where
    masks cancel between them. `affords` says whether the books can pay for so many queries more, and
    `today` the day that things are counted on.
    """

    name: str
    roster: tuple[str, ...]
    quotas: Mapping[str, int]
    terms: str
    program_for: Callable[[int], str]
    session: SessionConfig
    limits: PartyLimitsConfig
    hardening: HardeningConfig
    labels: Mapping[str, Labels] = field(default_factory=dict)
    pair_keys: Mapping[str, bytes] | None = field(default=None, repr=False)
    affords: Callable[[int], bool] | None = field(default=None, repr=False, compare=False)
    today: Callable[[], str] = field(default=utc_day, repr=False, compare=False)

    @property
    def patience(self) -> float:
        """Return how long each phase of a query may take, in seconds."""
        return self.session.patience_seconds


def why_not(
    policy: Policy, asker: str, asked: Open | Expect | Question, *, host: str, n_open: int,
    unpaid: Collection[Any], answered: Mapping[str, int], poor: str,
) -> str:  # fmt: skip
    """Return why a query is not for `host` to take part in, or nothing.

    The asker has `n_open` others on their way; `unpaid` are those of all askers that the books do not have
    yet, and `answered` what they have. `poor` says that they cannot pay.
    """
    if asker not in policy.quotas:
        return f"{asker} is not among the askers that {host} knows."
    if asked.terms != policy.terms:
        return f"The asker has other terms than {host}. Compare shared settings and labels on cards."
    if asked.n_queries > policy.session.max_queries:
        return f"A batch holds at most {policy.session.max_queries} queries for {host}."
    if asked.program != policy.program_for(asked.n_queries):
        return f"The asker has another program than {host}. Run the same version with the same shapes."
    if n_open >= policy.limits.max_open:
        return f"At most {policy.limits.max_open} queries of one asker are on their way at a time."
    waiting, quota = sum(q.n_queries for q in unpaid if q.asker == asker), policy.quotas[asker]
    if answered.get(asker, 0) + waiting + asked.n_queries > quota:
        return f"The quota of {quota} queries of this asker is used."
    n_queries = sum(query.n_queries for query in unpaid) + asked.n_queries
    return "" if policy.affords is None or policy.affords(n_queries) else poor


@dataclass(frozen=True, eq=False)
class PartyContext:
    """What the settings of a party amount to.

    An answering party has a model and keys of its own, in the folder of its settings.
    """

    settings: PartySettings

    def __post_init__(self) -> None:
        self.vote_program(1)  # settings that no program fits are refused before anybody waits for them

    @cached_property
    def mechanism(self) -> Any:
        return self.settings.build_mechanism()

    @property
    def patience(self) -> float:
        """Return how long each phase of a query may take, in seconds."""
        return self.settings.session.patience_seconds

    @property
    def limits(self) -> Limits:
        session = self.settings.session
        return Limits(max_queries=session.max_queries, max_outputs=self.settings.n_entries)

    @property
    def is_sum(self) -> bool:
        """Return whether a query is one noisy sum of scores of the whole pool."""
        return is_sum(self.mechanism)

    @cached_property
    def pool(self) -> ScoredPool:
        """Return the public pool of a sum, as it was agreed on."""
        session, chosen = self.settings.session, self.settings.pool
        return read_pool(
            self.settings.path(chosen.path), session.n_outputs, digest=chosen.digest,
            n_directions=chosen.n_directions,
        )  # fmt: skip

    @property
    def identity(self) -> Identity:
        party = self.settings.party
        trusted = tuple(self.settings.path(place) for place in party.trusted)
        home = self.settings.path(party.certificates)
        return Identity(party.name, party.role, home=home, trusted=trusted)

    @property
    def peers(self) -> list[Peer]:
        return [Peer(peer.name, peer.role, peer.pin, peer.next_pin) for peer in self.settings.peers]

    def peer(self, name: str) -> Peer:
        return next(peer for peer in self.peers if peer.name == name)

    def connect(self, name: str, *, timeout: float = 30.0) -> Channel:
        """Return a connection to a party that listens, greeted and pinned."""
        return connect(
            self.address(name), self.identity, self.peer(name), limits=self.limits, timeout=timeout
        )

    def link(self, side: int, channel: Channel, *, model: dict[str, Integers] | None = None) -> EngineLink:
        """Return a link to the engine of the party at the other end of a connection, not open yet."""
        ends = Pinned(self.identity, channel.peer)
        return EngineLink(side, None, ends, terms=self.settings.terms, model=model, timeout=self.patience)

    def address(self, name: str) -> str:
        return next(peer.address for peer in self.settings.peers if peer.name == name)

    def vote_program(self, n_queries: int) -> VoteProgram:
        session, given = self.settings.session, self.settings.mechanism
        try:
            return VoteProgram(
                model=session.kind, task="multi" if given.is_for_labels else "single",
                n_features=session.n_features, n_outputs=session.n_outputs, batch=n_queries,
                hidden=session.hidden, n_trees=session.n_trees, depth=session.depth,
                max_labels=getattr(self.mechanism, "max_labels", 0) or None,
                input_bits=session.input_bits, input_bound=session.input_bound, abstaining=session.abstaining,
            )  # fmt: skip
        except ValueError as error:
            raise ConfigError(f"{self.settings.source or 'settings'}: [session]: {error}") from None

    def decision_program(self, parties: Collection[str], n_queries: int) -> DecisionProgram:
        """Return the public program of the last step, if these parties answer."""
        n_outputs = self.settings.session.n_outputs
        voters = count_voters(parties, self.settings.label_sets, n_outputs)
        one = decision_of(
            self.mechanism, n_outputs=n_outputs, n_answering=len(parties), voters=voters,
            share_sigma=self.settings.hardening.noise_sigma,
        )  # fmt: skip
        return replace(one, batch=n_queries)

    def program_hash(self, n_queries: int) -> str:
        """Return what parties compare before a query: the hash of its vote program, or of a sum's pool."""
        if self.is_sum:
            return self.settings.pool.digest
        return program_digest(self.vote_program(n_queries))

    def policy(self) -> Policy:
        """Return the rules of the session as they are here; an answering party's keys are read now."""
        settings, keys = self.settings, None
        if settings.hardening.pairwise and settings.party.role == "answerer":
            others = {peer.name: peer.mask_key for peer in settings.peers if peer.role == "answerer"}
            secret = read_secret(settings.path(settings.party.certificates) / MASK_KEY)
            keys = pair_keys(settings.party.name, secret, others)
        quotas = dict.fromkeys(settings.askers, settings.limits.queries_per_asker)
        session, hardening = settings.session, settings.hardening
        if self.is_sum:  # masks and noise of a sum are in its entries and its steps
            session = replace(session, n_outputs=settings.n_entries, max_queries=1)
            if hardening.noise_sigma is not None:
                hardening = replace(hardening, noise_sigma=hardening.noise_sigma * self.mechanism.steps)
        return Policy(
            settings.party.name, settings.roster, quotas, settings.terms, self.program_hash, session,
            settings.limits, hardening, labels=settings.label_sets, pair_keys=keys,
        )  # fmt: skip

    def model(self) -> dict[str, Integers]:
        """Return this party's model as whole numbers, or of a sum its answer for the pool; private."""
        from ..teachers.models import load_model

        place = self.settings.path(self.settings.model.path)
        try:
            estimator = load_model(read_bounded(place, most=cap()))
        except OSError as error:
            raise ValueError(
                f"Expected a model saved with skops at {place}, got: {error.strerror or error}."
            ) from None
        own = self.settings.label_sets.get(self.settings.party.name, ())
        if self.is_sum:
            every = np.arange(self.settings.session.n_outputs)
            knows = np.isin(every, own or every)
            return {"answer": self.pool.answer(estimator, knows, self.mechanism.steps)}
        limit = self.settings.model.abstain_below
        try:
            return encode_known(self.vote_program(1), estimator, own, abstain_below=limit)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
