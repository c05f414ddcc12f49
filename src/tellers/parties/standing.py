"""From the settings of a party to what its role works with: who it is, whom it knows, programs and rules."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ..config.party import PartySettings
from ..errors import ConfigError
from ..file_sizes import cap, read_bounded
from .certificates import MASK_KEY, read_secret
from .hardening import pair_keys
from .label_sets import Labels, count_voters, encode_known
from .last_step import decision_of
from .messages import Limits
from .policy import AnswererPolicy, GuardianPolicy
from .programs import DecisionProgram, VoteProgram, program_digest
from .ring import Integers
from .wire import Identity, Peer


@dataclass(frozen=True, eq=False)
class Standing:
    """What the settings of a party amount to.

    >>> from tellers.config.party_files import example_settings
    >>> standing = Standing(example_settings("guardian"))
    >>> standing.identity.name, standing.vote_program(5).output_shape, standing.voters(["north"])
    ('guard', (5, 3), ())
    >>> standing.decision_program(("east", "north"), 5).rule
    'argmax'
    >>> standing.guardian_policy().quorum, standing.peer("north").role, len(standing.peers)
    (2, 'answerer', 4)
    >>> standing.address("north"), standing.limits.max_outputs, len(standing.program_hash(5))
    ('127.0.0.1:7403', 3, 64)

    An answering party has a model and keys of its own, in the folder of its settings.

    >>> import tempfile
    >>> from dataclasses import replace
    >>> from pathlib import Path
    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers.config.party import HardeningConfig
    >>> from tellers.teachers.models import dump_model
    >>> home = tempfile.mkdtemp()
    >>> fitted = LogisticRegression().fit([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], [0, 1, 2])
    >>> _ = Path(home, "model.skops").write_bytes(dump_model(fitted))
    >>> plain = replace(example_settings("answerer"), hardening=HardeningConfig(pairwise=False), folder=home)
    >>> sorted(Standing(plain).model()), Standing(plain).answerer_policy().name
    (['offsets0', 'weights0'], 'east')
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
        """Return how large messages may be."""
        session = self.settings.session
        return Limits(max_queries=session.max_queries, max_outputs=session.n_outputs)

    @property
    def identity(self) -> Identity:
        """Return who this party is, with the folder of its keys."""
        party = self.settings.party
        trusted = tuple(self.settings.path(place) for place in party.trusted)
        home = self.settings.path(party.certificates)
        return Identity(party.name, party.role, home=home, trusted=trusted)

    @property
    def peers(self) -> list[Peer]:
        """Return all other parties."""
        return [Peer(peer.name, peer.role, pin=peer.pin) for peer in self.settings.peers]

    def peer(self, name: str) -> Peer:
        """Return another party by its name."""
        return next(peer for peer in self.peers if peer.name == name)

    def address(self, name: str) -> str:
        """Return where another party listens."""
        return next(peer.address for peer in self.settings.peers if peer.name == name)

    def vote_program(self, n_queries: int) -> VoteProgram:
        """Return the public program of a vote on so many queries."""
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
        """Return what this party, a guardian, holds others to."""
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
        """Return what this party, an answerer, lets others ask of it."""
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
