"""`tellers ledger`: the books from the command line, in a file and in a database."""

import contextlib
import json
import os
import shutil
import sqlite3
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, GNMax, RdpCurve, Release, SqliteLedger, Unit, describe, noise
from tellers.cli import main
from tellers.errors import LedgerConflict
from tellers.ledger import compact_ledger

OLD = Path(__file__).parents[1] / "ledger" / "fixtures" / "ledger-1.db"
STATE = json.loads(OLD.with_suffix(".json").read_text())
ONE = RdpCurve.zcdp(0.001)


@pytest.fixture
def tellers(capsys, tmp_path, monkeypatch):
    """Run `tellers ledger ...` and return its exit code, what it printed, and what it complained about."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words):
        with pytest.raises(SystemExit) as done:
            main(["ledger", *(str(word) for word in words)])
        said = capsys.readouterr()
        return done.value.code, said.out, said.err

    return run


@pytest.fixture
def old(tmp_path):
    shutil.copy(OLD, tmp_path / "old.db")
    return tmp_path / "old.db"


def test_a_ledger_is_made_once_and_keeps_its_budget(tellers):
    code, out, _ = tellers(
        "init", "spend.db", "--epsilon", 2, "--delta", 1e-5, "--account", "student/alice=0.5"
    )
    assert code == 0
    assert "epsilon 2 at delta 1e-05" in out
    again = tellers("init", "spend.db", "--epsilon", 2, "--delta", 1e-5, "--account", "group/low=1", "--json")
    assert json.loads(again[1])["accounts"] == ["student/alice", "group/low"]
    code, out, err = tellers("init", "spend.db", "--epsilon", 3, "--delta", 1e-5)
    assert (code, out) == (2, "")
    assert "promise about the data" in err
    code, _, err = tellers(
        "init", "spend.db", "--epsilon", 2, "--delta", 1e-5, "--account", "student/alice=9"
    )
    assert code == 2
    assert "was opened with epsilon=0.5" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("init", "x.db"), "Expected --epsilon and --delta"),
        (("init", "x.db", "--epsilon", "2"), "Expected --epsilon and --delta"),
        (("init", "x.db", "--epsilon", "2", "--delta", "1e-5", "--account", "alice"), "NAME=EPSILON"),
        (("init", "x.db", "--epsilon", "2", "--delta", "1e-5", "--account", "=1"), "NAME=EPSILON"),
        (("init", "x.db", "--epsilon", "-2", "--delta", "1e-5"), "epsilon > 0"),
        (("status", "x.db"), "got no file"),
        (("verify", "x.db"), "tellers ledger init"),
        (("list", "x.db"), "got no file"),
        (("export", "x.db"), "got no file"),
        (("reprice", "x.db"), "got no file"),
        (("nonsense",), "nonsense"),
    ],
)
def test_mistakes_are_said_and_nothing_is_made(tellers, words, said):
    code, out, err = tellers(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("x.db").exists()


def test_status_says_what_is_spent_and_left(tellers, old):
    code, out, _ = tellers("status", old)
    assert code == 0
    assert "4 questions settled, 1 open" in out
    assert STATE["head"] in out
    told = json.loads(tellers("status", old, "--json")[1])
    assert told["spent"] == pytest.approx(STATE["spent_epsilon"])
    assert (told["n_settled"], told["n_open"], told["head"]) == (4, 1, STATE["head"])
    assert 0 < told["left"] < 1


def test_status_shows_every_account(tellers, tmp_path):
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(2.0, 1e-5))) as ledger:
        ledger.open_account("student/[red]alice\x1b[2J", Budget(0.5, 1e-5))
        price = 9 * GNMax(sigma=40.0).price(Unit())
        event = describe(GNMax(sigma=40.0), noise.secure())
        also = {"student/[red]alice\x1b[2J": price}
        ledger.settle(
            ledger.reserve("[bold]q0\x1b[2J", price, event=event, also=also),
            Release(np.array([3]), Cost(price)),
        )
    code, out, _ = tellers("status", "spend.db")
    assert code == 0
    # The names are others' words: they do not paint the operator's screen.
    assert "student/[red]alice\\x1b[2J" in out
    told = json.loads(tellers("status", "spend.db", "--json")[1])
    (account,) = told["accounts"].values()
    assert account["left"] < told["left"]
    code, out, _ = tellers("list", "spend.db")
    assert "[bold]q0\\x1b[2J" in out
    assert "\x1b[2J" not in out


def test_list_shows_questions_and_can_be_narrowed(tellers, old):
    code, out, _ = tellers("list", old)
    assert code == 0
    assert all(entry["key"] in out for entry in STATE["entries"])
    told = json.loads(tellers("list", old, "--json", "--limit", 2)[1])
    assert [row["key"] for row in told["entries"]] == ["histogram/0", "open/0"]
    assert told["n_entries"] == 5
    assert [row["state"] for row in told["entries"]] == ["settled", "open"]
    assert "3 older ones" in tellers("list", old, "--limit", 2)[1]
    code, _, err = tellers("list", old, "--account", "student/nobody")
    assert code == 2
    assert "student/nobody" in err


def test_a_note_of_confidential_rounds_is_shown_as_one(tellers, tmp_path):
    from tellers.parties._ledger import write_note

    words = "west said Ready, and lent no mask when it was asked for (gone)."
    with SqliteLedger(tmp_path / "notes.db", Accountant(Budget(epsilon=1.0, delta=1e-5))) as ledger:
        write_note(ledger, "1" * 32, words, day="2026-03-09", what="wasted", blamed=["west"], n_queries=2)
    [entry] = json.loads(tellers("list", "notes.db", "--json")[1])["entries"]
    assert (entry["state"], entry["note"], entry["charged"]) == ("note", words, 0.0)
    assert "west said Ready" in " ".join(tellers("list", "notes.db")[1].split())
    assert tellers("verify", "notes.db")[0] == tellers("reprice", "notes.db")[0] == 0
    assert json.loads(tellers("status", "notes.db", "--json")[1])["spent"] == 0.0


def test_verify_finds_a_changed_file_and_a_lost_line(tellers, old):
    code, out, _ = tellers("verify", old)
    assert code == 0
    assert STATE["head"] in out
    assert "keep this hash" in out
    assert tellers("verify", old, "--head", STATE["head"])[0] == 0
    code, _, err = tellers("verify", old, "--head", "f" * 64)
    assert code == 2
    assert "cut short" in err
    connection = sqlite3.connect(old)
    connection.execute("DROP TRIGGER never_changed")
    connection.execute("UPDATE lines SET body = replace(body, '0', '1') WHERE number = 3")
    connection.commit()
    connection.close()
    code, out, err = tellers("verify", old, "--json")
    assert (code, out) == (2, "")
    assert "not the one that was written" in json.loads(err)["error"]


@pytest.mark.parametrize("words", [("verify",), ("export", "out.jsonl")], ids=" ".join)
def test_who_reads_all_of_a_long_ledger_sees_how_far_it_is(tellers, tmp_path, monkeypatch, words):
    bars, told = [], []

    @contextlib.contextmanager
    def bar(total, what, *, wanted):
        bars.append((total, what, wanted))
        yield told.append

    monkeypatch.setattr("tellers.cli.show.progress_bar", bar)
    monkeypatch.setattr("tellers.cli.ledger._PAGE", 3)
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=2.0, delta=1e-5))) as ledger:
        for number in range(6):
            ledger.reserve(f"q{number}", 0.01 * ONE, event={"noise": "secure"})
        n_lines = ledger.head.number + 1
    assert tellers(words[0], "spend.db", *words[1:])[0] == 0
    assert bars == [(n_lines, "lines", True)]
    assert told == [3] * (n_lines // 3)


def test_a_question_without_a_bound_is_shown_as_json_too(tellers, tmp_path):
    """Before, one question that cost more than its price, without end, left programs without any number."""
    endless = RdpCurve(ONE.orders, np.full(ONE.orders.size, np.inf))
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=2.0, delta=1e-5))) as ledger:
        ticket = ledger.reserve("q0", ONE, event={"noise": "secure"})
        with pytest.raises(LedgerConflict, match="more than its price"):
            ledger.settle(ticket, Release(np.array([3]), Cost(endless)))
    state = json.loads(tellers("status", "spend.db", "--json")[1])
    assert (state["spent"], state["left"]) == (None, 0.0)
    (entry,) = json.loads(tellers("list", "spend.db", "--json")[1])["entries"]
    assert (entry["state"], entry["charged"]) == ("overran", None)
    assert json.loads(tellers("reprice", "spend.db", "--json")[1])["charged"] is None


def test_verify_counts_the_lines_that_it_read(tellers, tmp_path, monkeypatch):
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=2.0, delta=1e-5))) as ledger:
        verify_from = SqliteLedger.verify_from

        def others_go_on(self, *words, **named):
            found = verify_from(self, *words, **named)
            ledger.reserve("q0", ONE, event={"noise": "secure"})
            return found

        monkeypatch.setattr(SqliteLedger, "verify_from", others_go_on)
        told = json.loads(tellers("verify", "spend.db", "--json")[1])
        (first, *_) = ledger.lines()
    assert (told["lines"], told["head"]) == (1, first.hash)


def test_an_export_needs_no_memory_for_all_of_it(tellers, tmp_path, monkeypatch):
    monkeypatch.setattr("tellers.ledger.sqlite._PAGE", 2)
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=2.0, delta=1e-5))) as ledger:
        for number in range(20):
            ticket = ledger.reserve(f"q{number}", ONE, event={"noise": "secure", "note": "x" * 2**19})
            ledger.settle(ticket, Release(np.array([3]), Cost(ONE)))
    assert tellers("export", "spend.db", "warm.jsonl")[0] == 0
    tracemalloc.start()
    try:
        assert tellers("export", "spend.db", "spend.jsonl")[0] == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**23 < Path("spend.jsonl").stat().st_size
    assert tellers("import", "spend.jsonl", "copy.db")[0] == 0


def test_a_ledger_goes_out_and_comes_back(tellers, old):
    assert tellers("export", old, "old.jsonl")[0] == 0
    assert tellers("export", old)[1] == Path("old.jsonl").read_text()
    code, out, _ = tellers("import", "old.jsonl", "new.db", "--head", STATE["head"], "--json")
    assert code == 0
    assert json.loads(out)["head"] == STATE["head"]
    assert json.loads(tellers("list", "new.db", "--json")[1]) == json.loads(tellers("list", old, "--json")[1])
    code, _, err = tellers("import", "old.jsonl", "new.db")
    assert code == 2
    assert "not there yet" in err
    Path("bad.jsonl").write_text(Path("old.jsonl").read_text().replace("gnmax/0", "gnmax/9"))
    code, _, err = tellers("import", "bad.jsonl", "bad.db")
    assert code == 2
    assert not Path("bad.db").exists()


def test_reprice_shows_both_prices_and_changes_nothing(tellers, old):
    code, out, _ = tellers("reprice", old)
    assert code == 0
    assert "The ledger was not changed" in out
    told = json.loads(tellers("reprice", old, "--json")[1])
    assert told["repriced"] <= told["charged"] * (1 + 1e-9)
    assert len(told["questions"]) == 5
    assert json.loads(tellers("verify", old, "--json")[1])["head"] == STATE["head"]


def test_compact_rewrites_an_old_ledger_and_says_where_it_is(tellers, old):
    before = json.loads(tellers("status", old, "--json")[1])
    code, out, _ = tellers("compact", old)
    assert code == 0
    assert f"{Path(old).stem}.version-" in out.replace("\n", "")
    assert "--trust-ledger" in out.replace("\n", " ")
    after = json.loads(tellers("status", old, "--json")[1])
    same = ("epsilon", "delta", "held_at", "n_settled", "n_open", "spent", "left")
    assert [after[name] for name in same] == pytest.approx([before[name] for name in same])
    told = json.loads(tellers("compact", old, "--json")[1])
    assert (told["changed"], told["version"]) == (False, 4)
    aside = next(Path(old).parent.glob("*.version-*.db"))
    assert tellers("verify", aside)[0] == 0
    code, _, err = tellers("compact", aside)
    assert (code, "was rewritten into" in err) == (2, True)


def test_compact_that_was_interrupted_between_two_names_is_ended_by_the_same_command(
    tellers, old, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda *_names: (_ for _ in ()).throw(OSError("the power is gone")))
        with pytest.raises(OSError, match="the power is gone"):
            compact_ledger(old)
    code, _, err = tellers("status", old)
    assert (code, "another one too" in err) == (2, True)
    assert tellers("compact", old)[0] == 0
    assert json.loads(tellers("compact", old, "--json")[1])["version"] == 4


def test_all_of_it_in_a_database_without_a_word_of_the_password(tellers, postgres, old):
    postgres.sql("CREATE DATABASE cli")
    url = postgres.url("cli")
    said = [tellers("status", url), tellers("init", url), tellers("status", url)]
    assert [code for code, _, _ in said] == [2, 0, 2]
    assert "named 'main'" in said[2][2]
    for words in (
        ("init", url, "--epsilon", "2", "--delta", "1e-5", "--account", "student/alice=0.5"),
        ("status", url),
        ("list", url),
        ("verify", url),
        ("export", url, "main.jsonl"),
        ("reprice", url),
    ):
        said.append(tellers(*words))
        assert said[-1][0] == 0, said[-1]
    assert tellers("export", old, "old.jsonl")[0] == 0
    said.append(tellers("import", "old.jsonl", url, "--name", "old", "--json"))
    assert json.loads(said[-1][1])["head"] == STATE["head"]
    said.append(tellers("status", url, "--name", "old", "--json"))
    assert json.loads(said[-1][1])["spent"] == pytest.approx(STATE["spent_epsilon"])
    said.append(tellers("status", postgres.url("cli", password="hunter2hunter2")))
    assert said[-1][0] == 1
    said.append(tellers("status", url.replace("/cli", "/nowhere")))
    said.append(tellers("init", postgres.url("cli", password="hunter2hunter2")))
    assert "See whether it runs" in said[-1][2]
    words = "".join(out + err for _, out, err in said)
    assert postgres.password not in words
    assert "hunter2" not in words


@pytest.mark.parametrize("version", [1, 2])
def test_every_verb_reads_an_old_ledger_alike_in_a_file_and_in_a_database(tellers, own_database, version):
    fixture = OLD.with_name(f"ledger-{version}.db")
    state = json.loads(fixture.with_suffix(".json").read_text())
    shutil.copy(fixture, "old.db")
    assert tellers("export", "old.db", "old.jsonl")[0] == 0
    code, out, _ = tellers("import", "old.jsonl", own_database, "--head", state["head"], "--json")
    assert (code, json.loads(out)["head"]) == (0, state["head"])
    for words in (("status",), ("list", "--limit", 0), ("verify", "--head", state["head"]), ("reprice",)):
        told = [tellers(words[0], where, *words[1:], "--json") for where in ("old.db", own_database)]
        assert [code for code, _, _ in told] == [0, 0], told
        in_file, in_database = ({**json.loads(out), "where": None} for _, out, _ in told)
        assert in_file == in_database
    assert tellers("export", own_database)[1] == Path("old.jsonl").read_text()
