"""A Dask cluster: its scheduler, its security, the connection to it, and versions that must agree."""

import asyncio
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ... import __version__
from ...errors import ClusterFailed, MissingExtra, require_count, require_positive

# --- Versions that must agree: teachers are the same wherever they are trained, or the run does not begin.


Versions = dict[str, str]

# Libraries that an extra of the same name brings.
EXTRAS = ("torch", "distributed")


def versions_here(packages: Sequence[str] = ()) -> Versions:
    """Return what this process runs: Python, NumPy, this package and those that are named; "" is missing."""
    python = ".".join(platform.python_version_tuple()[:2])
    named = ("numpy", "scikit-learn", "distributed", *packages)
    return {name: _version(name) for name in named} | {"python": python, "tellers": __version__}


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return one line for each version that differs; builds of one version for other devices do not."""
    lines = []
    for name, here in wanted.items():
        there = found.get(name, "")
        if there.partition("+")[0] != here.partition("+")[0]:
            lines.append(f"{name} {there or 'missing'} instead of {here or 'none'}")
    return lines


def say_different(where: str, lines: Sequence[str]) -> str:
    """Say what differs there and what to do about it."""
    lacking = [line.split()[0] for line in lines if " missing " in line and line.split()[0] in EXTRAS]
    what = f"pip install 'tellers[{','.join(lacking)}]'" if lacking else "the same versions everywhere"
    return f"Expected the versions of this program on {where}, got {'; '.join(lines)}. Install there: {what}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# --- A cluster: where its scheduler is, who may speak to it, and the line to it, which may be lost and found.


LOCAL = "local"
_ADDRESS = re.compile(r"(tcp|tls)://(\[[^\]]+\]|[^:/\[\]]+):[0-9]+/?")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Dask cluster: "local" starts worker processes here, "tcp://..." or "tls://..." is a scheduler.

    With tls:// both sides show a certificate of `ca`: `certificate` and `key` are those of this program.
    `timeout` is how many seconds a scheduler and its first worker may take to answer, `patience` how many a
    run waits for a scheduler or workers that were lost. `n_workers` is for "local": None takes every core.

    >>> Cluster(address="tcp://10.0.0.7:8786").is_local
    False
    >>> Cluster(address="tls://10.0.0.7:8786")
    Traceback (most recent call last):
        ...
    ValueError: Expected ca, certificate and key, PEM files, for the address tls://10.0.0.7:8786, got none ...
    """

    address: str = LOCAL
    n_workers: int | None = None
    ca: str = ""
    certificate: str = ""
    key: str = ""
    timeout: float = 30.0
    patience: float = 300.0

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout, patience=self.patience)
        if self.address != LOCAL and not _ADDRESS.fullmatch(self.address):
            raise ValueError(
                f'Expected the address of a cluster, "local", "tcp://host:port" or "tls://host:port", got '
                f"{self.address!r}."
            )
        if self.n_workers is not None:
            require_count(n_workers=self.n_workers)
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        missing = [name for name, path in files.items() if not path]
        if self.address.startswith("tls://") and missing:
            raise ValueError(
                f"Expected ca, certificate and key, PEM files, for the address {self.address}, got none for "
                f"{', '.join(missing)}. The scheduler and the workers are started with such files too."
            )
        if not self.address.startswith("tls://") and len(missing) < len(files):
            raise ValueError(
                f"Expected certificates only with an address tls://..., got them with {self.address}. "
                "Without tls:// nothing is encrypted and nobody is asked who they are."
            )

    @property
    def is_local(self) -> bool:
        """Return whether its workers are started by this program, on this machine."""
        return self.address == LOCAL

    def security(self) -> Any:
        """Return Dask's security object for the certificates, or None for an address without any.

        >>> Cluster(address="tcp://10.0.0.7:8786").security()
        """
        if not self.address.startswith("tls://"):
            return None
        distributed = load_distributed()
        for name, path in (("ca", self.ca), ("certificate", self.certificate), ("key", self.key)):
            if not os.access(path, os.R_OK):
                raise ClusterFailed(f"Expected a PEM file as {name} at {path}, found none that can be read.")
        return distributed.Security(
            tls_ca_file=self.ca, tls_client_cert=self.certificate, tls_client_key=self.key,
            require_encryption=True,
        )  # fmt: skip


class _Stranger(OSError):
    """Whatever answered at an address, it does not speak as Dask does."""


def _client_class(timeout: float) -> Any:
    distributed = load_distributed()

    class Careful(distributed.Client):  # type: ignore[name-defined, misc]
        """A client that waits no longer for a greeting than for a connection, and hangs up on strangers."""

        async def _ensure_connected(self, *given: Any, **named: Any) -> Any:
            greeting = super()._ensure_connected(*given, **named)
            try:
                # Dask itself bounds the connection alone, and a listener that says nothing holds it for ever.
                return await asyncio.wait_for(greeting, timeout + 1)
            except (OSError, ImportError):
                raise
            except Exception as error:  # such as too little memory for what another's greeting seems to ask
                raise _Stranger from error

    return Careful


