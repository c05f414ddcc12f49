"""A made-up city: seeded, different in every clip, and learnable."""

import numpy as np
import pytest

from tellers.data.sound import LogMel, log_mel, make_city, make_sound
from tellers.data.sound.generator import SOUNDS, make_label_sets


@pytest.mark.parametrize("name", SOUNDS)
def test_a_sound_is_its_seed(name):
    clip = make_sound(name, 3)
    np.testing.assert_array_equal(clip, make_sound(name, 3))
    assert np.abs(clip - make_sound(name, 4)).max() > 0.05
    assert 0.1 < np.abs(clip).max() <= 1


def test_sounds_can_be_told_apart_by_their_pictures():
    """Nearest mean picture, on new seeds. Guessing gets 36 or more of 40 right less than once in 10^15."""
    options = LogMel(rate=16_000, window=512, hop=320, n_mels=32)

    def seen(name: str, seed: int) -> np.ndarray:
        picture = log_mel(make_sound(name, seed, seconds=1.0), options)
        return np.concatenate([picture.mean(axis=0), picture.std(axis=0)])

    means = {name: np.mean([seen(name, seed) for seed in range(8)], axis=0) for name in SOUNDS}
    right = 0
    for name in SOUNDS:
        for seed in range(100, 110):
            guess = min(means, key=lambda n: np.abs(means[n] - seen(name, seed)).sum())
            right += guess == name
    assert right >= 36


def test_labels_come_in_the_numbers_asked_for():
    sets = make_label_sets(200, 1, n_labels=(0, 3))
    assert {len(labels) for labels in sets} == {0, 1, 2, 3}
    assert all(len(set(labels)) == len(labels) for labels in sets)
    with pytest.raises(ValueError, match="least <= most"):
        make_label_sets(1, 1, n_labels=(2, 1))


def test_a_longer_city_begins_with_the_shorter_one(tmp_path):
    short = make_city(tmp_path / "a", 3, seed=5, seconds=0.2, n_labels=(1, 2))
    long = make_city(tmp_path / "b", 5, seed=5, seconds=0.2, n_labels=(1, 2))
    np.testing.assert_array_equal(short.Y, long.Y[:3])
    assert [p.read_bytes() for p in short.paths] == [p.read_bytes() for p in long.paths[:3]]
    assert len({p.read_bytes() for p in long.paths}) == 5
