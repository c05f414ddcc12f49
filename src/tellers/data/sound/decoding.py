"""Decode recordings (wav, flac, ogg) to one channel, one rate and one length, or say what is wrong.

A file that cannot be used is no exception. It is a `Finding`, with a kind that a program can act on and a
detail that a person can read; a run over many files collects them in a table. Whether a clip is found wanting
depends on that clip alone.
"""

import io
import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtra, require_count, require_finite, require_positive

Samples = NDArray[np.float32]

# Opened for their bytes alone, so that whatever else lies in the folder is left alone.
SUFFIXES = (".wav", ".flac", ".ogg")

# What nobody records, and what a crafted file says: a gigabyte is an hour and a half in stereo.
LARGEST_BYTES = 2**30
_MOST_CHANNELS = 64
_LOUDEST = 1e6  # full scale is 1; the power of what is louder leaves single precision
_UNKNOWN_LENGTH = 2**60


class Kind(StrEnum):
    """What can be wrong with a recording.

    >>> [str(kind) for kind in Kind]
    ['missing', 'broken', 'too short', 'too large', 'silent', 'wrong rate', 'not finite', 'crashed']
    """

    MISSING = "missing"
    BROKEN = "broken"
    TOO_SHORT = "too short"
    TOO_LARGE = "too large"
    SILENT = "silent"
    WRONG_RATE = "wrong rate"
    NOT_FINITE = "not finite"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Finding:
    """One recording that cannot be used, or can only be used on request: where, what, and the numbers to it.

    >>> Finding("a.wav", Kind.SILENT, "peak 0, expected above 0.0001")
    Finding(path='a.wav', kind=<Kind.SILENT: 'silent'>, detail='peak 0, expected above 0.0001')
    """

    path: str
    kind: Kind
    detail: str


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """What samples a clip has to have: the rate and length they are brought to, and what is refused.

    A longer clip is cut (`cut`: its "start", or its "centre"), a shorter one gets zeros at its end, and one
    of less than `shortest` seconds is found too short. A clip that never gets louder than `silent` (full
    scale is 1) is found silent. With `rates`, a file at another rate is a finding; without, any rate is
    resampled.

    >>> Decoding(rate=16_000, seconds=5.0).n_samples
    80000
    >>> Decoding(seconds=5.0, shortest=6.0)
    Traceback (most recent call last):
        ...
    ValueError: Expected 0 <= shortest <= seconds, got shortest=6 and seconds=5.
    """

    rate: int = 44_100
    seconds: float = 10.0
    shortest: float = 0.1
    silent: float = 1e-4
    rates: tuple[int, ...] = ()
    cut: str = "start"

    def __post_init__(self) -> None:
        require_count(rate=self.rate)
        require_positive(seconds=self.seconds)
        require_finite(shortest=self.shortest, silent=self.silent)
        if not 0 <= self.shortest <= self.seconds:
            raise ValueError(
                "Expected 0 <= shortest <= seconds, "
                f"got shortest={self.shortest:g} and seconds={self.seconds:g}."
            )
        if self.cut not in ("start", "centre"):
            raise ValueError(f"Expected cut='start' or 'centre', got {self.cut!r}.")
        for rate in self.rates:
            require_count(rates=rate)
        object.__setattr__(self, "rates", tuple(sorted(int(rate) for rate in self.rates)))

    @property
    def n_samples(self) -> int:
        """Return how many samples a decoded clip has."""
        return max(1, round(self.seconds * self.rate))


def decode(path: str | PathLike[str], settings: Decoding | None = None) -> Samples | Finding:
    """Return the samples of a recording, at the rate and of the length asked for, or what is wrong with it.

    >>> import tempfile
    >>> from scipy.io import wavfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> wavfile.write(folder / "hum.wav", 8000, np.sin(np.arange(4000) / 9).astype(np.float32))
    >>> decode(folder / "hum.wav", Decoding(rate=16_000, seconds=1.0)).shape
    (16000,)
    >>> decode(folder / "gone.wav").kind
    <Kind.MISSING: 'missing'>
    """
    content = read_recording(path, name=str(path))
    return content if isinstance(content, Finding) else decode_bytes(content, settings, path=str(path))


