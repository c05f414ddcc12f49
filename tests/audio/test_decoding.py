"""Recordings of every format, and everything that can be wrong with them."""

import io
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.data.sound import Decoding, Finding, Kind, decode, decoding
from tellers.data.sound.decoding import decode_bytes, find_recordings, findings_table, silence

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def tone(rate: int, seconds: float, pitch: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def packed(samples: np.ndarray, rate: int, form: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(("form", "close"), [("WAV", 1e-4), ("FLAC", 1e-4), ("OGG", 0.05)])
def test_every_format_gives_the_samples(form, close):
    samples = tone(44_100, 1.0)
    found = decode_bytes(packed(samples, 44_100, form), Decoding(seconds=1.0), path="x")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[500:-500], samples[500:-500], atol=close)


def test_channels_are_averaged():
    left, right = tone(16_000, 0.5), tone(16_000, 0.5, 700.0)
    content = packed(np.stack([left, right], axis=1), 16_000, subtype="FLOAT")
    found = decode_bytes(content, Decoding(rate=16_000, seconds=0.5), path="x")
    np.testing.assert_allclose(found, (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_other_rates_are_resampled(rate):
    found = decode_bytes(packed(tone(rate, 1.0), rate), Decoding(rate=16_000, seconds=1.0), path="x")
    np.testing.assert_allclose(found[800:-800], tone(16_000, 1.0)[800:-800], atol=2e-3)


@pytest.mark.parametrize("cut", ["start", "centre"])
@pytest.mark.parametrize("rate", [8000, 16_000])
def test_a_long_clip_is_cut_where_asked(cut, rate):
    ramp = np.linspace(0, 0.9, 6 * rate, dtype=np.float32)
    found = decode_bytes(
        packed(ramp, rate, subtype="FLOAT"), Decoding(rate=16_000, seconds=2.0, cut=cut), path="x"
    )
    begin = 0.0 if cut == "start" else 0.3
    np.testing.assert_allclose(found[800:], np.linspace(begin, begin + 0.3, 32_000)[800:], atol=1e-3)


def test_a_short_clip_is_filled_up_with_zeros():
    found = decode_bytes(packed(tone(16_000, 0.5), 16_000), Decoding(rate=16_000, seconds=2.0), path="x")
    assert len(found) == 32_000
    assert np.abs(found[:8000]).max() > 0.4
    assert not found[8000:].any()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1600, 30_000), rate=st.sampled_from([8000, 11_025, 16_000, 44_100]),
    seconds=st.floats(0.2, 3.0), cut=st.sampled_from(["start", "centre"]),
)  # fmt: skip
def test_the_length_is_always_the_one_asked_for(n, rate, seconds, cut):
    options = Decoding(rate=16_000, seconds=seconds, shortest=0.0, cut=cut)
    found = decode_bytes(packed(np.full(n, 0.25, np.float32), rate), options, path="x")
    assert found.shape == (options.n_samples,)
    assert np.isfinite(found).all()


def wrong() -> dict[str, tuple[bytes, Kind]]:
    wav, flac, ogg = (packed(tone(16_000, 1.0), 16_000, form) for form in ("WAV", "FLAC", "OGG"))
    holes = tone(16_000, 1.0)
    holes[100] = np.nan
    loud = np.where(tone(16_000, 1.0) > 0, 3.3e38, -3.3e38).astype(np.float32)
    streamed = bytearray(flac)
    streamed[21] &= 0xF0  # what a program that writes to a pipe leaves at zero: how many samples there are
    streamed[22:26] = bytes(4)
    return {
        "empty": (b"", Kind.BROKEN),
        "text": (b"this is no sound, whatever its name says. " * 50, Kind.BROKEN),
        "half a wav": (wav[: len(wav) // 2], Kind.BROKEN),
        "a wav's head": (wav[:44], Kind.BROKEN),
        "half a flac": (flac[: len(flac) // 2], Kind.BROKEN),
        "half an ogg": (ogg[: len(ogg) // 2], Kind.BROKEN),
        "a click": (packed(tone(16_000, 0.05), 16_000), Kind.TOO_SHORT),
        "no samples": (packed(np.zeros(0, np.float32), 16_000), Kind.TOO_SHORT),
        "not a number": (packed(holes, 16_000, subtype="FLOAT"), Kind.NOT_FINITE),
        "louder than numbers go": (packed(loud, 16_000, subtype="FLOAT"), Kind.NOT_FINITE),
        "louder than any scale": (packed(1e20 * tone(16_000, 1.0), 16_000, subtype="FLOAT"), Kind.NOT_FINITE),
        "an orchestra": (packed(np.zeros((16_000, 65), np.float32), 16_000), Kind.TOO_LARGE),
        "a flac of no length": (bytes(streamed[: len(streamed) // 2]), Kind.BROKEN),
        "another rate": (packed(tone(8000, 1.0), 8000), Kind.WRONG_RATE),
    }


@pytest.mark.parametrize("name", wrong())
def test_what_is_wrong_is_a_finding_and_no_exception(name):
    content, kind = wrong()[name]
    found = decode_bytes(content, Decoding(rate=16_000, seconds=1.0, rates=(16_000,)), path=name)
    assert isinstance(found, Finding)
    assert (found.path, found.kind) == (name, kind)
    assert found.detail
    assert "BytesIO" not in found.detail


@settings(max_examples=150, deadline=None)
@given(data=st.data(), form=st.sampled_from(["WAV", "FLAC", "OGG"]))
def test_no_damage_is_an_exception(data, form):
    content = bytearray(packed(tone(8000, 0.3), 8000, form))
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = decode_bytes(bytes(content), Decoding(rate=8000, seconds=0.3), path="x")
    assert isinstance(found, Finding) or (found.shape == (2400,) and np.isfinite(found).all())


def test_a_wav_from_a_pipe_has_no_length_and_is_read():
    content = bytearray(packed(tone(16_000, 1.0), 16_000))
    content[4:8] = struct.pack("<I", 0xFFFFFFFF)
    assert len(decode_bytes(bytes(content), Decoding(rate=16_000, seconds=1.0), path="x")) == 16_000


def test_silence_is_seen_and_a_whisper_is_none():
    options = Decoding(rate=8000, seconds=0.5)
    assert silence("a.wav", np.zeros(10, np.float32), options).kind is Kind.SILENT
    assert silence("a.wav", np.array([0, -2e-4], np.float32), options) is None


@pytest.mark.parametrize("rate", [1, 7, 2**31 - 1])
def test_rates_that_nobody_records_at_are_no_exception(rate):
    found = decode_bytes(packed(tone(16_000, 1.0), rate), Decoding(rate=16_000, seconds=1.0), path="a.wav")
    assert isinstance(found, Finding) or np.isfinite(found).all()


def test_loud_samples_between_rates_are_a_finding():
    """A filter overshoots: what is finite at one rate need not be at another."""
    square = np.where(np.arange(8000) % 40 < 20, 9.9e5, -9.9e5).astype(np.float32)
    found = decode_bytes(packed(square, 8000, subtype="FLOAT"), Decoding(rate=16_000), path="a.wav")
    assert isinstance(found, Finding)
    assert found.kind is Kind.NOT_FINITE


def test_what_never_ends_is_not_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.wav")
    assert decode(tmp_path / "pipe.wav").kind is Kind.MISSING
    assert decode("/dev/zero").kind is Kind.MISSING
    monkeypatch.setattr(decoding, "LARGEST_BYTES", 1000)
    (tmp_path / "day.wav").write_bytes(packed(tone(16_000, 1.0), 16_000))
    found = decode(tmp_path / "day.wav")
    assert found.kind is Kind.TOO_LARGE
    assert "cut it" in found.detail


def test_a_folder_in_the_place_of_a_file_is_missing(tmp_path):
    assert decode(tmp_path).kind is Kind.MISSING
    assert decode(tmp_path / "nothing.wav").kind is Kind.MISSING


def test_recordings_are_found_below_the_folder(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("b/2.ogg", "a.wav", "c.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_recordings(tmp_path)] == ["a.wav", "2.ogg"]
    with pytest.raises(FileNotFoundError, match="Expected a folder"):
        find_recordings(tmp_path / "none")


def test_the_table_counts_all_and_shows_the_first():
    rows = [Finding(f"{n}.wav", Kind.SILENT if n % 2 else Kind.BROKEN, "so") for n in range(30)]
    table = findings_table(rows, n_rows=4)
    assert table.splitlines()[0] == "30 recordings cannot be used: 15 broken, 15 silent"
    assert table.splitlines()[-1].strip() == "... and 26 more"
    assert len(table.splitlines()) == 6
