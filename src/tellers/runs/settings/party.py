"""The settings of one party of confidential queries: who it is, whom it knows, and what it holds them to."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from ...mechanisms.base import Mechanism
from ...mechanisms.registry import mechanism_named, names
from ._document import Key, toml_value
from .mechanism import MechanismConfig
from .schema import (
    AS_LIST,
    RULE_WORDS,
    Names,
    Options,
    Problem,
    Settings,
    Text,
    budget_rules,
    option,
    wrong,
)

if TYPE_CHECKING:
    from ...privacy.budget import Accountant

Role = Literal["asker", "answerer", "guardian"]
Labels = Annotated[tuple[Annotated[int, Field(ge=0)], ...], AS_LIST]
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):(\d{1,5})")


class PartyConfig(Options, title="party"):
    """This party. Paths are relative to this file."""

    name: Text = option("", "Its name, as its certificate says.")
    role: Role = option("answerer", "What it does.")
    listen: str = option("127.0.0.1:7400", "Where others reach it; an asker is reached by nobody.")
    certificates: Text = option(".", "The folder that `tellers party certs` made for it, with its keys.")
    trusted: Names = option((), "Certificates of other authorities (PEM), where parties made their own.")
    labels: Labels = option(
        (), "answerer, many labels: those that it knows, as its card says; empty for all."
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        yield from _name_rules(("party", "name"), self.name)
        if self.role != "asker":
            yield from _address_rules(("party", "listen"), self.listen)
        yield from _label_rules(whole, ("party", "labels"), self)
        roles = whole.roles
        if roles.count("guardian") != 1:
            words = f"Expected one guardian among all parties, got {roles.count('guardian')}."
            yield wrong("party.role", words)
        if "asker" not in roles:
            yield wrong("party.role", "Expected at least one asker among all parties, got none.")


class PeerConfig(Options, title="peer"):
    """Another party, by what it printed with `tellers party certs`: compare it by a second way."""

    name: Text = option(..., "Its name.")
    role: Role = option(..., "What it does.")
    address: str = option("", "Where it listens; empty where it only calls.")
    pin: Text = option(..., "The fingerprint of its certificate.")
    next_pin: str = option("", "While it changes its certificate: that of the next one; both are good.")
    mask_key: str = option("", "Its public key for masks that cancel; answering parties have one.")
    labels: Labels = option((), "The labels that it knows, of many; empty for all.")


class SessionConfig(Options, title="session"):
    """What all parties have agreed on: it must be the same everywhere, and a hash of it is compared."""

    n_features: int = option(1, "How many numbers a row has.", ge=1)
    n_outputs: int = option(2, "How many classes, or labels, a vote is on.", ge=1)
    input_bound: float = option(1.0, "No number of a row is larger than this, either way.", gt=0)
    input_bits: int = option(16, "Numbers of a row are rounded to multiples of 2^-bits.", ge=1, le=24)
    kind: Literal["linear", "network", "forest"] = option(
        "linear", "What votes: linear models, networks, or trees and small forests."
    )
    hidden: Annotated[tuple[Annotated[int, Field(ge=1)], ...], AS_LIST] = option(
        (), "network: the width of each hidden layer."
    )
    n_trees: int = option(0, "forest: how many trees; a tree is a forest of one.", ge=0)
    depth: int = option(0, "forest: how deep a tree may be.", ge=0)
    abstaining: bool = option(
        False, "One class per row: a party may give no vote at all where its model is not sure."
    )
    quorum: int = option(2, "The smallest number of parties that may answer.", ge=1)
    max_queries: int = option(100, "Queries in one batch.", ge=1, le=4096)
    patience_seconds: float = option(
        60.0, "How long each phase of a query may take before whoever is missing is left out.", gt=0
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        chosen = whole.mechanism
        if not chosen.is_for_labels and self.n_outputs < 2:
            words = f'Expected at least 2 classes with mechanism "{chosen.name}", got {self.n_outputs}.'
            yield wrong("session.n_outputs", words, "mechanism.name")
        if chosen.is_for_labels:
            when = "with many labels, where a party says by labels which it knows"
            yield from whole.expect("session.abstaining", (False,), when, "mechanism.name")
        n_answerers, least = whole.roles.count("answerer"), 2 if whole.hardening.pairwise else 1
        if not least <= self.quorum <= n_answerers:
            words = f"Expected from {least} to {n_answerers}, the number of answering parties"
            yield wrong("session.quorum", f"{words}, got {self.quorum}.", "party.role")


class HardeningConfig(Options, title="hardening"):
    """Against a guardian and an asker who collude; the same everywhere, as above."""

    pairwise: bool = option(True, "Masks that cancel between answering parties: colluders see totals alone.")
    noise_sigma: float | None = option(
        None,
        "Noise that each answering party adds, a standard deviation in votes.",
        gt=0.7072,
        examples=[5.0],
    )
    n_colluding: int = option(
        0, "How many answering parties may collude too; their noise is not counted.", ge=0
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        quorum = whole.session.quorum
        if self.noise_sigma is not None and quorum - self.n_colluding < 1:
            words = f"Expected fewer than the quorum of {quorum}: somebody's noise must stay unknown."
            yield wrong("hardening.n_colluding", words, "session.quorum")


class PartyLimitsConfig(Options, title="limits"):
    """What this party lets one asker have; each party sets its own."""

    queries_per_asker: int = option(1000, "Queries answered for one asker, ever.", ge=0)
    max_open: int = option(4, "Queries of one asker on their way at a time.", ge=1)
    max_changes: int = option(
        8, "guardian: how often the answering set of an asker may change, or lack a connected party.", ge=0
    )
    max_strikes: int = option(
        3, "guardian: how often an asker may leave out a party that could answer.", ge=0
    )


class BooksConfig(Options, title="ledger"):
    """guardian, answerer: the books on which every query is before it is answered, each its own."""

    url: str = option("", "A file, or the address of a PostgreSQL database.")
    epsilon: float = option(0.0, "The budget of the answering parties' data, for all askers.", ge=0)
    delta: float = option(0.0, "Failure probability, well below 1 / the number of records.", ge=0, lt=1)
    rule: Literal["renyi", "clock"] = option("renyi", RULE_WORDS)

    @property
    def accountant(self) -> "Accountant":
        """Return the arithmetic of the budget, by its rule."""
        from ...privacy.budget import Accountant, Budget

        return Accountant.by(self.rule, Budget(self.epsilon, self.delta))

    def _rules(self, whole: Any) -> Iterator[Problem]:
        role = whole.party.role
        if role != "asker" and not self.url:
            words = f'Expected the books of this {role}. For example: url = "ledger.db"'
            yield wrong("ledger.url", words, "party.role")
        yield from budget_rules(self)


class ModelConfig(Options, title="model"):
    """answerer: what votes. Whatever stands here is private and stays on this machine."""

    path: str = option("", "The file of the trained model.")
    abstain_below: float | None = option(
        None, "With session.abstaining: no vote where the best score is below this.", examples=[0.5]
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        if self.abstain_below is not None and not whole.session.abstaining:
            words = "Expected it only where all agreed on abstaining = true."
            yield wrong("model.abstain_below", words, "session.abstaining")
        if whole.party.role == "answerer" and not self.path:
            words = 'Expected the file of the model that votes. For example: "model.skops"'
            yield wrong("model.path", words, "party.role")


class PartySettings(Settings):
    """All settings of a party, checked one by one and against each other.

    >>> from tellers.runs.settings.party import example_settings
    >>> settings = example_settings("guardian")
    >>> settings.party.name, settings.roster, settings.askers
    ('guard', ('east', 'north', 'south'), ('ann',))
    >>> settings.build_mechanism(), settings.path("ledger.db").name, settings.place("ledger.db")
    (GNMax(sigma=8.0), 'ledger.db', 'ledger.db')
    """

    party: PartyConfig
    session: SessionConfig = dataclasses.field(default_factory=SessionConfig)
    mechanism: MechanismConfig = dataclasses.field(
        default_factory=lambda: MechanismConfig(name="gnmax", sigma=8.0)
    )
    hardening: HardeningConfig = dataclasses.field(default_factory=HardeningConfig)
    limits: PartyLimitsConfig = dataclasses.field(default_factory=PartyLimitsConfig)
    ledger: BooksConfig = dataclasses.field(default_factory=BooksConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    peers: tuple[PeerConfig, ...] = ()

    file: ClassVar[str] = "party.toml"
    heading: ClassVar[str] = """\
