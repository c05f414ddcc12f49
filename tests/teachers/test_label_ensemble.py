"""Teachers on many labels: any classifier, small parts, thresholds, files."""

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tellers.data import OneEach, measure
from tellers.data.label_models import takes_labels
from tellers.privacy.votes import SetOf
from tellers.teachers import Ensemble, Partition, load_ensemble, partition, train_ensemble
from tellers.teachers.models import ConstantLabels

X, Y = make_multilabel_classification(600, 8, n_classes=4, n_labels=2, random_state=7)
PARTS = partition(400, 8, seed=7)


def train(estimator, targets=Y[:400], **options):
    settings = {"space": SetOf(4), "seed": 7, "n_jobs": 1, **options}
    return train_ensemble(estimator, X[:400], targets, PARTS, **settings)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=4),
        RandomForestClassifier(5),
        KNeighborsClassifier(5),
        make_pipeline(StandardScaler(), MLPClassifier(16, max_iter=100)),
        LogisticRegression(max_iter=500),
        GaussianNB(),
        Perceptron(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=4)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_the_majority_of_any_teachers_is_right_more_often_than_a_guess(estimator):
    ensemble = train(estimator)
    votes = ensemble.vote(X[400:])
    assert (votes.n_teachers, votes.n_labels, len(votes)) == (8, 4, 200)
    majority = (2 * votes.sums > 8).astype(int)
    guess = np.tile(Y[:400].mean(axis=0) > 0.5, (200, 1)).astype(int)
    assert measure(Y[400:], majority).accuracy > measure(Y[400:], guess).accuracy


def test_which_estimators_take_many_labels_as_they_are():
    ours = {DecisionTreeClassifier(): True, LogisticRegression(): False, MLPClassifier(): True}
    assert all(takes_labels(estimator) == wanted for estimator, wanted in ours.items())
    assert isinstance(train(LogisticRegression()).teachers[0], OneEach)
    assert isinstance(train(DecisionTreeClassifier()).teachers[0], DecisionTreeClassifier)


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), DecisionTreeClassifier(), KNeighborsClassifier(3)]
)
def test_labels_that_are_constant_in_a_part_are_answered_so(estimator):
    targets = Y[:400].copy()
    targets[PARTS[0], 1] = 1
    targets[PARTS[0], 2] = 0
    targets[PARTS[1]] = [0, 1, 0, 1]
    ensemble = train(estimator, targets)
    ballots = ensemble.vote(X[400:]).block()
    assert (ballots[0, :, 1] == 1).all()
    assert (ballots[0, :, 2] == 0).all()
    assert ensemble.teachers[1] == ConstantLabels((0, 1, 0, 1))
    assert (ballots[1] == [0, 1, 0, 1]).all()


def test_thresholds_decide_label_by_label():
    ensemble = train(LogisticRegression(max_iter=500))
    said = ensemble.probabilities(X[400:]).reveal()
    limits = (0.2, 0.9, 0.5, 1.0)
    other = Ensemble(ensemble.teachers, space=SetOf(4), thresholds=limits)
    np.testing.assert_array_equal(other.vote(X[400:]).block(), said >= np.array(limits))
    parts = Ensemble(ensemble.teachers, space=SetOf(4, 100)).vote(X[400:])
    assert parts.resolution == 100
    np.testing.assert_array_equal(parts.block(), np.rint(100 * said))


def test_one_label_is_a_table_with_one_column():
    ensemble = train(DecisionTreeClassifier(max_depth=4), Y[:400, :1], space=SetOf(1))
    assert ensemble.vote(X[400:]).block().shape == (8, 200, 1)


def test_teachers_come_back_from_their_folder(tmp_path):
    options = {"folder": tmp_path, "thresholds": (0.3, 0.4, 0.5, 0.6)}
    first = train(make_pipeline(StandardScaler(), LogisticRegression()), **options)
    seen = []
    model = make_pipeline(StandardScaler(), LogisticRegression())
    again = train(model, **options, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(8, 8)]  # nothing was trained
    loaded = load_ensemble(tmp_path, space=SetOf(4), thresholds=options["thresholds"])
    for other in (again, loaded):
        np.testing.assert_array_equal(other.vote(X[400:]).block(), first.vote(X[400:]).block())
    with pytest.raises(ValueError, match="Expected teachers with n_labels=5"):
        load_ensemble(tmp_path, space=SetOf(5))
    with pytest.raises(ValueError, match="Expected teachers with n_classes=4"):
        load_ensemble(tmp_path, n_classes=4)
    with pytest.raises(ValueError, match="different: rows"):
        train(model, 1 - Y[:400], **options)


