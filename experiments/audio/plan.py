"""What is tried, fixed before any vote was seen: pictures, parts, networks, ablations, aggregations.

Shares and noises are parts of the ensemble. Nothing here was chosen by looking at private votes; what was
looked at afterwards is said in the docs.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any, Literal

from tellers.data.sound import LogMel
from tellers.runs.sound import SweepSetting

Task = Literal["single", "multi", "city"]
TASKS: tuple[Task, ...] = ("single", "multi", "city")
RATE = 16_000
PICTURES = LogMel(rate=RATE, window=1024, hop=320)  # 50 frames a second, 64 filters
PERCENT = 100  # a teacher's vote is a probability in whole percent

# Of the 400 clips a fold of 80 judges; a quarter of the recordings that are left is public, the rest private.
FOLDS: dict[Task, tuple[int, ...]] = {"single": (1, 2, 3, 4, 5), "multi": (1, 2, 3, 4, 5), "city": (1, 2, 3)}
TEACHERS: dict[Task, tuple[int, ...]] = {"single": (1, 5, 10, 20), "multi": (1, 5, 10, 20), "city": (1, 200)}
LARGEST = {"single": 20, "multi": 20, "city": 200}
DELTA: dict[Task, float] = {"single": 1e-3, "multi": 1e-3, "city": 1e-5}
STUDENT = 0.25
TIMES, TIMES_JUDGED, ALONE = (
    4,
    2,
    0.2,
)  # mixtures a clip begins, in parts and in the test; clips by themselves

# The city: clips by part, two seconds each, one to three of four sounds over a loud street.
CITY_PRIVATE, CITY_POOL, CITY_TEST, CITY_NOISE = 20_000, 1_000, 1_000, 0.1
CITY_PUBLIC = 4_000  # made for pretraining alone, from another seed

RECIPES: dict[str, dict[str, Any]] = {
    "small": {"network": "small", "iterations": 400, "batch_size": 32, "learning_rate": 3e-3},
    "resnet18": {"network": "resnet18", "iterations": 400, "batch_size": 32, "learning_rate": 3e-4},
    "vgg11": {"network": "vgg11", "iterations": 400, "batch_size": 32, "learning_rate": 1e-4},
}
CITY_RECIPE = {"iterations": 150}
BASELINE_RECIPE = {"iterations": 800}
STUDENT_RECIPE = {"iterations": 400}
PRETRAINING = {"small": {"iterations": 1000}, "resnet18": {"iterations": 500}, "vgg11": {"iterations": 500}}

# One thing at a time changed, as in section 5.1.3 of the thesis.
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no mixup": {"mixup": 0.0},
    "no balancing": {"balanced": False},
    "weighted": {"weighted": True},
    "weighted, 1 to 5": {"weighted": True, "weight_bounds": (1.0, 5.0)},
    "pretrained": {"pretrained": "city"},
    **{f"batches of {n}": {"batch_size": n} for n in (8, 16, 64, 128)},
    **{f"rate times {factor:g}": {"rate": factor} for factor in (0.1, 0.3, 3.0, 10.0)},
}
# Five of ten classes keep one clip in four: where balancing and weights have something to do.
UNEVEN = ("as it is", "no balancing", "weighted", "weighted, 1 to 5")
ABLATED_TEACHERS = 5
# How many of them are trained in every fold, and what is changed, for networks that take longer.
ABLATED = {"small": 5, "resnet18": 1, "vgg11": 1}
FEWER = ("as it is", "no mixup", "no balancing", "weighted", "pretrained")
LARGE_ABLATION = {"iterations": 200}


@dataclass(frozen=True)
class Lesson:
    """One student: whose labels it learns, how many queries they answer, and what it is called."""

    name: str
    n_teachers: int
    n_queries: int
    setting: SweepSetting | None = None  # None: the truth, or votes without noise
    sigma: float = 0.0  # of GNMax, a part of the ensemble
    noiseless: bool = False
    student: str = "supervised"


def seed_of(*words: object) -> int:
    """Return a seed for something with a name."""
    return zlib.crc32("/".join(map(str, words)).encode())


def recipe(
    network: str, task: Task, *, n_teachers: int, changes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of a tagger, with what an ablation changes."""
    made = {**RECIPES[network], **(CITY_RECIPE if task == "city" else {})}
    if n_teachers == 1:
        made |= BASELINE_RECIPE
    changed = dict(changes or {})
    made["learning_rate"] *= changed.pop("rate", 1.0)
    return made | changed


def published_rows(n_queries: int) -> list[SweepSetting]:
    """Return the nine settings of the thesis's table 5.4, noise read as a variance."""
    found = []
    for share in (0.2, 0.4, None):
        for check in (None, 0.4, 0.6):
            setting = SweepSetting(sigma=0.3, share=share or 0.5, noise="variance", n_samples=n_queries)
            if share is None:
                setting = replace(setting, kind="adaptive-as-published")
            if check is not None:
                setting = replace(setting, confident_share=check, sigma_gate=0.6)
            found.append(setting)
    return found


def sound_rows(n_queries: int) -> list[SweepSetting]:
    """Return settings of mechanisms that promise something, noise read as a deviation."""
    fixed: dict[str, Any] = {"n_samples": n_queries}
    capped = {**fixed, "max_labels": 2}
    return [
        SweepSetting(kind="binary", sigma=0.1, **fixed),
        SweepSetting(kind="binary", sigma=0.2, **fixed),
        SweepSetting(kind="gnthreshold", share=0.4, sigma=0.1, **capped),
        SweepSetting(kind="gnthreshold", share=0.4, sigma=0.2, **capped),
        SweepSetting(kind="powerset", sigma=0.2, **capped),
        SweepSetting(kind="adaptive", sigma=0.2, **fixed),
    ]


def setting_name(setting: SweepSetting) -> str:
    """Return a setting in one word, to keep results under."""
    words = [
        setting.kind,
        f"{setting.share:g}" if setting.kind == "gnthreshold" else "",
        f"s{setting.sigma:g}",
    ]
    if setting.confident_share is not None:
        words.append(f"c{setting.confident_share:g}")
    words.append("v" if setting.noise == "variance" else "")
    return "-".join(word for word in words if word)


def lessons(task: Task, n_pool: int, *, all_rows: bool = True) -> list[Lesson]:
    """Return the students of a task, given how many queries its pool has; or of the whole pool alone."""
    every = _lessons(task, n_pool)
    if all_rows:
        return every
    published = {setting_name(one) for one in published_rows(n_pool)}
    return [one for one in every if one.n_queries == n_pool and one.name not in published]


def _lessons(task: Task, n_pool: int) -> list[Lesson]:
    few = {"single": n_pool // 2, "multi": n_pool // 4, "city": n_pool // 4}[task]
    found = [Lesson("truth", 1, n_pool)]
    if task == "single":
        for n_teachers in TEACHERS[task][1:]:
            found.append(Lesson("noiseless", n_teachers, n_pool, noiseless=True))
            for sigma in (0.1, 0.2, 0.4):
                for n in (few, n_pool):
                    found.append(Lesson(f"gnmax-s{sigma:g}", n_teachers, n, sigma=sigma))
        return found
    for n_teachers in TEACHERS[task][1:]:
        found.append(Lesson("noiseless", n_teachers, n_pool, noiseless=True))
        for n in (few, n_pool):
            settings = sound_rows(n)
            if n_teachers == LARGEST[task]:
                settings += published_rows(n)
            found += [Lesson(setting_name(one), n_teachers, n, one) for one in settings]
    return found
