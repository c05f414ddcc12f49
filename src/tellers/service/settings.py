"""The settings of a service: sections, reading and writing."""

import dataclasses
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from ..runs.settings._checks import check_options, freeze, unknown_section
from ..runs.settings._document import key_lines, parse_document, read_text
from ..runs.settings._fields import Problem, complain, option
from ..runs.settings._rules import mechanism_rules
from ..runs.settings.files import write_sections
from ..runs.settings.mechanism import MechanismConfig

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
LEVELS = ("debug", "info", "warning", "error")


class _Section:
    """Checks every option of a section when a record is made."""

    def __post_init__(self) -> None:
        freeze(self, sections=SECTIONS)


@dataclass(frozen=True, kw_only=True)
class ServedConfig(_Section):
    """Who votes, and on what. Whatever stands here is private and stays on this machine.

    >>> ServedConfig(path="study").source
    'run'
    """

    source: Literal["run", "votes", "teachers"] = option(
        "run",
        "run: the folder of a finished `tellers run`, whose votes on its pool are served. votes: a vote "
        "file, one query per row of a public pool. teachers: a folder of trained ones, asked any row.",
        choices=("run", "votes", "teachers"),
    )
    path: str = option("study", "The folder or file. Paths are relative to this file.", non_empty=True)
    n_classes: int = option(0, "votes, teachers: the number of classes, declared, never counted.", least=0)
    n_features: int = option(0, "teachers: how many numbers a row has.", least=0)
    pool: str = option(
        "",
        "votes, run: an .npy with the public rows of the pool, so that rows can be asked by their numbers as "
        "well as by their ids. teachers: public rows that can be asked by id.",
    )


@dataclass(frozen=True, kw_only=True)
class LedgerConfig(_Section):
    """The books: where every answer is written down before it is given, and the most that may be spent.

    >>> LedgerConfig(url="ledger.db", epsilon=2.0, delta=1e-5).epsilon
    2.0
    """

    url: str = option(
        "",
        "A file, or the address of a PostgreSQL database. run: with nothing here the service goes on with "
        "the ledger and the budget of the run.",
    )
    name: str = option("main", "Which ledger, where a database has several.", non_empty=True)
    epsilon: float = option(0.0, "The budget of the data; fixed when the ledger is begun.", least=0)
    delta: float = option(0.0, "Failure probability, well below 1 / the number of records.", least=0, below=1)
    timeout_seconds: int = option(
        15, "How long to wait for other writers, or for a database that is away, before 503.", least=1
    )


@dataclass(frozen=True, kw_only=True)
class PlanConfig(_Section):
    """Groups of people with budgets of their own, each with an account in the ledger.

    >>> PlanConfig(plan="study/plan.json").leave
    False
    """

    plan: str = option(
        "",
        "The plan by which groups vote and pay (plan.json). run: with nothing here, the one in its folder, "
        "where there is one.",
    )
    leave: bool = option(
        False,
        "Go on without a group whose budget is used; not with upsampling, where teachers would have to be "
        "trained anew. Otherwise it ends there.",
    )


@dataclass(frozen=True, kw_only=True)
class VaultConfig(_Section):
    """Exact costs, which look at the votes: encrypted with an operator's key, or, by default, not kept.

    >>> VaultConfig(path="costs.sealed", key_file="/etc/tellers/vault.key").path
    'costs.sealed'
    """

    path: str = option("", "The file they are kept in, encrypted; with nothing here none is kept.")
    key_file: str = option("", "The file that holds the key; its owner alone may read it (mode 0600).")
    key_env: str = option("", "Or the name of the environment variable that holds the key.")


@dataclass(frozen=True, kw_only=True)
class KeysConfig(_Section):
    """Who may ask: API keys, of which only hashes are kept.

    >>> KeysConfig().store
    'keys.db'
    """

    store: str = option("keys.db", "A file, or the address of a database.", non_empty=True)


