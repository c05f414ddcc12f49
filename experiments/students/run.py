"""Students at a small epsilon: what was spent, what may be told of it, and which student does best.

    python experiments/students/run.py [--quick] [--parts mnist,fashion,adult,digits] [--folder DIR]

Prints the tables of kept results: `results.json` and `ballots.npz` of runs on a GPU (`train.py`, kept by
`kept.py`), and `tabular.json` (`tabular.py`). Every epsilon is computed anew from the ballots. The part
digits teaches small students here. Noise is seeded, so that a run can be repeated: nothing here is a release.
"""

import argparse
import json
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from common.accounting import NAMES, gnmax_epsilons  # noqa: E402
from common.command import add_usual, conclude, report_on, some_of  # noqa: E402
from common.measure import Measure, Section, measure  # noqa: E402
from kept import BALLOTS, Run, load  # noqa: E402
from paired import by_student, differences  # noqa: E402

from tellers import GNMax, Votes, exact_cost  # noqa: E402
from tellers.accounting import (  # noqa: E402
    Consensus,
    publish,
)
from tellers.accounting.smooth import PublishPlan  # noqa: E402
from tellers.runs import plan_publication  # noqa: E402

DELTA = 1e-5
FOLDERS = {"mnist": HERE, "fashion": HERE / "fashion"}
TITLES = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}
PARTS = (*FOLDERS, "adult", "digits")
PUBLISHED = {
    "mnist": "Published: 98.00 % at epsilon 2.04 (2017), 98.5 % at 1.97 (2018), 90.78 % at budgets of "
    "log 2 and log 4 without semi-supervised learning (personalised).",
    "fashion": "No published number of PATE to stand beside.",
}
COUNTERPART, RECIPE = "supervised", "mean-teacher"
# Papernot et al. 2017, table 1: 100 and 1,000 labels of LNMax, with their epsilon.
OF_2017 = {100: ("98.00 %", 2.04), 1000: ("98.10 %", 8.03)}
# Assumed, to plan publications with. Chosen with votes of MNIST teachers at hand: a real plan must not.
AGREEMENT = 0.97


