"""The settings of a run: a section for each part of it, with its options and what goes with what."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator
from pydantic.json_schema import SkipJsonSchema

from ...data._records import FILES, NAMED, NamedData
from ...mechanisms.base import Mechanism, accountant_for
from ...students.fitting import STUDENT_KINDS
from .._catalogue import MODELS, SEMI_SUPERVISED, model_names
from ._document import toml_value
from .mechanism import AUTO, LabelsConfig, MechanismConfig, SumConfig
from .schema import (
    Names,
    Options,
    Problem,
    Settings,
    Table,
    Text,
    meant,
    only,
    option,
    refuse,
    unknown,
    wrong,
)

Protects = Literal["record", "person", "site"]
CLIPS = "clips"
_AS_USUAL = -1
_PLACES = ("private", "public", "test")
# What the pipeline itself hands to a loader.
_NOT_OPTIONS = (
    "data_dir", "part", "path", "target", "person", "id", "site", "classes", "label_names", "need_labels",
)  # fmt: skip
_IMPORTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _known_model(value: str) -> str:
    if not _IMPORTED.fullmatch(value) and value not in (*model_names(), AUTO):
        raise refuse(
            f"Expected one of {', '.join(MODELS)} (those of scikit-learn also as scaled_...) or "
            f"package.module:Name, got {toml_value(value)}.{meant(value, model_names())}"
        )
    return value


Model = Annotated[Text, AfterValidator(_known_model)]
if TYPE_CHECKING:
    from ...privacy.budget import Accountant
    from ...privacy.rdp import RdpCurve

    DataName = str
    KindName = str
else:
    DataName = Literal[tuple(NAMED)]
    KindName = Literal[tuple(STUDENT_KINDS)]


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _place(name: str, what: str) -> Any:
    """Return the property that says where something named in the settings is."""

    def find(data: "DataConfig") -> Path | None:
        return data.path(getattr(data, name))

    return property(find, doc=f"Return where {what}, or None.")


class DataConfig(Options, title="data"):
    """What is learned from, what is asked, what is tested on.

    >>> data = DataConfig(name="files", private="rows.csv", public="pool.csv", folder="study")
    >>> data.private, data.private_path.as_posix(), data.test_path
    ('rows.csv', 'study/rows.csv', None)
    """

    name: DataName = option(
        "digits",
        f"{_listed(name for name, one in NAMED.items() if not one.files)}, or "
        '"files" for tables of your own; with many labels also '
        f"{_listed(name for name, one in NAMED.items() if one.files and not one.load)}, "
        "for files of your own in these layouts.",
    )
    private: str = option(
        "",
        f"files: the private rows, with the target; {NAMED[FILES].files}. "
        f"{'; '.join(f'{name}: {one.files}' for name, one in NAMED.items() if one.files and name != FILES)}. "
        "Paths are relative to this file.",
    )
    public: str = option("", "files: the public rows to be labelled; a target is not needed.")
    test: str = option(
        "",
        "files: public rows to test the student on, with the target; without them no accuracy is measured.",
    )
    target: str = option("", "files: the column that says the class.")
    person: str = option(
        "",
        'files, image_table: the column that says whose row it is; "" = there is none. Persons are then '
        'protected, with all their rows, unless [partition] by = "record" says otherwise.',
    )
    id: str = option(
        "",
        'files: the column that names a record, where a record is protected; "" = there is none, and records '
        "keep their place in the table.",
    )
    site: str = option("", 'files: the column that says where a row was collected; "" = there is none.')
    classes: Names = option(
        (),
        "files: all classes, in the order of their ids; clips: the labels, where every clip has exactly one. "
        "They are declared, never read off private labels.",
    )
    directory: str = option(
        "", 'The folder of the published data sets; "" = the environment variable TELLERS_DATA says it.'
    )
    rows: int = option(
        0,
        "About how many private rows there are, declared; 0 = not said. Where persons are protected the true "
        "number is private: this one is shown instead, and delta is held against it.",
        ge=0,
    )
    n_public: int = option(
        _AS_USUAL,
        "Rows set aside as the public pool, from the published test part where the data set has one "
        f"({', '.join(name for name, one in NAMED.items() if one.has_test_part)}), else from its rows. "
        "Nothing protects rows that are set aside. 0 where public names a file.",
        ge=0,
        shown=f"what suits the data set, {NAMED['digits'].set_aside[0]} for digits",
    )
    n_test: int = option(
        _AS_USUAL,
        "Rows set aside to test the student on; nothing protects them either. 0 = the rest of the published "
        "test part; with files, none.",
        ge=0,
        shown=f"what suits the data set, {NAMED['digits'].set_aside[1]} for digits",
    )
    overlap: Literal["warn", "refuse"] = option(
        "warn",
        "What happens where rows of the pool or the test are exact copies of private ones, feature by "
        "feature: warn writes how many to private/record.json and goes on, refuse ends the run before "
        "anything is trained, which tells whoever sees it that there are some.",
    )
    options: Table = option(
        dict, 'What else the loader of the data set takes, e.g. {balanced = true} for "diabetes130".'
    )
    # Where relative paths start. No option: it is the folder of the file that was read.
    folder: Annotated[str, SkipJsonSchema()] = dataclasses.field(default="", repr=False, compare=False)

    private_path = _place("private", "the private rows are")
    public_path = _place("public", "the public rows are")
    test_path = _place("test", "the test rows are")
    directory_path = _place("directory", "the published data sets are")

    def __post_init__(self) -> None:
        for name, n_rows in zip(("n_public", "n_test"), self.record.set_aside, strict=True):
            if getattr(self, name) == _AS_USUAL:
                object.__setattr__(self, name, n_rows)

    def path(self, written: str) -> Path | None:
        """Return where something named in the settings is, or None where nothing is named.

        >>> DataConfig(folder="study").path("consent.csv").as_posix()
        'study/consent.csv'
        """
        return Path(self.folder) / Path(written).expanduser() if written else None

    @property
    def record(self) -> NamedData:
        """Return what is known of the data set by its name."""
        return NAMED[self.name]

    @property
    def is_files(self) -> bool:
        """Return whether the rows are in files of one's own."""
        return bool(self.record.files)

    @property
    def has_persons(self) -> bool:
        """Return whether it says whose row each is, or is told the column."""
        return bool(self.person) or self.record.has_persons or "n_persons" in self.options

    def _rules(self, whole: Any) -> Iterator[Problem]:
        has_classes = not whole.labels.names and self.name == FILES
        one_each = not whole.labels.names and self.name == CLIPS and bool(self.classes)
        for name, example in (("private", self._example("private")), ("target", '"diagnosis"')):
            if self.is_files and not getattr(self, name) and (name == "private" or has_classes):
                words = f'Expected one with name = "{self.name}", got none. For example: {name} = '
                yield wrong(f"data.{name}", words + example, "data.name", "labels.names")
        if (has_classes or one_each) and len(self.classes) < 2:
            yield wrong(
                "data.classes",
                f"Expected at least two declared classes, got {len(self.classes)}. They are never read off "
                'private labels; for example: classes = ["no", "yes"]',
                "data.name",
                "labels.names",
            )
        theirs = (*(_PLACES if self.is_files else ()), *self.record.columns)
        for name in (*_PLACES, *NAMED[FILES].columns):
            if getattr(self, name) and name not in theirs:
                yield only(f"data.{name}", 'name = "files"', "data.name")
        yield from self._rows_set_aside(whole)
        yield from self._loader_rules(for_labels=bool(whole.labels.names))

    def _rows_set_aside(self, whole: Any) -> Iterator[Problem]:
        for name, count in (("public", "n_public"), ("test", "n_test")):
            path, n_rows = getattr(self, name), getattr(self, count)
            if self.is_files and path:
                when, keys = f"where {name} names a file", (f"data.{name}", "data.name")
                yield from whole.expect(f"data.{count}", (0,), when, *keys, advice="Keep one of the two.")
            elif self.is_files and name == "public" and not n_rows:
                yield wrong(
                    "data.public",
                    "Expected a file of public rows, or n_public rows of the private file that are set aside "
                    f"and not protected, got neither. For example: public = {self._example('public')}",
                    "data.n_public",
                    "data.name",
                )
            elif not self.is_files and not n_rows and (name == "public" or not self.record.has_test_part):
                words = f'Expected at least 1 for the data set "{self.name}", got 0.'
                yield wrong(f"data.{count}", f"{words} Say how many rows are set aside.", "data.name")

    def _loader_rules(self, *, for_labels: bool) -> Iterator[Problem]:
        """Return options that the loader does not have, or has no default for."""
        taken = self.record.parameters(labels=for_labels)
        own = {name: parameter for name, parameter in taken.items() if name not in _NOT_OPTIONS}
        for name in self.options:
            if name not in own:
                words = unknown(f'option of "{self.name}"', name, own)
                yield wrong(("data", "options", name), words, "data.name")
        for name, parameter in own.items():
            if self.is_files and parameter.default is parameter.empty and name not in self.options:
                words = f'Expected {name} for "{self.name}", got none. For example: options = '
                usual = self.record.begun["data"]["options"][name]
                yield wrong("data.options", words + toml_value({name: usual}), "data.name")

    def _example(self, name: str) -> str:
        """Return what a file of this kind begins with; rows of one that has no pool are set aside."""
        begun = self.record.begun.get("data", {})
        return toml_value(begun.get(name) or begun.get("private", ""))


