"""Planning a run on public votes: a proxy, or votes that are made up from assumptions; and pictures of it."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..accounting.plan import Consensus, LabelPlan, plan_labels, settings, sigma_for_labels
from ..accounting.plan_multilabel import (
    Advice,
    LabelProfile,
    MultilabelPlan,
    Sweep,
    advise,
    ballot_traits,
    label_gaps,
    multilabel_settings,
    set_gaps,
    sweeps_of,
)
from ..accounting.plan_tested import TestPlan, plan_most_tested, plan_test
from ..errors import MissingExtra
from ..mechanisms.base import is_by_batch, price_of
from ..privacy._price import itemised
from ..privacy.budget import Accountant, Budget
from ..privacy.votes import Unit, kept
from ..teachers.store import HeldVotes, VoteFile, hold_votes, read_votes
from .labelling import price_after_fail
from .settings._document import toml_value

Bars = Callable[[int, str], AbstractContextManager[Callable[[int], None] | None]]
"""Shows a bar for so many of something, and hands out what moves it on."""

# Queries looked at: of a proxy, and made-up ones.
_MOST_CLASSES, _MADE_CLASSES, _QUERIES, _MADE_BATCH = 500, 300, 200, 2000
# Pictures need shapes more than decimals.
_DRAWN = 60


@dataclass(frozen=True)
class Assumed:
    """What is assumed of the votes to come; with a proxy, what it must agree with.

    `width` is the number of classes, or of labels per example; the last two are of labels alone.
    """

    n_teachers: int | None
    width: int | None
    agreement: float = 0.9
    concentration: float = 1.5
    yes_rate: float | None = None
    correlation: float | None = None


def class_proxy(proxy: Path | None, assumed: Assumed) -> tuple[HeldVotes, list[str]]:
    """Return votes for one class per query to plan on, and what there is to say of them."""
    if proxy is None:
        consensus = Consensus(agreement=assumed.agreement, concentration=assumed.concentration)
        n_teachers, n_classes = _declared(assumed, "--classes", "--classes 10", 250)
        made, truth = consensus.votes(n_teachers, n_classes, n_queries=_MADE_CLASSES, seed=0)
        words = [f"Planned on {_MADE_CLASSES} made-up queries: {consensus}."]
        return hold_votes(VoteFile(made, truth=truth)), words
    loaded = read_votes(proxy, n_classes=assumed.width)
    votes, right, notes = loaded.votes, loaded.truth, list(loaded.notes)
    _require_same("teachers", assumed.n_teachers, votes.n_teachers)
    if right is None:
        right = votes.counts.argmax(axis=1)
        notes.append("The proxy holds no 'truth': accuracy is agreement with its plurality.")
    if len(votes) > _MOST_CLASSES:
        votes, right = votes[:_MOST_CLASSES], right[:_MOST_CLASSES]
        notes.append(f"The first {_MOST_CLASSES} queries of the proxy were used.")
    return hold_votes(VoteFile(votes, truth=right)), notes


def label_proxy(proxy: Path | None, assumed: Assumed) -> tuple[HeldVotes, list[str]]:
    """Return votes on many labels to plan on, and what there is to say of them."""
    if proxy is not None:
        held = hold_votes(read_votes(proxy, kind="labels"))
        _require_same("teachers", assumed.n_teachers, held.n_teachers)
        _require_same("labels", assumed.width, held.width)
        return held, []
    n_teachers, n_labels = _declared(assumed, "--labels", "--labels 22 --yes-rate 0.1", 50, "--multilabel ")
    profile = LabelProfile(
        yes_rate=0.1 if assumed.yes_rate is None else assumed.yes_rate,
        agreement=assumed.agreement,
        correlation=assumed.correlation or 0.0,
        concentration=assumed.concentration,
    )
    votes, truth = profile.votes(n_teachers, n_labels, n_queries=_QUERIES, seed=0)
    words = [f"Planned on {_QUERIES} made-up queries: {profile}."]
    return hold_votes(VoteFile(votes, truth=truth)), words


def _declared(
    assumed: Assumed, option: str, example: str, n_teachers: int, before: str = ""
) -> tuple[int, int]:
    if assumed.n_teachers is None or assumed.width is None:
        raise ValueError(
            f"Expected --teachers and {option}, or a --proxy that has them. For example: "
            f"{before}--teachers {n_teachers} {example}"
        )
    return assumed.n_teachers, assumed.width


def _require_same(what: str, wanted: int | None, there: int) -> None:
    if wanted is not None and wanted != there:
        raise ValueError(f"Expected a proxy of {wanted} {what}, got one of {there}.")


def plan_classes(
    votes: HeldVotes,
    *,
    budget: Budget,
    n_public: int,
    against: Literal["exact", "public"],
    bars: Bars,
    n_labels: int | None = None,
    mechanism: Any = None,
) -> list[LabelPlan]:
    """Return what every setting gives, or one; or, for so many labels, the least noise that gives them."""
    file: Any = kept(votes)
    if mechanism is not None and is_by_batch(mechanism):
        raise ValueError(
            f"Expected a mechanism that is paid by the query, got {type(mechanism).__name__}, whose one "
            "batch is paid as a whole: `tellers account` says what it costs."
        )
    if n_labels is not None:
        return [sigma_for_labels(n_labels, file.votes, file.truth, budget=budget, against=against)]
    tried = settings(votes.n_teachers) if mechanism is None else [mechanism]
    with bars(len(tried), "settings") as progress:
        return plan_labels(
            file.votes,
            file.truth,
            budget=budget,
            n_public=n_public,
            against=against,
            mechanisms=tried,
            progress=progress,
        )


_SIGMA_PER_TEACHER = 0.16
"""The noise of a tested batch where none is named: 40 for 250 teachers. More hardly makes it cheaper."""


@dataclass(frozen=True)
class PlannedBatch:
    """A tested batch with what to expect of it, proxy by proxy; all of it public."""

    plan: TestPlan
    proxies: tuple[str, ...]
    epsilon: float | None = None

    @property
    def budget(self) -> float:
        """Return the epsilon that was named, or what a ledger needs to pay for the batch, rounded up."""
        if self.epsilon is not None:
            return self.epsilon
        least = self.plan.accountant().budget.epsilon
        return math.ceil(least * 1e4 - 1e-6) / 1e4

    @property
    def untested(self) -> float:
        """Return the epsilon of the same queries without a test."""
        test = self.plan.mechanism
        return (test.n_queries * test.without_test().price(Unit())).epsilon(self.plan.delta)

    @property
    def toml(self) -> str:
        """Return the settings of a run that asks this batch."""
        given = asdict(self.plan.mechanism)
        lines = [f"{name} = {toml_value(value)}" for name, value in given.items()]
        budget = [f"epsilon = {toml_value(self.budget)}", f"delta = {toml_value(self.plan.delta)}"]
        return "\n".join(["[mechanism]", 'name = "tested-gnmax"', *lines, "", "[budget]", *budget])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        plan, test = self.plan, self.plan.mechanism
        rates = zip(self.proxies, plan.pass_rates, strict=True)
        left = plan.delta - test.test_delta
        return {
            "mechanism": "tested-gnmax",
            "parameters": asdict(test),
            "teachers": plan.n_teachers,
            "classes": plan.n_classes,
            "delta": plan.delta,
            "test_delta": test.test_delta,
            "epsilon_passed": plan.epsilon,
            "epsilon_failed": plan.failed_epsilon,
            "epsilon_full_price": price_after_fail(test, test.n_queries).epsilon(left),
            "epsilon_untested": self.untested,
            "budget": self.budget,
            "pass_rates": [{"proxy": name, "rate": rate} for name, rate in rates],
            "toml": self.toml,
        }


def plan_batch(
    proxies: Sequence[Path],
    assumed: Assumed,
    *,
    epsilon: float | None,
    delta: float,
    n_queries: int | None,
    sigma: float | None,
) -> tuple[PlannedBatch, list[str]]:
    """Return what to propose for a tested batch, and what there is to say of it; from public votes alone.

    It has `n_queries` queries, or, where an epsilon is given, as many of them as that pays for.
    """
    if n_queries is None and epsilon is None:
        raise ValueError(
            "Expected --queries, how many the batch has, or --epsilon, what it may cost, got neither. For "
            "example: --queries 461"
        )
    notes: list[str] = []
    if proxies:
        files = [read_votes(place, n_classes=assumed.width) for place in proxies]
        votes, names = [file.votes for file in files], tuple(str(place) for place in proxies)
        notes += [
            f"{place.name}: {note}" for place, file in zip(proxies, files, strict=True) for note in file.notes
        ]
        n_teachers, n_classes = votes[0].n_teachers, votes[0].n_classes
        _require_same("teachers", assumed.n_teachers, n_teachers)
    else:
        consensus = Consensus(agreement=assumed.agreement, concentration=assumed.concentration)
        n_teachers, n_classes = _declared(assumed, "--classes", "--classes 10", 250)
        votes = [consensus.votes(n_teachers, n_classes, n_queries=_MADE_BATCH, seed=0)[0]]
        names = (f"{_MADE_BATCH} made-up queries: {consensus}",)
    if sigma is None:
        sigma = float(f"{_SIGMA_PER_TEACHER * n_teachers:.3g}")
        notes.append(f"No --sigma was named: {sigma:g}, {_SIGMA_PER_TEACHER:g} for each teacher.")
    about: dict[str, Any] = {
        "n_teachers": n_teachers, "n_classes": n_classes, "delta": delta, "proxies": votes,
    }  # fmt: skip
    if epsilon is None:
        assert n_queries is not None
        plan = plan_test(sigma, n_queries=n_queries, **about)
    else:
        most = 10_000 if n_queries is None else n_queries
        most_tested = plan_most_tested(epsilon, sigma, most=most, **about)
        if most_tested is None:
            raise ValueError(
                f"Expected an epsilon that pays for a test and one label, got {epsilon:g}. Raise it, or take "
                "more teachers."
            )
        plan = most_tested
    notes.append("How often batches pass is a forecast, and what is stated holds for all votes.")
    found = PlannedBatch(plan, names, epsilon)
    if found.untested <= plan.epsilon:
        notes.append(
            f"A test makes this batch no cheaper: gnmax answers it for epsilon {found.untested:.4g} "
            "without one."
        )
    return found, notes


@dataclass(frozen=True)
class RulesCompared:
    """How many queries a budget pays for by each rule, and how many labels are expected of them.

    By a clock silence is charged as it is expected; `better` is the rule that gives more labels, by Rényi
    divergence where both give as many, for then less than the budget may be stated.
    """

    n_renyi: int
    n_clock: int
    labels_renyi: float
    labels_clock: float

    @property
    def better(self) -> str:
        """Return the rule to begin the ledger with."""
        return "clock" if self.labels_clock > self.labels_renyi else "renyi"


def compare_rules(
    mechanism: Any,
    budget: Budget,
    *,
    n_public: int,
    n_renyi: int,
    share: float,
    n_teachers: int,
    n_classes: int | None,
) -> RulesCompared | None:
    """Return what a setting gives by each rule, or None where a clock has no price of its queries.

    `share` of the queries are expected to be answered, and `n_renyi` are paid for by Rényi divergence. A
    clock is not asked where that is all there are.
    """
    if n_renyi >= n_public:
        return RulesCompared(n_renyi, n_renyi, n_renyi * share, n_renyi * share)
    price = itemised(price_of(mechanism, Unit(), n_teachers=n_teachers, n_classes=n_classes))
    held = Accountant.by("clock", budget, price=price)
    try:
        tables = [(times, held.table(item)) for times, item, _ in price.terms]
    except ValueError:
        return None
    if len(tables) == 1 and tables[0][0] == 1 and len(tables[0][1].prices) == 2:
        assert held.clock is not None
        n_clock = _expected_steps(
            tables[0][1], held.clock.start(budget.epsilon, budget.delta), share, n_public
        )
    else:
        n_clock = held.n_affordable(price, n_public)
    return RulesCompared(n_renyi, n_clock, n_renyi * share, n_clock * share)


def _expected_steps(table: Any, left: float, share: float, most: int) -> int:
    """Return how many steps a clock is expected to pay for, where silence (kind 0) gives some of it back."""
    n, silent = 0.0, table.prices[0]
    for at in range(len(table.levels) - 1, -1, -1):
        dearest, room = table.dearest[at], left - table.levels[at]
        if room < dearest:
            continue
        each = share * table.prices[1][at] + (1 - share) * silent[at]
        times = (room - dearest) / each + 1
        n, left = n + times, left - times * each
    return min(most, int(n))


def plan_many_labels(
    votes: HeldVotes,
    *,
    budget: Budget,
    n_public: int,
    bars: Bars,
    max_loss: float = 0.03,
    mechanism: Any = None,
    groups: Sequence[Sequence[int]] = (),
) -> tuple[Advice, list[str]]:
    """Compare mechanisms for many labels, or try one, and return what was found and what to keep in mind."""
    file: Any = kept(votes)
    tried = [mechanism]
    if mechanism is None:
        tried = list(multilabel_settings(ballot_traits(file.votes[:_QUERIES]), groups=groups))
    with bars(len(tried), "settings") as progress:
        advice = advise(
            file.votes,
            file.truth,
            budget=budget,
            n_public=n_public,
            seed=0,
            max_loss=max_loss,
            n_sample=_QUERIES,
            mechanisms=tried,
            progress=progress,
        )
    notes = []
    if votes.n_queries > _QUERIES:
        notes.append(f"{_QUERIES} queries of the proxy, drawn from a fixed seed, were used.")
    if not advice.against_truth:
        notes.append("The proxy holds no 'truth': labels are measured against its majority without noise.")
    notes.append(
        "The forecast is of the exact cost, which is private in a real run. Fix the number of queries first: "
        f"stopping when it reaches the budget would leak. Where ballots are clipped it is from "
        f"{advice.n_forecast} queries."
    )
    return advice, notes


# --- Pictures. ---


_COLOURS = ("#1b6ca8", "#d1495b", "#e89f1f", "#3a7d44", "#7b5ea7")
# Smaller ones on top of larger ones: mechanisms that do the same are all seen.
_MARKS = (("o", 10), ("s", 8), ("^", 6.5), ("D", 5), ("v", 3.5))

Metric = tuple[str, Callable[[MultilabelPlan], float | None], bool]


def require_matplotlib(option: str) -> None:
    """Refuse to begin where pictures could not be drawn."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra(f"Expected matplotlib for {option}: pip install 'tellers[report]'") from None
    matplotlib.use("Agg")


