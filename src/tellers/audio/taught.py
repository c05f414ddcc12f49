"""Teachers of clips, and what they said of the public pool, kept in a folder: asked once, used many times.

    FOLDER/settings.json     what was trained, on which collection
    FOLDER/dealt.npz         who has which clip, or mixture, and where its picture is
    FOLDER/teachers/         the networks
    FOLDER/hashes.npy        of the pictures that teachers learned from
    FOLDER/votes.npz         what they say of the pool; test_votes.npz: of the test clips
    FOLDER/record.json       which teachers could not learn, and why
    FOLDER/ledger.db         what their students were charged; books.json: or where that is

Pictures are read a teacher's part at a time, so that many clips take no more memory than few; and afterwards
those of the pool and the test alone, unless a model of all private clips is asked for.
Everything in it is as private as the recordings are.
"""

import io
import json
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..copies import N_BYTES, row_hashes
from ..datasets.clips import BY_CLIP, clip_notes, load_pictures, one_class_each
from ..datasets.multilabel import MultilabelDataset
from ..label_votes import LabelVotes
from ..pipeline import Voted
from ..pipeline.data import Tables
from ..pipeline.label_data import LabelTables
from ..rows import KeptRows, numeric_rows
from ..teachers import (
    Ensemble,
    LabelEnsemble,
    read_label_votes,
    read_votes,
    save_label_votes,
    save_votes,
)
from ..teachers.label_ensemble import label_model
from ..teachers.partition import Partition, Protected
from ..teachers.running import train_each
from ..teachers.store import hold, write_whole
from ..votes import Votes
from .books import books_of
from .collection import Collection, read_collection
from .teaching import (
    RECORD,
    STUDENT,
    TEST,
    Show,
    Teaching,
    read_deal,
    require_same_clips,
    require_voted,
    was_begun,
    write_deal,
    written_settings,
)

_TRIED = 48  # rows of the pool that a network is tried on


