"""Features of public rows: what they see, who may begin with them, and what is refused."""

import pickle

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

torch = pytest.importorskip("torch")

from tellers.data import digits  # noqa: E402
from tellers.students.torch import MeanTeacherStudent, PublicFeatures  # noqa: E402

SETTINGS = {"width": 8, "image_shape": (8, 8), "batch_size": 256, "random_state": 7, "device": "cpu"}


@pytest.fixture(scope="module")
def pool():
    return digits().X[:800]


@pytest.fixture(scope="module")
def features(pool):
    return PublicFeatures(steps=80, **SETTINGS).fit(pool)


def alike(features, rows):
    """Return how often the nearest of all strong views is that of the same row."""
    middle = features.transform(rows).mean(0)
    parts = [features.transform(rows, strength=1.0, seed=seed) - middle for seed in (1, 2)]
    one, other = (part / np.linalg.norm(part, axis=1, keepdims=True).clip(1e-9) for part in parts)
    return float(((one @ other.T).argmax(1) == np.arange(len(rows))).mean())


def test_learned_features_tell_rows_apart_by_what_they_show(features, pool):
    data, begun = digits(), PublicFeatures(steps=1, **SETTINGS).fit(pool)
    found = []
    for each in (begun, features):
        near = KNeighborsClassifier(3).fit(each.transform(data.X[:100]), data.y[:100])
        score = near.score(each.transform(data.X[800:]), data.y[800:])
        found.append((alike(each, data.X[800:1000]), score))
    # Measured after 60 steps 0.04 and 0.17; 0.43 and 0.65.
    assert found[1][0] > found[0][0] + 0.1
    assert found[1][1] > found[0][1] + 0.15


def test_the_seed_decides_and_training_leaves_torch_alone(pool):
    state = torch.get_rng_state()
    one, again, other = (
        PublicFeatures(steps=4, **{**SETTINGS, "random_state": seed}).fit(pool[:300]).transform(pool[:9])
        for seed in (7, 7, 8)
    )
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


def test_a_row_gets_the_same_features_whatever_comes_with_it(features, pool):
    alone = np.concatenate([features.transform(pool[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(features.transform(pool)[:5], alone, rtol=1e-4, atol=1e-5)


def test_students_begin_with_them_and_leave_them_as_they_are(features, pool):
    data, before = digits(), features.transform(pool[:5])
    student = MeanTeacherStudent(
        network=features.network(10), steps=5, n_classes=10, image_shape=(8, 8), random_state=7, device="cpu"
    )
    student.fit(data.X[:60], data.y[:60], pool)
    assert student.predict(data.X[:4]).shape == (4,)
    np.testing.assert_array_equal(features.transform(pool[:5]), before)
    first = features.network(10)().features.state_dict()
    for name, value in features.features_.state_dict().items():
        assert torch.equal(first[name], value)


def test_a_checkpoint_of_another_beginning_is_not_taken_up(features, pool, tmp_path):
    data = digits()
    other = PublicFeatures(steps=2, **{**SETTINGS, "random_state": 8}).fit(pool[:300])

    def student(begun):
        return MeanTeacherStudent(
            network=begun.network(10), steps=4, n_classes=10, image_shape=(8, 8), random_state=7, device="cpu"
        )

    taught = data.X[:60], data.y[:60], pool[:100]
    student(features).fit(*taught, folder=tmp_path, save_every=2)
    fresh = student(other).fit(*taught)
    with pytest.raises(ValueError, match="Expected"):
        student(other).fit(*taught, folder=tmp_path, save_every=2)
    assert fresh.n_steps_ == 4


def test_fitted_features_travel(features, pool):
    same = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(same.transform(pool[:5]), features.transform(pool[:5]))


def test_tables_have_features_too():
    rows = np.random.default_rng(0).normal(size=(50, 6))
    assert PublicFeatures(steps=3, width=2, random_state=7).fit_transform(rows).shape == (50, 16)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"batch_size": 1}, "batch_size"),
        ({"steps": 0}, "steps"),
        ({"random_state": -1}, "random_state"),
        ({"kind": "forest"}, "network"),
        ({"image_shape": (3, 3)}, "image"),
    ],
)
def test_settings_that_cannot_be(settings, words, pool):
    with pytest.raises(ValueError, match=words):
        PublicFeatures(**{"steps": 2, "width": 2, **settings}).fit(pool)


def test_labels_and_unfitted_features_are_refused(pool):
    with pytest.raises(ValueError, match="no labels"):
        PublicFeatures(steps=2).fit(pool, np.zeros(len(pool)))
    with pytest.raises(ValueError, match="fitted"):
        PublicFeatures().network(3)
    with pytest.raises(ValueError, match="rows of shape"):
        PublicFeatures(steps=2, width=2).fit(pool).transform(pool[:, :5])