def test_a_seed_gives_the_same_teachers_in_processes():
    one = train(RandomForestClassifier(3)).vote(X[400:]).block()
    np.testing.assert_array_equal(one, train(RandomForestClassifier(3), n_jobs=2).vote(X[400:]).block())


def test_accuracies_are_sealed():
    found = train(GaussianNB()).accuracies(X[400:], Y[400:]).reveal()
    assert found.shape == (8,)
    assert (found > 0.5).all()


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (Y[:400, :3], "each of the 4 labels declared, got 3"),
        (Y[:399], "with 400 rows"),
        (Y[:400, 0], "Expected Y of shape"),
        (Y[:400] * 2, "Expected 0 or 1 in Y, got another entry in row"),
        (Y[:400] - 0.5, "Expected 0 or 1 in Y"),
    ],
)
def test_targets_that_are_no_labels_are_refused(targets, words):
    with pytest.raises(ValueError, match=words):
        train(GaussianNB(), targets)


@pytest.mark.parametrize("thresholds", [0.0, 1.5, (0.5, 0.5), (0.5, 0.5, 0.5, float("nan"))])
def test_thresholds_that_are_no_probabilities_are_refused(thresholds):
    with pytest.raises(ValueError, match="Expected one threshold"):
        train(GaussianNB(), thresholds=thresholds)


def test_a_teacher_that_answers_something_else_says_no_to_every_label():
    class Odd:
        def __init__(self, how):
            self.how = how

        def predict(self, X):
            return np.full((len(X), 4), 7) if self.how == "seven" else [][0]

    some = (ConstantLabels((1, 1, 0, 1)), Odd("seven"), Odd("raises"))
    made = Ensemble(some, space=SetOf(4))
    np.testing.assert_array_equal(made.vote(X[400:]).sums, np.tile([1, 1, 0, 1], (200, 1)))
    assert made.troubles.reveal() == {1: "it answered something other than was declared", 2: "IndexError"}
    with pytest.raises(TypeError, match="Expected an estimator"):
        train(object())


class Picky(GaussianNB):
    """Cannot learn from the part that has a certain row."""

    def __init__(self, bad=None):
        super().__init__()
        self.bad = bad

    def fit(self, X, y):
        if (self.bad == X).all(axis=1).any():
            raise ValueError("the patient is called Anna")
        return super().fit(X, y)


@pytest.mark.parametrize("resolution", [1, 100])
@pytest.mark.parametrize("case", ["raises", "empty", "alike"])
def test_what_a_part_does_to_its_teacher_changes_that_ballot_alone(case, resolution, recwarn):
    parts, targets = PARTS, Y[:400].copy()
    if case == "empty":
        parts = Partition((*PARTS.parts[:3], PARTS[3][:0], *PARTS.parts[4:]), unit="one record")
    if case == "alike":
        targets[PARTS[3]] = (0, 1, 1, 0)
    model = Picky(X[PARTS[3][0]] if case == "raises" else np.full(8, np.nan))
    wanted = train(Picky(np.full(8, np.nan)), space=SetOf(4, resolution)).vote(X[400:]).block()
    made = train_ensemble(model, X[:400], targets, parts, space=SetOf(4, resolution), seed=7, n_jobs=1)
    found = made.vote(X[400:]).block()
    others = [0, 1, 2, 4, 5, 6, 7]
    np.testing.assert_array_equal(found[others], wanted[others])
    said = np.array([0, 1, 1, 0]) * resolution if case == "alike" else np.zeros(4)
    assert (found[3] == said).all()
    assert made.troubles.reveal() == {
        "raises": {3: "ValueError"}, "empty": {3: "it has no rows"}, "alike": {}
    }[case]  # fmt: skip
    assert not recwarn.list


def test_a_model_that_cannot_learn_labels_is_refused_before_it_meets_private_rows():
    with pytest.raises(ValueError, match=r"can learn 4 labels .*'C' parameter.*No private row"):
        train(LogisticRegression(C=-1.0))