@dataclass(frozen=True, kw_only=True)
class LimitsConfig(_Section):
    """What one request, and one key, may ask for.

    >>> LimitsConfig().max_batch
    1000
    """

    max_batch: int = option(1000, "Queries in one request.", least=1)
    max_body_bytes: int = option(8_388_608, "Bytes of one request.", least=1024)
    max_depth: int = option(8, "Brackets inside brackets of one request.", least=4, most=64)
    requests_per_minute: int = option(
        600,
        "Requests of one key in any minute, over all services that share its store; 0 = no limit.",
        least=0,
    )
    failures_per_minute: int = option(
        60,
        "Wrong keys from one address in any minute before it is refused, by each service; 0 = no limit.",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class ServerConfig(_Section):
    """Where the service listens, and how it speaks.

    >>> ServerConfig().address
    'http://127.0.0.1:8420'
    """

    host: str = option("127.0.0.1", "The address to listen on.", non_empty=True)
    port: int = option(8420, "The port; 0 = any that is free.", least=0, most=65_535)
    tls_cert: str = option("", "The certificate chain (PEM); with tls_key the service speaks TLS.")
    tls_key: str = option("", "Its private key (PEM).")
    plain_http: bool = option(
        False,
        "Allow a host other than this machine without TLS: only where a proxy in front of it speaks TLS. "
        "Keys travel with every request.",
    )
    log_level: str = option("info", "debug, info, warning or error.", choices=LEVELS)
    session_minutes: int = option(30, "How long a sign-in to the dashboard lasts.", least=1, most=1440)
    shutdown_seconds: int = option(
        30, "How long requests in flight may take at the end; 0 = as long as they need.", least=0
    )

    @property
    def is_tls(self) -> bool:
        """Return whether the service speaks TLS itself."""
        return bool(self.tls_cert)

    @property
    def address(self) -> str:
        """Return the URL of the service as seen from this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """All settings of a service, checked one by one and against each other.

    `mechanism` is None where the run's own is meant. `folder` is where relative paths start; `source` is the
    file they were read from and `lines` the line of each key in it.

    >>> settings = ServiceSettings(server=ServerConfig(port=9000), folder="/srv")
    >>> settings.server.port, settings.path("keys.db").name, settings.place("ledger.db")
    (9000, 'keys.db', '/srv/ledger.db')
    >>> ServiceSettings(data=ServedConfig(source="votes", path="votes.npz"))
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: data.n_classes: Expected at least 2 with source = "votes", got 0. ...
    """

    data: ServedConfig = field(default_factory=ServedConfig)
    mechanism: MechanismConfig | None = None
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    personal: PlanConfig = field(default_factory=PlanConfig)
    vault: VaultConfig = field(default_factory=VaultConfig)
    keys: KeysConfig = field(default_factory=KeysConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    folder: str = field(default="", repr=False, compare=False)
    source: str = field(default="", repr=False, compare=False)
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        complain(service_rules(self), self.source, self.lines)

    def path(self, text: str) -> Path:
        """Return a path of the file, from where relative ones start."""
        return Path(self.folder) / text

    def place(self, url: str) -> str:
        """Return a database's address as it is, or the path of a file in full."""
        return url if "://" in url else str(self.path(url))


def service_rules(settings: Any) -> Iterator[Problem]:
    """Check settings across sections."""
    yield from _data_rules(settings)
    yield from _ledger_rules(settings)
    yield from _vault_rules(settings.vault)
    if settings.mechanism is not None:
        yield from mechanism_rules(settings)
    server = settings.server
    if bool(server.tls_cert) != bool(server.tls_key):
        there, missing = ("tls_cert", "tls_key") if server.tls_cert else ("tls_key", "tls_cert")
        yield Problem(
            ("server", missing), f"Expected {missing} beside {there}, got none.", (("server", there),)
        )
    if not server.is_tls and not server.plain_http and not is_local(server.host):
        yield Problem(
            ("server", "host"),
            f'Expected TLS (tls_cert, tls_key) with host = "{server.host}", got none: keys would travel for '
            "everyone to read. Behind a proxy that speaks TLS, set plain_http = true.",
        )


def is_local(host: str) -> bool:
    """Return whether an address is that of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _data_rules(settings: Any) -> Iterator[Problem]:
    data = settings.data
    source, is_run = (("data", "source"),), data.source == "run"
    named = f'source = "{data.source}"'
    if not is_run and data.n_classes < 2:
        yield Problem(
            ("data", "n_classes"),
            f"Expected at least 2 with {named}, got {data.n_classes}. Declare it.",
            source,
        )
    if is_run and data.n_classes:
        yield Problem(("data", "n_classes"), f"Expected 0 with {named}: the run knows it. Drop it.", source)
    if (data.source == "teachers") != bool(data.n_features):
        wanted = "how many numbers a row has" if data.source == "teachers" else "0"
        yield Problem(
            ("data", "n_features"), f"Expected {wanted} with {named}, got {data.n_features}.", source
        )
    if not is_run and settings.mechanism is None:
        yield Problem(
            ("mechanism", "name"),
            f'Expected a section [mechanism] with {named}, got none. For example: name = "gnmax" and '
            "sigma = 40.0",
            source,
        )


def _ledger_rules(settings: Any) -> Iterator[Problem]:
    ledger = settings.ledger
    if not ledger.url and settings.data.source != "run":
        words = 'Expected one, got none. For example: url = "ledger.db"'
        yield Problem(("ledger", "url"), words, (("data", "source"),))
    for name in ("epsilon", "delta"):
        value = getattr(ledger, name)
        if ledger.url and not value:
            example = {"epsilon": "2.0", "delta": "1e-5"}[name]
            yield Problem(
                ("ledger", name),
                f"Expected a number above 0 with url, got 0. For example: {name} = {example}",
                (("ledger", "url"),),
            )
        if not ledger.url and value:
            yield Problem(
                ("ledger", name),
                f"Expected 0 without url, where the budget is the run's, got {value:g}. Drop it, or name a "
                "ledger.",
            )


def _vault_rules(vault: Any) -> Iterator[Problem]:
    if vault.key_env and not _VARIABLE.fullmatch(vault.key_env):
        # Not quoted: it may be the key.
        yield Problem(
            ("vault", "key_env"),
            "Expected the name of an environment variable, got something else. If it is the key, make a new "
            "one: settings are no place for it.",
        )
    n_places = bool(vault.key_file) + bool(vault.key_env)
    if vault.path and n_places != 1:
        got = "none" if not n_places else "both"
        yield Problem(
            ("vault", "key_file"),
            f"Expected key_file or key_env, where the key of the vault is, got {got}.",
            (("vault", "path"), ("vault", "key_env")),
        )
    if not vault.path and n_places:
        yield Problem(
            ("vault", "path"),
            'Expected the file of the vault beside its key, got none. For example: path = "costs.sealed"',
            (("vault", "key_file"), ("vault", "key_env")),
        )


SECTIONS: dict[str, type] = {
    "data": ServedConfig,
    "mechanism": MechanismConfig,
    "ledger": LedgerConfig,
    "personal": PlanConfig,
    "vault": VaultConfig,
    "keys": KeysConfig,
    "limits": LimitsConfig,
    "server": ServerConfig,
}


# --- Reading and writing ---

_HEADING = """\
# Settings of a service of tellers: labels for those who hold a key, each charged before it is drawn.
#     tellers serve --config {name}
# Every option is here with its default; lines that begin with # are comments."""
_RUNS_OWN = """\
# How votes become outcomes; without this section, the way of the run.
# [mechanism]
# name = "confident"
# sigma = 40.0
# threshold = 200.0
# sigma_threshold = 150.0"""


def read_settings(path: str | PathLike[str]) -> ServiceSettings:
    """Read the settings of a service from a TOML file; paths in it are relative to its folder.

    >>> read_settings("nowhere.toml")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: Expected a settings file, found nothing at nowhere.toml. Write one with: ...
    """
    place = Path(path)
    text = read_text(place, advice=f"Write one with: tellers serve --init {place.name}")
    return parse_settings(text, source=str(place), folder=str(place.resolve().parent))


def parse_settings(text: str, *, source: str = "settings", folder: str = "") -> ServiceSettings:
    r"""Return the settings that a TOML text holds; `source` names it in errors, paths start at `folder`.

    >>> parse_settings("[server]\nport = 9000\n").server.port
    9000
    >>> parse_settings("[server]\nprot = 9000\n")
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: settings:2: server.prot: Unknown option. ... Did you mean port?
    """
    document, lines = parse_document(text, source), key_lines(text)
    right: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for name, value in document.items():
        if name not in SECTIONS:
            found = [unknown_section(name, value, sections=SECTIONS, beside=())]
        elif not isinstance(value, dict):
            found = [Problem((name,), f"Expected one section [{name}], got a value. Write [{name}] once.")]
        else:
            right[name], found = check_options(SECTIONS[name], value, (name,))
        problems += found
    bad = {problem.key[:2] for problem in problems}
    sections = {name: SECTIONS[name](**values) for name, values in right.items()}
    # With a default in place of what is wrong: rules that look at one of those would speak of the default.
    usual = {
        field.name: getattr(ServiceSettings(), field.name) for field in dataclasses.fields(ServiceSettings)
    }
    for problem in service_rules(SimpleNamespace(**{**usual, **sections})):
        looked_at = {part for key in (problem.key, *problem.related) for part in (key[:1], key[:2])}
        if bad.isdisjoint(looked_at):
            problems.append(problem)
    complain(problems, source, lines)
    return ServiceSettings(**sections, folder=folder, source=source, lines=lines)


def write_settings(settings: ServiceSettings, *, name: str = "service.toml") -> str:
    """Return settings as a commented TOML file that `parse_settings` reads back to the same settings.

    >>> parse_settings(write_settings(ServiceSettings())) == ServiceSettings()
    True
    """
    parts = [_HEADING.format(name=name)]
    if settings.mechanism is None:
        parts.append(_RUNS_OWN)
    sections = {title: getattr(settings, title) for title in SECTIONS}
    return write_sections(
        parts, {title: section for title, section in sections.items() if section is not None}
    )
