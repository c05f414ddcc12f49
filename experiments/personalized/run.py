"""Personalized PATE (Mühl and Boenisch 2022): its tables 3 to 10 and figure 4 beside ours.

    python experiments/personalized/run.py [--data DIR] [--data-set mnist,adult] [--quick] [--votes DIR]

Every ensemble (a split, its teachers, their ballots) and every finished cell of a table is kept in a folder,
so that a run that was stopped goes on where it was. Noise is seeded, so that a run can be repeated: nothing
here is a release, and all that looks at votes would be private in a real run.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from cells import Cell  # noqa: E402
from common.command import add_usual, conclude, report_on, some_of  # noqa: E402
from common.measure import Report  # noqa: E402
from ensembles import EPOCHS  # noqa: E402
from figure4 import RATIOS_OF_COSTS  # noqa: E402
from jobs import Job, data_of, run_jobs  # noqa: E402
from published import FACTORS, RATIOS, SHARES  # noqa: E402
from sections import Results, add_sections, markdown  # noqa: E402
from students import teach  # noqa: E402

PARTS = ("tables", "class", "figure4", "students")
VARIANTS = ("w", "v", "v4", "u")


def cells_of(
    data_set: str, parts: list[str], *, quick: bool, bundled: bool, variants: tuple[str, ...] = VARIANTS
) -> list[Cell]:
    """Return the cells to measure."""
    ratios, factors = ((50,), (2, 4)) if quick else (RATIOS, FACTORS)
    if quick:
        variants = ("w", "v", "v4") if bundled else ("u",)
    cells = [Cell("base")] if set(parts) & {"tables", "class"} else []
    if "tables" in parts:
        cells += [
            Cell(variant, ratio, factor) for variant in variants for ratio in ratios for factor in factors
        ]
    if "class" in parts and data_set == "adult":
        cells += [Cell("c", share, factor) for share in SHARES for factor in FACTORS]
    if "figure4" in parts and data_set == "mnist":
        chosen = (2, 4, 9) if quick else RATIOS_OF_COSTS
        cells += [Cell("fig", 50, c) for c in chosen]
        cells += [Cell("figu", 50, c) for c in chosen if "u" in variants and not bundled]
    return cells


def collect(jobs: list[Job], *, students: bool, n_students: int) -> Results:
    """Read the results of all jobs, and teach the students that have not been taught yet."""
    results = Results()
    for job in jobs:
        with np.load(job.path) as kept:
            about = json.loads(str(kept["about"]))
            lessons = {}
            for at in range(min(n_students, len(about["records"]))):
                for name, n in about["records"][at].get("labels", {}).items():
                    if not name.startswith("public") and f"rows_{at}" in kept:
                        lessons[at, name] = (kept[f"rows_{at}"][:n], kept[f"said_{at}"][:n])
        results.add(job.data_set, job.cell, job.seed, about)
        if students and not job.bundled and lessons:
            results.lessons[job.path] = (job, np.array(about["test"]), lessons)
    return results


def teach_students(results: Results) -> None:
    """Teach the students of all collected lessons, all of a data set together, and keep their scores."""
    untaught: dict[str, list[Path]] = {}
    for path, (job, _, _) in results.lessons.items():
        kept = path.with_suffix(".students.json")
        if kept.is_file():
            results.add_students(job.data_set, job.cell, json.loads(kept.read_text()))
        else:
            untaught.setdefault(job.data_set, []).append(path)
    for name, paths in untaught.items():
        data, lessons, owners = None, [], []
        for path in paths:
            job, test, own = results.lessons[path]
            data = data_of(name, job.data_dir)
            for (at, which), (rows, said) in own.items():
                lessons.append((rows, said, test))
                owners.append((path, f"{at}/{which}"))
        assert data is not None
        print(f"teaching {len(lessons)} students of {name} ...", file=sys.stderr)
        scores: dict[Path, dict[str, float]] = {path: {} for path in paths}
        for (path, which), score in zip(owners, teach(data, lessons, seed=7), strict=True):
            scores[path][which] = score
        for path, own_scores in scores.items():
            path.with_suffix(".students.json").write_text(json.dumps(own_scores))
            job = results.lessons[path][0]
            results.add_students(name, job.cell, own_scores)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add_usual(parser, PARTS, quick="ballots that come along, and digits; a minute")
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--data-set", default="mnist,adult", help="mnist, adult, digits, or several")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="upsampled teachers take the longest")
    parser.add_argument("--ensembles", type=int, default=10)
    parser.add_argument("--votings", type=int, default=5, help="votings of each ensemble")
    parser.add_argument("--exact-votings", type=int, help="how many of them are accounted exactly (all)")
    parser.add_argument("--student-votings", type=int, default=1, help="how many of them teach students")
    parser.add_argument("--votes", type=Path, help="folder with the ballots (default: under --keep)")
    parser.add_argument("--keep", type=Path, help="folder of results (build/personalized; quick: none)")
    parser.add_argument("--no-train", action="store_true", help="leave out ensembles without kept ballots")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of MNIST's teachers")
    parser.add_argument("--jobs", type=int, default=1, help="processes that count labels")
    parser.add_argument("--trainers", type=int, default=1, help="trained at once, beside --jobs; for a GPU")
    args = parser.parse_args(words)
    for name, known in (("parts", PARTS), ("variants", VARIANTS)):
        some_of(parser, getattr(args, name), known, what=name)
    return args


def jobs_of(args: argparse.Namespace, report: Report) -> list[Job]:
    """Return everything to be measured, ensemble by ensemble."""
    parts, votes = args.parts.split(","), args.votes or args.keep / "votes"
    votings = 1 if args.quick else args.votings
    n_exact = votings if args.exact_votings is None else min(votings, args.exact_votings)
    common: dict[str, Any] = {
        "votings": votings, "n_exact": n_exact, "data_dir": args.data, "votes": votes, "keep": args.keep,
    }  # fmt: skip
    if args.quick:
        cells = cells_of("mnist", parts, quick=True, bundled=True)
        jobs = [Job("mnist", 0, cell, train=False, bundled=True, **common) for cell in cells]
        small = cells_of("digits", parts, quick=True, bundled=False)
        return jobs + [Job("digits", 0, cell, train=True, **common) for cell in small]
    jobs = []
    for name in args.data_set.split(","):
        try:
            data_of(name, args.data)
        except (FileNotFoundError, ValueError) as error:
            report.skip(f"{name}: {error}")
            continue
        for seed in range(args.ensembles):
            variants = tuple(args.variants.split(","))
            cells = cells_of(name, parts, quick=False, bundled=False, variants=variants)
            epochs = args.epochs if name == "mnist" else EPOCHS
            jobs += [
                Job(name, seed, cell, train=not args.no_train, epochs=epochs, **common) for cell in cells
            ]
    return jobs


def main(words: list[str] | None = None) -> None:
    args = parse(words)
    if args.keep is None and args.quick:  # what is checked must have been measured now
        with tempfile.TemporaryDirectory() as folder:
            args.keep = Path(folder)
            run(args, words)
    else:
        args.keep = args.keep or Path("build/personalized")
        run(args, words)


def run(args: argparse.Namespace, words: list[str] | None) -> None:
    """Measure, teach, print, and compare."""
    report = report_on("personalized", words)
    jobs = jobs_of(args, report)
    done = run_jobs(jobs, args.jobs, n_trainers=args.trainers)
    if len(done) < len(jobs):
        report.skip(f"{len(jobs) - len(done)} of {len(jobs)} cells: no ballots, and not to be trained.")
    students = "students" in args.parts.split(",") and not args.quick
    results = collect(done, students=students, n_students=args.student_votings)
    teach_students(results)
    add_sections(report, results)
    conclude(report, args, HERE / "expected.json", pages=[markdown(results)])


if __name__ == "__main__":
    main()