def draw_many_labels(
    folder: Path, votes: HeldVotes, advice: Advice, *, budget: Budget, bars: Bars
) -> list[Path]:
    """Draw every metric against every parameter, and the gaps of the votes; return the paths."""
    file: Any = kept(votes)
    chosen: Any = (advice.best or advice.plans[0]).mechanism
    sigma = float(chosen.sigma)
    if type(chosen).__name__.endswith("GNThreshold"):
        sigma = round(sigma * 2**0.5, 2)  # one noise on the sum is as strong as two on both counts
    folder.mkdir(parents=True, exist_ok=True)
    sweeps, drawn = sweeps_of(advice.traits, sigma), []
    with bars(sum(len(one.mechanisms) for one in sweeps), "pictures") as progress:
        for sweep in sweeps:
            found = advise(
                file.votes,
                file.truth,
                budget=budget,
                n_public=10**9,
                seed=0,
                n_sample=_DRAWN,
                mechanisms=sweep.mechanisms,
                forecast_all=True,
                progress=progress,
            )
            # A plan says which share of silence it expects; what was swept said nothing of it.
            plans = {as_swept: plan for plan in found.plans for as_swept in _as_swept(plan.mechanism)}
            drawn.append(folder / f"{sweep.parameter}.png")
            _save(_sweep(sweep, plans, budget, advice.against_truth), drawn[-1])
    drawn.append(folder / "gaps.png")
    _save(_gaps(file.votes), drawn[-1])
    return drawn


