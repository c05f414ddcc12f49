"""The settings of one party of confidential queries: sections, checks, reading and writing."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...mechanisms.registry import mechanism_named, names
from ._checks import check_options, freeze, unknown_section
from ._document import key_lines, parse_document, read_text
from ._fields import Problem, complain, option, toml_value
from .files import write_sections
from .mechanism import MechanismConfig

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


# --- The settings of one party of confidential queries: who it is, whom it knows, and what it holds them to.


ROLES = ("asker", "answerer", "guardian")
KINDS = ("linear", "network", "forest")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):(\d{1,5})")


class _Section:
    """Checks every option of a section when a record is made."""

    def __post_init__(self) -> None:
        freeze(self, sections=SECTIONS)


@dataclass(frozen=True, kw_only=True)
class PartyConfig(_Section):
    """This party. Paths are relative to this file."""

    name: str = option("", "Its name, as its certificate says.", non_empty=True)
    role: Literal["asker", "answerer", "guardian"] = option("answerer", "What it does.", choices=ROLES)
    listen: str = option("127.0.0.1:7400", "Where others reach it; an asker is reached by nobody.")
    certificates: str = option(
        ".", "The folder that `tellers party certs` made for it, with its keys.", non_empty=True
    )
    trusted: tuple[str, ...] = option(
        (), "Certificates of other authorities (PEM), where parties made their own."
    )
    labels: tuple[int, ...] = option(
        (),
        "answerer, many labels: those that it knows, as its card says; empty for all.",
        least=0,
        form="whole",
    )


@dataclass(frozen=True, kw_only=True)
class PeerConfig(_Section):
    """Another party, by what it printed with `tellers party certs`: compare it by a second way."""

    name: str = option("", "Its name.", non_empty=True)
    role: Literal["asker", "answerer", "guardian"] = option("answerer", "What it does.", choices=ROLES)
    address: str = option("", "Where it listens; empty where it only calls.")
    pin: str = option("", "The fingerprint of its certificate.", non_empty=True)
    mask_key: str = option("", "Its public key for masks that cancel; answering parties have one.")
    labels: tuple[int, ...] = option(
        (), "The labels that it knows, of many; empty for all.", least=0, form="whole"
    )


@dataclass(frozen=True, kw_only=True)
class SessionConfig(_Section):
    """What all parties have agreed on: it must be the same everywhere, and a hash of it is compared."""

    n_features: int = option(1, "How many numbers a row has.", least=1)
    n_outputs: int = option(2, "How many classes, or labels, a vote is on.", least=1)
    input_bound: float = option(1.0, "No number of a row is larger than this, either way.", above=0)
    input_bits: int = option(16, "Numbers of a row are rounded to multiples of 2^-bits.", least=1, most=24)
    kind: Literal["linear", "network", "forest"] = option(
        "linear", "What votes: linear models, networks, or trees and small forests.", choices=KINDS
    )
    hidden: tuple[int, ...] = option((), "network: the width of each hidden layer.", least=1, form="whole")
    n_trees: int = option(0, "forest: how many trees; a tree is a forest of one.", least=0)
    depth: int = option(0, "forest: how deep a tree may be.", least=0)
    abstaining: bool = option(
        False, "One class per row: a party may give no vote at all where its model is not sure."
    )
    quorum: int = option(2, "The smallest number of parties that may answer.", least=1)
    max_queries: int = option(100, "Queries in one batch.", least=1, most=4096)
    patience_seconds: float = option(
        60.0, "How long each phase of a query may take before whoever is missing is left out.", above=0
    )


@dataclass(frozen=True, kw_only=True)
class HardeningConfig(_Section):
    """Against a guardian and an asker who collude; the same everywhere, as above."""

    pairwise: bool = option(True, "Masks that cancel between answering parties: colluders see totals alone.")
    noise_sigma: float | None = option(
        None,
        "Noise that each answering party adds, a standard deviation in votes.",
        above=0.7072,
        example=5.0,
    )
    n_colluding: int = option(
        0, "How many answering parties may collude too; their noise is not counted.", least=0
    )


@dataclass(frozen=True, kw_only=True)
class PartyLimitsConfig(_Section):
    """What this party lets one asker have; each party sets its own."""

    queries_per_asker: int = option(1000, "Queries answered for one asker, ever.", least=0)
    max_open: int = option(4, "Queries of one asker on their way at a time.", least=1)
    max_changes: int = option(
        8, "guardian: how often the answering set of an asker may change, or lack a connected party.", least=0
    )
    max_strikes: int = option(
        3, "guardian: how often an asker may leave out a party that could answer.", least=0
    )


@dataclass(frozen=True, kw_only=True)
class BooksConfig(_Section):
    """guardian, answerer: the books on which every query is before it is answered, each its own."""

    url: str = option("", "A file, or the address of a PostgreSQL database.")
    epsilon: float = option(0.0, "The budget of the answering parties' data, for all askers.", least=0)
    delta: float = option(0.0, "Failure probability, well below 1 / the number of records.", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(_Section):
    """answerer: what votes. Whatever stands here is private and stays on this machine."""

    path: str = option("", "The file of the trained model.")
    abstain_below: float | None = option(
        None, "With session.abstaining: no vote where the best score is below this.", example=0.5
    )


SECTIONS: dict[str, type] = {
    "party": PartyConfig,
    "session": SessionConfig,
    "mechanism": MechanismConfig,
    "hardening": HardeningConfig,
    "limits": PartyLimitsConfig,
    "ledger": BooksConfig,
    "model": ModelConfig,
    "peer": PeerConfig,
}


@dataclass(frozen=True, kw_only=True)
class PartySettings:
    """All settings of a party, checked one by one and against each other.

    >>> from tellers.runs.settings.party import example_settings
    >>> settings = example_settings("guardian")
    >>> settings.party.name, settings.roster, settings.askers
    ('guard', ('east', 'north', 'south'), ('ann',))
    >>> settings.build_mechanism(), settings.path("ledger.db").name, settings.place("ledger.db")
    (GNMax(sigma=8.0), 'ledger.db', 'ledger.db')
    """

    party: PartyConfig
    session: SessionConfig = field(default_factory=SessionConfig)
    mechanism: MechanismConfig = field(default_factory=lambda: MechanismConfig(name="gnmax", sigma=8.0))
    hardening: HardeningConfig = field(default_factory=HardeningConfig)
    limits: PartyLimitsConfig = field(default_factory=PartyLimitsConfig)
    ledger: BooksConfig = field(default_factory=BooksConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    peers: tuple[PeerConfig, ...] = ()
    folder: str = field(default="", repr=False, compare=False)
    source: str = field(default="", repr=False, compare=False)
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        complain(party_rules(self), self.source, self.lines)

    def path(self, text: str) -> Path:
        """Return a path of the file, from where relative ones start."""
        return Path(self.folder) / text

    def place(self, url: str) -> str:
        """Return a database's address as it is, or the path of a file in full."""
        return url if "://" in url else str(self.path(url))

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

    @property
    def label_sets(self) -> dict[str, tuple[int, ...]]:
        """Return the labels of those answering parties that do not know all."""
        everything = tuple(range(self.session.n_outputs))
        parties = [(self.party.name, self.party.labels), *((peer.name, peer.labels) for peer in self.peers)]
        return {name: labels for name, labels in sorted(parties) if labels not in ((), everything)}

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

    def build_mechanism(self) -> "Mechanism":
        """Return the mechanism; one for many labels is told how many there are."""
        given = dict(self.mechanism.given)
        if self.mechanism.is_for_labels:
            given["n_labels"] = self.session.n_outputs
            if "share" in given and len(given["share"]) == 1:
                given["share"] = given["share"][0]
        mechanism: Mechanism = self.mechanism.kind(**given)
        return mechanism

    def _named(self, role: str) -> tuple[str, ...]:
        parties = [(self.party.name, self.party.role), *((peer.name, peer.role) for peer in self.peers)]
        return tuple(sorted(name for name, its in parties if its == role))