class Median:
    """A source of noise that always draws the median: what is published is as often more as less."""

    name, is_secure = "median", False

    def gaussian(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return zeros."""
        return np.zeros(shape)


@lru_cache
def publication(sigma: float, n_teachers: int, n_classes: int, n_queries: int) -> PublishPlan:
    """Return how a cost is published: planned on made-up votes, from public numbers alone."""
    proxy, _ = Consensus(agreement=AGREEMENT).votes(n_teachers, n_classes, n_queries=1000, seed=1)
    return plan_publication(GNMax(sigma), proxy, n_queries=n_queries, delta=DELTA, method="envelope")[0]


def published_epsilon(votes: Votes, sigma: float) -> float:
    """Return the epsilon that may be published of these votes: a 95 % upper value, the median of releases."""
    plan, source = publication(sigma, votes.n_teachers, votes.n_classes, len(votes)), cast(Any, Median())
    return publish(GNMax(sigma), votes, source, plan=plan, delta=DELTA, allow_seeded=True).epsilon_upper


def spent(part: str, runs: list[Run]) -> Section:
    """Account for every seed and goal again, by every accountant."""
    rows: list[Measure] = []
    notes = []
    for goal in sorted({run.goal for run in runs}):
        found: dict[str, list[float]] = defaultdict(list)
        for run in (each for each in runs if each.goal == goal):
            epsilons = gnmax_epsilons(run.votes, run.sigma, delta=DELTA)
            epsilons["told"] = published_epsilon(run.votes, run.sigma)
            right = float(np.mean(run.labels == run.truth))
            for name, value in (("labels", len(run.votes)), ("right", right), *epsilons.items()):
                found[name].append(value)
            notes.append(
                f"goal {goal:g}, seed {run.seed}: {len(run.votes)} labels, sigma {run.sigma:g}, "
                f"{100 * right:.2f} % right; epsilon {epsilons['exact']:.3f} exact (private), "
                f"{epsilons['classic']:.2f} by the bound of 2018, {epsilons['told']:.2f} publishable, "
                f"{epsilons['public']:.2f} data-independent"
            )
        said = f"planned for {goal:g}"
        key = f"{part}/{goal:g}"
        rows.append(measure(f"{key}/labels", f"{said}: labels", found["labels"]))
        rows.append(measure(f"{key}/right", f"{said}: labels right", found["right"], percent=True))
        words = {**NAMES, "told": "publishable: smooth sensitivity, 95 % upper value, the median"}
        for name in ("exact", "told", "classic", "tight", "public"):
            rows.append(measure(f"{key}/{name}", f"{said}: epsilon, {words[name]}", found[name]))
        rows.append(
            measure(f"{key}/most", f"{said}: epsilon, exact, of the dearest seed", max(found["exact"]))
        )
    notes.append(
        f"GNMax, delta {DELTA:g}. Publications are planned on made-up votes of which {100 * AGREEMENT:g} % "
        "agree, an assumption that saw such votes. "
        "All but the publishable and the data-independent epsilon are private."
    )
    return Section(f"{TITLES[part]}: what the labels cost", tuple(rows), tuple(notes))


def learned(part: str, results: list[dict[str, Any]]) -> Section:
    """Show every student's accuracy, and the students against each other, seed by seed."""
    rows: list[Measure] = []
    notes = []
    for goal in sorted({row["goal"] for row in results}):
        scores = by_student(row for row in results if row["goal"] == goal)
        for student, by_seed in scores.items():
            values = list(by_seed.values())
            words = f"planned for {goal:g}: {student} ({100 * min(values):.2f} to {100 * max(values):.2f} %)"
            rows.append(measure(f"{part}/{goal:g}/accuracy/{student}", words, values, percent=True))
        if len(scores) > 1:
            others = [student for student in scores if student != COUNTERPART]
            pairs = [(student, COUNTERPART) for student in others]
            pairs += [(RECIPE, student) for student in others if student != RECIPE]
            notes += [f"goal {goal:g}: {each}" for each in differences(scores, pairs)]
    notes.append(PUBLISHED[part])
    return Section(f"{TITLES[part]}: what students learn from them", tuple(rows), tuple(notes))


def laplace(path: Path) -> Section:
    """Show GAN students of rows drawn at random and answered by LNMax, beside the published ones."""
    rows, measures, notes = json.loads(path.read_text()), [], []
    steps = max(row["steps"] for row in rows)
    for n_labels, (published, epsilon) in OF_2017.items():
        ours = [row for row in rows if row["n_labels"] == n_labels and row["steps"] == steps]
        values, key = [row["accuracy"] for row in ours], f"mnist/laplace/{n_labels}"
        measures.append(measure(f"{key}/accuracy", f"{n_labels} labels: gan", values, percent=True))
        spent = [row["epsilon"] for row in ours]
        measures.append(measure(f"{key}/exact", f"{n_labels} labels: epsilon, exact, per teacher", spent))
        notes.append(f"published with {n_labels} labels: {published} at epsilon {epsilon}")
    notes.append(f"LNMax, gamma 0.05, {steps} steps; teachers are ours, on public features.")
    return Section("MNIST: the GAN student of 2017", tuple(measures), tuple(notes))


def beside(path: Path) -> Section:
    """Show what is not private: every row of the pool answered without noise, and all private rows."""
    words = {"plurality": "plurality of the whole pool, features", "private": "all private rows, supervised"}
    rows = json.loads(path.read_text())
    found = {goal: [row["accuracy"] for row in rows if row["goal"] == goal] for goal in words}
    measures = [
        measure(f"fashion/{goal}/accuracy", words[goal], values, percent=True)
        for goal, values in found.items()
        if values
    ]
    return Section("Fashion-MNIST: not private", tuple(measures), ())


def adult(path: Path, *, quick: bool) -> list[Section]:
    """Show the kept results on Adult: the students of each plan, beside what is not private."""
    content = json.loads(path.read_text())
    by_plan: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in content["rows"]:
        by_plan[row["plan"]].append(row)
    sections = []
    for name, rows in by_plan.items():
        key = f"adult/{name.replace(' ', '-')}"
        measures, notes = [], []
        if name != "none":
            measures, notes = _adult_spent(key, rows, content["plans"][name], quick=quick)
        for score, words in (
            ("accuracy", ""),
            ("balanced", ", balanced accuracy"),
            ("auc", ", area under curve"),
        ):
            for student, by_seed in by_student(rows, score).items():
                values = list(by_seed.values())
                measures.append(
                    measure(f"{key}/{score}/{student}", f"{student}{words}", values, percent=True)
                )
        if name != "none":
            scores = by_student(row for row in rows if "seconds" in row)
            pairs = [
                (student, f"{student.split(',')[0]}, labels alone")
                for student in scores
                if not student.endswith("labels alone")
            ]
            notes += [str(each) for each in differences(scores, pairs)]
        title = "not private" if name == "none" else name
        sections.append(Section(f"Adult: {title}", tuple(measures), tuple(notes)))
    return sections


def _adult_spent(
    key: str, rows: list[dict[str, Any]], plan: dict[str, Any], *, quick: bool
) -> tuple[list[Measure], list[str]]:
    """Account again for what was asked; of two classes the gap says everything."""
    asked = {row["seed"]: row for row in rows if "gaps" in row}
    found: dict[str, list[float]] = defaultdict(list)
    for row in list(asked.values())[: 2 if quick else None]:
        gaps = np.repeat(np.arange(len(row["gaps"])), row["gaps"])
        n = plan["n_teachers"]
        counts = np.stack([(n + gaps) // 2, (n - gaps) // 2], axis=1)
        votes = Votes.from_counts(counts, n_teachers=n)
        found["exact"].append(exact_cost(GNMax(plan["sigma"]), votes).cost.reveal().epsilon(DELTA))
        found["told"].append(published_epsilon(votes, plan["sigma"]))
    one = next(iter(asked.values()))
    measures = [
        measure(f"{key}/labels", "labels", float(one["n_labels"])),
        measure(f"{key}/right", "labels right", [row["right"] for row in asked.values()], percent=True),
        measure(f"{key}/epsilon", "epsilon: exact, per teacher", [row["epsilon"] for row in asked.values()]),
        measure(
            f"{key}/most",
            "epsilon: exact, of the dearest seed",
            max(row["epsilon"] for row in asked.values()),
        ),
        measure(f"{key}/exact", "epsilon: exact, the worst ballot of every vote", found["exact"]),
        measure(f"{key}/told", "epsilon: publishable, 95 % upper value, the median", found["told"]),
        measure(f"{key}/public", "epsilon: data-independent", one["public_epsilon"]),
    ]
    notes = [
        f"{plan['n_teachers']} linear teachers, GNMax sigma {plan['sigma']:g}, {plan['order']} order, "
        f"planned on public columns; delta {DELTA:g}."
    ]
    return measures, notes


def digits(seeds: range) -> Section:
    """Teach small students of 100 labels, a tenth of them wrong, with and without the unlabelled rows."""
    from sklearn.linear_model import LogisticRegression

    from tellers.data import digits as load_digits
    from tellers.students import fit_self_taught, fit_supervised

    data = load_digits()
    rows = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        asked, rest, held = np.split(rng.permutation(len(data)), [100, 1200])
        labels = np.where(rng.random(100) < 0.1, rng.integers(10, size=100), data.y[asked])
        model = LogisticRegression(max_iter=300)
        made = {
            "supervised": fit_supervised(model, data.X[asked], labels, seed=seed),
            "self-taught": fit_self_taught(model, data.X[asked], labels, data.X[rest], seed=seed),
        }
        for name, student in made.items():
            accuracy = float(student.score(data.X[held], data.y[held]))
            rows.append({"seed": seed, "student": name, "accuracy": accuracy})
    scores = by_student(rows)
    measures = [
        measure(f"digits/accuracy/{name}", name, list(by_seed.values()), percent=True)
        for name, by_seed in scores.items()
    ]
    notes = tuple(str(each) for each in differences(scores))
    return Section("Digits: 100 labels, a tenth of them wrong, on a CPU", tuple(measures), notes)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add_usual(parser, PARTS, quick="account for two seeds, about half a minute")
    parser.add_argument("--folder", type=Path, help="kept results of a part, in place of the committed ones")
    args = parser.parse_args(words)
    parts = some_of(parser, args.parts, PARTS, what="parts")
    report = report_on("students", words)
    for part in (each for each in FOLDERS if each in parts):
        folder = args.folder or FOLDERS[part]
        if not (folder / "results.json").is_file():
            report.skip(f"{part}: no kept results. Make them with train.py on a GPU, and kept.py.")
            continue
        results, runs = load(folder)
        if runs:
            seeds = sorted({run.seed for run in runs})[: 2 if args.quick else None]
            report.add(spent(part, [run for run in runs if run.seed in seeds]))
        else:
            report.skip(f"{part}: no {BALLOTS}, so what was spent is not computed again. See kept.py.")
        report.add(learned(part, results))
        if (folder / "laplace.json").is_file():
            report.add(laplace(folder / "laplace.json"))
        if (folder / "beside.json").is_file():
            report.add(beside(folder / "beside.json"))
    if "adult" in parts:
        if (HERE / "tabular.json").is_file():
            for section in adult(HERE / "tabular.json", quick=args.quick):
                report.add(section)
        else:
            report.skip("adult: no tabular.json. Make it with tabular.py.")
    if "digits" in parts:
        report.add(digits(range(4 if args.quick else 20)))
    conclude(report, args, HERE / "expected.json")


if __name__ == "__main__":
    main()
