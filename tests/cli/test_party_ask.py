"""`tellers party ask`: an interrupted file goes on where it stopped, and nothing is paid for twice."""

import csv
import json
import os
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("cryptography")

from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.cli.party_ask import Journal, journal_of
from tellers.errors import OutcomeChanged, RoundAborted
from tellers.mechanisms import GNMax
from tellers.parties import ask
from tellers.parties._guard import LENT
from tellers.parties._ledger import query_price

from .test_party import make, run


class Crash(BaseException):
    """The process dies: nothing is handled."""


class Teller:
    """An asker whose labels are the first numbers of rows, and that fails as a script says."""

    script: ClassVar = []  # one word per batch
    asked: ClassVar = []

    def __init__(self, settings, *, say=None):
        self.n = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def price(self, n):
        return query_price(GNMax(sigma=8.0), n)

    def ask(self, rows, *, note):
        word = Teller.script.pop(0) if Teller.script else "labels"
        qid = os.urandom(16).hex()
        if word == "crash early":
            raise Crash
        note(qid, True)
        if word == "crash":
            raise Crash
        if word == "stop":
            raise KeyboardInterrupt
        if word == "lost":
            raise RoundAborted("The guardian is gone. It may have been charged, and is not tried again.")
        if word == "changed":
            Teller.asked.append("changed")
            raise OutcomeChanged("Expected an outcome of codes. The query stays charged.")
        if word in ("free", "retried", "lent"):
            note(qid, False)
            if word == "lent":
                raise RoundAborted(f"west said Ready, and lent no mask when it was asked for (gone). {LENT}")
            if word == "free":
                raise RoundAborted("Quorum missed. Nothing was charged.")
            qid = os.urandom(16).hex()
            note(qid, True)
        Teller.asked.append(rows[:, 0].astype(int).tolist())
        return SimpleNamespace(
            qid=qid,
            labels=rows[:, 0].astype(np.int64),
            parties=("north", "south"),
            seconds=1.0,
            n_bytes=10,
            n_void=int(word == "void"),
        )


@pytest.fixture
def teller(tmp_path, capsys, monkeypatch):
    make(capsys, tmp_path / "certs")
    run(capsys, "party", "init", tmp_path / "certs", "--features", "2", "--classes", "3")
    monkeypatch.setattr(ask, "AskRole", Teller)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([np.arange(25), np.zeros(25)]), delimiter=",")
    Teller.asked = []

    def go(*more, script=(), out="labels.csv"):
        Teller.script = list(script)
        words = [
            "party",
            "ask",
            "--config",
            tmp_path / "certs/ann/party.toml",
            "--rows",
            tmp_path / "rows.csv",
        ]
        return run(capsys, *words, "--out", tmp_path / out, "--batch", "10", "--json", *more)

    return go


def labels(path):
    with open(path, newline="") as file:
        return {int(line["row"]): int(line["label"]) for line in csv.DictReader(file)}


def right(*rows):
    return {row: row for row in rows}


def test_what_follows_an_outcome_that_was_changed_is_asked_all_the_same(tmp_path, teller):
    # A guardian that changes an outcome for one label only would hear by the next query whether it was that.
    code, out, err = teller(script=["void", "changed", "labels"])
    assert code == 2
    told = json.loads(out)
    assert [rows if rows == "changed" else len(rows) for rows in Teller.asked] == [10, "changed", 5]
    assert (told["n_labelled"], told["n_lost"]) == (15, 10)
    assert [batch["n_void"] for batch in told["batches"]] == [1, 0]
    assert "an outcome of codes" in " ".join(err.split())
    assert labels(tmp_path / "labels.csv") == right(*range(10), *range(20, 25))


def test_an_interrupted_file_goes_on_where_it_stopped(tmp_path, teller):
    code, out, err = teller(script=["labels", "free"])
    assert code == 2
    assert json.loads(out)["n_labelled"] == 10
    assert "run the same command again" in " ".join(err.split())
    assert labels(tmp_path / "labels.csv") == right(*range(10))
    code, out, _ = teller(script=["retried"])
    assert code == 0
    told = json.loads(out)
    assert (told["n_labelled"], told["n_before"], told["n_lost"]) == (25, 10, 0)
    assert told["epsilon"] == told["epsilon_at_most"]
    assert [batch["n_queries"] for batch in told["batches"]] == [10, 10, 5]
    assert labels(tmp_path / "labels.csv") == right(*range(25))
    assert [row for rows in Teller.asked for row in rows] == list(range(25))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certs", "labels.csv", "rows.csv"]
    code, _, err = teller()
    assert code == 2
    assert "is there" in " ".join(err.split())


def test_what_stays_on_others_books_is_told_with_its_price(teller):
    code, out, err = teller(script=["labels", "lent"])
    assert code == 2
    price = query_price(GNMax(sigma=8.0), 10).epsilon(1e-5)
    told = json.loads(out)
    assert f"on their own books. That is epsilon {price:.3g} each." in told["error"]
    assert "west said Ready" in " ".join(err.split())
    assert (told["n_labelled"], told["n_lost"]) == (10, 0)


