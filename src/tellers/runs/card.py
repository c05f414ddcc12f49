"""The model card, and a student on disk with it.

A card says what a student is, what protects the people behind it, and what does not. It is made of public
numbers only, so it may travel with the student wherever that goes. A student's folder holds the model, its
card in words and in JSON, and a manifest with the checksum of each. It is written whole or not at all, and
read without running code: skops files of known types, or safetensors, which hold nothing but numbers.
Checksums find damage; they do not prove who wrote the folder.
"""

import hashlib
import importlib
import json
import math
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..errors import require_count
from ..privacy._files import cap, read_bounded, sync_folder, write_whole
from ..privacy.budget import clock_words
from ..privacy.relation import Relation
from ..teachers.models import dump_model, load_model, type_name
from .result import SCORES, PublishedCosts, RunResult, TestedPart

_EVERYONE = (
    "What is true of people in general can be learned from the student; that is its purpose. Only what hangs "
    "on {unit} is protected.",
    "Several units together, a family say, are protected less: epsilon grows with their number.",
    "What was declared is treated as public: the classes, the features, how many teachers there are, and "
    "every setting.",
    "Settings chosen by looking at the private data, or by running several times and keeping the best, are "
    "not covered.",
    "The rows of the public pool are public. Nothing protects them.",
    "Only the released labels and what was made of them are covered: not the private folder, run times, "
    "memory or logs of the machine, or votes that leave the room by another way.",
)
_MEASURED = (
    "The accuracy was measured on test rows that are treated as public. Nothing protects them, and it says "
    "nothing of rows that differ from them."
)
_UNIT = {
    "one record": "A person in several rows is not covered as a whole, only each row by itself. Partition by "
    "person where that matters.",
    "one person": "A person who stands in the table under two names counts as two.",
    "one site": "A person with rows at several sites is not covered as a whole.",
    "one clip": "Whoever is heard in several clips is not covered as a whole, only each clip by itself. Deal "
    "whole sources where that matters.",
    "one source": "A source is all clips cut from one recording, or sent by one: what is heard in the clips "
    "of two sources is not covered as a whole.",
}
_CONSENT = (
    "Who agreed to which budget is treated as public, and so is who takes part when. Whoever agrees to more "
    "is heard more: what the student is good at may lean towards the generous groups."
)
_PRIVATE_STOP = (
    "The run stopped by a private rule: how many queries were asked depends on private votes, and that "
    "number is not covered by epsilon."
)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a student is, how it was taught, what that guarantees and what it does not.

    Every field is public. `unit` is what is protected ("one record", "one person", "one site"; of sounds "one
    clip" or "one source"); `epsilon` is infinite where nothing is promised, and `why` says why; `accuracy` is
    None where it was not measured.
    `groups` says, where people have budgets of their own, how they take part and what each group is promised,
    and `together`, where other releases were charged to the same ledger, what all of them cost. `relation` is
    what the guarantee compares; a card of an older version has none. `published` is what was released of the
    cost of these very votes, if anything was: an upper value, no guarantee. `clock` says, of a budget that is
    held on a clock, whose epsilon this is and how much of the clock is left, and `renyi` is the Rényi epsilon
    of the same releases, to compare. `tested` says whether the queries passed their test as one batch.

    Guarantee: (epsilon, delta)-differential privacy of the student for one unit, if `is_guarantee`.
    Assumes:   the numbers come from a ledger whose prices are worst-case; see `not_guaranteed`.
    Reference: Papernot et al. 2018, section 2; Dwork and Roth 2014, Proposition 2.1 (post-processing).

    >>> card = ModelCard(
    ...     task="tell 2 classes apart (tumours)", classes=("benign", "malignant"), unit="one person",
    ...     n_teachers=60, mechanism="GNMax", parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5,
    ...     is_guarantee=True, n_queries=100, n_labels=100, student="logistic (supervised)", accuracy=0.94,
    ...     not_guaranteed=("Rows of the public pool are public.",),
    ... )
    >>> card.guarantee
    'If all data of one person had been different, whatever anybody may see of the student ...'
    >>> print(card.markdown().splitlines()[0])
    # Model card: tell 2 classes apart (tumours)
    >>> card.as_dict()["epsilon"]
    2.0
    """

    task: str
    classes: tuple[str, ...]
    unit: str
    n_teachers: int
    mechanism: str
    parameters: Mapping[str, Any]
    epsilon: float
    delta: float
    is_guarantee: bool
    n_queries: int
    n_labels: int
    student: str
    accuracy: float | None
    not_guaranteed: tuple[str, ...]
    why: str = ""
    limits: tuple[str, ...] = ()
    versions: Mapping[str, str] | None = None
    created: str = ""
    groups: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    together: str = ""
    relation: Relation | None = None
    published: PublishedCosts | None = None
    clock: str = ""
    renyi: float | None = None
    tested: TestedPart | None = None

    def __post_init__(self) -> None:
        require_count(n_teachers=self.n_teachers)
        require_count(0, n_queries=self.n_queries, n_labels=self.n_labels)
        require_count(2, n_classes=len(self.classes))
        if not self.epsilon >= 0:
            raise ValueError(f"Expected epsilon >= 0, or infinite, got epsilon={self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise ValueError(f"Expected 0 <= delta < 1, got delta={self.delta}.")
        if self.is_guarantee and math.isinf(self.epsilon):
            raise ValueError("Expected a finite epsilon for a guarantee, got an infinite one.")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise ValueError(f"Expected an accuracy from 0 to 1, or None, got {self.accuracy}.")
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))
        object.__setattr__(self, "not_guaranteed", tuple(self.not_guaranteed))

    @classmethod
    def from_result(cls, result: RunResult | Mapping[str, Any]) -> "ModelCard":
        """Make the card of a run from its result, or from the table that its `result.json` holds.

        >>> ModelCard.from_result({"format": 2})
        Traceback (most recent call last):
            ...
        ValueError: Expected a result of format 1, got format 2. Read it with the version of tellers that ...
        """
        run = result if isinstance(result, RunResult) else RunResult.from_dict(result)
        data, parts, spent, student = run.data, run.partition, run.spent, run.student
        task = f"tell {len(data.class_names)} classes apart ({data.name})"
        if run.labels:
            task = f"say yes or no to {len(run.labels)} labels ({data.name})"
        return cls(
            task=task,
            classes=data.class_names,
            unit=parts.unit,
            n_teachers=parts.n_teachers,
            mechanism=run.mechanism.name,
            parameters=run.mechanism.parameters,
            epsilon=spent.epsilon,
            delta=spent.delta,
            is_guarantee=spent.is_guarantee and math.isfinite(spent.epsilon),
            why=spent.why,
            limits=(*parts.notes, *(note for note in data.notes if note.startswith("Rows were left out"))),
            n_queries=run.queries.n_asked,
            n_labels=student.n_labels,
            student=f"{student.model} ({student.kind})",
            accuracy=student.accuracy,
            not_guaranteed=tuple(_left_out(run)),
            versions=run.versions,
            created=run.started,
            groups=tuple(_groups(run)),
            labels=tuple(label.name for label in run.labels),
            scores=student.known_scores or None,
            together=_together(run),
            relation=parts.relation,
            published=run.published,
            clock=clock_words(run.budget.epsilon, run.budget.left) if run.budget.rule == "clock" else "",
            renyi=spent.renyi,
            tested=run.tested,
        )

    @property
    def guarantee(self) -> str:
        """Return what is guaranteed, in one sentence, or that nothing is."""
        if not self.is_guarantee:
            return "Nothing is guaranteed. " + (self.why or "The run gave no guarantee and did not say why.")
        return (
            f"If all data of {self.unit} had been different, whatever anybody may see of the student and of "
            f"the released labels would have been at most {_factor(self.epsilon)} times as likely, or as "
            f"unlikely, give or take delta: epsilon = {shown_epsilon(self.epsilon)}, delta = {self.delta:g}. "
            "However often the student is asked, this stays so."
            + "".join(f" But: {limit}" for limit in self.limits)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON; an infinite epsilon becomes None."""
        return {
            "task": self.task,
            "classes": list(self.classes),
            "unit": self.unit,
            **({"relation": self.relation.as_dict()} if self.relation else {}),
            "n_teachers": int(self.n_teachers),
            "mechanism": {"name": self.mechanism, **{k: _kept(v) for k, v in self.parameters.items()}},
            "epsilon": float(self.epsilon) if math.isfinite(self.epsilon) else None,
            "delta": float(self.delta),
            "is_guarantee": bool(self.is_guarantee),
            "why": self.why,
            "limits": list(self.limits),
            "n_queries": int(self.n_queries),
            "n_labels": int(self.n_labels),
            "student": self.student,
            "accuracy": None if self.accuracy is None else float(self.accuracy),
            "guarantee": self.guarantee,
            "not_guaranteed": list(self.not_guaranteed),
            "versions": dict(self.versions or {}),
            "created": self.created,
            **({"groups": list(self.groups)} if self.groups else {}),
            **({"labels": list(self.labels)} if self.labels else {}),
            **({"scores": dict(self.scores)} if self.scores else {}),
            **({"together": self.together} if self.together else {}),
            **({"published": self.published.as_dict()} if self.published else {}),
            **({"clock": self.clock} if self.clock else {}),
            **({"renyi": self.renyi} if self.renyi is not None else {}),
            **({"tested": self.tested.as_dict()} if self.tested else {}),
        }

    def markdown(self) -> str:
        """Return the card as a page of Markdown; whatever the names contain, it stays text."""
        of = "the labels of the test rows" if self.labels else "the test rows"
        accuracy = "not measured" if self.accuracy is None else f"{100 * self.accuracy:.1f} % of {of}"
        settings = ", ".join(f"{name} = {shown_parameter(value)}" for name, value in self.parameters.items())
        epsilon = f"{shown_epsilon(self.epsilon)} at delta = {self.delta:g}"
        facts = {
            "Student": self.student,
            "Labels" if self.labels else "Classes": ", ".join(self.labels or self.classes),
            "Accuracy": accuracy,
            **{name: f"{value:.3f}" for name, value in _more(self).items()},
            "What is protected": self.unit,
            **({"Neighbouring tables": self.relation.sentence} if self.relation else {}),
            "Teachers": str(self.n_teachers),
            "Mechanism": f"{self.mechanism} ({settings})" if settings else self.mechanism,
            "Questions asked": str(self.n_queries),
            "Labels released": str(self.n_labels),
            "Epsilon": epsilon + (" (a guarantee)" if self.is_guarantee else " (not a guarantee)"),
            **({"Held on a clock": self.clock} if self.clock else {}),
            **({"Held": "at a Rényi order (renyi)"} if self.is_guarantee and not self.clock else {}),
            **({"To compare": renyi_words(self.renyi)} if self.renyi is not None else {}),
            **({"Test": f"{self.tested.words}; {self.tested.terms}"} if self.tested else {}),
            **({"Published epsilon": _upper(self.published)} if self.published else {}),
            **({"All releases together": self.together} if self.together else {}),
            "Made": self.created or "no date",
            "With": ", ".join(f"{name} {number}" for name, number in (self.versions or {}).items())
            or "unknown versions",
        }
        rows = "\n".join(f"| {_plain(name)} | {_plain(value)} |" for name, value in facts.items())
        groups = "\n".join(f"- {_plain(line)}" for line in self.groups)
        groups = f"## What each group is promised\n\n{groups}\n\n" if groups else ""
        if self.published:
            lines = [*_published(self.published), *self.published.meaning]
            told = "\n".join(f"- {_plain(line)}" for line in lines)
            groups += f"## What was published of the cost\n\n{told}\n\n"
        left_out = "\n".join(f"- {_plain(line)}" for line in self.not_guaranteed)
        return (
            f"# Model card: {_plain(self.task)}\n\n| | |\n|---|---|\n{rows}\n\n"
            f"## What is guaranteed\n\n{_plain(self.guarantee)}\n\n"
            f"{groups}## What is not guaranteed\n\n{left_out}\n"
        )


def shown_parameter(value: Any) -> str:
    """Return a parameter of a mechanism as text: a number, a name, or lists of those."""
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(entry, (list, tuple)) for entry in value)
        return ", ".join(f"({shown_parameter(e)})" if nested else shown_parameter(e) for e in value)
    return value if isinstance(value, str) else f"{value:g}"


