"""`tellers plan`: what a budget buys before anybody votes, for classes and for many labels."""

import json
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from . import options, show

if TYPE_CHECKING:
    from rich.console import Console

    from ..accounting.plan import LabelPlan
    from ..accounting.plan_multilabel import Advice, LabelScores, MultilabelPlan
    from ..privacy.budget import Budget
    from ..teachers.store import HeldVotes


_MANY = "Many labels"
_LEAVE = "Leave it out. See: tellers plan --help"


class AgainstName(StrEnum):
    """Which cost the budget is held against."""

    exact = "exact"
    public = "public"


class PlannedRule(StrEnum):
    """By which rule a ledger will hold the budget."""

    auto = "auto"
    renyi = "renyi"
    clock = "clock"


@options.takes_mechanism(after="mechanism", sums=True)
def command(
    delta: options.Delta,
    epsilon: Annotated[
        float | None,
        options.option("The budget; tested-gnmax: the most that may be stated, or leave it to the plan."),
    ] = None,
    teachers: Annotated[int | None, options.option("How many teachers will vote.")] = None,
    classes: options.Classes = None,
    queries: Annotated[
        int | None,
        options.option(
            "How many public examples there are, 10,000 if not said; tested-gnmax: how many its batch has, "
            "or with --epsilon at most."
        ),
    ] = None,
    labels: Annotated[
        int | None,
        options.option(
            "The inverse: the least noise that gives so many. With --multilabel: labels per example."
        ),
    ] = None,
    against: Annotated[
        AgainstName, options.option("Hold the budget against the exact cost (private) or the public price.")
    ] = AgainstName.public,
    rule: Annotated[
        PlannedRule,
        options.option(
            "By which rule the ledger will hold the budget; auto compares both for the best setting."
        ),
    ] = PlannedRule.auto,
    agreement: Annotated[float, options.option("Assumed share of right votes, on average.")] = 0.9,
    concentration: Annotated[float, options.option("Below 2: most queries easy, a few hard.")] = 1.5,
    proxy: Annotated[
        list[Path] | None,
        options.option(
            "Public votes to plan on instead of an assumed consensus; 'truth' in it where it is known. "
            "tested-gnmax: as often as there are some."
        ),
    ] = None,
    plot: Annotated[
        Path | None, options.option("Draw labels against accuracy into a file (.svg, .png).")
    ] = None,
    top: Annotated[int, options.option("How many settings to show.", min=1)] = 10,
    mechanism: options.Mechanism = None,
    multilabel: Annotated[
        bool,
        options.option(
            "Plan for many labels per example; --proxy is then an npz of 'label_ballots' (teachers x "
            "queries x labels), and 'truth' (queries x labels) where it is known.",
            "--multilabel",
            panel=_MANY,
        ),
    ] = False,
    yes_rate: Annotated[
        float | None,
        options.option("Assumed share of examples that have a label, 0.1 if not said.", panel=_MANY),
    ] = None,
    correlation: Annotated[
        float | None,
        options.option("Assumed correlation of labels, and of mistakes, 0 if not said.", panel=_MANY),
    ] = None,
    max_loss: Annotated[
        float | None, options.option("Accuracy that noise may cost, 0.03 if not said.", panel=_MANY)
    ] = None,
    plots: Annotated[
        Path | None,
        options.option(
            "Draw every metric against sigma, max_norm and T, and the distribution of gaps.",
            panel=_MANY,
            metavar="DIR",
        ),
    ] = None,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Plan a run: which noise and threshold give the most for a budget.

    Every setting is tried on public or made-up votes: expected labels, how many of them are right, what they
    cost. Nothing private is looked at, so everything here may be shown and nothing is spent.

    With --multilabel examples have many labels, and mechanisms that vote on them are compared. With
    --mechanism and its parameters that one setting is tried. Of tested-gnmax the whole batch is planned: what
    to propose for so many --queries, or for as many as --epsilon pays for, and the settings to paste. Of
    gaussian-sum it is the least noise that --epsilon affords by either rule, with a prior.

    Example:

    \b
    tellers plan --teachers 250 --classes 10 --epsilon 2 --delta 1e-5 --queries 9000
    tellers plan --multilabel --teachers 50 --labels 22 --yes-rate 0.1 --epsilon 20 --delta 1e-5
    tellers plan --mechanism tested-gnmax --teachers 250 --classes 10 --queries 461 --delta 1e-5
    tellers plan --mechanism gaussian-sum --teachers 2000 --epsilon 1 --delta 1e-5
    """
    from ..mechanisms.base import is_one_batch
    from ..mechanisms.registry import mechanism_named

    named = None if mechanism is None else str(mechanism)
    if named is not None and options.is_sum(named):
        foreign = {
            "classes": classes, "queries": queries, "labels": labels, "plot": plot, "proxy": proxy or None,
            "against": against if against != "public" else None, "yes_rate": yes_rate,
            "correlation": correlation, "max_loss": max_loss, "plots": plots,
            "multilabel": multilabel or None, **given,
        }  # fmt: skip
        words = f"with --mechanism {named}, of which the budget alone says the noise"
        options.refuse(foreign, words)
        _tell_sum(_needed(epsilon), delta, rule, teachers, as_json=as_json)
        return
    _require_mechanism(named, given, labels=labels, multilabel=multilabel)
    if named is not None and is_one_batch(mechanism_named(named)):
        foreign = {
            "labels": labels, "against": against if against != "public" else None, "plot": plot,
            "rule": rule if rule != "auto" else None, "yes_rate": yes_rate, "correlation": correlation,
            "max_loss": max_loss, "plots": plots,
            **{name: value for name, value in given.items() if name != "sigma"},
        }  # fmt: skip
        words = f"with --mechanism {named}, whose one batch is planned as a whole"
        options.refuse(foreign, words, "Leave it out: the plan finds the rest of it.")
        assumed = (teachers, classes, agreement, concentration)
        _tell_test(
            assumed, proxy or [], epsilon=epsilon, delta=delta, n_queries=queries, sigma=given.get("sigma"),
            as_json=as_json,
        )  # fmt: skip
        return
    epsilon = _needed(epsilon)
    if len(proxy or []) > 1:
        raise ValueError("Expected one --proxy to plan on, got several. Leave the others out.")
    queries, one_proxy = 10_000 if queries is None else queries, proxy[0] if proxy else None
    of_labels = {"yes_rate": yes_rate, "correlation": correlation}
    if multilabel:
        single = {"classes": classes, "plot": plot, "against": against if against != "public" else None}
        options.refuse(single, "with --multilabel, where it means nothing", _LEAVE)
        if one_proxy is not None:
            options.refuse(of_labels, "with --proxy, where it means nothing", _LEAVE)
    else:
        many = {**of_labels, "max_loss": max_loss, "plots": plots, "groups": given["groups"]}
        options.refuse(many, "without --multilabel, where it means nothing", _LEAVE)
    from ..privacy.budget import Budget
    from ..runs import _planning as planning

    budget = Budget(epsilon, delta)
    width = labels if multilabel else classes
    about = planning.Assumed(teachers, width, agreement, concentration, yes_rate, correlation)
    terms: dict[str, Any] = {"budget": budget, "bars": partial(show.progress_bar, wanted=not as_json)}
    if multilabel:
        if plots is not None:
            if plots.exists() and not plots.is_dir():
                raise ValueError(f"Expected a folder for --plots, got the file {plots}. Name another.")
            planning.require_matplotlib("--plots")
        # Groups alone are tried as sets among all others.
        groups = options.parsed("groups", given["groups"]) if given["groups"] and named is None else ()
        votes, notes = planning.label_proxy(one_proxy, about)
        chosen = None
        if named is not None:
            chosen = options.build_mechanism(named, n_labels=votes.width, **given)
        loss = 0.03 if max_loss is None else max_loss
        advice, more = planning.plan_many_labels(
            votes, n_public=queries, max_loss=loss, mechanism=chosen, groups=groups, **terms
        )
        notes += more
        if plots is not None:
            drawn = planning.draw_many_labels(plots, votes, advice, **terms)
            notes.append(f"Drawn into {plots}: {', '.join(path.name for path in drawn)}.")
        told = labels_as_dict(advice)
        if advice.best is not None and advice.best.n_queries:
            told |= _by_rule(
                rule, (advice.best.mechanism, advice.best.n_queries, 1.0), budget, queries, votes, None
            )
        for_people = partial(_print_advice, advice, budget, top)
    else:
        votes, notes = planning.class_proxy(one_proxy, about)
        if against is AgainstName.exact:
            notes.append(
                "The exact cost of a real run is private. Fix the number of queries beforehand; stopping "
                "when it reaches the budget would leak."
            )
        chosen = None if named is None else options.build_mechanism(named, **given)
        plans = planning.plan_classes(
            votes, n_public=queries, against=against.value, n_labels=labels, mechanism=chosen, **terms
        )
        if any(plan.epsilon_exact is None for plan in plans):
            notes.append(
                f"{named} does not say how likely its outcomes are: there is no exact cost, and labels are "
                "counted in releases of the votes that were planned on."
            )
        if plot is not None:
            planning.draw_classes(plot, plans, budget)
            notes.append(f"Drawn into {plot}.")
        told = {"against": against.value, "plans": [as_dict(plan) for plan in plans]}
        best = plans[0] if plans and plans[0].n_queries else None
        if best is not None and labels is None and against is AgainstName.public:
            setting = (best.mechanism, best.n_queries, best.n_labels / best.n_queries)
            told |= _by_rule(rule, setting, budget, queries, votes, votes.width)
        for_people = partial(_print_plans, plans, budget, top)
    told = {"epsilon": epsilon, "delta": delta, **told, "notes": notes}
    show.tell(told, for_people, as_json=as_json)


def _needed(epsilon: float | None) -> float:
    if epsilon is None:
        raise ValueError("Expected --epsilon, the budget, got none. For example: --epsilon 2")
    return epsilon


def _tell_sum(
    epsilon: float, delta: float, rule: PlannedRule, teachers: int | None, *, as_json: bool
) -> None:
    """Plan a Gaussian sum by each rule that is asked for, and say what to paste."""
    from ..accounting.sum_plan import plan_sum
    from ..privacy.budget import RULES, Accountant, Budget

    budget = Budget(epsilon, delta)
    rules = RULES if rule is PlannedRule.auto else (rule.value,)
    plans = {name: plan_sum(Accountant.by(name, budget)) for name in rules}
    best = min(plans, key=lambda name: plans[name].scores.sigma)
    found, prior = plans[best], plans[best].prior
    assert prior is not None  # it has a share
    notes = ["More teachers are better: 5 rows each are enough. The price does not go by the pool."]
    if teachers is not None and found.scores.sigma > teachers:
        notes.append(
            f"{teachers:,} teachers say less than the noise of one entry, {found.scores.sigma:.4g}: a run is "
            "refused. Take more teachers, or a larger budget."
        )
    stated = epsilon if best == "clock" else found.price().epsilon(delta)
    lines = [] if teachers is None else ["[partition]", f"n_teachers = {teachers}"]
    lines += [
        "[teachers]", 'model = "auto"', "[mechanism]", 'name = "gaussian-sum"', "[budget]",
        f"epsilon = {epsilon:g}", f"delta = {delta:g}", f'rule = "{best}"', "[student]", 'model = "auto"',
    ]  # fmt: skip
    told = {
        "epsilon": epsilon, "delta": delta, "rule": best, "stated": stated, "mu": found.mu,
        "sigma": found.scores.sigma, "steps": found.scores.steps, "prior_sigma": prior.sigma,
        "rules": {name: one.scores.sigma for name, one in plans.items()}, "toml": "\n".join(lines),
        "notes": notes,
    }  # fmt: skip
    show.tell(told, _print_sum, as_json=as_json)


def _print_sum(told: dict[str, Any]) -> None:
    screen = show.console()
    screen.print()
    found = f"sigma {told['sigma']:.4g}"
    screen.print(
        show.headline("One sum for the whole pool: ", found, " on every entry, in norms of one ballot.\n")
    )
    screen.print("By rule: " + ", ".join(f"{sigma:.4g} ({name})" for name, sigma in told["rules"].items()))
    stated = f"epsilon {show.figure(told['stated'])} at delta {told['delta']:g} ({told['rule']})"
    screen.print(f"A run states {stated}; the prior is bought with sigma {told['prior_sigma']:.4g}.")
    screen.print("\nPaste into the settings of a run:\n", style="dim")
    screen.print(told["toml"], markup=False, highlight=False)


def _tell_test(
    assumed: tuple[int | None, int | None, float, float],
    proxies: list[Path],
    *,
    epsilon: float | None,
    delta: float,
    n_queries: int | None,
    sigma: float | None,
    as_json: bool,
) -> None:
    """Plan a tested batch, and say what to propose, what it costs either way, and what to paste."""
    from ..runs import _planning as planning

    found, notes = planning.plan_batch(
        proxies, planning.Assumed(*assumed), epsilon=epsilon, delta=delta, n_queries=n_queries, sigma=sigma
    )
    told = {**found.as_dict(), "notes": notes}
    show.tell(told, _print_test, as_json=as_json)


def _print_test(told: dict[str, Any]) -> None:
    screen, n_queries = show.console(), told["parameters"]["n_queries"]
    screen.print()
    passed, failed = show.figure(told["epsilon_passed"]), show.figure(told["epsilon_failed"])
    found = f"epsilon {passed} for {n_queries:,} labels"
    screen.print(show.headline("Test a batch: ", found, f", at delta {told['delta']:g} in all.\n"))
    rows = show.table("what", "epsilon", numbers=[1])
    rows.add_row("if the batch passes: all of it is answered", passed)
    rows.add_row("if it fails: nothing is answered, and the test is paid", failed)
    rows.add_row("if it fails and is asked again at the full price", show.figure(told["epsilon_full_price"]))
    rows.add_row("the same queries without a test", show.figure(told["epsilon_untested"]))
    screen.print(show.indented(rows))
    share = told["test_delta"] / told["delta"]
    screen.print(f"The test takes {told['test_delta']:g} of delta ({share:.0%}), whatever comes out.")
    for one in told["pass_rates"]:
        screen.print(f"Batches drawn from {one['proxy']} pass: {one['rate']:.0%}", markup=False)
    screen.print("\nPaste into the settings of a run:\n", style="dim")
    screen.print(told["toml"], markup=False)


def _by_rule(
    rule: PlannedRule,
    setting: tuple[Any, int, float],
    budget: "Budget",
    n_public: int,
    votes: "HeldVotes",
    n_classes: int | None,
) -> dict[str, Any]:
    """Return how many queries of a setting a ledger pays for by each rule, and which of them gives more."""
    from ..runs._planning import compare_rules

    if rule is PlannedRule.renyi:
        return {}
    mechanism, n_queries, share = setting
    found = compare_rules(
        mechanism, budget, n_public=n_public, n_renyi=n_queries, share=share, n_teachers=votes.n_teachers,
        n_classes=n_classes,
    )  # fmt: skip
    if found is None:
        if rule is PlannedRule.clock:
            raise ValueError(
                f"Expected a mechanism with a clock price for --rule clock, got {type(mechanism).__name__}. "
                "Leave it out, or take another one."
            )
        return {"rules": {"better": "renyi", "why": "a clock has no price of it"}}
    return {"rules": {"renyi": found.n_renyi, "clock": found.n_clock, "better": found.better}}


def _print_settings(screen: "Console", mechanism: Any, told: dict[str, Any]) -> None:
    """Print the sections of a settings file that ask for a mechanism, on a clock where that gives more."""
    from ..mechanisms.registry import declared_fields, name_of

    if not name_of(mechanism):
        return
    lines = ["[mechanism]", f'name = "{name_of(mechanism)}"']
    for field in declared_fields(type(mechanism)):
        value = getattr(mechanism, field.name)
        # How many labels there are stands in [labels], and groups are by name there.
        if value not in (None, field.default) and field.name not in ("n_labels", "groups"):
            lines.append(f"{field.name} = {json.dumps(value)}")
    if told.get("rules", {}).get("better") == "clock":
        budget = [f"{name} = {told[name]:g}" for name in ("epsilon", "delta")]
        lines += ["[budget]", *budget, 'rule = "clock"']
    screen.print("\n".join(lines) + "\n", markup=False, highlight=False)


def _print_rules(screen: "Console", told: dict[str, Any]) -> None:
    """Say by which rule a ledger gives more labels of the best setting."""
    rules = told.get("rules")
    if rules is None or "clock" not in rules:
        return
    renyi, clock = rules["renyi"], rules["clock"]
    if rules["better"] == "renyi":
        screen.print(
            'By rule: a ledger on a clock pays for no more of it. Keep rule = "renyi".', markup=False
        )
        return
    more = f"{clock:,} queries on a clock, {renyi:,} at a Rényi order ({clock / renyi - 1:+.0%})"
    screen.print(f"By rule: {more}.", markup=False)
    screen.print(
        'The table goes by the Rényi order. With rule = "clock" the whole budget is stated, and what the run '
        "cost cannot be published.\n",
        markup=False,
        style="dim",
    )


def _require_mechanism(
    name: str | None, given: dict[str, Any], *, labels: int | None, multilabel: bool
) -> None:
    """Refuse parameters of no mechanism, and a mechanism for other votes, or where noise is looked for."""
    if name is None:
        foreign = [p for p, value in given.items() if value is not None and p != "groups"]
        if foreign:
            flags = " and ".join(map(options.flag, foreign))
            raise ValueError(f"Expected --mechanism with {flags}, got none. For example: --mechanism gnmax")
    elif options.is_label_mechanism(name) != multilabel:
        raise ValueError(f"Expected --multilabel with a mechanism for many labels alone, got {name}.")
    elif labels is not None and not multilabel:
        raise ValueError("Expected no --mechanism with --labels, which looks for the noise of gnmax.")


# --- One class per example. ---


def as_dict(plan: "LabelPlan") -> dict[str, Any]:
    """Return one setting as JSON; all of it is public."""
    return {
        "mechanism": type(plan.mechanism).__name__,
        "parameters": asdict(plan.mechanism),  # type: ignore[call-overload]
        "queries": plan.n_queries,
        "labels": plan.n_labels,
        "accuracy": plan.accuracy,
        "epsilon_exact": plan.epsilon_exact,
        "exact_kind": None if plan.epsilon_exact is None else show.exact_kind(plan.bound_because),
        "epsilon_public": plan.epsilon_public,
        "epsilon_charged": plan.epsilon_charged,
        "information_bits": plan.information,
    }


def _print_plans(plans: "list[LabelPlan]", budget: "Budget", top: int, told: dict[str, Any]) -> None:
    screen, against = show.console(), told["against"]
    best = plans[0]
    screen.print(
        f"\nBudget: epsilon {budget.epsilon:g} at delta {budget.delta:g}, held against the {against} cost."
    )
    if best.n_queries == 0:
        screen.print("No setting can answer a single query within it. Raise the budget.", style="yellow")
        return
    found = f"{best.n_labels:,.0f} labels, {best.accuracy:.1%} right"
    screen.print(show.headline("Best: ", found, f", from {best.n_queries:,} queries by {best.mechanism}.\n"))
    _print_settings(screen, best.mechanism, told)
    _print_rules(screen, told)
    parameters = {"sigma": "sigma", "threshold": "threshold", "sigma_threshold": "its sigma"}
    headings = ("queries", "labels", "right", "exact", "public", "tells (kbit)", "")
    rows = show.table(*parameters.values(), *headings, numbers=range(9))
    for plan in plans[:top]:
        values = (getattr(plan.mechanism, name, None) for name in parameters)
        rows.add_row(
            *("-" if value is None else f"{value:g}" for value in values),
            f"{plan.n_queries:,}",
            f"{plan.n_labels:,.0f}",
            f"{plan.accuracy:.1%}",
            "-" if plan.epsilon_exact is None else show.figure(plan.epsilon_exact),
            show.figure(plan.epsilon_public),
            f"{plan.information / 1000:.2f}",
            Text(show.bar(plan.information, best.information, width=16), style="green"),
        )
    screen.print(show.indented(rows))
    if len(plans) > 1:
        screen.print(show.indented(_scatter(plans)))


def _scatter(plans: "list[LabelPlan]", *, width: int = 60, height: int = 12) -> Any:
    """Draw labels to the right and accuracy upwards, the best setting as a star."""
    most = max(plan.n_labels for plan in plans) or 1.0
    low, high = min(p.accuracy for p in plans), max(p.accuracy for p in plans)
    cells = [[" "] * (width + 1) for _ in range(height + 1)]
    for plan in reversed(plans):
        x = round(plan.n_labels / most * width)
        y = round((plan.accuracy - low) / ((high - low) or 1.0) * height)
        cells[height - y][x] = "*" if plan is plans[0] else "·"
    text = Text()
    for i, row in enumerate(cells):
        label = f"{high:.1%}" if i == 0 else f"{low:.1%}" if i == height else ""
        text.append(f"{label:>6} ┤", style="dim")
        line = "".join(row)
        star = line.find("*")
        text.append(line if star < 0 else line[:star])
        if star >= 0:
            text.append("*", style="bold green")
            text.append(line[star + 1 :])
        text.append("\n")
    text.append("       └" + "─" * width + "\n", style="dim")
    end = f"{most:,.0f} labels"
    text.append("        0" + end.rjust(width - 1) + "\n", style="dim")
    text.append("        right labels upwards, number of labels to the right, * the best", style="dim")
    return text


# --- Many labels. ---


def labels_as_dict(advice: "Advice") -> dict[str, Any]:
    """Return the advice as JSON; all of it is public."""
    return {
        "regime": asdict(advice.regime),
        "ballots": asdict(advice.traits),
        "noiseless": asdict(advice.noiseless),
        "against": "truth" if advice.against_truth else "majority",
        "plans": [
            {
                "mechanism": type(plan.mechanism).__name__,
                "parameters": asdict(plan.mechanism),
                "queries_public": plan.n_queries,
                "epsilon_public": plan.epsilon_public,
                "queries_exact_forecast": plan.n_queries_exact,
                "exact_kind": show.exact_kind(plan.bound_because),
                "told": plan.told,
                "agreement": plan.agreement,
                **asdict(plan.scores),
                "keeps": plan.keeps,
            }
            for plan in advice.plans
        ],
    }


def _print_advice(advice: "Advice", budget: "Budget", top: int, told: dict[str, Any]) -> None:
    screen, regime, best = show.console(), advice.regime, advice.best
    screen.print(f"\nBudget: epsilon {budget.epsilon:g} at delta {budget.delta:g}.")
    if best is None:
        screen.print("No setting keeps the labels right within it. Raise the budget.", style="yellow")
    else:
        found = f"{best.n_queries:,} queries by {_called(best)}"
        screen.print(show.headline("Best: ", found, f" ({_label_parameters(best)}), under the public price."))
        _print_settings(screen, best.mechanism, told)
        _print_rules(screen, told)
    screen.print(Text.assemble(("\nBallots: ", "bold"), (regime.name, "bold"), f". {regime.why}"))
    screen.print(f"{regime.advice}\n")
    wide = screen.width >= 120
    heads = ["queries", "forecast", "told", *(["majority"] if wide else []), "accuracy", "balanced", "F1"]
    rows = show.table("best of each", *heads, "", numbers=range(1, len(heads) + 1))
    rows.columns[0].min_width = 20
    most = best.worth if best is not None else 0.0
    gap = " " if wide else "\n"
    of_each: dict[str, MultilabelPlan] = {}
    for plan in advice.plans:
        of_each.setdefault(_called(plan), plan)  # the first is the best
    shown = list(of_each.values())[:top]
    for plan in shown:
        at_least = "≥ " if plan.bound_because else ""  # an upper bound on the cost leaves room for more
        end = Text(show.bar(plan.worth, most, width=6), "green") if plan.keeps else Text("lossy", "dim")
        rows.add_row(
            Text.assemble(_called(plan), gap, (_label_parameters(plan), "dim")),
            f"{plan.n_queries:,}",
            "-" if plan.n_queries_exact is None else f"{at_least}{plan.n_queries_exact:,}",
            f"{plan.told:.0%}",
            *([f"{plan.agreement:.1%}"] if wide else []),
            *_figures(plan.scores),
            end,
            style="" if plan.keeps else "dim",
        )
    rows.add_row("no noise", "", "", "100%", *(["100.0%"] if wide else []), *_figures(advice.noiseless), "")
    screen.print(show.indented(rows))
    screen.print(
        "queries: under the public price. forecast: under the exact cost, in the private books"
        + (", which is an upper bound where ≥ stands" if any(p.bound_because for p in shown) else "")
        + ". lossy: more accuracy is lost than may be. "
        + ("majority: share of told labels that equal the majority without noise. " if wide else "")
        + f"Accuracies are against the {told['against']}.\n",
        style="dim",
    )


def _figures(scores: "LabelScores") -> tuple[str, str, str]:
    return f"{scores.accuracy:.1%}", f"{scores.balanced_accuracy:.1%}", f"{scores.micro_f1:.2f}"


def _called(plan: "MultilabelPlan") -> str:
    norm = getattr(plan.mechanism, "norm", "")
    return f"{type(plan.mechanism).__name__}{f' {norm}' if norm else ''}"


def _label_parameters(plan: "MultilabelPlan") -> str:
    names = {
        "sigma": "sigma",
        "max_norm": "norm",
        "max_labels": "labels",
        "threshold": "T",
        "sigma_threshold": "its sigma",
        "confident_share": "share",
        "sigma_gate": "its sigma",
        "scale": "scale",
    }
    given = asdict(plan.mechanism)
    return ", ".join(f"{short} {given[name]:g}" for name, short in names.items() if given.get(name))
