"""The content of the report: every number as text, public and private parts apart."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ...accounting._label_exact import bound_because
from ...accounting.plan import Consensus
from ...mechanisms.registry import EVENTS
from ...privacy._files import write_whole
from .._private import PrivateNumbers
from ..card import ModelCard, shown_epsilon, shown_parameter
from ..result import Curve, GroupPart, LabelPart, PersonalPart, RunResult
from ._plots import (
    N_COLOURS,
    Drawing,
    plot_cost,
    plot_gaps,
    plot_groups,
    plot_noise,
    plot_teachers,
    plot_told,
    thinned,
)

# Made-up votes, for the plots of a public report

_N_QUERIES = 400
_N_EVALUATED = 100  # Of these the chance of every outcome is evaluated, which takes longer than to count.
_AROUND = 2.0 ** np.arange(-3, 3.5, 0.5)
_NODES = np.linspace(-20.0, 20.0, 401)  # of noise of scale 1


@dataclass(frozen=True)
class Simulated:
    """Leads of the winning class, and how right released labels are as the noise grows; all made up.

    Noise is told by its scale: the standard deviation of Gaussian noise, or 1/gamma of Laplace noise.
    """

    consensus: Consensus
    n_queries: int
    gaps: tuple[int, ...]
    accuracy_against_noise: tuple[tuple[float, float], ...]


def simulate(
    mechanism: str,
    parameters: Mapping[str, float],
    *,
    n_teachers: int,
    n_classes: int,
    consensus: Consensus | None = None,
) -> Simulated:
    """Return what teachers of an assumed consensus would do under a mechanism and around its noise.

    The assumption is public and fixed, and nothing of the run but its public settings enters. Noise is not
    rounded to whole votes here, and what a student's word changes is left out.
    """
    assumed = Consensus() if consensus is None else consensus
    votes, truth = assumed.votes(n_teachers, n_classes, n_queries=_N_QUERIES, seed=7)
    some, right_ones = votes.counts[:_N_EVALUATED], truth[:_N_EVALUATED]
    ordered, scale, curve = np.sort(votes.counts, axis=1), noise_scale(parameters), []
    answered = np.ones(len(some))
    if mechanism == "ConfidentGNMax" and {"threshold", "sigma_threshold"} <= set(parameters):
        answered = ndtr((some.max(axis=1) - parameters["threshold"]) / parameters["sigma_threshold"])
    below = _below_laplace if mechanism == "LNMax" else ndtr
    for noise in [] if scale is None or answered.mean() <= 1e-6 else (scale * _AROUND).tolist():
        right = _chance_to_lead(some / noise, right_ones, below)
        curve.append((noise, min(float(answered @ right / answered.sum()), 1.0)))
    gaps = (ordered[:, -1] - ordered[:, -2]).tolist()
    return Simulated(assumed, _N_QUERIES, tuple(gaps), tuple(curve))


def _chance_to_lead(
    counts: NDArray[np.float64], classes: NDArray[np.int64], below: Callable[[Any], Any]
) -> NDArray[np.float64]:
    """Return how likely a class of each query leads, with noise of scale 1 and this law on every count."""
    rows = np.arange(len(counts))
    ahead = counts[rows, classes][:, None] - counts
    ahead[rows, classes] = np.inf
    middle = (_NODES[1:] + _NODES[:-1]) / 2
    chances = below(ahead[:, :, None] + middle).prod(axis=1) @ np.diff(below(_NODES))
    return np.asarray(chances)


def _below_laplace(noise: Any) -> Any:
    return np.where(noise < 0, np.exp(-np.abs(noise)) / 2, 1 - np.exp(-np.abs(noise)) / 2)


def noise_scale(parameters: Mapping[str, float]) -> float | None:
    """Return the scale of the noise on every count, in votes, or None for a mechanism that names none."""
    if "sigma" in parameters:
        return parameters["sigma"]
    return 1 / parameters["gamma"] if parameters.get("gamma") else None


# Groups of people with budgets of their own


def describe_groups(run: RunResult, exact: Mapping[str, Curve] | None = None) -> dict[str, Any] | None:
    """Return the groups as rows of tables and a drawing, or None where one budget is for all.

    `exact` are private costs per group, for the private page alone.
    """
    personal = run.personal
    if personal is None:
        return None
    return {
        "words": personal.words,
        "leave": personal.leave,
        "rounds": personal.rounds_words,
        "strictest": shown_epsilon(min(group.stated for group in personal.groups)),
        "rows": [_row(at, group, run, personal) for at, group in enumerate(personal.groups)],
        "drawing": _drawing(personal, exact or {}),
        "wasted": any(group.waste for group in personal.groups),
        "counted": all(group.n_labels is not None for group in personal.groups),
        "names": [group.name for group in personal.groups],
        "numbers": _numbers(personal),
    }


def _numbers(personal: PersonalPart) -> list[tuple[int, list[str]]]:
    """Return each group's cost after so many questions, about two dozen of them."""
    curves = personal.curves
    costs = [curves.get(group.name, ()) for group in personal.groups]
    points = [n for n, _ in costs[0]]
    if any(len(curve) != len(points) for curve in costs):
        return []
    kept = [int(at) for _, at in thinned(tuple((n, float(at)) for at, n in enumerate(points)))]
    return [(points[at], [shown_epsilon(curve[at][1]) for curve in costs]) for at in kept]


