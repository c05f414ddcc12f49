"""Fits again on the same rows: each spends, and a fit without a ledger says so when it is not the first."""

import gc
import pickle
import re
import time
import warnings
from zlib import crc32

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_multilabel_classification
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB

from tellers import (
    Accountant,
    Budget,
    MemoryLedger,
    PateClassifier,
    PateMultilabelClassifier,
    SqliteLedger,
    Unit,
)
from tellers.mechanisms import GNMax
from tellers.runs import RepeatedFitWarning

# Settings are given by the names of earlier versions here: all of them are still accepted.
pytestmark = pytest.mark.filterwarnings("ignore:.*is now .*=:DeprecationWarning")
BUDGET = Budget(epsilon=20.0, delta=1e-5)
PRICE = 8 * GNMax(sigma=6.0).price(Unit())


@pytest.fixture
def rows(request):
    """Rows of one's own: no other test, and no other run of this one, has fitted them."""
    X, y = make_blobs(360, centers=3, cluster_std=1.0, random_state=crc32(request.node.name.encode()))
    return X[:300], y[:300], X[300:]


def pate(**given):
    options = {"mechanism": GNMax(sigma=6.0), "n_queries": 8, "n_teachers": 10, "budget": BUDGET}
    quick = {"teacher": GaussianNB(), "student": GaussianNB()}
    return PateClassifier(n_classes=3, **{**quick, **options, **given})


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedFitWarning)
        yield


def test_a_first_fit_says_nothing(rows, quiet):
    X, y, public = rows
    pate().fit(X, y, public=public)


def test_a_second_fit_of_a_clone_says_what_the_first_cost(rows):
    X, y, public = rows
    first = pate().fit(X, y, public=public)
    said = rf"in an earlier fit.*epsilon {re.escape(f'{first.epsilon_:.4g}')} .*ledger=.*epsilon_ covers all"
    with pytest.warns(RepeatedFitWarning, match=said) as seen:
        second = clone(first).fit(X, y, public=public)
    assert seen[0].filename == __file__
    assert second.epsilon_ == first.epsilon_  # of one fit
    with pytest.warns(RepeatedFitWarning, match=rf"2 earlier fits.*{2 * first.epsilon_:.4g}"):
        pate(n_teachers=12).fit(X[:200], y[:200], public=public)


def test_another_target_on_the_same_people_is_noticed(rows):
    X, y, public = rows
    pate().fit(X, y, public=public)
    with pytest.warns(RepeatedFitWarning):
        pate().fit(X, (y + 1) % 3, public=public)


def test_other_rows_are_other_rows(rows, quiet):
    X, y, public = rows
    pate().fit(X[:150], y[:150], public=public)
    pate().fit(X[150:], y[150:], public=public)
    pate().fit(X + 1, y, public=public)


def test_a_fit_that_never_asked_is_not_counted(rows, quiet):
    X, y, public = rows
    with pytest.raises(ValueError, match="teachers"):
        pate(n_teachers=1000).fit(X, y, public=public)
    pate().fit(X, y, public=public)


def test_a_search_says_it_at_once_and_so_does_the_refit(rows):
    X, y, public = rows
    search = GridSearchCV(pate(), {"n_teachers": [10, 12]}, cv=3)
    with pytest.warns(RepeatedFitWarning) as seen:
        search.fit(X, y, public=public)
    told = [str(one.message) for one in seen if one.category is RepeatedFitWarning]
    assert "that of best_estimator_ too" in told[0]
    assert "6 earlier fits" in told[-1]
    assert search.best_estimator_.epsilon_ == PRICE.epsilon(1e-5)  # of one fit, as is said


@pytest.mark.parametrize("check", [cross_val_score, cross_validate])
def test_cross_validation_says_it(rows, check):
    X, y, public = rows
    with pytest.warns(RepeatedFitWarning, match="many fits on the same rows"):
        check(pate(), X, y, cv=2, params={"public": public})


@pytest.mark.slow
def test_a_search_in_other_processes_is_noticed_by_the_refit(rows):
    X, y, public = rows
    search = GridSearchCV(pate(), {"n_teachers": [10]}, cv=2, n_jobs=2)
    # Forked, which takes a fraction of the time of two that begin anew.
    with (
        parallel_config(backend="multiprocessing"),
        pytest.warns(RepeatedFitWarning, match="best_estimator_"),
    ):
        search.fit(X, y, public=public)


@pytest.mark.parametrize("kind", ["path", "file", "memory"])
def test_fits_on_one_ledger_are_covered_by_its_budget(rows, tmp_path, quiet, kind):
    X, y, public = rows
    path = str(tmp_path / "fits.db")
    accountant = Accountant(BUDGET)
    ledger = {
        "path": lambda: path, "file": lambda: SqliteLedger(path, accountant),
        "memory": lambda: MemoryLedger(accountant),
    }[kind]()  # fmt: skip
    search = GridSearchCV(pate(ledger=ledger), {"n_teachers": [10, 12]}, cv=2)
    search.fit(X, y, public=public)
    best = search.best_estimator_
    # Five fits of eight queries each: the guarantee is the budget, and what is spent is that of all of them.
    assert best.epsilon_ == BUDGET.epsilon
    np.testing.assert_allclose(best.spent_.values, 5 * PRICE.values)
    assert best.epsilon_ >= best.spent_.epsilon(1e-5)


def test_another_ledger_for_the_same_rows_is_noticed(rows, tmp_path):
    X, y, public = rows
    pate(ledger=str(tmp_path / "one.db")).fit(X, y, public=public)
    pate(ledger=str(tmp_path / "one.db")).fit(X, y, public=public)
    with pytest.warns(RepeatedFitWarning, match=r"2 earlier fits.*stated epsilon 20 \(delta 1e-05\)"):
        pate(ledger=str(tmp_path / "two.db")).fit(X, y, public=public)


def test_many_labels_say_it_too(request):
    X, Y = make_multilabel_classification(300, n_classes=3, random_state=crc32(request.node.name.encode()))
    quick = {"teacher": GaussianNB(), "student": GaussianNB()}
    model = PateMultilabelClassifier(n_labels=3, n_teachers=10, n_queries=5, budget=BUDGET, **quick)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedFitWarning)
        model.fit(X[:250], Y[:250], public=X[250:])
    with pytest.warns(RepeatedFitWarning, match="an earlier fit"):
        clone(model).fit(X[:200], Y[:200], public=X[250:])


def test_nothing_of_the_rows_is_on_the_fitted_object(rows):
    X, y, public = rows
    fitted = pate().fit(X, y, public=public)
    gc.collect()
    content = pickle.dumps(fitted)
    assert not any(row.tobytes() in content for row in X[:50])
    assert not any("hash" in name or "repeat" in name for name in vars(fitted))


def test_noticing_is_cheap():
    from tellers.runs.repeats import notice, remembered

    X = np.random.default_rng(7).normal(size=(100_000, 50))
    began = time.process_time()
    with remembered(notice(X, None), None, BUDGET):
        pass
    with pytest.warns(RepeatedFitWarning), remembered(notice(X[20_000:], None), None, BUDGET):
        pass
    assert time.process_time() - began < 5


def test_a_ledger_that_is_gone_is_no_other_ledger(rows):
    X, y, public = rows
    for _ in range(2):  # a new ledger for each, which nobody holds afterwards
        pate(ledger=MemoryLedger(Accountant(BUDGET)), budget=None).fit(X, y, public=public).ledger = None
        gc.collect()
    with pytest.warns(RepeatedFitWarning, match=r"2 earlier fits.*stated epsilon 40 "):
        pate().fit(X, y, public=public)
