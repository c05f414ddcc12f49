"""Teachers of clips, and what they said of the public pool, kept in a folder: asked once, used many times.

    FOLDER/settings.json     what was trained, on which collection
    FOLDER/dealt.npz         who has which clip, or mixture, and where its picture is
    FOLDER/teachers/         the networks
    FOLDER/votes.npz         what they say of the pool; test_votes.npz: of the test clips

Pictures are read a teacher's part at a time, so that many clips take no more memory than few.
Everything in it is as private as the recordings are.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.clips import load_pictures
from ..datasets.multilabel import MultilabelDataset
from ..errors import require_count
from ..label_votes import LabelVotes
from ..pipeline import Voted
from ..pipeline.label_data import LabelTables
from ..rows import numeric_rows
from ..teachers import LabelEnsemble, read_label_votes, save_label_votes
from ..teachers.label_ensemble import label_model
from ..teachers.partition import Partition, Protected
from ..teachers.running import train_each
from ..teachers.store import hold, write_whole
from .collection import Collection, read_collection
from .dealing import Deal, deal_clips
from .mixtures import mix_within

Show = Callable[[str, int, int], object]
_NOBODY, _STUDENT, _TEST = -1, -2, -3
_FILES = ("settings.json", "dealt.npz", "votes.npz", "test_votes.npz")


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """How clips are dealt and teachers trained.

    `student` is the share of clips for the public pool, `test` that for the test (of all clips), or
    `test_fold` the publisher's own. `by_source` deals and protects whole sources. `mix` makes so many
    mixtures of every clip with others of its part (0: clips as they are), a share `alone` of them without
    another. `resolution` counts votes in parts. `tagger` are parameters of `AudioTagger`.

    >>> Teaching(n_teachers=10, seed=7, tagger={"iterations": 60}).student
    0.2
    """

    n_teachers: int
    seed: int
    student: float = 0.2
    test: float = 0.15
    test_fold: str = ""
    by_source: bool = False
    mix: int = 0
    alone: float = 0.2
    resolution: int = 1
    tagger: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_count(n_teachers=self.n_teachers, resolution=self.resolution)
        require_count(0, seed=self.seed, mix=self.mix)


@dataclass(frozen=True, eq=False, repr=False)
class Taught:
    """Trained teachers with their votes, and the tables that these are of.

    Rows are clips, or mixtures of two. `owner` says whose a row is: a teacher's number, the student's, the
    test's or nobody's; `pictures` where its picture lies in the collection.

    >>> import tempfile
    >>> from tellers.audio.collection import features_for, prepare_collection
    >>> from tellers.audio.generator import make_city
    >>> place = Path(tempfile.mkdtemp())
    >>> clips = make_city(place / "sounds", 40, seed=7, seconds=0.5)
    >>> collection = prepare_collection(clips, place, features=features_for(rate=16_000, seconds=0.5))
    >>> tagger = {"iterations": 2, "batch_size": 4, "device": "cpu"}
    >>> taught = teach(collection, place / "ears", Teaching(n_teachers=3, seed=7, tagger=tagger), n_jobs=1)
    >>> taught, taught.votes, taught.truth.shape
    (Taught(<private>, n_teachers=3, n_pool=6), LabelVotes(<private>, n_queries=6, n_teachers=3, n_labels=4),
     (6, 4))
    >>> taught.dealt()[0].pool.shape
    (6, 1664)
    >>> read_taught(place / "ears").voted(), taught.rows(taught.pool).shape, taught.partition()
    (Voted(<private>, n_queries=6, n_teachers=3), (6, 1664), Partition(n_teachers=3, unit='one clip'))
    """

    folder: Path
    settings: Teaching
    collection: Collection
    owner: NDArray[np.int64]
    Y: NDArray[np.int8]
    pictures: tuple[str | None, ...]
    unit: Protected

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the labels."""
        return self.collection.clips.label_names

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of a picture."""
        return self.collection.features.shape

    @property
    def pool(self) -> NDArray[np.int64]:
        """Return the rows of the public pool."""
        return np.flatnonzero(self.owner == _STUDENT)

    @property
    def test(self) -> NDArray[np.int64]:
        """Return the rows of the test."""
        return np.flatnonzero(self.owner == _TEST)

    @property
    def truth(self) -> NDArray[np.int64]:
        """Return the labels of the pool, as whoever collected it knows them."""
        return self.Y[self.pool].astype(np.int64)

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return flat pictures of some rows."""
        stack = load_pictures(self.collection.table, [self.pictures[i] for i in numbers])
        return stack.reshape(len(stack), -1)

    @cached_property
    def votes(self) -> LabelVotes:
        """Return what the teachers say of the pool. Private."""
        return read_label_votes(self.folder / "votes.npz").votes

    @property
    def test_votes(self) -> LabelVotes | None:
        """Return what they say of the test clips, where there are some. Private."""
        place = self.folder / "test_votes.npz"
        return read_label_votes(place).votes if place.exists() else None

    def voted(self) -> Voted:
        """Return the votes with their tables and parts, as the second half of a run takes them."""
        tables, partition = self.dealt()
        return Voted(tables=tables, partition=partition, votes=self.votes, test_votes=self.test_votes)

    def dealt(self) -> tuple[LabelTables, Partition]:
        """Return the tables of teachers, student and test, and the teachers' parts."""
        table = self._table(np.flatnonzero(self.owner >= 0))
        test = self._table(self.test) if self.test.size else None
        notes = (*self.collection.clips.notes, *_notes(self))
        return LabelTables(table, self.rows(self.pool), self.truth, test, notes), self.partition()

    def partition(self) -> Partition:
        """Return the teachers' parts, by numbers among the private rows."""
        whose = self.owner[self.owner >= 0]
        parts = tuple(np.flatnonzero(whose == teacher) for teacher in range(self.settings.n_teachers))
        return Partition(parts, unit=self.unit)

    def _table(self, rows: NDArray[np.int64]) -> MultilabelDataset:
        return MultilabelDataset(
            name=self.collection.clips.name, X=self.rows(rows), Y=self.Y[rows], label_names=self.label_names,
            image_shape=self.shape,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Taught(<private>, n_teachers={self.settings.n_teachers}, n_pool={len(self.pool)})"


def teach(
    collection: Collection,
    folder: str | PathLike[str],
    settings: Teaching,
    *,
    n_jobs: int | None = None,
    show: Show | None = None,
) -> Taught:
    """Deal clips, train a network for each teacher, and keep what they say of the pool; resumable.

    `show(step, done, total)` is called as it goes on: "data", "pictures", "teachers", "votes". Called again
    with the same settings, what is there is taken; with others, it is refused. See `Taught` for an example.

    Guarantee: a change of one clip (or source, with `by_source`) changes one teacher, the pool or the test.
    Assumes:   clips are dealt before they are looked at, and mixed within their part.
    Reference: Papernot et al. 2017, section 2.1; the thesis on private audio tagging, section 4.3.

    >>> settings = Teaching(n_teachers=3, seed=7, by_source=True)
    >>> teach(read_collection("nowhere"), "ears", settings)
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    place, say = Path(folder), show or (lambda *_: None)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold(place / ".lock", place=place, who="another training"):
        written = {"collection": str(collection.folder.absolute()), "teaching": asdict(settings)}
        begun = _settings(place, written)
        say("data", 0, 0)
        if not begun or not (place / "dealt.npz").exists():
            _deal(collection, place, settings, n_jobs=n_jobs, say=say)
            write_whole(place / "settings.json", (json.dumps(written, indent=1) + "\n").encode())
        taught = read_taught(place)
        if (place / "votes.npz").exists() and ((place / "test_votes.npz").exists() or not taught.test.size):
            return taught
        say("teachers", 0, settings.n_teachers)
        ensemble = _train(taught, n_jobs=n_jobs, say=say)
        say("votes", 0, 0)
        if taught.test.size:
            save_label_votes(place / "test_votes.npz", ensemble.vote(taught.rows(taught.test)))
        save_label_votes(place / "votes.npz", ensemble.vote(taught.rows(taught.pool)))
    return taught


@dataclass(frozen=True, eq=False, repr=False)
class _Pictures:
    """The private rows of teachers, read part by part: one teacher's pictures are in memory at a time."""

    taught: Taught
    private: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.private)

    def __getitem__(self, part: NDArray[np.int64], /) -> NDArray[Any]:
        return numeric_rows(self.taught.rows(self.private[part]))


