"""The settings of a run: one frozen record per section of the file."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._document import Key
from ._fields import Problem, Section, option, options_of, toml_value
from .labels import LabelsConfig
from .mechanism import MechanismConfig

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


# --- Teachers on a cluster in a settings file: the section, and what goes with what. ---


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
    """Return what does not go together in settings of a cluster."""
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


# --- How rows are assigned to teachers in a settings file: the section, and what it protects. ---


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
    """Return what settings protect.

    What they say, or by "auto" persons where the data say whose row it is.
    """
    said: Any = run.partition.by
    if said != "auto":
        return said  # type: ignore[no-any-return]
    data = run.data
    named = data.person and data.name in ("files", "image_table")
    has_persons = named or data.name in ("chexpert", "diabetes130")
    return "person" if has_persons or (data.name == "synthetic" and "n_persons" in data.options) else "record"


# --- Budgets per group of people in a settings file: the section, and what goes with what. ---


_VARIANTS = ("", "weighting", "vanishing", "upsampling")
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
_MECHANISMS = ("gnmax", "confident", "interactive")


@dataclass(frozen=True, kw_only=True)
class PersonalConfig(Section):
    """Budgets per group of people, each as private as they asked to be; [budget] epsilon is then the ceiling.

    >>> PersonalConfig(variant="weighting", levels={"low": 0.7, "high": 1.4}, column="consent").leave
    False
    """

    variant: Literal["", "weighting", "vanishing", "upsampling"] = option(
        "",
        "weighting: the more generous count for more. vanishing: the stricter sit out most queries. "
        'upsampling: the more generous are learned from by several teachers. "" = one budget for all.',
        choices=_VARIANTS,
    )
    column: str = option(
        "", "files: the column of the private table with budgets, or names of levels; it is never a feature."
    )
    levels: Mapping[str, Any] = option(
        dict, "What each level means, e.g. {low = 0.7, high = 1.4}; without it budgets are numbers."
    )
    file: str = option(
        "", "A CSV file with a line per person: person,level or, without levels, person,epsilon."
    )
    shares: Mapping[str, Any] = option(
        dict,
        "Levels dealt at random by the seed, in these shares, e.g. {low = 0.5, high = 0.5}: for experiments.",
    )
    max_groups: int = option(
        20, "The most groups; more different numbers are binned, and in a bin the strictest rules.", least=1
    )
    leave: bool = option(
        False,
        "Go on without a group whose budget is used, until all are; by upsampling with teachers trained anew "
        "from the data of the others.",
    )
    weights: Literal["epsilon", "price"] = option(
        "epsilon",
        "weighting: weights in proportion to budgets, or such that public prices use up all budgets at once.",
        choices=("epsilon", "price"),
    )
    power: float = option(
        2.0, "vanishing: a group votes in (epsilon / largest)^power of all queries.", above=0
    )
    precision: float = option(
        0.0,
        "weighting, upsampling: how far whole weights or copies may be off; 0 = 0.02 and 0.1.",
        least=0,
        below=1,
    )
    grow: Literal["teachers", "shares"] = option(
        "teachers",
        "upsampling: what copies are for, more teachers, or more rows for each.",
        choices=("teachers", "shares"),
    )
    most: int = option(20, "upsampling: the most teachers that learn from one person.", least=1)
    min_persons: int = option(
        0, "weighting, vanishing: persons that one teacher needs; 0 = half an even share.", least=0
    )

    @property
    def is_on(self) -> bool:
        """Return whether budgets are per group at all."""
        return bool(self.variant)

    @property
    def source(self) -> str:
        """Return the option that says who agreed to what: column, file or shares; "" for none."""
        return next((name for name in _SOURCES if getattr(self, name)), "")


def personal_rules(run: Any) -> Iterator[Problem]:
    """Return what does not go together in settings with budgets per group."""
    personal, variant = run.personal, ("personal", "variant")
    usual = PersonalConfig()
    for option_ in options_of(PersonalConfig):
        name = option_.name
        if name == "variant" or getattr(personal, name) == getattr(usual, name):
            continue
        if not personal.variant:
            yield Problem(
                ("personal", name), "Expected it only with a variant, got it without. Drop it.", (variant,)
            )
        elif personal.variant not in _FOR.get(name, _VARIANTS):
            those = " or ".join(map(toml_value, _FOR[name]))
            yield Problem(
                ("personal", name),
                f'Expected it only with variant = {those}, got "{personal.variant}". Drop it.',
                (variant,),
            )
    if not personal.variant:
        return
    if run.data.name == "clips":
        yield Problem(
            variant, 'Expected it only with tables, got it with "clips", whose lines are dealt, not persons. '
            "Drop it.", (("data", "name"),),
        )  # fmt: skip
    yield from _source_rules(run)
    yield from _level_rules(personal)
    for key, value, wanted, why in (
        (("mechanism", "name"), run.mechanism.name, _MECHANISMS, "whose price per group is known"),
        (("partition", "by"), protects(run), ("record", "person"), "which have budgets of their own"),
        (("partition", "stratified"), run.partition.stratified, (False,), "as teachers are dealt by group"),
        (("data", "id"), run.data.id, ("",), "as records without persons keep their place"),
        (("budget", "stop"), run.budget.stop, ("public",), "as groups are held to public prices"),
    ):
        if value not in wanted:
            listed = " or ".join(map(toml_value, wanted))
            yield Problem(
                key, f"Expected {listed} with budgets per group, {why}, got {toml_value(value)}.", (variant,)
            )


def _source_rules(run: Any) -> Iterator[Problem]:
    personal, data, variant = run.personal, run.data, ("personal", "variant")
    named = [name for name in _SOURCES if getattr(personal, name)]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        yield Problem(
            ("personal", named[-1] if named else "variant"),
            f"Expected one of column, file or shares, to say who agreed to what, got {got}.",
            (variant,),
        )
    if personal.column:
        key = ("personal", "column")
        if data.name != "files":
            yield Problem(
                key,
                f'Expected it only with name = "files" in [data], got "{data.name}". Take file or shares.',
                (("data", "name"),),
            )
        taken = [
            role for role in ("target", "person", "id", "site") if getattr(data, role) == personal.column
        ]
        if taken or "budget" in data.options:
            role = taken[0] if taken else "options.budget"
            yield Problem(
                key, f"Expected a column of its own, [data] {role} names one too.", (("data", role),)
            )
    if personal.file and protects(run) != "person":
        yield Problem(
            ("personal", "file"),
            f'Expected by = "person" in [partition] where persons consent, got "{protects(run)}".',
            (("partition", "by"),),
        )


def _level_rules(personal: Any) -> Iterator[Problem]:
    for name, epsilon in personal.levels.items():
        if not _is_number(epsilon) or not 0 < epsilon < math.inf:
            yield Problem(
                ("personal", "levels", name),
                f"Expected a budget above 0 and finite, got {toml_value(epsilon)}.",
            )
        if not name.strip():
            yield Problem(("personal", "levels"), f"Expected a name, got {toml_value(name)}.")
    shares: Key = ("personal", "shares")
    for name, share in personal.shares.items():
        if name not in personal.levels:
            known = ", ".join(personal.levels) or "none"
            yield Problem(
                (*shares, name), f"Expected one of the levels ({known}). Say in levels what it means."
            )
        if not _is_number(share) or not 0 < share <= 1:
            yield Problem(
                (*shares, name), f"Expected a share above 0 and at most 1, got {toml_value(share)}."
            )
            return
    total = math.fsum(personal.shares.values())
    if personal.shares and abs(total - 1) > 1e-6:
        yield Problem(shares, f"Expected shares that sum to 1, got {total:g}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- The settings of a run: one frozen record per section of the file, each option with its words and limits.
#
# What stands here is said once: the comments of a written file, the reference page, the checks of a file
# and of a record made in Python all come from these fields.


FILES = "files"
CLIPS = "clips"
# What a data set sets aside where nothing is said: rows for the pool, rows for the test (0: the rest of the
# test part that was published with it).
SET_ASIDE: dict[str, tuple[int, int]] = {
    "adult": (5000, 0),
    "breast_cancer": (150, 100),
    "chexpert": (0, 0),
    "clips": (0, 0),
    "diabetes130": (10_000, 10_000),
    "digits": (300, 297),
    "fashion_mnist": (9000, 0),
    "image_table": (0, 0),
    "made_multilabel": (400, 600),
    "mnist": (9000, 0),
    "mulan": (0, 0),
    "svhn": (10_000, 0),
    "synthetic": (500, 500),
    "voc": (0, 0),
    FILES: (0, 0),
}
# Files of one's own too, with many labels per row, in layouts that others agreed on.
LAYOUTS = ("chexpert", "clips", "image_table", "mulan", "voc")
HAS_TEST_PART = ("adult", "fashion_mnist", "mnist", "svhn")
_AS_USUAL = -1


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """What is learned from, what is asked, what is tested on.

    >>> data = DataConfig(name="files", private="rows.csv", public="pool.csv", folder="study")
    >>> data.private, data.private_path.as_posix(), data.test_path
    ('rows.csv', 'study/rows.csv', None)
    """

    name: str = option(
        "digits",
        "adult, breast_cancer, diabetes130, digits, fashion_mnist, made_multilabel, mnist, svhn or "
        'synthetic, or "files" for tables of your own; with many labels also chexpert, clips, image_table, '
        "mulan or voc, for files of your own in these layouts.",
        choices=tuple(SET_ASIDE),
    )
    private: str = option(
        "",
        "files: the private rows, with the target; CSV, Parquet or npz. chexpert, image_table: a CSV; clips: "
        "a folder of `tellers audio prepare`; mulan: an ARFF file; voc: a list, "
        "VOC2012/ImageSets/Main/train.txt. Paths are relative to this file.",
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
    classes: tuple[str, ...] = option(
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
        least=0,
    )
    n_public: int = option(
        _AS_USUAL,
        "Rows set aside as the public pool, from the published test part where the data set has one (adult, "
        "fashion_mnist, mnist, svhn), else from its rows. Nothing protects rows that are set aside. 0 where "
        "public names a file.",
        least=0,
        shown=f"what suits the data set, {SET_ASIDE['digits'][0]} for digits",
    )
    n_test: int = option(
        _AS_USUAL,
        "Rows set aside to test the student on; nothing protects them either. 0 = the rest of the published "
        "test part; with files, none.",
        least=0,
        shown=f"what suits the data set, {SET_ASIDE['digits'][1]} for digits",
    )
    overlap: Literal["warn", "refuse"] = option(
        "warn",
        "What happens where rows of the pool or the test are exact copies of private ones, feature by "
        "feature: warn writes how many to private/record.json and goes on, refuse ends the run before "
        "anything is trained, which tells whoever sees it that there are some.",
        choices=("warn", "refuse"),
    )
    options: Mapping[str, Any] = option(
        dict, 'What else the loader of the data set takes, e.g. {balanced = true} for "diabetes130".'
    )
    # Where relative paths start. No option: it is the folder of the file that was read.
    folder: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        usual = SET_ASIDE.get(str(self.name), (0, 0))
        for name, n_rows in zip(("n_public", "n_test"), usual):
            if getattr(self, name) == _AS_USUAL:
                object.__setattr__(self, name, n_rows)
        super().__post_init__()

    @property
    def private_path(self) -> Path | None:
        """Return where the private rows are, or None."""
        return self.path(self.private)

    @property
    def public_path(self) -> Path | None:
        """Return where the public rows are, or None."""
        return self.path(self.public)

    @property
    def test_path(self) -> Path | None:
        """Return where the test rows are, or None."""
        return self.path(self.test)

    @property
    def directory_path(self) -> Path | None:
        """Return where the published data sets are, or None."""
        return self.path(self.directory)

    def path(self, written: str) -> Path | None:
        """Return where something named in the settings is, or None where nothing is named.

        >>> DataConfig(folder="study").path("consent.csv").as_posix()
        'study/consent.csv'
        """
        return Path(self.folder) / Path(written).expanduser() if written else None


@dataclass(frozen=True, kw_only=True)
class TeachersConfig(Section):
    """What every teacher is.

    >>> TeachersConfig(model="forest", parameters={"n_estimators": 100}).n_jobs
    0
    """

    model: str = option(
        "logistic",
        "A model by its name, or any estimator as package.module:Name.",
        non_empty=True,
        model=True,
    )
    parameters: Mapping[str, Any] = option(dict, "Its parameters, e.g. {max_iter = 500}.")
    n_jobs: int = option(0, "Teachers trained at a time; 0 = choose.", least=0)
    timeout: float = option(0.0, "Seconds one teacher may take; 0 = no limit; not for networks.", least=0)
    retries: int = option(1, "How often a teacher that failed is tried again; not for networks.", least=0)


@dataclass(frozen=True, kw_only=True)
class BudgetConfig(Section):
    """The most that may be spent, and where it is written down.

    >>> BudgetConfig(epsilon=2.0, delta=1e-5).stop
    'public'
    """

    epsilon: float = option(8.0, "The budget: no run with this ledger passes it.", above=0)
    delta: float = option(
        1e-4, "Failure probability, well below 1 / the number of private records.", above=0, below=1
    )
    ledger: str = option(
        "ledger.db",
        "The ledger: a file, relative to the folder of the run, or the address of a PostgreSQL database, "
        "without a password.",
        non_empty=True,
    )
    stop: Literal["public", "private"] = option(
        "public",
        "public: stop when the price, which holds for any votes, reaches the budget. private: stop when the "
        "data-dependent cost reaches private_epsilon; when it stops then says something about the votes.",
        choices=("public", "private"),
    )
    private_epsilon: float = option(
        0.0, 'The data-dependent epsilon to stop at; only with stop = "private".', least=0
    )


@dataclass(frozen=True, kw_only=True)
class QueriesConfig(Section):
    """Which rows of the pool are asked, in which order, and when to stop.

    >>> QueriesConfig(order="active", first=50, per_round=25).batch
    10
    """

    order: Literal["shuffled", "given", "typical", "active"] = option(
        "shuffled",
        "The order of the pool: shuffled, as given, typical rows first (on which teachers agree), or active "
        "(in rounds, where the student is least sure).",
        choices=("shuffled", "given", "typical", "active"),
    )
    n_queries: int = option(
        0, "Stop after so many queries; 0 = no limit but the budget and the pool.", least=0
    )
    n_labels: int = option(0, "Stop after so many labels; 0 = no limit but the budget and the pool.", least=0)
    batch: int = option(10, "Queries that share one entry of the ledger.", least=1)
    warm_up: int = option(
        0, "interactive: queries answered by confident voting before the student is first asked.", least=0
    )
    warm_up_threshold: float = option(0.0, "interactive: the threshold of these first queries.", least=0)
    first: int = option(0, "active: random queries of the first round; 0 = a tenth of the pool.", least=0)
    per_round: int = option(
        0,
        "active, interactive: queries before the student is taught again; 0 = as many as in the first round.",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class StudentConfig(Section):
    """What learns from the released labels.

    >>> StudentConfig(kind="distilled", temperature=2.0).model
    'logistic'
    """

    kind: Literal["supervised", "self_taught", "semi_supervised", "distilled"] = option(
        "supervised",
        "supervised: learns from labels. self_taught: from its own guesses for the rest of the pool too. "
        "semi_supervised: from labels and from the whole pool, by a model made for it (gan, mean_teacher, "
        "mixmatch, multilabel_mixmatch, vat). distilled: from shares of votes (mechanism histogram).",
        choices=("supervised", "self_taught", "semi_supervised", "distilled"),
    )
    model: str = option(
        "logistic",
        "A model by its name, or any estimator as package.module:Name.",
        non_empty=True,
        model=True,
    )
    parameters: Mapping[str, Any] = option(dict, "Its parameters, e.g. {max_iter = 500}.")
    temperature: float = option(
        1.0, "distilled: above 1 evens the shares out, below 1 sharpens them.", above=0
    )
    floor: float = option(0.0, "distilled: noisy counts up to this one count as none.", least=0)


@dataclass(frozen=True, kw_only=True)
class ReportConfig(Section):
    """What the report shows.

    >>> ReportConfig().private
    False
    """

    private: bool = option(False, "Show private numbers too, marked as such: for the operator's eyes alone.")


def _default_mechanism() -> MechanismConfig:
    return MechanismConfig(name="confident", sigma=8.0, threshold=25.0, sigma_threshold=30.0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
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
        7, "Everything random but the privacy noise comes from this: splits, partitions, training.", least=0
    )
    data: DataConfig = field(default_factory=DataConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    teachers: TeachersConfig = field(default_factory=TeachersConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    mechanism: MechanismConfig = field(default_factory=_default_mechanism)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    personal: PersonalConfig = field(default_factory=PersonalConfig)
    queries: QueriesConfig = field(default_factory=QueriesConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    source: str = field(default="", repr=False, compare=False)
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        from ._rules import check_run

        check_run(self)

    @property
    def protects(self) -> Protects:
        """Return what goes to one teacher as a whole; of clips the table decides."""
        return protects(self)

    def where(self, *key: str) -> str:
        """Return where an option stands, for messages: file and line, or its name."""
        for end in range(len(key), 0, -1):
            if key[:end] in self.lines:
                return f"{self.source}:{self.lines[key[:end]]}"
        return ".".join(key)

    def build_mechanism(self) -> "Mechanism":
        """Return the mechanism of the run; one for many labels is told how many there are.

        >>> RunConfig().build_mechanism()
        ConfidentGNMax(sigma=8.0, threshold=25.0, sigma_threshold=30.0)
        """
        if not self.labels.names:
            return self.mechanism.build()
        from .labels import label_mechanism

        return label_mechanism(self)

    def warm_up(self) -> "Mechanism | None":
        """Return the mechanism of the first queries before one that hears the student, or None.

        >>> RunConfig().warm_up()
        """
        before: Any = getattr(self.mechanism.kind, "warm_up", None)
        found: Mechanism | None = before and before(self.mechanism.build(), self.queries.warm_up_threshold)
        return found


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "labels": LabelsConfig,
    "partition": PartitionConfig,
    "teachers": TeachersConfig,
    "cluster": ClusterConfig,
    "mechanism": MechanismConfig,
    "budget": BudgetConfig,
    "personal": PersonalConfig,
    "queries": QueriesConfig,
    "student": StudentConfig,
    "report": ReportConfig,
}
