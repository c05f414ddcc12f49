"""Networks that tag clips, or choose one class per clip, in the manner of scikit-learn classifiers.

Rows stay where they are, on disk if they are mapped from there; only a batch at a time goes to the device.
Rows that are held out to stop in time are taken from the very rows given: a teacher looks at its own alone.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ..errors import MissingExtra, TeacherFailed, require_count, require_positive
from ..privacy._rows import class_ids, label_table, numeric_rows
from ..privacy.release import SILENT
from .devices import find_device, limited_threads, seeded
from .estimator import LabelAnswers, TorchEstimator, drawn_seed, one_each, told_rows
from .loop import (
    LOST,
    Checkpoint,
    Checks,
    Course,
    GradientStep,
    Progress,
    Turn,
    fingerprint,
    half_cosine,
    train,
)
from .losses import class_weights, told_loss
from .networks import Factory, Shape, build_network, network_factory
from .weights import bytes_of, load_arrays, load_pretrained, state_arrays

Integers = NDArray[np.int64]
_CHUNK = 256
_AT_ONCE = 16  # what lies in a processor's own memory is faster than more at a time
_CHECKED_AT_ONCE = 64


@dataclass(eq=False, repr=False)
class AudioTagger(LabelAnswers):
    """Log-Mel pictures in, a probability per label out: `fit` with rows x labels of 1, 0 and SILENT.

    X is (rows, frames, bins), or flat rows with `shape=(frames, bins)`. `network` is "small" (for a CPU),
    "resnet18", "resnet34", "vgg11" or "vgg19"; `pretrained` a local file of public weights to begin with. It
    learns from so many batches by Adam, whose rate falls along half a cosine. `balanced` gives every label
    its turn (`BalancedRows`), `mixup` is the concentration of the mixing proportions (0: none) of
    `mixup_share` of the rows, `weighted` presses the ratio of no to yes of each label between `weight_bounds`
    and weighs the loss with it. `held_out` is the share of the rows of X that are not learned from but looked
    at every `check_every` batches: the network is the one whose loss was smallest there, and after `patience`
    looks without a better one the training stops (0: it goes on to the end). Pictures are scaled by the mean
    and the spread of the rows given to `fit`. `log_folder` takes TensorBoard's files, as private as the rows
    are, in a folder named by the seed, so that teachers keep theirs apart. Everything random comes from
    `random_state`. A label that is silent in every row is answered 0, and `silent_labels_` names it.

    Guarantee: none by itself. Fitted to a part of a `Partition` it is a teacher: nothing but that part, and
               public weights, go in. Fitted to released labels of public clips it costs nothing more.
    Reference: the thesis on private audio tagging, sections 4.4 and 5.1.3 (rate 1e-4, batches of 64).

    >>> X = np.random.default_rng(7).normal(size=(40, 16, 16))
    >>> Y = np.stack([X[:, :, :8].mean(axis=(1, 2)) > 0, X[:, :, 8:].mean(axis=(1, 2)) > 0], axis=1)
    >>> tagger = AudioTagger("small", iterations=30, batch_size=8, device="cpu", random_state=7)
    >>> tagger.fit(X, Y).predict_proba(X).shape, tagger.n_steps_
    ((40, 2), 30)
    >>> same = AudioTagger.from_bytes(tagger.to_bytes())
    >>> bool((same.predict_proba(X) == tagger.predict_proba(X)).all())
    True
    >>> tagger.predict(X[:3]).shape, tagger.set_params(mixup=0.0).get_params()["mixup"]
    ((3, 2), 0.0)
    """

    # Where it is trained, and where that is logged, make no other network.
    not_made_of: ClassVar[tuple[str, ...]] = ("device", "log_folder")
    _kept: ClassVar[tuple[str, ...]] = (
        "n_labels", "silent_labels", "shape", "scale", "n_steps", "best_step",
    )  # fmt: skip

    network: str = "small"
    _: KW_ONLY
    shape: tuple[int, int] | None = None
    iterations: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    balanced: bool = True
    mixup: float = 1.0
    mixup_share: float = 0.5
    weighted: bool = False
    weight_bounds: tuple[float, float] = (0.5, 1.0)
    pretrained: str | PathLike[str] | None = None
    held_out: float = 0.0
    check_every: int = 50
    patience: int = 0
    device: str = "auto"
    n_threads: int = 1
    log_folder: str | PathLike[str] | None = None
    random_state: int | None = None

    def _require_settings(self) -> None:
        """Refuse settings that nothing can be trained by."""
        require_count(iterations=self.iterations, check_every=self.check_every)
        require_count(2, batch_size=self.batch_size)  # batch norm has nothing to go by in one row
        require_count(0, patience=self.patience)
        require_positive(learning_rate=self.learning_rate)
        if self.mixup:
            require_positive(concentration=self.mixup)
        if not 0 <= self.mixup_share <= 1:
            raise ValueError(f"Expected a share of rows from 0 to 1, got share={self.mixup_share!r}.")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"Expected held_out as a share from 0 to below 1, got {self.held_out!r}.")
        if self.patience and not self.held_out:
            raise ValueError(
                f"Expected held_out > 0 with patience={self.patience}: without rows held out nobody can say "
                "when to stop. Give held_out=0.1, or leave patience out."
            )

    def picture_shape(self, shape: Shape) -> Shape:
        """Return (1, frames, bins) for a table of pictures of this shape, or refuse it.

        >>> AudioTagger().picture_shape((40, 1001, 64)), AudioTagger(shape=(101, 32)).picture_shape((9, 3232))
        ((1, 1001, 64), (1, 101, 32))
        """
        own = tuple(int(n) for n in shape[1:])
        if self.shape is not None:
            frames, bins = (int(n) for n in self.shape)
            if own not in ((frames * bins,), (frames, bins), (1, frames, bins)):
                raise ValueError(f"Expected pictures of shape {(frames, bins)}, got rows of shape {own}.")
            return 1, frames, bins
        if len(own) == 3 and own[0] == 1:
            return own
        if len(own) != 2:
            raise ValueError(
                f"Expected pictures (rows, frames, bins), got rows of shape {own}. Give shape=(frames, bins)."
            )
        return 1, *own

    def fit(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        *,
        folder: str | PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> "AudioTagger":
        """Train a new network on pictures and the labels that were told of them.

        With a `folder` the training leaves a checkpoint there and goes on from it when called again with the
        same rows, labels and settings; it needs a `random_state`.

        >>> from tellers import SILENT
        >>> X, silence = np.zeros((4, 16, 16)), [[SILENT]] * 4
        >>> AudioTagger(iterations=1).fit(X, silence)
        Traceback (most recent call last):
            ...
        ValueError: Expected at least one label that was told, got silence alone. Ask more queries.
        """
        rows = numeric_rows(X)
        table = label_table(Y, n_rows=len(rows), silent=True)
        spoken, silent_labels = told_rows(table)
        if spoken.size < len(rows):
            rows, table = rows[spoken], table[spoken]
        self._require_settings()
        shape, n_labels = self.picture_shape(rows.shape), table.shape[1]
        if folder is not None and self.random_state is None:
            raise ValueError(
                "Expected random_state with a folder: without it the training that was begun cannot go on."
            )
        device, seed = find_device(self.device), drawn_seed(self.random_state)
        network = build_network(self._factory(shape, n_labels), shape, n_classes=n_labels, seed=seed)
        if self.pretrained is not None:
            load_pretrained(network, self.pretrained)
        self.scale_, self.shape_ = _scale(rows), shape
        checkpoint = None
        if folder is not None:
            # What the training begins with, not where it lies: a file may change under its name.
            begun = [values.numpy() for values in network.state_dict().values()]
            settings = {**self.get_params(), **dict.fromkeys(self.not_made_of), "pretrained": None}
            made_of = fingerprint(settings, rows, table, *begun)
            checkpoint = Checkpoint(Path(folder), made_of, self.check_every)
        log = None if self.log_folder is None else Path(self.log_folder) / f"seed-{seed}"
        with limited_threads(device, self.n_threads), _board(log) as board:
            batches = _Batches(rows, table, self, seed=seed, device=device)
            course = self._train(network, batches, checkpoint=checkpoint, board=board, progress=progress)
        if not course.is_finite:
            raise TeacherFailed(LOST)
        self.n_labels_, self.state_, self.silent_labels_ = n_labels, course.best, silent_labels
        self.n_steps_, self.best_step_ = course.step, course.best_step
        self.history_ = [list(line) for line in course.history]
        return self

    def _train(
        self,
        network: nn.Module,
        batches: "_Batches",
        *,
        checkpoint: Checkpoint | None,
        board: Any,
        progress: Progress | None,
    ) -> Course:
        device = batches.device
        network = _laid_out(network.to(device)).train()

        def rate(step: int) -> float:
            return self.learning_rate * half_cosine(step, self.iterations)

        step = GradientStep(
            [Turn(network, lambda batch: batches.loss(network, *batch))], device, draw=batches.draw,
            rate=rate,
            optimizer=lambda turn: torch.optim.Adam(
                [weight for weight in turn.module.parameters() if weight.requires_grad], self.learning_rate,
                weight_decay=self.weight_decay, fused=device.type == "cpu",
            ),
        )  # fmt: skip

        def report(at: int, learned: float, held: float) -> None:
            if board is not None:
                board.add_scalar("loss/learned from", learned, at)
                board.add_scalar("learning rate", rate(at), at)
                if batches.held.size:
                    board.add_scalar("loss/held out", held, at)

        checks = Checks(
            every=self.check_every, state=lambda: state_arrays(network.state_dict()),
            loss=(lambda: batches.held_loss(network)) if batches.held.size else None, patience=self.patience,
            report=report,
        )  # fmt: skip
        # A network may draw numbers of its own: then from this seed, and what others draw is not disturbed.
        with seeded(batches.seed, device):
            course = train(
                step, self.iterations, device=device, checks=checks, saved=step,
                checkpoint=checkpoint, progress=progress, progress_every=self.check_every,
            )  # fmt: skip
        if not course.best:
            course.best, course.best_step = checks.state(), course.step
        return course

    def _factory(self, shape: Shape, n_labels: int) -> Factory:
        return network_factory(self.network, shape=shape, n_labels=n_labels)

    def require_fit(self, shape: Shape, *, n_labels: int) -> None:
        """Refuse pictures of a shape, or settings, that training would refuse; nothing is trained.

        >>> AudioTagger("resnet18").require_fit((100, 1001, 16), n_labels=3)
        Traceback (most recent call last):
            ...
        ValueError: Expected at least 32 frames and 32 bins for network='resnet18', got 1001 and 16. ...
        """
        self._require_settings()
        split_rows(int(shape[0]), self.held_out, seed=0)
        find_device(self.device)
        if self.log_folder is not None:
            _board_writer()
        require_count(n_threads=self.n_threads)
        own = self.picture_shape(shape)
        factory = self._factory(own, n_labels)
        if self.pretrained is not None:
            load_pretrained(build_network(factory, own, n_classes=n_labels, seed=0), self.pretrained)

    @torch.no_grad()
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of every label, rows x labels."""
        self._check_fitted()
        rows = numeric_rows(X)
        if int(np.prod(rows.shape[1:])) != int(np.prod(self.shape_)):
            raise ValueError(f"Expected pictures of shape {self.shape_[1:]}, got rows of {rows.shape[1:]}.")
        device = find_device(self.device)
        with limited_threads(device, self.n_threads):
            network = _laid_out(self._fitted_network().to(device).eval())
            answers = [
                network(self._tensor(rows[start : start + _AT_ONCE], device)).double().sigmoid().cpu()
                for start in range(0, len(rows), _AT_ONCE)
            ]
        said: NDArray[np.float64] = torch.cat(answers).numpy()
        said[:, self.silent_labels_] = 0.0
        return said

    def _stored_parameters(self) -> dict[str, Any]:
        # Places on somebody's disk are no part of a model, nor is the device of whoever trained it.
        return {**self.get_params(), "pretrained": None, "log_folder": None, "device": "auto"}

    @classmethod
    def _made_of(cls, parameters: Mapping[str, Any]) -> "AudioTagger":
        made = cls(**parameters)
        made.history_ = []
        return made

    def _fitted_network(self) -> nn.Module:
        with torch.device("meta"):  # no numbers are drawn that are overwritten at once
            blank = self._factory(self.shape_, self.n_labels_)()
        return load_arrays(blank, self.state_)

    def _tensor(self, rows: NDArray[Any], device: torch.device) -> Tensor:
        mean, spread = self.scale_
        shaped = np.asarray(rows, dtype=np.float32).reshape(len(rows), *self.shape_)
        return torch.from_numpy((shaped - np.float32(mean)) / np.float32(spread)).to(device)

    def __repr__(self) -> str:
        return f"AudioTagger(network={self.network!r}, iterations={self.iterations!r})"