def _train(taught: Taught, *, n_jobs: int | None, say: Show) -> LabelEnsemble:
    settings, n_labels = taught.settings, len(taught.label_names)
    private = np.flatnonzero(taught.owner >= 0)
    teachers = train_each(
        label_model(tagger_of(settings, taught.shape), n_labels=n_labels), _Pictures(taught, private),
        taught.Y[private].astype(np.int64), taught.partition(), made_for={"n_labels": n_labels},
        seed=settings.seed, folder=taught.folder / "teachers", n_jobs=n_jobs,
        progress=lambda done, total: say("teachers", done, total),
    )  # fmt: skip
    return LabelEnsemble(teachers, n_labels, resolution=settings.resolution)


def read_taught(folder: str | PathLike[str]) -> Taught:
    """Return teachers that were trained in a folder.

    >>> read_taught("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of trained teachers, found no settings.json in nowhere. ...
    """
    place = Path(folder)
    try:
        said = json.loads((place / "settings.json").read_bytes())
        settings = Teaching(**said["teaching"])
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"Expected a folder of trained teachers, found no settings.json in {place}. "
            "Train them: tellers audio train"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"Expected whole settings in {place}, got others. Train again.") from error
    collection = read_collection(said["collection"])
    with np.load(place / "dealt.npz", allow_pickle=False) as file:
        owner, Y, pictures, unit = (file[name] for name in ("owner", "Y", "pictures", "unit"))
    dealt_by: Protected = "one source" if str(unit) == "one source" else "one clip"
    return Taught(
        place, settings, collection, owner, Y, tuple(p or None for p in pictures.tolist()), dealt_by
    )


