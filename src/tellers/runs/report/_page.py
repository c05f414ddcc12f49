"""The content of the report: every number as text, public and private parts apart."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
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
from ..card import ModelCard, renyi_words, shown_epsilon, shown_parameter
from ..result import (
    SCORES,
    GroupPart,
    GroupPoint,
    LabelPart,
    MechanismPart,
    PersonalPart,
    PrivateNumbers,
    RunResult,
)
from ._plots import (
    N_COLOURS,
    Drawing,
    Points,
    plot_clock,
    plot_cost,
    plot_gaps,
    plot_groups,
    plot_noise,
    plot_teachers,
    plot_told,
    thinned,
)

# Made-up votes, for the plots of a public report

_ASSUMED = Consensus()
_N_QUERIES = 400
_N_EVALUATED = 100  # Of these the chance of every outcome is evaluated, which takes longer than to count.
_AROUND = 2.0 ** np.arange(-3, 3.5, 0.5)
_NODES = np.linspace(-20.0, 20.0, 401)  # of noise of scale 1


# The same for every run of these settings, and for both pages of one.
@lru_cache(maxsize=64)
def simulate(used: MechanismPart, *, n_teachers: int, n_classes: int) -> tuple[list[int], Points]:
    """Return leads of the winning class, and how right released labels are by the scale of the noise.

    Teachers of an assumed consensus vote under the mechanism and around its noise. The assumption is public
    and fixed, and nothing of the run but its public settings enters. Noise is not rounded to whole votes
    here, and what a student's word changes is left out.
    """
    parameters = used.parameters
    votes, truth = _ASSUMED.votes(n_teachers, n_classes, n_queries=_N_QUERIES, seed=7)
    some, right_ones = votes.counts[:_N_EVALUATED], truth[:_N_EVALUATED]
    scale, curve = noise_scale(parameters), []
    answered = np.ones(len(some))
    if used.name == "ConfidentGNMax" and {"threshold", "sigma_threshold"} <= set(parameters):
        answered = ndtr((some.max(axis=1) - parameters["threshold"]) / parameters["sigma_threshold"])
    below = _below_laplace if used.name == "LNMax" else ndtr
    for noise in [] if scale is None or answered.mean() <= 1e-6 else (scale * _AROUND).tolist():
        right = _chance_to_lead(some / noise, right_ones, below)
        curve.append((noise, min(float(answered @ right / answered.sum()), 1.0)))
    return votes.gap.tolist(), curve


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


def cost_numbers(personal: PersonalPart) -> list[tuple[int, list[float]]]:
    """Return each group's cost after so many questions, about two dozen of them."""
    names = [group.name for group in personal.groups]
    told = [point for point in personal.cost if point.epsilon.keys() >= set(names)]
    return [(point.n_queries, [point.epsilon[name] for name in names]) for point in thinned(told)]


def took_part(group: GroupPart, run: RunResult) -> str:
    """Return in which of the questions a group took part."""
    n_asked = run.queries.n_asked
    left_after = None if run.personal is None else run.personal.left_after(group.name)
    if left_after is None:
        return f"in all {n_asked}"
    if group.n_queries > left_after:
        return f"in {group.n_queries} of {n_asked}"
    return f"until {left_after} of {n_asked}"


def shown_budget(epsilon: float) -> str:
    """Return a budget as it was agreed to: not rounded up, as what is spent is."""
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "infinite"


def who_pays(group: GroupPart, run: RunResult) -> str:
    """Return how many people or records a group has, and how it takes part by the variant of the run."""
    n, many = group.n_teachers, f"{group.how:g}"
    how = f"{n} teachers of {many} {'vote' if group.how == 1 else 'votes'}"
    variant = run.personal and run.personal.variant
    if variant == "vanishing":
        how = f"{n} teachers, each in {100 * group.how:.3g} % of all questions"
    if variant == "upsampling":
        how = "one teacher each" if group.how == 1 else f"{many} teachers each"
    return f"{group.n_persons:,} {'people' if run.partition.unit == 'one person' else 'records'}, {how}"


def _group_costs(personal: PersonalPart, exact: Sequence[GroupPoint]) -> list[Drawing]:
    """Return the cost of each group; `exact` are private ones, for the private page alone."""
    groups = personal.groups
    if not personal.cost:
        return []
    curves = [_finite(group.name, personal.cost) for group in groups]
    budgets = [group.epsilon for group in groups]
    ends = ", ".join(
        f"group {at + 1}: {shown_epsilon(group.spent)} of {shown_budget(group.epsilon)}"
        for at, group in enumerate(groups)
    )
    caption = (
        "What the released labels cost one unit of each group at most, whatever the votes were. The broken "
        "lines are the budgets that they agreed to; the numbers are those of the table."
    )
    secret = [_finite(group.name, exact) for group in groups]
    if not any(secret):
        svg = plot_groups(f"Public epsilon of each group over questions; {ends}.", curves, budgets=budgets)
        return [Drawing(svg=svg, heading="Cost per group", caption=caption)]
    caption += (
        " The dotted lines are exact costs, given the votes that were cast. They depend on private data and "
        "may not be published."
    )
    title = f"Public and exact epsilon of each group over questions; {ends}. Private."
    svg = plot_groups(title, curves, budgets=budgets, exact=secret)
    return [Drawing(svg=svg, heading="Public and exact cost per group", caption=caption, mark="private")]


