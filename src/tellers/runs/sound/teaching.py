"""Teachers of clips, kept in a folder with their votes on the public pool and one ledger."""

import hashlib
import io
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ...data.clips import BY_CLIP, clip_notes, load_pictures, one_class_each
from ...data.dataset import N_BYTES, MultilabelDataset, row_hashes
from ...data.sound.collection import Collection, read_collection
from ...errors import require_count
from ...ledger.opening import is_url
from ...privacy._files import write_whole
from ...privacy._rows import KeptRows, numeric_rows
from ...privacy.votes import LabelVotes, OneOf, SetOf, Votes
from ...teachers.ensemble import Ensemble, train_ensemble
from ...teachers.partitions import Partition, Protected
from ...teachers.store import hold, read_votes, save_votes
from .._tables import Tables
from ..pipeline import Voted
from .splitting import NOBODY, STUDENT, TEST, Deal, deal_clips, mix_within

# --- Where the answers of some teachers are charged: one ledger for all of their students. ---
#
# Teachers that are kept answer for many students, and what each of these learned adds up. So the books lie
# with the teachers and not with a student: `books.json` in their folder says where, and nobody else
# decides.


FILE, LEDGER = "books.json", "ledger.db"


def books_of(folder: str | PathLike[str], wanted: str = "") -> str:
    """Return the ledger that all students of some teachers are charged to: a file in full, or an address.

    `wanted` names one elsewhere, a team's database say, before the first student; from then on it is that
    one. Without, it is `ledger.db` beside the teachers. Nothing is written.

    Guarantee: all students of these teachers together keep to the budget of one ledger.
    Assumes:   the folder is not copied, and its ledger not put back from an older copy.
    Reference: Feldman and Zrnic 2021; docs/maths/composition.md.
    """
    place = Path(folder)
    there = _read(place)
    if there is None:
        return wanted or str((place / LEDGER).absolute())
    if is_url(there):
        return there
    ledger = (place / there).absolute()
    if not ledger.exists():
        raise ValueError(
            f"Expected the ledger that students of these teachers are charged to in {ledger}, it is not "
            "there. Restore it: what was charged stays charged."
        )
    return str(ledger)


def _read(place: Path) -> str | None:
    try:
        said = json.loads((place / FILE).read_bytes())
        return str(said["ledger"])
    except FileNotFoundError:
        return LEDGER if (place / LEDGER).exists() else None
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"Expected the ledger's place in {place / FILE}, got something else. Restore the file: what was "
            "charged stays charged."
        ) from None


def settle_books(folder: str | PathLike[str], ledger: str) -> None:
    """Write down where the books are, unless that is settled, or somebody else just did."""
    place = Path(folder)
    if (place / FILE).exists():
        return
    kept = LEDGER if not is_url(ledger) and Path(ledger) == (place / LEDGER).absolute() else ledger
    fresh = place / f".{FILE}.{secrets.token_hex(8)}.tmp"
    write_whole(fresh, (json.dumps({"ledger": kept}) + "\n").encode())
    try:
        os.link(fresh, place / FILE)  # the first one stays, whoever comes second
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(fresh, place / FILE)
    finally:
        fresh.unlink(missing_ok=True)


# --- How clips are dealt and teachers trained: the settings, and who has which clip, written into a folder.


Show = Callable[[str, int, int], object]
RECORD = "record.json"
MAY_CHANGE = ("device", "log_folder")
"""Where networks are trained, and where that is logged: neither makes other teachers."""
_FILES = ("settings.json", "dealt.npz", "hashes.npy", "votes.npz", "test_votes.npz", RECORD)


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """How clips are dealt and teachers trained.

    `student` is the share of clips for the public pool, `test` that for the test (of all clips), or
    `test_fold` the publisher's own. `by_source` deals and protects whole sources, and is the default where
    these are known; False deals clip by clip. `mix` makes so many
    mixtures of every clip with others of its part (0: clips as they are), a share `alone` of them without
    another. `resolution` counts votes in parts. `one_class` is for clips with exactly one label each: it is
    their class, and every teacher names one. `tagger` are parameters of `AudioTagger`.

    >>> Teaching(n_teachers=10, seed=7, tagger={"iterations": 60}).student
    0.2
    """

    n_teachers: int
    seed: int
    student: float = 0.2
    test: float = 0.15
    test_fold: str = ""
    by_source: bool | None = None
    mix: int = 0
    alone: float = 0.2
    resolution: int = 1
    one_class: bool = False
    tagger: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_count(n_teachers=self.n_teachers, resolution=self.resolution)
        require_count(0, seed=self.seed, mix=self.mix)
        if self.one_class and (self.mix or self.resolution > 1):
            raise ValueError(
                "Expected neither mixtures nor parts of a vote where every clip has one class, got "
                f"mix={self.mix} and resolution={self.resolution}. Leave them out, or take many labels."
            )

    def settled(self, collection: Collection) -> "Teaching":
        """Return the settings with what depends on the clips: by source where sources are known.

        >>> from tellers.data.sound import read_collection
        >>> Teaching(n_teachers=3, seed=7).settled(read_collection("nowhere"))
        Traceback (most recent call last):
            ...
        ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
        """
        if self.by_source is not None:
            return self
        return replace(self, by_source=collection.clips.sources is not None)