Settings of one party of confidential queries; session, mechanism and hardening are the same for all.
Every option is here with its default; lines that begin with # are comments."""
    advice: ClassVar[str] = "Write one with: tellers party init"
    needed: ClassVar[Mapping[str, str]] = {
        "party": "Expected a section [party] with name and role, got none."
    }

    @property
    def parties(self) -> "list[PartyConfig | PeerConfig]":
        """Return all parties, this one first."""
        return [self.party, *self.peers]

    @property
    def roles(self) -> list[str]:
        """Return the roles of all parties."""
        return [party.role for party in self.parties]

    @property
    def roster(self) -> tuple[str, ...]:
        """Return the answering parties, this one included if it is one, in order."""
        return self._named("answerer")

    @property
    def askers(self) -> tuple[str, ...]:
        """Return the asking parties, in order."""
        return self._named("asker")

    @property
    def guardian(self) -> str:
        """Return the name of the guardian."""
        return self._named("guardian")[0]

    def _named(self, role: str) -> tuple[str, ...]:
        return tuple(sorted(party.name for party in self.parties if party.role == role))

    @property
    def label_sets(self) -> dict[str, tuple[int, ...]]:
        """Return the labels of those answering parties that do not know all."""
        everything = tuple(range(self.session.n_outputs))
        parties = {party.name: party.labels for party in self.parties}
        return {name: labels for name, labels in sorted(parties.items()) if labels not in ((), everything)}

    @property
    def terms(self) -> str:
        """Return the hash of what all agreed on: session, mechanism, hardening, roster and label sets."""
        agreed = {
            "session": asdict(self.session),
            "mechanism": {"name": self.mechanism.name, **self.mechanism.given},
            "hardening": asdict(self.hardening),
            "roster": self.roster,
            "guardian": self.guardian,
            "labels": self.label_sets,
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()

    def written(self, *, name: str = "") -> str:
        """Return a commented TOML file that reads back to the same settings, with the other parties.

        >>> settings = example_settings("answerer")
        >>> parse_party(write_party(settings)) == settings
        True
        """
        parts = ["\n# The other parties. Compare pins and keys by a second way before you trust them."]
        for peer in self.peers:
            pairs = [(key, value) for key, value in asdict(peer).items() if value not in ("", ())]
            parts.append("\n".join(["[[peer]]", *(f"{key} = {toml_value(value)}" for key, value in pairs)]))
        return super().written(name=name) + "\n\n".join(parts) + "\n"

    def build_mechanism(self) -> Mechanism:
        """Return the mechanism; one for many labels is told how many there are."""
        more = {"n_labels": self.session.n_outputs} if self.mechanism.is_for_labels else {}
        return self.mechanism.build(**more)

    def _unfit_mechanism(self) -> str:
        """Return why parties cannot compute the mechanism, or nothing where they can."""
        kind = self.mechanism.kind
        if hasattr(kind, "confidential"):
            return ""
        known = ", ".join(confidential_names())
        return f'Expected one of {known}, which parties can compute, got "{self.mechanism.name}".'

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        role, seen = self.party.role, {self.party.name}
        for number, peer in enumerate(self.peers):
            here: Key = ("peer", number)
            yield from _name_rules((*here, "name"), peer.name)
            yield from _label_rules(self, (*here, "labels"), peer)
            if peer.name in seen:
                yield wrong((*here, "name"), f'Expected each party once, got "{peer.name}" again.')
            seen.add(peer.name)
            for name, value in (("pin", peer.pin), ("next_pin", peer.next_pin), ("mask_key", peer.mask_key)):
                if value and not _DIGEST.fullmatch(value):
                    words = "Expected 64 hexadecimal digits, as that party's `tellers party certs` printed "
                    yield wrong((*here, name), f"{words}them.")
            calls = {"asker": ("answerer", "guardian"), "answerer": ("guardian",)}.get(role, ())
            if peer.address or peer.role in calls:
                yield from _address_rules((*here, "address"), peer.address)
            both = role == peer.role == "answerer"
            if both and self.hardening.pairwise and not peer.mask_key:
                words = "Expected the mask key of every other answering party with pairwise = true, got none."
                yield wrong((*here, "mask_key"), words, "hardening.pairwise")


def confidential_names() -> tuple[str, ...]:
    """Return the mechanisms whose last step can be computed without anybody seeing a tally."""
    return tuple(name for name in names() if hasattr(mechanism_named(name), "confidential"))


def _name_rules(key: Key, name: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield wrong(key, "Expected at most 63 small letters, digits and hyphens.")


def _address_rules(key: Key, address: str) -> Iterator[Problem]:
    found = _ADDRESS.fullmatch(address)
    if not found or int(found[1]) > 65_535:
        yield wrong(key, f'Expected an address such as "127.0.0.1:7400", got "{address}".')


def _label_rules(settings: PartySettings, key: Key, one: PartyConfig | PeerConfig) -> Iterator[Problem]:
    labels, most, chosen = list(one.labels), settings.session.n_outputs - 1, settings.mechanism
    if labels and one.role != "answerer":
        yield wrong(
            key, f"Expected labels of answering parties alone, got some of {one.name}, an {one.role}."
        )
    elif labels and not chosen.is_for_labels:
        words = f'Expected no labels with mechanism "{chosen.name}", which is for one class per row.'
        yield wrong(key, words, "mechanism.name")
    elif labels and (labels != sorted(set(labels)) or labels[-1] > most):
        words = f"Expected labels from 0 to {most}, each once and in increasing order, got {labels}."
        yield wrong(key, words, "session.n_outputs")


read_party = PartySettings.read
parse_party = PartySettings.parse
write_party = PartySettings.written


def settings_for(
    name: str,
    parties: Mapping[str, Mapping[str, Any]],
    *,
    session: SessionConfig,
    mechanism: MechanismConfig,
    certificates: str = ".",
) -> PartySettings:
    """Return settings of a party to begin with; `parties` holds role, address, keys and label set of each."""
    own: Any = parties[name]
    party = PartyConfig(
        name=name, role=own["role"], listen=own["address"], certificates=certificates,
        labels=tuple(own.get("labels", ())),
    )  # fmt: skip
    peers = tuple(
        PeerConfig(
            name=other, role=card["role"], pin=card["pin"], next_pin=card.get("next_pin", ""),
            address="" if card["role"] == "asker" else card["address"],
            mask_key=card["mask_key"] if card["role"] == "answerer" else "",
            labels=tuple(card.get("labels", ())),
        )
        for other, card in sorted(parties.items()) if other != name
    )  # fmt: skip
    books = BooksConfig()
    if own["role"] != "asker":
        books = BooksConfig(url="ledger.db", epsilon=10.0, delta=1e-5)
    model = ModelConfig(path="model.skops" if own["role"] == "answerer" else "")
    return PartySettings(
        party=party, session=session, mechanism=mechanism, ledger=books, model=model, peers=peers
    )


def example_settings(role: str) -> PartySettings:
    """Return settings of a party of this role in a small session, for examples and tests."""
    roles = {
        "ann": "asker",
        "guard": "guardian",
        "east": "answerer",
        "north": "answerer",
        "south": "answerer",
    }
    parties = {
        name: {
            "role": kind, "address": f"127.0.0.1:{7400 + number}", "pin": f"{number:064x}",
            "mask_key": f"{number:064x}",
        }
        for number, (name, kind) in enumerate(roles.items())
    }  # fmt: skip
    name = next(name for name, kind in roles.items() if kind == role)
    mechanism = MechanismConfig(name="gnmax", sigma=8.0)
    return settings_for(name, parties, session=SessionConfig(n_features=4, n_outputs=3), mechanism=mechanism)
