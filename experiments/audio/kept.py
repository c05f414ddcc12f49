"""What is kept of runs on a GPU: ballots on the pool, scores, and a few students' answers; small files.

    python experiments/audio/kept.py FOLDER [FOLDER ...] [--out DIR]

FOLDERs are what `train.py` left behind. With what this writes anybody can account for the runs again and
print every table, without a GPU and without the sounds.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from plan import ABLATED, FOLDS, PERCENT, TEACHERS, Task

HERE = Path(__file__).resolve().parent
BALLOTS, ANSWERS, RESULTS = "ballots.npz", "answers.npz", "results.json"
SCORES = ("map", "auc", "precision", "recall", "macro_f1", "micro_f1", "accuracy")
# Whose answers on the test are kept, for curves: the baseline, and students of these labels.
CURVES = ("truth", "noiseless")


@dataclass(frozen=True, eq=False)
class Kept:
    """Ballots in percent, true labels, scores by fold, and answers on the test."""

    ballots: dict[str, np.ndarray]
    answers: dict[str, np.ndarray]
    scores: dict[str, dict[str, float]]

    def said(self, task: Task, fold: int, network: str, n_teachers: int) -> np.ndarray:
        """Return what teachers said of the pool, teachers x queries x labels, in percent."""
        found = self.ballots[f"{task}/{fold}/{network}/{n_teachers}"]
        if task != "city":
            return found
        n_pool, n_labels = self.truth(task, fold).shape
        bits = np.unpackbits(found, count=n_teachers * n_pool * n_labels)
        return bits.reshape(n_teachers, n_pool, n_labels) * np.uint8(PERCENT)

    def truth(self, task: Task, fold: int, part: str = "pool") -> np.ndarray:
        """Return the true labels of the pool, or of the test."""
        return self.ballots[f"{task}/{fold}/{part}"].astype(np.int64)

    def folds(self, task: Task, network: str) -> tuple[int, ...]:
        """Return the folds in which every ensemble of a network is there."""
        return tuple(
            fold
            for fold in FOLDS[task]
            if all(f"{task}/{fold}/{network}/{n}" in self.ballots for n in TEACHERS[task])
        )

    def scores_of(self, task: Task, network: str, name: str, score: str) -> list[float]:
        """Return a score in every fold that has it."""
        rows = (self.scores.get(f"{task}/{fold}/{network}/{name}") for fold in FOLDS[task])
        return [row[score] for row in rows if row is not None]


def merge(folders: list[Path]) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, np.ndarray]]:
    """Return what several folders hold together: what was said, scores, and true labels."""
    said: dict[str, np.ndarray] = {}
    scores: dict[str, Any] = {}
    truth: dict[str, np.ndarray] = {}
    for folder in folders:
        with np.load(folder / "said.npz") as found:
            said |= {name: found[name] for name in found.files}
        scores |= json.loads((folder / "scores.json").read_text())
        with np.load(folder / "truth.npz") as found:
            truth |= {name: found[name] for name in found.files}
    return said, scores, truth


def gather(scores: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return scores fold by fold: of students as they are, of teachers and ablations the mean.

    A mean of which some networks are missing, because the seconds were over, is left out.
    """
    groups: dict[str, list[dict[str, float]]] = {}
    for key, row in scores.items():
        task, fold, network, kind, *rest = key.split("/")
        name = "/".join(rest if kind == "student" else rest[:-1])
        groups.setdefault(f"{task}/{fold}/{network}/{kind}/{name}", []).append(row)
    return {
        key: {name: round(float(np.nanmean([row[name] for row in rows])), 4) for name in SCORES}
        | {"n": len(rows)}
        for key, rows in sorted(groups.items())
        if len(rows) == _n_networks(key)
    }


def _n_networks(group: str) -> int:
    _, _, network, kind, name = group.split("/", maxsplit=4)
    if kind == "student":
        return 1
    return int(name) if kind == "teacher" else ABLATED[network]


def pack(said: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ballots by ensemble, those of the city as yes and no alone, and the answers for curves."""
    ballots: dict[str, Any] = {name: values.astype(np.uint8) for name, values in truth.items()}
    answers: dict[str, Any] = {}
    for key in said:
        task, fold, network, kind, *rest = key.split("/")
        where = f"{task}/{fold}/{network}"
        if kind == "teacher" and rest[2] == "pool" and rest[1] == "0":
            n = int(rest[0])
            names = [f"{where}/teacher/{n}/{teacher}/pool" for teacher in range(n)]
            if all(name in said for name in names):
                every = np.stack([said[name] for name in names])
                ballots[f"{where}/{n}"] = np.packbits(every > PERCENT // 2) if task == "city" else every
        elif kind == "teacher" and rest[2] == "test":
            answers[f"{where}/baseline"] = said[key]
        elif kind == "student" and rest[1] in CURVES and task != "city":
            answers[f"{where}/student/{rest[0]}/{rest[1]}"] = said[key]
    return ballots, answers


def keep(folders: list[Path], out: Path = HERE) -> list[Path]:
    """Write the three small files."""
    said, scores, truth = merge(folders)
    ballots, answers = pack(said, truth)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / BALLOTS, **ballots)
    np.savez_compressed(out / ANSWERS, **answers)
    lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in gather(scores).items()]
    (out / RESULTS).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return [out / BALLOTS, out / ANSWERS, out / RESULTS]


def load(folder: Path = HERE) -> Kept:
    """Read what was kept."""

    def arrays(name: str) -> dict[str, np.ndarray]:
        with np.load(folder / name) as found:
            return {key: found[key] for key in found.files}

    return Kept(arrays(BALLOTS), arrays(ANSWERS), json.loads((folder / RESULTS).read_text()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    for written in keep(args.folders, args.out):
        print(f"{written}: {written.stat().st_size:,} bytes")