def written_settings(collection: Collection, settings: Teaching) -> dict[str, Any]:
    """Return what is written down of a training: its settings, and the clips that it is of."""
    place, teaching = str(collection.folder.absolute()), asdict(settings.settled(collection))
    return {"collection": place, "clips": _made_of(collection), "teaching": teaching}


def require_same_clips(place: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse clips that were prepared anew, and otherwise, since teachers in a folder were trained on them.

    `there` is what was written down then, `here` what would be now. Who has which clip is kept by numbers,
    and votes by columns: with other labels, settings or recordings under them they would be of something
    else.
    """
    known, now = there.get("clips"), here.get("clips", {})
    changed = [] if known is None else [what for what in now if known.get(what) != now[what]]
    if changed:
        raise ValueError(
            f"Expected the clips that teachers in {place} were trained on, {here['collection']} was prepared "
            f"anew since with other {' and other '.join(changed)}. Prepare it as it was, or train again in "
            "another folder (--out)."
        )


def _made_of(collection: Collection) -> dict[str, str]:
    """Return fingerprints of what training depends on: not where recordings lie, nor what was noted."""
    table = collection.table
    columns = [table.pictures, table.folds, table.sources, table.Y.tolist()]
    told = {"labels": table.label_names, "settings": asdict(collection.features), "recordings": columns}
    return {what: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32] for what, value in told.items()}


def was_begun(place: Path, written: dict[str, Any]) -> bool:
    """Say whether a training with these settings was begun in a folder, or refuse other ones."""
    file = place / "settings.json"
    if not file.exists():
        others = [entry.name for entry in place.iterdir() if not entry.name.startswith(".")]
        if others and set(others) - {*_FILES, "teachers"}:
            raise ValueError(
                f"Expected a new or empty folder at {place}, got one that holds {sorted(others)[0]}. "
                "Take another one (--out)."
            )
        return False
    there, here = json.loads(file.read_bytes()), _compared(json.loads(json.dumps(written)))
    if there["collection"] == here["collection"]:
        require_same_clips(place, there, here)
        there["clips"] = here["clips"]
    # What an earlier version did not write down was as it is where nothing is said.
    there = _compared({**there, "teaching": {"one_class": False, **there["teaching"]}})
    if there != here:
        before, now = _flat(there["teaching"]), _flat(here["teaching"])
        changed = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
        changed = changed or ["the collection"]
        raise ValueError(
            f"Expected the settings that teachers in {place} were trained with, got others for "
            f"{', '.join(changed)}. Put them back, or take another folder (--out)."
        )
    return True


def _compared(written: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that a training may go on with others for."""
    tagger = {name: v for name, v in written["teaching"]["tagger"].items() if name not in MAY_CHANGE}
    return {**written, "teaching": {**written["teaching"], "tagger": tagger}}


def _flat(teaching: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in teaching.items() if name != "tagger"}
    return rest | {f"tagger.{name}": value for name, value in teaching["tagger"].items()}


def read_deal(place: Path) -> tuple[NDArray[np.int64], NDArray[np.int8], tuple[str | None, ...], str, int]:
    """Return what `write_deal` wrote.

    Whose every row is, its labels, its picture, the unit, and the places.
    """
    try:
        with np.load(place / "dealt.npz", allow_pickle=False) as file:
            owner, Y, pictures, unit = (file[name] for name in ("owner", "Y", "pictures", "unit"))
            n_dealt = int(file["n_dealt"]) if "n_dealt" in file else int((owner >= 0).sum())
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        raise ValueError(
            f"Expected a whole dealt.npz in {place}, got none, or a damaged one. Train again in another "
            "folder: tellers audio train --out"
        ) from None
    return owner, Y, tuple(picture or None for picture in pictures.tolist()), str(unit), n_dealt


def require_voted(place: Path, name: str = "votes.npz") -> Path:
    """Return the file of votes, or say that the training was not finished."""
    if not (place / name).exists():
        raise ValueError(
            f"Expected teachers in {place} that have voted, found no {name}. Their training was stopped: "
            "give the same tellers audio train again, and it goes on."
        )
    return place / name


def write_deal(
    collection: Collection, place: Path, settings: Teaching, *, n_jobs: int | None, say: Show
) -> None:
    """Write down who has which clip, or mixture: dealt first, then without what cannot be heard, then mixed.

    All lines of the table are dealt, and mixtures stay within a part, so that no clip moves another. Who has
    how many clips that can be used stops nothing: a teacher with none, or too few, votes by a public rule.
    See `tellers.runs.sound.Taught` for what is made of it.
    """
    clips = collection.clips
    if settings.one_class:
        _require_one_class(clips.Y, collection.usable)
    test: Any = settings.test
    if settings.test_fold:
        test = fold_clips(collection, settings.test_fold)
    deal = deal_clips(
        clips, settings.n_teachers, seed=settings.seed, student=settings.student, test=test,
        by_source=settings.by_source,
    )  # fmt: skip
    _require_enough(deal, settings)
    Y, pictures = clips.Y, list(collection.table.pictures)
    owner = _usable_owners(deal, pictures)
    # Places, and not what is in them: neither a recording that breaks nor a label changes a public number.
    n_dealt = max(1, settings.mix) * deal.n_places
    if settings.mix:
        deal = deal.only(collection.usable)
        mixed = mix_within(clips, deal, seed=settings.seed, times=settings.mix, alone=settings.alone)
        heard: Any = mixed.heard(clips.paths)
        prepared = collection.prepare(
            heard, n_jobs=n_jobs or 1, progress=lambda done, total: say("pictures", done, total)
        )
        Y, pictures, deal = mixed.Y, collection.picture_names(prepared), mixed.deal
        owner = _usable_owners(deal, pictures)
    written = io.BytesIO()
    names = np.array([picture or "" for picture in pictures])
    np.savez(written, owner=owner, Y=Y, pictures=names, unit=np.array(deal.unit), n_dealt=n_dealt)
    write_whole(place / "dealt.npz", written.getvalue())


def fold_clips(collection: Collection, fold: str) -> NDArray[np.bool_]:
    """Return which clips are of a fold of the publisher's."""
    if collection.clips.folds is None:
        raise ValueError(f"Expected folds in {collection.clips.name!r}, got none. Give a share for the test.")
    folds = [str(one) for one in collection.clips.folds]
    if fold not in folds:
        raise ValueError(f"Expected a fold among {', '.join(sorted(set(folds)))}, got {fold!r}.")
    return np.array([one == fold for one in folds])


def _require_one_class(Y: NDArray[np.int8], usable: NDArray[np.bool_]) -> None:
    require_count(2, n_classes=Y.shape[1])
    other = usable & (Y.sum(axis=1) != 1)
    if other.any():
        raise ValueError(
            f"Expected exactly one label for every clip, clip {int(np.argmax(other))} of clips.json has none "
            "or several. Leave out --one-class, or such clips (tellers audio prepare --most 1)."
        )


def _require_enough(deal: Deal, settings: Teaching) -> None:
    """Refuse more teachers than lines of the table, which are declared, allow: usable or not."""
    # Two to learn from, and one to look at where some are held out.
    least = 3 if settings.tagger.get("held_out") else 2
    if deal.n_places < least * deal.n_teachers:
        rest = ", or leave --held-out out" if least == 3 else ""
        raise ValueError(
            f"Expected at least {least} clips for each teacher, got {deal.n_places} for {deal.n_teachers} "
            f"teachers. Take fewer teachers{rest}."
        )


def _usable_owners(deal: Deal, pictures: list[str | None]) -> NDArray[np.int64]:
    owner = deal.owners
    owner[[picture is None for picture in pictures]] = NOBODY
    if not (owner == STUDENT).any():
        raise ValueError(
            "Expected a usable clip for the public pool, got none. Set more apart, or mend the recordings."
        )
    return owner


# --- Teachers of clips, and what they said of the public pool, kept in a folder: asked once, used many times.
#
# FOLDER/settings.json     what was trained, on which collection
# FOLDER/dealt.npz         who has which clip, or mixture, and where its picture is
# FOLDER/teachers/         the networks
# FOLDER/hashes.npy        of the pictures that teachers learned from
# FOLDER/votes.npz         what they say of the pool; test_votes.npz: of the test clips
# FOLDER/record.json       which teachers could not learn, and why
# FOLDER/ledger.db         what their students were charged; books.json: or where that is
#
# Pictures are read a teacher's part at a time, so that many clips take no more memory than few; and
# afterwards those of the pool and the test alone, unless a model of all private clips is asked for.
# Everything in it is as private as the recordings are.


_TRIED = 48  # rows of the pool that a network is tried on


@dataclass(frozen=True, eq=False, repr=False)
class Taught:
    """Trained teachers with their votes, and the tables that these are of.

    Rows are clips, or mixtures of two. `owner` says whose a row is: a teacher's number, the student's, the
    test's or nobody's; `pictures` where its picture lies in the collection. `n_dealt` rows were dealt to
    teachers before it was seen which of them can be used: it is what may be told.

    >>> import tempfile
    >>> from tellers.data.sound import features_for, prepare_collection
    >>> from tellers.data.sound import make_city
    >>> place = Path(tempfile.mkdtemp())
    >>> clips = make_city(place / "sounds", 40, seed=7, seconds=0.5)
    >>> collection = prepare_collection(clips, place, features=features_for(rate=16_000, seconds=0.5))
    >>> tagger = {"iterations": 2, "batch_size": 4, "device": "cpu"}
    >>> taught = teach(collection, place / "ears", Teaching(n_teachers=3, seed=7, tagger=tagger), n_jobs=1)
    >>> taught, taught.votes, taught.truth.shape
    (Taught(<private>, n_teachers=3, n_pool=6), Votes(<private>, n_queries=6, n_teachers=3, n_labels=4),
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

    def voted(self, ledger: str = "") -> Voted:
        """Return the votes with their tables, parts and ledger, as the second half of a run takes them.

        The first student may name another `ledger` than that beside the teachers. Private pictures are not
        read; what a run has to know of them is in their hashes.
        """
        tables, partition = self.dealt()
        on_test = self._votes("test_votes.npz") if self.test.size else None
        return Voted(
            tables=tables, partition=partition, votes=self.votes, test_votes=on_test,
            ledger=books_of(self.folder, ledger),
        )  # fmt: skip

    def dealt(self) -> tuple[Tables, Partition]:
        """Return the tables of teachers, student and test, and the teachers' parts."""
        private = np.flatnonzero(self.owner >= 0)
        size = (len(private), self.shape[0] * self.shape[1])
        kept = KeptRows(size, self.hashes, lambda rows: self.rows(private[rows]))
        table, pool = self._table(private, kept), self.rows(self.pool)
        test = self._table(self.test, self.rows(self.test)) if self.test.size else None
        public, withheld = clip_notes(self.collection.table)
        said: Any = {"notes": (*public, *_notes(self)), "n_declared": self.n_dealt, "withheld": withheld}
        if not self.settings.one_class:
            return Tables(table, pool, self.truth, test, **said), self.partition()
        named = None if test is None else one_class_each(test)
        tables = Tables(one_class_each(table), pool, self.truth, named, **said)
        return tables, self.partition()

    def _votes(self, name: str) -> LabelVotes | Votes:
        file = require_voted(self.folder, name)
        if self.settings.one_class:
            return read_votes(file, n_classes=len(self.label_names)).votes
        return read_votes(file, kind="labels").votes

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

    def __repr__(self) -> str:
        return f"Taught(<private>, n_teachers={self.settings.n_teachers}, n_pool={len(self.pool)})"

    def _table(self, rows: NDArray[np.int64], X: NDArray[Any] | KeptRows) -> MultilabelDataset:
        return MultilabelDataset(
            name=self.collection.clips.name, X=X, Y=self.Y[rows], label_names=self.label_names,
            image_shape=self.shape,
        )  # fmt: skip


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
               changes one teacher, the pool or the test; see `tellers.runs.sound.Deal`.
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

    reads_parts: ClassVar[bool] = True

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


def _train(taught: Taught, *, n_jobs: int | None, say: Show) -> Ensemble:
    from ...nn.tagger import AudioClassifier

    settings, n_labels, named = taught.settings, len(taught.label_names), taught.settings.one_class
    pictures, tagger = _Pictures.of(taught), tagger_of(settings, taught.shape)
    Y = taught.Y[pictures.private].astype(np.int64)
    ensemble = train_ensemble(
        AudioClassifier(tagger, n_classes=n_labels) if named else tagger, pictures,
        Y.argmax(axis=1) if named else Y, taught.partition(),
        space=OneOf(n_labels) if named else SetOf(n_labels, settings.resolution), seed=settings.seed,
        folder=taught.folder / "teachers", n_jobs=n_jobs,
        progress=lambda done, total: say("teachers", done, total), public=taught.rows(taught.pool[:_TRIED]),
    )  # fmt: skip
    assert isinstance(ensemble, Ensemble)  # taggers are trained one by one
    for teacher in ensemble.teachers:
        if hasattr(teacher, "set_params"):  # whatever one was trained on, it votes where the others do
            teacher.set_params(**{"tagger__device" if named else "device": tagger.device})
    written = io.BytesIO()
    np.save(written, pictures.every_hash(), allow_pickle=False)
    write_whole(taught.folder / "hashes.npy", written.getvalue())
    return ensemble


def _keep_troubles(place: Path, ensemble: Ensemble) -> None:
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
    """Return the network of a teacher before it is trained."""
    from ...nn.tagger import AudioTagger

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
