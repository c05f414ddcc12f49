"""The words that every reproduction takes, and how each of them ends."""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from .measure import Report, compare, expect

# They change no number, so a shown command leaves them out, and what follows them.
SILENT_WORDS = (
    "--json", "--markdown", "--figures", "--data", "--keep", "--votes", "--jobs", "--trainers",
)  # fmt: skip


def add_usual(parser: argparse.ArgumentParser, parts: Sequence[str], *, quick: str) -> None:
    """Add what all of them take: which parts, a quick form, where to write, and what to compare with."""
    parser.add_argument("--parts", default=",".join(parts), help="with commas")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, help="file for the numbers")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    parser.add_argument("--check", action="store_true", help="compare with expected.json, exit 1 if off")
    parser.add_argument("--expect", action="store_true", help="write expected.json from this run")


def some_of(parser: argparse.ArgumentParser, asked: str, known: Sequence[str], *, what: str) -> list[str]:
    """Return what was asked for, and refuse what is not known."""
    words = asked.split(",")
    unknown = sorted(set(words) - set(known))
    if unknown:
        parser.error(f"expected {what} of {', '.join(known)}, got {', '.join(unknown)}")
    return words


def report_on(paper: str, words: list[str] | None) -> Report:
    """Return an empty report that names the command it was made by."""
    return Report(paper, shown_command(paper, sys.argv[1:] if words is None else words))


def conclude(report: Report, args: argparse.Namespace, expected: Path, *, pages: Sequence[str] = ()) -> None:
    """Write what was asked for (the report's own tables, or other pages), and compare if that was asked."""
    print(report.footer)
    if args.json:
        args.json.write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    if args.markdown:
        left_out = [f"Left out: {why}" for why in report.skipped]
        written = "\n".join([*pages, *left_out, report.footer, ""]) if pages else report.markdown()
        args.markdown.write_text(written)
    mode = "quick" if args.quick else "full"
    if args.expect:
        expect(report, expected, mode)
    if args.check:
        different = compare(report, expected, mode)
        for line in different:
            print(f"DIFFERENT: {line}", file=sys.stderr)
        if different:
            sys.exit(1)
        print(f"All {len(report.numbers())} numbers are as expected.")


def shown_command(paper: str, words: list[str]) -> str:
    """Return the command without the paths and switches that change no number."""
    shown, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in SILENT_WORDS:
            skip = True
        elif word not in ("--check", "--expect"):
            shown.append(word)
    return f"python experiments/{paper}/run.py {shlex.join(shown)}".strip()
