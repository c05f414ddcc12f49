"""Waves to pictures, dealt and mixed: what teachers, students and tests of each task hear.

ESC-10 comes from a folder, or from waves packed before (`pack.py`) for a machine that cannot decode files.
The city is made up on the spot. Clips are dealt by recording, and mixed with clips of their own part alone.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from plan import (
    ALONE,
    CITY_NOISE,
    CITY_POOL,
    CITY_PRIVATE,
    CITY_TEST,
    FOLDS,
    PICTURES,
    RATE,
    STUDENT,
    TEACHERS,
    TIMES,
    TIMES_JUDGED,
    Task,
)

from tellers.data import Clips
from tellers.data.sound import log_mel, make_sound
from tellers.data.sound.generator import SOUNDS, make_label_sets
from tellers.runs.sound import Deal, deal_clips, mix_within

Heard = tuple[np.ndarray, np.ndarray]  # which two clips, and how loud each
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Waves:
    """Samples of clips, 16-bit, with the table of the clips."""

    samples: np.ndarray
    clips: Clips


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures with their labels, and whose they are: a teacher's number, or nobody's."""

    X: np.ndarray
    Y: np.ndarray
    owner: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the part, so that processes can map it."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("X", "Y", "owner"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "Part":
        """Map a part that was written."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "Y", "owner")))


def read_waves(folder: Path, *, seconds: float = 5.0) -> Waves:
    """Decode ESC-10."""
    from tellers.data.sound import Decoding, decode, read_esc

    clips = read_esc(folder)
    found = [decode(path, Decoding(rate=RATE, seconds=seconds)) for path in clips.paths]
    return Waves(np.round(np.clip(np.stack(found), -1, 1) * 32767).astype(np.int16), clips)


def pack_waves(waves: Waves, path: Path) -> None:
    """Write waves and their table into one file."""
    clips = waves.clips
    assert clips.sources is not None
    assert clips.folds is not None
    np.savez_compressed(
        path,
        samples=waves.samples,
        Y=clips.Y,
        names=np.array(clips.label_names),
        folds=clips.folds,
        sources=clips.sources.astype(str),
    )


def unpack_waves(path: Path) -> Waves:
    """Read waves that were packed."""
    kept = np.load(path)
    clips = Clips(
        name="ESC-10",
        paths=tuple(Path(f"{n}.wav") for n in range(len(kept["Y"]))),
        Y=kept["Y"],
        label_names=tuple(kept["names"].tolist()),
        sources=kept["sources"],
        folds=kept["folds"],
    )
    return Waves(kept["samples"], clips)


def thinned(Y: np.ndarray, owner: np.ndarray, *, keep: float, seed: int) -> np.ndarray:
    """Return the rows that are left when the first half of the labels is made rare, part by part."""
    rare = Y[:, : Y.shape[1] // 2].any(axis=1)
    left = []
    for teacher in np.unique(owner):
        draw = np.random.default_rng([seed, int(teacher)])
        rows = np.flatnonzero(owner == teacher)
        left.append(rows[~rare[rows] | (draw.random(len(rows)) < keep)])
    return np.sort(np.concatenate(left))


def draw_pictures(samples: np.ndarray, heard: Heard, *, n_jobs: int) -> np.ndarray:
    """Return the picture of every mixture, in half precision."""
    pairs, gains = heard
    groups = [slice(at, at + _AT_ONCE) for at in range(0, len(pairs), _AT_ONCE)]
    mixed = (_mix(samples, pairs[group], gains[group]) for group in groups)
    return np.concatenate(_spread(_draw, mixed, n_jobs=n_jobs))


def make_parts(
    waves: Waves,
    task: Task,
    folder: Path,
    *,
    n_jobs: int,
    folds: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
) -> None:
    """Deal, mix and draw ESC-10: parts of every fold and every number of teachers, the pool and the test."""
    clips = waves.clips
    assert clips.folds is not None
    for fold in FOLDS[task] if folds is None else folds:
        deals = [
            deal_sources_evenly(clips, n, seed=fold, student=STUDENT, test=clips.folds == fold)
            for n in TEACHERS[task]
        ]
        baseline = deals[0]
        draw = partial(draw_pictures, waves.samples, n_jobs=n_jobs)
        # Pool and test are mixed once, with the baseline: all ensembles hear the same.
        for name, rows, times in (("pool", baseline.student, TIMES), ("test", baseline.test, TIMES_JUDGED)):
            heard, Y, _ = _heard(clips, baseline, rows, task, seed=fold, times=times)
            Part(draw(heard), Y, np.full(len(Y), -1)).save(folder / f"{task}-{fold}" / name)
        for n_teachers, deal in zip(TEACHERS[task], deals):
            if sizes is not None and n_teachers not in sizes:
                continue
            every = np.concatenate(deal.teachers)
            heard, Y, whose = _heard(clips, deal, every, task, seed=fold, times=TIMES)
            Part(draw(heard), Y, whose).save(folder / f"{task}-{fold}" / f"teachers-{n_teachers}")


def deal_sources_evenly(
    clips: Clips, n_teachers: int, *, seed: int, student: float, test: np.ndarray
) -> Deal:
    """Deal sources in equal shares, as the thesis does: a run of the product seats each by a hash instead."""
    assert clips.sources is not None
    number: dict[object, int] = {}
    unit = np.array([number.setdefault(source, len(number)) for source in clips.sources.tolist()])
    apart = np.zeros(len(number), dtype=bool)
    apart[unit[test]] = True
    dealt = deal_clips(len(number), n_teachers, seed=seed, student=student, test=apart, even=False)
    parts = [np.flatnonzero(np.isin(unit, units)) for units in (*dealt.teachers, dealt.student, dealt.test)]
    return replace(
        dealt, teachers=tuple(parts[:-2]), student=parts[-2], test=parts[-1], unit="one source",
        n_clips=len(clips), n_places=sum(map(len, parts[:-2])), n_set_apart=sum(map(len, parts[:-2])),
    )  # fmt: skip


def _heard(
    clips: Clips, deal: Deal, rows: np.ndarray, task: Task, *, seed: int, times: int
) -> tuple[Heard, np.ndarray, np.ndarray]:
    """Return what is heard in the clips of some parts, with labels and owners."""
    owner = np.full(len(clips), -1)
    for teacher, part in enumerate(deal.teachers):
        owner[part] = teacher
    if task == "single":
        pairs, gains, Y = np.stack([rows, rows], axis=1), np.tile([1.0, 0.0], (len(rows), 1)), clips.Y[rows]
    else:
        mixed = mix_within(clips, deal, seed=seed, times=times, alone=ALONE)
        chosen = np.isin(mixed.pairs[:, 0], rows)
        pairs, gains, Y = mixed.pairs[chosen], mixed.gains[chosen], mixed.Y[chosen]
    order = np.random.default_rng([seed, 3]).permutation(len(pairs))  # a query's place says nothing
    return (pairs[order], gains[order]), Y[order].astype(np.int8), owner[pairs[order, 0]].astype(np.int16)


def make_city(n_clips: int, *, seed: int, n_jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures and labels of made-up street sounds."""
    groups = [range(at, min(at + _AT_ONCE, n_clips)) for at in range(0, n_clips, _AT_ONCE)]
    found = _spread(partial(_street, seed=seed), groups, n_jobs=n_jobs)
    return np.concatenate([X for X, _ in found]), np.concatenate([Y for _, Y in found])


