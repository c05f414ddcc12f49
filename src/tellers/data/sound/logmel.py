"""Log-Mel spectrograms: the power of a recording over time and pitch, in decibels.

The definition is the common one, so that networks trained elsewhere see what they know:

    1. frames every `hop` samples, centred, with zeros before the first and after the last sample;
    2. a periodic Hann window, and the squared magnitude of its Fourier transform (power);
    3. triangular filters between `n_mels + 2` points, equally far apart on Slaney's Mel scale (linear below
       1 kHz, logarithmic above), each divided by its width, so that it has the area of every other;
    4. decibels: `10 log10(max(power, floor) / reference)`, and nothing more than `top_db` below the loudest.

The published settings (64 filters, 2048 samples, every 441, at 44.1 kHz) give 1001 by 64 numbers for ten
seconds. The thesis names these numbers and the library it used, and not the scale, the reference or the
range; what is not said is that library's default here, and all of it can be set.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.signal import get_window

from ...errors import require_count, require_finite, require_positive

Floats = NDArray[np.floating[Any]]

# Frames that are windowed, transformed and filtered together: few enough to stay in a core's own cache.
_FRAMES_AT_ONCE = 64
# Filters that are applied together, over the frequencies that any of them hears: four products of small
# matrices take a quarter of one that is nearly all zeros.
_FILTER_GROUPS = 4

# Slaney's scale: 3 Mels for each 200 Hz up to 1 kHz, then 27 Mels for each factor of 6.4.
_HERTZ_PER_MEL = 200.0 / 3
_BEND_HERTZ = 1000.0
_BEND_MEL = _BEND_HERTZ / _HERTZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27.0


@dataclass(frozen=True, kw_only=True)
class LogMel:
    """How a recording becomes a picture; the same settings give the same picture, to the bit.

    `reference` is the power that is 0 dB: a number, or "max" for the loudest of each clip. `highest=None` is
    half the sampling rate, `top_db=None` keeps everything above the floor. `scale` is "slaney", or "htk" for
    `2595 log10(1 + f/700)`; `area=False` leaves filters at height one.

    >>> LogMel().shape(10.0), LogMel().n_samples(10.0)
    ((1001, 64), 441000)
    >>> LogMel(rate=16_000, window=1024, hop=160).shape(5.0)
    (501, 64)
    >>> LogMel(hop=0)
    Traceback (most recent call last):
        ...
    ValueError: Expected a whole number hop >= 1, got hop=0.
    """

    rate: int = 44_100
    window: int = 2048
    hop: int = 441
    n_mels: int = 64
    lowest: float = 0.0
    highest: float | None = None
    scale: Literal["slaney", "htk"] = "slaney"
    area: bool = True
    reference: float | Literal["max"] = 1.0
    floor: float = 1e-10
    top_db: float | None = 80.0

    def __post_init__(self) -> None:
        require_count(rate=self.rate, hop=self.hop, n_mels=self.n_mels)
        require_count(2, window=self.window)
        if self.window % 2:  # the centre of a frame would lie between two samples
            raise ValueError(f"Expected an even window, got window={self.window}.")
        require_finite(lowest=self.lowest)
        require_positive(floor=self.floor)
        if self.reference != "max":
            require_positive(reference=self.reference)
        if self.top_db is not None:
            require_positive(top_db=self.top_db)
        if self.scale not in ("slaney", "htk"):
            raise ValueError(f"Expected scale 'slaney' or 'htk', got {self.scale!r}.")
        if not 0 <= self.lowest < self.top <= self.rate / 2:
            raise ValueError(
                f"Expected 0 <= lowest < highest <= {self.rate / 2:g} (half the rate), "
                f"got lowest={self.lowest:g}, highest={self.top:g}."
            )

    @property
    def top(self) -> float:
        """Return the frequency at which the last filter ends."""
        return self.rate / 2 if self.highest is None else float(self.highest)

    def n_samples(self, seconds: float) -> int:
        """Return how many samples a clip of that length has."""
        require_positive(seconds=seconds)
        return max(1, round(seconds * self.rate))

    def shape(self, seconds: float) -> tuple[int, int]:
        """Return the shape of the picture: frames, filters."""
        return self.n_samples(seconds) // self.hop + 1, int(self.n_mels)


def log_mel(samples: ArrayLike, settings: LogMel | None = None) -> NDArray[np.float32]:
    """Return the log-Mel picture of a clip, frames by filters; of many clips, one picture for each.

    `samples` is one clip, or clips of one length in rows. Powers are computed in double precision and summed
    up in single, which tests compare with double precision throughout, to 0.0001 dB.

    >>> tone = np.sin(2 * np.pi * 1000 * np.arange(44_100) / 44_100)
    >>> picture = log_mel(tone)
    >>> picture.shape, picture.dtype, int(picture[50].argmax())
    ((101, 64), dtype('float32'), 15)
    >>> log_mel(np.zeros((3, 44_100))).shape
    (3, 101, 64)
    """
    settings = settings or LogMel()
    clips = np.asarray(samples)
    if clips.dtype.kind not in "fiu" or clips.ndim not in (1, 2) or clips.size == 0:
        raise ValueError(
            f"Expected samples of one clip, or of clips in rows, got {clips.dtype} of shape {clips.shape}."
        )
    if clips.dtype.kind == "f" and not (np.isfinite(clips.max()) and np.isfinite(clips.min())):
        raise ValueError(
            "Expected finite samples, got NaN or infinity. Decode the file again, or leave it out."
        )
    if clips.ndim == 2:
        return np.stack([decibels(mel_power(clip, settings), settings) for clip in clips])
    return decibels(mel_power(clips, settings), settings)


def mel_power(samples: ArrayLike, settings: LogMel) -> NDArray[np.float32]:
    """Return the power in every filter at every frame, before decibels."""
    clip = np.asarray(samples)
    half, hop = settings.window // 2, settings.hop
    padded = np.zeros(len(clip) + 2 * half, dtype=np.float32 if clip.dtype == np.float32 else np.float64)
    padded[half : half + len(clip)] = clip
    n_frames = len(clip) // hop + 1
    taper, filters = _tables(settings)
    power = np.zeros((n_frames, settings.n_mels), dtype=np.float32)
    size = min(_FRAMES_AT_ONCE, n_frames)
    # Double precision up to the power: beside a loud sound single precision hides a soft one. After that all
    # numbers are positive, errors stay relative, and single precision is plenty.
    stretch = np.empty((size - 1) * hop + settings.window)
    frames = np.lib.stride_tricks.sliding_window_view(stretch, settings.window)[::hop]
    windowed = np.empty((size, settings.window))
    squares = np.empty((2, size, settings.window // 2 + 1), dtype=np.float32)
    for start in range(0, n_frames, size):
        here = min(size, n_frames - start)
        length = (here - 1) * hop + settings.window
        stretch[:length] = padded[start * hop : start * hop + length]
        np.multiply(frames[:here], taper, out=windowed[:here])
        # One core each: clips are spread over processes, and threads inside of them would only wait.
        waves = fft.rfft(windowed[:here], axis=1, workers=1, overwrite_x=True)
        np.square(waves.real, out=squares[0, :here], casting="same_kind")
        np.square(waves.imag, out=squares[1, :here], casting="same_kind")
        squares[0, :here] += squares[1, :here]
        for these, frequencies, bank in filters:
            np.matmul(squares[0, :here, frequencies], bank, out=power[start : start + here, these])
    return power


def decibels(power: ArrayLike, settings: LogMel) -> NDArray[np.float32]:
    """Return power in decibels, with the floor and the range of the settings."""
    values = np.asarray(power, dtype=np.float32)
    reference = float(values.max(initial=0.0)) if settings.reference == "max" else float(settings.reference)
    level = np.log10(np.maximum(values, np.float32(settings.floor)))
    level -= np.float32(np.log10(max(reference, settings.floor)))
    level *= np.float32(10.0)
    if settings.top_db is not None and level.size:
        np.maximum(level, level.max() - np.float32(settings.top_db), out=level)
    return np.asarray(level, dtype=np.float32)


def mel_filters(settings: LogMel) -> NDArray[np.float64]:
    """Return the filters: how much of each frequency goes into each, frequencies by filters.

    >>> bank = mel_filters(LogMel())
    >>> bank.shape, bool((bank >= 0).all()), bool((bank.sum(axis=0) > 0).all())
    ((1025, 64), True, True)
    """
    low, high = _to_mel([settings.lowest, settings.top], settings.scale)
    corners = _to_hertz(np.linspace(low, high, settings.n_mels + 2), settings.scale)
    frequencies = np.fft.rfftfreq(settings.window, 1.0 / settings.rate)[:, None]
    widths = np.diff(corners)
    rising = (frequencies - corners[:-2]) / widths[:-1]
    falling = (corners[2:] - frequencies) / widths[1:]
    bank = np.maximum(0.0, np.minimum(rising, falling))
    if settings.area:
        bank *= 2.0 / (corners[2:] - corners[:-2])
    return np.asarray(bank)


@functools.lru_cache(maxsize=16)
def _tables(settings: LogMel) -> tuple[NDArray[np.float64], list[tuple[slice, slice, NDArray[np.float32]]]]:
    """Return the window, and neighbouring filters with the frequencies that any of them hears."""
    taper = get_window("hann", settings.window, fftbins=True)
    bank = mel_filters(settings).astype(np.float32)
    groups = []
    for filters in np.array_split(np.arange(settings.n_mels), min(_FILTER_GROUPS, settings.n_mels)):
        heard = np.flatnonzero(bank[:, filters].any(axis=1))
        if len(heard):  # a filter between two frequencies hears nothing, and has no power
            here, these = slice(heard[0], heard[-1] + 1), slice(filters[0], filters[-1] + 1)
            groups.append((these, here, np.ascontiguousarray(bank[here, these])))
    return taper, groups


def _to_mel(hertz: Sequence[float], scale: str) -> Floats:
    values: Floats = np.asarray(hertz, dtype=np.float64)
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + values / 700.0))
    bent = _BEND_MEL + np.log(np.maximum(values, _BEND_HERTZ) / _BEND_HERTZ) / _LOG_STEP
    return np.where(values < _BEND_HERTZ, values / _HERTZ_PER_MEL, bent)


def _to_hertz(mels: Floats, scale: str) -> Floats:
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mels / 2595.0) - 1.0))
    bent = _BEND_HERTZ * np.exp(_LOG_STEP * (np.maximum(mels, _BEND_MEL) - _BEND_MEL))
    return np.where(mels < _BEND_MEL, mels * _HERTZ_PER_MEL, bent)