def _row(at: int, group: GroupPart, run: RunResult, personal: PersonalPart) -> dict[str, Any]:
    n_asked, left_after = run.queries.n_asked, personal.left_after(group.name)
    took_part = f"in all {n_asked}"
    if left_after is not None:
        took_part = f"until {left_after} of {n_asked}"
        if group.n_queries > left_after:
            took_part = f"in {group.n_queries} of {n_asked}"
    who = "people" if run.partition.unit == "one person" else "records"
    return {
        "number": at + 1,
        "colour": at % N_COLOURS + 1,
        "name": group.name,
        "who": f"{group.n_persons:,} {who}, {_how(group, personal.variant)}",
        "budget": shown_budget(group.epsilon),
        "spent": shown_epsilon(group.spent),
        "width": round(100 * (1 - group.budget_left), 2),
        "used": f"{100 * (1 - group.budget_left):.0f} %",
        "labels": "" if group.n_labels is None else f"{group.n_labels:,}",
        "took_part": took_part,
        "waste": f"{group.waste:.3g}",
    }


def shown_budget(epsilon: float) -> str:
    """Return a budget as it was agreed to: not rounded up, as what is spent is."""
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "infinite"


def _how(group: GroupPart, variant: str) -> str:
    if variant == "vanishing":
        return f"{group.n_teachers} teachers, each in {100 * group.how:.3g} % of all questions"
    if variant == "upsampling":
        return "one teacher each" if group.how == 1 else f"{group.how:g} teachers each"
    return f"{group.n_teachers} teachers of {group.how:g} {'vote' if group.how == 1 else 'votes'}"


def _drawing(personal: PersonalPart, exact: Mapping[str, Curve]) -> Drawing | None:
    charged = personal.curves
    groups = [group for group in personal.groups if group.name in charged]
    if not groups:
        return None
    curves = [_finite(charged[group.name]) for group in groups]
    budgets = [group.epsilon for group in groups]
    ends = ", ".join(
        f"group {at + 1}: {shown_epsilon(group.spent)} of {shown_budget(group.epsilon)}"
        for at, group in enumerate(groups)
    )
    caption = (
        "What the released labels cost one unit of each group at most, whatever the votes were. The broken "
        "lines are the budgets that they agreed to; the numbers are those of the table."
    )
    secret = [_finite(exact.get(group.name, ())) for group in groups]
    if not any(secret):
        svg = plot_groups(
            curves, budgets=budgets, title=f"Public epsilon of each group over questions; {ends}."
        )
        return Drawing(svg=svg, heading="Cost per group", caption=caption)
    caption += (
        " The dotted lines are exact costs, given the votes that were cast. They depend on private data and "
        "may not be published."
    )
    title = f"Public and exact epsilon of each group over questions; {ends}. Private."
    svg = plot_groups(curves, budgets=budgets, exact=secret, title=title)
    return Drawing(svg=svg, heading="Public and exact cost per group", caption=caption, mark="private")