def party_rules(settings: Any) -> Iterator[Problem]:
    """Return what does not go together in settings whose options are right one by one."""
    party = settings.party
    if not _NAME.fullmatch(party.name):
        words = "Expected at most 63 small letters, digits and hyphens."
        yield Problem(("party", "name"), words)
    if party.role != "asker":
        yield from _address_rules(("party", "listen"), party.listen)
    yield from _peer_rules(settings)
    yield from _mechanism_rules(settings)
    yield from _role_rules(settings)
    for here, one in ((("party",), party), *((("peer", n), peer) for n, peer in enumerate(settings.peers))):
        yield from _label_rules(settings, (*here, "labels"), one)


def _address_rules(key: tuple[str | int, ...], address: str) -> Iterator[Problem]:
    found = _ADDRESS.fullmatch(address)
    if not found or int(found[1]) > 65_535:
        yield Problem(key, f'Expected an address such as "127.0.0.1:7400", got "{address}".')


def _peer_rules(settings: Any) -> Iterator[Problem]:
    party, seen = settings.party, {settings.party.name}
    for number, peer in enumerate(settings.peers):
        here = ("peer", number)
        if not _NAME.fullmatch(peer.name):
            yield Problem((*here, "name"), "Expected at most 63 small letters, digits and hyphens.")
        if peer.name in seen:
            yield Problem((*here, "name"), f'Expected each party once, got "{peer.name}" again.')
        seen.add(peer.name)
        for name, value in (("pin", peer.pin), ("mask_key", peer.mask_key)):
            if value and not _DIGEST.fullmatch(value):
                words = "Expected 64 hexadecimal digits, as that party's `tellers party certs` printed them."
                yield Problem((*here, name), words)
        calls = {"asker": ("answerer", "guardian"), "answerer": ("guardian",)}.get(party.role, ())
        if peer.address or peer.role in calls:
            yield from _address_rules((*here, "address"), peer.address)
        both = party.role == peer.role == "answerer"
        if both and settings.hardening.pairwise and not peer.mask_key:
            yield Problem(
                (*here, "mask_key"),
                "Expected the mask key of every other answering party with pairwise = true, got none.",
                (("hardening", "pairwise"),),
            )


