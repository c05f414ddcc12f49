"""Teachers of clips and what they said: disjoint parts, one changed clip one changed teacher, kept votes."""

import json

import numpy as np
import pytest
from scipy.io import wavfile

from tellers.audio import Teaching, deal_clips, prepare_collection, read_taught, teach
from tellers.audio.collection import features_for
from tellers.audio.generator import make_city, make_sound
from tellers.audio.tagger import AudioTagger
from tellers.datasets.clips import load_pictures
from tellers.teachers import load_label_ensemble, train_label_ensemble

FEATURES = features_for(rate=16_000, seconds=0.4)
TAGGER = {"iterations": 3, "batch_size": 4, "device": "cpu"}


def city(folder, *, changed=None):
    clips = make_city(folder / "sounds", 48, seed=7, seconds=0.4)
    if changed is not None:
        sound = make_sound("siren", 99, seconds=0.4)
        wavfile.write(clips.paths[changed], 16_000, np.round(sound * 32767).astype(np.int16))
    return prepare_collection(clips, folder, features=FEATURES)


def settings(**given):
    return Teaching(n_teachers=3, seed=7, **{"tagger": TAGGER, **given})


@pytest.mark.parametrize("mix", [0, 2])
def test_a_changed_clip_changes_one_teacher_alone(tmp_path, mix):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = teach(city(tmp_path / "a"), tmp_path / "ears-a", settings(mix=mix), n_jobs=1)
    rows = np.flatnonzero(before.owner == 1)
    clip = int(rows[0]) if not mix else _clip_of_teacher(before, 1)
    after = teach(city(tmp_path / "b", changed=clip), tmp_path / "ears-b", settings(mix=mix), n_jobs=1)
    np.testing.assert_array_equal(before.owner, after.owner)
    same = [np.array_equal(one, other) for one, other in zip(_weights(before), _weights(after), strict=True)]
    assert same == [True, False, True]
    # The public pool and the test were not touched by it either.
    np.testing.assert_array_equal(before.rows(before.pool), after.rows(after.pool))
    np.testing.assert_array_equal(before.rows(before.test), after.rows(after.test))


def _clip_of_teacher(taught, teacher):
    chosen = taught.settings
    deal = deal_clips(taught.collection.clips, 3, seed=7, student=chosen.student, test=chosen.test)
    return int(deal.teachers[teacher][0])


def _weights(taught):
    tables, _ = taught.dealt()
    ensemble = load_label_ensemble(taught.folder / "teachers", n_labels=4)
    return ensemble.probabilities(tables.pool).reveal()


def test_votes_are_kept_and_other_settings_refused(tmp_path):
    collection = city(tmp_path)
    seen = []
    first = teach(
        collection, tmp_path / "ears", settings(), n_jobs=1, show=lambda step, *_: seen.append(step)
    )
    assert list(dict.fromkeys(seen)) == ["data", "teachers", "votes"]
    seen.clear()
    again = teach(collection, tmp_path / "ears", settings(), show=lambda step, *_: seen.append(step))
    assert seen == ["data"]
    np.testing.assert_array_equal(first.votes.sums, again.votes.sums)
    np.testing.assert_array_equal(read_taught(tmp_path / "ears").truth, first.truth)
    with pytest.raises(ValueError, match=r"got others for mix, student\."):
        teach(collection, tmp_path / "ears", settings(mix=1, student=0.3))
    (tmp_path / "ears" / "settings.json").write_text(json.dumps({"teaching": {}}))
    with pytest.raises(ValueError, match="Train again"):
        read_taught(tmp_path / "ears")


def test_no_more_than_a_part_is_in_memory_and_teachers_are_the_same(tmp_path, monkeypatch):
    collection, sizes = city(tmp_path), []

    def watched(table, names):
        sizes.append(len(names))
        return load_pictures(table, names)

    monkeypatch.setattr("tellers.audio.taught.load_pictures", watched)
    taught = teach(collection, tmp_path / "ears", settings(), n_jobs=1)
    parts = [len(part) for part in taught.partition()]
    assert sizes == [*parts, len(taught.test), len(taught.pool)]  # each read once, none with another
    # All rows in one table, as an ensemble takes them, make the same networks to the bit.
    tables, partition = taught.dealt()
    whole = train_label_ensemble(
        AudioTagger(**TAGGER, shape=taught.shape), tables.private.X, tables.private.y, partition,
        n_labels=4, seed=7, n_jobs=1,
    )  # fmt: skip
    for one, other in zip(
        whole.teachers, load_label_ensemble(taught.folder / "teachers", n_labels=4).teachers
    ):
        assert one.state_.keys() == other.state_.keys()
        assert all(np.array_equal(values, other.state_[name]) for name, values in one.state_.items())
    np.testing.assert_array_equal(whole.vote(tables.pool).sums, taught.votes.sums)


def test_a_broken_clip_is_nobodys(tmp_path):
    clips = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4)
    whole = teach(city(tmp_path / "whole"), tmp_path / "ears-whole", settings(), n_jobs=1)
    clips.paths[11].write_bytes(b"no recording")
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    taught = teach(collection, tmp_path / "ears", settings(), n_jobs=1)
    assert taught.owner[11] == -1
    others = np.arange(48) != 11
    np.testing.assert_array_equal(taught.owner[others], whole.owner[others])


def test_too_many_teachers_and_unknown_folds_are_refused(tmp_path):
    collection = city(tmp_path)
    with pytest.raises(ValueError, match="two usable clips for each teacher"):
        teach(collection, tmp_path / "many", Teaching(n_teachers=25, seed=7, tagger=TAGGER))
    with pytest.raises(ValueError, match=r"a fold among 1, 2, 3, 4, 5, got '9'"):
        teach(collection, tmp_path / "fold", settings(test_fold="9"))
    with pytest.raises(ValueError, match="clips with sources"):
        teach(collection, tmp_path / "sources", settings(by_source=True))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds thesis\.tex"):
        teach(collection, tmp_path / "mine", settings())


def test_the_publishers_fold_is_the_test(tmp_path):
    taught = teach(city(tmp_path), tmp_path / "ears", settings(test_fold="5"), n_jobs=1)
    assert (taught.collection.clips.folds[taught.test] == 5).all()
    assert len(taught.test) == (taught.collection.clips.folds == 5).sum()
