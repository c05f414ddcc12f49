"""Private multi-winner voting (2022): its figures 1, 3, 4 and tables 2, 5, 6, 8, 9, 10 in form, beside ours.

    python experiments/multiwinner/run.py [--data DIR] [--data-set tmc2007-500,yeast] [--quick] [--figures D]

The paper's data sets are not at hand: its rows and columns are filled with other data sets of many labels.
Ballots and finished cells are kept in a folder, so that a run that was stopped goes on where it was, and
settings are swept without training again. Noise is seeded: nothing here is a release, and what looks at votes
would be private.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from accounting import Voting  # noqa: E402
from cells import Bench  # noqa: E402
from common.command import add_usual, conclude, report_on, some_of  # noqa: E402
from common.measure import Report  # noqa: E402
from dpsgd import RECIPES  # noqa: E402
from lessons import table2, table9  # noqa: E402
from parts import budgets, curves, few_labels, first_labels, goal, most_noise, sweep  # noqa: E402
from publishing import by_order, publishing  # noqa: E402
from tables import Table  # noqa: E402

PARTS = ("goal", "publishing", "figure1", "labels", "budgets", "students", "curves")
PUBLISHED = ("tmc2007-500", "yeast", "scene", "emotions", "cal500", "bibtex")
LARGE, HARD = "tmc2007-500", "yeast"  # stand for Pascal VOC and for CheXpert
DECISIVE = (2, 2.25, 2.5, 3, 3.5, 4, 5, 8)  # orders around which budgets of 20 and 8 are decided
SMALL = ("yeast", "scene")  # have students as well: DP-SGD has few rows there


def main(words: list[str] | None = None) -> None:
    args = parse(words)
    if args.keep is None and args.quick:  # what is checked must have been measured now
        with tempfile.TemporaryDirectory() as folder:
            args.keep = Path(folder)
            run(args, words)
    else:
        args.keep = args.keep or Path("build/multiwinner")
        run(args, words)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add_usual(parser, PARTS, quick="a made data set, and tmc2007-500 once; a minute")
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--data-set", default=",".join(PUBLISHED), help="one, or several with commas")
    parser.add_argument(
        "--seeds", type=int, default=3, help="ensembles of the first table (the rest: seed 0)"
    )
    parser.add_argument("--votes", type=Path, help="folder with the ballots (default: under --keep)")
    parser.add_argument("--keep", type=Path, help="folder of results (build/multiwinner; quick: none)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train teachers")
    parser.add_argument("--figures", type=Path, help="folder for the pictures")
    args = parser.parse_args(words)
    some_of(parser, args.parts, PARTS, what="parts")
    return args


def run(args: argparse.Namespace, words: list[str] | None) -> None:
    """Measure, print, draw and compare."""
    report = report_on("multiwinner", words)
    bench = Bench(args.data, args.keep, args.jobs, args.votes)
    there = available(bench, ("made", LARGE) if args.quick else tuple(args.data_set.split(",")), report)
    tables: list[Table] = []

    def add(*made: Table) -> None:
        for table in made:
            table.show()
            tables.append(table)
            report.sections.append(table.section())

    for part in args.parts.split(","):
        add(*(quick_part if args.quick else full_part)(part, bench, report, there, args))
    if args.figures:
        from figures import draw

        for path in draw(tables, args.figures):
            print(f"drawn: {path}")
    conclude(report, args, HERE / "expected.json", pages=[table.markdown() for table in tables])


def available(bench: Bench, names: tuple[str, ...], report: Report) -> list[str]:
    """Return the data sets that can be read; the others are left out, loudly."""
    there = []
    for name in names:
        try:
            bench.data(name)
        except (FileNotFoundError, ValueError) as error:
            report.skip(f"{name}: {error}")
        else:
            there.append(name)
    return there


def full_part(
    part: str, bench: Bench, report: Report, there: list[str], args: argparse.Namespace
) -> list[Table]:
    """Return the tables of one part."""
    if part == "curves":
        return curves(quick=False)
    if part == "figure1":
        return [table for name in there for table in sweep(bench, name, 0)]
    made = []
    if part == "labels" and HARD in there:
        made.append(first_labels(bench, HARD, 0, 5))
    if part == "students":
        for name in (name for name in SMALL if name in there):
            chosen = [Voting("binary", 7.0), Voting("l2", 10.0, bench.data(name).setting.squares[-1] ** 0.5)]
            how = {"recipes": (RECIPES[0], RECIPES[2], RECIPES[5]), "epochs": 40}
            made.append(table2(bench, report, name, 0, 20.0, chosen, **how))
    if LARGE not in there:
        return made
    if part == "goal":
        made += [goal(bench, LARGE, range(args.seeds), 10.0), by_order(bench, LARGE, 0, 10.0, DECISIVE)]
    elif part == "publishing":
        made.append(publishing(bench, LARGE, range(args.seeds), (10.0, 14.0)))
    elif part == "labels":
        made += [first_labels(bench, LARGE, 0, 6), few_labels(bench, LARGE, 0)]
    elif part == "budgets":
        made.append(budgets(bench, LARGE, 0, 20))
    elif part == "students":
        k = bench.data(LARGE).n_labels
        powerset = Voting("powerset", most_noise(bench, LARGE, 0, "powerset", k)[0])
        chosen = [powerset, Voting("binary", 10.0), Voting("l2", 10.0, 3.24**0.5)]
        made += [table2(bench, report, LARGE, 0, epsilon, chosen) for epsilon in (20.0, 8.0)]
        made.append(table9(bench, report, LARGE, 0, Voting("binary", 10.0)))
    return made


def quick_part(
    part: str, bench: Bench, report: Report, there: list[str], args: argparse.Namespace
) -> list[Table]:
    """Return the tables of one part on the made data set, and what the large one answers."""
    if part == "curves":
        return curves(quick=True)
    if part == "goal":
        return [goal(bench, LARGE, range(1), 10.0)] if LARGE in there else []
    if part == "publishing":
        small = publishing(bench, "made", range(1), (4.0, 7.0))
        return [small, publishing(bench, LARGE, range(1), (10.0, 14.0))] if LARGE in there else [small]
    if part == "figure1":
        return sweep(bench, "made", 0)
    if part == "labels":
        few = few_labels(bench, "made", 0, ((3, 1), (3, 3), (10, 2), (10, 10)))
        return [first_labels(bench, "made", 0, 6, (1, 3, 8)), few]
    if part == "budgets":
        return [budgets(bench, "made", 0, 10, (1, 8, 20))]
    trained = {"recipes": (RECIPES[0], RECIPES[-1]), "epochs": 2}
    voting = Voting("binary", 4.0)
    students = table2(bench, report, "made", 0, 20.0, [voting, Voting("powerset", 2.0)], **trained)
    return [students, table9(bench, report, "made", 0, voting, **trained)]


if __name__ == "__main__":
    main()
