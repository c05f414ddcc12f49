"""Tables 2 and 9 in form: students of released labels, beside DP-SGD and a model without privacy."""

from typing import Any

from accounting import Voting
from cells import DELTA, Bench
from common.measure import Report
from dpsgd import RECIPES, Recipe, baseline, can_train
from parts import ACCOUNTANTS
from published import FIVE, STUDENTS
from scores import NAMES as SCORES
from students import open_student, student
from tables import Row, Table


def _theirs(key: str, table: dict[str, tuple[float, ...]], heads: tuple[str, ...]) -> dict[str, str]:
    if not table:  # nothing of theirs to stand beside
        return {}
    numbers = table.get(key)
    return {f"their {head}": f"{numbers[at]:g}" if numbers else "-" for at, head in enumerate(heads)}


def table2(
    bench: Bench, report: Report, name: str, seed: int, epsilon: float, chosen: list[Voting], *,
    accountants: tuple[str, ...] = ("printed", "price", "exact"), recipes: tuple[Recipe, ...] = RECIPES,
    **how: Any,
) -> Table:  # fmt: skip
    """Students at one budget, by what each accountant lets them learn from."""
    heads = tuple(SCORES.values())
    # One data set and one budget stand for theirs.
    beside = STUDENTS if epsilon == 20 and name not in ("yeast", "scene") else {}
    found = open_student(bench, name)
    rows = [
        Row("open", {"method": "no privacy", **_theirs("open", beside, heads), "queries": "-"} | _own(found))
    ]
    if can_train():
        for recipe in recipes:
            found = baseline(bench, name, recipe, epsilon, delta=DELTA, seed=seed, **how)
            theirs = _theirs("dpsgd" if recipe == RECIPES[2] else "", beside, heads)
            rows.append(Row(recipe.key, {"method": recipe.words, **theirs, "queries": "-"} | _own(found)))
    elif recipes:
        report.skip("DP-SGD: it needs torch and Opacus (pip install opacus).")
    for voting in chosen:
        for accountant in accountants:
            found = student(bench, name, seed, voting, accountant, epsilon)
            words = f"{voting.words}, sigma {voting.sigma:g}: {ACCOUNTANTS[accountant]}"
            theirs = _theirs(voting.kind if accountant == "printed" else "", beside, heads)
            cells: dict[str, Any] = {"method": words, **theirs, "queries": float(found["n"])}
            own = _own(found) if found["n"] else dict.fromkeys(heads, "none answered")
            rows.append(Row(f"{voting.key}-{accountant}", cells | own))
    title = f"Table 2 in form ({name}, epsilon {epsilon:g}): on held-out rows"
    return Table(f"many/{name}/table2-{epsilon:g}", title, tuple(rows[0].cells), tuple(rows), _notes(name))


def table9(bench: Bench, report: Report, name: str, seed: int, voting: Voting, **how: Any) -> Table:
    """Areas under the curve of the first five labels at epsilon 8, delta 1e-4."""
    data, delta = bench.data(name), 1e-4
    recipes: tuple[Recipe, ...] = how.pop("recipes", RECIPES)
    names = tuple(f"{label} AUC" for label in data.labels[:5])
    heads = (*names, "average")

    def own(found: dict[str, float]) -> dict[str, Any]:
        return {name: found[f"auc{i}"] for i, name in enumerate(names)} | {"average": found["auc"]}

    def theirs(key: str) -> dict[str, str]:
        numbers = FIVE.get(key)
        return {
            "theirs (AT, CA, CO, ED, EF, average)": ", ".join(f"{n:g}" for n in numbers) if numbers else "-"
        }

    rows = [Row("open", {"method": "no privacy", **theirs("open")} | own(open_student(bench, name, first=5)))]
    if can_train():
        for recipe in recipes:
            found = baseline(bench, name, recipe, 8.0, delta=delta, seed=seed, first=5, **how)
            key = {"all-constant": "dpsgd", "last-decay": "adaptive"}.get(recipe.key, "")
            rows.append(Row(recipe.key, {"method": recipe.words, **theirs(key)} | own(found)))
    elif recipes:
        report.skip("DP-SGD: it needs torch and Opacus (pip install opacus).")
    for accountant in ("printed", "price", "exact"):
        found = student(bench, name, seed, voting, accountant, 8.0, first=5, delta=delta)
        key = "binary" if accountant == "printed" else ""
        words = f"{voting.words}, sigma {voting.sigma:g}: {ACCOUNTANTS[accountant]}, {found['n']:.0f} queries"
        cells = own(found) if found["n"] else dict.fromkeys(heads, "none answered")
        rows.append(Row(f"{voting.key}-{accountant}", {"method": words, **theirs(key)} | cells))
    title = f"Table 9 in form ({name}, the first five labels, epsilon 8, delta 1e-4)"
    return Table(f"many/{name}/table9", title, tuple(rows[0].cells), tuple(rows), _notes(name))


def _own(found: dict[str, float]) -> dict[str, Any]:
    return {words: found[name] for name, words in SCORES.items()}


def _notes(name: str) -> tuple[str, ...]:
    return (
        "Their data are not at hand; their students are semi-supervised networks, ours logistic regressions.",
        "DP-SGD protects one row of the private data, added or taken away; the votes protect all rows behind "
        f"one teacher. DP-SGD sees the private rows of {name}; the students see public rows alone.",
    )
