"""Teachers of clips, kept in a folder with their votes on the public pool and one ledger, and students."""

import hashlib
import io
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ...data.clips import BY_CLIP, Collection, clip_notes, load_pictures, one_class_each, read_collection
from ...data.dataset import N_BYTES, MultilabelDataset, row_hashes
from ...errors import require_count
from ...ledger.opening import is_url
from ...privacy._files import write_whole
from ...privacy._rows import KeptRows, numeric_rows
from ...privacy.votes import LabelVotes, Votes
from ...teachers.ensemble import Ensemble, train_ensemble
from ...teachers.partitions import Partition, Protected
from ...teachers.store import hold, read_votes, save_votes
from .._catalogue import SEMI_SUPERVISED, make_model
from .._folder import RunFolder, Warn, require_left, unlike
from .._tables import Tables
from ..pipeline import Show, Voted, charged_to, check_voted, run_voted
from ..report.sweep import write_votes
from ..result import RunResult
from ..settings.files import read_config, with_absolute_paths
from ..settings.mechanism import LabelsConfig, MechanismConfig
from ..settings.sections import (
    BudgetConfig,
    DataConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from .splitting import NOBODY, STUDENT, TEST, deal_clips, mix_within
from .tagging import Hearing

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
    file, beside = place / FILE, (place / LEDGER).absolute()
    if not file.exists():
        return wanted if wanted and not beside.exists() else str(beside)
    try:
        there = str(json.loads(file.read_bytes())["ledger"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"Expected the ledger's place in {file}, got something else. Restore the file: what was charged "
            "stays charged."
        ) from None
    if is_url(there):
        return there
    ledger = (place / there).absolute()
    if not ledger.exists():
        raise ValueError(
            f"Expected the ledger that students of these teachers are charged to in {ledger}, it is not "
            "there. Restore it: what was charged stays charged."
        )
    return str(ledger)


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


def written_settings(collection: Collection, settings: Teaching) -> dict[str, Any]:
    """Return what is written down of a training: its settings, and the clips that it is of.

    Clips are dealt by source where that is not said and sources are known.
    """
    if settings.by_source is None:
        settings = replace(settings, by_source=collection.clips.sources is not None)
    place = str(collection.folder.absolute())
    return {"collection": place, "clips": _made_of(collection), "teaching": asdict(settings)}


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
    clips = collection.clips
    folds, sources = (None if one is None else one.tolist() for one in (clips.folds, clips.sources))
    columns = [collection.picture_files, folds, sources, clips.Y.tolist()]
    told = {"labels": clips.label_names, "settings": asdict(collection.features), "recordings": columns}
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
    there, here = json.loads(file.read_bytes()), json.loads(json.dumps(written))
    if there["collection"] == here["collection"]:
        require_same_clips(place, there, here)
    # What an earlier version did not write down was as it is where nothing is said.
    before, now = {"one_class": False, **_compared(there)}, _compared(here)
    changed = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    if changed:
        raise ValueError(
            f"Expected the settings that teachers in {place} were trained with, got others for "
            f"{', '.join(changed)}. Put them back, or take another folder (--out)."
        )
    return True


def _compared(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in one table, without those that a training may go on with others for."""
    rest = {name: value for name, value in written["teaching"].items() if name != "tagger"}
    tagger = {name: v for name, v in written["teaching"]["tagger"].items() if name not in MAY_CHANGE}
    rest |= {f"tagger.{name}": value for name, value in tagger.items()}
    return {"the collection": written["collection"], **rest}


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
        require_count(2, n_classes=clips.n_labels)
        other = collection.usable & (clips.Y.sum(axis=1) != 1)
        if other.any():
            raise ValueError(
                f"Expected exactly one label for every clip, clip {int(np.argmax(other))} of clips.json has "
                "none or several. Leave out --one-class, or such clips (tellers audio prepare --most 1)."
            )
    test: Any = settings.test
    if settings.test_fold:
        test = fold_clips(collection, settings.test_fold)
    deal = deal_clips(
        clips, settings.n_teachers, seed=settings.seed, student=settings.student, test=test,
        by_source=settings.by_source,
    )  # fmt: skip
    # Two to learn from, and one to look at where some are held out: of lines of the table, usable or not.
    least = 3 if settings.tagger.get("held_out") else 2
    if deal.n_places < least * deal.n_teachers:
        rest = ", or leave --held-out out" if least == 3 else ""
        raise ValueError(
            f"Expected at least {least} clips for each teacher, got {deal.n_places} for {deal.n_teachers} "
            f"teachers. Take fewer teachers{rest}."
        )
    # Places, and not what is in them: neither a recording that breaks nor a label changes a public number.
    n_dealt = max(1, settings.mix) * deal.n_places
    deal, Y, pictures = deal.only(collection.usable), clips.Y, list(collection.picture_files)
    if settings.mix:
        mixed = mix_within(clips, deal, seed=settings.seed, times=settings.mix, alone=settings.alone)
        heard: Any = mixed.heard(clips.paths)
        prepared = collection.prepare(
            heard, n_jobs=n_jobs or 1, progress=lambda done, total: say("pictures", done, total)
        )
        Y, pictures, deal = mixed.Y, prepared.picture_files(), mixed.deal
    owner = deal.owners
    owner[[picture is None for picture in pictures]] = NOBODY
    if not (owner == STUDENT).any():
        raise ValueError(
            "Expected a usable clip for the public pool, got none. Set more apart, or mend the recordings."
        )
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


TAGGER, CLASSIFIER = "tellers.runs.sound:AudioTagger", "tellers.runs.sound:audio_classifier"
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

    @property
    def network(self) -> tuple[str, dict[str, Any]]:
        """Return how settings name a network for these clips, and the parameters that it cannot choose."""
        own: dict[str, Any] = {"shape": list(self.shape)}
        if not self.settings.one_class:
            return TAGGER, own
        return CLASSIFIER, own | {"n_classes": len(self.label_names)}

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return flat pictures of some rows."""
        stack = load_pictures(self.collection, [self.pictures[i] for i in numbers])
        return stack.reshape(len(stack), self.shape[0] * self.shape[1])

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
        _ = self.hashes  # of all of them
        test = self._table(TEST) if self.test.size else None
        public, withheld = clip_notes(self.collection)
        if self.settings.mix:
            mixed = "A row is a mixture of two clips of the same part, or one clip alone"
            public = (*public, mixed + ("; a clip is protected." if self.unit == "one clip" else "."))
        tables = Tables(
            self._table(), self.rows(self.pool), self.truth, test, public, n_declared=self.n_dealt,
            withheld=withheld,
        )  # fmt: skip
        return tables, self.partition()

    def _table(self, owner: int | None = None) -> Any:
        """Return the rows of the test, say, or without an owner those of all teachers."""
        chosen = self.owner >= 0 if owner is None else self.owner == owner
        table = MultilabelDataset(
            name=self.collection.clips.name, Y=self.Y[chosen], label_names=self.label_names,
            X=self.private if owner is None else self.rows(np.flatnonzero(chosen)), image_shape=self.shape,
        )  # fmt: skip
        return one_class_each(table) if self.settings.one_class else table

    def _votes(self, name: str) -> LabelVotes | Votes:
        file = self.folder / name
        if not file.exists():
            raise ValueError(
                f"Expected teachers in {self.folder} that have voted, found no {name}. Their training was "
                "stopped: give the same tellers audio train again, and it goes on."
            )
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
    def private(self) -> KeptRows:
        """Return the pictures of teachers, read part by part: one teacher's are in memory at a time.

        Of what went by the hashes stay: those of the training are kept, and an earlier version kept none.
        """
        rows, file = np.flatnonzero(self.owner >= 0), self.folder / "hashes.npy"
        hashes = np.zeros((len(rows), N_BYTES), dtype=np.uint8)
        if file.exists():
            hashes[:] = np.load(file, allow_pickle=False)

        def load(part: NDArray[np.int64]) -> NDArray[Any]:
            found = self.rows(rows[part])
            if len(part):
                hashes[part] = row_hashes(numeric_rows(found))
            return found

        return KeptRows((len(rows), self.shape[0] * self.shape[1]), hashes, load)

    @property
    def hashes(self) -> NDArray[np.uint8]:
        """Return a hash of every private picture; parts that did not go by are read now."""
        for part in self.partition():
            if len(part) and not self.private.hashes[part].any():
                _ = self.private[part]
        return self.private.hashes

    def require_pictures(self) -> None:
        """Refuse to go on where the picture of a private clip is gone; none of them is read."""
        folder = self.collection.folder
        gone = sum(not (folder / str(self.pictures[row])).exists() for row in np.flatnonzero(self.owner >= 0))
        if gone:
            raise ValueError(
                f"Expected the pictures of all private clips in {folder}, some are gone. Prepare again, or "
                "leave out --private: a student alone needs none of them."
            )

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
    with hold(place / ".lock", place=place, who="another training"):
        written = written_settings(collection, settings)
        settings = Teaching(**written["teaching"])
        begun = was_begun(place, written)
        say("data", 0, 0)
        if not (place / "votes.npz").exists():
            # Before anything is written down: settings that were refused may be put right in the same folder.
            shape = collection.features.shape
            tagger = make_model(TAGGER, {**settings.tagger, "shape": shape})
            tagger.require_fit((len(collection.clips), *shape), n_labels=collection.clips.n_labels)
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
            # Which teachers vote by the rule, and why; the file is there whether any does or not.
            found = {str(number): why for number, why in sorted(ensemble.troubles.reveal().items())}
            write_whole(place / RECORD, (json.dumps({"teachers": found}, indent=1) + "\n").encode())
            save_votes(place / name, votes)
    return taught


def _train(taught: Taught, *, n_jobs: int | None, say: Show) -> Ensemble:
    settings, table, (name, own) = taught.settings, taught._table(), taught.network
    space = table.space if settings.one_class else replace(table.space, resolution=settings.resolution)
    ensemble = train_ensemble(
        make_model(name, {**settings.tagger, **own, "shape": taught.shape}), taught.private, table.y,
        taught.partition(), space=space, seed=settings.seed, folder=taught.folder / "teachers", n_jobs=n_jobs,
        progress=lambda done, total: say("teachers", done, total), public=taught.rows(taught.pool[:_TRIED]),
    )  # fmt: skip
    assert isinstance(ensemble, Ensemble)  # taggers are trained one by one
    for teacher in ensemble.teachers:
        if hasattr(teacher, "set_params"):  # whatever one was trained on, it votes where the others do
            device = settings.tagger.get("device", "auto")
            teacher.set_params(**{"tagger__device" if settings.one_class else "device": device})
    written = io.BytesIO()
    np.save(written, taught.hashes, allow_pickle=False)
    write_whole(taught.folder / "hashes.npy", written.getvalue())
    return ensemble


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
    try:
        with np.load(place / "dealt.npz", allow_pickle=False) as file:
            owner, Y, pictures, unit = (file[name] for name in ("owner", "Y", "pictures", "unit"))
            n_dealt = int(file["n_dealt"]) if "n_dealt" in file else int((owner >= 0).sum())
    except (OSError, KeyError, ValueError, EOFError, BadZipFile):
        raise ValueError(
            f"Expected a whole dealt.npz in {place}, got none, or a damaged one. Train again in another "
            "folder: tellers audio train --out"
        ) from None
    files = tuple(picture or None for picture in pictures.tolist())
    dealt_by: Protected = "one source" if unit == "one source" else "one clip"
    return Taught(place, settings, collection, owner, Y, files, dealt_by, n_dealt)


# --- A student of sounds: labels released within a budget, a network taught with them, its card and its
# pages.
#
# What costs privacy is the pipeline's: the ledger is charged before noise is drawn, and what was asked before
# is read and not drawn again. Here are the settings of such a run, and what is shown of sounds afterwards.


def student_config(
    taught: Taught,
    *,
    mechanism: MechanismConfig,
    budget: BudgetConfig,
    n_queries: int = 0,
    model: str = TAGGER,
    parameters: Mapping[str, Any] | None = None,
    private: bool = False,
    seed: int | None = None,
) -> RunConfig:
    """Return the settings of a run that teaches a student of what some teachers said.

    `model` is a tagger, or "multilabel_mixmatch", which learns from all of the pool and not from what was
    told alone; where clips have one class each, a classifier made of the tagger, or "mixmatch",
    "mean_teacher" or "vat". `n_queries` 0 is the whole pool, or as much as the budget pays for.

    >>> import tempfile
    >>> from tellers.data.sound import features_for, prepare_collection
    >>> from tellers.data.sound import make_city
    >>> place = Path(tempfile.mkdtemp())
    >>> clips = make_city(place / "sounds", 40, seed=7, seconds=0.5)
    >>> collection = prepare_collection(clips, place, features=features_for(rate=16_000, seconds=0.5))
    >>> tagger = {"iterations": 2, "batch_size": 4, "device": "cpu"}
    >>> taught = teach(collection, place / "ears", Teaching(n_teachers=3, seed=7, tagger=tagger), n_jobs=1)
    >>> config = student_config(
    ...     taught, mechanism=MechanismConfig(name="gnthreshold", sigma=2.0),
    ...     budget=BudgetConfig(epsilon=60.0, delta=1e-3), parameters=tagger,
    ... )
    >>> result, hearing = teach_student(taught, place / "study", config)
    >>> result.queries.n_asked, hearing, sorted(p.name for p in (place / "study").glob("*.html"))
    (6, Hearing(n_labels=4), ['report.html', 'sound.html'])
    """
    settings, given, names = taught.settings, dict(parameters or {}), taught.label_names
    one_class, (network, own) = settings.one_class, taught.network
    if model == TAGGER:
        model, given = network, given | own
    clips = taught.collection.folder.absolute()
    return RunConfig(
        seed=settings.seed if seed is None else seed,
        data=DataConfig(
            name="clips", private=clips.name,
            folder=str(clips.parent), n_public=len(taught.pool),
            n_test=len(taught.test), classes=names if one_class else (),
            options={"by_clip": True} if taught.partition().notes else {},
        ),
        labels=LabelsConfig() if one_class else LabelsConfig(names=names, resolution=settings.resolution),
        partition=PartitionConfig(
            n_teachers=settings.n_teachers,
            by="person" if taught.unit == "one source" else "record",
        ),
        teachers=TeachersConfig(
            model=network,
            # Not what another training may change: a student said twice is the same student.
            parameters={k: v for k, v in settings.tagger.items() if k not in MAY_CHANGE} | own,
        ),
        mechanism=mechanism,
        budget=budget,
        queries=QueriesConfig(n_queries=n_queries),
        student=StudentConfig(
            kind="semi_supervised" if model in SEMI_SUPERVISED else "supervised", model=model,
            parameters=given,
        ),
        report=ReportConfig(private=private),
    )  # fmt: skip


def teach_student(
    taught: Taught,
    folder: str | PathLike[str],
    config: RunConfig,
    *,
    resume: bool = False,
    show: Show | None = None,
    warn: Warn | None = None,
) -> tuple[RunResult, Hearing]:
    """Release labels of the pool, teach a student, write its card and its pages; return numbers and student.

    The folder is that of a run (`tellers report`, `tellers ledger` and the others know it), with `sound.html`
    on top: what the student hears in some test clips, and the curves of every label. With private numbers
    asked for, `private/sound.private.html` shows how right the teachers are together without noise, and how
    likely labels, or classes, flip at which cost.

    All students of the same teachers are charged to one ledger, that of `books_of`: a budget that names
    another ledger is for the first of them. Called again with the same settings, it answers from what was
    released and charges nothing. See `student_config` for an example.

    >>> teach_student.__name__
    'teach_student'
    """
    place, wanted = Path(folder), config.budget.ledger
    if wanted == BudgetConfig().ledger:
        wanted = ""
    elif not is_url(wanted):
        wanted = str((place / wanted).absolute())
    voted = taught.voted(wanted)
    config = charged_to(config, voted.ledger, place)
    done = RunFolder(place)
    if done.config.exists() and done.result.exists():
        # These very settings were carried out: to go on then does nothing that costs.
        resume = resume or not unlike(read_config(done.config), with_absolute_paths(config))
    if config.report.private and taught.test.size:
        taught.require_pictures()  # a model of all private clips is told beside the student: see first
    if not (resume or done.config.exists()):
        # All that can be refused is, before books are begun: their budget is for good.
        check_voted(config, voted)
        require_left(config, done, ledger=voted.ledger)
        settle_books(taught.folder, voted.ledger)
        config = charged_to(config, books_of(taught.folder), place)  # somebody else may have been faster
    result, student = run_voted(config, folder, voted=voted, resume=resume, show=show, warn=warn)
    hearing = Hearing(student, taught.collection.features, taught.label_names)
    if config.report.private:
        with np.load(place / "labels.npz", allow_pickle=False) as file:
            asked = file["rows"]
        write_votes(
            place / "private" / "sound.private.html", voted.votes[asked], taught.truth[asked],
            mechanism=config.build_mechanism(), delta=config.budget.delta,
        )  # fmt: skip
    return result, hearing
