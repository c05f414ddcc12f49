"""What `tellers party ask` reads and writes: rows, labels batch by batch, and what they cost."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..config.party import PartySettings
from ..errors import RoundAborted
from ..file_sizes import MOST_TEXT, cap, load_npy, read_bounded
from ..teachers.store import write_whole
from .party_journal import Journal, journal_of


def read_rows(path: Path) -> Any:
    """Return the rows of a file."""
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
                    except RoundAborted as aborted:
                        error = str(aborted)
                        break
                    journal.keep(
                        (start, end),
                        {
                            "labels": one.labels.tolist(), "qid": one.qid, "answering": list(one.parties),
                            "seconds": round(one.seconds, 3), "n_bytes": one.n_bytes,
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
            prices = {
                n: asker.price(n) for n in {journal.n_labelled, journal.n_labelled + journal.n_lost} if n
            }
        labelled, most = journal.n_labelled, journal.n_labelled + journal.n_lost
        told = {
            "n_rows": len(rows), "n_labelled": labelled, "n_before": n_before, "n_lost": len(lost),
            "epsilon": float(prices[labelled].epsilon(delta)) if labelled else 0.0,
            "epsilon_at_most": float(prices[most].epsilon(delta)) if most else 0.0,
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


def _lost(journal: Journal, asker: Any, delta: float, *, again: bool) -> str:
    """Say which rows may have been paid for in vain."""
    rows = journal.lost_rows()
    price = asker.price(journal.n_lost).epsilon(delta)
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
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ["label"] if labels.ndim == 1 else [f"label{j}" for j in range(labels.shape[1])]
        writer.writerow(["row", *names])
        for row, said in zip(rows, labels.reshape(len(labels), -1).tolist()):
            writer.writerow([row, *said])
        buffer.write(text.getvalue().encode())
    write_whole(out, buffer.getvalue())
