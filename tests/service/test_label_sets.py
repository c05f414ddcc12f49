"""Many labels over HTTP: rows of labels, silence label by label, one charge, the same routes and clients."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from tellers import Budget
from tellers.errors import BudgetExhausted, ConfigError
from tellers.privacy.votes import LabelVotes
from tellers.runs import MechanismConfig
from tellers.service import Client, LedgerConfig, ServedConfig, ServiceSettings, parse_settings
from tellers.service._routes import answer_model
from tellers.service._teachers import open_served
from tellers.teachers.models import ConstantLabels, save_teacher
from tellers.teachers.store import save_votes

from .conftest import Place

# Nearly all say yes to the first label and no to the second; on the third they are divided.
SUMS = [[990, 5, 500], [10, 995, 500], [985, 990, 15]]
N_TEACHERS = 1000


@pytest.fixture
def labels(tmp_path):
    """A service of three labels, silent where the teachers do not agree."""
    votes = LabelVotes.from_sums(np.array(SUMS), n_teachers=N_TEACHERS)
    save_votes(tmp_path / "votes.npz", votes)
    return Place(
        ServiceSettings(
            data=ServedConfig(source="votes", path="votes.npz", n_labels=3),
            mechanism=MechanismConfig(
                name="confident-binary", sigma=30.0, threshold=800.0, sigma_threshold=30.0
            ),
            ledger=LedgerConfig(url="ledger.db", epsilon=2.0, delta=1e-5),
            folder=str(tmp_path),
        )
    )


def client_of(http, token, **more):
    return Client("http://127.0.0.1", token, transport=http._transport, retries=0, **more)


def test_a_journey_from_a_question_to_the_ledger_and_the_pages(labels):
    own = Budget(epsilon=1.0, delta=1e-5)
    alice, operator = labels.key("alice", budget=own), labels.key("op", "operator")
    with labels.open() as http, client_of(http, alice) as client:
        answer = client.ask(pool=[0, 1, 2], key="first")
        assert answer.labels.tolist() == [[1, 0, -1], [0, 1, -1], [1, 1, 0]]
        assert answer.by_teachers.tolist() == [[True, True, False], [True, True, False], [True] * 3]
        assert len(answer) == 3
        assert answer.names == ()
        again = client.ask(pool=[0, 1, 2], key="first")
        assert again.replayed
        assert again.labels.tolist() == answer.labels.tolist()
        assert again.left == answer.left
        # What is charged is on the books: the price of three queries, silence and all, on both accounts.
        with labels.ledger() as ledger:
            [entry] = ledger.entries()
            assert entry.event["mechanism"] == "ConfidentBinary"
            assert entry.release.labels.tolist() == answer.labels.tolist()
            assert entry.charged.epsilon(1e-5) == pytest.approx(answer.epsilon)
            assert ledger.accounts()["student/alice"].spent.epsilon(1e-5) == pytest.approx(answer.epsilon)
        [record] = client.releases()
        assert record["labels"] == answer.labels.tolist()
        assert (record["n_queries"], record["n_answered"], record["n_silent"]) == (3, 3, 0)
        head = {"Authorization": f"Bearer {operator}"}
        [seen] = http.get("/v1/releases", headers=head).json()["releases"]
        assert seen["labels"] is None
        text = http.get("/metrics", headers=head).text
        assert 'tellers_labels_total{outcome="answered"} 7.0' in text
        assert 'tellers_labels_total{outcome="silent"} 2.0' in text
        assert client.budget()["mechanism"]["n_labels"] == 3
        with pytest.raises(BudgetExhausted, match="Your own budget"):
            client.ask(pool=[0] * 60)
        page = http.get("/dashboard/sign-in")
        form = page.text.partition('name="form" value="')[2].partition('"')[0]
        http.post("/dashboard/sign-in", data={"key": operator, "form": form})
        overview = http.get("/dashboard").text
        assert "ConfidentBinary" in overview
        assert "n_labels" in overview


def test_the_description_says_what_a_row_of_labels_is(labels):
    with labels.open() as http:
        schema = http.get("/v1/openapi.json", headers=labels.bearer("alice")).json()
    told = schema["components"]["schemas"]["LabelsAnswer"]["properties"]
    assert told["labels"]["items"] == {"items": {"type": "integer"}, "type": "array"}
    assert "3 numbers, one per label" in told["labels"]["description"]
    assert "names" in told


def test_teachers_of_many_labels_are_asked_any_row(tmp_path):
    for number in range(60):
        model = ConstantLabels((1, 0))
        (tmp_path / "teachers").mkdir(exist_ok=True)
        save_teacher(tmp_path / "teachers", number, model=model, made_of={"n_labels": 2})
    place = Place(
        ServiceSettings(
            data=ServedConfig(source="teachers", path="teachers", n_labels=2, n_features=3),
            mechanism=MechanismConfig(name="binary", sigma=4.0),
            ledger=LedgerConfig(url="ledger.db", epsilon=9.0, delta=1e-5),
            folder=str(tmp_path),
        )
    )
    with place.open() as http, client_of(http, place.key("alice")) as client:
        assert client.ask(rows=[[0.0, 1.0, 2.0], [0.5, 1.0, 2.0]]).labels.tolist() == [[1, 0], [1, 0]]


def test_classes_are_answered_as_ever(place):
    assert answer_model(open_served(place.settings)).__name__ == "LabelsAnswer"
    with place.open() as http:
        said = http.post(
            "/v1/labels", json={"idempotency_key": "q", "pool": [0]}, headers=place.bearer("alice")
        ).json()
    assert "names" not in said
    assert isinstance(said["labels"][0], int)


BAD = {
    "classes are declared": ("n_classes = 3\n", "data.n_labels: Expected at least 1"),
    "both are declared": ("n_classes = 3\nn_labels = 3\n", "data.n_classes: Expected 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_declared_fits_the_mechanism(name):
    declared, words = BAD[name]
    text = f"""[data]
source = "votes"
path = "votes.npz"
{declared}
[mechanism]
name = "binary"
sigma = 9.0
[ledger]
url = "ledger.db"
epsilon = 1.0
delta = 1e-5
"""
    with pytest.raises(ConfigError) as raised:
        parse_settings(text)
    assert words in str(raised.value)


def test_votes_on_another_number_of_labels_are_refused(labels):
    data = ServedConfig(source="votes", path="votes.npz", n_labels=4)
    with pytest.raises(ConfigError, match="votes on 4 labels"):
        open_served(replace(labels.settings, data=data))
