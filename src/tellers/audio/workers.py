"""Processes that draw pictures, and what becomes of the work of one that dies."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingExtra
from .decoding import Finding, Kind, Samples, beyond_scale, decode_bytes, is_silent, read_recording, silence
from .logmel import log_mel
from .store import Features, Stamp, content_key, read_picture, write_picture

# Clips are spread over processes; threads inside of each would stand in one another's way.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Every clip needs the same few megabytes again: glibc would give them back after each, page by page.
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**27), "MALLOC_TRIM_THRESHOLD_": str(2**27)}


@dataclass(frozen=True)
class Job:
    """One clip to be looked at: its number, its name, what is heard, and what is known of it.

    >>> Job(0, "a.wav", (("a.wav", 1.0),), None).heard
    (('a.wav', 1.0),)
    """

    row: int
    name: str
    heard: tuple[tuple[str, float], ...]
    known: "Made | None"


@dataclass(frozen=True)
class Made:
    """What a worker says of a clip."""

    stamp: Stamp | None
    key: str | None
    total: int | None
    finding: Finding | None
    known: bool


def stamp_of(heard: Sequence[tuple[str, float]]) -> Stamp | None:
    """Return the size and the time of change of what is heard, in two numbers; None where it cannot be seen.

    >>> stamp_of([("gone.wav", 1.0)]) is None
    True
    """
    try:
        seen = [os.stat(path) for path, _ in heard]
    except (OSError, ValueError):
        return None
    times = repr([(one.st_size, one.st_mtime_ns) for one in seen]).encode()
    changed = int.from_bytes(hashlib.blake2b(times, digest_size=7).digest(), "big")
    return sum(one.st_size for one in seen), changed


def make_picture(name: str, heard: Sequence[tuple[str, float]], *, folder: str, features: Features) -> Made:
    """Read what is heard, and draw and store its picture unless it is there; runs in a worker.

    >>> make_picture("gone.wav", [("gone.wav", 1.0)], folder="pictures", features=Features()).finding.detail
    'no such file'
    """
    stamp = stamp_of(heard)  # before reading: a file that changes meanwhile has another one next time
    contents = []
    for path, gain in heard:
        content = read_recording(path, name=name)
        if isinstance(content, Finding):
            return Made(None, None, None, content, False)
        contents.append((content, gain))
    key = content_key(features.text, contents)
    samples = _heard_together(name, contents, features)
    if isinstance(samples, Finding):
        return Made(stamp, key, None, samples, False)
    finding = silence(name, features.decoding) if is_silent(samples, features.decoding) else None
    place = Path(folder) / "pictures" / key[:2] / f"{key}.npy"
    there = read_picture(place, shape=features.shape, dtype=features.dtype)
    if there is not None:
        return Made(stamp, key, there[1], finding, True)
    picture = log_mel(samples, features.logmel).astype(features.dtype, copy=False)
    return Made(stamp, key, write_picture(place, picture), finding, False)


def _heard_together(
    name: str, contents: Sequence[tuple[bytes, float]], features: Features
) -> Samples | Finding:
    together: Samples | None = None
    for content, gain in contents:
        try:
            decoded = decode_bytes(content, features.decoding, path=name)
        except MissingExtra:
            raise
        except Exception as error:  # one recording that nobody thought of is no end of a hundred thousand
            return Finding(name, Kind.BROKEN, f"reading it fails: {type(error).__name__}")
        if isinstance(decoded, Finding):
            return decoded
        if gain != 1.0:
            decoded *= np.float32(gain)
        together = decoded if together is None else together + decoded
    assert together is not None  # a clip is at least one recording
    return together if len(contents) == 1 else beyond_scale(name, together) or together


def make_all(jobs: Sequence[Job], folder: str, features: Features) -> list[Made]:
    """Make the pictures of some jobs.

    >>> make_all([], "pictures", Features())
    []
    """
    return [make_picture(job.name, job.heard, folder=folder, features=features) for job in jobs]


class Workers:
    """So many processes, made again when one of them dies; or, for one, this process itself.

    >>> with open_workers(1) as workers:
    ...     workers.result(workers.submit([], "pictures", Features()), [], "pictures", Features())
    []
    >>> workers.close()
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self._many: Any = None
        self._single: Any = None

    def submit(self, jobs: Sequence[Job], folder: str, features: Features) -> "Future[list[Made]]":
        """Send jobs to a process that is free, or will be."""
        if self.n_jobs == 1:
            done: Future[list[Made]] = Future()
            done.set_result(make_all(jobs, folder, features))
            return done
        try:
            sent: Future[list[Made]] = self._there().submit(make_all, jobs, folder, features)
            return sent
        except BrokenProcessPool as error:
            lost: Future[list[Made]] = Future()
            lost.set_exception(error)
            return lost

    def result(
        self, future: "Future[list[Made]]", group: Sequence[Job], folder: str, features: Features
    ) -> list[Made | None]:
        """Return what came of jobs, with None for one that ends every process that looks at it."""
        try:
            return [*future.result()]
        except BrokenProcessPool:
            # Every task under way is lost with the process, most of them without guilt: one by one, then.
            return [self._alone(job, folder, features) for job in group if job.known is None]

    def _alone(self, job: Job, folder: str, features: Features) -> Made | None:
        # A process of its own: the others may be at work again.
        if self._single is None:
            self._single = _pool(1)
        try:
            made: Made = self._single.submit(make_all, [job], folder, features).result()[0]
            return made
        except BrokenProcessPool:
            self._single.shutdown(wait=True, kill_workers=True)
            self._single = None
            return None

    def _there(self) -> Any:
        broken = self._many is not None and self._many._flags.broken is not None
        if broken:
            self._many.shutdown(wait=True, kill_workers=True)
        if self._many is None or broken:
            self._many = _pool(self.n_jobs)
        return self._many

    def close(self) -> None:
        """End the processes."""
        for pool in (self._many, self._single):
            if pool is not None:
                pool.shutdown(wait=True, kill_workers=True)
        self._many = self._single = None


def _pool(n_jobs: int) -> Any:
    # Not the standard library's: that one runs the caller's script again in every worker.
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=n_jobs, env=_ONE_THREAD | _KEPT_MEMORY)


@contextmanager
def open_workers(n_jobs: int) -> Iterator[Workers]:
    """Have so many processes, and end them afterwards.

    >>> with open_workers(1) as workers:
    ...     workers.n_jobs
    1
    """
    workers = Workers(n_jobs)
    try:
        yield workers
    finally:
        workers.close()