def _finite(curve: Curve) -> list[tuple[float, float]]:
    return [(n, epsilon) for n, epsilon in curve if math.isfinite(epsilon)]


# Many labels per row

_WORDS = {
    "accuracy": ("Accuracy", "the share of right answers, over all rows and labels"),
    "balanced_accuracy": ("Balanced accuracy", "what is found of yes and no, on average; 50 % is guessing"),
    "auc": ("AUC", "how often a row with the label is ranked above one without it; 50 % is guessing"),
    "mean_average_precision": ("mAP", "the precision of a ranking by the label, averaged over its rows"),
    "micro_f1": ("F1, all labels", "precision and recall of yes in one, over all answers"),
    "macro_f1": ("F1, label by label", "the same of each label, averaged"),
    "micro_precision": ("Precision, all labels", "how many of the labels that it says are true"),
    "micro_recall": ("Recall, all labels", "how many of the true labels it says"),
    "macro_precision": ("Precision, label by label", "the same of each label, averaged"),
    "macro_recall": ("Recall, label by label", "the same of each label, averaged"),
}  # fmt: skip
# With more of them a table is long; what matters then is in the sums, the rest can be opened.
_MANY = 30


def describe_labels(run: RunResult) -> dict[str, Any] | None:
    """Return the labels as rows of a table, scores and a drawing, or None where each row has one class."""
    if not run.labels:
        return None
    tested = any(label.accuracy is not None for label in run.labels)
    silent, told = any(one.n_silent for one in run.labels), run.student.n_labels
    n_inferred = sum(one.n_inferred for one in run.labels)
    judged = any(label.labels_right is not None for label in run.labels)
    there = {"": True, "judged": judged, "tested": tested}
    return {
        "many": len(run.labels) > _MANY,
        "tested": tested,
        "judged": judged,
        "columns": [column for column in LabelPart.columns if there[column.where]],
        "n_possible": run.queries.n_asked * len(run.labels),
        "n_inferred": n_inferred,
        "scores": [(*_WORDS[name], value) for name, value in run.student.known_scores.items()],
        "drawing": _told(run, told, silent=silent),
    }


def label_votes_drawn(run: RunResult, private: PrivateNumbers | None) -> list[Drawing]:
    """Return how clear the votes on every label were, for the private page; nothing for the public one."""
    if private is None or not private.gaps:
        return []
    clear = sum(gap > run.partition.n_teachers / 2 for gap in private.gaps) / len(private.gaps)
    svg = plot_gaps(
        private.gaps, n_teachers=run.partition.n_teachers, private=True, between="votes between yes and no",
        of="% of labels asked", title="How far yes and no are apart, in votes. Private.",
    )  # fmt: skip
    caption = (
        f"On {percent(clear)} of the labels that were asked, yes and no are more than half of the teachers "
        "apart. The further, the less noise can change the outcome, and the less one teacher matters. From "
        "the votes of this run."
    )
    return [Drawing(svg=svg, heading="How clear are the votes?", caption=caption, mark="private")]


def _told(run: RunResult, told: int, *, silent: bool) -> Drawing:
    shares = [(label.n_yes, label.n_no, label.n_silent) for label in run.labels]
    svg = plot_told(shares, title=f"Yes, no and silence for each of {len(run.labels)} labels.")
    words = (
        f"What came out of {run.queries.n_asked} questions, label by label, {told} answers in all; the "
        "numbers are those of the table. "
    )
    words += (
        "Where the teachers did not agree enough, nothing was said."
        if silent
        else "No label met with silence."
    )
    return Drawing(svg=svg, heading="What was told", caption=words)


