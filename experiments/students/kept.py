"""What is kept of a run on a GPU: results, and the ballots on the rows that were asked, a small file.

    python experiments/students/kept.py FOLDER [--out DIR]

FOLDER is what `train.py` left behind (`votes.npz`, `asked.npz`, `results.json`). With what this writes
anybody can account for the run again, without a GPU and without the images.
"""

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellers import Votes

HERE = Path(__file__).resolve().parent
BALLOTS = "ballots.npz"


@dataclass(frozen=True, eq=False)
class Run:
    """One seed at one goal: the votes on what was asked, and what came of it."""

    seed: int
    goal: float
    sigma: float
    votes: Votes
    labels: np.ndarray
    truth: np.ndarray


def keep(folder: Path, out: Path = HERE) -> Path:
    """Copy the results of a folder, and write the ballots on the rows that any of its seeds asked."""
    votes, asked = np.load(folder / "votes.npz"), np.load(folder / "asked.npz")
    results = json.loads((folder / "results.json").read_text())
    half_of = {f"{row['seed']}_{row['goal']}": int(row["half"]) for row in results}
    kept: dict[str, np.ndarray] = {}
    for half in sorted(set(half_of.values())):
        names = [name for name in half_of if half_of[name] == half]
        rows = np.unique(np.concatenate([asked[f"asked_{name}"] for name in names])).astype(np.int64)
        kept[f"ballots_{half}"] = votes[f"ballots_{half}"][:, rows].astype(np.uint8)
        kept[f"truth_{half}"] = votes["truth"][rows].astype(np.uint8)
        for name in names:
            kept[f"asked_{name}"] = np.searchsorted(rows, asked[f"asked_{name}"]).astype(np.int16)
            kept[f"labels_{name}"] = asked[f"labels_{name}"].astype(np.int8)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / BALLOTS, **kept)  # type: ignore[arg-type]
    if folder.resolve() != out.resolve():
        shutil.copyfile(folder / "results.json", out / "results.json")
    return out / BALLOTS


def load(folder: Path) -> tuple[list[dict[str, Any]], list[Run]]:
    """Return the results of a folder, and the runs behind them where their ballots are kept.

    Raises ValueError where ballots and results are not of one run.
    """
    results = json.loads((folder / "results.json").read_text())
    if not (folder / BALLOTS).is_file():
        return results, []
    kept, runs = np.load(folder / BALLOTS), []
    ballots = {name: kept[name].astype(np.int64) for name in kept.files if name.startswith("ballots_")}
    first = {(row["seed"], row["goal"]): row for row in reversed(results)}
    for (seed, goal), row in sorted(first.items()):
        name = f"{seed}_{goal}"
        if f"asked_{name}" not in kept.files or len(kept[f"asked_{name}"]) != row["n_labels"]:
            raise ValueError(
                f"Expected ballots on {row['n_labels']} rows of seed {seed}, goal {goal}, got others in "
                f"{BALLOTS}. Keep them again: python experiments/students/kept.py FOLDER"
            )
        asked = kept[f"asked_{name}"].astype(np.int64)
        votes = Votes.from_ballots(ballots[f"ballots_{row['half']}"][:, asked], n_classes=10)
        truth = kept[f"truth_{row['half']}"][asked].astype(np.int64)
        runs.append(Run(seed, goal, row["sigma"], votes, kept[f"labels_{name}"].astype(np.int64), truth))
    return results, runs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    written = keep(args.folder, args.out)
    print(f"{written}: {written.stat().st_size:,} bytes")
