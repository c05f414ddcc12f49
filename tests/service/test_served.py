"""What can be served: the folder of a run, a vote file, a folder of teachers; and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from tellers import noise
from tellers.errors import ConfigError
from tellers.runs import MechanismConfig
from tellers.service import LedgerConfig, ServedConfig, ServiceSettings
from tellers.service._labels import LabelService
from tellers.service._ledger import open_service_ledger
from tellers.service._routes import question_model
from tellers.service._teachers import NotAnswerable, open_served
from tellers.teachers.models import ConstantTeacher, save_teacher

LEDGER = LedgerConfig(url="ledger.db", epsilon=4.0, delta=1e-5)


def teachers(folder, *, n=30, mechanism=None, **data):
    (folder / "teachers").mkdir()
    for number in range(n):
        save_teacher(folder / "teachers", number, model=ConstantTeacher(2), made_of={"seed": 7})
    return ServiceSettings(
        data=ServedConfig(source="teachers", path="teachers", n_classes=3, n_features=2, **data),
        mechanism=mechanism or MechanismConfig(name="gnmax", sigma=3.0), ledger=LEDGER, folder=str(folder),
    )  # fmt: skip


def test_teachers_vote_on_any_row(tmp_path):
    served = open_served(teachers(tmp_path))
    with open_service_ledger(served.ledger, served.budget) as ledger:
        labels = LabelService(served, ledger, noise.secure())
        # Thirty of thirty votes against noise of three: wrong once in a billion.
        assert labels.ask("alice", "k1", rows=[[0.5, 1.0], [2.0, 3.0]])[0].labels.tolist() == [2, 2]


def test_teachers_with_a_pool_answer_by_id_too(tmp_path):
    np.save(tmp_path / "pool.npy", np.zeros((4, 2)))
    served = open_served(teachers(tmp_path, pool="pool.npy"))
    assert served.question(None, [3, 0]).shape == (2, 2)
    asked = question_model(served, max_batch=10)
    assert asked(idempotency_key="k", pool=[3, 0]).given("pool") == [3, 0]
    for said in ({"rows": [[0.5]]}, {"pool": [4]}, {"pool": [0], "rows": [[0.0, 0.0]]}, {}):
        with pytest.raises(ValidationError):
            asked(idempotency_key="k", **said)


def test_a_student_is_heard_before_anything_is_charged(tmp_path):
    interactive = MechanismConfig(
        name="interactive", sigma=3.0, threshold=10.0, sigma_threshold=3.0, student_confidence=0.9
    )
    served = open_served(teachers(tmp_path, mechanism=interactive))
    with open_service_ledger(served.ledger, served.budget) as ledger:
        labels = LabelService(served, ledger, noise.secure())
        asked = question_model(served, max_batch=10)
        for said in ({}, {"student": [[0.5, 0.5]]}, {"student": [[-0.5, 1.0, 0.5]]}):
            with pytest.raises(ValidationError):
                asked(idempotency_key="k1", rows=[[0.0, 0.0]], **said)
        for belief in ([[0.5, 0.4, 0.4]], [[1.0, 0.0, 0.0]] * 2):
            with pytest.raises(NotAnswerable, match="student"):
                labels.ask("alice", "k1", rows=[[0.0, 0.0]], belief=belief)
        assert not ledger.entries()
        answered = labels.ask("alice", "k1", rows=[[0.0, 0.0]], belief=[[0.0, 0.0, 1.0]])
    assert len(answered[0]) == 1


def test_networks_vote_on_any_row(tmp_path):
    pytest.importorskip("torch")
    from tellers.nn.classifier import TorchClassifier
    from tellers.teachers import partition, train_ensemble

    rng = np.random.default_rng(7)
    y = rng.integers(3, size=300)
    X = np.eye(3)[y][:, :2] + 0.05 * rng.normal(size=(300, 2))
    model = TorchClassifier("mlp", epochs=20, learning_rate=0.01, device="cpu")
    train_ensemble(
        model, X, y, partition(300, 10, seed=7), n_classes=3, seed=7, n_jobs=1, folder=tmp_path / "teachers"
    )
    settings = ServiceSettings(
        data=ServedConfig(source="teachers", path="teachers", n_classes=3, n_features=2),
        mechanism=MechanismConfig(name="gnmax", sigma=1.0), ledger=replace(LEDGER, epsilon=50.0),
        folder=str(tmp_path),
    )  # fmt: skip
    served = open_served(settings)
    assert (served.n_teachers, served.n_features) == (10, 2)
    with open_service_ledger(served.ledger, served.budget) as ledger:
        # Ten of ten votes against noise of one: wrong once in a billion.
        answered = LabelService(served, ledger, noise.secure()).ask(
            "alice", "k1", rows=[[1.0, 0.0], [0.0, 0.0]]
        )
    assert answered[0].labels.tolist() == [0, 2]
    wide = replace(settings, data=replace(settings.data, n_features=3))
    with pytest.raises(ConfigError, match="n_features = 2"):
        open_served(wide)


def test_a_missing_teacher_is_refused(tmp_path):
    settings = teachers(tmp_path, n=3)
    (tmp_path / "teachers" / "teacher-00001.json").unlink()
    with pytest.raises(ConfigError, match="finished teacher 1"):
        open_served(settings)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.zeros(4), "table of numbers"),
        (np.full((4, 2), np.nan), "finite"),
        (np.zeros((4, 3)), "2 numbers in every row"),
        (np.array([["a", "b"]]), "table of numbers"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(tmp_path, content, words):
    np.save(tmp_path / "pool.npy", content)
    with pytest.raises(ConfigError, match=words):
        open_served(teachers(tmp_path, pool="pool.npy"))


def test_the_folder_of_a_run_brings_its_own_terms(tmp_path):
    from tellers.runs import DataConfig, PartitionConfig, QueriesConfig, RunConfig, run

    config = RunConfig(
        data=DataConfig(name="breast_cancer", n_public=60, n_test=60),
        partition=PartitionConfig(n_teachers=40), queries=QueriesConfig(n_queries=20),
    )  # fmt: skip
    result = run(config, tmp_path / "study")
    served = open_served(ServiceSettings(folder=str(tmp_path)))
    assert (served.n_pool, served.n_classes, served.n_teachers) == (60, 2, 40)
    assert (served.budget.epsilon, served.budget.delta) == (8.0, 1e-4)
    with open_service_ledger(served.ledger, served.budget) as ledger:
        labels = LabelService(served, ledger, noise.secure())
        # What the run has spent is spent.
        assert labels.budget_status().epsilon_spent > 0
        n_before = labels.releases(after=0, limit=0)[1]
        assert labels.ask("alice", "k1", pool=[0, 59])[0].labels.shape == (2,)
        page, total = labels.releases(after=0, limit=1000)
        assert [student for _, student, _, _ in page] == [""] * n_before + ["alice"]
        assert total == n_before + 1 == labels.releases("alice", after=0, limit=9)[1] + n_before
    assert json.dumps(result.as_dict())


def test_a_run_with_many_labels_brings_their_names(tmp_path):
    shutil.unpack_archive(Path(__file__).parents[1] / "golden" / "old" / "labels.tar.xz", tmp_path)
    settings = ServiceSettings(data=ServedConfig(source="run", path="labels"), folder=str(tmp_path))
    served = open_served(settings)
    assert (served.n_classes, served.n_labels) == (0, 3)
    assert len(served.label_names) == 3
    with open_service_ledger(served.ledger, served.budget) as ledger:
        labels = LabelService(served, ledger, noise.secure())
        assert labels.ask("alice", "k1", pool=[0, 5])[0].labels.shape == (2, 3)
    one_class = MechanismConfig(name="gnmax", sigma=3.0)
    with pytest.raises(ConfigError, match=r"mechanism.name: Expected a mechanism for many labels"):
        open_served(replace(settings, mechanism=one_class))
