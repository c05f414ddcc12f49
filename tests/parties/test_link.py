"""Two workers compute together over TLS: exact, one-sided, and mortal without taking their party along."""

import os
import signal
import socket
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from tellers.errors import LinkFailed, LinkUnreached
from tellers.parties import DecisionProgram, encode_model, program_for
from tellers.parties._engine import SETTINGS
from tellers.parties._link import EngineLink
from tellers.parties._tunnel import dial
from tellers.parties.programs import VoteProgram

from .conftest import QID, make_pair
from .definitions import labels_of, votes_of
from .near_ties import near_ties

pytestmark = pytest.mark.campaign

PROGRAMS = {
    "linear": VoteProgram(model="linear", task="single", n_features=20, n_outputs=10, batch=40),
    "network": VoteProgram(
        model="network", task="single", n_features=20, n_outputs=5, batch=30, hidden=(16,)
    ),
    "labels": VoteProgram(model="linear", task="multi", n_features=20, n_outputs=6, batch=40, max_labels=2),
    "tree": VoteProgram(
        model="forest", task="single", n_features=20, n_outputs=4, batch=40, n_trees=1, depth=4
    ),
    "forest": VoteProgram(
        model="forest", task="multi", n_features=20, n_outputs=3, batch=20, n_trees=3, depth=3
    ),
    "narrow": VoteProgram(model="linear", task="multi", n_features=1, n_outputs=1, batch=1),
    "wide": VoteProgram(model="linear", task="multi", n_features=64, n_outputs=40, batch=300),
}


def random_model(program, generator):
    model = {slot.name: generator.integers(-1000, 1000, slot.shape) for slot in program.model_slots}
    if program.model == "forest":
        model["features"] = np.zeros_like(model["features"])
        chosen = generator.integers(0, program.n_features, program.n_decisions)
        model["features"][chosen, np.arange(program.n_decisions)] = 1
        if program.task == "single":
            classes = generator.integers(0, program.n_outputs, program.n_leaves)
            model["leaves"] = np.eye(program.n_outputs, dtype=np.int64)[classes]
            model["offsets"] = 0 * model["offsets"]
    return model


def random_mask(shape):
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.int64).reshape(shape)


@pytest.mark.parametrize("name", PROGRAMS)
def test_votes_less_masks_are_those_of_the_clear(pair, name):
    program, generator = PROGRAMS[name], np.random.default_rng(5)
    pair.prepare(program)
    for _ in range(2):  # another model on the same program
        model = random_model(program, generator)
        pair.answerer.keep_model(model)
        x = generator.integers(-1000, 1000, (program.batch, program.n_features))
        mask = random_mask(program.output_shape)
        shares = pair.run(program, {"x": x}, {"mask": mask})
        with np.errstate(over="ignore"):
            assert np.array_equal(shares + mask, votes_of(program, model, x))
    (sent, _), (_, received) = pair.asker.traffic, pair.answerer.traffic
    assert sum(pair.asker.traffic) > 1000
    assert sent == pytest.approx(received, rel=0.05, abs=5000)


@pytest.mark.parametrize("rule", ["argmax", "confident", "labels", "confident_labels"])
def test_decisions_are_those_of_the_clear(pair, rule):
    generator = np.random.default_rng(6)
    program = DecisionProgram(
        rule=rule, n_outputs=5, batch=60, n_answerers=9,
        limits=(5,) * 5 if "labels" in rule else (), bar=(9,) * 5 if "confident" in rule else (), reach=4,
    )  # fmt: skip
    counts, masks = generator.integers(0, 10, (60, 5)), random_mask((60, 5))
    given = program.guardian_inputs(
        masks,
        answer_noise=generator.integers(-3, 4, counts.shape),
        range_noise=generator.integers(-5, 6, counts.shape),
        ranks=None if "labels" in rule else np.argsort(generator.random(counts.shape), axis=1),
        check_noise=generator.integers(-3, 4, (60, 1) if rule == "confident" else counts.shape)
        if "confident" in rule else None,
    )  # fmt: skip
    with np.errstate(over="ignore"):
        shares = counts - masks
    pair.prepare(program)
    codes = program.fresh_codes()
    found, void = program.decode(pair.run(program, program.asker_inputs(shares, codes), given), codes)
    assert np.array_equal(found, labels_of(program, shares, given))
    assert 0 < void.sum() < (found == -1).sum() + ("confident" not in rule) < found.size


