"""`tellers run` on prepared clips: students that can be handed a recording, and a page of what they hear."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.io import wavfile
from sklearn.metrics import precision_recall_fscore_support

from tellers.cli import main
from tellers.cli.outcome import tell
from tellers.data.sound import features_for
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    load_student,
    run,
    write_config,
)
from tellers.runs._tables import read_tables
from tellers.runs.sound import Hearing, load_hearing

pytestmark = pytest.mark.usefixtures("no_pages")
NAMES = ("siren", "bell", "engine")  # not in the order of the table


def config_of(folder, *, one=False, by="record", **data):
    many = LabelsConfig() if one else LabelsConfig(names=NAMES)
    given = {"n_public": 20, "n_test": 10, **data}
    return RunConfig(
        data=DataConfig(name="clips", private="clips", folder=str(folder), classes=NAMES * one, **given),
        labels=many, partition=PartitionConfig(n_teachers=5, by=by),
        teachers=TeachersConfig(model="logistic", n_jobs=1),
        mechanism=MechanismConfig(name="gnmax" if one else "gnthreshold", sigma=0.1),
        # With so little noise every label is what most teachers say, but for a chance below 1e-20.
        budget=BudgetConfig(epsilon=1e6, delta=1e-3), queries=QueriesConfig(n_queries=20),
        student=StudentConfig(model="logistic"),
    )  # fmt: skip


@pytest.mark.parametrize("one", [False, True])
def test_the_student_of_a_run_takes_recordings(made_clips, tmp_path, one):
    pytest.importorskip("soundfile")
    features = made_clips(tmp_path / "clips", one=one, n_clips=100).features
    result = run(config_of(tmp_path, one=one), tmp_path / "study")
    assert result["student"]["labels_right"] > 0.9
    hearing = load_hearing(tmp_path / "study")
    assert (hearing.label_names, hearing.features) == (NAMES, features)
    noise = np.random.default_rng(7).integers(-9000, 9000, size=1600).astype(np.int16)
    wavfile.write(tmp_path / "noise.wav", 16_000, noise)
    tagged = hearing.tag([tmp_path / "noise.wav"])[0]
    assert sorted(name for name, _ in tagged.top(3)) == sorted(NAMES)
    # Scores are those of the labels they stand beside.
    pictures = np.zeros((3, *features.shape), dtype=np.float32)
    for row, name in enumerate(NAMES):
        at = ("bell", "engine", "siren").index(name)
        pictures[row, :, 22 * at : 22 * (at + 1)] = 2.0
    assert hearing.scores(pictures).argmax(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("one", [False, True])
def test_precision_recall_and_f1_of_a_student_are_told(made_clips, tmp_path, capsys, one):
    made_clips(tmp_path / "clips", one=one, n_clips=100)
    config = config_of(tmp_path, one=one, n_test=40)
    result = run(config, tmp_path / "study")
    student = load_student(tmp_path / "study" / "student")
    tables = read_tables(config)
    test, said = tables.test, np.asarray(student.predict(tables.test.X))
    truth, said = (np.eye(3)[test.y], np.eye(3)[said]) if one else (test.y, said)
    scores = result["student"]["scores"]
    for average in ("macro", "micro"):
        found = precision_recall_fscore_support(truth, said, average=average)
        for name, value in zip(("precision", "recall", "f1"), found):
            assert scores[f"{average}_{name}"] == pytest.approx(value)
    each = precision_recall_fscore_support(truth, said)
    told = result["student"]["per_class"] if one else result["labels"]
    for name, values in zip(("precision", "recall", "f1"), each):
        assert [label[name] for label in told] == pytest.approx(values.tolist())
    card = (tmp_path / "study" / "student" / "card.md").read_text()
    assert f"| Recall, mean of the {'classes' if one else 'labels'} | {scores['macro_recall']:.3f} |" in card
    tell(result, tmp_path / "study")
    assert f"recall {scores['macro_recall']:.3f}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("which", ["public", "test"])
def test_other_folders_are_prepared_with_the_same_settings(made_clips, tmp_path, one, which):
    made_clips(tmp_path / "clips", one=one)
    given = {"n_public": 0 if which == "public" else 12, "n_test": 0, which: "other"}
    faster = features_for(rate=22_050, seconds=0.1)
    faster = replace(faster, logmel=replace(faster.logmel, hop=441, window=1024))
    made_clips(tmp_path / "other", one=one, features=faster)
    assert faster.shape == made_clips(tmp_path / "clips", one=one).features.shape
    with pytest.raises(ValueError, match="hop 441 and not 320, rate 22050 and not 16000"):
        read_tables(config_of(tmp_path, one=one, **given))
    # How many clips are refused, or how numbers are stored, makes no other picture.
    slower = features_for(rate=16_000, seconds=0.1, silent=1e-3)
    made_clips(tmp_path / "other", one=one, features=replace(slower, dtype="float16"))
    assert len(read_tables(config_of(tmp_path, one=one, **given)).pool) == (60 if which == "public" else 12)


def test_students_that_know_some_classes_or_do_not_say_how_sure_they_are():
    class Some:
        classes_ = np.array([0, 2])

        def predict_proba(self, X):
            return np.tile([0.25, 0.75], (len(X), 1))

    class Sure:
        classes_ = np.array([0, 1, 2])

        def predict(self, X):
            return np.full(len(X), 1)

    picture = np.zeros((1, 2, 2))
    assert Hearing(Some(), None, NAMES).scores(picture).tolist() == [[0.25, 0.0, 0.75]]
    assert Hearing(Sure(), None, NAMES).scores(picture).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("by", ["record", "person"])
@pytest.mark.parametrize("one", [False, True])
def test_the_page_shows_the_test_clips_of_the_run_and_no_private_one(
    made_clips, tmp_path, monkeypatch, one, by
):
    made_clips(tmp_path / "clips", one=one, n_clips=100, sources=20 if by == "person" else 0)
    shown = {}
    monkeypatch.setattr(
        "tellers.runs.sound._pages.write_sound",
        lambda path, hearing, pictures, *, truth: shown.update(path=path, pictures=pictures, truth=truth),
    )
    config = config_of(tmp_path, one=one, by=by)
    run(config, tmp_path / "study")
    assert shown["path"] == tmp_path / "study" / "sound.html"
    ran = read_tables(config)
    np.testing.assert_array_equal(shown["pictures"].reshape(len(ran.test.X), -1), ran.test.X)
    truth = np.eye(3)[ran.test.y] if one else ran.test.y
    np.testing.assert_array_equal(shown["truth"], truth)
    private = {row.tobytes() for row in np.asarray(ran.private.X, dtype=np.float32)}
    assert len(private) > 20
    assert not private & {picture.tobytes() for picture in np.asarray(shown["pictures"], dtype=np.float32)}


@pytest.mark.parametrize("n_test", [10, 0])
def test_the_command_writes_it_and_says_where(made_clips, tmp_path, monkeypatch, capsys, n_test):
    made_clips(tmp_path / "clips", n_clips=80)
    monkeypatch.undo()  # this page is drawn
    monkeypatch.chdir(tmp_path)
    config = config_of("", n_test=n_test)
    (tmp_path / "a.toml").write_text(write_config(config))
    with pytest.raises(SystemExit) as stopped:
        main(["run", "a.toml", "--out", "study"])
    said = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0
    page = tmp_path / "study" / "sound.html"
    assert page.exists() == (n_test > 0) == ("curves of every label: study/sound.html" in said)
    if n_test:
        words = page.read_text()
        assert all(name in words for name in NAMES)
        assert "Test clip" in words
        assert "<script" not in words
