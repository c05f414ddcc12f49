"""What `tellers party ask` remembers beside its labels, so that an interrupted file goes on where it stopped.

A line of JSON for each thing that happened, on disk before anything follows from it:

    {"rows": ..., "terms": ..., "n_rows": ...}      which rows are asked, and by which terms
    {"asking": qid, "span": [20, 30]}               from here on these rows may be charged
    {"free": qid}                                   they were not, after all
    {"labels": [...], "qid": ..., "span": ...}      their labels, who answered, and what it took

Rows that are `asking` and neither `free` nor labelled were lost: nobody here can tell if they were charged.
Labels are the asker's alone, so nobody but the owner may read it.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

Span = tuple[int, int]


def hash_rows(rows: Any) -> str:
    """Return a hash of the numbers, whatever file they came in."""
    table = np.ascontiguousarray(rows, dtype="<f8")
    return hashlib.sha256(repr(table.shape).encode() + table.tobytes()).hexdigest()


def journal_of(out: Path) -> Path:
    """Return where the journal of a file of labels is."""
    return out.with_name(f"{out.name}.asked")


class Journal:
    """The labels there are, and the rows that may have been charged without any; one writer at a time."""

    def __init__(self, out: Path, rows: Any, *, terms: str) -> None:
        self.path = journal_of(out)
        self.n_rows = len(rows)
        self.batches: list[dict[str, Any]] = []
        self.lost: dict[str, Span] = {}
        head = {"rows": hash_rows(rows), "terms": terms, "n_rows": len(rows)}
        self._file: IO[bytes] = open(self.path, "a+b", opener=_as_owner)  # noqa: SIM115
        try:
            _lock(self._file, self.path)
            lines = self._whole_lines()
            if not lines:
                self._append(head)
                sync_folder(self.path)
                return
            self._require_same(lines[0], head, out)
            for line in lines[1:]:
                self._take(line)
        except BaseException:
            self._file.close()
            raise

    @property
    def n_labelled(self) -> int:
        """Return how many rows have labels."""
        return sum(end - start for start, end in self._spans())

    @property
    def n_lost(self) -> int:
        """Return how many queries may have been charged and gave no labels, each time they were asked."""
        return sum(end - start for start, end in self.lost.values())

    def lost_rows(self) -> list[int]:
        """Return the rows without labels that may have been charged."""
        lost = {row for start, end in self.lost.values() for row in range(start, end)}
        return sorted(lost - set(self.labelled()[0]))

    def labelled(self) -> tuple[list[int], Any]:
        """Return the rows that have labels, in order, and the labels."""
        batches = sorted(self.batches, key=lambda batch: batch["span"][0])
        numbers = [row for batch in batches for row in range(*batch["span"])]
        return numbers, np.concatenate([np.asarray(batch["labels"]) for batch in batches] or [np.zeros(0)])

    def pending(self, *, size: int, again: bool) -> list[Span]:
        """Return what is still to be asked, in batches of at most `size` rows."""
        settled = set(self.labelled()[0]) | (set() if again else set(self.lost_rows()))
        spans: list[Span] = []
        for row in (row for row in range(self.n_rows) if row not in settled):
            if spans and spans[-1][1] == row and row - spans[-1][0] < size:
                spans[-1] = (spans[-1][0], row + 1)
            else:
                spans.append((row, row + 1))
        return spans

    def noting(self, span: Span) -> Callable[[str, bool], None]:
        """Return what writes down, for a batch, from when on and until when it may be charged."""

        def note(qid: str, may_be_charged: bool) -> None:
            line = {"asking": qid, "span": list(span)} if may_be_charged else {"free": qid}
            self._append(line)
            self._take(line)

        return note

    def keep(self, span: Span, batch: dict[str, Any]) -> None:
        """Write down the labels of a batch, durably."""
        line = {**batch, "span": list(span)}
        self._append(line)
        self._take(line)

    def close(self, *, remove: bool) -> None:
        """Let another process write it; or remove it, once the file of labels is complete."""
        if remove:
            self.path.unlink(missing_ok=True)
            sync_folder(self.path)
        self._file.close()

    def _spans(self) -> list[Span]:
        return [tuple(batch["span"]) for batch in self.batches]

    def _take(self, line: dict[str, Any]) -> None:
        if "asking" in line:
            start, end = line["span"]
            self.lost[line["asking"]] = (int(start), int(end))
        elif "free" in line:
            self.lost.pop(line["free"], None)
        else:
            self.lost.pop(line["qid"], None)
            self.batches.append(line)

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _whole_lines(self) -> list[dict[str, Any]]:
        """Read what was written whole; what an interruption left of a last line is cut off."""
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            self._file.truncate(len(whole))
        try:
            return [dict(json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError):
            raise ValueError(
                f"Expected lines of JSON in {self.path}, got others. It says which rows were charged: "
                "restore it, or move it and the labels away and pay for all rows anew."
            ) from None

    def _require_same(self, found: dict[str, Any], wanted: dict[str, Any], out: Path) -> None:
        for name, what in (("rows", "rows"), ("terms", "terms (session, mechanism and hardening)")):
            if found.get(name) != wanted[name]:
                raise ValueError(
                    f"Expected the {what} that {out.name} was begun with, got others. Nothing was asked; go "
                    f"on with the same ones, or name another --out. {self.path.name} belongs to the old."
                )


def sync_folder(path: Path) -> None:
    """Make the name of a file durable, where folders can be."""
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _as_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover - the engine does not run there either
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(
            f"Expected nobody else to write {path}; another process does. Wait for it."
        ) from None