def test_a_protocol_without_a_dealer_is_the_only_one():
    assert SETTINGS["protocol"] == "CHEETAH"
    assert SETTINGS["field"] == "FM64"
    assert SETTINGS["cheetah_2pc_config"] == {"ot_kind": "YACL_Softspoken"}


def fails(fresh_pair, ask, answer):
    """Run both ends and return what each one raised."""
    raised = []

    def guard(call):
        def run(link):
            try:
                call(link)
            except LinkFailed as error:
                raised.append(str(error))

        return run

    fresh_pair.both(guard(ask), guard(answer))
    return raised


def test_two_programs_do_not_start_and_one_takes_its_own_inputs_alone(fresh_pair):
    fresh_pair.open()
    one, other = PROGRAMS["linear"], VoteProgram(
        model="linear", task="single", n_features=20, n_outputs=10, batch=40, input_bits=15
    )  # fmt: skip
    raised = fails(fresh_pair, lambda link: link.prepare(one), lambda link: link.prepare(other))
    assert any("same program" in words for words in raised)
    # The failure ended the link; the same ends open it again. Wrong inputs never reach the engine.
    fresh_pair.open()
    fresh_pair.prepare(one)
    with pytest.raises(LinkFailed, match="public shapes"):
        fresh_pair.asker.run(one, {"x": np.zeros((40, 21), dtype=np.int64)}, query=QID)


def test_a_run_is_taken_for_no_other(certificates, fresh_pair):
    """What it belongs to is compared before anything is put in: the query differs, and then the terms."""
    program, x = PROGRAMS["narrow"], {"x": np.ones((1, 1), dtype=np.int64)}
    mask, model = {"mask": random_mask((1, 1))}, random_model(PROGRAMS["narrow"], np.random.default_rng(1))
    for what in ("query", "terms"):
        fresh_pair.answerer._terms = "1" * 64 if what == "terms" else ""
        fresh_pair.open()
        fresh_pair.prepare(program)
        fresh_pair.answerer.keep_model(model)
        other = "1" * 32 if what == "query" else QID
        raised = fails(
            fresh_pair,
            lambda link: link.run(program, x, query=QID),
            lambda link, other=other: link.run(program, mask, query=other),
        )
        assert len(raised) == 2, what
        assert all("same query, parties, terms and program" in words for words in raised)


def test_connections_are_tried_in_turn_until_one_proves_the_peer(certificates, engine):
    """The first is closed, the second speaks no TLS, and the third is good: the link opens."""
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        closing(make_pair(certificates, timeout=60.0)) as two,
    ):
        place, given = door.getsockname(), []

        def accept(left):
            given.append(left)
            if len(given) < 3:
                with socket.create_connection(place) as bad:
                    bad.sendall(b"no TLS" * (len(given) - 1))
                return door.accept()[0]
            return real(left)

        real, two.answerer._connect = two.answerer._connect, accept
        two.open()
        assert two.asker.is_open
        assert len(given) == 3
        assert given == sorted(given, reverse=True)  # less time each time


def test_a_peer_that_never_proves_itself_is_told_from_one_that_fails(certificates, engine):
    with closing(make_pair(certificates, timeout=30.0)) as two:
        two.answerer._connect = lambda left: socket.socketpair()[0]
        with pytest.raises(LinkUnreached):
            two.answerer.open()
        two.asker._connect = lambda left: dial(("127.0.0.1", 1))
        with pytest.raises(LinkUnreached, match=r"127\.0\.0\.1:1"):
            two.asker.open()
        # What comes later is another failure.
        two.answerer._connect = None
        with pytest.raises(LinkFailed) as failed:
            two.answerer.prepare(PROGRAMS["narrow"])
        assert not isinstance(failed.value, LinkUnreached)