def _finite(name: str, points: Sequence[GroupPoint]) -> Points:
    costs = [(point.n_queries, point.epsilon[name]) for point in points if name in point.epsilon]
    return [(n, epsilon) for n, epsilon in costs if math.isfinite(epsilon)]


# Many labels per row

# With more of them a table is long; what matters then is in the sums, the rest can be opened.
_MANY = 30


def describe_labels(run: RunResult) -> dict[str, Any]:
    """Return what is known of the labels, and a drawing of what was told."""
    tested = any(label.accuracy is not None for label in run.labels)
    judged = any(label.labels_right is not None for label in run.labels)
    there = {"": True, "judged": judged, "tested": tested}
    told = [(label.n_yes, label.n_no, label.n_silent) for label in run.labels]
    svg = plot_told(f"Yes, no and silence for each of {len(run.labels)} labels.", told)
    words = (
        f"What came out of {run.queries.n_asked} questions, label by label, {run.student.n_labels} answers "
        "in all; the numbers are those of the table. "
    )
    silent = any(label.n_silent for label in run.labels)
    some = "Where the teachers did not agree enough, nothing was said."
    words += some if silent else "No label met with silence."
    return {
        "many": len(run.labels) > _MANY,
        "tested": tested,
        "judged": judged,
        "columns": [column for column in LabelPart.columns if there[column.where]],
        "n_inferred": sum(label.n_inferred for label in run.labels),
        "drawing": Drawing(svg=svg, heading="What was told", caption=words),
    }


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
    drawn = _cost(run, private)
    if run.personal is not None:
        # With budgets per group the main account is charged what the dearest pays: nobody's own cost.
        exact = private.personal.exact_cost if private and private.personal else None
        drawn = _group_costs(run.personal, exact or ())
    return {
        "private": private,
        "title": f"{run.data.name}: a student taught in private",
        "run": run,
        "card": ModelCard.from_result(run),
        "infinite": math.isinf(run.spent.epsilon),
        "ladder": _ladder(run),
        "when": _when(run.started),
        "order": _SAYS_IT_ALL.get(run.queries.order, run.queries.order),
        "outcomes": list(_outcomes(run)),
        "n_colours": N_COLOURS,
        "cost": drawn,
        "cost_rows": thinned(run.cost),
        "group_rows": cost_numbers(run.personal) if run.personal else [],
        "labels": describe_labels(run) if run.labels else None,
        "votes": list(_votes(run, private)),
        "comparison": _comparison(run, private) if private else [],
        "teachers": _teachers(private) if private else None,
        "settings": list(flat(run.settings)),
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
        "percent": percent, "epsilon": shown_epsilon, "renyi_words": renyi_words, "budget": shown_budget,
        "parameter": shown_parameter, "guess": worst_guess, "gauge": _gauge, "who_pays": who_pays,
        "took_part": took_part, "finite": math.isfinite, "words": SCORES.__getitem__,
    }  # fmt: skip
    return environment.get_template(name)