@dataclass(frozen=True, eq=False, repr=False)
class Taught:
    """Trained teachers with their votes, and the tables that these are of.

    Rows are clips, or mixtures of two. `owner` says whose a row is: a teacher's number, the student's, the
    test's or nobody's; `pictures` where its picture lies in the collection. `n_dealt` rows were dealt to
    teachers before it was seen which of them can be used: it is what may be told.

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
    >>> taught.require_pictures()
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
    n_dealt: int

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
        return np.flatnonzero(self.owner == STUDENT)

    @property
    def test(self) -> NDArray[np.int64]:
        """Return the rows of the test."""
        return np.flatnonzero(self.owner == TEST)

    @property
    def truth(self) -> NDArray[np.int64]:
        """Return the labels of the pool, or one class each, as whoever collected it knows them."""
        labels = self.Y[self.pool].astype(np.int64)
        return labels.argmax(axis=1) if self.settings.one_class else labels

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return flat pictures of some rows."""
        stack = load_pictures(self.collection.table, [self.pictures[i] for i in numbers])
        return stack.reshape(len(stack), -1)

    @cached_property
    def votes(self) -> LabelVotes | Votes:
        """Return what the teachers say of the pool: many labels, or one class each. Private."""
        return self._votes("votes.npz")

    def voted(self) -> Voted:
        """Return the votes with their tables, parts and ledger, as the second half of a run takes them.

        Private pictures are not read; what a run has to know of them is in their hashes.
        """
        tables, partition = self.dealt()
        on_test = self._votes("test_votes.npz") if self.test.size else None
        return Voted(
            tables=tables, partition=partition, votes=self.votes, test_votes=on_test,
            ledger=books_of(self.folder),
        )  # fmt: skip

    def dealt(self) -> tuple[LabelTables | Tables, Partition]:
        """Return the tables of teachers, student and test, and the teachers' parts."""
        private = np.flatnonzero(self.owner >= 0)
        size = (len(private), self.shape[0] * self.shape[1])
        kept = KeptRows(size, self.hashes, lambda rows: self.rows(private[rows]))
        table, pool = self._table(private, kept), self.rows(self.pool)
        test = self._table(self.test, self.rows(self.test)) if self.test.size else None
        public, withheld = clip_notes(self.collection.table)
        said: Any = {"notes": (*public, *_notes(self)), "n_declared": self.n_dealt, "withheld": withheld}
        if not self.settings.one_class:
            return LabelTables(table, pool, self.truth, test, **said), self.partition()
        named = None if test is None else one_class_each(test)
        tables = Tables(one_class_each(table), pool, self.truth, named, **said)
        return tables, self.partition()

    def _votes(self, name: str) -> LabelVotes | Votes:
        file = require_voted(self.folder, name)
        if self.settings.one_class:
            return read_votes(file, n_classes=len(self.label_names)).votes
        return read_label_votes(file).votes

    def partition(self) -> Partition:
        """Return the teachers' parts, by numbers among the private rows."""
        whose = self.owner[self.owner >= 0]
        parts = tuple(np.flatnonzero(whose == teacher) for teacher in range(self.settings.n_teachers))
        split = self.unit == "one clip" and self.collection.clips.sources is not None
        return Partition(parts, unit=self.unit, notes=(BY_CLIP,) if split else ())

    @cached_property
    def hashes(self) -> NDArray[np.uint8]:
        """Return a hash of every private picture: those of the training, or of an earlier version's now."""
        file = self.folder / "hashes.npy"
        if file.exists():
            return np.asarray(np.load(file, allow_pickle=False), dtype=np.uint8)
        return _Pictures.of(self).every_hash()

    def require_pictures(self) -> None:
        """Refuse to go on where the picture of a private clip is gone; none of them is read."""
        folder = self.collection.table.folder
        gone = sum(not (folder / str(self.pictures[row])).exists() for row in np.flatnonzero(self.owner >= 0))
        if gone:
            raise ValueError(
                f"Expected the pictures of all private clips in {folder}, some are gone. Prepare again, or "
                "leave out --private: a student alone needs none of them."
            )

    def _table(self, rows: NDArray[np.int64], X: NDArray[Any] | KeptRows) -> MultilabelDataset:
        return MultilabelDataset(
            name=self.collection.clips.name, X=X, Y=self.Y[rows], label_names=self.label_names,
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
    with the same settings, what is there is taken; with others, but for the device and where it is logged, it
    is refused. See `Taught` for an example.

    Every teacher votes: one that has no clips, or cannot learn from them, by a public rule (`record.json`).

    Guarantee: a change of one source (or clip, where sources are not known, or not with `by_source=False`)
               changes one teacher, the pool or the test; see `tellers.audio.dealing.Deal`.
    Assumes:   lines of the table stay; clips are dealt before they are looked at, and mixed in their part.
    Reference: Papernot et al. 2017, section 2.1; the thesis on private audio tagging, section 4.3.

    >>> settings = Teaching(n_teachers=3, seed=7, by_source=True)
    >>> teach(read_collection("nowhere"), "ears", settings)
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    place, say = Path(folder), show or (lambda *_: None)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = settings.settled(collection)
    with hold(place / ".lock", place=place, who="another training"):
        written = written_settings(collection, settings)
        begun = was_begun(place, written)
        say("data", 0, 0)
        if not (place / "votes.npz").exists():
            # Before anything is written down: settings that were refused may be put right in the same folder.
            shape, n_labels = collection.features.shape, collection.clips.n_labels
            size = (len(collection.clips), shape[0] * shape[1])
            tagger_of(settings, shape).require_fit(size, n_labels=n_labels)
        if not begun or not (place / "dealt.npz").exists():
            write_deal(collection, place, settings, n_jobs=n_jobs, say=say)
        # Also of a training that goes on: it may do so on another device.
        write_whole(place / "settings.json", (json.dumps(written, indent=1) + "\n").encode())
        taught = read_taught(place)
        if (place / "votes.npz").exists() and ((place / "test_votes.npz").exists() or not taught.test.size):
            return taught
        say("teachers", 0, settings.n_teachers)
        ensemble = _train(taught, n_jobs=n_jobs, say=say)
        say("votes", 0, 0)
        for name, rows in (("test_votes.npz", taught.test), ("votes.npz", taught.pool)):
            if not rows.size:
                continue
            votes = ensemble.vote(taught.rows(rows))
            _keep_troubles(place, ensemble)
            if isinstance(votes, LabelVotes):
                save_label_votes(place / name, votes)
            else:
                save_votes(place / name, votes)
    return taught


@dataclass(frozen=True, eq=False, repr=False)
class _Pictures:
    """The private rows of teachers, read part by part: one teacher's pictures are in memory at a time.

    Of what went by, the hashes stay.
    """

    taught: Taught
    private: NDArray[np.int64]
    hashes: NDArray[np.uint8]

    @classmethod
    def of(cls, taught: Taught) -> "_Pictures":
        private = np.flatnonzero(taught.owner >= 0)
        return cls(taught, private, np.zeros((len(private), N_BYTES), dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.private)

    def __getitem__(self, part: NDArray[np.int64], /) -> NDArray[Any]:
        if not len(part):
            return np.empty((0, self.taught.shape[0] * self.taught.shape[1]), dtype=np.float32)
        rows = numeric_rows(self.taught.rows(self.private[part]))
        self.hashes[part] = row_hashes(rows)
        return rows

    def every_hash(self) -> NDArray[np.uint8]:
        """Return the hashes of all rows; parts that did not go by are read now."""
        for part in self.taught.partition():
            if len(part) and not self.hashes[part].any():
                _ = self[part]
        return self.hashes


def _train(taught: Taught, *, n_jobs: int | None, say: Show) -> LabelEnsemble | Ensemble:
    from .classifier import AudioClassifier

    settings, n_labels, named = taught.settings, len(taught.label_names), taught.settings.one_class
    pictures, tagger = _Pictures.of(taught), tagger_of(settings, taught.shape)
    Y = taught.Y[pictures.private].astype(np.int64)
    teachers = train_each(
        AudioClassifier(tagger, n_classes=n_labels) if named else label_model(tagger, n_labels=n_labels),
        pictures, Y.argmax(axis=1) if named else Y, taught.partition(),
        made_for={"n_classes" if named else "n_labels": n_labels}, seed=settings.seed,
        folder=taught.folder / "teachers", n_jobs=n_jobs,
        progress=lambda done, total: say("teachers", done, total), public=taught.rows(taught.pool[:_TRIED]),
    )  # fmt: skip
    for teacher in teachers:
        if hasattr(teacher, "set_params"):  # whatever one was trained on, it votes where the others do
            teacher.set_params(**{"tagger__device" if named else "device": tagger.device})
    written = io.BytesIO()
    np.save(written, pictures.every_hash(), allow_pickle=False)
    write_whole(taught.folder / "hashes.npy", written.getvalue())
    if named:
        return Ensemble(teachers, n_labels)
    return LabelEnsemble(teachers, n_labels, resolution=settings.resolution)


def _keep_troubles(place: Path, ensemble: LabelEnsemble | Ensemble) -> None:
    """Write down which teachers vote by the rule, and why; the file is there whether any does or not."""
    found = {str(number): why for number, why in sorted(ensemble.troubles.reveal().items())}
    write_whole(place / RECORD, (json.dumps({"teachers": found}, indent=1) + "\n").encode())


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
    require_same_clips(place, said, written_settings(collection, settings))
    owner, Y, pictures, unit, n_dealt = read_deal(place)
    dealt_by: Protected = "one source" if unit == "one source" else "one clip"
    return Taught(place, settings, collection, owner, Y, pictures, dealt_by, n_dealt)


def tagger_of(settings: Teaching, shape: tuple[int, int]) -> Any:
    """Return the network of a teacher before it is trained.

    >>> tagger_of(Teaching(n_teachers=3, seed=7, tagger={"iterations": 5}), (101, 64)).shape
    (101, 64)
    """
    from .tagger import AudioTagger

    return AudioTagger(**{**settings.tagger, "shape": shape})


def _notes(taught: Taught) -> list[str]:
    said = []
    if taught.settings.mix:
        said.append(
            "A row is a mixture of two clips of the same part, or one clip alone; a clip is protected."
            if taught.unit == "one clip"
            else "A row is a mixture of two clips of the same part, or one clip alone."
        )
    return said