# The whole page

_SAYS_IT_ALL = {
    "shuffled": "in random order", "given": "in the order given", "typical": "typical ones first",
    "active": "hardest first",
}  # fmt: skip

# Where a row has one class, and where it has many labels.
_ANSWERED = ("answered by the teachers", "answered: at least one label was told")
_SILENT = (
    "met with silence: the teachers did not agree enough",
    "met with silence: not one label was told",
)


def describe_run(run: RunResult, private: PrivateNumbers | None = None) -> dict[str, Any]:
    """Return everything the page says of a run, as text and drawings, ready for the template.

    Without private numbers nothing in it comes from anywhere but the public result and simulated votes.
    """
    card = ModelCard.from_result(run)
    groups = describe_groups(run, private.exact_by_group if private else None)
    return {
        "private": private is not None,
        "title": f"{run.data.name}: a student taught in private",
        "run": run,
        "card": card,
        "epsilon": shown_epsilon(run.spent.epsilon),
        "infinite": math.isinf(run.spent.epsilon),
        "delta": f"{run.spent.delta:g}",
        "budget": f"{shown_epsilon(run.budget.epsilon)} at delta = {run.budget.delta:g}"
        if math.isfinite(run.budget.epsilon)
        else "",
        "guess": worst_guess(run.spent.epsilon, run.spent.delta),
        "gauge": _gauge(run.spent.epsilon, run.spent.delta),
        "ladder": _ladder(run),
        "when": _when(run.started),
        "accuracy": percent(run.student.accuracy),
        "labels_right": percent(run.student.labels_right),
        "order": _SAYS_IT_ALL.get(run.queries.order, run.queries.order),
        "outcomes": list(_outcomes(run)),
        "groups": groups,
        "n_colours": N_COLOURS,
        # With budgets per group the main account is charged what the dearest pays: nobody's own cost.
        "cost": [drawn for drawn in [groups["drawing"]] if drawn] if groups else _cost(run, private),
        "cost_rows": [(n, shown_epsilon(e)) for n, e in thinned(run.curve)],
        "labels": describe_labels(run),
        "parameters": {name: shown_parameter(value) for name, value in run.mechanism.parameters.items()},
        "votes": label_votes_drawn(run, private) if run.labels else list(_votes(run, private)),
        "comparison": _comparison(run, private) if private else [],
        "teachers": _teachers(private) if private else None,
        "settings": list(flat(run.settings)),
        "seconds": [(name, f"{value:.1f} s") for name, value in run.seconds.items()],
        "total": f"{sum(run.seconds.values()):.1f} s",
    }


def write_page(folder: Path, run: RunResult, private: PrivateNumbers | None = None) -> Path:
    """Write the report of a result into the folder of its run, with private numbers where they are given."""
    content = page_template("page.html").render(describe_run(run, private)).encode()
    page = folder / "report.html" if private is None else folder / "private" / "report.private.html"
    write_whole(page, content, shared=private is None)
    return page


@cache
def page_template(name: str) -> Any:
    """Return one of the pages to fill in; all that is printed on it is escaped."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    room = files(__package__)
    parts = (name, "head.html", "labels.html", "parts.html", "style.css")
    sources = {part: (room / part).read_text(encoding="utf-8") for part in parts}
    # Names of classes and columns are anybody's: all that is printed is escaped unless the template says not.
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent, "width": bar_width, "epsilon": shown_epsilon, "budget": shown_budget,
    }  # fmt: skip
    return environment.get_template(name)


def percent(share: float | None) -> str:
    """Return a share with one decimal, or a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def bar_width(share: float | None) -> float | None:
    """Return the length of a bar, in percent."""
    return None if share is None else round(100 * share, 2)


