"""`tellers collaborate`: parties with few rows ask each other, and learn from what they are told."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import options
from .options import option

if TYPE_CHECKING:
    from ..parties.collaboration.learning import Collaboration
    from ..parties.collaboration.members import Material


_NOISE = "Mechanism"
_SCORES = {"accuracy": "accuracy", "bac": "BAC", "auc": "AUC", "map": "mAP"}


Which = StrEnum("Which", ["random", "weakest"])
Order = StrEnum("Order", ["random", "uncertain"])
# Those that parties can compute together, and confident, which is refused in words.
_COMPUTABLE = ("gnmax", "confident", "binary", "confident-binary", "gnthreshold")
MechanismName: Any = options.choice("MechanismName", _COMPUTABLE)
_DATA = (
    "digits or made (many labels) come along; mnist, adult, tmc2007-500, yeast and others are read from the "
    "data directory."
)
_LABELS_EACH = "Many labels: how many a party knows, drawn for each; it abstains on the others. Else all."
_MECHANISM = "Else gnmax for one class per row, gnthreshold for many labels."


def command(
    data: Annotated[str, option(_DATA)] = "digits",
    data_dir: Annotated[Path | None, option("Where data sets lie; else TELLERS_DATA.")] = None,
    parties: Annotated[int, option("How many parties there are.", min=2)] = 50,
    rows_each: Annotated[
        int | None, option("Private rows of a party; else 20, or 1/50 of many labels.", min=1)
    ] = None,
    labels_each: Annotated[int | None, option(_LABELS_EACH, min=1)] = None,
    askers: Annotated[int, option("How many of them ask.", min=1)] = 3,
    which: Annotated[Which, option("Askers at random, or the weakest on public rows.")] = Which.random,
    order: Annotated[
        Order, option("Ask about rows at random, or where the asker is least sure.")
    ] = Order.random,
    epsilon: Annotated[
        list[float] | None, option("The budget of a party; give it again for more. Else 10.")
    ] = None,
    delta: options.Delta = 1e-5,
    mechanism: Annotated[MechanismName | None, option(_MECHANISM, panel=_NOISE)] = None,
    sigma: Annotated[float | None, option("Noise, in votes; else 16 % of the parties.", panel=_NOISE)] = None,
    threshold: Annotated[
        float | None, option("confident-binary: votes a label's side must reach.", panel=_NOISE)
    ] = None,
    sigma_threshold: Annotated[float | None, option("confident-binary: noise of that.", panel=_NOISE)] = None,
    max_labels: Annotated[
        int | None, option("gnthreshold: labels of a ballot that count; else 3.", panel=_NOISE)
    ] = None,
    model: Annotated[str, option("What each party fits, by name.")] = "logistic",
    seed: Annotated[int, option("Deals rows, draws noise: an experiment.", min=0)] = 0,
    repeat: Annotated[int, option("So many repetitions, from --seed on: mean and error.", min=1)] = 1,
    out: Annotated[Path | None, option("Write results and a report there.", metavar="DIR")] = None,
    as_json: options.Json = False,
) -> None:
    """Let parties with few rows ask each other, and see what the askers learn.

    Parties hold small disjoint private sets. Some ask all others about public rows that nobody labelled, are
    told noisy outcomes of a vote, and learn again from their own rows and those labels. Budgets are counted
    twice: so that they hold for a party against all askers together, and as the paper counts, per asker.

    Computed in one room, in the clear; the confidential protocol (tellers party) computes the same labels.
    Its noise has a seed: it is an experiment on public data, and releases nothing.

    Example:

    \b
    tellers collaborate --epsilon 10 --epsilon 20 --which weakest --out study
    tellers collaborate --data made --parties 50 --mechanism binary --sigma 9 --labels-each 4
    """
    from . import show as shown

    chosen = {
        "data": data, "parties": parties, "rows_each": rows_each, "labels_each": labels_each,
        "askers": askers, "which": which.value,
        "order": order.value, "epsilons": tuple(epsilon or (10.0,)), "delta": delta, "model": model,
        "mechanism": mechanism and str(mechanism),
    }  # fmt: skip
    given = {
        "sigma": sigma, "threshold": threshold, "sigma_threshold": sigma_threshold, "max_labels": max_labels,
    }  # fmt: skip
    if askers > parties:
        raise ValueError(f"Expected at most {parties} askers, one for each party, got --askers {askers}.")
    held = []
    with shown.progress_bar(repeat * (parties + 1), "learning from each other", wanted=not as_json) as step:
        for at in range(seed, seed + repeat):
            held.append(_repetition(chosen, given, data_dir=data_dir, seed=at, step=step))
    result = _result(held, chosen, given, seed=seed)
    if out is not None:
        from ..privacy._files import write_whole
        from ..runs.report.write import write_collaboration

        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "collaboration.json", json.dumps(result, indent=1).encode(), shared=True)
        write_collaboration(out / "report.html", result)
    if as_json:
        print(json.dumps(result))
        return
    _tell(held, out)


def _repetition(
    chosen: dict[str, Any], given: dict[str, Any], *, data_dir: Path | None, seed: int, step: Any
) -> "Collaboration":
    from ..parties.collaboration.learning import Terms, collaborate
    from ..parties.collaboration.members import deal_members
    from ..privacy import noise
    from ..runs._catalogue import make_model

    n = chosen["parties"]
    material = _material(chosen, data_dir=data_dir, seed=seed)
    terms = Terms(
        mechanism=_mechanism(chosen, given, material), epsilons=chosen["epsilons"], delta=chosen["delta"],
        n_askers=chosen["askers"], which=chosen["which"], order=chosen["order"],
        countings=("sound", "published"),
    )  # fmt: skip
    balanced = (
        {"class_weight": "balanced"} if material.is_multilabel and chosen["model"] == "logistic" else {}
    )
    estimator = make_model(chosen["model"], balanced, n_classes=material.n_outputs)
    sets = _label_sets(chosen, material, seed=seed)
    members = deal_members(material.X, material.y, n, estimator=estimator, seed=seed, label_sets=sets)
    if step is not None:
        step(n)
    held = collaborate(material, members, terms, estimator=estimator, noise=noise.seeded(seed + 1), seed=seed)
    if step is not None:
        step(1)
    return held


def _label_sets(chosen: dict[str, Any], material: "Material", *, seed: int) -> list[list[int]] | None:
    """Return which labels each party knows, drawn without a look at its rows; None if all know all."""
    each, k = chosen["labels_each"], material.n_outputs
    if each is None:
        return None
    if not material.is_multilabel or each > k:
        kind = f"{k} labels" if material.is_multilabel else "one class per row"
        raise ValueError(f"Expected --labels-each within the many labels of the data, which has {kind}.")
    import numpy as np

    rng = np.random.default_rng([seed, 1])
    return [sorted(rng.choice(k, each, replace=False).tolist()) for _ in range(chosen["parties"])]


def _material(chosen: dict[str, Any], *, data_dir: Path | None, seed: int) -> "Material":
    from ..parties.collaboration.members import LABEL_SETS, read_material

    n, each, name = chosen["parties"], chosen["rows_each"], chosen["data"]
    if each is None and name not in LABEL_SETS:
        each = 60 if name == "made" else 20
    n_private = None if each is None else n * each
    n_pool = None if name in LABEL_SETS else 100 * chosen["askers"]
    try:
        return read_material(name, seed=seed, data_dir=data_dir, n_private=n_private, n_pool=n_pool)
    except FileNotFoundError as error:
        raise ValueError(str(error).replace("data_dir=...", "--data-dir")) from None


def _mechanism(chosen: dict[str, Any], given: dict[str, Any], material: "Material") -> Any:
    many, k = material.is_multilabel, material.n_outputs
    name = chosen["mechanism"] or ("gnthreshold" if many else "gnmax")
    if (name in ("gnmax", "confident")) == many:
        kind = "many labels" if many else "one class per row"
        fitting = "binary, confident-binary or gnthreshold" if many else "gnmax or confident"
        raise ValueError(f"Expected --mechanism {fitting} for {kind}, got {name}.")
    values = dict(given)
    if values["sigma"] is None:
        values["sigma"] = 0.16 * chosen["parties"]
    if name == "gnthreshold" and values["max_labels"] is None:
        values["max_labels"] = min(3, k)
    return options.build_mechanism(name, n_labels=k if many else None, **values)


def _result(
    held: "list[Collaboration]", chosen: dict[str, Any], given: dict[str, Any], *, seed: int
) -> dict[str, Any]:
    from pydantic_core import from_json, to_json

    from ..parties.collaboration.learning import summary

    def means(scores: dict[str, tuple[float, float]]) -> dict[str, Any]:
        return {name: {"mean": mean, "error": error} for name, (mean, error) in scores.items()}

    lines = [{**vars(line), "scores": means(line.scores)} for line in summary(held)]
    words = ["tellers collaborate"]
    flags = {**chosen, **given, "seed": seed, "repeat": len(held)}
    for epsilon in flags.pop("epsilons"):
        words.append(f"--epsilon {epsilon:g}")
    words += [f"{options.flag(name)} {value}" for name, value in flags.items() if value is not None]
    result = {
        "command": " ".join(words), "seeds": [seed + i for i in range(len(held))], "summary": lines,
        "repetitions": [one.as_dict() for one in held],
    }  # fmt: skip
    return dict(from_json(to_json(result, inf_nan_mode="null")))  # JSON has no NaN


def _tell(held: "list[Collaboration]", out: Path | None) -> None:
    from ..parties.collaboration.learning import IN_THE_CLEAR
    from . import show

    first, console = held[0], show.console()
    names = list(first.mean_before())
    console.print()
    who = "chosen at random" if first.terms.which == "random" else "the weakest"
    console.print(
        f"{first.n_parties} parties with {first.rows_each} rows each; {first.terms.n_askers} ask ({who}), "
        f"{first.terms.mechanism}.",
        markup=False,
    )
    if len(held) == 1:
        console.print()
        console.print(show.indented(_asker_table(first, names)))
    _print_means(held, names)
    console.print(
        "The last three columns are epsilons. The one that holds is a party's: for one record of it, over "
        "all askers together."
    )
    console.print(
        show.note(
            "sound: a party's budget covers all askers, at a price that holds for any votes. As published: "
            "each asker has the budget, at a cost that depends on the votes; nobody could compute it in a "
            "confidential query, and it is no guarantee. It is shown because these data are public."
        )
    )
    console.print(show.note(f"{IN_THE_CLEAR}."))
    if out is not None:
        console.print(f"Open {out / 'report.html'} in a browser. The numbers: {out / 'collaboration.json'}")


def _print_means(held: "list[Collaboration]", names: list[str]) -> None:
    from ..parties.collaboration.learning import summary
    from . import show

    # Many scores and the epsilons beside them do not fit the width of a terminal.
    apart = len(names) > 1
    scored, priced = [_SCORES[name] for name in names], ["as published", "per asker", "a party"]
    tables = [scored, priced] if apart else [scored + priced]
    lines = summary(held)
    for at, headings in enumerate(tables):
        table = show.table(
            "mean of the askers", "questions", *headings, numbers=range(1, len(headings) + 2)
        )  # fmt: skip
        for line in lines:
            cells = [
                f"{mean:.1%}" + (f" ± {100 * error:.1f}" if len(held) > 1 else "")
                for mean, error in line.scores.values()
            ]
            is_before = line.state == "before"
            epsilons = [""] * 3
            if not is_before:
                epsilons = [show.figure(value) for value in (line.published, line.per_asker, line.party)]
                epsilons[0] = f"[red]{epsilons[0]}[/red]"
            shown = (epsilons if at else cells) if apart else [*cells, *epsilons]
            if is_before and at:
                continue
            way = "as published" if line.counting == "published" else "sound"
            name = "before" if is_before else f"epsilon {line.epsilon:g}, {way}"
            table.add_row(name, "" if is_before else f"{line.n_queries:.0f}", *shown)
        show.console().print(show.indented(table))


def _asker_table(held: "Collaboration", names: list[str]) -> Any:
    from rich.markup import escape

    from . import show

    headings = ["asker", "budget", "questions", "labels right", *(_SCORES[name] for name in names)]
    table = show.table(*headings, numbers=range(2, len(headings)))
    for asker, before in held.before.items():
        table.add_row(escape(asker), "before", "", "", *(f"{before[name]:.1%}" for name in names))
        for turn in (one for one in held.turns if one.asker == asker):
            way = "as published" if turn.counting == "published" else "sound"
            right = "-" if turn.labels_right != turn.labels_right else f"{turn.labels_right:.0%}"
            cells = [f"{turn.n_queries}", right, *(f"{turn.after[name]:.1%}" for name in names)]
            table.add_row("", f"epsilon {turn.epsilon:g}, {way}", *cells)
    return table
