"""Log-Mel pictures against numbers of another library, and against the definition in double precision.

`logmel.json` was made once, with librosa 0.11.0 and NumPy 2.4.6: `signal` below, as float32, through
`feature.melspectrogram` (n_fft=window, hop_length=hop, htk=, norm="slaney" or None, fmin, fmax; all else as
it comes) and `power_to_db` (ref=1.0 or numpy.max, amin=1e-10, top_db=), transposed; nine frames of each
picture, rounded to 0.0001 dB, with the mean of the whole picture and some numbers of the signal itself.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.data.sound import LogMel, log_mel, make_sound, mel_filters
from tellers.data.sound.generator import SOUNDS

KNOWN = json.loads((Path(__file__).parent / "logmel.json").read_text())
CASES = [name for name in KNOWN if name != "made_with"]


def signal(rate: int, seconds: float) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    whole = np.random.Generator(np.random.PCG64(20)).integers(-(2**15), 2**15, size=len(t))
    chirp = np.sin(2 * np.pi * (200 * t + 0.5 * (0.4 * rate - 200) / seconds * t**2))
    beat = np.where((t * 4).astype(int) % 2 == 0, 1.0, 0.001)
    return (0.4 * chirp * beat + 0.02 * whole / 2**15 * np.linspace(0, 1, len(t))).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_pictures_are_those_of_the_other_library_to_a_thousandth_of_a_decibel(case):
    known = KNOWN[case]
    options = dict(known["settings"])
    samples = signal(options["rate"], options.pop("seconds"))
    first, later, total = known["checksum_signal"]
    assert samples[0] == pytest.approx(first, abs=1e-7)
    assert samples[1234] == pytest.approx(later, abs=1e-7)
    assert np.abs(samples.astype(np.float64)).sum() == pytest.approx(total, rel=1e-4)
    picture = log_mel(samples, LogMel(**options))
    assert list(picture.shape) == known["shape"]
    np.testing.assert_allclose(picture[known["frames"]], known["decibels"], rtol=0, atol=1e-3)
    assert picture.mean() == pytest.approx(known["mean"], abs=1e-3)


def in_double(samples: np.ndarray, options: LogMel) -> np.ndarray:
    """The definition, step by step, slowly."""
    half = options.window // 2
    padded = np.pad(samples.astype(np.float64), half)
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(options.window) / options.window)
    power = [
        np.abs(np.fft.rfft(padded[at : at + options.window] * taper)) ** 2 @ mel_filters(options)
        for at in range(0, len(samples) + 1, options.hop)
    ]
    level = 10 * np.log10(np.maximum(power, options.floor))
    return level if options.top_db is None else np.maximum(level, level.max() - options.top_db)


@settings(max_examples=25, deadline=None)
@given(
    labels=st.sets(st.sampled_from(sorted(SOUNDS)), max_size=2),
    seed=st.integers(0, 10_000),
    loudness=st.floats(1e-3, 1.0),
    rate=st.sampled_from([8000, 16_000, 44_100]),
    hop=st.integers(100, 700),
)
def test_single_precision_is_enough(labels, seed, loudness, rate, hop):
    samples = loudness * make_sound(sorted(labels), seed, rate=rate, seconds=0.4)
    options = LogMel(rate=rate, window=1024, hop=hop, n_mels=40)
    np.testing.assert_allclose(log_mel(samples, options), in_double(samples, options), rtol=0, atol=1e-4)


def test_ten_seconds_are_the_published_picture():
    assert log_mel(np.zeros(441_000)).shape == (1001, 64) == LogMel().shape(10.0)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 5000), hop=st.integers(1, 900), half=st.integers(8, 300))
def test_there_is_a_frame_for_every_hop(n, hop, half):
    options = LogMel(rate=8000, window=2 * half, hop=hop, n_mels=4)
    assert log_mel(np.ones(n), options).shape == (n // hop + 1, 4) == options.shape(n / 8000)


def test_silence_is_the_floor_and_a_tone_is_in_its_own_filter():
    np.testing.assert_allclose(log_mel(np.zeros(4410)), -100, atol=1e-4)
    options = LogMel()
    frequencies = np.fft.rfftfreq(options.window, 1 / options.rate)
    peaks = frequencies[mel_filters(options).argmax(axis=0)]
    for filter_number in (10, 30, 50):
        t = np.arange(22_050) / options.rate
        picture = log_mel(np.sin(2 * np.pi * peaks[filter_number] * t), options)
        assert (picture[5:-5].argmax(axis=1) == filter_number).all()


def test_tenfold_loudness_is_twenty_decibels_more_and_max_takes_it_away():
    samples = make_sound("engine", 3, seconds=0.5)
    options = LogMel(rate=16_000, window=512, hop=160)
    quiet, loud = log_mel(samples, options), log_mel(10 * samples, options)
    above = quiet > quiet.max() - 79
    np.testing.assert_allclose((loud - quiet)[above], 20, atol=1e-3)
    relative = LogMel(rate=16_000, window=512, hop=160, reference="max")
    np.testing.assert_allclose(log_mel(samples, relative), log_mel(10 * samples, relative), atol=1e-3)
    assert log_mel(samples, relative).max() == pytest.approx(0, abs=1e-5)


def test_many_clips_are_each_alone():
    clips = np.stack([make_sound(name, 5, seconds=0.3) for name in SOUNDS])
    options = LogMel(rate=16_000, window=512, hop=160)
    together = log_mel(clips, options)
    for clip, picture in zip(clips, together):
        np.testing.assert_array_equal(log_mel(clip, options), picture)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 2047}, "even window"),
        ({"highest": 30_000.0}, "half the rate"),
        ({"lowest": -1.0}, "0 <= lowest"),
        ({"top_db": -3.0}, "top_db > 0"),
        ({"reference": "min"}, "reference > 0"),
        ({"reference": 0.0}, "reference > 0"),
        ({"scale": "bark"}, "'slaney' or 'htk'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        LogMel(**options)


@pytest.mark.parametrize("samples", [[], np.zeros((2, 0)), np.zeros((1, 2, 3)), [1.0, np.nan], ["a"]])
def test_samples_that_are_none_are_refused(samples):
    with pytest.raises(ValueError, match="Expected"):
        log_mel(samples)