def worst_guess(epsilon: float, delta: float) -> str:
    """Return how often the best guess between two equally likely values of one unit can be right, rounded up.

    Guarantee: no test between neighbouring data, each with probability 1/2, is right more often than
               (e^epsilon + delta) / (e^epsilon + 1).
    Assumes:   (epsilon, delta)-differential privacy in both directions.
    Reference: Kairouz, Oh, Viswanath 2015, Theorem 2.1: the region of error rates, at its corner.
    """
    # The guard keeps 50 % from becoming 50.01 % by rounding alone.
    return f"{math.ceil(1e4 * _guess(epsilon, delta) * (1 - 1e-12)) / 100:.2f} %"


def _guess(epsilon: float, delta: float) -> float:
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def _gauge(epsilon: float, delta: float) -> float:
    """Return how far between a coin toss (0) and certainty (100) the best guess is."""
    return round(200 * (_guess(epsilon, delta) - 0.5), 2)


def _ladder(run: RunResult) -> list[tuple[str, str, float, bool]]:
    """Return some epsilons with what they allow, the run's own among them and marked."""
    steps = dict.fromkeys((0.1, 0.5, 1.0, 2.0, 4.0, 8.0), False)
    if math.isfinite(run.spent.epsilon):
        # One that is shown alike would stand there twice.
        steps = {e: False for e in steps if shown_epsilon(e) != shown_epsilon(run.spent.epsilon)} | {
            run.spent.epsilon: True
        }
    delta = run.spent.delta
    return [(shown_epsilon(e), worst_guess(e, delta), _gauge(e, delta), steps[e]) for e in sorted(steps)]


