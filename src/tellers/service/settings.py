"""The settings of a service: sections, reading and writing."""

import dataclasses
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from ..runs.settings.mechanism import MechanismConfig, unfit_for_queries
from ..runs.settings.schema import (
    RULE_WORDS,
    Options,
    Problem,
    Settings,
    Text,
    budget_rules,
    only,
    option,
    wrong,
)

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class ServedConfig(Options, title="data"):
    """Who votes, and on what. Whatever stands here is private and stays on this machine.

    >>> ServedConfig(path="study").source
    'run'
    """

    source: Literal["run", "votes", "teachers"] = option(
        "run",
        "run: the folder of a finished `tellers run`, whose votes on its pool are served. votes: a vote "
        "file, one query per row of a public pool. teachers: a folder of trained ones, asked any row.",
    )
    path: Text = option("study", "The folder or file. Paths are relative to this file.")
    n_classes: int = option(0, "votes, teachers: the number of classes, declared, never counted.", ge=0)
    n_labels: int = option(
        0, "votes, teachers: with a mechanism for many labels, how many there are, in place of classes.", ge=0
    )
    n_features: int = option(0, "teachers: how many numbers a row has.", ge=0)
    pool: str = option(
        "",
        "votes, run: an .npy with the public rows of the pool, so that rows can be asked by their numbers as "
        "well as by their ids. teachers: public rows that can be asked by id.",
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        source, is_run, is_teachers = "data.source", self.source == "run", self.source == "teachers"
        named = f'with source = "{self.source}"'
        many = whole.mechanism is not None and whole.mechanism.is_for_labels
        declared, other = ("n_labels", "n_classes") if many else ("n_classes", "n_labels")
        least, given = (1 if many else 2), getattr(self, declared)
        if not is_run and given < least:
            words = f"Expected at least {least} {named}, got {given}. Declare it."
            yield wrong(f"data.{declared}", words, source)
        for name in (declared, other) if is_run else (other,):
            advice = "The run knows it. Drop it." if is_run else f"Declare {declared} alone."
            yield from whole.expect(f"data.{name}", (0,), named, source, "mechanism.name", advice=advice)
        if is_teachers != bool(self.n_features):
            wanted = "how many numbers a row has" if is_teachers else "0"
            yield wrong("data.n_features", f"Expected {wanted} {named}, got {self.n_features}.", source)
        if not is_run and whole.mechanism is None:
            words = f"Expected a section [mechanism] {named}, got none. For example: "
            yield wrong("mechanism.name", f'{words}name = "gnmax" and sigma = 40.0', source)


class LedgerConfig(Options, title="ledger"):
    """The books: where every answer is written down before it is given, and the most that may be spent.

    >>> LedgerConfig(url="ledger.db", epsilon=2.0, delta=1e-5).epsilon
    2.0
    """

    url: str = option(
        "",
        "A file, or the address of a PostgreSQL database. run: with nothing here the service goes on with "
        "the ledger and the budget of the run.",
    )
    name: Text = option("main", "Which ledger, where a database has several.")
    epsilon: float = option(0.0, "The budget of the data; fixed when the ledger is begun.", ge=0)
    delta: float = option(0.0, "Failure probability, well below 1 / the number of records.", ge=0, lt=1)
    rule: Literal["renyi", "clock"] = option("renyi", RULE_WORDS)
    timeout_seconds: int = option(
        15, "How long to wait for other writers, or for a database that is away, before 503.", ge=1
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        if not self.url and whole.data.source != "run":
            words = 'Expected one, got none. For example: url = "ledger.db"'
            yield wrong("ledger.url", words, "data.source")
        yield from budget_rules(self)
        if self.rule != "renyi" and not self.url:
            yield only("ledger.rule", "url; the ledger of a run has a rule of its own", "ledger.url")
        for name in ("epsilon", "delta"):
            if not self.url:
                when, advice = "without url, where the budget is the run's", "Drop it, or name a ledger."
                yield from whole.expect(f"ledger.{name}", (0,), when, advice=advice)


class PlanConfig(Options, title="personal"):
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


class VaultConfig(Options, title="vault"):
    """Exact costs, which look at the votes: encrypted with an operator's key, or, by default, not kept.

    >>> VaultConfig(path="costs.sealed", key_file="/etc/tellers/vault.key").path
    'costs.sealed'
    """

    path: str = option("", "The file they are kept in, encrypted; with nothing here none is kept.")
    key_file: str = option("", "The file that holds the key; its owner alone may read it (mode 0600).")
    key_env: str = option("", "Or the name of the environment variable that holds the key.")

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        if self.key_env and not _VARIABLE.fullmatch(self.key_env):
            # Not quoted: it may be the key.
            yield wrong(
                "vault.key_env",
                "Expected the name of an environment variable, got something else. If it is the key, make a "
                "new one: settings are no place for it.",
            )
        n_places = bool(self.key_file) + bool(self.key_env)
        if self.path and n_places != 1:
            got = "none" if not n_places else "both"
            words = f"Expected key_file or key_env, where the key of the vault is, got {got}."
            yield wrong("vault.key_file", words, "vault.path", "vault.key_env")
        if not self.path and n_places:
            words = "Expected the file of the vault beside its key, got none. For example: "
            yield wrong("vault.path", f'{words}path = "costs.sealed"', "vault.key_file", "vault.key_env")


class WitnessConfig(Options, title="witness"):
    """Who remembers the ledger's last line elsewhere, so that a ledger that lost lines is not served.

    >>> WitnessConfig(url="/mnt/other/heads").every
    1
    """

    url: str = option(
        "",
        "A file on another disk, a postgresql:// database, or the http(s):// address of a tellers witness "
        "serve; with nothing here the store of keys.",
    )
    every: int = option(
        1,
        "Note the last line after so many lines at most: 1 = before every answer. With more, the answers of "
        "the last every - 1 lines may be lost unnoticed.",
        ge=1,
    )
    token_file: str = option("", "http(s): the file with the witness's token; its owner alone may read it.")
    public_key: str = option("", "http(s): the key that the witness showed, by which it signs.")

    @property
    def is_http(self) -> bool:
        """Return whether it is a server's."""
        return self.url.startswith(("http://", "https://"))

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        for name in ("token_file", "public_key"):
            if self.is_http and not getattr(self, name):
                words = f"Expected the {name} that tellers witness serve shows, got none."
                yield wrong(f"witness.{name}", words, "witness.url")
            if not self.is_http and getattr(self, name):
                yield only(f"witness.{name}", "an http(s):// address as url", "witness.url")


class KeysConfig(Options, title="keys"):
    """Who may ask: API keys, of which only hashes are kept.

    >>> KeysConfig().store
    'keys.db'
    """

    store: Text = option("keys.db", "A file, or the address of a database.")


class LimitsConfig(Options, title="limits"):
    """What one request, one key and one address may ask for, and how many may connect.

    >>> LimitsConfig().max_batch
    1000
    """

    max_batch: int = option(1000, "Queries in one request.", ge=1)
    max_body_bytes: int = option(8_388_608, "Bytes of one request.", ge=1024)
    max_depth: int = option(8, "Brackets inside brackets of one request.", ge=4, le=64)
    requests_per_minute: int = option(
        600,
        "Requests of one key in any minute, over all services that share its store; 0 = no limit.",
        ge=0,
    )
    failures_per_minute: int = option(
        60,
        "Wrong keys from one address in any minute before it is refused, by each service; 0 = no limit.",
        ge=0,
    )
    max_connections: int = option(
        1000,
        "Connections at once; for one more, the oldest that has not shown a valid key is closed. Fewer where "
        "the system allows fewer open files.",
        ge=8,
    )
    connections_per_address: int = option(
        200,
        "Of them, without a valid key, from one address (of IPv6 a /64); 0 = no limit, as behind a proxy.",
        ge=0,
    )


class ServerConfig(Options, title="server"):
    """Where the service listens, and how it speaks.

    >>> ServerConfig().address
    'http://127.0.0.1:8420'
    """

    host: Text = option("127.0.0.1", "The address to listen on.")
    port: int = option(8420, "The port; 0 = any that is free.", ge=0, le=65_535)
    tls_cert: str = option("", "The certificate chain (PEM); with tls_key the service speaks TLS.")
    tls_key: str = option("", "Its private key (PEM).")
    plain_http: bool = option(
        False,
        "Allow a host other than this machine without TLS: only where a proxy in front of it speaks TLS. "
        "Keys travel with every request.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = option("info", "debug, info, warning or error.")
    session_minutes: int = option(30, "How long a sign-in to the dashboard lasts.", ge=1, le=1440)
    workers: int = option(
        1,
        "Processes that answer, one per core at the most: what the service spends on a question is then "
        "spread over them. They share ledger, keys and address.",
        ge=1,
        le=64,
    )
    shutdown_seconds: int = option(
        30, "How long requests in flight may take at the end; 0 = as long as they need.", ge=0
    )

    @property
    def is_tls(self) -> bool:
        """Return whether the service speaks TLS itself."""
        return bool(self.tls_cert)

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        if bool(self.tls_cert) != bool(self.tls_key):
            there, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            words = f"Expected {missing} beside {there}, got none."
            yield wrong(f"server.{missing}", words, f"server.{there}")
        if not self.is_tls and not self.plain_http and not is_local(self.host):
            yield wrong(
                "server.host",
                f'Expected TLS (tls_cert, tls_key) with host = "{self.host}", got none: keys would travel '
                "for everyone to read. Behind a proxy that speaks TLS, set plain_http = true.",
            )

    @property
    def address(self) -> str:
        """Return the URL of the service as seen from this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


class ServiceSettings(Settings):
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

    data: ServedConfig = dataclasses.field(default_factory=ServedConfig)
    mechanism: MechanismConfig | None = None
    ledger: LedgerConfig = dataclasses.field(default_factory=LedgerConfig)
    personal: PlanConfig = dataclasses.field(default_factory=PlanConfig)
    vault: VaultConfig = dataclasses.field(default_factory=VaultConfig)
    witness: WitnessConfig = dataclasses.field(default_factory=WitnessConfig)
    keys: KeysConfig = dataclasses.field(default_factory=KeysConfig)
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)

    file: ClassVar[str] = "service.toml"
    heading: ClassVar[str] = """\
Settings of a service of tellers: labels for those who hold a key, each charged before it is drawn.
    tellers serve --config {name}
Every option is here with its default; lines that begin with # are comments."""
    advice: ClassVar[str] = "Write one with: tellers serve --init {name}"
    left_out: ClassVar[Mapping[str, str]] = {
        "mechanism": """\
How votes become outcomes; without this section, the way of the run.
[mechanism]
name = "confident"
sigma = 40.0
threshold = 200.0
sigma_threshold = 150.0"""
    }

    def _unfit_mechanism(self) -> str:
        chosen = self.mechanism
        if chosen is not None and chosen.is_sum:
            return unfit_for_queries(chosen.name)
        return "" if chosen is None or not chosen.is_one_batch else unfit_for_single_questions(chosen.name)

    def _mechanism_refusals(self) -> Iterator[Problem]:
        # How many labels there are is known when the votes are there: the mechanism is made then.
        if self.mechanism is not None and not self.mechanism.is_for_labels:
            yield from super()._mechanism_refusals()


def unfit_for_single_questions(name: str) -> str:
    """Return why a mechanism that answers one whole batch cannot be served.

    >>> print(unfit_for_single_questions("tested-gnmax")[:66])
    Expected a mechanism that answers one question at a time, as a ser
    """
    return (
        "Expected a mechanism that answers one question at a time, as a service is asked, got "
        f'"{name}": all queries of its one batch are asked at once, and a label released before its test '
        "voids it. Name gnmax or confident, or release the batch with: tellers run"
    )


def is_local(host: str) -> bool:
    """Return whether an address is that of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


read_settings = ServiceSettings.read
parse_settings = ServiceSettings.parse
write_settings = ServiceSettings.written
