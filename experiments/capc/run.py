"""Confidential and private collaboration: table 1 and appendix I.11 of its paper in form, beside ours.

    python experiments/capc/run.py [--data DIR] [--quick] [--seeds 3]
        [--parts digits,labels,crossing,sums,round]

The paper's data sets are not at hand: its rows are filled with other data sets. Everything is computed in one
room, in the clear; `round` holds that against the confidential protocol with real processes. Noise is seeded:
nothing here is a release, and what looks at votes would be private.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cells import COUNTINGS, EPSILONS, against_alone, crossing, dealt, hold  # noqa: E402
from common.command import add_usual, conclude, report_on, some_of  # noqa: E402
from common.measure import Report, Section, measure  # noqa: E402
from tables import PASCAL, WEAKEST, AgainstAlone, Table  # noqa: E402

from tellers import GNMax  # noqa: E402
from tellers.mechanisms import Binary, GNThreshold  # noqa: E402
from tellers.parties import Terms  # noqa: E402
from tellers.parties.collaboration.learning import Collaboration  # noqa: E402

PARTS = ("digits", "labels", "crossing", "sums", "round")
WHICH = ("random", "weakest")
FRESH = 10  # The first seed of sums: nothing was looked at under it before everything was chosen.


def main(words: list[str] | None = None) -> None:
    args = parse(words)
    report = report_on("capc", words)
    pages: list[str] = []
    for part in args.parts.split(","):
        parts = {"digits": classes, "labels": labels, "crossing": crossed, "sums": sums}
        for made in parts.get(part, none)(report, args):
            report.add(made.section())
            pages.append(made.markdown())
        if part == "round":
            pages += checked(report, args)
    conclude(report, args, HERE / "expected.json", pages=pages)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add_usual(parser, PARTS[:4], quick="digits and a generated set; half a minute")
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--data-set", default="tmc2007-500,yeast", help="sets of many labels, with commas")
    parser.add_argument("--seeds", type=int, default=0, help="repetitions (3; quick: 2)")
    args = parser.parse_args(words)
    some_of(parser, args.parts, PARTS, what="parts")
    args.seeds = args.seeds or (2 if args.quick else 3)
    return args


def none(_report: Report, _args: argparse.Namespace) -> list[Any]:
    return []


def classes(report: Report, args: argparse.Namespace) -> list[Table]:
    """One class per row: digits, and MNIST with as many parties as the first paper had."""
    sizes = [("digits", 50, 20, 300, 8.0, EPSILONS)]
    if not args.quick:
        sizes.append(("mnist", 250, 200, 3000, 40.0, (2.0, 10.0)))
    made = []
    for name, n_parties, rows_each, n_pool, sigma, epsilons in sizes:
        terms = {
            which: Terms(mechanism=GNMax(sigma), epsilons=epsilons, which=which, countings=COUNTINGS)
            for which in WHICH
        }
        held = repeated(report, name, n_parties, rows_each, n_pool, terms, args.seeds, args.data)
        made += [
            Table(
                f"digits/{name}/{which}",
                f"{name}, {n_parties} parties of {rows_each} rows, GNMax sigma {sigma:g}, askers: {which}",
                tuple(one),
                {},
            )
            for which, one in held.items()
        ]
    return made


def labels(report: Report, args: argparse.Namespace) -> list[Table]:
    """Many labels: table 1, and the three weakest of appendix I.10."""
    made = []
    for name in ["made"] if args.quick else args.data_set.split(","):
        rows_each, n_pool = _sizes(name)
        try:
            k = dealt(name, 50, rows_each, n_pool, 0, args.data)[0].n_outputs
        except (FileNotFoundError, ValueError) as error:
            report.skip(f"{name}: {error}")
            continue
        ways = {"binary": Binary(9.0, k), "capped": GNThreshold(12.0, k, max_labels=3)}
        terms = {
            (way, which): Terms(mechanism=mechanism, epsilons=EPSILONS, which=which, countings=COUNTINGS)
            for way, mechanism in ways.items()
            for which in WHICH
        }
        held = repeated(report, name, 50, rows_each, n_pool, terms, args.seeds, args.data)
        for (way, which), one in held.items():
            words = "Binary, sigma 9" if way == "binary" else "at most 3 labels, sigma 12"
            title = f"{name}, {k} labels, 50 parties of {one[0].rows_each} rows, {words}, askers: {which}"
            theirs = {} if way != "binary" else PASCAL if which == "random" else WEAKEST
            where = "table 1, Pascal VOC" if which == "random" else "appendix I.10, CheXpert"
            made.append(Table(f"many/{name}/{way}/{which}", title, tuple(one), theirs, where))
    return made


def sums(report: Report, args: argparse.Namespace) -> list[AgainstAlone]:
    """Many labels by one Gaussian sum, by the label, and alone, on twice as many seeds: gains have errors."""
    made = []
    for name in ["made"] if args.quick else args.data_set.split(","):
        rows_each, n_pool = _sizes(name)
        found: dict[str, list[Any]] = {which: [] for which in WHICH[: 1 if args.quick else 2]}
        try:
            for seed in range(FRESH, FRESH + (args.seeds if args.quick else 2 * args.seeds)):
                material, members = dealt(name, 50, rows_each, n_pool, seed, args.data)
                for which, seeds in found.items():
                    seeds.append(against_alone(material, members, which=which, seed=seed))
        except (FileNotFoundError, ValueError) as error:
            report.skip(f"{name}: {error}")
            continue
        title = f"{name}, {material.n_outputs} labels, 50 parties of {len(members[0].X)} rows, askers: "
        made += [AgainstAlone(f"many/sums/{name}/{one}", title + one, tuple(it)) for one, it in found.items()]
    return made


def _sizes(name: str) -> tuple[int | None, int]:
    """Return how many rows a party has, or None for 1/50 of the data, and the size of the pool."""
    return (60, 900) if name == "made" else (None, 3000 if name == "tmc2007-500" else 450)


def repeated(
    report: Report, name: str, n_parties: int, rows_each: int | None, n_pool: int, terms: dict[Any, Terms],
    seeds: int, data_dir: Path | None,
) -> dict[Any, list[Collaboration]]:  # fmt: skip
    """Return repetitions for all terms: parties are trained once for each seed."""
    held: dict[Any, list[Collaboration]] = {key: [] for key in terms}
    try:
        for seed in range(seeds):
            material, members = dealt(name, n_parties, rows_each, n_pool, seed, data_dir)
            for key, one in terms.items():
                held[key].append(hold(material, members, one, seed=seed))
    except (FileNotFoundError, ValueError) as error:
        report.skip(f"{name}: {error}")
        return {}
    return held


def crossed(report: Report, args: argparse.Namespace) -> list[Table]:
    """Parties with different label sets, as in appendix I.11."""
    name, k = ("made", 10) if args.quick else ("tmc2007-500", 22)
    small = {"weak_rows": 30, "strong_rows": 60, "n_pool": 900}
    sizes = small if args.quick else {"weak_rows": 100, "strong_rows": 500, "n_pool": 3000}
    held: dict[str, list[Collaboration]] = {who: [] for who in ("weak", "strong", "both")}
    try:
        for seed in range(args.seeds):
            found = crossing(
                name, n_weak=10, n_strong=40, shared=range(k // 2), sigma=9.0, seed=seed, data_dir=args.data,
                **sizes,
            )  # fmt: skip
            for words, one in found.items():
                held[words].append(one)
    except (FileNotFoundError, ValueError) as error:
        report.skip(f"crossing: {error}")
        return []
    answer = {
        "weak": f"the ten of {sizes['weak_rows']} rows that know {k} labels",
        "strong": f"40 others of {sizes['strong_rows']} rows that know {k // 2}",
        "both": "both groups",
    }
    return [
        Table(
            f"many/crossing/{who}",
            f"{name}, three weak askers, Binary sigma 9, who answers: {words}",
            tuple(held[who]),
            {},
        )
        for who, words in answer.items()
    ]


def checked(report: Report, args: argparse.Namespace) -> list[str]:
    """One turn of an asker with ten answering parties, guardian and asker as real processes."""
    import importlib.util

    if importlib.util.find_spec("spu") is None:
        report.skip("round: the engine is missing, pip install 'tellers[capc]' on Python 3.11")
        return []
    sys.path.insert(0, str(HERE.parents[1]))
    from tests.real_round import check_real_round

    lines = []
    for task in ("single", "multi"):
        found = check_real_round(task=task, n_answerers=10, n_queries=20 if args.quick else 100, seed=7)
        lines.append(
            measure(
                f"round/{task}/different",
                f"{task}: labels that differ, of {found.n_labels}",
                found.n_different,
            )
        )
        lines.append(
            measure(
                f"round/{task}/turned",
                f"{task}: votes turned by rounding, of {found.n_votes}",
                found.n_turned,
            )
        )
    report.add(Section("A real round of ten against the clear, with the same noise", tuple(lines)))
    return [f"- {line.what}: {line.mean:g}" for line in lines]


if __name__ == "__main__":
    main()
