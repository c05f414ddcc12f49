"""Teachers of clips and what they said: disjoint parts, one changed clip one changed teacher, kept votes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import wavfile

from tellers.data.clips import load_pictures
from tellers.data.dataset import row_hashes
from tellers.data.sound import Kind, features_for, make_city, make_sound, prepare_collection, read_collection
from tellers.nn.tagger import AudioTagger
from tellers.privacy.votes import SetOf
from tellers.runs import BudgetConfig, MechanismConfig, run_voted
from tellers.runs._folder import RunFolder, check_overlap
from tellers.runs.sound import Teaching, deal_clips, read_taught, student_config, teach, teach_student
from tellers.runs.sound.teaching import write_deal
from tellers.teachers import load_ensemble, train_ensemble
from tellers.teachers.ballots import FallbackTeacher

FEATURES = features_for(rate=16_000, seconds=0.4)
TAGGER = {"iterations": 3, "batch_size": 4, "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def made_city(tmp_path_factory):
    """Make the city once: every test has a copy of its table and its pictures."""
    folder = tmp_path_factory.mktemp("city")
    prepare_collection(make_city(folder / "sounds", 48, seed=7, seconds=0.4), folder, features=FEATURES)
    CITY.append(folder)
    yield
    CITY.clear()


CITY = []


def city(folder, *, changed=None):
    shutil.copytree(CITY[0], folder, dirs_exist_ok=True)
    collection = read_collection(folder)
    if changed is None:
        return collection
    here = [folder / "sounds" / path.name for path in collection.clips.paths]
    sound = make_sound("siren", 99, seconds=0.4)
    wavfile.write(here[changed], 16_000, np.round(sound * 32767).astype(np.int16))
    return prepare_collection(replace(collection.clips, paths=here), folder, features=FEATURES)


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
    ensemble = load_ensemble(taught.folder / "teachers", space=SetOf(4))
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

    def watched(collection, names):
        sizes.append(len(names))
        return load_pictures(collection, names)

    monkeypatch.setattr("tellers.runs.sound.teaching.load_pictures", watched)
    taught = teach(collection, tmp_path / "ears", settings(), n_jobs=1)
    parts = [len(part) for part in taught.partition()]
    # Rows of the pool to try the network on; then each is read once, none with another.
    assert sizes == [len(taught.pool), *parts, len(taught.test), len(taught.pool)]
    # All rows in one table, as an ensemble takes them, make the same networks to the bit.
    tables, partition = taught.dealt()
    whole = train_ensemble(
        AudioTagger(**TAGGER, shape=taught.shape), tables.private.X, tables.private.y, partition,
        space=SetOf(4), seed=7, n_jobs=1,
    )  # fmt: skip
    for one, other in zip(whole.teachers, load_ensemble(taught.folder / "teachers", space=SetOf(4)).teachers):
        assert one.state_.keys() == other.state_.keys()
        assert all(np.array_equal(values, other.state_[name]) for name, values in one.state_.items())
    np.testing.assert_array_equal(whole.vote(tables.pool).sums, taught.votes.sums)


def _config(taught, **given):
    name = "gnmax" if taught.settings.one_class else "gnthreshold"
    return student_config(
        taught, mechanism=MechanismConfig(name=name, sigma=2.0), parameters=TAGGER,
        budget=BudgetConfig(epsilon=60.0, delta=1e-3), **given,
    )  # fmt: skip


def copies_of(taught, tables, place):
    """Return what the private record of a run says of copies."""
    folder = RunFolder(place)
    with folder.held():
        check_overlap(_config(taught), tables, folder)
    return json.loads(folder.record.read_bytes())["copies"]


@pytest.mark.parametrize("one_class", [False, True])
@pytest.mark.parametrize("case", ["none usable", "one usable", "one class", "too few"])
def test_every_teacher_of_sounds_votes_whatever_its_clips_are(case, one_class, tmp_path, recwarn, capfd):
    """One teacher's recordings are broken, alike or too few to learn from: the other ballots stay."""
    clips = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4, n_labels=(1, 1))
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    # With rows held out, three are needed: `fit` raises on two.
    chosen = settings(one_class=one_class, tagger={**TAGGER, "held_out": 0.3, "check_every": 1})
    wanted = teach(collection, tmp_path / "calm", chosen, n_jobs=1)
    mine = np.flatnonzero(wanted.owner == 1)
    table = json.loads((collection.folder / "clips.json").read_bytes())
    other = next(row for row in mine if (wanted.Y[row] != wanted.Y[mine[0]]).any())
    kept = {"none usable": [], "one usable": [mine[0]], "too few": [mine[0], other]}.get(case, mine)
    for row in mine:
        if case == "one class":
            table["clips"][row]["labels"] = [table["label_names"][2]]
        elif row not in kept:
            table["clips"][row]["picture"] = None
    (collection.folder / "clips.json").write_text(json.dumps(table))
    capfd.readouterr()
    found = teach(read_collection(collection.folder), tmp_path / "ears", chosen, n_jobs=1)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    assert len(found.pool) == len(wanted.pool)
    said = [taught.votes.ballots if one_class else taught.votes.block() for taught in (wanted, found)]
    np.testing.assert_array_equal(*(np.delete(one, 1, axis=0) for one in said))
    record = json.loads((tmp_path / "ears" / "record.json").read_bytes())["teachers"]
    calm = json.loads((tmp_path / "calm" / "record.json").read_bytes())["teachers"]
    why = {"none usable": "it has no rows", "too few": "ValueError"}.get(case)
    assert (calm, record) == ({}, {} if why is None else {"1": why})
    if why is not None:
        rows = found.rows(found.pool)
        rule = FallbackTeacher(1, len(found.label_names), many=not one_class, trouble="").predict(rows)
        np.testing.assert_array_equal(said[1][1], rule)
    elif case == "one class":
        assert (said[1][1] == (2 if one_class else np.eye(4)[2])).all()