def percent(share: float | None) -> str:
    """Return a share with one decimal, or a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


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
    """Return how far between a coin toss (0) and certainty (1) the best guess is."""
    return 2 * _guess(epsilon, delta) - 1


def _ladder(run: RunResult) -> list[tuple[float, bool]]:
    """Return some epsilons, the run's own among them and marked."""
    own, steps = run.spent.epsilon, (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
    if not math.isfinite(own):
        return [(epsilon, False) for epsilon in steps]
    # One that is shown alike would stand there twice.
    others = [epsilon for epsilon in steps if shown_epsilon(epsilon) != shown_epsilon(own)]
    return sorted([(own, True), *((epsilon, False) for epsilon in others)])


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


def _outcomes(run: RunResult) -> Iterator[tuple[str, str, int, float]]:
    """Yield what became of the questions: its kind, what it is called, how many, which share of them all."""
    parts = [
        ("answered", _ANSWERED[bool(run.labels)], run.queries.n_answered),
        ("student", "left to the student, who was sure enough", run.queries.n_by_student),
        ("silent", _SILENT[bool(run.labels)], run.queries.n_silent),
        ("lost", "paid for and lost when the run was cut off", run.queries.n_lost),
    ]
    total = sum(n for _, _, n in parts)
    for kind, words, n in parts:
        if n or kind in ("answered", "silent"):
            yield kind, words, n, n / total if total else 0.0


def _cost(run: RunResult, private: PrivateNumbers | None) -> list[Drawing]:
    finite, exact = (
        [(point.n_queries, point.epsilon) for point in points or () if math.isfinite(point.epsilon)]
        for points in (run.cost, private.exact_cost if private else None)
    )
    clock = list(_clock(run)) if run.budget.rule == "clock" else []
    if clock:
        finite = []  # on a clock what is spent is no epsilon
    if exact:
        last, why = shown_epsilon(exact[-1][1]), bound_because(EVENTS.get(run.mechanism.name))
        name = "upper bound on the exact" if why else "exact"
        which = f"{'The' if clock else 'Public and'} {name} epsilon"
        title = f"{which} over questions asked; {name}: {last} after {exact[-1][0]}. Private."
        caption = (
            "The exact cost, given the votes that were cast, is "
            f"{'at most ' if why else ''}{last} at the end."
            + (f" It is known as an upper bound: {why}." if why else "")
            + " It depends on private data and may not be published as it is; the command tellers publish "
            "releases it with noise."
        )
        word = "upper bound" if why else "exact"
        svg = plot_cost(title, finite, exact=exact, budget=run.budget.epsilon, word=word)
        heading = f"The {name} cost" if clock else f"Public and {name} cost"
        return [*clock, Drawing(svg=svg, heading=heading, caption=caption, mark="private")]
    if not finite:
        return clock
    title = f"Public epsilon over questions asked: {shown_epsilon(finite[-1][1])} after {finite[-1][0]}."
    caption = "What the released labels cost at most, whatever the votes were. This number may be published."
    svg = plot_cost(title, finite, budget=run.budget.epsilon)
    return [Drawing(svg=svg, heading="Public cost", caption=caption)]


def _clock(run: RunResult) -> Iterator[Drawing]:
    """Yield the drawing of what was left of the clock, where something was asked."""
    points = [(0, 1.0), *((point.n_queries, point.left) for point in run.cost if point.left is not None)]
    if len(points) < 2:
        return
    title = (
        f"What was left of the clock over questions asked: {percent(points[-1][1])} after {points[-1][0]}."
    )
    caption = (
        f"The clock of the whole budget, epsilon = {run.budget.epsilon:g}: prices hold whatever the votes "
        "were. What is left is a share of it and no epsilon; stated is the budget."
    )
    yield Drawing(svg=plot_clock(title, points), heading="What is left", caption=caption)


def _leads(run: RunResult, gaps: Sequence[int], note: str) -> Drawing:
    """Return how clear the votes were, of a run with classes or labels; without a note they are its own."""
    n_teachers = run.partition.n_teachers
    clear = percent(sum(gap > n_teachers / 2 for gap in gaps) / len(gaps))
    said, further = "questions the winner leads by more than half of the teachers", "The further ahead it is"
    title, axes = "How far ahead the winning class is, in votes.", {}
    if run.labels:
        said = "labels that were asked, yes and no are more than half of the teachers apart"
        further, title = "The further", "How far yes and no are apart, in votes. Private."
        axes = {"between": "votes between yes and no", "of": "% of labels asked"}
    caption = (
        f"On {clear} of the {said}. {further}, the less noise can change the outcome, and the less one "
        f"teacher matters. {note or 'From the votes of this run.'}"
    )
    svg = plot_gaps(title, gaps, n_teachers=n_teachers, private=not note, **axes)
    mark = "simulated" if note else "private"
    return Drawing(svg=svg, heading="How clear are the votes?", caption=caption, mark=mark)


def _votes(run: RunResult, private: PrivateNumbers | None) -> Iterator[Drawing]:
    own = private.gaps if private is not None else ()
    if run.labels:
        if own:  # for the private page alone
            yield _leads(run, own, "")
        return
    used, n_classes = run.mechanism, len(run.data.class_names)
    n_teachers, here = run.partition.n_teachers, noise_scale(used.parameters)
    gaps, made_up = simulate(used, n_teachers=n_teachers, n_classes=n_classes)
    left_out = " (without its check)" if used.name == "InteractiveGNMax" else ""
    note = (
        f"Here: {n_teachers} made-up teachers under the same mechanism{left_out}, {_N_QUERIES} questions, "
        f"each teacher right on {percent(_ASSUMED.agreement)} of them on average. No vote of this run is "
        "shown."
    )
    yield _leads(run, own or gaps, "" if own else note)
    measured = private.accuracy_against_noise if private is not None else ()
    secret = bool(measured)
    curve = [(point.sigma, point.accuracy) for point in measured] or made_up
    curve = sorted((noise, share) for noise, share in curve if noise > 0)
    if len(curve) < 2:
        return
    caption = (
        "More noise protects more and makes more labels wrong. More teachers stand more noise: what counts "
        "is the noise against the lead. "
    )
    yield Drawing(
        svg=plot_noise(
            "Share of released labels that are right, against the noise.",
            curve, here=here, chance=1 / n_classes, private=secret,
        ),
        heading="How much noise do they stand?",
        caption=caption + ("From the votes of this run." if secret else note),
        mark="private" if secret else "simulated",
    )  # fmt: skip


def _comparison(run: RunResult, private: PrivateNumbers) -> list[tuple[str, float, bool]]:
    rows = [
        ("A model that sees all private rows", private.open_model_accuracy, True),
        ("The teachers' plurality, without noise", private.plurality_accuracy, True),
        ("This student", run.student.accuracy, False),
    ]
    known = [(words, share, secret) for words, share, secret in rows if share is not None]
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
    svg = plot_teachers(title, accuracies)
    return Drawing(svg=svg, heading="How good is each teacher?", caption=caption, mark="private")