def test_a_dead_or_a_silent_peer_ends_the_worker_and_not_its_party(fresh_pair):
    fresh_pair.open()
    program = PROGRAMS["linear"]
    fresh_pair.prepare(program)
    start = time.monotonic()
    os.kill(fresh_pair.answerer._process.pid, signal.SIGKILL)
    with pytest.raises(LinkFailed, match=r"peer closed|gave up"):
        fresh_pair.asker.run(program, {"x": np.zeros((40, 20), dtype=np.int64)}, query=QID)
    assert time.monotonic() - start < 25
    assert not fresh_pair.asker.is_open
    fresh_pair.open()
    fresh_pair.prepare(program)
    model = random_model(program, np.random.default_rng(1))
    fresh_pair.answerer.keep_model(model)
    x, mask = np.ones((40, 20), dtype=np.int64), random_mask((40, 10))
    shares = fresh_pair.run(program, {"x": x}, {"mask": mask})
    with np.errstate(over="ignore"):
        assert np.array_equal(shares + mask, votes_of(program, model, x))
    # And one that says nothing is given up on in time.
    os.kill(fresh_pair.answerer._process.pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(LinkFailed, match="within 3 s"):
        fresh_pair.asker.run(program, {"x": np.zeros((40, 20), dtype=np.int64)}, query=QID, timeout=3)
    assert time.monotonic() - start < 25
    os.kill(fresh_pair.answerer._process.pid, signal.SIGCONT)
    assert not fresh_pair.asker.is_open


def test_an_unprepared_program_and_a_closed_link_are_refused(fresh_pair):
    with pytest.raises(LinkFailed, match="closed one"):
        fresh_pair.asker.prepare(PROGRAMS["linear"])
    fresh_pair.open()
    with pytest.raises(LinkFailed, match="prepared"):
        fresh_pair.asker.run(PROGRAMS["tree"], {"x": np.zeros((40, 20), dtype=np.int64)}, query=QID)


def test_a_worker_whose_party_is_gone_ends(fresh_pair):
    fresh_pair.open()
    process = fresh_pair.asker._process
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    fresh_pair.asker.kill()


def test_the_worker_has_no_pickle_on_its_pipes():
    import tellers.parties._link as link
    import tellers.parties._link as pipes
    import tellers.parties._worker as worker

    for module in (link, pipes, worker):
        assert "pickle" not in vars(module)
        assert "import pickle" not in Path(module.__file__).read_text(encoding="utf-8")


def test_a_link_without_the_engine_says_where_it_exists(monkeypatch):
    from tellers.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "spu", None)
    link = EngineLink(0, lambda _: None, None)
    with pytest.raises(MissingExtra, match=r"Python 3\.11 on Linux.*tellers\[capc\]"):
        link.open()


ESTIMATORS = {
    "linear": LogisticRegression(max_iter=300),
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "network": MLPClassifier((16,), max_iter=60, random_state=0),
    "labels": OneVsRestClassifier(LogisticRegression(max_iter=300)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_vote_as_they_predict(pair, name):
    X, y = load_digits(return_X_y=True)
    X = np.clip(X / 16 + np.random.default_rng(3).normal(0, 0.03, X.shape), -1, 1)
    task, n_outputs = ("multi", 3) if name == "labels" else ("single", 10)
    if task == "multi":
        y = np.stack([y % 2, y > 4, y % 3 == 0], axis=1).astype(int)
    estimator = ESTIMATORS[name].fit(X[:600], y[:600])
    asked = X[600:1000]
    program = program_for(estimator, 64, task=task, n_outputs=n_outputs, batch=400, input_bound=1)
    model = encode_model(program, estimator)
    pair.prepare(program)
    pair.answerer.keep_model(model)
    mask = random_mask(program.output_shape)
    shares = pair.run(program, {"x": program.encode(asked)}, {"mask": mask})
    with np.errstate(over="ignore"):
        votes = shares + mask
    assert np.array_equal(votes, votes_of(program, model, program.encode(asked)))
    said = votes if task == "multi" else votes.argmax(axis=1)
    different = (said != estimator.predict(asked)).reshape(400, -1).any(axis=1)
    near = near_ties(program, model, asked)
    print(f"{name}: {different.sum()} of 400 differ from predict, {near.sum()} near ties")
    assert not (different & ~near).any()
    assert near.mean() < 0.2


@pytest.mark.parametrize("name", ["labels", "wide"])
def test_an_answerer_sends_the_transfers_of_a_vote(pair, name):
    # Who receives many transfers says more than who sends them.
    program, generator = PROGRAMS[name], np.random.default_rng(5)
    model = random_model(program, generator)
    x = generator.integers(-100, 100, (program.batch, program.n_features))
    mask = np.zeros(program.output_shape, dtype=np.int64)
    pair.prepare(program)
    pair.run(program, {"x": x}, model | {"mask": mask})
    sent, received = pair.asker.traffic
    assert sent > 1.5 * received
