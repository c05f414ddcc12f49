"""Neighbouring tables to the votes: one unit changes the ballots of one teacher, whoever trains them.

Trees, networks and clusters have ways of their own to let one teacher's rows be felt by another: a shared
scale, a batch, a number of steps, a seed.
"""

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from tellers_tables import CHOICES, LEVELS, OF_SITES, PERSONAL, SITES, a_table, columns, tried

from tellers import Budget, GNMax
from tellers.mechanisms import Binary
from tellers.privacy.votes import SetOf
from tellers.runs import PateClassifier, PateMultilabelClassifier, RepeatedFitWarning
from tellers.runs.personal import arrange, read_consent
from tellers.teachers import partition, train_ensemble
from tellers.testing import TableVotes, check_neighbours

N_TEACHERS = 5
# So many that a teacher who learned from another row answers one of them in another way.
QUERIES = np.linspace(-1.5, 1.5, 400)[:, None]
CHEAP = GaussianNB()
CLASSES_AND_LABELS = pytest.mark.parametrize("many", [False, True], ids=["classes", "labels"])

# The column that says whose a row is, and the relation.
RELATIONS = {
    "record": (None, {}),
    "stratified": (None, {"keeps": ["y"]}),
    "persons": ("who", {"unit": "who"}),
    "ids": ("id", {"unit": "id"}),
    "sites": ("site", {"unit": "site", "change": "replace", "kinds": OF_SITES}),
}
VARIANTS = ("weighting", "vanishing", "upsampling")
BUDGETS = {"unit": "who", "change": "replace", "kinds": PERSONAL, "keeps": ["budget"]}


def small(*names):
    return columns(a_table(60, 30), *filter(None, names), "x", "y")


def deal(relation, table):
    """Return the parts of a table by a relation."""
    owners = {
        "record": {},
        "stratified": {"labels": table["y"]},
        "persons": {"persons": table.get("who")},
        "ids": {"ids": table.get("id")},
        "sites": {"sites": table.get("site"), "site_names": list(SITES)},
    }[relation]
    return partition(len(table["x"]), None if relation == "sites" else N_TEACHERS, seed=7, **owners)


def targets(table, many):
    """Return classes, or two labels of which no row has the second."""
    return np.stack([table["y"] > 0, table["y"] > 1], axis=1).astype(np.int64) if many else table["y"]


def here(parts, X, y, *, model=CHEAP):
    """Train on this machine, and return the ballots."""
    if y.ndim == 2:
        found = train_ensemble(model, X, y, parts, space=SetOf(2), seed=7, n_jobs=1).vote(QUERIES)
    else:
        found = train_ensemble(model, X, y, parts, n_classes=3, seed=7, n_jobs=1).vote(QUERIES)
    assert found.ballots is not None
    return np.asarray(found.ballots)


def check(relation, train, *, many, n_tables):
    """Check the way from a table, dealt by a relation, to the ballots of those who are trained on it."""
    column, given = RELATIONS[relation]

    def way(table):
        parts = deal(relation, table)
        return train(parts, table["x"][:, None].astype(np.float32), targets(table, many))

    return check_neighbours(way, small(column), target="y", choices=CHOICES, n_tables=n_tables, **given)


@tried(11, 220)
@CLASSES_AND_LABELS
@pytest.mark.parametrize("relation", RELATIONS)
def test_teachers_on_this_machine(relation, many, n_tables):
    assert check(relation, here, many=many, n_tables=n_tables).n_tried > 0.8 * n_tables


@tried(11, 440)
@CLASSES_AND_LABELS
@pytest.mark.parametrize("relation", ["record", "persons", "sites"])
def test_networks(relation, many, n_tables):
    torch = pytest.importorskip("torch")
    from tellers.nn.classifier import TorchClassifier

    model = TorchClassifier(
        partial(torch.nn.Linear, 1, 2 if many else 3), epochs=3, batch_size=4, learning_rate=0.3,
        n_classes=None if many else 3, device="cpu",
    )  # fmt: skip
    train = partial(here, model=model)
    assert check(relation, train, many=many, n_tables=n_tables).n_tried > 0.8 * n_tables


@pytest.mark.campaign
@CLASSES_AND_LABELS
@pytest.mark.parametrize("relation", ["record", "persons", "sites"])
def test_teachers_on_a_cluster(tmp_path, link, relation, many):
    from tellers.teachers.dask import train_dask_ensemble, write_shards

    def train(parts, X, y):
        shards = write_shards(tmp_path / "shards", X, y, parts)
        how = {"seed": 7, "link": link, "store": tmp_path / "store", "on_mismatch": "retrain"}
        if many:
            return train_dask_ensemble(CHEAP, shards, space=SetOf(2), **how).vote(QUERIES).ballots
        return train_dask_ensemble(CHEAP, shards, n_classes=3, **how).vote(QUERIES).ballots

    assert check(relation, train, many=many, n_tables=11).n_tried > 7


@pytest.fixture(scope="module")
def link():
    """A cluster of one worker."""
    pytest.importorskip("distributed")
    from tellers.teachers.dask import Cluster, connect

    with connect(Cluster(n_workers=1)) as link:
        yield link