def read_recording(path: str | PathLike[str], *, name: str) -> bytes | Finding:
    """Return the bytes of a recording, or why they cannot be had; `name` is what a finding calls it."""
    try:
        seen = os.stat(path)
        if not stat.S_ISREG(seen.st_mode):  # a pipe or a device may never end
            return Finding(name, Kind.MISSING, "not a file")
        if seen.st_size > LARGEST_BYTES:
            size = f"{seen.st_size / 2**30:.1f} GiB, expected at most {LARGEST_BYTES / 2**30:g} GiB: cut it"
            return Finding(name, Kind.TOO_LARGE, size)
        return Path(path).read_bytes()
    except FileNotFoundError:
        return Finding(name, Kind.MISSING, "no such file")
    except (OSError, ValueError, MemoryError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        return Finding(name, Kind.MISSING, f"cannot be read: {said}")


def decode_bytes(content: bytes, settings: Decoding | None = None, *, path: str) -> Samples | Finding:
    """Return the samples of a recording whose bytes are in memory, or what is wrong with it."""
    settings = settings or Decoding()
    try:
        import soundfile
        import soxr
    except (ImportError, OSError) as error:  # OSError: the library of C code cannot be loaded
        raise MissingExtra(
            "Reading recordings needs soundfile and soxr: pip install 'tellers[audio]'"
        ) from error
    cut_short = _cut_short(content)
    if cut_short:
        return Finding(path, Kind.BROKEN, cut_short)
    n_frames = 0
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            rate, n_frames = int(file.samplerate), int(file.frames)
            if file.channels > _MOST_CHANNELS:
                found = f"{file.channels} channels, expected at most {_MOST_CHANNELS}"
                return Finding(path, Kind.TOO_LARGE, found)
            if settings.rates and rate not in settings.rates:
                wanted = ", ".join(map(str, settings.rates))
                return Finding(path, Kind.WRONG_RATE, f"{rate} Hz, expected {wanted} Hz")
            if n_frames < max(1.0, settings.shortest * rate):
                length = f"{n_frames / rate:.3g} s, expected at least {settings.shortest:g} s"
                return Finding(path, Kind.TOO_SHORT, length)
            first, n_read, skip = _excerpt(n_frames, settings, rate=rate)
            if first:
                file.seek(first)
            channels = file.read(n_read, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OSError, MemoryError) as error:
        if n_frames > _UNKNOWN_LENGTH:
            return Finding(path, Kind.BROKEN, "its length is not written in it: write it again")
        # The library's first line names the trouble; what is before the colon is the file object.
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Finding(path, Kind.BROKEN, said.split(": ", 1)[-1][:120])
    if len(channels) < n_read:
        return Finding(path, Kind.BROKEN, f"{first + len(channels)} of {n_frames} samples are there")
    mono: Samples = channels[:, 0] if channels.shape[1] == 1 else channels.mean(axis=1, dtype=np.float32)
    beyond = beyond_scale(path, mono)
    if beyond is None and rate != settings.rate:
        try:
            mono = np.asarray(soxr.resample(mono, rate, settings.rate, quality="HQ"), dtype=np.float32)
        except (RuntimeError, ValueError, MemoryError):
            return Finding(path, Kind.WRONG_RATE, f"{rate} Hz cannot be brought to {settings.rate} Hz")
        beyond = beyond_scale(path, mono)  # a filter overshoots
    if beyond is not None:
        return beyond
    taken = mono[skip : skip + settings.n_samples]
    if len(taken) == settings.n_samples:
        return np.ascontiguousarray(taken)
    fitted = np.zeros(settings.n_samples, dtype=np.float32)
    fitted[: len(taken)] = taken
    return fitted


def beyond_scale(path: str, samples: Samples) -> Finding | None:
    """Return the finding about samples that are no sound: not finite, or louder than any scale."""
    peak = float(np.maximum(samples.max(initial=0.0), -samples.min(initial=0.0)))  # NaN if any is
    if peak <= _LOUDEST:
        return None
    said = (
        f"a sample of {peak:.3g}, full scale is 1"
        if np.isfinite(peak)
        else "NaN or infinity among the samples"
    )
    return Finding(path, Kind.NOT_FINITE, said)


def _excerpt(n_frames: int, settings: Decoding, *, rate: int) -> tuple[int, int, int]:
    """Return which samples to read, the first and how many, and how many to leave out after resampling.

    An hour is not decoded for the sake of ten seconds. A second more on both sides keeps the resampling
    filter from seeing the ends of the excerpt.
    """
    wanted = -(-settings.n_samples * rate // settings.rate)
    begin = 0 if settings.cut == "start" else max(0, (n_frames - wanted) // 2)
    margin = 0 if rate == settings.rate else rate
    first = max(0, begin - margin)
    end = min(n_frames, begin + wanted + margin)
    return first, end - first, round((begin - first) * settings.rate / rate)


def _cut_short(content: bytes) -> str | None:
    """Return what is missing of a wav file: its reader takes half a file for a short one."""
    if content[:4] != b"RIFF" or len(content) < 8:
        return None
    declared = int.from_bytes(content[4:8], "little")
    # Programs that write to a pipe cannot know the length, and say 0 or the largest number.
    if declared == 0 or declared >= 0x7FFFFF00 or len(content) + 1 >= declared + 8:
        return None
    return f"{len(content)} of {declared + 8} bytes are there"


def silence(path: str, samples: Samples, settings: Decoding) -> Finding | None:
    """Return the finding about a clip that never gets louder than the settings call silent."""
    if max(samples.max(initial=0.0), -samples.min(initial=0.0)) > settings.silent:
        return None
    return Finding(path, Kind.SILENT, f"never louder than {settings.silent:g} of full scale")


def find_recordings(folder: str | PathLike[str]) -> list[Path]:
    """Return the recordings in a folder and below it, in order of their names."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"Expected a folder of recordings, there is none at {root}.")
    return sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def findings_table(findings: Iterable[Finding], *, n_rows: int = 20) -> str:
    """Return findings as a table in text: how many of each kind, then the first of them, one line each."""
    rows = list(findings)
    kinds = Counter(row.kind for row in rows)
    each = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    n = "1 recording" if len(rows) == 1 else f"{len(rows)} recordings"
    lines = [f"{n} cannot be used: {each}" if rows else "No findings."]
    wide = max((len(row.path) for row in rows[:n_rows]), default=0)
    lines += [f"  {row.kind:<12} {row.path:<{wide}}  {row.detail}" for row in rows[:n_rows]]
    if len(rows) > n_rows:
        lines.append(f"  ... and {len(rows) - n_rows} more")
    return "\n".join(lines)
