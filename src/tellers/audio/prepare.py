"""Folders of recordings to stored pictures: in parallel, once for each content, whatever interrupts it.

A run can be stopped at any time and begun again; what was made is found. Recordings come and go one by one,
so that memory does not grow with their number, and one that cannot be used is a line in a table and no end.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ClipsRefused, require_count
from .decoding import Finding, Kind, findings_table
from .store import Features, Picture, Store, sole_writer
from .workers import Job, Made, Workers, open_workers, stamp_of

Heard: TypeAlias = str | PathLike[str] | Sequence[tuple[str | PathLike[str], float]]
"""What is heard in a clip: a recording, or several at once, each with its gain."""
Answer = Literal["skip", "refuse", "keep"]
Progress = Callable[[int, int], object]

_AT_ONCE = 8  # clips in a task: enough to hide the way there and back, few enough to be done again


@dataclass(frozen=True)
class Outcome:
    """What came of one clip: its number, the key of its picture, any finding, and whether it was known.

    >>> Outcome(0, "3f9a", None, True).usable
    True
    """

    row: int
    key: str | None
    finding: Finding | None
    known: bool

    @property
    def usable(self) -> bool:
        """Return whether there is a picture."""
        return self.key is not None


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """The pictures of a run, by clip number, and what could not be used.

    `rows` are the clips that have a picture, in order; `findings` name the others, and those that were kept
    in spite of one. `n_known` says how many were there already.

    >>> import tempfile
    >>> from tellers.audio.generator import make_city
    >>> from tellers.audio.decoding import Decoding
    >>> from tellers.audio.logmel import LogMel
    >>> features = Features(decoding=Decoding(rate=16_000, seconds=1.0), logmel=LogMel(rate=16_000, hop=160))
    >>> clips = make_city(tempfile.mkdtemp(), 4, seed=7, seconds=1.0)
    >>> prepared = prepare_clips([*clips.paths, "gone.wav"], tempfile.mkdtemp(), features=features)
    >>> prepared, prepared.rows.tolist()
    (Prepared(n_clips=5, n_pictures=4, n_findings=1), [0, 1, 2, 3])
    >>> prepared.pictures([0, 2]).shape
    (2, 101, 64)
    >>> print(prepared.table())
    1 recording cannot be used: 1 missing
      missing      gone.wav  no such file
    """

    store_folder: Path
    features: Features
    rows: NDArray[np.int64]
    keys: NDArray[np.bytes_]
    findings: tuple[Finding, ...]
    n_clips: int
    n_known: int

    def pictures(self, rows: ArrayLike | None = None) -> Picture:
        """Return the pictures of some clips in one array, by clip number; of all that have one by default."""
        wanted = self.rows if rows is None else np.asarray(rows, dtype=np.int64)
        at = np.searchsorted(self.rows, wanted)
        there = at < len(self.rows)
        there[there] = self.rows[at[there]] == wanted[there]
        if not there.all():
            missing = int(wanted[~there][0])
            raise KeyError(f"Expected clips with a picture, clip {missing} has none. Take numbers from rows.")
        stack = np.empty((len(wanted), *self.features.shape), dtype=self.features.dtype)
        with Store(self.store_folder, self.features) as store:
            for i, place in enumerate(at):
                stack[i] = store.load(self.keys[place].decode())
        return stack

    def table(self, *, n_rows: int = 20) -> str:
        """Return the findings as a table in text."""
        return findings_table(self.findings, n_rows=n_rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return (
            f"Prepared(n_clips={self.n_clips}, n_pictures={len(self.rows)}, n_findings={len(self.findings)})"
        )


def prepare_clips(
    recordings: Sequence[Heard],
    folder: str | PathLike[str],
    *,
    features: Features | None = None,
    n_jobs: int = 1,
    on_finding: Answer | Mapping[Kind, Answer] = "skip",
    progress: Progress | None = None,
    recheck: bool = False,
) -> Prepared:
    """Make the pictures of recordings, those that are not in the folder yet, and return them all.

    `on_finding` is "skip", "refuse", or one of them for each kind (a silent clip may also be "keep"); to
    refuse is to raise `ClipsRefused` with the whole table, after all clips were looked at. `n_jobs` above one
    works in so many processes and also survives a recording that kills its reader. A file of the size and
    time of change that it had before is not read again, unless `recheck`. `progress` is called with how many
    are done, of how many.

    >>> import tempfile
    >>> prepare_clips(["gone.wav"], tempfile.mkdtemp(), on_finding="refuse")
    Traceback (most recent call last):
        ...
    tellers.errors.ClipsRefused: 1 recording cannot be used: 1 missing
      missing      gone.wav  no such file
    Mend or leave out these recordings, or pass on_finding="skip".
    """
    features = features or Features()
    answers = _answers(on_finding)
    total = len(recordings)
    rows: list[int] = []
    keys = bytearray()
    findings: list[Finding] = []
    refused, n_known, done = False, 0, 0
    for outcome in stream_clips(
        recordings, folder, features=features, n_jobs=n_jobs, keep_silent=answers[Kind.SILENT] == "keep",
        recheck=recheck,
    ):  # fmt: skip
        done += 1
        n_known += outcome.known
        if outcome.finding is not None:
            findings.append(outcome.finding)
            refused |= answers[outcome.finding.kind] == "refuse"
        if outcome.key is not None:
            rows.append(outcome.row)
            keys += outcome.key.encode()
        if progress is not None:
            progress(done, total)
    if refused:
        what = findings_table(f for f in findings if answers[f.kind] == "refuse")
        raise ClipsRefused(
            f'{what}\nMend or leave out these recordings, or pass on_finding="skip".', findings=findings
        )
    return Prepared(
        store_folder=Path(folder), features=features, rows=np.array(rows, dtype=np.int64),
        keys=np.frombuffer(bytes(keys), dtype="S40"), findings=tuple(findings), n_clips=done, n_known=n_known,
    )  # fmt: skip


def stream_clips(
    recordings: Iterable[Heard],
    folder: str | PathLike[str],
    *,
    features: Features,
    n_jobs: int = 1,
    keep_silent: bool = False,
    recheck: bool = False,
) -> Iterator[Outcome]:
    """Make pictures of recordings as they come, and yield what came of each, in their order.

    Nothing is kept but what is under way, so that recordings may come without end.

    >>> import tempfile
    >>> outcomes = stream_clips(["gone.wav"], tempfile.mkdtemp(), features=Features())
    >>> [outcome.finding.kind for outcome in outcomes]
    [<Kind.MISSING: 'missing'>]
    """
    require_count(n_jobs=n_jobs)
    store_folder = Path(folder) / features.name
    with sole_writer(store_folder), Store(folder, features) as store, open_workers(int(n_jobs)) as workers:
        store.sweep()
        jobs = _jobs(recordings, store, recheck=recheck)
        for row, name, found in _in_order(jobs, workers, store):
            if isinstance(found, Made):
                usable = found.finding is None or (found.finding.kind is Kind.SILENT and keep_silent)
                key = found.key if usable else None
                yield Outcome(row, key, found.finding, found.known)
            else:
                yield Outcome(row, None, Finding(name, Kind.CRASHED, "reading it ends the process"), False)


def _jobs(recordings: Iterable[Heard], store: Store, *, recheck: bool) -> Iterator[Job]:
    for row, recording in enumerate(recordings):
        if isinstance(recording, (str, os.PathLike)):
            heard: tuple[tuple[str, float], ...] = ((os.fspath(recording), 1.0),)
            name = heard[0][0]
        else:
            heard = tuple((os.fspath(path), float(gain)) for path, gain in recording)
            name = " + ".join(f"{gain:g} x {path}" for path, gain in heard)
        stamp = None if recheck else stamp_of(heard)
        remembered = None if stamp is None else store.recall(_index_name(heard), stamp)
        known = None
        if remembered is not None:
            key, finding = remembered
            if finding is not None:
                finding = Finding(name, finding.kind, finding.detail)
            known = Made(stamp, key, None, finding, True)
        yield Job(row, name, heard, known)


def _index_name(heard: Sequence[tuple[str, float]]) -> str:
    return "\0".join(f"{os.path.abspath(path)}\0{gain.hex()}" for path, gain in heard)


def _in_order(jobs: Iterator[Job], workers: Workers, store: Store) -> Iterator[tuple[int, str, Made | None]]:
    """Yield what came of each job, in order, with so many tasks under way that no worker waits."""
    under_way: deque[tuple[list[Job], Future[list[Made]] | None]] = deque()
    folder, features = str(store.folder), store.features

    def finish() -> Iterator[tuple[int, str, Made | None]]:
        group, future = under_way.popleft()
        made = iter(workers.result(future, group, folder, features)) if future is not None else iter(())
        found = [job.known if job.known is not None else next(made) for job in group]
        store.record(
            (_index_name(job.heard), one.stamp, one.key, one.total, one.finding)
            for job, one in zip(group, found)
            if job.known is None and one is not None and one.key is not None and one.stamp is not None
        )
        for job, one in zip(group, found):
            yield job.row, job.name, one

    while True:
        # Known clips ride along with unknown ones, so that order is kept and nothing piles up.
        group: list[Job] = []
        n_new = 0
        for job in itertools.islice(jobs, 64):
            group.append(job)
            n_new += job.known is None
            if n_new == _AT_ONCE:
                break
        if not group:
            break
        new = [job for job in group if job.known is None]
        under_way.append((group, workers.submit(new, folder, features) if new else None))
        if len(under_way) > 2 * workers.n_jobs:
            yield from finish()
    while under_way:
        yield from finish()


def _answers(on_finding: Answer | Mapping[Kind, Answer]) -> dict[Kind, Answer]:
    given = dict.fromkeys(Kind, on_finding) if isinstance(on_finding, str) else dict(on_finding)
    answers: dict[Kind, Answer] = {kind: given.get(kind, "skip") for kind in Kind}
    for kind, answer in answers.items():
        if answer not in ("skip", "refuse") and not (answer == "keep" and kind is Kind.SILENT):
            raise ValueError(
                f"Expected 'skip' or 'refuse' (or 'keep', for silent clips) on a {kind} clip, got {answer!r}."
            )
    return answers