@pytest.mark.parametrize("one_class", [False, True])
def test_a_student_needs_no_private_picture(tmp_path, one_class):
    """They are not even there: only the pool's, the test's, and what the training kept of the others."""
    clips = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4, n_labels=(1, 1))
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    taught = teach(collection, tmp_path / "ears", settings(one_class=one_class), n_jobs=1)
    before = np.asarray(taught.dealt()[0].private.X)
    np.testing.assert_array_equal(row_hashes(before), taught.hashes)
    public = {taught.pictures[row] for row in (*taught.pool, *taught.test)}
    for picture in set(taught.pictures) - public:
        (collection.folder / picture).unlink()
    again, warned = read_taught(tmp_path / "ears"), []
    if one_class:
        tables = again.voted().tables
        assert copies_of(again, tables, tmp_path / "study") == {"pool": 0, "test": 0}
        assert (tables.private.X.shape, len(tables.pool)) == (before.shape, len(again.pool))
        return
    with pytest.raises(ValueError, match="leave out --private"):
        teach_student(again, tmp_path / "study", _config(again, private=True))
    assert not (tmp_path / "study").exists()
    result, _ = teach_student(again, tmp_path / "study", _config(again), warn=warned.append)
    assert (result["data"]["n_private"], result["data"]["n_features"]) == before.shape
    assert not warned


def test_a_private_clip_in_the_pool_is_found_by_its_hash(tmp_path):
    clips, chosen = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4), settings()
    deal = deal_clips(clips, 3, seed=7, student=chosen.student, test=chosen.test)
    private, public = int(deal.teachers[1][0]), int(deal.student[0])
    # The same sound, and another file: what follows the samples is not sound.
    clips.paths[public].write_bytes(clips.paths[private].read_bytes() + b"LIST\x04\x00\x00\x00INFO")
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    taught = teach(collection, tmp_path / "ears", chosen, n_jobs=1)
    assert (taught.owner[private], taught.owner[public]) == (1, -2)
    assert taught.pictures[private] != taught.pictures[public]
    found = copies_of(taught, taught.voted().tables, tmp_path / "study")
    assert found == {"pool": 1, "test": 0}