def make_city_parts(folder: Path, *, n_jobs: int) -> None:
    """Deal the city: the same clips anew in every fold."""
    X, Y = make_city(CITY_PRIVATE + CITY_POOL + CITY_TEST, seed=7, n_jobs=n_jobs)
    for fold in FOLDS["city"]:
        order = np.random.default_rng(fold).permutation(len(X))
        pool, test, private = np.split(order, [CITY_POOL, CITY_POOL + CITY_TEST])
        for name, rows in (("pool", pool), ("test", test)):
            Part(X[rows], Y[rows], np.full(len(rows), -1)).save(folder / f"city-{fold}" / name)
        for n_teachers in TEACHERS["city"]:
            owner = (np.arange(CITY_PRIVATE) % n_teachers).astype(np.int16)
            Part(X[private], Y[private], owner).save(folder / f"city-{fold}" / f"teachers-{n_teachers}")


def _spread(do: Callable[[Any], Any], groups: Iterable[Any], *, n_jobs: int) -> list[Any]:
    if n_jobs == 1:
        return [do(group) for group in groups]
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("fork")) as pool:
        return list(pool.map(do, groups))


def _street(numbers: range, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    pictures, labels = [], []
    for number in numbers:
        draw = np.random.default_rng([seed, number])
        names = make_label_sets(1, draw, n_labels=(1, 3))[0]
        pictures.append(log_mel(make_sound(names, draw, rate=RATE, noise=CITY_NOISE), PICTURES))
        labels.append([int(name in names) for name in SOUNDS])
    return np.stack(pictures).astype(np.float16), np.array(labels, dtype=np.int8)


def _mix(samples: np.ndarray, pairs: np.ndarray, gains: np.ndarray) -> np.ndarray:
    loud = samples[pairs].astype(np.float32) / 32767
    mixed: Any = np.einsum("nkt,nk->nt", loud, gains.astype(np.float32))
    return np.asarray(mixed)


def _draw(mixed: np.ndarray) -> np.ndarray:
    return log_mel(mixed, PICTURES).astype(np.float16)
