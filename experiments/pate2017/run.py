"""Semi-supervised knowledge transfer from private data (Papernot et al. 2017): its numbers beside ours.

    python experiments/pate2017/run.py [--data DIR] [--quick] [--parts votes,accounting,...] [--figures DIR]

Parts: votes (single teachers, plurality, noisy labels, figures 2 and 3), accounting (epsilon of 100 and
1,000 queries), students (figure 4), distil (figure 5), active (appendix B.2), adult and diabetes (appendix
C). `--data-set svhn` runs the first five on SVHN, whose files must be in the data directory. Noise is seeded,
so that a run can be repeated: nothing here is a release.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import figures  # noqa: E402
import forests  # noqa: E402
import learning  # noqa: E402
import votes  # noqa: E402
from common.command import add_usual, conclude, report_on, some_of  # noqa: E402
from common.images import Images, load_mnist, load_svhn  # noqa: E402
from common.measure import Report  # noqa: E402
from common.students import quick_kinds, student_kinds  # noqa: E402

PARTS = ("votes", "accounting", "students", "distil", "active", "adult", "diabetes")


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add_usual(parser, PARTS, quick="two seeds, small forests, about a minute")
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--data-set", choices=("mnist", "svhn"), default="mnist")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 5, quick 2)")
    parser.add_argument(
        "--train", action="store_true", help="train the MNIST teachers instead of reading votes"
    )
    parser.add_argument("--keep", type=Path, help="with --train: folder to keep the ballots in")
    parser.add_argument("--teachers", default="10,100,250", help="sizes of the ensembles")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of the teachers that are trained")
    parser.add_argument("--teacher", choices=("cnn", "logistic"), default="cnn", help="what is trained")
    parser.add_argument("--student", default="auto", help="svc, cnn, logistic, or several with commas")
    parser.add_argument("--figures", type=Path, help="folder for the pictures")
    args = parser.parse_args(words)
    some_of(parser, args.parts, PARTS, what="parts")
    return args


def main(words: list[str] | None = None) -> None:
    args = parse(words)
    parts, seeds = args.parts.split(","), range(args.seeds or (2 if args.quick else 5))
    report = report_on("pate2017", words)
    if set(parts) & {"votes", "accounting", "students", "distil", "active"}:
        image_parts(report, args, parts, seeds)
    if args.data_set == "mnist":
        table_parts(report, args, parts, seeds)
    if args.figures:
        for path in figures.draw(report.numbers(), args.figures):
            print(f"drawn: {path}")
    conclude(report, args, HERE / "expected.json")


def image_parts(report: Report, args: argparse.Namespace, parts: list[str], seeds: range) -> None:
    """Measure what is about images."""
    sizes = tuple(int(n) for n in args.teachers.split(","))
    images: Images
    if args.data_set == "svhn":
        images = load_svhn(args.data, sizes=sizes, epochs=args.epochs, teacher=args.teacher)
    else:
        images = load_mnist(
            args.data,
            train=args.train,
            sizes=sizes,
            epochs=args.epochs,
            teacher=args.teacher,
            keep=args.keep,
        )
    if "votes" in parts:
        report.add(votes.ensembles(images, seeds))
        report.add(votes.figure_2(images, seeds))
    if "accounting" in parts:
        report.add(votes.accounting(images, seeds))
    taught = [part for part in ("students", "distil", "active") if part in parts]
    if taught and not images.can_teach:
        report.skip(
            f"{', '.join(taught)}: no images. Put MNIST into the data directory, or name it by --data."
        )
        return
    kinds = student_kinds(args.student, quick=args.quick)
    pool = len(images.truth)
    if "students" in taught:
        report.add(learning.students(images, seeds, kinds))
    if "distil" in taught:
        sizes = (100, 1000) if args.quick else (100, 300, 1000, 3000, 9000)
        # Shares of votes weigh rows, which the network's fit does not take.
        for section in learning.distillation(images, seeds, tuple(min(n, pool) for n in sizes), ["logistic"]):
            report.add(section)
    if "active" in taught:
        per_round, n_rounds = (min(100, pool // 10), 2 if args.quick else 9)
        for kind in quick_kinds(args.student):
            report.add(learning.active(images, seeds, kind, per_round=per_round, n_rounds=n_rounds))


def table_parts(report: Report, args: argparse.Namespace, parts: list[str], seeds: range) -> None:
    """Measure Adult and Diabetes."""
    n_trees = 10 if args.quick else 100
    few = seeds[:1] if args.quick else seeds
    try:
        if "adult" in parts:
            for without in ("", "fnlwgt"):
                report.add(forests.adult_section(args.data, few, n_trees=n_trees, without=without))
        if "diabetes" in parts:
            for balanced in (True, False):
                section = forests.diabetes_section(args.data, few, n_trees=n_trees, balanced=balanced)
                report.add(section)
    except FileNotFoundError as error:
        report.skip(f"adult, diabetes: {error}")


if __name__ == "__main__":
    main()
