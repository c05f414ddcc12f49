"""The settings of a run: one frozen record per section of the file, each option with its words and limits.

What stands here is said once: the comments of a written file, the reference page, the checks of a file and of
a record made in Python all come from these fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .cluster import ClusterConfig
from .fields import Section, option
from .labels import LabelsConfig
from .mechanism import MechanismConfig
from .partition import PartitionConfig as PartitionConfig
from .partition import Protects, protects
from .personal import PersonalConfig

if TYPE_CHECKING:
    from ..mechanisms import ConfidentGNMax, Mechanism

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
        from .rules import check_run

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

    def warm_up(self) -> "ConfidentGNMax | None":
        """Return the mechanism of the first queries before an interactive one, or None.

        >>> RunConfig().warm_up()
        """
        if self.mechanism.name != "interactive":
            return None
        from ..mechanisms import ConfidentGNMax

        given = self.mechanism.given
        return ConfidentGNMax(
            sigma=given["sigma"],
            threshold=self.queries.warm_up_threshold,
            sigma_threshold=given["sigma_threshold"],
        )


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
