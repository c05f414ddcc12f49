"""How rows are assigned to teachers in a settings file: the section, and what it protects."""

from dataclasses import dataclass
from typing import Any, Literal

from .fields import Section, option

Protects = Literal["record", "person", "site"]


@dataclass(frozen=True, kw_only=True)
class PartitionConfig(Section):
    """How the private rows are dealt to teachers.

    >>> PartitionConfig(n_teachers=250, by="person")
    PartitionConfig(n_teachers=250, by='person', sites=(), stratified=False)
    """

    n_teachers: int = option(
        60, 'How many teachers. 0 with by = "site", where every site is one teacher.', least=0
    )
    by: Literal["auto", "record", "person", "site"] = option(
        "auto",
        "What goes to one teacher as a whole, and so what is protected: a record, all rows of a person, "
        "or a site. auto: a person where the data say whose row it is, else a record. Of clips, all that "
        "come from one source where sources are known.",
        choices=("auto", "record", "person", "site"),
    )
    sites: tuple[str, ...] = option(
        (),
        'With by = "site": all sites, one teacher each, in this order. They are declared, never read off '
        "private rows.",
    )
    stratified: bool = option(
        False,
        "Give every teacher its share of each class; only for records without an id. The guarantee then "
        "holds for a record that keeps its label.",
    )


def protects(run: Any) -> Protects:
    """Return what settings protect: what they say, or by "auto" persons where the data say whose row it is.

    >>> from tellers.config import DataConfig, RunConfig
    >>> protects(RunConfig(data=DataConfig(name="synthetic", options={"n_persons": 100})))
    'person'
    """
    said: Any = run.partition.by
    if said != "auto":
        return said  # type: ignore[no-any-return]
    data = run.data
    named = data.person and data.name in ("files", "image_table")
    has_persons = named or data.name in ("chexpert", "diabetes130")
    return "person" if has_persons or (data.name == "synthetic" and "n_persons" in data.options) else "record"
