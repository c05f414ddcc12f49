"""Which engines are taken: one line of versions, as what is read in its log belongs to it."""

from importlib.metadata import PackageNotFoundError

import pytest

from tellers.errors import MissingExtra
from tellers.parties import _engine as engine


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


def test_an_engine_without_a_version_is_refused(monkeypatch):
    def unknown(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(engine, "find_spec", lambda name: name)
    monkeypatch.setattr(engine, "version", unknown)
    with pytest.raises(MissingExtra, match="got none that is known"):
        engine.require_engine()