@pytest.mark.skipif(os.name != "posix", reason="files have other permissions there")
@pytest.mark.parametrize("out", ["labels.csv", "labels.npz"])
def test_labels_and_what_is_remembered_are_for_the_owner_alone(tmp_path, teller, out):
    before = os.umask(0o022)
    try:
        teller(script=["labels", "free"], out=out)
        for path in (tmp_path / out, journal_of(tmp_path / out)):
            assert path.stat().st_mode & 0o777 == 0o600
        teller(out=out)
    finally:
        os.umask(before)
    assert (tmp_path / out).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certs", out, "rows.csv"]


@pytest.mark.parametrize("word", ["lost", "crash", "stop"])
def test_what_may_have_been_charged_is_told_and_asked_again_only_if_told_to(tmp_path, teller, word):
    if word == "crash":
        with pytest.raises(Crash):
            teller(script=["labels", word])
    else:
        code, _, err = teller(script=["labels", word])
        assert code == (2 if word == "lost" else 130)
        assert "run the same command again" in " ".join(err.split())
    code, out, err = teller()
    told = json.loads(out)
    words = " ".join(err.split())
    assert code == 2
    assert (told["n_labelled"], told["n_lost"]) == (15, 10)
    price = query_price(GNMax(sigma=8.0), 10).epsilon(1e-5)
    assert f"10 rows, from row 10 on, may have been charged (epsilon {price:.3g} at delta 1e-05)" in words
    assert "--again" in words
    assert told["epsilon_at_most"] == query_price(GNMax(sigma=8.0), 25).epsilon(1e-5) > told["epsilon"]
    assert labels(tmp_path / "labels.csv") == right(*range(10), *range(20, 25))
    code, out, _ = teller("--again")
    told = json.loads(out)
    assert code == 0
    assert labels(tmp_path / "labels.csv") == right(*range(25))
    assert told["epsilon_at_most"] == query_price(GNMax(sigma=8.0), 35).epsilon(1e-5)
    assert [len(rows) for rows in Teller.asked] == [10, 5, 10]


def test_a_crash_before_anything_could_be_charged_costs_nothing(tmp_path, teller):
    with pytest.raises(Crash):
        teller(script=["labels", "crash early"], out="labels.npz")
    code, out, _ = teller(out="labels.npz")
    told = json.loads(out)
    assert (code, told["n_lost"], told["n_labelled"]) == (0, 0, 25)
    with np.load(tmp_path / "labels.npz") as found:
        assert found["labels"].tolist() == found["rows"].tolist() == list(range(25))


def test_other_rows_and_other_terms_are_refused(tmp_path, teller):
    teller(script=["labels", "free"])
    before = journal_of(tmp_path / "labels.csv").read_bytes()
    rows, terms = tmp_path / "rows.csv", tmp_path / "certs" / "ann" / "party.toml"
    for path, old, new, words in (
        (rows, "0.0", "1.0", "Expected the rows that labels.csv was begun with"),
        (terms, "sigma = 8.0", "sigma = 9.0", "Expected the terms"),
    ):
        text = path.read_text()
        changed = text.replace("0.000000000000000000e+00\n", "1.000000000000000000e+00\n", 1)
        changed = changed if path is rows else text.replace(old, new)
        assert changed != text
        path.write_text(changed)
        code, _, err = teller()
        assert code == 2
        assert words in " ".join(err.split())
        path.write_text(text)
    assert journal_of(tmp_path / "labels.csv").read_bytes() == before
    assert len(Teller.asked) == 1
    assert teller()[0] == 0


def test_one_writer_at_a_time(tmp_path, teller):
    teller(script=["labels", "free"])
    journal = journal_of(tmp_path / "labels.csv")
    import fcntl

    with open(journal, "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, err = teller()
    assert code == 2
    assert "another process does" in " ".join(err.split())
    assert teller()[0] == 0


def test_a_damaged_journal_is_refused_in_words(tmp_path, teller):
    teller(script=["labels", "free"])
    path = journal_of(tmp_path / "labels.csv")
    path.write_bytes(b"{}\nhalf\n")
    code, _, err = teller()
    assert code == 2
    assert "It says which rows were charged" in " ".join(err.split())


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_journal_cut_anywhere_forgets_at_most_its_last_line(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("cut") / "labels.csv"
    rows = np.arange(12.0).reshape(6, 2)
    spans = [(0, 2), (2, 4), (4, 6)]
    journal = Journal(out, rows, terms="t")
    lengths, states = [], []

    def remember():
        lengths.append(journal_of(out).stat().st_size)
        states.append((journal.n_labelled, journal.lost_rows(), journal.pending(size=2, again=False)))

    remember()
    for number, span in enumerate(spans):
        note, qid = journal.noting(span), f"{number:032x}"
        note(qid, True)
        remember()
        outcome = data.draw(st.sampled_from(["labels", "free", "lost"]))
        if outcome == "labels":
            batch = {"labels": [1, 0], "qid": qid, "answering": ["north"], "seconds": 1.0, "n_bytes": 1}
            journal.keep(span, batch)
        elif outcome == "free":
            note(qid, False)
        remember()
    journal.close(remove=False)
    text = journal_of(out).read_bytes()
    cut = data.draw(st.integers(lengths[0], len(text)))
    journal_of(out).write_bytes(text[:cut])
    again = Journal(out, rows, terms="t")
    last = max(number for number, length in enumerate(lengths) if length <= cut)
    assert (again.n_labelled, again.lost_rows(), again.pending(size=2, again=False)) == states[last]
    assert journal_of(out).stat().st_size == lengths[last]
    again.close(remove=True)
    assert not journal_of(out).exists()
