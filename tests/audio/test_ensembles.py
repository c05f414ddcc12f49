"""Taggers as teachers and students of the machinery that is there: partitions, votes, runs, files."""

import numpy as np
import pytest

from tellers import Binary, noise
from tellers.nn.tagger import AudioClassifier, AudioTagger
from tellers.privacy.votes import SetOf
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
    run,
)
from tellers.students import fit_supervised
from tellers.teachers import load_ensemble, partition, train_ensemble

SETTINGS = {"iterations": 4, "batch_size": 8, "device": "cpu"}


def pictures(n_rows, *, seed):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n_rows, 16, 16)).astype(np.float32)
    return X, (X[:, :, :2].mean(axis=(1, 2))[:, None] > [-0.1, 0.1]).astype(np.int64)


def test_taggers_are_teachers_kept_on_disk_and_teach_a_student(tmp_path):
    X, Y = pictures(48, seed=7)
    parts = partition(36, 3, seed=7)
    given = {"space": SetOf(2), "seed": 7, "folder": tmp_path, "n_jobs": 1}
    ensemble = train_ensemble(AudioTagger(**SETTINGS), X[:36], Y[:36], parts, **given)
    votes = ensemble.vote(X[36:])
    assert votes.n_teachers == 3
    again = load_ensemble(tmp_path, space=SetOf(2))
    assert np.array_equal(again.vote(X[36:]).sums, votes.sums)
    release = Binary(sigma=1.0, n_labels=2).release(votes, noise.seeded(7))
    student = fit_supervised(AudioTagger(**SETTINGS), X[36:], release, seed=7)
    assert student.random_state is not None
    assert student.predict(X).shape == (48, 2)


def test_a_changed_row_changes_one_teacher_alone():
    X, Y = pictures(36, seed=7)
    parts = partition(36, 3, seed=7)
    given = {"space": SetOf(2), "seed": 7, "n_jobs": 1}
    model = AudioTagger(**SETTINGS, held_out=0.2, check_every=2, patience=1, weighted=True)
    changed_X, changed_Y = X.copy(), Y.copy()
    changed_X[0], changed_Y[0] = 50.0, 1 - Y[0]
    said = [
        train_ensemble(model, rows, labels, parts, **given).probabilities(X).reveal()
        for rows, labels in ((X, Y), (changed_X, changed_Y))
    ]
    moved = [not np.array_equal(one, other) for one, other in zip(*said)]
    assert sum(moved) == 1


def test_classifiers_of_clips_are_teachers_of_one_class(tmp_path):
    X, Y = pictures(36, seed=7)
    model = AudioClassifier(AudioTagger(**SETTINGS), n_classes=3)
    parts = partition(36, 3, seed=7)
    given = {"n_classes": 3, "seed": 7, "folder": tmp_path, "n_jobs": 1}
    assert train_ensemble(model, X, Y.sum(axis=1), parts, **given).vote(X[:5]).n_teachers == 3


@pytest.mark.parametrize("model", ["tellers.runs.sound:AudioTagger"])
def test_a_run_by_its_settings_takes_taggers(tmp_path, model):
    parameters = {**SETTINGS, "shape": [16, 16]}
    config = RunConfig(
        data=DataConfig(
            name="made_multilabel", n_public=12, n_test=20, options={"n_rows": 80, "n_features": 256}
        ),
        labels=LabelsConfig(names=("siren", "bell")),
        partition=PartitionConfig(n_teachers=3),
        teachers=TeachersConfig(model=model, n_jobs=1, parameters=parameters),
        mechanism=MechanismConfig(name="gnthreshold", sigma=4.0, share=0.4),
        budget=BudgetConfig(epsilon=60.0, delta=1e-4),
        queries=QueriesConfig(n_queries=6),
        student=StudentConfig(model=model, parameters=parameters),
    )
    result = run(config, tmp_path / "run")
    assert result["queries"]["n_asked"] == 6
    assert list((tmp_path / "run").rglob("student.safetensors"))
