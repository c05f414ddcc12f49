"""From a file to the settings of a party, or to every mistake in it with its line, and back."""

import dataclasses
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .checks import check_options, unknown_section
from .document import parse_document, read_text
from .lines import key_lines
from .mechanism import MechanismConfig
from .party import (
    SECTIONS,
    BooksConfig,
    ModelConfig,
    PartyConfig,
    PartySettings,
    PeerConfig,
    SessionConfig,
)
from .problems import Problem, complain
from .values import toml_value
from .writing import write_sections

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
    """Return settings of a party to begin with; `parties` holds role, address, keys and label set of each.

    >>> card = {"address": "127.0.0.1:7400", "pin": "0" * 64, "mask_key": "0" * 64}
    >>> roles = {"ann": "asker", "guard": "guardian", "north": "answerer", "south": "answerer"}
    >>> settings = settings_for(
    ...     "north", {name: {"role": role, **card} for name, role in roles.items()},
    ...     session=SessionConfig(n_features=4, n_outputs=3),
    ...     mechanism=MechanismConfig(name="gnmax", sigma=8.0),
    ... )
    >>> settings.roster
    ('north', 'south')
    """
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
    """Return settings of a party of this role in a small session, for examples and tests.

    >>> example_settings("asker").party.name
    'ann'
    """
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
