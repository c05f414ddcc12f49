"""Made-up street sounds: sirens, engines, bells and voices from formulas, alone or mixed.

For tests and first tries: no download, no licence, and the labels are right by construction. No two clips are
alike, and the same seed gives the same clips.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile
from scipy.signal import lfilter

from ...errors import require_count, require_positive
from ..clips import Clips

Samples = NDArray[np.float32]
Sound = Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]]


def _siren(t: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    """Return a tone that wails up and down between two pitches."""
    low, span = draw.uniform(500, 700), draw.uniform(400, 700)
    pace, phase = draw.uniform(0.25, 1.2), draw.uniform(0, 2 * np.pi)
    pitch = low + span * (0.5 + 0.5 * np.sin(2 * np.pi * pace * t + phase))
    turn = 2 * np.pi * np.cumsum(pitch) * (t[1] - t[0])
    return np.asarray(np.sin(turn) + 0.3 * np.sin(2 * turn) + 0.1 * np.sin(3 * turn))


def _engine(t: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    """Return the firing of cylinders: harmonics of a low tone that speeds up and slows down, and rumble."""
    speed = draw.uniform(25, 60) * (
        1 + 0.2 * np.sin(2 * np.pi * draw.uniform(0.05, 0.3) * t + draw.uniform(0, 6))
    )
    turn = 2 * np.pi * np.cumsum(speed) * (t[1] - t[0])
    sound = sum(np.sin(k * turn + draw.uniform(0, 2 * np.pi)) / k**0.8 for k in range(1, 16))
    rumble = lfilter([0.05], [1.0, -0.95], draw.standard_normal(len(t)))
    return np.asarray(sound + 2.0 * rumble)


def _bell(t: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    """Return strokes of a bell: partials that are no harmonics and die away, the high ones sooner."""
    base, sound = draw.uniform(250, 600), np.zeros_like(t)
    partials = ((0.5, 0.6), (1.0, 1.0), (1.19, 0.7), (1.5, 0.4), (2.0, 0.6), (2.74, 0.3), (4.07, 0.2))
    every = draw.uniform(0.6, 1.6)
    for stroke in np.arange(draw.uniform(0, 0.4), t[-1], every):
        since = np.maximum(t - stroke, 0.0)
        for ratio, weight in partials:
            ring = weight * np.exp(-since * (0.8 + 1.2 * ratio)) * np.sin(2 * np.pi * base * ratio * since)
            sound += np.where(t >= stroke, ring, 0.0)
    return sound


def _voice(t: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    """Return babble: a buzz through resonances that change with every syllable, with pauses and hisses."""
    rate = 1.0 / (t[1] - t[0])
    sound, at = np.zeros_like(t), 0
    pitch = draw.uniform(90, 220)
    while at < len(t):
        n = min(len(t) - at, int(rate * draw.uniform(0.12, 0.3)))
        kind = draw.choice(3, p=[0.65, 0.2, 0.15])
        if kind == 0 and n > 8:
            glide = pitch * (1 + 0.1 * np.linspace(0, draw.uniform(-1, 1), n))
            piece = ((np.cumsum(glide) / rate) % 1.0) - 0.5
            for centre, width in ((draw.uniform(300, 800), 80), (draw.uniform(900, 2300), 120)):
                radius = np.exp(-np.pi * width / rate)
                turn = 2 * radius * np.cos(2 * np.pi * min(centre, 0.45 * rate) / rate)
                piece = lfilter([1 - radius], [1.0, -turn, radius**2], piece)
            sound[at : at + n] = piece / (np.abs(piece).max() + 1e-12) * np.hanning(n)
        elif kind == 1:
            sound[at : at + n] = 0.15 * np.diff(draw.standard_normal(n + 1)) * np.hanning(n)
        at += max(1, n)
    return sound


SOUNDS: dict[str, Sound] = {"bell": _bell, "engine": _engine, "siren": _siren, "voice": _voice}


def make_sound(
    labels: str | Sequence[str], seed: int | np.random.Generator, *, rate: int = 16_000, seconds: float = 2.0,
    noise: float = 0.02,
) -> Samples:  # fmt: skip
    """Return a clip in which all the labels sound, at different loudness, over the noise of a street.

    >>> clip = make_sound(["siren", "voice"], 7)
    >>> clip.shape, clip.dtype, bool(abs(clip).max() <= 1)
    ((32000,), dtype('float32'), True)
    >>> make_sound("whale", 7)
    Traceback (most recent call last):
        ...
    ValueError: Expected labels among bell, engine, siren, voice, got whale.
    """
    names = [labels] if isinstance(labels, str) else list(labels)
    unknown = sorted(set(names) - set(SOUNDS))
    if unknown:
        raise ValueError(f"Expected labels among {', '.join(SOUNDS)}, got {', '.join(unknown)}.")
    require_count(2, rate=rate)
    require_positive(seconds=seconds)
    draw = np.random.default_rng(seed)
    t = np.arange(max(2, round(seconds * rate))) / rate
    sound = np.zeros_like(t)
    for name in names:
        one = SOUNDS[name](t, draw)
        sound += draw.uniform(0.5, 1.0) * one / (np.sqrt(np.mean(one**2)) + 1e-9)
    street = lfilter([0.2], [1.0, -0.8], draw.standard_normal(len(t)))
    loudest = np.abs(sound).max(initial=0.0)
    sound = sound / loudest if loudest > 0 else sound
    sound = draw.uniform(0.2, 0.9) * sound + noise * street
    # Noise may pass full scale here and there; a recording would clip, and so does this.
    return np.asarray(np.clip(sound, -1.0, 1.0), dtype=np.float32)


def make_label_sets(
    n_clips: int, seed: int | np.random.Generator, *, n_labels: tuple[int, int] = (1, 1),
    names: Sequence[str] = tuple(SOUNDS),
) -> list[tuple[str, ...]]:  # fmt: skip
    """Return the labels of made-up clips: so many each, from the least to the most, equally likely."""
    least, most = n_labels
    require_count(0, n_labels=least)
    if not least <= most <= len(names):
        raise ValueError(f"Expected least <= most <= {len(names)} labels, got {least} and {most}.")
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(n_clips):
        chosen = draw.choice(len(names), size=int(draw.integers(least, most + 1)), replace=False)
        found.append(tuple(names[j] for j in sorted(chosen)))
    return found


def make_city(
    folder: str | PathLike[str], n_clips: int, *, seed: int, rate: int = 16_000, seconds: float = 2.0,
    n_labels: tuple[int, int] = (1, 1), n_folds: int = 5,
) -> Clips:  # fmt: skip
    """Write a folder of made-up street sounds (16-bit wav) and return the table of them.

    Every clip has its own stream of random numbers, so that a longer city begins with the shorter one.

    >>> import tempfile
    >>> clips = make_city(tempfile.mkdtemp(), 6, seed=7, seconds=0.5, n_labels=(1, 2))
    >>> clips, clips.paths[0].name, sorted(set(clips.folds.tolist()))
    (Clips('city', n_clips=6, n_labels=4), 'city-000000.wav', [1, 2, 3, 4, 5])
    """
    require_count(n_clips=n_clips, n_folds=n_folds)
    require_count(0, seed=seed)
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    names, paths, rows = tuple(SOUNDS), [], []
    for number in range(n_clips):
        draw = np.random.default_rng([seed, number])
        labels = make_label_sets(1, draw, n_labels=n_labels)[0]
        clip = make_sound(labels, draw, rate=rate, seconds=seconds)
        paths.append(root / f"city-{number:06d}.wav")
        wavfile.write(paths[-1], rate, np.round(clip * 32767).astype(np.int16))
        rows.append([int(name in labels) for name in names])
    return Clips(
        name="city", paths=tuple(paths), Y=np.array(rows, dtype=np.int8), label_names=names,
        folds=np.arange(n_clips) % n_folds + 1,
    )  # fmt: skip