def _label_rules(settings: Any, key: tuple[str | int, ...], one: Any) -> Iterator[Problem]:
    labels, most = list(one.labels), settings.session.n_outputs - 1
    if not labels:
        return
    if one.role != "answerer":
        yield Problem(
            key, f"Expected labels of answering parties alone, got some of {one.name}, an {one.role}."
        )
    elif not settings.mechanism.is_for_labels:
        words = (
            f'Expected no labels with mechanism "{settings.mechanism.name}", which is for one class per row.'
        )
        yield Problem(key, words, (("mechanism", "name"),))
    elif labels != sorted(set(labels)) or labels[-1] > most:
        words = f"Expected labels from 0 to {most}, each once and in increasing order, got {labels}."
        yield Problem(key, words, (("session", "n_outputs"),))


def confidential_names() -> tuple[str, ...]:
    """Return the mechanisms whose last step can be computed without anybody seeing a tally."""
    return tuple(name for name in names() if hasattr(mechanism_named(name), "confidential"))


def _mechanism_rules(settings: Any) -> Iterator[Problem]:
    mechanism, session = settings.mechanism, settings.session
    if not hasattr(mechanism.kind, "confidential"):
        known = ", ".join(confidential_names())
        words = f'Expected one of {known}, which parties can compute, got "{mechanism.name}".'
        why = getattr(mechanism.kind, "why_not_confidential", "")
        yield Problem(("mechanism", "name"), f"{words} {why}".rstrip())
        return
    if not mechanism.is_for_labels and session.n_outputs < 2:
        yield Problem(
            ("session", "n_outputs"),
            f'Expected at least 2 classes with mechanism "{mechanism.name}", got {session.n_outputs}.',
            (("mechanism", "name"),),
        )
        return
    if session.abstaining and mechanism.is_for_labels:
        words = "Expected false with many labels: a party says which it knows, by labels."
        yield Problem(("session", "abstaining"), words, (("mechanism", "name"),))
    if settings.model.abstain_below is not None and not session.abstaining:
        words = "Expected it only where all agreed on abstaining = true."
        yield Problem(("model", "abstain_below"), words, (("session", "abstaining"),))
    try:
        PartySettings.build_mechanism(settings)
    except (TypeError, ValueError) as error:
        words = str(error).replace(f"{mechanism.kind.__name__}.__init__() ", "")
        yield Problem(("mechanism", "name"), f"Expected the parameters of this mechanism, got: {words}")