def draw_classes(path: Path, plans: list[LabelPlan], budget: Budget) -> None:
    """Draw labels against accuracy into a file, the information in colour."""
    require_matplotlib("--plot")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    points = axes.scatter(
        [plan.n_labels for plan in plans],
        [100 * plan.accuracy for plan in plans],
        c=[plan.information / 1000 for plan in plans],
        cmap="viridis",
    )
    best: Any = plans[0]
    axes.annotate(
        f"best: {', '.join(f'{k}={v:g}' for k, v in asdict(best.mechanism).items())}",
        (best.n_labels, 100 * best.accuracy),
        xytext=(0.97, 0.06),
        textcoords="axes fraction",
        ha="right",
        arrowprops={"arrowstyle": "-", "color": "#888888"},
    )
    figure.colorbar(points, label="information (kbit)")
    axes.set(xlabel="expected labels", ylabel="of them right (%)")
    axes.set_title(f"Settings within epsilon {budget.epsilon:g} at delta {budget.delta:g}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"Expected a file such as plan.svg for --plot, got {path}: {error}") from None


def _metrics(against_truth: bool) -> list[Metric]:
    reference = "the truth" if against_truth else "the majority"
    return [
        ("queries, public price", lambda plan: plan.n_queries or None, True),
        ("queries, exact cost (forecast, private)", lambda plan: plan.n_queries_exact or None, True),
        ("share of labels told", lambda plan: plan.told, False),
        ("as the majority without noise", lambda plan: plan.agreement, False),
        (f"accuracy against {reference}", lambda plan: plan.scores.accuracy, False),
        (f"balanced accuracy against {reference}", lambda plan: plan.scores.balanced_accuracy, False),
        ("micro F1", lambda plan: plan.scores.micro_f1, False),
        ("macro F1", lambda plan: plan.scores.macro_f1, False),
    ]


def _as_swept(mechanism: Any) -> list[Any]:
    told = getattr(mechanism, "expected_silence", None) is not None
    return [mechanism, *([replace(mechanism, expected_silence=None)] if told else [])]


def _sweep(sweep: Sweep, plans: dict[Any, MultilabelPlan], budget: Any, against_truth: bool) -> Any:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 4, figsize=(15, 7.2), sharex=True)
    for axes, (title, metric, counts) in zip(grid.ravel(), _metrics(against_truth), strict=True):
        for (name, points), colour, (mark, width) in zip(sweep.series.items(), _COLOURS, _MARKS):
            axes.plot(
                [value for value, _ in points],
                np.array([metric(plans[mechanism]) for _, mechanism in points], dtype=np.float64),
                color=colour,
                marker=mark,
                markersize=width,
                label=name,
                alpha=0.85,
            )
        axes.set_title(title, fontsize=10)
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
        if counts:
            _count_axis(axes)
        else:
            axes.set_ylim(max(-0.03, min(axes.get_ylim()[0], 0.78)), 1.02)
    for axes in grid[1]:
        axes.set_xlabel(sweep.parameter, fontsize=10)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.suptitle(
        f"{sweep.parameter}: {sweep.meaning}. Budget: epsilon {budget.epsilon:g} at delta {budget.delta:g}",
        fontsize=12,
    )
    figure.legend(handles, names, loc="lower center", ncols=len(names), frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.05, 1, 0.98))
    return figure


