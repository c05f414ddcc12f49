"""`tellers party ask`: rows in, labels batch by batch, and a journal so that an interrupted file goes on."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import OutcomeChanged, RoundAborted
from ..privacy._files import MOST_TEXT, cap, load_npy, read_bounded, sync_folder, write_whole
from ..runs.settings.party import PartySettings

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
                sync_folder(self.path.parent)
                return
            self._require_same(lines[0], head, out)
            for line in lines[1:]:
                self._take(line)
        except BaseException:
            self._file.close()
            raise

    @property
    def n_labelled(self) -> int:
        return sum(end - start for start, end in (batch["span"] for batch in self.batches))

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
            self._write({"asking": qid, "span": list(span)} if may_be_charged else {"free": qid})

        return note

    def keep(self, span: Span, batch: dict[str, Any]) -> None:
        """Write down the labels of a batch, durably."""
        self._write({**batch, "span": list(span)})

    def close(self, *, remove: bool) -> None:
        """Let another process write it; or remove it, once the file of labels is complete."""
        if remove:
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        self._file.close()

    def _take(self, line: dict[str, Any]) -> None:
        if "asking" in line:
            start, end = line["span"]
            self.lost[line["asking"]] = (int(start), int(end))
        elif "free" in line:
            self.lost.pop(line["free"], None)
        else:
            self.lost.pop(line["qid"], None)
            self.batches.append(line)

    def _write(self, line: dict[str, Any]) -> None:
        self._append(line)
        self._take(line)

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


# --- What `tellers party ask` reads and writes: rows, labels batch by batch, and what they cost. ---


def read_rows(path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            rows = load_npy(path)
        else:
            text = read_bounded(path, most=cap(MOST_TEXT)).decode()
            rows = np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected rows of numbers in {path}, .npy or .csv without a heading: {error}"
        ) from None
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"Expected a table of rows in {path}, got shape {rows.shape}.")
    return rows


def require_place(path: Path) -> None:
    """Refuse a place for labels that is taken, or of another kind, before anything is paid for."""
    if path.suffix not in (".csv", ".npz"):
        raise ValueError(f"Expected a .csv or .npz for the labels, got {path.name}.")
    if path.exists() and not journal_of(path).exists():
        raise ValueError(f"Expected a new file for the labels, {path} is there. Name another one.")
    if not path.parent.is_dir():
        raise ValueError(f"Expected a folder for the labels, found none at {path.parent}.")


def ask_in_batches(
    settings: PartySettings,
    rows: Any,
    out: Path,
    *,
    batch: int,
    delta: float,
    say: Callable[[str], Any],
    again: bool = False,
    watched: bool = False,
) -> dict[str, Any]:
    """Ask batch after batch, write what there is after each, and return the summary."""
    from ..parties._guard import LENT
    from ..parties.ask import AskRole
    from . import show

    error, is_complete = "", False
    unknown: list[int] = []
    journal = Journal(out, rows, terms=settings.terms)
    try:
        n_before = journal.n_labelled
        with AskRole(settings, say=say) as asker:
            if n_before:
                say(f"{n_before} of {len(rows)} rows have labels from before; going on with the others.")
                _write(out, *journal.labelled())
            if journal.lost_rows():
                say(_lost(journal, asker, delta, again=again))
            spans = journal.pending(size=batch, again=again)
            with show.progress_bar(len(spans), "batches", wanted=watched) as advance:
                for start, end in spans:
                    try:
                        one = asker.ask(rows[start:end], note=journal.noting((start, end)))
                    except OutcomeChanged as changed:
                        # What follows is asked all the same: a guardian must not hear what it changed.
                        error = str(changed)
                        if advance is not None:
                            advance(1)
                        continue
                    except RoundAborted as aborted:
                        error = str(aborted)
                        if LENT in error:
                            error += f" That is epsilon {_epsilon(asker, end - start, delta):.3g} each."
                        break
                    journal.keep(
                        (start, end),
                        {
                            "labels": one.labels.tolist(), "qid": one.qid, "answering": list(one.parties),
                            "seconds": round(one.seconds, 3), "n_bytes": one.n_bytes, "n_void": one.n_void,
                        },
                    )  # fmt: skip
                    _write(out, *journal.labelled())
                    before, unknown = unknown, _unknown(settings, one.parties)
                    if unknown and unknown != before:
                        which = ", ".join(str(label) for label in unknown)
                        say(f"Nobody who answered knows label {which}: silent (-1) on every row.")
                    if advance is not None:
                        advance(1)
            lost = journal.lost_rows()
            if lost:
                error = f"{error} {_lost(journal, asker, delta, again=False)}".strip()
        labelled, most = journal.n_labelled, journal.n_labelled + journal.n_lost
        told = {
            "n_rows": len(rows), "n_labelled": labelled, "n_before": n_before, "n_lost": len(lost),
            "epsilon": _epsilon(asker, labelled, delta), "epsilon_at_most": _epsilon(asker, most, delta),
            "delta": delta, "file": str(out), "batches": [_summary(settings, one) for one in journal.batches],
            "error": error,
        }  # fmt: skip
        is_complete = labelled == len(rows)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{journal.n_labelled} of {len(rows)} rows have labels. To go on, run the same command again."
        )
        raise
    finally:
        journal.close(remove=is_complete or not (journal.batches or journal.lost))
    return told


def _epsilon(asker: Any, n_queries: int, delta: float) -> float:
    return float(asker.price(n_queries).epsilon(delta)) if n_queries else 0.0


def _lost(journal: Journal, asker: Any, delta: float, *, again: bool) -> str:
    """Say which rows may have been paid for in vain."""
    rows = journal.lost_rows()
    price = _epsilon(asker, journal.n_lost, delta)
    words = (
        f"{len(rows)} rows, from row {rows[0]} on, may have been charged (epsilon {price:.3g} at delta "
        f"{delta:g}) and their labels are lost."
    )
    if again:
        return f"{words} They are asked again, and charged again."
    return f"{words} They are asked again, and charged again, only with --again."


def _summary(settings: PartySettings, batch: dict[str, Any]) -> dict[str, Any]:
    start, end = batch["span"]
    kept = {name: batch[name] for name in ("qid", "answering", "seconds", "n_bytes")}
    kept["n_void"] = batch.get("n_void", 0)
    unknown = _unknown(settings, batch["answering"])
    return {"rows": [start, end], "n_queries": end - start, **kept, "unknown_labels": unknown}


def _unknown(settings: PartySettings, parties: Sequence[str]) -> list[int]:
    """Return the labels that none of these parties knows."""
    if any(name not in settings.label_sets for name in parties):
        return []
    known = {label for name in parties for label in settings.label_sets[name]}
    return [label for label in range(settings.session.n_outputs) if label not in known]


def _write(out: Path, rows: list[int], labels: Any) -> None:
    """Write labels whole or not at all, and durably; they are the asker's alone, and so is the file."""
    buffer = io.BytesIO()
    if out.suffix == ".npz":
        np.savez(buffer, labels=labels, rows=np.asarray(rows))
    else:
        names = ["label"] if labels.ndim == 1 else [f"label{j}" for j in range(labels.shape[1])]
        heading = ",".join(["row", *names])
        table = np.column_stack([rows, labels])
        np.savetxt(buffer, table, fmt="%d", delimiter=",", header=heading, comments="")
    write_whole(out, buffer.getvalue())