def _scale(rows: NDArray[Any]) -> tuple[float, float]:
    """Return mean and spread of all numbers, read in pieces: rows may be larger than memory."""
    n = total = square = 0.0
    for start in range(0, len(rows), _CHUNK):
        part = np.asarray(rows[start : start + _CHUNK], dtype=np.float64)
        n, total, square = n + part.size, total + part.sum(), square + np.square(part).sum()
    mean = total / n
    spread = float(np.sqrt(max(square / n - mean**2, 0.0)))
    return float(mean), spread if spread > 0 else 1.0


def split_rows(n_rows: int, held_out: float, *, seed: int) -> tuple[Integers, Integers]:
    """Return the rows to learn from and those held out, at least one and two to learn from."""
    if held_out == 0:
        return np.arange(n_rows), np.empty(0, dtype=np.int64)
    if n_rows < 3:
        raise ValueError(f"Expected at least 3 rows to hold some out, got {n_rows}. Leave held_out at 0.")
    n_held = min(max(1, round(held_out * n_rows)), n_rows - 2)
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).permutation(n_rows)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


class _Batches:
    """The batches of one network: whose turn it is, mixed as its tagger says, and the rows held out."""

    def __init__(
        self, X: NDArray[Any], Y: Integers, tagger: AudioTagger, *, seed: int, device: torch.device
    ) -> None:
        self.X, self.Y, self.tagger, self.seed, self.device = X, Y, tagger, seed, device
        self.own, self.held = split_rows(len(X), tagger.held_out, seed=seed)
        self.stream: BalancedRows | Deck
        if tagger.balanced:
            self.stream = BalancedRows(Y[self.own], seed=seed)
        else:
            self.stream = Deck(np.arange(len(self.own)), np.random.default_rng(seed))
        self.generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        self.n_drawn = 0
        self.weights: Tensor | None = None
        if tagger.weighted:
            low, high = tagger.weight_bounds
            found = class_weights(Y[self.own], lowest=low, highest=high)
            self.weights = torch.as_tensor(found, dtype=torch.float32, device=device)

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        # What was drawn before a checkpoint is drawn again: it costs nothing beside the steps themselves.
        while self.n_drawn < number:
            self._next()
        rows, kept = self._next()
        seen, targets = self._tensors(rows)
        if kept is not None:
            seen, targets = mix(seen, targets, weights=torch.from_numpy(kept).to(self.device))
        return seen, targets

    def _next(self) -> tuple[Integers, NDArray[np.float32] | None]:
        self.n_drawn += 1
        rows, tagger = self.own[self.stream.take(self.tagger.batch_size)], self.tagger
        if not tagger.mixup:
            return rows, None
        return rows, kept_shares(len(rows), tagger.mixup, share=tagger.mixup_share, draw=self.generator)

    def _tensors(self, rows: Integers) -> tuple[Tensor, Tensor]:
        targets = torch.from_numpy(self.Y[rows].astype(np.float32)).to(self.device)
        return self.tagger._tensor(self.X[rows], self.device), targets

    def loss(self, network: nn.Module, seen: Tensor, targets: Tensor) -> Tensor:
        return told_loss(network(seen), targets, weights=self.weights)

    @torch.no_grad()
    def held_loss(self, network: nn.Module) -> float:
        """Return the mean loss over what was told of the rows held out."""
        network.eval()
        total, n_told = 0.0, 0.0
        for start in range(0, self.held.size, _CHECKED_AT_ONCE):
            seen, targets = self._tensors(self.held[start : start + _CHECKED_AT_ONCE])
            told = float((targets >= 0).sum())
            total += float(self.loss(network, seen, targets)) * told
            n_told += told
        network.train()
        return total / n_told if n_told else math.inf


