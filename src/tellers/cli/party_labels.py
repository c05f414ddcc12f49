"""What `tellers party ask` reads and writes: rows, labels batch by batch, and what they cost."""

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..config.party import PartySettings
from ..errors import RoundAborted


def read_rows(path: Path) -> Any:
    """Return the rows of a file."""
    try:
        if path.suffix == ".npy":
            rows = np.load(path, allow_pickle=False)
        else:
            rows = np.loadtxt(path, delimiter=",", ndmin=2)
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
    if path.exists():
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
) -> dict[str, Any]:
    """Ask batch after batch, write what there is after each, and return the summary."""
    from ..parties.ask import AskRole

    found: list[Any] = []
    batches: list[dict[str, Any]] = []
    error = ""
    with AskRole(settings, say=say) as asker:
        for start in range(0, len(rows), batch):
            try:
                one = asker.ask(rows[start : start + batch])
            except RoundAborted as aborted:
                error = str(aborted)
                break
            found.append(one.labels)
            batches.append(
                {
                    "qid": one.qid, "n_queries": len(one.labels), "answering": list(one.parties),
                    "seconds": round(one.seconds, 3), "n_bytes": one.n_bytes,
                    "unknown_labels": _unknown(settings, one.parties),
                }
            )  # fmt: skip
            if batches[-1]["unknown_labels"] and batches[-1]["unknown_labels"] != (
                batches[-2]["unknown_labels"] if len(batches) > 1 else []
            ):
                which = ", ".join(str(label) for label in batches[-1]["unknown_labels"])
                say(f"Nobody who answered knows label {which}: silent (-1) on every row.")
            _write(out, np.concatenate(found))
        n = sum(len(labels) for labels in found)
        epsilon = asker.price(n).epsilon(delta) if n else 0.0
    return {
        "n_rows": len(rows), "n_labelled": n, "epsilon": float(epsilon), "delta": delta, "file": str(out),
        "batches": batches, "error": error,
    }  # fmt: skip


def _unknown(settings: PartySettings, parties: tuple[str, ...]) -> list[int]:
    """Return the labels that none of these parties knows."""
    if any(name not in settings.label_sets for name in parties):
        return []
    known = {label for name in parties for label in settings.label_sets[name]}
    return [label for label in range(settings.session.n_outputs) if label not in known]


def _write(out: Path, labels: Any) -> None:
    """Write labels whole or not at all."""
    buffer = io.BytesIO()
    if out.suffix == ".npz":
        np.savez(buffer, labels=labels)
    else:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ["label"] if labels.ndim == 1 else [f"label{j}" for j in range(labels.shape[1])]
        writer.writerow(["row", *names])
        for row, said in enumerate(labels.reshape(len(labels), -1).tolist()):
            writer.writerow([row, *said])
        buffer.write(text.getvalue().encode())
    beside = out.with_name(f".{out.name}.part")
    beside.write_bytes(buffer.getvalue())
    os.replace(beside, out)