def _count_axis(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not any((line.get_ydata() > 0).any() for line in axes.lines):
        axes.text(0.5, 0.5, "none within the budget", transform=axes.transAxes, ha="center", color="#777777")
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 12:  # less than a decade would show a single number
        axes.set_ylim(low / 2, high * 2)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _gaps(votes: Any) -> Any:
    import matplotlib.pyplot as plt

    n = votes.n_teachers
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    by_label, winning = label_gaps(votes).ravel(), (2 * votes.sums > n).ravel()
    edges = np.linspace(0, n, 26)
    for side, colour, name in ((~winning, "#1b6ca8", "no"), (winning, "#d1495b", "yes")):
        left.hist(
            by_label[side],
            bins=edges,
            histtype="step",
            linewidth=1.8,
            color=colour,
            label=f"the majority says {name}",
            weights=np.full(side.sum(), 1 / winning.size),
        )
    left.set(xlabel="votes between yes and no", ylabel="share of labels (log)", yscale="log")
    left.set_title(f"Gaps of single labels ({n} teachers)", fontsize=11)
    left.legend(frameon=False, fontsize=9, loc="upper left")
    gaps = set_gaps(votes)
    right.hist(gaps, bins=edges, color="#3a7d44", weights=np.full(gaps.size, 1 / gaps.size))
    right.set(xlabel="ballots between the first and the second set", ylabel="share of queries")
    right.set_title("Gaps of whole sets of labels", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)