def test_hashes_that_an_earlier_version_did_not_write_are_made(tmp_path):
    collection, ears = city(tmp_path), tmp_path / "ears"
    kept = teach(collection, ears, settings(), n_jobs=1).hashes
    (ears / "hashes.npy").unlink()
    np.testing.assert_array_equal(read_taught(ears).hashes, kept)
    # A training that ended before its votes: teachers that lie there are looked at again, and so are rows.
    (ears / "votes.npz").unlink()
    np.testing.assert_array_equal(teach(collection, ears, settings(), n_jobs=1).hashes, kept)
    assert (ears / "hashes.npy").exists()


def test_a_broken_clip_is_nobodys(tmp_path):
    clips = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4)
    whole = teach(city(tmp_path / "whole"), tmp_path / "ears-whole", settings(), n_jobs=1)
    clips.paths[11].write_bytes(b"no recording")
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    taught = teach(collection, tmp_path / "ears", settings(), n_jobs=1)
    assert taught.owner[11] == -1
    others = np.arange(48) != 11
    np.testing.assert_array_equal(taught.owner[others], whole.owner[others])


@pytest.mark.parametrize("kept", [False, True])
def test_silent_clips_are_no_half_of_a_mixture(tmp_path, kept):
    pytest.importorskip("soundfile")
    clips = make_city(tmp_path / "sounds", 24, seed=7, seconds=0.1)
    deal = deal_clips(clips, 3, seed=7, student=0.2, test=0.15)
    part = deal.teachers[1]
    for row in part[:2]:
        wavfile.write(clips.paths[row], 16_000, np.zeros(1600, dtype=np.int16))
    answers = {Kind.SILENT: "keep"} if kept else "skip"
    features = features_for(rate=16_000, seconds=0.1)
    collection = prepare_collection(clips, tmp_path, features=features, on_finding=answers)
    (tmp_path / "ears").mkdir()
    chosen = settings(mix=4)
    write_deal(collection, tmp_path / "ears", chosen, n_jobs=1, say=lambda *_: None)
    with np.load(tmp_path / "ears" / "dealt.npz") as file:
        owner, n_dealt = file["owner"], int(file["n_dealt"])
    # Every clip begins four mixtures, but for the silent ones; how many were dealt tells nothing of these.
    assert len(owner) == 4 * (sum(map(len, (*deal.teachers, deal.student, deal.test))) - (0 if kept else 2))
    assert (owner != -1).all()
    assert n_dealt == 4 * sum(map(len, deal.teachers))
    assert (owner == 1).sum() == 4 * (len(part) - (0 if kept else 2))


@pytest.mark.parametrize("one_class", [False, True])
def test_a_training_goes_on_on_another_device(made_clips, tmp_path, one_class):
    longer = features_for(rate=16_000, seconds=0.3)
    collection = made_clips(tmp_path / "clips", one=one_class, features=longer)
    chosen = settings(one_class=one_class)
    whole = teach(collection, tmp_path / "whole", chosen, n_jobs=1)

    def stop(step, done, _total):
        if step == "teachers" and done == 2:
            raise KeyboardInterrupt

    begun = replace(chosen, tagger={**TAGGER, "device": "auto", "log_folder": None})
    with pytest.raises(KeyboardInterrupt):
        teach(collection, tmp_path / "ears", begun, n_jobs=1, show=stop)
    made = sorted((tmp_path / "ears" / "teachers").glob("teacher*.json"))
    assert 1 <= len(made) < 3
    before = [file.stat().st_mtime_ns for file in made]
    other = replace(chosen, tagger={**TAGGER, "learning_rate": 0.1})
    with pytest.raises(ValueError, match=r"got others for tagger\.learning_rate\."):
        teach(collection, tmp_path / "ears", other, n_jobs=1)
    taught = teach(collection, tmp_path / "ears", chosen, n_jobs=1)
    assert [file.stat().st_mtime_ns for file in made] == before  # not trained again
    assert taught.settings.tagger["device"] == "cpu"
    for one, same in zip(taught.partition(), whole.partition(), strict=True):
        np.testing.assert_array_equal(one, same)
    left, right = taught.voted().votes, whole.voted().votes
    np.testing.assert_array_equal(*((v.counts if one_class else v.sums) for v in (left, right)))