def _role_rules(settings: Any) -> Iterator[Problem]:
    party, session, hardening = settings.party, settings.session, settings.hardening
    roles = [party.role, *(peer.role for peer in settings.peers)]
    if roles.count("guardian") != 1:
        yield Problem(
            ("party", "role"), f"Expected one guardian among all parties, got {roles.count('guardian')}."
        )
    if "asker" not in roles:
        yield Problem(("party", "role"), "Expected at least one asker among all parties, got none.")
    n_answerers, least = roles.count("answerer"), 2 if hardening.pairwise else 1
    if not least <= session.quorum <= n_answerers:
        yield Problem(
            ("session", "quorum"),
            f"Expected from {least} to {n_answerers}, the number of answering parties, got {session.quorum}.",
        )
    if hardening.noise_sigma is not None and session.quorum - hardening.n_colluding < 1:
        yield Problem(
            ("hardening", "n_colluding"),
            f"Expected fewer than the quorum of {session.quorum}: somebody's noise must stay unknown.",
            (("session", "quorum"),),
        )
    if party.role != "asker" and not settings.ledger.url:
        words = f'Expected the books of this {party.role}. For example: url = "ledger.db"'
        yield Problem(("ledger", "url"), words)
    for name, example in (("epsilon", "2.0"), ("delta", "1e-5")):
        if settings.ledger.url and not getattr(settings.ledger, name):
            words = f"Expected a number above 0 with url, got 0. For example: {name} = {example}"
            yield Problem(("ledger", name), words, (("ledger", "url"),))
    if party.role == "answerer" and not settings.model.path:
        yield Problem(
            ("model", "path"), 'Expected the file of the model that votes. For example: "model.skops"'
        )


# --- From a file to the settings of a party, or to every mistake in it with its line, and back. ---


_HEADING = """\
# Settings of one party of confidential queries; session, mechanism and hardening are the same for all.
# Every option is here with its default; lines that begin with # are comments."""


def read_party(path: str | PathLike[str]) -> PartySettings:
    """Read the settings of a party from a TOML file; paths in it are relative to its folder.

    >>> read_party("nowhere.toml")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: Expected a settings file, found nothing at nowhere.toml. Write one with: ...
    """
    place = Path(path)
    text = read_text(place, advice="Write one with: tellers party init")
    return parse_party(text, source=str(place), folder=str(place.resolve().parent))


def parse_party(text: str, *, source: str = "settings", folder: str = "") -> PartySettings:
    r"""Return the settings that a TOML text holds; `source` names it in errors, paths start at `folder`.

    >>> parse_party("[party]\nname = 'north'\nrole = 'teacher'\n")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: settings:3: party.role: Expected one of "asker", "answerer", "guardian", ...
    """
    document, lines = parse_document(text, source), key_lines(text)
    right: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in document.items():
        found: Sequence[Problem]
        if name not in SECTIONS:
            found = [unknown_section(name, value, sections=SECTIONS, beside=())]
        elif name == "peer":
            right["peers"], found = _peers(value)
        elif not isinstance(value, dict):
            found = [Problem((name,), f"Expected one section [{name}], got a value. Write [{name}] once.")]
        else:
            right[name], found = check_options(SECTIONS[name], value, (name,))
        problems += found
    if "party" not in document:
        problems.append(Problem(("party",), "Expected a section [party] with name and role, got none."))
    if problems:
        complain(problems, source, lines)
    sections = {name: SECTIONS[name](**values) for name, values in right.items() if name != "peers"}
    peers = tuple(PeerConfig(**values) for values in right.get("peers", ()))
    return PartySettings(**sections, peers=peers, folder=folder, source=source, lines=lines)


def write_party(settings: PartySettings) -> str:
    """Return settings as a commented TOML file that `parse_party` reads back to the same settings.

    >>> settings = example_settings("answerer")
    >>> parse_party(write_party(settings)) == settings
    True
    """
    titles = [title for title in SECTIONS if title != "peer"]
    sections = {title: getattr(settings, title) for title in titles}
    text = write_sections([_HEADING], sections, for_labels=settings.mechanism.is_for_labels)
    parts = ["\n# The other parties. Compare pins and keys by a second way before you trust them."]
    for peer in settings.peers:
        pairs = dataclasses.asdict(peer).items()
        said = "\n".join(f"{name} = {toml_value(value)}" for name, value in pairs if value not in ("", ()))
        parts.append(f"[[peer]]\n{said}")
    return text + "\n\n".join(parts) + "\n"


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
            name=other, role=card["role"], pin=card["pin"],
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


def _peers(value: Any) -> tuple[list[dict[str, Any]], list[Problem]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return [], [
            Problem(("peer",), "Expected a section [[peer]] for each other party, got something else.")
        ]
    right, problems = [], []
    for number, entry in enumerate(value):
        values, found = check_options(PeerConfig, entry, ("peer", number))
        missing = [name for name in ("name", "role", "pin") if name not in entry]
        found += [Problem(("peer", number, name), f"Expected a {name} here, got none.") for name in missing]
        right.append(values)
        problems += found
    return right, problems