def _kept(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_kept(entry) for entry in value]
    return value if isinstance(value, str) else float(value)


def _more(card: ModelCard) -> dict[str, float]:
    known = {name: value for name, value in (card.scores or {}).items() if name in SCORES}
    known.pop("accuracy", None)
    if card.labels:
        return {SCORES[name][0]: value for name, value in known.items()}
    # Over all rows they are the accuracy, where each has one class.
    macro = {name: value for name, value in known.items() if not name.startswith("micro")}
    return {SCORES[name][0].replace("labels", "classes"): value for name, value in macro.items()}


def shown_epsilon(value: float) -> str:
    """Return an epsilon with two decimals, or two figures where it is small, rounded up."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else "infinite"
    decimals: int = max(2, 1 - math.floor(math.log10(abs(value))))
    # The guard keeps 0.3 from becoming 0.31 because its binary form is a hair larger.
    return f"{math.ceil(value * 10.0**decimals * (1 - 1e-12)) / 10.0**decimals:.{decimals}f}"


def renyi_words(epsilon: float) -> str:
    """Return what the Rényi epsilon of the releases on a clock is, and when it holds."""
    return (
        f"Rényi epsilon {shown_epsilon(epsilon)} of the same releases, which holds where their list was "
        "fixed beforehand; the ledger does not go by it"
    )


def _factor(epsilon: float) -> str:
    """Return e^epsilon rounded up: one decimal where it is small, powers of ten where it is huge."""
    if epsilon > 30:
        return f"10^{math.ceil(epsilon / math.log(10))}"
    factor = math.exp(epsilon)
    return f"{math.ceil(10 * factor) / 10:.1f}" if factor < 100 else f"{math.ceil(factor):,}"


def _together(run: RunResult) -> str:
    if not run.spent.shared or run.spent.charged is None:
        return ""
    return (
        f"epsilon {shown_epsilon(run.spent.charged)} of a budget of {run.budget.epsilon:g} is charged so "
        "far, this student and the other releases on its ledger"
    )


def _upper(published: PublishedCosts) -> str:
    return (
        f"at most {shown_epsilon(published.epsilon_upper)} at delta = {published.delta:g}, with "
        f"{published.confidence} confidence, for the votes at hand (not a guarantee)"
    )


def _published(published: PublishedCosts) -> Iterator[str]:
    for line in published.groups:
        whose = f"{line.name}: " if published.kind == "groups" else ""
        yield (
            f"{whose}epsilon at most {shown_epsilon(line.epsilon_upper)} was published, where the public "
            f"epsilon is {shown_epsilon(line.public)}. On the ledger are {shown_epsilon(line.after)} of a "
            f"budget of {line.budget:.4g} then."
        )


def _groups(run: RunResult) -> Iterator[str]:
    personal = run.personal
    if personal is None:
        return
    yield f"People have budgets of their own, by {personal.words}."
    for group in personal.groups:
        who = f"{group.n_persons} {'people' if run.partition.unit == 'one person' else 'records'}"
        line = (
            f"{group.name} ({who}): agreed to epsilon = {group.epsilon:.4g}, and is held to epsilon = "
            f"{shown_epsilon(group.stated)} at delta = {run.spent.delta:g}: at most {_factor(group.stated)} "
            "times as likely, or as unlikely."
        )
        if personal.left_after(group.name) is not None:
            asked = f"{group.n_queries} of {run.queries.n_asked} queries"
            line += f" It took part in {asked}; then its budget was used."
        yield line
    if personal.rounds_words:
        yield personal.rounds_words


def _left_out(run: RunResult) -> Iterator[str]:
    unit = run.partition.unit
    if run.student.accuracy is not None:
        yield _MEASURED
    if run.personal is not None:
        yield _CONSENT
    if unit in _UNIT:
        yield _UNIT[unit]
    yield from run.partition.notes
    yield from run.data.notes
    budget = run.settings.get("budget")
    if isinstance(budget, Mapping) and budget.get("stop") == "private":
        yield _PRIVATE_STOP
    for line in _EVERYONE:
        told = line.replace("the classes,", "the labels, their thresholds and what follows from what,")
        yield (told if run.labels else line).format(unit=unit)


def _plain(text: str) -> str:
    """Return text that no Markdown reader takes for markup: names of classes and columns are anybody's."""
    line = " ".join(str(text).split())
    line = re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# A student and its card on disk