def _when(started: str) -> str:
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return started


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings of nested tables, one name and one text each.

    Of absolute paths the last part only.
    """
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _setting(value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, (str, list, tuple, Mapping)) and not value):
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting, value))
    if isinstance(value, str) and PurePath(value).is_absolute():
        # Where a file lay on somebody's machine is nobody's business on a page that may be published.
        return f"…/{PurePath(value).name}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _outcomes(run: RunResult) -> Iterator[dict[str, Any]]:
    """Yield what became of the questions: what it is called, how many, which share of them all."""
    parts = [
        ("answered", _ANSWERED[bool(run.labels)], run.queries.n_answered),
        ("student", "left to the student, who was sure enough", run.queries.n_by_student),
        ("silent", _SILENT[bool(run.labels)], run.queries.n_silent),
        ("lost", "paid for and lost when the run was cut off", run.queries.n_lost),
    ]
    total = sum(n for _, _, n in parts)
    for kind, words, n in parts:
        if n or kind in ("answered", "silent"):
            share = n / total if total else 0.0
            yield {
                "kind": kind,
                "words": words,
                "n": n,
                "share": percent(share),
                "width": round(100 * share, 3),
            }


def _cost(run: RunResult, private: PrivateNumbers | None) -> list[Drawing]:
    finite, exact = _finite(run.curve), _finite(private.exact_curve) if private else []
    if exact:
        last, why = shown_epsilon(exact[-1][1]), bound_because(EVENTS.get(run.mechanism.name))
        name = "upper bound on the exact" if why else "exact"
        title = (
            f"Public and {name} epsilon over questions asked; {name}: {last} after {exact[-1][0]}. Private."
        )
        caption = (
            "The exact cost, given the votes that were cast, is "
            f"{'at most ' if why else ''}{last} at the end."
            + (f" It is known as an upper bound: {why}." if why else "")
            + " It depends on private data and may not be published as it is; the command tellers publish "
            "releases it with noise."
        )
        svg = plot_cost(
            finite,
            exact=exact,
            budget=run.budget.epsilon,
            title=title,
            word="upper bound" if why else "exact",
        )
        return [Drawing(svg=svg, heading=f"Public and {name} cost", caption=caption, mark="private")]
    if not finite:
        return []
    title = f"Public epsilon over questions asked: {shown_epsilon(finite[-1][1])} after {finite[-1][0]}."
    caption = "What the released labels cost at most, whatever the votes were. This number may be published."
    svg = plot_cost(finite, budget=run.budget.epsilon, title=title)
    return [Drawing(svg=svg, heading="Public cost", caption=caption)]


def _votes(run: RunResult, private: PrivateNumbers | None) -> Iterator[Drawing]:
    used, n_classes = run.mechanism, len(run.data.class_names)
    n_teachers, here = run.partition.n_teachers, noise_scale(used.parameters)
    made_up = simulate(used.name, used.parameters, n_teachers=n_teachers, n_classes=n_classes)
    note = _simulated_note(made_up, run)
    secret = private is not None and bool(private.gaps)
    gaps = private.gaps if private is not None and private.gaps else made_up.gaps
    clear = sum(gap > run.partition.n_teachers / 2 for gap in gaps) / len(gaps)
    caption = (
        f"On {percent(clear)} of the questions the winner leads by more than half of the teachers. The "
        "further ahead it is, the less noise can change the outcome, and the less one teacher matters. "
    )
    yield Drawing(
        svg=plot_gaps(
            gaps,
            n_teachers=run.partition.n_teachers,
            private=secret,
            title="How far ahead the winning class is, in votes.",
        ),
        heading="How clear are the votes?",
        caption=caption + ("From the votes of this run." if secret else note),
        mark="private" if secret else "simulated",
    )
    measured = private.accuracy_against_noise if private is not None else ()
    secret = bool(measured)
    curve = [(point.sigma, point.accuracy) for point in measured] or made_up.accuracy_against_noise
    curve = sorted((noise, share) for noise, share in curve if noise > 0)
    if len(curve) < 2:
        return
    caption = (
        "More noise protects more and makes more labels wrong. More teachers stand more noise: what counts "
        "is the noise against the lead. "
    )
    yield Drawing(
        svg=plot_noise(
            curve, here=here, chance=1 / n_classes, private=secret,
            title="Share of released labels that are right, against the noise.",
        ),
        heading="How much noise do they stand?",
        caption=caption + ("From the votes of this run." if secret else note),
        mark="private" if secret else "simulated",
    )  # fmt: skip


def _simulated_note(made_up: Simulated, run: RunResult) -> str:
    left_out = " (without its check)" if run.mechanism.name == "InteractiveGNMax" else ""
    right = percent(made_up.consensus.agreement)
    return (
        f"Here: {run.partition.n_teachers} made-up teachers under the same mechanism{left_out}, "
        f"{made_up.n_queries} questions, each teacher right on {right} of them on average. No vote of this "
        "run is shown."
    )


def _comparison(run: RunResult, private: PrivateNumbers) -> list[tuple[str, str, float | None, bool]]:
    rows = [
        ("A model that sees all private rows", private.open_model_accuracy, True),
        ("The teachers' plurality, without noise", private.plurality_accuracy, True),
        ("This student", run.student.accuracy, False),
    ]
    known = [
        (words, percent(share), bar_width(share), secret)
        for words, share, secret in rows
        if share is not None
    ]
    return known if any(secret for *_, secret in known) else []


def _teachers(private: PrivateNumbers) -> Drawing | None:
    accuracies = sorted(private.teacher_accuracies)
    if not accuracies:
        return None
    spread = f"{percent(accuracies[0])} to {percent(accuracies[-1])}"
    mean = percent(sum(accuracies) / len(accuracies))
    title = f"Accuracy of the teachers: {spread}, mean {mean}. Private."
    caption = (
        f"Each teacher by itself, on the test rows: {spread}, {mean} on average. A teacher learned from its "
        "part alone, so its accuracy tells of that part."
    )
    svg = plot_teachers(accuracies, title=title)
    return Drawing(svg=svg, heading="How good is each teacher?", caption=caption, mark="private")
