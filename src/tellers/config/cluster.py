"""Teachers on a cluster in a settings file: the section, and what goes with what."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .fields import Section, option, options_of
from .problems import Problem

_ADDRESS = re.compile(r"(tcp|tls)://(\[[^\]]+\]|[^:/\[\]]+):[0-9]+/?")
_PEM = ("ca", "certificate", "key")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(Section):
    """Where teachers are trained, if not in this process and its children.

    >>> ClusterConfig(address="tcp://10.0.0.7:8786", folder="/shared/study").batch
    0
    """

    address: str = option(
        "",
        'A Dask cluster: "local" starts workers here, "tcp://host:port" or "tls://host:port" is a scheduler; '
        '"" = none.',
    )
    n_workers: int = option(0, "local: how many worker processes; 0 = one per core.", least=0)
    folder: str = option(
        "",
        "A folder or URL that this program and all workers can read and write, as private as the rows: the "
        'parts go there, and the teachers. "" = the private folder of the run.',
    )
    batch: int = option(
        0, "Teachers of one task; 0 = choose. Networks have tasks of their own size.", least=0
    )
    ca: str = option("", "tls: the certificate of the authority, a PEM file.")
    certificate: str = option("", "tls: the certificate of this program, a PEM file.")
    key: str = option("", "tls: its key, a PEM file.")
    timeout: float = option(30.0, "Seconds a scheduler and its first worker may take to answer.", above=0)
    patience: float = option(300.0, "Seconds to wait for a scheduler or workers that were lost.", above=0)


def cluster_rules(run: Any) -> Iterator[Problem]:
    """Return what does not go together in settings of a cluster.

    >>> from tellers.config import RunConfig
    >>> list(cluster_rules(RunConfig()))
    []
    """
    cluster, address = run.cluster, ("cluster", "address")
    usual = ClusterConfig()
    if not cluster.address:
        for one in options_of(ClusterConfig):
            if one.name in (*_PEM, "n_workers") and getattr(cluster, one.name) != getattr(usual, one.name):
                yield Problem(
                    ("cluster", one.name),
                    "Expected it only with an address, got it without. Drop it.",
                    (address,),
                )
        return
    if cluster.address != "local" and not _ADDRESS.fullmatch(cluster.address):
        yield Problem(
            address,
            f'Expected "local", "tcp://host:port" or "tls://host:port", got "{cluster.address}".',
        )
        return
    if cluster.n_workers and cluster.address != "local":
        yield Problem(
            ("cluster", "n_workers"),
            'Expected it only with address = "local", got it without. Drop it.',
            (address,),
        )
    is_tls = cluster.address.startswith("tls://")
    for name in _PEM:
        if is_tls and not getattr(cluster, name):
            yield Problem(
                ("cluster", name),
                f'Expected a PEM file with an address tls://..., got none. Like: {name} = "{name}.pem"',
                (address,),
            )
        if getattr(cluster, name) and not is_tls:
            yield Problem(
                ("cluster", name),
                "Expected it only with an address tls://..., got it without, where nothing is encrypted. "
                "Drop it, or take tls://.",
                (address,),
            )
    if run.teachers.timeout:
        yield Problem(
            ("teachers", "timeout"),
            f"Expected 0 on a cluster, got {run.teachers.timeout:g}. There a slow task is run a second time "
            "elsewhere, and the first answer counts.",
            (address,),
        )
