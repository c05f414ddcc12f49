"""Which engines are taken, by their versions, and what a run of a program belongs to."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product
from types import SimpleNamespace

import pytest

from tellers.errors import LinkFailed, MissingExtra
from tellers.parties import DecisionProgram
from tellers.parties import _engine as engine
from tellers.parties.programs import VoteProgram

from .test_tiling import line


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


ONE = line((1, 1, 1), (1, 1, 1), 0.122, "none")
MANY = line((900, 64, 10), (12, 64, 10), 0.485, "interleave")
LOGS = {
    "its own product": ([ONE, ""], ""),
    "none of its own, whatever the other side saw": (["", ONE], "logged none"),
    "several answers": ([ONE, MANY], "got more"),
}


@pytest.mark.parametrize("what", LOGS)
def test_a_side_believes_its_own_log_alone(what):
    """A link begins with a product of its own, which it must see; then come those of the program, if any."""
    (first, program), words = LOGS[what]
    logs = iter(["left from before", first, program])
    one = object.__new__(engine.Engine)
    one._compiled, one._has_watched, one._read_log = {}, False, lambda: next(logs)
    one.agree = one._execute = one._open = lambda *_: None
    one._compile = lambda *_: SimpleNamespace(code=b"")
    one._runtime = SimpleNamespace(del_var=lambda _: None)
    votes = VoteProgram(model="linear", task="single", n_features=2, n_outputs=3, batch=1)
    if words:
        with pytest.raises(LinkFailed, match=words):
            one.prepare(votes)
    else:
        one.prepare(votes)
    assert bool(one._compiled) == (not words)


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