@tried(8, 160)
@pytest.mark.parametrize("variant", VARIANTS)
def test_teachers_of_people_with_budgets_of_their_own(variant, n_tables):
    def way(table):
        consent = read_consent(table["budget"], delta=1e-5, levels=LEVELS, persons=table["who"])
        seating = arrange(variant, consent, GNMax(4.0), n_teachers=N_TEACHERS, seed=7)
        return here(seating.partition, seating.rows(table["x"])[:, None], seating.rows(table["y"]))

    found = check_neighbours(
        way, small("who", "budget"), target="y", choices=CHOICES, n_tables=n_tables, **BUDGETS,
        n_ballots=lambda rows: 2 if variant == "upsampling" and rows["budget"][0] == "high" else 1,
    )  # fmt: skip
    assert found.n_tried > 0.8 * n_tables


HEARD = []


@dataclass(frozen=True)
class Listening:
    """A mechanism that notes the ballots it is handed, and answers as GNMax or Binary do."""

    sigma: float
    n_labels: int = 0

    def price(self, unit):
        return self._inner.price(unit)

    def release(self, votes, noise):
        HEARD.append(np.asarray(votes.ballots))
        return self._inner.release(votes, noise)

    @property
    def multilabel(self):
        return self.n_labels > 0

    @property
    def _inner(self):
        return Binary(self.sigma, n_labels=self.n_labels) if self.multilabel else GNMax(self.sigma)


PUBLIC = (
    "epsilon_", "delta_", "unit_", "notes_", "n_teachers_", "n_private_", "n_public_", "n_queries_",
    "stopped_by_", "why_", "n_features_in_",
)  # fmt: skip


# What a group paid depends on who was drawn to vote, and that on a key which is another in every fit.
PAID = {"n_queries", "spent", "budget_left", "stated"}


def fitted(pate, X, y, **given):
    """Fit, and return the ballots that the mechanism was handed, and what the classifier then says."""
    HEARD.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            pate.fit(X, y, public=QUERIES, **given)
        except ValueError as error:
            if "one class" not in str(error):  # what the student says of noisy labels is public
                raise
    said = {name: repr(getattr(pate, name, None)) for name in PUBLIC}
    groups = [{name: row[name] for name in row.keys() - PAID} for row in getattr(pate, "groups_", ())]
    # That rows were fitted before is told of the process, not of the table.
    words = [
        str(one.message) for one in told
        if issubclass(one.category, UserWarning) and not issubclass(one.category, RepeatedFitWarning)
    ]  # fmt: skip
    return TableVotes(np.concatenate(HEARD, axis=1), {**said, "groups": groups, "warnings": words})


SETTINGS = {
    "teacher": CHEAP, "student": CHEAP, "n_teachers": N_TEACHERS, "budget": Budget(1000.0, 1e-5),
    "random_state": 7, "n_jobs": 1, "n_queries": 200, "batch": 200,
}  # fmt: skip
ARGUMENTS = {"persons": "persons", "ids": "ids", "sites": "sites"}


@tried(11, 110)
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_classifier(relation, n_tables):
    column, given = RELATIONS[relation]
    settings = {"mechanism": Listening(20.0), "n_classes": 3, **SETTINGS}
    if relation == "sites":
        settings |= {"n_teachers": None, "site_names": list(SITES)}
    settings |= {"stratified": True} if relation == "stratified" else {}

    def way(table):
        owners = {ARGUMENTS[relation]: table[column]} if column else {}
        return fitted(PateClassifier(**settings), table["x"][:, None], table["y"], **owners)

    found = check_neighbours(way, small(column), target="y", choices=CHOICES, n_tables=n_tables, **given)
    assert found.n_tried > 0.8 * n_tables


@tried(11, 110)
@pytest.mark.parametrize("relation", ["persons", "ids"])
def test_the_classifier_of_many_labels(relation, n_tables):
    column, given = RELATIONS[relation]

    def way(table):
        pate = PateMultilabelClassifier(mechanism=Listening(20.0, n_labels=2), n_labels=2, **SETTINGS)
        return fitted(pate, table["x"][:, None], targets(table, True), **{ARGUMENTS[relation]: table[column]})

    found = check_neighbours(way, small(column), target="y", choices=CHOICES, n_tables=n_tables, **given)
    assert found.n_tried > 0.8 * n_tables


@tried(8, 80)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_classifier_of_people_with_budgets_of_their_own(variant, n_tables):
    settings = {"mechanism": Listening(1000.0), "n_classes": 3, "variant": variant, "levels": LEVELS}

    def way(table):
        pate = PateClassifier(**settings, **SETTINGS)
        return fitted(pate, table["x"][:, None], table["y"], persons=table["who"], budgets=table["budget"])

    found = check_neighbours(
        way, small("who", "budget"), target="y", choices=CHOICES, n_tables=n_tables, **BUDGETS,
        n_ballots=lambda rows: 2 if variant == "upsampling" and rows["budget"][0] == "high" else 1,
    )  # fmt: skip
    assert found.n_tried > 0.8 * n_tables
