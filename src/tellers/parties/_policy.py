"""Policies of guardians and answering parties, and the context that a role gets from its settings."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError, require_count, require_positive
from ..privacy._files import cap, read_bounded
from ..runs.settings.party import PartySettings
from ._certificates import MASK_KEY, read_secret
from ._hardening import pair_keys
from ._last_step import decision_of
from ._messages import Expect, Limits, Open, Question
from ._ring import Integers
from ._wire import Identity, Peer
from .models import Labels, count_voters, encode_known, require_labels
from .programs import DecisionProgram, VoteProgram, program_digest

ProgramFor = Callable[[int], str]
"""The hash of the public program for a batch of so many queries."""
Affords = Callable[[int], bool]
"""Whether the books can pay for so many queries more."""


@dataclass(frozen=True)
class GuardianPolicy:
    """The rules of a guardian's session.

    `quotas` holds the askers, each with the number of queries it may have answered, ever. `terms` is the hash
    of the settings that all parties share. `pairwise` says that masks cancel only over the very set that they
    were made for: whoever drops out then ends the query. `labels` holds the label sets of those that do not
    know all.
    """

    roster: tuple[str, ...]
    quotas: Mapping[str, int]
    quorum: int
    n_outputs: int
    terms: str
    program_for: ProgramFor
    max_queries: int = 100
    max_open: int = 4
    max_changes: int = 8
    max_strikes: int = 3
    patience: float = 30.0
    pairwise: bool = True
    labels: Mapping[str, Labels] = field(default_factory=dict)
    affords: Affords | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count(
            quorum=self.quorum, n_outputs=self.n_outputs, max_queries=self.max_queries, max_open=self.max_open
        )
        require_count(0, max_changes=self.max_changes, max_strikes=self.max_strikes)
        require_positive(patience=self.patience)
        if len(set(self.roster)) != len(self.roster):
            raise ValueError("Expected a roster of different parties, got one twice.")
        least = 2 if self.pairwise else 1
        if not least <= self.quorum <= len(self.roster):
            raise ValueError(
                f"Expected a quorum from {least} to {len(self.roster)}, the number of parties on the roster, "
                f"got {self.quorum}."
            )
        both = set(self.roster) & set(self.quotas)
        if both:
            raise ValueError(
                f"Expected askers that do not answer in the same session, got {sorted(both)[0]!r}."
            )
        for name, quota in self.quotas.items():
            require_count(0, **{f"quota of {name}": quota})
        for known in self.labels.values():
            require_labels(known, self.n_outputs)

    def voters(self, parties: tuple[str, ...]) -> Labels:
        """Return how many of some parties know each label, or nothing where all know all."""
        return count_voters(parties, self.labels, self.n_outputs)


@dataclass(frozen=True)
class AnswererPolicy:
    """What an answering party lets others ask of it.

    `quotas` holds the askers, each with the number of queries that this party answers for it, ever.
    `least_set` is the smallest answering set that it lends a mask to: alone its vote would have no company.
    """

    name: str
    quotas: Mapping[str, int]
    n_outputs: int
    n_features: int
    terms: str
    program_for: ProgramFor
    roster: tuple[str, ...] = ()
    max_queries: int = 100
    max_open: int = 16
    least_set: int = 2
    pair_keys: Mapping[str, bytes] | None = field(default=None, repr=False)
    noise_sigma: float | None = None
    affords: Affords | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count(
            n_outputs=self.n_outputs, n_features=self.n_features, max_queries=self.max_queries,
            max_open=self.max_open, least_set=self.least_set,
        )  # fmt: skip
        for name, quota in self.quotas.items():
            require_count(0, **{f"quota of {name}": quota})
        if self.noise_sigma is not None:
            require_positive(noise_sigma=self.noise_sigma)


def why_not(
    policy: GuardianPolicy | AnswererPolicy, asker: str, asked: Open | Expect | Question, *, host: str
) -> str:
    """Return why a query is not for `host` to take part in, whatever else is on its way; or nothing."""
    if asker not in policy.quotas:
        return f"{asker} is not among the askers that {host} knows."
    if asked.terms != policy.terms:
        return f"The asker has other terms than {host}. Compare shared settings and labels on cards."
    if asked.n_queries > policy.max_queries:
        return f"A batch holds at most {policy.max_queries} queries for {host}."
    if asked.program != policy.program_for(asked.n_queries):
        return f"The asker has another program than {host}. Run the same version with the same shapes."
    return ""


@dataclass(frozen=True, eq=False)
class PartyContext:
    """What the settings of a party amount to.

    An answering party has a model and keys of its own, in the folder of its settings.
    """

    settings: PartySettings
    mechanism: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", self.settings.build_mechanism())
        self.vote_program(1)  # settings that no program fits are refused before anybody waits for them

    @property
    def patience(self) -> float:
        """Return how long each phase of a query may take, in seconds."""
        return self.settings.session.patience_seconds

    @property
    def limits(self) -> Limits:
        session = self.settings.session
        return Limits(max_queries=session.max_queries, max_outputs=session.n_outputs)

    @property
    def identity(self) -> Identity:
        party = self.settings.party
        trusted = tuple(self.settings.path(place) for place in party.trusted)
        home = self.settings.path(party.certificates)
        return Identity(party.name, party.role, home=home, trusted=trusted)

    @property
    def peers(self) -> list[Peer]:
        return [Peer(peer.name, peer.role, pin=peer.pin) for peer in self.settings.peers]

    def peer(self, name: str) -> Peer:
        return next(peer for peer in self.peers if peer.name == name)

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

    def voters(self, parties: Collection[str]) -> Labels:
        """Return how many of these parties know each label, or nothing where all know all."""
        return count_voters(parties, self.settings.label_sets, self.settings.session.n_outputs)

    def decision_program(self, parties: Collection[str], n_queries: int) -> DecisionProgram:
        """Return the public program of the last step, if these parties answer."""
        n_outputs = self.settings.session.n_outputs
        rule = decision_of(
            self.mechanism, n_outputs=n_outputs, n_answering=len(parties), voters=self.voters(parties)
        )
        return rule.program(n_outputs=n_outputs, n_queries=n_queries)

    def program_hash(self, n_queries: int) -> str:
        """Return what parties compare before a query: the hash of its vote program."""
        return program_digest(self.vote_program(n_queries))

    def guardian_policy(self) -> GuardianPolicy:
        settings = self.settings
        limits, session = settings.limits, settings.session
        return GuardianPolicy(
            settings.roster, dict.fromkeys(settings.askers, limits.queries_per_asker), session.quorum,
            session.n_outputs, terms=settings.terms, program_for=self.program_hash,
            max_queries=session.max_queries, max_open=limits.max_open, max_changes=limits.max_changes,
            max_strikes=limits.max_strikes, patience=self.patience, pairwise=settings.hardening.pairwise,
            labels=settings.label_sets,
        )  # fmt: skip

    def answerer_policy(self) -> AnswererPolicy:
        settings = self.settings
        limits, session, hardening = settings.limits, settings.session, settings.hardening
        keys = None
        if hardening.pairwise:
            others = {peer.name: peer.mask_key for peer in settings.peers if peer.role == "answerer"}
            secret = read_secret(settings.path(settings.party.certificates) / MASK_KEY)
            keys = pair_keys(settings.party.name, secret, others)
        return AnswererPolicy(
            settings.party.name, dict.fromkeys(settings.askers, limits.queries_per_asker),
            session.n_outputs, session.n_features, settings.terms, self.program_hash,
            roster=settings.roster, max_queries=session.max_queries, max_open=limits.max_open,
            least_set=session.quorum, pair_keys=keys, noise_sigma=hardening.noise_sigma,
        )  # fmt: skip

    def model(self) -> dict[str, Integers]:
        """Return this party's model as whole numbers; private."""
        from ..teachers.models import load_model

        place = self.settings.path(self.settings.model.path)
        try:
            estimator = load_model(read_bounded(place, most=cap()))
        except OSError as error:
            raise ValueError(
                f"Expected a model saved with skops at {place}, got: {error.strerror or error}."
            ) from None
        own = self.settings.label_sets.get(self.settings.party.name, ())
        limit = self.settings.model.abstain_below
        try:
            return encode_known(self.vote_program(1), estimator, own, abstain_below=limit)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