# --- The order in which a network sees its rows ---
#
# Both orders are endless, draw from one seed alone, and look at nothing but the rows they are given: a
# teacher's batches know of no other teacher's rows.


class Deck:
    """Cards that are dealt to the last, then shuffled and dealt again, and so on."""

    def __init__(self, cards: Integers, generator: np.random.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._left: list[int] = []

    def draw(self) -> int:
        if not self._left:
            self._left = self._generator.permutation(self._cards).tolist()
        return self._left.pop()

    def take(self, n_cards: int) -> Integers:
        return np.array([self.draw() for _ in range(n_cards)], dtype=np.int64)


class BalancedRows:
    """Rows drawn for one label after another, so that every label gets its turn equally often.

    Labels come in a random order, each once before any comes again; a label's turn shows the next of its own
    rows, each once before any comes again. A row has other labels too, so labels that accompany many others
    are still seen more often. Rows without any label are one more group with a turn of its own: a network
    that never heard nothing would hear something everywhere. A label that no row has gets no turn; what is
    not told (SILENT) does not count as a label.

    Guarantee: after n draws the turns of two groups differ by at most one, and so do the draws of two rows
               within one group's turns.
    Reference: the thesis on private audio tagging, section 4.4.2, which has no rows without a label.
    """

    def __init__(self, Y: ArrayLike, *, seed: int) -> None:
        given = np.asarray(Y)
        table = label_table(given, n_rows=len(given), silent=True) == 1
        self.n_labels = table.shape[1]
        rows = [np.flatnonzero(column) for column in table.T] + [np.flatnonzero(~table.any(axis=1))]
        order, own = np.random.SeedSequence(seed).spawn(2)
        generators = (np.random.default_rng(child) for child in own.spawn(len(rows)))
        self._rows = {
            group: Deck(members, generator)
            for group, (members, generator) in enumerate(zip(rows, generators, strict=True))
            if members.size
        }
        self._groups = Deck(np.array(list(self._rows)), np.random.default_rng(order))

    def draw(self, n_rows: int) -> tuple[Integers, Integers]:
        """Return the next row numbers, and whose turn each was; `n_labels` is that of rows without one."""
        turns = self._groups.take(n_rows)
        return np.array([self._rows[int(turn)].draw() for turn in turns], dtype=np.int64), turns

    def take(self, n_rows: int) -> Integers:
        return self.draw(n_rows)[0]


# --- Mixup: two spectrograms become one, and so do their labels, in the same proportion ---


def kept_shares(
    n_rows: int, concentration: float, *, share: float, draw: np.random.Generator
) -> NDArray[np.float32]:
    """Return how much of itself each row keeps: 1 where it is not mixed.

    `share` of the rows are mixed, in proportions from Beta(concentration, concentration). One half is the
    thesis's: as many mixed rows as plain ones.

    Reference: the thesis on private audio tagging, section 4.4.3; Zhang et al. 2018.
    """
    kept = draw.beta(concentration, concentration, n_rows)
    mixed = draw.random(n_rows) < share
    return np.where(mixed, kept, 1.0).astype(np.float32)


def mix(rows: Tensor, targets: Tensor, *, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return every row mixed with the next one of the batch, the last with the first, and targets alike.

    A label that is SILENT in one of two mixed rows is silent in the mixture: nobody knows what share it has.
    """
    kept = weights.view(-1, *[1] * (rows.dim() - 1))
    mixed = kept * rows + (1 - kept) * rows.roll(-1, 0)
    own, other, share = targets, targets.roll(-1, 0), weights[:, None]
    blended = share * own + (1 - share) * other
    unknown = (own < 0) | ((other < 0) & (share < 1))
    return mixed, torch.where(unknown, float(SILENT), torch.where(share < 1, blended, own))


def _laid_out(network: nn.Module) -> nn.Module:
    """Return a network with its weights in the order in which a CPU convolves and pools fastest."""
    if any(weight.device.type != "cpu" for weight in network.parameters()):
        return network
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _board(folder: Path | None) -> AbstractContextManager[Any]:
    """Open TensorBoard's files in a folder, to be closed after; nothing where no folder is named.

    What a teacher writes there depends on its rows: the folder is as private as they are.
    """
    if folder is None:
        return nullcontext()
    writer_of = _board_writer()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return closing(writer_of(str(folder)))


def _board_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            "Expected tensorboard for log_folder, found none: pip install 'tellers[tensorboard]', or leave "
            "log_folder out."
        ) from error
    return SummaryWriter


@dataclass(eq=False, repr=False)
class AudioClassifier(TorchEstimator):
    """A tagger for clips of one class each: every class is a label, and the likeliest one is the answer.

    `n_classes` declares the classes 0 to n_classes - 1; they are not read off private labels. The rest is
    said by the `tagger`, with its balanced batches, mixup and weights.

    >>> X, y = np.random.default_rng(7).normal(size=(12, 16, 16)), np.arange(12) % 3
    >>> tagger = AudioTagger(iterations=2, batch_size=4, device="cpu", random_state=7)
    >>> model = AudioClassifier(tagger, n_classes=3).fit(X, y)
    >>> model.predict_proba(X).sum(axis=1).round(6)[:2], model.predict(X).shape, 0 <= model.score(X, y) <= 1
    (array([1., 1.]), (12,), True)
    >>> bool((AudioClassifier.from_bytes(model.to_bytes()).predict(X) == model.predict(X)).all())
    True
    >>> model.set_params(tagger__mixup=0.0).get_params()["tagger__mixup"]
    0.0
    """

    not_made_of: ClassVar[tuple[str, ...]] = tuple(f"tagger__{name}" for name in AudioTagger.not_made_of)

    tagger: AudioTagger
    _: KW_ONLY
    n_classes: int

    def fit(self, X: ArrayLike, y: ArrayLike, **training: Any) -> "AudioClassifier":
        """Train a new network on pictures and their classes; `training` is what `AudioTagger.fit` takes.

        >>> AudioClassifier(AudioTagger(), n_classes=2).fit(np.zeros((2, 16, 16)), [0, 2])
        Traceback (most recent call last):
            ...
        ValueError: Expected classes 0..1 in y (n_classes=2), got another in row 1. Declare every class.
        """
        require_count(2, n_classes=self.n_classes)
        rows = numeric_rows(X)
        told = class_ids(one_each(y, n_rows=len(rows)), n_classes=int(self.n_classes))
        table = np.eye(int(self.n_classes), dtype=np.int64)[told]
        self.tagger.fit(rows, table, **training)
        self.classes_ = np.arange(int(self.n_classes))
        return self

    def require_fit(self, shape: tuple[int, ...], *, n_labels: int) -> None:
        """Refuse classes, pictures of a shape, or settings, that training would refuse; nothing is trained.

        >>> AudioClassifier(AudioTagger(), n_classes=2).require_fit((9, 101, 64), n_labels=3)
        Traceback (most recent call last):
            ...
        ValueError: Expected n_classes=3, as there are classes, got n_classes=2.
        """
        if self.n_classes != n_labels:
            raise ValueError(
                f"Expected n_classes={n_labels}, as there are classes, got n_classes={self.n_classes}."
            )
        self.tagger.require_fit(shape, n_labels=n_labels)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class: the labels' own, divided by their sum."""
        said = self.tagger.predict_proba(X)
        # Where every label is out of the question no class is likelier than another.
        said = np.maximum(said, 1e-12)
        return np.asarray(said / said.sum(axis=1, keepdims=True))

    def to_bytes(self) -> bytes:
        """Return the fitted classifier as a safetensors file: that of its tagger."""
        return self.tagger.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, *, network: Factory | None = None) -> "AudioClassifier":
        """Return the classifier of a safetensors file."""
        with bytes_of("AudioClassifier"):
            tagger = AudioTagger.from_bytes(content)
        made = cls(tagger, n_classes=tagger.n_labels)
        made.classes_ = np.arange(tagger.n_labels)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.tagger, "state_")

    def __repr__(self) -> str:
        return f"AudioClassifier({self.tagger!r}, n_classes={self.n_classes!r})"


def audio_classifier(*, n_classes: int, **tagger: Any) -> AudioClassifier:
    """Return a classifier before it is fitted, from plain numbers and words, as files have them.

    `tagger` are the parameters of `AudioTagger`.

    >>> audio_classifier(n_classes=3, iterations=5, shape=[101, 64])
    AudioClassifier(AudioTagger(network='small', iterations=5), n_classes=3)
    """
    return AudioClassifier(AudioTagger(**tagger), n_classes=n_classes)
