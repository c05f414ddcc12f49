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
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from cells import Cell, measure_baselines, measure_cell  # noqa: E402
from common.measure import Report, finish, shown_command  # noqa: E402
from ensembles import Data, Ensemble, bundled_data, bundled_ensemble, get_ensemble, load_data  # noqa: E402
from figure4 import RATIOS_OF_COSTS, cost_ratios  # noqa: E402
from published import FACTORS, MINORITY, RATIOS, SHARES, average_factor  # noqa: E402
from rich.progress import Progress  # noqa: E402
from sections import Results, add_sections, markdown  # noqa: E402
from students import teach  # noqa: E402

PARTS = ("tables", "class", "figure4", "students")


@dataclass(frozen=True)
class Job:
    """One cell of one ensemble: what is to be measured, and where its ballots and results are kept."""

    data_set: str
    seed: int
    cell: Cell
    votings: int
    n_exact: int
    data_dir: Path | None
    votes: Path
    keep: Path
    train: bool
    bundled: bool = False

    @property
    def path(self) -> Path:
        """Return the file of its results."""
        name = f"{self.data_set}-{'bundled' if self.bundled else self.seed}-{self.cell.key}"
        return self.keep / f"{name}-{self.votings}-{self.n_exact}.npz"


@lru_cache(maxsize=2)
def data_of(name: str, data_dir: Path | None) -> Data:
    """Return a data set, read once per process."""
    return load_data(name, data_dir)


def ensemble_of(job: Job) -> tuple[Data, Ensemble | None]:
    """Return the data and the ensemble of a job; None where it is not kept and not to be trained."""
    if job.bundled:
        return bundled_data(), bundled_ensemble()
    data, cell = data_of(job.data_set, job.data_dir), job.cell
    made: dict[str, Any] = {"folder": job.votes, "train": job.train}
    if cell.variant in ("u", "c", "figu"):
        kind = "class" if cell.variant == "c" else "random"
        made |= {"kind": kind, "ratio": cell.ratio, "copies": cell.factor}
    return data, get_ensemble(data, job.seed, **made)


def measure_job(job: Job) -> bool:
    """Measure a cell and keep the results; say whether there was anything to measure."""
    if job.path.is_file():
        return True
    data, ensemble = ensemble_of(job)
    if ensemble is None:
        return False
    asked: dict[str, Any] = {"votings": job.votings, "n_exact": job.n_exact}
    if job.cell.variant == "base":
        records = measure_baselines(data, ensemble, baseline_factors(job.data_set), job.seed, **asked)
    elif job.cell.variant in ("fig", "figu"):
        records = [cost_ratios(data, ensemble, job.cell.factor, job.seed)]
    else:
        share = job.cell.ratio / 100
        if job.cell.variant == "c":
            assert ensemble.teams is not None
            share = len(ensemble.teams) / data.sizes[0]
        records = measure_cell(data, ensemble, job.cell, job.seed, share=share, **asked)
    about = {"test": ensemble.test.tolist()} | teachers_by_class(data, ensemble)
    arrays: dict[str, Any] = {}
    for at, record in enumerate(records):
        for name in ("rows", "said"):
            if name in record:
                arrays[f"{name}_{at}"] = record.pop(name)
    job.keep.mkdir(parents=True, exist_ok=True)
    part = job.path.with_suffix(".part.npz")
    np.savez_compressed(part, about=json.dumps(about | {"records": records}), **arrays)
    part.rename(job.path)
    return True


def teachers_by_class(data: Data, ensemble: Ensemble) -> dict[str, float]:
    """Return the mean precision and recall of the teachers for the minority class (table 7)."""
    if ensemble.test_votes is None or data.n_classes != 2:
        return {}
    ballots = np.asarray(ensemble.test_votes.ballots)
    truth = data.y[ensemble.test]
    hits = ((ballots == 1) & (truth == 1)).sum(axis=1)
    return {
        "precision": float(np.mean(hits / np.maximum((ballots == 1).sum(axis=1), 1))),
        "recall": float(np.mean(hits / (truth == 1).sum())),
    }


