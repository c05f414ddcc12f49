"""Which engines are taken, which side has which rank, how every vote ends, and what a run belongs to."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product

import numpy as np
import pytest

from tellers.errors import MissingExtra
from tellers.parties import DecisionProgram
from tellers.parties import _engine as engine
from tellers.parties._circuits import build_circuit
from tellers.parties.programs import ASKER, HELPER, VoteProgram


@pytest.mark.parametrize("found", ["0.9.4", "0.9.5", "0.9.6b1"])
def test_the_line_that_was_measured_is_taken(monkeypatch, found):
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(engine, "version", lambda name: found)
    engine.require_engine()


@pytest.mark.parametrize("found", ["0.8.0", "0.10.0", "0.90.1", "1.0.9", "10.9.1"])
def test_other_lines_are_refused_in_words(monkeypatch, found):
    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(engine, "version", lambda name: found)
    with pytest.raises(MissingExtra, match=rf"spu 0\.9, got {found}.*pip install 'spu==0\.9\.\*'"):
        engine.require_engine()


def test_a_run_belongs_to_one_query_two_parties_their_terms_and_a_program():
    one = DecisionProgram(rule="argmax", n_outputs=3, batch=1, n_answerers=3)
    given = {
        "query": ["0" * 32, "1" * 32],
        "parties": [
            ("ann", "north"),
            ("bea", "north"),
            ("ann", "guard"),
            ("north", "ann"),
            ("ann,n", "orth"),
        ],
        "terms": ["0" * 64, "1" * 64],
        "program": [one, replace(one, batch=2)],
    }
    found = {engine.run_digest(*every) for every in product(*given.values())}
    assert len(found) == 2 * 5 * 2 * 2


def test_an_engine_without_a_version_is_refused(monkeypatch):
    def unknown(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(engine, "version", unknown)
    with pytest.raises(MissingExtra, match="got none that is known"):
        engine.require_engine()


def test_an_asker_never_sends_where_votes_become_numbers():
    assert engine.rank_of(ASKER, votes=True) == engine.rank_of(HELPER, votes=False) == 1
    assert engine.rank_of(HELPER, votes=True) == engine.rank_of(ASKER, votes=False) == 0


VOTES = {
    "classes": VoteProgram(model="linear", task="single", n_features=4, n_outputs=3, batch=2),
    "abstaining": VoteProgram(
        model="linear", task="single", n_features=4, n_outputs=3, batch=2, abstaining=True
    ),
    "labels": VoteProgram(model="linear", task="multi", n_features=4, n_outputs=3, batch=2),
    "few labels": VoteProgram(model="linear", task="multi", n_features=4, n_outputs=5, batch=2, max_labels=2),
    "network": VoteProgram(model="network", task="single", n_features=4, n_outputs=3, batch=2, hidden=(4,)),
    "tree": VoteProgram(
        model="forest", task="single", n_features=4, n_outputs=3, batch=2, n_trees=1, depth=2
    ),
    "forest": VoteProgram(
        model="forest", task="multi", n_features=4, n_outputs=3, batch=2, n_trees=2, depth=2
    ),
}


@pytest.mark.parametrize("program", VOTES.values(), ids=VOTES)
def test_a_vote_ends_in_bits_that_become_numbers_less_the_mask(program):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    numbers = [np.zeros(slot.shape, dtype=np.int64) for slot in program.slots]
    traced = jax.make_jaxpr(build_circuit(program))(*numbers).jaxpr
    made_by = {id(out): step for step in traced.eqns for out in step.outvars}
    last = made_by[id(traced.outvars[0])]
    vote, mask = last.invars
    assert last.primitive.name == "sub"
    assert mask is traced.invars[1]
    assert made_by[id(vote)].primitive.name == "convert_element_type"
    assert made_by[id(vote)].invars[0].aval.dtype == bool
