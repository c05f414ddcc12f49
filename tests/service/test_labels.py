"""Asking for labels: what comes back, what is charged, and that asking again costs nothing."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tellers import Budget, GNMax, Unit
from tellers.errors import LedgerConflict
from tellers.runs import MechanismConfig
from tellers.service import ServedConfig
from tellers.service._teachers import Served


def ask(client, headers, key, **question):
    return client.post("/v1/labels", headers=headers, json={"idempotency_key": key, **question})


def test_labels_and_what_they_cost(place, alice):
    with place.open() as client:
        said = ask(client, alice, "k1", pool=[0, 1, 4]).json()
    # Winners lead by more than fifty standard deviations of the noise.
    assert said["labels"] == [0, 1, 2]
    assert said["silent"] == [False, False, False]
    assert said["by_teachers"] == [True, True, True]
    assert not said["replayed"]
    price = 3 * GNMax(sigma=150.0).price(Unit())
    assert said["charge"] == {"epsilon": price.epsilon(1e-5), "delta": 1e-5, "n_queries": 3}
    assert said["left"]["epsilon_spent"] == price.epsilon(1e-5) == place.spent()
    assert said["left"]["epsilon"] == 2.0
    assert said["own"] is None


def test_silence_is_said_and_charged(place, alice):
    confident = MechanismConfig(name="confident", sigma=150.0, threshold=15_000.0, sigma_threshold=20.0)
    quiet = replace(place, settings=replace(place.settings, mechanism=confident))
    with quiet.open() as client:
        said = ask(client, alice, "k1", pool=[0, 3]).json()
    assert said["labels"] == [0, -1]
    assert said["silent"] == [False, True]
    assert quiet.spent() > 0


def test_the_same_key_is_answered_the_same_and_charged_once(place, alice):
    # The fourth row is a tie within the noise: drawn again it would come out otherwise two times in three.
    with place.open() as client:
        first = ask(client, alice, "k1", pool=[3] * 60).json()
        spent = place.spent()
        again = ask(client, alice, "k1", pool=[3] * 60).json()
    with place.open() as client:  # and after the server was started anew
        later = ask(client, alice, "k1", pool=[3] * 60).json()
    assert len(set(first["labels"])) == 3
    assert first["labels"] == again["labels"] == later["labels"]
    assert [first["replayed"], again["replayed"], later["replayed"]] == [False, True, True]
    assert first["charge"] == again["charge"] == later["charge"]
    assert place.spent() == spent


def test_students_do_not_meet_in_a_key(place, alice):
    bob = place.bearer("bob")
    with place.open() as client:
        one = ask(client, alice, "k1", pool=[0, 1]).json()
        other = ask(client, bob, "k1", pool=[4]).json()
    assert (one["labels"], other["labels"]) == ([0, 1], [2])
    assert not other["replayed"]


def test_two_keys_of_one_student_are_one_student(place, alice):
    again = place.bearer("alice")
    with place.open() as client:
        ask(client, alice, "k1", pool=[0])
        assert ask(client, again, "k1", pool=[0]).json()["replayed"]


def test_a_key_used_for_another_question_is_a_conflict(place, alice):
    with place.open() as client:
        ask(client, alice, "k1", pool=[0, 1])
        spent = place.spent()
        refused = ask(client, alice, "k1", pool=[1, 0])
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:tellers:problem:key-reused"
    assert place.spent() == spent


def test_a_student_that_believes_something_else_asks_another_question(place, alice):
    interactive = MechanismConfig(
        name="interactive", sigma=150.0, threshold=9000.0, sigma_threshold=150.0, student_confidence=0.9
    )
    place = replace(place, settings=replace(place.settings, mechanism=interactive))
    belief = [[0.2, 0.3, 0.5]]
    with place.open() as client:
        first = ask(client, alice, "k1", pool=[0], student=belief)
        assert first.status_code == 200, first.text
        spent = place.spent()
        assert ask(client, alice, "k1", pool=[0], student=belief).json()["replayed"]
        refused = ask(client, alice, "k1", pool=[0], student=[[0.5, 0.3, 0.2]])
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:tellers:problem:key-reused"
    assert place.spent() == spent


def test_another_mechanism_of_the_service_is_another_question(place, alice):
    with place.open() as client:
        ask(client, alice, "k1", pool=[0])
    louder = replace(
        place, settings=replace(place.settings, mechanism=MechanismConfig(name="gnmax", sigma=200.0))
    )
    with louder.open() as client:
        refused = ask(client, alice, "k1", pool=[0])
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:tellers:problem:key-reused"


def test_an_unsettled_question_stays_charged_and_says_so(place, alice):
    price = GNMax(sigma=150.0).price(Unit())
    with place.ledger() as ledger:  # what a server that was killed leaves behind
        ledger.reserve("student/alice/k1", price, event={"noise": "secure", "n_queries": 1})
    with place.open() as client:
        refused = ask(client, alice, "k1", pool=[0])
        new = ask(client, alice, "k2", pool=[0])
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:tellers:problem:unsettled"
    assert "charge stands" in refused.json()["advice"]
    assert refused.headers["Retry-After"] == "2"
    assert new.status_code == 200
    assert place.spent() == (2 * price).epsilon(1e-5)


def test_an_exhausted_budget_charges_nothing(place, alice):
    with place.open() as client:
        n = client.get("/v1/budget", headers=alice).json()["data"]["queries_left"]
        assert n > 100
        first = ask(client, alice, "first", pool=[0] * 150)
        left = first.json()["left"]["queries_left"]
        while left > 150:
            left = ask(client, alice, f"down-to-{left}", pool=[0] * 150).json()["left"]["queries_left"]
        spent = place.spent()
        refused = ask(client, alice, "too-many", pool=[0] * (left + 1))
        assert refused.status_code == 402
        assert refused.headers["content-type"] == "application/problem+json"
        said = refused.json()
        assert said["account"] == "data"
        assert said["queries_left"] == left
        assert place.spent() == spent
        last = ask(client, alice, "the-rest", pool=[0] * left)
        assert last.status_code == 200
        assert last.json()["left"]["queries_left"] == 0
        assert ask(client, alice, "one-more", pool=[0]).status_code == 402
        # What was answered can still be read.
        assert ask(client, alice, "the-rest", pool=[0] * left).json()["replayed"]
    assert place.spent() <= 2.0


def test_a_students_own_budget_ends_before_the_datas(place):
    carol = place.bearer("carol", budget=Budget(epsilon=0.3, delta=1e-5))
    dave = place.bearer("dave")
    with place.open() as client:
        stands = client.get("/v1/budget", headers=carol).json()
        n = stands["own"]["queries_left"]
        assert 0 < n < stands["data"]["queries_left"]
        said = ask(client, carol, "k1", pool=[0] * n).json()
        assert said["own"]["queries_left"] == 0
        spent = place.spent()
        refused = ask(client, carol, "k2", pool=[0])
        assert refused.status_code == 402
        assert refused.json()["account"] == "student/carol"
        assert "Your own budget" in refused.json()["detail"]
        assert place.spent() == spent
        assert ask(client, dave, "k1", pool=[0]).status_code == 200
        # A second key of the same name opens no second account.
        again = place.bearer("carol")
        assert ask(client, again, "k3", pool=[0]).status_code == 402


def test_sixteen_askers_get_no_more_than_the_budget_pays_for(place):
    names = [f"student-{number}" for number in range(16)]
    headers = {name: place.bearer(name) for name in names}
    price = GNMax(sigma=150.0).price(Unit())
    with place.open() as client:
        n = client.get("/v1/budget", headers=headers[names[0]]).json()["data"]["queries_left"]
        size = n // 20  # twenty batches are paid for, and forty-eight are asked

        def work(name):
            return [ask(client, headers[name], f"k{i}", pool=[0] * size).status_code for i in range(3)]

        with ThreadPoolExecutor(16) as pool:
            codes = [code for done in pool.map(work, names) for code in done]
    assert set(codes) == {200, 402}
    assert codes.count(200) == n // size
    assert place.spent() == pytest.approx((codes.count(200) * size * price).epsilon(1e-5))


def test_one_key_asked_by_many_at_once_is_answered_once(place, alice):
    with place.open() as client:
        start = threading.Barrier(8)

        def work(_):
            start.wait()
            return ask(client, alice, "k1", pool=[3] * 40)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(work, range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({tuple(answer.json()["labels"]) for answer in answers}) == 1
    assert sum(not answer.json()["replayed"] for answer in answers) == 1


def test_rows_of_a_pool_are_known_by_their_numbers(place, alice, tmp_path):
    rows = np.array([[0.5, 1.0], [0.25, -0.0], [3.0, 4.0], [1.0, 1.0], [9.0, 9.0]])
    np.save(tmp_path / "pool.npy", rows)
    data = ServedConfig(source="votes", path="votes.npz", n_classes=3, pool="pool.npy")
    known = replace(place, settings=replace(place.settings, data=data))
    with known.open() as client:
        by_id = ask(client, alice, "k1", pool=[0, 1]).json()
        by_row = ask(client, alice, "k1", rows=[[0.5, 1], [0.25, 0.0]]).json()
        strange = ask(client, alice, "k2", rows=[[0.5, 1], [0.5, 2]])
        both = ask(client, alice, "k2", rows=[[0.5, 1]], pool=[0])
    assert by_row["replayed"]
    assert by_row["labels"] == by_id["labels"]
    assert strange.status_code == both.status_code == 422
    assert "Row 1" in strange.json()["detail"]


def test_teachers_that_fail_say_nothing_of_why(place, alice, monkeypatch):
    with place.open() as client:
        labels = client.app.state.service.labels

        class Broken:
            def vote(self, X):
                raise RuntimeError("tally 17393 of row 0")

        monkeypatch.setattr(labels, "room", replace(labels.room, ensemble=Broken()))
        refused = ask(client, alice, "k1", pool=[0])
        again = ask(client, alice, "k1", pool=[0])
    assert refused.status_code == 500
    assert refused.json()["type"] == "urn:tellers:problem:internal"
    assert "RuntimeError" in place.log.getvalue()
    assert "tally" not in place.log.getvalue() + refused.text
    # That they failed may be private too: the price stays charged.
    assert again.status_code == 409
    assert place.spent() > 0


def test_an_answer_stays_paid_for_when_an_account_is_opened_later(place, alice):
    with place.open() as client:
        first = ask(client, alice, "k1", pool=[0, 1]).json()
        with place.ledger() as ledger:
            ledger.open_account("student/alice", Budget(epsilon=0.5, delta=1e-5))
        spent = place.spent()
        again = ask(client, alice, "k1", pool=[0, 1])
        assert again.status_code == 200
        assert again.json()["labels"] == first["labels"]
        assert again.json()["replayed"]
        assert again.json()["own"]["epsilon_spent"] == 0.0
        assert place.spent() == spent
        assert ask(client, alice, "k1", pool=[1, 0]).status_code == 409
        assert ask(client, alice, "k2", pool=[0]).json()["own"]["epsilon_spent"] > 0.0


@pytest.mark.parametrize("is_quick", [True, False])
def test_those_who_ask_the_same_do_not_take_every_thread(place, alice, monkeypatch, is_quick):
    monkeypatch.setattr(Served, "is_quick", is_quick)  # those who are not have a thread for each question
    go_on, bob = threading.Event(), place.bearer("bob")
    with place.open() as client:
        room = client.app.state.service.labels.room
        vote = room.ensemble.vote

        def slow(question):
            go_on.wait(20)
            return vote(question)

        object.__setattr__(room, "ensemble", SimpleNamespace(vote=slow))
        with ThreadPoolExecutor(50) as pool:
            asked = [pool.submit(ask, client, alice, "k1", pool=[0]) for _ in range(50)]
            try:
                start = time.monotonic()
                assert client.get("/v1/budget", headers=bob).status_code == 200
                assert time.monotonic() - start < 10
            finally:
                go_on.set()
            codes = [each.result().status_code for each in asked]
    assert 200 in codes
    assert set(codes) <= {200, 409}
    assert place.spent() == pytest.approx(GNMax(sigma=150.0).price(Unit()).epsilon(1e-5))


def test_the_numbers_of_a_student_tell_nothing_of_the_others(place, alice):
    bob = place.bearer("bob")
    with place.open() as client:
        for who, key in ((bob, "b1"), (alice, "a1"), (bob, "b2"), (bob, "b3"), (alice, "a2")):
            ask(client, who, key, pool=[0])
        mine = client.get("/v1/releases", headers=alice).json()["releases"]
    assert [one["number"] for one in mine] == [0, 1]


def test_books_that_refuse_an_outcome_are_not_called_another_question(place, alice, monkeypatch):
    with place.open() as client:
        ledger = client.app.state.service.labels.ledger

        def refuse(outcomes):
            return [LedgerConflict("It cost more than its price.")] * len(outcomes)

        monkeypatch.setattr(ledger, "settle_all", refuse)
        refused = ask(client, alice, "k1", pool=[0])
    assert place.spent() > 0  # so that "nothing was charged" would be wrong
    assert refused.status_code == 500
    assert "stays charged" in refused.json()["detail"]