def test_rows_held_out_leave_enough_or_nothing_is_trained(made_clips, tmp_path):
    longer = features_for(rate=16_000, seconds=0.3)
    collection, steps = made_clips(tmp_path / "clips", features=longer), []
    few = Teaching(n_teachers=17, seed=7, tagger={**TAGGER, "held_out": 0.3, "check_every": 1})
    with pytest.raises(ValueError, match=r"at least 3 clips for each teacher.* --held-out"):
        teach(collection, tmp_path / "ears", few, show=lambda step, *_: steps.append(step))
    assert "teachers" not in steps
    (tmp_path / "plain").mkdir()
    write_deal(
        collection, tmp_path / "plain", replace(few, tagger=TAGGER), n_jobs=1, say=lambda *_: None
    )  # two are enough
    with pytest.raises(ValueError, match="at least 3 rows to hold some out"):
        AudioTagger(held_out=0.3, shape=(6, 64)).require_fit((2, 6 * 64), n_labels=3)


def test_too_many_teachers_and_unknown_folds_are_refused(tmp_path):
    collection = city(tmp_path)
    with pytest.raises(ValueError, match="at least 2 clips for each teacher, got 25 for 25"):
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


def test_votes_on_classes_and_on_labels_are_told_apart(tmp_path):
    clips = make_city(tmp_path / "sounds", 48, seed=7, seconds=0.4, n_labels=(1, 1))
    collection = prepare_collection(clips, tmp_path, features=FEATURES)
    named = teach(collection, tmp_path / "named", settings(one_class=True), n_jobs=1)
    many = teach(collection, tmp_path / "many", settings(), n_jobs=1)
    np.testing.assert_array_equal(named.owner, many.owner)
    assert named.votes.n_classes == 4
    np.testing.assert_array_equal(named.truth, many.truth.argmax(axis=1))
    voted = named.voted()
    assert voted.votes.n_classes == 4
    assert (voted.votes.counts.sum(axis=1) == 3).all()
    with pytest.raises(ValueError, match="got one of each"):
        replace(voted, votes=many.votes)
    config = student_config(
        many, mechanism=MechanismConfig(name="gnthreshold", sigma=2.0), budget=BudgetConfig(epsilon=60.0),
        parameters=TAGGER,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Expected labels for votes on many labels"):
        run_voted(config, tmp_path / "study", voted=voted)
    assert not (tmp_path / "study").exists()


def test_clips_prepared_anew_under_trained_teachers_are_noticed(ears, made_clips, tmp_path):
    place, names = tmp_path / "clips", ears.label_names
    features = features_for(rate=22_050, seconds=0.1)
    again = {
        "labels": {"names": names[::-1]},
        "settings": {"features": replace(features, logmel=replace(features.logmel, hop=450))},
        "recordings": {"unusable": (3,)},
    }
    for what, given in again.items():
        made_clips(place, **given)
        changed = f"prepared anew since with .*other {what}"
        for read in (read_taught, lambda folder: teach(read_collection(place), folder, ears.settings)):
            with pytest.raises(ValueError, match=changed):
                read(ears.folder)
    made_clips(place, n_clips=70)
    with pytest.raises(ValueError, match="with other recordings"):
        read_taught(ears.folder)
    # As it was, wherever the recordings lie now, and whatever was noted.
    made_clips(place)
    said = json.loads((place / "clips.json").read_text())
    said["notes"] = ["moved"]
    for clip in said["clips"]:
        clip["path"] = "/elsewhere" + clip["path"]
    (place / "clips.json").write_text(json.dumps(said))
    assert read_taught(ears.folder).label_names == names
    assert teach(read_collection(place), ears.folder, ears.settings).label_names == names