def baseline_factors(data_set: str) -> list[float]:
    """Return everybody's budget in the baselines, in units of the lowest: minimum, maximum, averages."""
    shares = [ratio / 100 for ratio in RATIOS]
    if data_set == "adult":
        shares += [MINORITY * share / 100 for share in SHARES]
    return sorted({1.0, *FACTORS, *(average_factor(s, c) for s in shares for c in FACTORS)})


def cells_of(data_set: str, parts: list[str], *, quick: bool, bundled: bool) -> list[Cell]:
    """Return the cells to measure."""
    ratios, factors = ((50,), (2, 4)) if quick else (RATIOS, FACTORS)
    variants = ("w", "v", "v4") if bundled else ("u",) if quick else ("w", "v", "v4", "u")
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
        cells += [] if bundled else [Cell("figu", 50, c) for c in chosen]
    return cells


def run_jobs(jobs: list[Job], n_processes: int) -> list[Job]:
    """Measure what is not kept yet, with a bar; return the jobs whose results there are."""
    waiting = [job for job in jobs if not job.path.is_file()]
    missing: list[Job] = []
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("cells", total=len(jobs), completed=len(jobs) - len(waiting))
        if n_processes == 1:
            for job in waiting:
                if not measure_job(job):
                    missing.append(job)
                progress.advance(bar)
        else:
            with ProcessPoolExecutor(n_processes) as pool:
                asked = {pool.submit(measure_job, job): job for job in waiting}
                for done in as_completed(asked):
                    if not done.result():
                        missing.append(asked[done])
                    progress.advance(bar)
    return [job for job in jobs if job not in missing]


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
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--data-set", default="mnist,adult", help="mnist, adult, digits, or several")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="ballots that come along, and digits; a minute")
    parser.add_argument("--ensembles", type=int, default=10)
    parser.add_argument("--votings", type=int, default=5, help="votings of each ensemble")
    parser.add_argument("--exact-votings", type=int, help="how many of them are accounted exactly (all)")
    parser.add_argument("--student-votings", type=int, default=1, help="how many of them teach students")
    parser.add_argument("--votes", type=Path, help="folder with the ballots (default: under --keep)")
    parser.add_argument("--keep", type=Path, help="folder of results (build/personalized; quick: none)")
    parser.add_argument("--no-train", action="store_true", help="leave out ensembles without kept ballots")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="file for the tables as in the paper")
    parser.add_argument("--check", action="store_true", help="compare with expected.json, exit 1 if off")
    parser.add_argument("--expect", action="store_true", help="write expected.json from this run")
    args = parser.parse_args(words)
    unknown = sorted(set(args.parts.split(",")) - set(PARTS))
    if unknown:
        parser.error(f"expected parts of {', '.join(PARTS)}, got {', '.join(unknown)}")
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
            cells = cells_of(name, parts, quick=False, bundled=False)
            jobs += [Job(name, seed, cell, train=not args.no_train, **common) for cell in cells]
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
    report = Report("personalized", shown_command("personalized", sys.argv[1:] if words is None else words))
    jobs = jobs_of(args, report)
    done = run_jobs(jobs, args.jobs)
    if len(done) < len(jobs):
        report.skip(f"{len(jobs) - len(done)} of {len(jobs)} cells: no ballots, and not to be trained.")
    students = "students" in args.parts.split(",") and not args.quick
    results = collect(done, students=students, n_students=args.student_votings)
    teach_students(results)
    add_sections(report, results)
    print(report.footer)
    if args.json:
        args.json.write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(markdown(results) + "\n" + report.footer + "\n")
    finish(report, HERE / "expected.json", quick=args.quick, check=args.check, write=args.expect)


if __name__ == "__main__":
    main()
