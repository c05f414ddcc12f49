"""What the page says: every number as text, public parts and private ones apart, before any layout."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ..card.card import ModelCard, shown_epsilon, shown_parameter
from ..card.published import PublishedCosts
from ..card.result import RunResult
from ..label_costs import bound_because
from ..mechanisms import EVENTS
from .drawing import Drawing
from .folder import PrivateNumbers
from .groups import describe_groups
from .labels import describe_labels, label_votes_drawn
from .plots import plot_cost, plot_gaps, plot_noise, plot_teachers
from .published import describe_published
from .simulated import Simulated, noise_scale, simulate
from .thinning import thinned

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


def describe_run(
    run: RunResult, private: PrivateNumbers | None = None, published: PublishedCosts | None = None
) -> dict[str, Any]:
    """Return everything the page says of a run, as text and drawings, ready for the template.

    `published` is what was released of the real cost, if anything was. Without private numbers nothing
    in it comes from anywhere but the public result, what was published and simulated votes.

    >>> run = RunResult.from_dict({
    ...     "format": 1, "partition": {"n_teachers": 60, "unit": "one record"},
    ...     "data": {"name": "tiny", "n_private": 600, "n_public": 90, "n_test": 50, "n_features": 3,
    ...              "class_names": ["a", "b"]},
    ...     "mechanism": {"name": "GNMax", "sigma": 12.0}, "budget": {"epsilon": 2.0, "delta": 1e-5},
    ...     "spent": {"epsilon": 1.961, "delta": 1e-5, "is_guarantee": True},
    ...     "queries": {"n_asked": 40, "n_answered": 40, "n_silent": 0},
    ...     "student": {"kind": "supervised", "model": "logistic", "n_labels": 40},
    ... })
    >>> page = describe_run(run)
    >>> page["epsilon"], page["guess"], page["accuracy"], [it.mark for it in page["votes"]]
    ('1.97', '87.67 %', '–', ['simulated', 'simulated'])
    """
    card = ModelCard.from_result(run)
    groups = describe_groups(run, private.exact_by_group if private else None)
    return {
        "private": private is not None,
        "title": f"{run.name}: a student taught in private",
        "run": run,
        "card": card,
        "epsilon": shown_epsilon(run.epsilon),
        "infinite": math.isinf(run.epsilon),
        "delta": f"{run.delta:g}",
        "budget": f"{shown_epsilon(run.budget_epsilon)} at delta = {run.budget_delta:g}"
        if math.isfinite(run.budget_epsilon)
        else "",
        "guess": worst_guess(run.epsilon, run.delta),
        "gauge": _gauge(run.epsilon, run.delta),
        "ladder": _ladder(run),
        "when": _when(run.started),
        "accuracy": percent(run.accuracy),
        "labels_right": percent(run.labels_right),
        "order": _SAYS_IT_ALL.get(run.order, run.order),
        "outcomes": list(_outcomes(run)),
        "groups": groups,
        "published": describe_published(published),
        # With budgets per group the main account is charged what the dearest pays: nobody's own cost.
        "cost": [drawn for drawn in [groups["drawing"]] if drawn] if groups else _cost(run, private),
        "cost_rows": [(n, shown_epsilon(e)) for n, e in thinned(run.cost)],
        "labels": describe_labels(run),
        "parameters": {name: shown_parameter(value) for name, value in run.parameters.items()},
        "votes": label_votes_drawn(run, private) if run.labels else list(_votes(run, private)),
        "scores": [
            {
                "name": score.name,
                "n_test": score.n_test,
                "precision": _bar(score.precision),
                "recall": _bar(score.recall),
            }
            for score in run.per_class
        ],
        "comparison": _comparison(run, private) if private else [],
        "teachers": _teachers(private) if private else None,
        "settings": list(flat(run.settings)),
        "seconds": [(name, f"{value:.1f} s") for name, value in run.seconds.items()],
        "total": f"{sum(run.seconds.values()):.1f} s",
    }


def percent(share: float | None) -> str:
    """Return a share with one decimal, or a dash where there is none.

    >>> percent(0.9056), percent(None)
    ('90.6 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def _bar(share: float | None) -> tuple[float | None, str]:
    """Return the length of a bar, in percent, and the number beside it."""
    return None if share is None else round(100 * share, 2), percent(share)


def worst_guess(epsilon: float, delta: float) -> str:
    """Return how often the best guess between two equally likely values of one unit can be right, rounded up.

    Guarantee: no test between neighbouring data, each with probability 1/2, is right more often than
               (e^epsilon + delta) / (e^epsilon + 1).
    Assumes:   (epsilon, delta)-differential privacy in both directions.
    Reference: Kairouz, Oh, Viswanath 2015, Theorem 2.1: the region of error rates, at its corner.

    >>> worst_guess(0.0, 0.0), worst_guess(1.0, 1e-5), worst_guess(math.inf, 0.0)
    ('50.00 %', '73.11 %', '100.00 %')
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
    if math.isfinite(run.epsilon):
        # One that is shown alike would stand there twice.
        steps = {e: False for e in steps if shown_epsilon(e) != shown_epsilon(run.epsilon)} | {
            run.epsilon: True
        }
    return [
        (shown_epsilon(e), worst_guess(e, run.delta), _gauge(e, run.delta), steps[e]) for e in sorted(steps)
    ]


def _when(started: str) -> str:
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return started


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings of nested tables, one name and one text each; of absolute paths the last part only.

    >>> list(flat({"seed": 7, "data": {"name": "files", "private": "/data/patients.csv", "options": {}}}))
    [('seed', '7'), ('data.name', 'files'), ('data.private', '…/patients.csv'), ('data.options', 'none')]
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
        ("answered", _ANSWERED[bool(run.labels)], run.n_answered),
        ("student", "left to the student, who was sure enough", run.n_by_student),
        ("silent", _SILENT[bool(run.labels)], run.n_silent),
        ("lost", "paid for and lost when the run was cut off", run.n_lost),
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
    finite = [(n, epsilon) for n, epsilon in run.cost if math.isfinite(epsilon)]
    exact = [(n, epsilon) for n, epsilon in private.exact_cost if math.isfinite(epsilon)] if private else []
    if exact:
        last, why = shown_epsilon(exact[-1][1]), bound_because(EVENTS.get(run.mechanism))
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
            budget=run.budget_epsilon,
            title=title,
            word="upper bound" if why else "exact",
        )
        return [Drawing(svg=svg, heading=f"Public and {name} cost", caption=caption, mark="private")]
    if not finite:
        return []
    title = f"Public epsilon over questions asked: {shown_epsilon(finite[-1][1])} after {finite[-1][0]}."
    caption = "What the released labels cost at most, whatever the votes were. This number may be published."
    svg = plot_cost(finite, budget=run.budget_epsilon, title=title)
    return [Drawing(svg=svg, heading="Public cost", caption=caption)]


def _votes(run: RunResult, private: PrivateNumbers | None) -> Iterator[Drawing]:
    n_classes, here = len(run.class_names), noise_scale(run.parameters)
    made_up = simulate(run.mechanism, run.parameters, n_teachers=run.n_teachers, n_classes=n_classes)
    note = _simulated_note(made_up, run)
    secret = private is not None and bool(private.gaps)
    gaps = private.gaps if private is not None and private.gaps else made_up.gaps
    clear = sum(gap > run.n_teachers / 2 for gap in gaps) / len(gaps)
    caption = (
        f"On {percent(clear)} of the questions the winner leads by more than half of the teachers. The "
        "further ahead it is, the less noise can change the outcome, and the less one teacher matters. "
    )
    yield Drawing(
        svg=plot_gaps(
            gaps,
            n_teachers=run.n_teachers,
            private=secret,
            title="How far ahead the winning class is, in votes.",
        ),
        heading="How clear are the votes?",
        caption=caption + ("From the votes of this run." if secret else note),
        mark="private" if secret else "simulated",
    )
    secret = private is not None and bool(private.accuracy_against_noise)
    curve = (
        private.accuracy_against_noise if private is not None and secret else made_up.accuracy_against_noise
    )
    curve = tuple(sorted((noise, share) for noise, share in curve if noise > 0))
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
    left_out = " (without its check)" if run.mechanism == "InteractiveGNMax" else ""
    right = percent(made_up.consensus.agreement)
    return (
        f"Here: {run.n_teachers} made-up teachers under the same mechanism{left_out}, {made_up.n_queries} "
        f"questions, each teacher right on {right} of them on average. No vote of this run is shown."
    )


def _comparison(run: RunResult, private: PrivateNumbers) -> list[tuple[str, str, float | None, bool]]:
    rows = [
        ("A model that sees all private rows", private.open_model_accuracy, True),
        ("The teachers' plurality, without noise", private.plurality_accuracy, True),
        ("This student", run.accuracy, False),
    ]
    known = [
        (words, percent(share), _bar(share)[0], secret) for words, share, secret in rows if share is not None
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
