"""How clips are dealt and teachers trained: the settings, and who has which clip, written into a folder."""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ..teachers.store import write_whole
from .collection import Collection
from .dealing import Deal, deal_clips
from .mixtures import mix_within

Show = Callable[[str, int, int], object]
NOBODY, STUDENT, TEST = -1, -2, -3
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

        >>> from tellers.audio.collection import read_collection
        >>> Teaching(n_teachers=3, seed=7).settled(read_collection("nowhere"))
        Traceback (most recent call last):
            ...
        ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
        """
        if self.by_source is not None:
            return self
        return replace(self, by_source=collection.clips.sources is not None)


def written_settings(collection: Collection, settings: Teaching) -> dict[str, Any]:
    """Return what is written down of a training: its settings, and the clips that it is of.

    >>> from tellers.audio.collection import read_collection
    >>> written_settings(read_collection("nowhere"), Teaching(n_teachers=3, seed=7))
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of prepared clips, found no clips.json in nowhere. ...
    """
    place, teaching = str(collection.folder.absolute()), asdict(settings.settled(collection))
    return {"collection": place, "clips": _made_of(collection), "teaching": teaching}


def require_same_clips(place: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse clips that were prepared anew, and otherwise, since teachers in a folder were trained on them.

    `there` is what was written down then, `here` what would be now. Who has which clip is kept by numbers,
    and votes by columns: with other labels, settings or recordings under them they would be of something
    else.

    >>> require_same_clips(Path("ears"), {}, {"clips": {"labels": "2f1a"}})  # an earlier version's
    >>> there = {"clips": {"labels": "90c3"}}
    >>> require_same_clips(Path("ears"), there, {"collection": "city", "clips": {"labels": "2f1a"}})
    Traceback (most recent call last):
        ...
    ValueError: Expected the clips that teachers in ears were trained on, city was prepared anew since with
    other labels. ...
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
    """Say whether a training with these settings was begun in a folder, or refuse other ones.

    >>> import tempfile
    >>> was_begun(Path(tempfile.mkdtemp()), {})
    False
    """
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
    """Return what `write_deal` wrote: whose every row is, its labels, its picture, the unit, and the places.

    >>> read_deal(Path("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected a whole dealt.npz in nowhere, got none, or a damaged one. ...
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
    """Return the file of votes, or say that the training was not finished.

    >>> require_voted(Path("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected teachers in nowhere that have voted, found no votes.npz. ...
    """
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
    See `tellers.audio.taught.Taught` for what is made of it.

    >>> write_deal.__name__
    'write_deal'
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
    """Return which clips are of a fold of the publisher's.

    >>> fold_clips.__name__
    'fold_clips'
    """
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
    owner = _owners(deal)
    owner[[picture is None for picture in pictures]] = NOBODY
    if not (owner == STUDENT).any():
        raise ValueError(
            "Expected a usable clip for the public pool, got none. Set more apart, or mend the recordings."
        )
    return owner


def _owners(deal: Deal) -> NDArray[np.int64]:
    owner = np.full(deal.n_clips, NOBODY, dtype=np.int64)
    for teacher, rows in enumerate(deal.teachers):
        owner[rows] = teacher
    owner[deal.student], owner[deal.test] = STUDENT, TEST
    return owner