_FORMAT = 1
_CARDS = ("card.json", "card.md")
_MODELS = ("student.safetensors", "student.skops")
_MANIFEST = "manifest.json"
# How a model is fed, where that takes more than rows of numbers: a recording, say.
_BESIDE = ("hearing.json",)


@runtime_checkable
class Portable(Protocol):
    """A model that brings its own safetensors bytes and can be made from them again.

    Its class has `from_bytes(content)` too, which returns the model. Everything needed to predict is in the
    bytes: the numbers as tensors, the rest as text in the header.
    """

    def to_bytes(self) -> bytes:
        """Return the model as the content of a safetensors file."""
        ...


def export_student(
    student: Any,
    folder: str | PathLike[str],
    *,
    card: ModelCard,
    trusted: Sequence[str] = (),
    overwrite: bool = False,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a student and its card into a folder of their own, whole or not at all, and return the folder.

    Models are written by skops, `Portable` ones as safetensors. `trusted` names types that skops does not
    know. A folder that holds another student is replaced only with `overwrite`; one that holds anything else
    never is. `beside` are files that say how the model is fed; they are public as the student is.

    >>> import tempfile
    >>> from sklearn.linear_model import LogisticRegression
    >>> student = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> card = ModelCard(
    ...     task="tell 2 classes apart", classes=("a", "b"), unit="one record", n_teachers=60,
    ...     mechanism="GNMax", parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5, is_guarantee=True,
    ...     n_queries=100, n_labels=100, student="logistic (supervised)", accuracy=None, not_guaranteed=(),
    ... )
    >>> with tempfile.TemporaryDirectory() as room:
    ...     place = export_student(student, Path(room) / "student", card=card)
    ...     sorted(file.name for file in place.iterdir()), load_student(place).predict([[0.9]])
    (['card.json', 'card.md', 'manifest.json', 'student.skops'], array([1]))
    """
    unknown = sorted(set(beside or {}) - {*_BESIDE})
    if unknown:
        raise ValueError(f"Expected files among {', '.join(_BESIDE)} beside a student, got {unknown[0]!r}.")
    place = Path(folder).absolute()
    _require_room(place, overwrite=overwrite)
    # Everything that can be wrong with the student is found before anything is written.
    files = {**_model_file(student, trusted), **(beside or {}), **_card_files(card)}
    manifest = {"format": _FORMAT, "type": type_name(type(student)), "files": _sums(files)}
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
    aside = fresh.with_suffix(".old")
    fresh.mkdir()
    try:
        for name, content in [*files.items(), (_MANIFEST, _json(manifest))]:
            write_whole(fresh / name, content, shared=True)
        # A folder cannot take the name of a full one. Killed between the two lines, there is no student
        # under the name, which is not half a student.
        if place.exists():
            place.rename(aside)
        fresh.rename(place)
    except BaseException:
        if aside.exists() and not place.exists():
            aside.rename(place)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if place.exists():
            shutil.rmtree(aside, ignore_errors=True)
    sync_folder(place.parent)
    return place


def replace_card(folder: str | PathLike[str], *, card: ModelCard) -> Path:
    """Give an exported student another card and return its folder; the student itself is not touched.

    Killed on the way, the folder is refused as damaged until this is called again, which repairs it.
    """
    place = Path(folder)
    manifest = _manifest(place)
    cards = _card_files(card)
    for name, content in cards.items():
        write_whole(place / name, content, shared=True)
    files = dict(sorted({**manifest["files"], **_sums(cards)}.items()))
    write_whole(place / _MANIFEST, _json({**manifest, "files": files}), shared=True)
    return place


def load_student(folder: str | PathLike[str], *, trusted: Sequence[str] = (), **needed: Any) -> Any:
    """Return the student of a folder that `export_student` wrote, after checking that nothing was damaged.

    Nothing is unpickled. Types that neither skops nor this package knows are loaded only if `trusted` names
    them. What a `Portable` model cannot keep in its bytes is `needed` again, such as the function `network`
    of a torch student. See `export_student` for an example.

    >>> load_student("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of an exported student, found none at nowhere. Check the path.
    """
    place = Path(folder)
    manifest = _manifest(place)
    contents = {}
    for name, expected in manifest["files"].items():
        try:
            contents[name] = read_bounded(place / name, most=cap())
        except OSError as error:
            raise ValueError(
                f"Expected {name} in {place}, got: {error.strerror or error}. Export the student again."
            ) from error
        if hashlib.sha256(contents[name]).hexdigest() != expected:
            raise ValueError(
                f"Expected {name} as it was exported, but {place / name} was damaged or changed since. "
                "Nothing was loaded. Export the student again."
            )
    if "student.skops" in contents:
        if needed:
            raise TypeError(f"Expected nothing else for a model saved by skops, got {', '.join(needed)}.")
        return load_model(contents["student.skops"], trusted=trusted)
    return _from_tensors(contents["student.safetensors"], manifest["type"], trusted, needed)


def _require_room(place: Path, *, overwrite: bool) -> None:
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise FileExistsError(f"Expected a new folder for the student, {place} is a file or a link.")
    found = {file.name for file in place.iterdir()} if place.is_dir() else set()
    if not found:
        return
    if _MANIFEST not in found or found - {*_CARDS, *_MODELS, *_BESIDE, _MANIFEST}:
        raise FileExistsError(
            f"Expected a new folder for the student, {place} holds other files. Name a folder of its own."
        )
    if not overwrite:
        raise FileExistsError(
            f"Expected a new folder, {place} holds a student already. "
            "Name another folder, or replace that student with overwrite=True."
        )


def _model_file(student: Any, trusted: Sequence[str]) -> dict[str, bytes]:
    if not isinstance(student, Portable):
        return {"student.skops": dump_model(student, trusted=trusted)}
    content: Any = student.to_bytes()
    if not isinstance(content, bytes) or not hasattr(type(student), "from_bytes"):
        raise TypeError(
            f"Expected a model with to_bytes and from_bytes, got {type(student).__name__}, which has one of "
            "them alone or gives no bytes."
        )
    return {"student.safetensors": content}


def _from_tensors(content: bytes, name: Any, trusted: Sequence[str], needed: dict[str, Any]) -> Any:
    module, _, kind = str(name).rpartition(".")
    if not (module.startswith("tellers.") or name in trusted):
        raise ValueError(
            f"Expected a student of a known type, got {name}. It was not loaded. If you know where it comes "
            f"from: trusted=[{name!r}]."
        )
    try:
        make = getattr(importlib.import_module(module), kind).from_bytes
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
            raise  # it says which library is missing
        raise ValueError(
            f"Expected a class {name} with from_bytes, found none. Install the version of the package that "
            "the card names."
        ) from error
    return make(content, **needed)


def _manifest(place: Path) -> dict[str, Any]:
    if not place.is_dir():
        raise ValueError(
            f"Expected the folder of an exported student, found none at {place}. Check the path."
        )
    try:
        manifest = json.loads((place / _MANIFEST).read_bytes())
        files = manifest["files"]
        # Names from a fixed list: a manifest cannot lead out of its folder.
        sound = set(files) - {*_BESIDE} in ({*_CARDS, model} for model in _MODELS)
    except FileNotFoundError:
        raise ValueError(
            f"Expected {_MANIFEST} in {place}, found none: no student was exported there, or not by tellers."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"Expected a readable {_MANIFEST} in {place}. Export the student again.") from error
    if manifest.get("format") != _FORMAT or not sound:
        raise ValueError(
            f"Expected a student of format {_FORMAT} in {place}, got another. "
            "Read it with the version of tellers that wrote it."
        )
    return dict(manifest)


def _card_files(card: ModelCard) -> dict[str, bytes]:
    return {"card.json": _json(card.as_dict()), "card.md": card.markdown().encode()}


def _sums(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def _json(table: dict[str, Any]) -> bytes:
    return (json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
