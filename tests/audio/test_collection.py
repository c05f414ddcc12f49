"""Folders of prepared clips: every clip keeps its place, and whoever trains needs no recordings."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tellers.data.clips import FILE, clips_folder
from tellers.data.sound import features_for, make_city, prepare_collection, read_collection
from tellers.errors import ClipsRefused, ConfigError
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    default_config,
    load_student,
    run,
)
from tellers.runs._tables import read_tables
from tellers.runs.sound import deal_clips

FEATURES = features_for(rate=16_000, seconds=0.4)
NAMES = ("bell", "engine", "siren", "voice")


@pytest.fixture
def clips(tmp_path):
    return make_city(tmp_path / "sounds", 12, seed=7, seconds=0.4, n_labels=(1, 2))


def test_what_cannot_be_used_keeps_its_place(clips, tmp_path):
    whole = prepare_collection(clips, tmp_path / "whole", features=FEATURES)
    clips.paths[4].write_bytes(b"RIFF, and then nothing")
    some = prepare_collection(clips, tmp_path / "some", features=FEATURES)
    assert (len(whole.clips), len(some.clips)) == (12, 12)
    assert some.usable.tolist() == [i != 4 for i in range(12)]
    assert [finding.kind for finding in some.findings] == ["broken"]
    others = np.flatnonzero(some.usable)
    np.testing.assert_array_equal(some.pictures(others), whole.pictures(others))
    # Deals are of places: a broken clip moves nobody.
    deals = [deal_clips(one.clips, 3, seed=7).teachers for one in (whole, some)]
    for one, other in zip(*deals, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_reads_back_what_was_prepared(clips, tmp_path):
    made = prepare_collection(clips, tmp_path / "city", features=FEATURES)
    again = read_collection(tmp_path / "city")
    assert (again.features, again.clips.label_names) == (FEATURES, NAMES)
    np.testing.assert_array_equal(again.clips.Y, clips.Y)
    np.testing.assert_array_equal(again.clips.folds, clips.folds)
    np.testing.assert_array_equal(again.pictures([3]), made.pictures([3]))
    assert prepare_collection(clips, tmp_path / "city", features=FEATURES).n_known == 12
    assert (tmp_path / "city" / FILE).stat().st_mode & 0o077 == 0


def test_to_refuse_leaves_no_table(clips, tmp_path):
    clips.paths[0].unlink()
    with pytest.raises(ClipsRefused, match="1 missing"):
        prepare_collection(clips, tmp_path / "city", features=FEATURES, on_finding="refuse")
    assert not (tmp_path / "city" / FILE).exists()


def test_a_run_reads_it_without_the_recordings(clips, tmp_path):
    clips.paths[4].write_bytes(b"no recording")
    prepare_collection(clips, tmp_path / "city", features=FEATURES)
    for path in clips.paths:
        path.unlink()
    data = clips_folder(tmp_path / "city", ["siren", "bell"])
    assert (data.X.shape, data.image_shape, data.label_names) == ((11, 21 * 64), (21, 64), ("siren", "bell"))
    assert "how many is not told" in data.notes[0]
    config = default_config("clips")
    where = replace(config.data, private="city", folder=str(tmp_path), n_public=3, n_test=2)
    tables = read_tables(replace(config, data=where, labels=LabelsConfig(names=NAMES)))
    # Twelve places are dealt; the broken one is then missing where it was dealt to.
    assert (len(tables.private), tables.pool.shape, len(tables.test)) == (7, (2, 21 * 64), 2)


def test_a_run_with_one_class_per_clip(tmp_path):
    clips = make_city(tmp_path / "sounds", 30, seed=7, seconds=0.4, n_labels=(1, 1))
    prepare_collection(clips, tmp_path / "city", features=FEATURES)
    tagger = {
        "n_classes": 4,
        "shape": list(FEATURES.shape),
        "iterations": 3,
        "batch_size": 4,
        "device": "cpu",
    }
    model = "tellers.runs.sound:audio_classifier"
    given = {"name": "clips", "private": "city", "folder": str(tmp_path), "n_test": 4}
    config = RunConfig(
        data=DataConfig(**given, n_public=8, classes=NAMES), partition=PartitionConfig(n_teachers=3),
        teachers=TeachersConfig(model=model, parameters=tagger, n_jobs=1),
        mechanism=MechanismConfig(name="gnmax", sigma=1.0), budget=BudgetConfig(epsilon=60.0, delta=1e-3),
        student=StudentConfig(model=model, parameters=tagger),
    )  # fmt: skip
    result = run(config, tmp_path / "study")
    assert (result["queries"]["n_asked"], result["partition"]["unit"]) == (8, "one clip")
    assert load_student(tmp_path / "study" / "student").n_classes == 4
    # The pool and the test may have folders of their own.
    apart = DataConfig(**{**given, "n_test": 0}, public="city", test="city", classes=NAMES)
    tables = read_tables(replace(config, data=apart))
    assert (len(tables.private), tables.pool.shape, len(tables.test)) == (30, (30, 21 * 64), 30)
    np.testing.assert_array_equal(tables.private.y, clips.Y.argmax(axis=1))
    with pytest.raises(ValueError, match="exactly one label for every row"):
        read_tables(replace(config, data=replace(apart, classes=("bell", "siren"))))


@pytest.mark.parametrize(
    ("data", "labels", "words"),
    [
        ({}, (), 'Expected labels for "clips", got none. .* classes = '),
        ({"classes": ("bell",)}, (), "at least two declared classes"),
        ({"classes": NAMES}, NAMES, "Expected none where rows have many labels"),
    ],
)
def test_clips_have_labels_or_classes(data, labels, words):
    name = "gnthreshold" if labels else "gnmax"
    with pytest.raises(ConfigError, match=words):
        RunConfig(
            data=DataConfig(name="clips", private="city", n_public=8, **data),
            labels=LabelsConfig(names=labels), mechanism=MechanismConfig(name=name, sigma=1.0),
        )  # fmt: skip


def test_a_damaged_table_or_picture_is_named(clips, tmp_path):
    place = tmp_path / "city"
    prepare_collection(clips, place, features=FEATURES)
    (place / read_collection(place).picture_files[2]).write_bytes(b"half")
    with pytest.raises(ValueError, match=r"clip 2 .*Prepare again"):
        clips_folder(place, NAMES)
    said = json.loads((place / FILE).read_bytes())
    for broken, words in (
        ({**said, "format": 9}, "Expected format 1"),
        ({**said, "clips": [{"path": "a.wav"}]}, "Expected a whole table"),
    ):
        (place / FILE).write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=words):
            read_collection(place)
    (place / FILE).write_text("{")
    with pytest.raises(ValueError, match="Expected JSON"):
        read_collection(place)


def test_rates_have_the_published_shape_or_near_it():
    assert features_for(rate=44_100, seconds=10.0).shape == (1001, 64)
    assert features_for(rate=16_000, seconds=2.0).logmel.window == 1024
    assert features_for(rate=22_050, seconds=5.0).logmel.window == 1024