class PartitionConfig(Options, title="partition"):
    """How the private rows are dealt to teachers.

    >>> PartitionConfig(n_teachers=250, by="person")
    PartitionConfig(n_teachers=250, by='person', sites=(), stratified=False)
    """

    n_teachers: int = option(
        60, 'How many teachers. 0 with by = "site", where every site is one teacher.', ge=0
    )
    by: Literal["auto", "record", "person", "site"] = option(
        "auto",
        "What goes to one teacher as a whole, and so what is protected: a record, all rows of a person, "
        "or a site. auto: a person where the data say whose row it is, else a record. Of clips, all that "
        "come from one source where sources are known.",
    )
    sites: Names = option(
        (),
        'With by = "site": all sites, one teacher each, in this order. They are declared, never read off '
        "private rows.",
    )
    stratified: bool = option(
        False,
        "Give every teacher its share of each class; only for records without an id. The guarantee then "
        "holds for a record that keeps its label.",
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        data, kind, by = whole.data, whole.protects, "partition.by"
        if kind == "site":
            when = 'with by = "site", where every site is one teacher'
            yield from whole.expect("partition.n_teachers", (0,), when, by, advice="Set it to 0.")
        elif not self.n_teachers:
            yield wrong("partition.n_teachers", f'Expected at least 1 with by = "{kind}", got 0.', by)
        if kind == "site" and len(self.sites) < 2:
            yield wrong(
                "partition.sites",
                f'Expected at least two declared sites with by = "site", got {len(self.sites)}. They are '
                'never read off private rows; for example: sites = ["north", "south"]',
                by,
            )
        if kind != "site" and self.sites:
            yield only("partition.sites", 'by = "site"', by)
        if self.stratified and (kind != "record" or data.id):
            yield only("partition.stratified", 'by = "record" and no id in [data]', by)
        if kind == "record":
            return
        if data.id:
            yield only("data.id", 'by = "record" in [partition]', by)
        with_column = kind in data.record.columns
        named = kind == "person" and (data.name == CLIPS or data.has_persons)
        if not named and not (with_column and getattr(data, kind)):
            advice = f'Name the column: {kind} = "..." in [data].' if with_column else 'Take by = "record".'
            words = f'Expected data that say the {kind} of each row, got none from "{data.name}".'
            yield wrong(by, f"{words} {advice}", f"data.{kind}", "data.name")


class TeachersConfig(Options, title="teachers"):
    """What every teacher is.

    >>> TeachersConfig(model="forest", parameters={"n_estimators": 100}).n_jobs
    0
    """

    model: Model = option(
        "logistic",
        "A model by its name, or any estimator as package.module:Name; gaussian-sum: auto = ridge or, of "
        "classes, logistic regression on principal components of the pool.",
    )
    parameters: Table = option(dict, "Its parameters, e.g. {max_iter = 500}.")
    n_jobs: int = option(0, "Teachers trained at a time; 0 = choose.", ge=0)
    timeout: float = option(0.0, "Seconds one teacher may take; 0 = no limit; not for networks.", ge=0)
    retries: int = option(1, "How often a teacher that failed is tried again; not for networks.", ge=0)

    def _rules(self, _whole: Any) -> Iterator[Problem]:
        if self.model in SEMI_SUPERVISED:
            yield wrong(
                "teachers.model",
                f'Expected a model that learns from labels alone, got "{self.model}", which is for '
                "students: teachers have no unlabelled rows.",
            )


_ADDRESS = re.compile(r"(tcp|tls)://(\[[^\]]+\]|[^:/\[\]]+):[0-9]+/?")
_PEM = ("ca", "certificate", "key")


class ClusterConfig(Options, title="cluster"):
    """Where teachers are trained, if not in this process and its children.

    >>> ClusterConfig(address="tcp://10.0.0.7:8786", folder="/shared/study").batch
    0
    """

    address: str = option(
        "",
        'A Dask cluster: "local" starts workers here, "tcp://host:port" or "tls://host:port" is a scheduler; '
        '"" = none.',
    )
    n_workers: int = option(0, "local: how many worker processes; 0 = one per core.", ge=0)
    folder: str = option(
        "",
        "A folder or URL that this program and all workers can read and write, as private as the rows: the "
        'parts go there, and the teachers. "" = the private folder of the run.',
    )
    batch: int = option(0, "Teachers of one task; 0 = choose. Networks have tasks of their own size.", ge=0)
    ca: str = option("", "tls: the certificate of the authority, a PEM file.")
    certificate: str = option("", "tls: the certificate of this program, a PEM file.")
    key: str = option("", "tls: its key, a PEM file.")
    timeout: float = option(30.0, "Seconds a scheduler and its first worker may take to answer.", gt=0)
    patience: float = option(300.0, "Seconds to wait for a scheduler or workers that were lost.", gt=0)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        address, is_local = "cluster.address", self.address == "local"
        if not self.address:
            for name in self.changed():
                if name in (*_PEM, "n_workers"):
                    yield only(f"cluster.{name}", "an address", address)
            return
        if not is_local and not _ADDRESS.fullmatch(self.address):
            wanted = 'Expected "local", "tcp://host:port" or "tls://host:port"'
            yield wrong(address, f'{wanted}, got "{self.address}".')
            return
        if self.n_workers and not is_local:
            yield only("cluster.n_workers", 'address = "local"', address)
        is_tls = self.address.startswith("tls://")
        for name in _PEM:
            if is_tls and not getattr(self, name):
                words = "Expected a PEM file with an address tls://..., got none. Like: "
                yield wrong(f"cluster.{name}", f'{words}{name} = "{name}.pem"', address)
            if getattr(self, name) and not is_tls:
                words = "Expected it only with an address tls://..., got it without, where nothing is "
                yield wrong(f"cluster.{name}", f"{words}encrypted. Drop it, or take tls://.", address)
        why = "There a slow task is run a second time elsewhere, and the first answer counts."
        yield from whole.expect("teachers.timeout", (0,), "on a cluster", address, advice=why)


class BudgetConfig(Options, title="budget"):
    """The most that may be spent, and where it is written down.

    >>> BudgetConfig(epsilon=2.0, delta=1e-5).stop
    'public'
    """

    epsilon: float = option(8.0, "The budget: no run with this ledger passes it.", gt=0)
    delta: float = option(
        1e-4, "Failure probability, well below 1 / the number of private records.", gt=0, lt=1
    )
    rule: Literal["renyi", "clock"] = option(
        "renyi",
        "How the ledger holds the budget, from its first line on. renyi: at one Rényi order; what is stated "
        "may be less than the budget, and the cost can be published. clock: more labels from the same "
        "budget, and the whole budget is stated; for mechanisms with a clock price.",
    )
    ledger: Text = option(
        "ledger.db",
        "The ledger: a file, relative to the folder of the run, or the address of a PostgreSQL database, "
        "without a password.",
    )
    stop: Literal["public", "private"] = option(
        "public",
        "public: stop when the price, which holds for any votes, reaches the budget. private: stop when the "
        "data-dependent cost reaches private_epsilon; when it stops then says something about the votes.",
    )
    private_epsilon: float = option(
        0.0, 'The data-dependent epsilon to stop at; only with stop = "private".', ge=0
    )

    def _rules(self, whole: Any) -> Iterator[Problem]:
        if whole.personal.variant:
            # Groups pay their own prices, of which the main account is charged the largest at each order.
            when = f'with variant = "{whole.personal.variant}" in [personal]'
            advice = "A clock has no largest of several prices."
            yield from whole.expect("budget.rule", ("renyi",), when, "personal.variant", advice=advice)
        if whole.mechanism.is_one_batch:
            when = f'with mechanism "{whole.mechanism.name}", whose test takes a part of delta'
            advice = "A clock has no price of it."
            yield from whole.expect("budget.rule", ("renyi",), when, "mechanism.name", advice=advice)
        if (self.stop == "private") != (self.private_epsilon > 0):
            wanted = "above 0" if self.stop == "private" else "0"
            yield wrong(
                "budget.private_epsilon",
                f'Expected {wanted} with stop = "{self.stop}", got {self.private_epsilon:g}. '
                'It is the epsilon at which stop = "private" stops.',
                "budget.stop",
            )
        # A data-dependent cost is followed along a path that was fixed beforehand, query by query.
        if whole.queries.order == "active":
            when = 'with order = "active" in [queries]'
            yield from whole.expect("budget.stop", ("public",), when, "queries.order")
        if not whole.mechanism.has_exact_cost:
            when = f'with name = "{whole.mechanism.name}" in [mechanism]'
            yield from whole.expect("budget.stop", ("public",), when, "mechanism.name")


_SOURCES = ("column", "file", "shares")
# Which variants an option is for; those not named here are for all of them.
_FOR = {
    "power": ("vanishing",),
    "precision": ("weighting", "upsampling"),
    "grow": ("upsampling",),
    "most": ("upsampling",),
    "weights": ("weighting",),
    "min_persons": ("weighting", "vanishing"),
}


class PersonalConfig(Options, title="personal"):
    """Budgets per group of people, each as private as they asked to be; [budget] epsilon is then the ceiling.

    >>> PersonalConfig(variant="weighting", levels={"low": 0.7, "high": 1.4}, column="consent").leave
    False
    """

    variant: Literal["", "weighting", "vanishing", "upsampling"] = option(
        "",
        "weighting: the more generous count for more. vanishing: the stricter sit out most queries. "
        'upsampling: the more generous are learned from by several teachers. "" = one budget for all.',
    )
    column: str = option(
        "", "files: the column of the private table with budgets, or names of levels; it is never a feature."
    )
    levels: Table = option(
        dict, "What each level means, e.g. {low = 0.7, high = 1.4}; without it budgets are numbers."
    )
    file: str = option(
        "", "A CSV file with a line per person: person,level or, without levels, person,epsilon."
    )
    shares: Table = option(
        dict,
        "Levels dealt at random by the seed, in these shares, e.g. {low = 0.5, high = 0.5}: for experiments.",
    )
    max_groups: int = option(
        20, "The most groups; more different numbers are binned, and in a bin the strictest rules.", ge=1
    )
    leave: bool = option(
        False,
        "Go on without a group whose budget is used, until all are; by upsampling with teachers trained anew "
        "from the data of the others.",
    )
    weights: Literal["epsilon", "price"] = option(
        "epsilon",
        "weighting: weights in proportion to budgets, or such that public prices use up all budgets at once.",
    )
    power: float = option(2.0, "vanishing: a group votes in (epsilon / largest)^power of all queries.", gt=0)
    precision: float = option(
        0.0,
        "weighting, upsampling: how far whole weights or copies may be off; 0 = 0.02 and 0.1.",
        ge=0,
        lt=1,
    )
    grow: Literal["teachers", "shares"] = option(
        "teachers",
        "upsampling: what copies are for, more teachers, or more rows for each.",
    )
    most: int = option(20, "upsampling: the most teachers that learn from one person.", ge=1)
    min_persons: int = option(
        0, "weighting, vanishing: persons that one teacher needs; 0 = half an even share.", ge=0
    )

    @property
    def source(self) -> str:
        """Return the option that says who agreed to what: column, file or shares; "" for none."""
        return next((name for name in _SOURCES if getattr(self, name)), "")

    def _rules(self, whole: Any) -> Iterator[Problem]:
        variant = "personal.variant"
        for name in self.changed():
            if name != "variant" and not self.variant:
                yield only(f"personal.{name}", "a variant", variant)
            elif self.variant not in _FOR.get(name, (self.variant,)):
                those = " or ".join(map(toml_value, _FOR[name]))
                words = f'Expected it only with variant = {those}, got "{self.variant}". Drop it.'
                yield wrong(f"personal.{name}", words, variant)
        if not self.variant:
            return
        if whole.data.name == CLIPS:
            words = 'Expected it only with tables, got it with "clips", whose lines are dealt, not persons.'
            yield wrong(variant, f"{words} Drop it.", "data.name")
        yield from self._source_rules(whole)
        yield from self._level_rules()
        if whole.protects == "site":
            words = 'Expected "record" or "person" with budgets per group, which have budgets of their own'
            yield wrong("partition.by", f'{words}, got "site".', variant)
        for key, wanted, why in (
            ("mechanism.name", ("gnmax", "confident", "interactive"), "whose price per group is known"),
            ("partition.stratified", (False,), "as teachers are dealt by group"),
            ("data.id", ("",), "as records without persons keep their place"),
            ("budget.stop", ("public",), "as groups are held to public prices"),
        ):
            yield from whole.expect(key, wanted, f"with budgets per group, {why}", variant)

    def _source_rules(self, whole: Any) -> Iterator[Problem]:
        data, variant, column = whole.data, "personal.variant", "personal.column"
        named = [name for name in _SOURCES if getattr(self, name)]
        if len(named) != 1:
            got = " and ".join(named) or "none"
            words = f"Expected one of column, file or shares, to say who agreed to what, got {got}."
            yield wrong(f"personal.{named[-1] if named else 'variant'}", words, variant)
        if self.column and data.name != FILES:
            words = f'Expected it only with name = "files" in [data], got "{data.name}".'
            yield wrong(column, f"{words} Take file or shares.", "data.name")
        taken = [role for role in ("target", "person", "id", "site") if getattr(data, role) == self.column]
        taken += ["options.budget"] if "budget" in data.options else []
        if self.column and taken:
            words = f"Expected a column of its own, [data] {taken[0]} names one too."
            yield wrong(column, words, f"data.{taken[0]}")
        if self.file and whole.protects != "person":
            words = f'Expected by = "person" in [partition] where persons consent, got "{whole.protects}".'
            yield wrong("personal.file", words, "partition.by")

    def _level_rules(self) -> Iterator[Problem]:
        for name, epsilon in self.levels.items():
            if not _is_number(epsilon) or not 0 < epsilon < math.inf:
                words = f"Expected a budget above 0 and finite, got {toml_value(epsilon)}."
                yield wrong(("personal", "levels", name), words)
            if not name.strip():
                yield wrong("personal.levels", f"Expected a name, got {toml_value(name)}.")
        for name, share in self.shares.items():
            key = ("personal", "shares", name)
            if name not in self.levels:
                known = ", ".join(self.levels) or "none"
                yield wrong(key, f"Expected one of the levels ({known}). Say in levels what it means.")
            if not _is_number(share) or not 0 < share <= 1:
                yield wrong(key, f"Expected a share above 0 and at most 1, got {toml_value(share)}.")
                return
        total = math.fsum(self.shares.values())
        if self.shares and abs(total - 1) > 1e-6:
            yield wrong("personal.shares", f"Expected shares that sum to 1, got {total:g}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class QueriesConfig(Options, title="queries"):
    """Which rows of the pool are asked, in which order, and when to stop.

    >>> QueriesConfig(order="active", first=50, per_round=25).batch
    10
    """

    order: Literal["shuffled", "given", "typical", "active"] = option(
        "shuffled",
        "The order of the pool: shuffled, as given, typical rows first (on which teachers agree), or active "
        "(in rounds, where the student is least sure).",
    )
    n_queries: int = option(0, "Stop after so many queries; 0 = no limit but the budget and the pool.", ge=0)
    n_labels: int = option(0, "Stop after so many labels; 0 = no limit but the budget and the pool.", ge=0)
    batch: int = option(10, "Queries that share one entry of the ledger.", ge=1)
    warm_up: int = option(
        0, "interactive: queries answered by confident voting before the student is first asked.", ge=0
    )
    warm_up_threshold: float = option(0.0, "interactive: the threshold of these first queries.", ge=0)
    first: int = option(0, "active: random queries of the first round; 0 = a tenth of the pool.", ge=0)
    per_round: int = option(
        0,
        "active, interactive: queries before the student is taught again; 0 = as many as in the first round.",
        ge=0,
    )
    after_fail: Literal["stop", "full price"] = option(
        "stop",
        "tested-gnmax: where the test fails, stop, or ask the same rows again at the full price of gnmax, as "
        "far as the budget goes.",
    )

    def asked(self, *, with_student: bool) -> dict[str, Any]:
        """Return how the pool is asked and when that ends, as `label_pool` takes it.

        >>> QueriesConfig(order="active", first=20).asked(with_student=True)
        {'order': 'active', 'n_labels': None, 'first': 20, 'per_round': None}
        """
        rounds = {"first": self.warm_up or self.first or None, "per_round": self.per_round or None}
        failing = {} if self.after_fail == "stop" else {"after_fail": self.after_fail}
        asked = {"order": self.order, "n_labels": self.n_labels or None, **failing}
        return {**asked, **(rounds if with_student else {})}

    def _rules(self, whole: Any) -> Iterator[Problem]:
        chosen, is_interactive = "mechanism.name", whole.mechanism.hears_student
        if whole.mechanism.is_one_batch:
            when = f'with mechanism "{whole.mechanism.name}", which asks all queries of its one batch at once'
            orders = ("shuffled", "given", "typical")
            yield from whole.expect("queries.order", orders, when, chosen)
            yield from whole.expect("queries.n_labels", (0,), when, chosen)
            size = whole.mechanism.given.get("n_queries", self.n_queries)
            yield from whole.expect("queries.n_queries", (0, size), when, chosen)
            yield from whole.expect("personal.variant", ("",), when, chosen)
        elif self.after_fail != "stop":
            yield only("queries.after_fail", 'mechanism "tested-gnmax"', chosen)
        for name in ("warm_up", "warm_up_threshold"):
            if is_interactive and not getattr(self, name):
                yield wrong(
                    f"queries.{name}",
                    'Expected a number above 0 with mechanism "interactive", got 0. A student that was '
                    "taught nothing yet cannot speak: confident voting answers the first queries.",
                    chosen,
                )
            if getattr(self, name) and not is_interactive:
                yield only(f"queries.{name}", 'mechanism "interactive"', chosen)
        if is_interactive:
            when, advice = 'with mechanism "interactive"', "There warm_up says it."
            yield from whole.expect("queries.first", (0,), when, chosen, advice=advice)
            return
        if self.first and self.order != "active":
            yield only("queries.first", 'order = "active"', "queries.order")
        if self.per_round and self.order != "active":
            yield wrong(
                "queries.per_round",
                'Expected it only with order = "active" or mechanism "interactive", where a student is '
                f"taught in rounds, got {self.per_round}. Drop it.",
                "queries.order",
                chosen,
            )


_MANY = "multilabel_mixmatch"


class StudentConfig(Options, title="student"):
    """What learns from the released labels.

    >>> StudentConfig(kind="distilled", temperature=2.0).model
    'logistic'
    """

    kind: KindName = option(
        "supervised", " ".join(f"{name}: {kind.words}." for name, kind in STUDENT_KINDS.items())
    )
    model: Model = option(
        "logistic",
        "A model by its name, or any estimator as package.module:Name; gaussian-sum: auto = ridge "
        "regression, or a regressor of one's own.",
    )
    parameters: Table = option(dict, "Its parameters, e.g. {max_iter = 500}.")
    temperature: float = option(1.0, "distilled: above 1 evens the shares out, below 1 sharpens them.", gt=0)
    floor: float = option(0.0, "distilled: noisy counts up to this one count as none.", ge=0)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        kind, model, chosen = "student.kind", "student.model", whole.mechanism
        if not hasattr(chosen.kind, "releases_counts") and self.kind == "distilled":
            when, advice = f'with mechanism "{chosen.name}"', "Shares of votes are released by mechanism "
            advice += '"histogram" alone.'
            yield from whole.expect(kind, ("supervised",), when, "mechanism.name", advice=advice)
        if self.kind != "distilled":
            for name in self.changed():
                if name in STUDENT_KINDS["distilled"].takes:
                    yield only(f"student.{name}", 'kind = "distilled"', kind)
        made_for_it = self.model in SEMI_SUPERVISED
        if self.kind == "semi_supervised" and not made_for_it and ":" not in self.model:
            yield wrong(
                model,
                f'Expected one of {", ".join(SEMI_SUPERVISED)} with kind = "semi_supervised", got '
                f'"{self.model}". Any other model can teach itself: kind = "self_taught".',
                kind,
            )
        if made_for_it:
            yield from whole.expect(kind, ("semi_supervised",), f'for the model "{self.model}"', model)
        if made_for_it and (self.model == _MANY) != bool(whole.labels.names):
            wanted = f'"{_MANY}" for many labels' if whole.labels.names else "another model for one class"
            yield wrong(model, f'Expected {wanted} per row, got "{self.model}".', "labels.names")
        for name, value, refused in (
            ("queries.order", whole.queries.order, whole.queries.order == "active"),
            ("mechanism.name", chosen.name, chosen.hears_student),
        ):
            if self.kind == "semi_supervised" and refused:
                section, _, option_name = name.partition(".")
                yield wrong(
                    kind,
                    f'Expected "supervised" or "self_taught" with {option_name} = "{value}" in [{section}], '
                    'where the student is taught anew in every round, got "semi_supervised".',
                    name,
                )


class ReportConfig(Options, title="report"):
    """What the report shows.

    >>> ReportConfig().private
    False
    """

    private: bool = option(False, "Show private numbers too, marked as such: for the operator's eyes alone.")


class RunConfig(Settings):
    """All settings of a run, checked one by one and against each other.

    `source` is the file they were read from and `lines` the line of each key in it, both empty for settings
    made in Python.

    >>> config = RunConfig(budget=BudgetConfig(epsilon=2.0, delta=1e-5))
    >>> config.data.name, config.budget.epsilon, config.where("budget", "epsilon")
    ('digits', 2.0, 'budget.epsilon')
    >>> RunConfig(partition=PartitionConfig(by="site"))
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: partition.n_teachers: Expected 0 with by = "site", where every site is one ...
    """

    seed: int = option(
        7, "Everything random but the privacy noise comes from this: splits, partitions, training.", ge=0
    )
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    labels: LabelsConfig = dataclasses.field(default_factory=LabelsConfig)
    partition: PartitionConfig = dataclasses.field(default_factory=PartitionConfig)
    teachers: TeachersConfig = dataclasses.field(default_factory=TeachersConfig)
    cluster: ClusterConfig = dataclasses.field(default_factory=ClusterConfig)
    mechanism: MechanismConfig = dataclasses.field(
        default_factory=lambda: MechanismConfig(sigma=8.0, threshold=25.0, sigma_threshold=30.0)
    )
    sum: SumConfig = dataclasses.field(default_factory=SumConfig)
    budget: BudgetConfig = dataclasses.field(default_factory=BudgetConfig)
    personal: PersonalConfig = dataclasses.field(default_factory=PersonalConfig)
    queries: QueriesConfig = dataclasses.field(default_factory=QueriesConfig)
    student: StudentConfig = dataclasses.field(default_factory=StudentConfig)
    report: ReportConfig = dataclasses.field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if self.folder and not self.data.folder:
            object.__setattr__(self, "data", dataclasses.replace(self.data, folder=self.folder))
        super().__post_init__()

    heading: ClassVar[str] = """\
Settings of a run of tellers: from private data to a student, with what it cost on the books.
    tellers run {name}
Every option is here with its default; lines that begin with # are comments."""
    gone: ClassVar[Mapping[tuple[str | int, ...], tuple[Any, str]]] = {
        ("partition", "balance"): (
            "persons",
            "This option is gone: where every teacher gets equally many rows, a person with one row more "
            "moves other persons, and no epsilon covers that. Drop it.",
        )
    }

    def said(self) -> dict[str, Any]:
        """Return the sections that say something: those of labels and of a sum only where there are some.

        >>> "labels" in RunConfig().said()
        False
        """
        unsaid = ["labels"] * (not self.labels.names) + ["sum"] * (not self.mechanism.is_sum)
        return {title: section for title, section in super().said().items() if title not in unsaid}

    @property
    def protects(self) -> Protects:
        """Return what goes to one teacher as a whole; of clips the table decides.

        What the settings say, or by "auto" persons where the data say whose row it is.
        """
        if self.partition.by != "auto":
            return self.partition.by
        return "person" if self.data.has_persons else "record"

    def build_mechanism(self) -> Mechanism:
        """Return the mechanism of the run; one for many labels is told how many there are.

        >>> RunConfig().build_mechanism()
        ConfidentGNMax(sigma=8.0, threshold=25.0, sigma_threshold=30.0)
        """
        if self.mechanism.is_sum:
            return cast(Mechanism, self.sum.plan(self.accountant()).scores)
        return self.labels.build(self.mechanism) if self.mechanism.is_for_labels else self.mechanism.build()

    def _mechanism_refusals(self) -> Iterator[Problem]:
        """Return what the mechanism itself refuses, once its parameters are all there."""
        for_labels = self.mechanism.is_for_labels
        yield from self.labels._refusals(self) if for_labels else super()._mechanism_refusals()

    def first_mechanism(self) -> Mechanism:
        """Return the mechanism of the first question.

        >>> RunConfig().first_mechanism() == RunConfig().build_mechanism()
        True
        """
        return self.warm_up() or self.build_mechanism()

    def accountant(self, price: "RdpCurve | None" = None) -> "Accountant":
        """Return the arithmetic of the budget, by its rule and as the mechanism and its price ask for.

        >>> RunConfig().accountant().rule
        'renyi'
        """
        from ...privacy.budget import Accountant, Budget

        budget = Budget(self.budget.epsilon, self.budget.delta)
        if self.mechanism.is_sum:  # whose noise follows from the budget
            return Accountant.by(self.budget.rule, budget)
        return accountant_for(self.first_mechanism(), budget, self.budget.rule, price=price)

    def warm_up(self) -> Mechanism | None:
        """Return the mechanism of the first queries before one that hears the student, or None.

        >>> RunConfig().warm_up()
        """
        before: Any = getattr(self.mechanism.kind, "warm_up", None)
        found: Mechanism | None = before and before(self.mechanism.build(), self.queries.warm_up_threshold)
        return found
