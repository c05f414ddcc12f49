"""`tellers ask` when something fails on the way: what was paid for is handed over."""

import json

import numpy as np
import pytest

from tellers.cli import main
from tellers.errors import BudgetExhausted
from tellers.service import Client
from tellers.service.client import LabelAnswer, Left, ServiceError

LEFT = Left(epsilon=2.0, delta=1e-5, epsilon_spent=0.5, epsilon_left=1.5, queries_left=7)


@pytest.fixture
def failing(monkeypatch):
    """Let the second batch fail, and return what it fails with and how often was asked."""
    asked, failure = [], []

    def ask(_self, rows=None, *, pool=None, key=None, student=None):
        asked.append(list(pool))
        if len(asked) > 1:
            raise failure[0]
        labels = np.arange(len(pool))
        return LabelAnswer("k", labels, labels >= 0, epsilon=0.1, delta=1e-5, left=LEFT)

    monkeypatch.setattr(Client, "ask", ask)
    monkeypatch.setenv("TELLERS_KEY", "tlr_abcdefghijkl_" + "s" * 43)
    return asked, failure


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main(["ask", "--url", "http://127.0.0.1:1", "--pool", "10-13", "--batch", "2", *words])
    return ended.value.code


@pytest.mark.parametrize(
    "error",
    [
        ValueError("pool.0: no such id"), BudgetExhausted("no more"), ServiceError("gone"),
        KeyboardInterrupt(), RuntimeError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_came_before_a_failure_is_written(failing, tmp_path, capsys, error):
    failing[1].append(error)
    assert run("--out", str(tmp_path / "labels.npz")) != 0
    kept = np.load(tmp_path / "labels.npz")
    assert kept["rows"].tolist() == [10, 11]
    assert kept["labels"].tolist() == [0, 1]
    capsys.readouterr()


def test_what_came_before_a_failure_is_shown(failing, capsys):
    failing[1].append(ValueError("pool.0: no such id"))
    assert run("--json") == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["labels"] == [0, 1]
    assert "2 of 4 queries were answered before this" in told.err


@pytest.mark.parametrize("out", ["nowhere/labels.npz", "."])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_paid(failing, capsys, tmp_path, out):
    assert run("--out", str(tmp_path / out)) == 2
    assert failing[0] == []
    assert "--out" in capsys.readouterr().err


def test_labels_that_cannot_be_written_in_the_end_are_shown(failing, capsys, tmp_path, monkeypatch):
    failing[1].append(ValueError("pool.0: no such id"))

    def full(*_words, **_named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tellers.privacy._files.write_whole", full)
    assert run("--out", str(tmp_path / "labels.npz")) != 0
    assert json.loads(capsys.readouterr().out)["labels"] == [0, 1]