def load_distributed() -> Any:
    """Return the module distributed, or say which extra brings it."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra(
            "Expected Dask for teachers on a cluster, found none: pip install 'tellers[distributed]'"
        ) from error
    return distributed


@dataclass(eq=False, repr=False)
class Link:
    """The line to a cluster; when it breaks, `again` makes another, and what was in flight is lost.

    >>> link = Link(Cluster(n_workers=1, timeout=120))
    >>> link.open()
    >>> link.require_versions(), [n_threads for n_threads, _ in link.workers().values()]
    (None, [1])
    >>> list(link.ask_workers(sum, [1, 2]).values())
    [3]
    >>> link.again()
    >>> link.is_lost
    False
    >>> link.close()
    """

    cluster: Cluster
    client: Any = None
    _started: Any = None
    _packages: tuple[str, ...] = ()

    def open(self) -> None:
        """Reach the scheduler, and start it first where the cluster is local."""
        distributed = load_distributed()
        address, security = self.cluster.address, self.cluster.security()
        if self.cluster.is_local:
            security = distributed.Security.temporary()  # nobody else on this machine may send it tasks
            self._started = _start_local(self.cluster.n_workers or os.cpu_count() or 1, security)
            address = self._started.scheduler_address
        self.client = self._reach(address, security, self.cluster.timeout)
        self._wait_for_a_worker(self.cluster.timeout)

    def again(self) -> None:
        """Reach the scheduler again, for as long as patience lasts, after the line broke."""
        with suppress(Exception):
            self.client.close(timeout=1)
        deadline = time.monotonic() + self.cluster.patience
        address = self._started.scheduler_address if self._started is not None else self.cluster.address
        security = self._started.security if self._started is not None else self.cluster.security()
        while True:
            left = deadline - time.monotonic()
            try:
                self.client = self._reach(address, security, max(0.1, min(left, 5.0)))
                self._wait_for_a_worker(max(0.1, deadline - time.monotonic()))
                self.require_versions(self._packages)
                return
            except ClusterFailed as error:
                if time.monotonic() >= deadline or " versions " in str(error):
                    raise
            time.sleep(0.2)

    @property
    def is_lost(self) -> bool:
        """Return whether the line to the scheduler is broken."""
        return self.client is None or self.client.status != "running"

    def require_versions(self, packages: Sequence[str] = ()) -> None:
        """Refuse a scheduler or workers that run other versions than this program."""
        self._packages = tuple(packages)
        wanted = versions_here(packages)
        plain = {name: wanted[name] for name in ("python", "distributed")}
        told = self.client.get_versions()["scheduler"]
        found = {
            "python": ".".join(str(told["host"]["python"]).split(".")[:2]),
            "distributed": str(told["packages"]["distributed"]),
        }
        lines = differences(plain, found)
        if lines:
            raise ClusterFailed(say_different(f"the scheduler {self.cluster.address}", lines))
        for worker, there in self.client.run(versions_here, tuple(packages), on_error="return").items():
            if isinstance(there, ImportError):
                there = {**plain, "numpy": wanted["numpy"]}  # it could not even open the question
            if isinstance(there, BaseException):
                continue  # a worker that was lost while it was asked
            lines = differences(wanted, there)
            missing = [line for line in lines if " missing " in line]
            if missing:
                raise MissingExtra(say_different(f"the worker {worker}", missing))
            if lines:
                raise ClusterFailed(say_different(f"the worker {worker}", lines))

    def ask_workers(self, function: Callable[..., Any], *given: Any) -> dict[str, Any]:
        """Return what every worker says to one question; an exception stands for itself."""
        answers: dict[str, Any] = self.client.run(function, *given, on_error="return")
        return answers

    def workers(self) -> dict[str, tuple[int, frozenset[str]]]:
        """Return the workers there are: how many tasks each takes at a time, and its resources."""
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        return {
            address: (int(about["nthreads"]), frozenset(about.get("resources") or ()))
            for address, about in found.items()
        }

    def close(self) -> None:
        """Hang up, and end the workers that were started here."""
        for thing in (self.client, self._started):
            if thing is not None:
                with suppress(Exception):
                    thing.close(timeout=5)
        self.client = self._started = None

    def _reach(self, address: str, security: Any, timeout: float) -> Any:
        try:
            # Directly: ballots go from worker to driver, and not through the scheduler's memory.
            return _client_class(timeout)(
                address, security=security, timeout=timeout, direct_to_workers=True, set_as_default=False
            )
        except Exception as error:
            why = error if type(error) is TimeoutError else error.__cause__ or error
            what = f"nobody answered in {timeout:g} seconds"
            hint = "Start it, check host and port, and whether its certificates are of the same authority"
            if isinstance(error, _Stranger):
                what = "something else answered"
                hint = "Check host and port: that of a scheduler is not the port of its pages"
            raise ClusterFailed(
                f"Expected a scheduler at {address}, {what} ({type(why).__name__}). {hint}."
            ) from error

    def _wait_for_a_worker(self, timeout: float) -> None:
        try:
            self.client.wait_for_workers(1, timeout=timeout)
        except (TimeoutError, OSError) as error:
            raise ClusterFailed(
                f"Expected at least one worker at {self.cluster.address}, got none in {timeout:g} seconds. "
                "Start workers: dask worker tcp://host:port"
            ) from error


def _start_local(n_workers: int, security: Any) -> Any:
    import dask

    # No pages: they would answer anybody on this machine without asking for a certificate.
    no_pages: dict[str, list[object]] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with dask.config.set(no_pages):
        return load_distributed().LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
            worker_dashboard_address=None, host="127.0.0.1", protocol="tls://", security=security,
            memory_limit=0, silence_logs=50,
        )  # fmt: skip


@contextmanager
def connect(cluster: Cluster) -> Iterator[Link]:
    """Reach a cluster, and hang up at the end; the workers of a local one end with it.

    >>> with connect(Cluster(address="tcp://127.0.0.1:9", timeout=0.2)) as link:
    ...     pass
    Traceback (most recent call last):
        ...
    tellers.errors.ClusterFailed: Expected a scheduler at tcp://127.0.0.1:9, nobody answered in ...
    """
    link = Link(cluster)
    try:
        link.open()
        yield link
    finally:
        link.close()