def tagger_of(settings: Teaching, shape: tuple[int, int]) -> Any:
    """Return the network of a teacher before it is trained.

    >>> tagger_of(Teaching(n_teachers=3, seed=7, tagger={"iterations": 5}), (101, 64)).shape
    (101, 64)
    """
    from .tagger import AudioTagger

    return AudioTagger(**{**settings.tagger, "shape": shape})


def _settings(place: Path, written: dict[str, Any]) -> bool:
    """Say whether a training with these settings was begun here, or refuse other ones."""
    file = place / "settings.json"
    if not file.exists():
        others = [entry.name for entry in place.iterdir() if not entry.name.startswith(".")]
        if others and set(others) - {*_FILES, "teachers"}:
            raise ValueError(
                f"Expected a new or empty folder at {place}, got one that holds {sorted(others)[0]}. "
                "Take another one (--out)."
            )
        return False
    there = json.loads(file.read_bytes())
    if there != json.loads(json.dumps(written)):
        changed = sorted(
            name
            for name in {**there["teaching"], **written["teaching"]}
            if there["teaching"].get(name) != json.loads(json.dumps(written["teaching"])).get(name)
        ) or ["the collection"]
        raise ValueError(
            f"Expected the settings that teachers in {place} were trained with, got others for "
            f"{', '.join(changed)}. Put them back, or take another folder (--out)."
        )
    return True


def _deal(collection: Collection, place: Path, settings: Teaching, *, n_jobs: int | None, say: Show) -> None:
    """Deal first, then mix, then leave out what cannot be heard: in this order no clip moves another."""
    clips = collection.clips
    test: Any = settings.test
    if settings.test_fold:
        test = np.array([str(fold) == settings.test_fold for fold in _folds(collection)])
        if not test.any():
            known = ", ".join(sorted({str(fold) for fold in _folds(collection)}))
            raise ValueError(f"Expected a fold among {known}, got {settings.test_fold!r}.")
    deal = deal_clips(
        clips, settings.n_teachers, seed=settings.seed, student=settings.student, test=test,
        by_source=settings.by_source,
    )  # fmt: skip
    Y, pictures = clips.Y, list(collection.table.pictures)
    if settings.mix:
        mixed = mix_within(clips, deal, seed=settings.seed, times=settings.mix, alone=settings.alone)
        heard: Any = mixed.heard(clips.paths)
        prepared = collection.prepare(
            heard, n_jobs=n_jobs or 1, progress=lambda done, total: say("pictures", done, total)
        )
        Y, pictures, deal = mixed.Y, collection.picture_names(prepared), mixed.deal
    owner = _owners(deal)
    owner[[picture is None for picture in pictures]] = _NOBODY
    short = [teacher for teacher in range(deal.n_teachers) if (owner == teacher).sum() < 2]
    if short or not (owner == _STUDENT).any():
        raise ValueError(
            "Expected at least two usable clips for each teacher and one for the pool, some have fewer. "
            "Take fewer teachers, or mend the recordings."
        )
    written = io.BytesIO()
    names = np.array([picture or "" for picture in pictures])
    np.savez(written, owner=owner, Y=Y, pictures=names, unit=np.array(deal.unit))
    write_whole(place / "dealt.npz", written.getvalue())


def _owners(deal: Deal) -> NDArray[np.int64]:
    owner = np.full(deal.n_clips, _NOBODY, dtype=np.int64)
    for teacher, rows in enumerate(deal.teachers):
        owner[rows] = teacher
    owner[deal.student], owner[deal.test] = _STUDENT, _TEST
    return owner


def _folds(collection: Collection) -> NDArray[Any]:
    if collection.clips.folds is None:
        raise ValueError(f"Expected folds in {collection.clips.name!r}, got none. Give a share for the test.")
    return collection.clips.folds


def _notes(taught: Taught) -> list[str]:
    said = []
    if taught.settings.mix:
        said.append(
            "A row is a mixture of two clips of the same part, or one clip alone; a clip is protected."
            if taught.unit == "one clip"
            else "A row is a mixture of two clips of the same part, or one clip alone."
        )
    return said
