"""A ledger leaves as text and is the same ledger elsewhere; text that was touched is not taken in."""

import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, RdpCurve, Release, SqliteLedger
from tellers.errors import LedgerConflict
from tellers.ledger import export_ledger, import_ledger, open_ledger
from tellers.ledger._lines import Line
from tellers.ledger._state import opening
from tellers.privacy import DEFAULT_ORDERS

FIXTURES = Path(__file__).parent / "fixtures"
SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
ACCOUNTANT = Accountant(Budget(epsilon=1.0, delta=1e-5), order=16.0)


def filled(path):
    ledger = SqliteLedger(path, ACCOUNTANT)
    ledger.open_account("student/älice\0", Budget(epsilon=0.5, delta=1e-5))
    also = {"student/älice\0": ONE}
    ledger.settle(ledger.reserve("q0", ONE, event=SECURE, also=also), Release(np.array([3]), Cost(0.5 * ONE)))
    ledger.reserve("q1\u2028\n", 2 * ONE, event=SECURE, also=also)
    return ledger


def exported(ledger):
    text = io.StringIO()
    export_ledger(ledger, text)
    return text.getvalue()


def require_same(one, other):
    assert list(other.lines()) == list(one.lines())
    assert other.verify() == one.verify()
    assert other.accountant.budget == one.accountant.budget
    assert other.accountant.held_at == one.accountant.held_at
    np.testing.assert_array_equal(other.spent.values, one.spent.values)
    assert [(e.key, e.event, e.is_settled) for e in other.entries()] == [
        (e.key, e.event, e.is_settled) for e in one.entries()
    ]
    assert other.accounts().keys() == one.accounts().keys()
    for name, state in one.accounts().items():
        theirs = other.accounts()[name]
        assert (theirs.budget, theirs.held_at) == (state.budget, state.held_at)
        np.testing.assert_array_equal(theirs.spent.values, state.spent.values)


def test_a_ledger_is_the_same_elsewhere_and_goes_on(tmp_path):
    with filled(tmp_path / "one.db") as one:
        with import_ledger(io.StringIO(exported(one)), tmp_path / "two.db") as two:
            require_same(one, two)
            two.reserve("q2", ONE, event=SECURE)
            assert two.verify(one.verify()) != one.verify()
        with open_ledger(tmp_path / "two.db") as two, pytest.raises(LedgerConflict, match="not settled"):
            two.reserve("q1\u2028\n", ONE, event=SECURE)


def test_a_ledger_moves_between_a_file_and_a_database(tmp_path, database):
    with (
        filled(tmp_path / "one.db") as one,
        import_ledger(io.StringIO(exported(one)), database, name="moved") as there,
        import_ledger(io.StringIO(exported(there)), tmp_path / "back.db") as back,
    ):
        require_same(one, there)
        require_same(one, back)
        with pytest.raises(LedgerConflict, match=r"a name that is free.*'moved'"):
            import_ledger(io.StringIO(exported(one)), database, name="moved")


def test_a_ledger_moves_between_databases_and_goes_on(tmp_path, postgres, database, own_database):
    with (
        filled(tmp_path / "one.db") as one,
        import_ledger(io.StringIO(exported(one)), database, name="moves on") as here,
        import_ledger(io.StringIO(exported(here)), own_database, name="elsewhere") as there,
    ):
        require_same(one, there)
        assert exported(here) == exported(there)
        also = {"student/älice\0": ONE}
        there.settle(there.reserve("q2", ONE, event=SECURE, also=also), Release(np.array([1]), Cost(ONE)))
        with pytest.raises(LedgerConflict, match="not settled"):
            there.reserve("q1\u2028\n", ONE, event=SECURE)
        with import_ledger(io.StringIO(exported(there)), tmp_path / "back.db") as back:
            require_same(there, back)
            assert back.verify(head=one.verify()) == there.verify()


def test_an_old_ledger_moves_too(tmp_path):
    shutil.copy(FIXTURES / "ledger-1.db", tmp_path / "old.db")
    with (
        open_ledger(tmp_path / "old.db") as old,
        import_ledger(io.StringIO(exported(old)), tmp_path / "new.db") as new,
    ):
        require_same(old, new)
        assert new.verify() == json.loads((FIXTURES / "ledger-1.json").read_text())["head"]


def tampered(lines):
    """Return exports that were touched, by what was done to them."""

    def edited(n, **changes):
        return [
            json.dumps({**json.loads(line), **changes}) if k == n else line for k, line in enumerate(lines)
        ]

    priced = next(k for k, line in enumerate(lines) if "0.0006" in line)
    body = json.loads(lines[priced])["body"]
    forged = Line.after(None, "opened", key="", body={"schema": 2})
    return {
        "a smaller charge": edited(priced, body=body.replace("0.0006", "0.0001")),
        "another key": edited(3, key="q9"),
        "another hash": edited(4, hash="0" * 64),
        "a line removed": [*lines[:4], *lines[5:]],
        "a line twice": [*lines[:4], lines[3], *lines[4:]],
        "two lines exchanged": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "the last line removed": lines[:-1],
        "the last two lines removed": lines[:-2],
        "the newest line removed and the end with it": [*lines[:-2], lines[-1]],
        "no header": lines[1:],
        "nothing": [],
        "another file": ["# not a ledger", "at all", "really"],
        "a field too many": edited(3, private=1),
        "numbers for text": edited(3, body=7),
        "a first line of its own": [
            lines[0],
            json.dumps(asdict(forged)),
            json.dumps({"lines": 1, "head": forged.hash}),
        ],
    }


def test_a_tampered_export_is_refused_and_nothing_is_written(tmp_path):
    with filled(tmp_path / "one.db") as one:
        lines = exported(one).splitlines()
    assert any("0.0006" in line for line in lines)
    for what, touched in tampered(lines).items():
        with pytest.raises(LedgerConflict):
            import_ledger(touched, tmp_path / "two.db")
        assert not (tmp_path / "two.db").exists(), what


def test_other_books_are_found_by_a_noted_head(tmp_path):
    with filled(tmp_path / "one.db") as one, SqliteLedger(tmp_path / "other.db", ACCOUNTANT) as other:
        noted = one.verify()
        with pytest.raises(LedgerConflict, match="other books, or of older ones"):
            import_ledger(io.StringIO(exported(other)), tmp_path / "two.db", head=noted)
        import_ledger(io.StringIO(exported(one)), tmp_path / "two.db", head=noted).close()


def test_a_file_that_is_there_is_left_alone(tmp_path):
    with filled(tmp_path / "one.db") as one:
        (tmp_path / "two.db").write_text("precious")
        with pytest.raises(LedgerConflict, match=r"not there yet, got two\.db"):
            import_ledger(io.StringIO(exported(one)), tmp_path / "two.db")
    assert (tmp_path / "two.db").read_text() == "precious"


def made_up(*said, **terms):
    """Return the export of a chain that somebody wrote by hand, with hashes that fit."""
    first = opening(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    body = {
        name: value
        for name, value in {**json.loads(first.body), "schema": 2, **terms}.items()
        if value is not None
    }
    lines = [Line.after(None, "opened", key="", body=body)]
    for kind, key, content in said:
        lines.append(Line.after(lines[-1], kind, key=key, body=content))
    end = {"lines": len(lines), "head": lines[-1].hash}
    return [json.dumps(each) for each in ({"tellers": "ledger", "format": 1}, *map(asdict, lines), end)]


PRICE = [0.001] * len(DEFAULT_ORDERS)
ASKED = ("reserved", "q0", {"event": {"noise": "secure"}, "price": PRICE})


@pytest.mark.parametrize(
    "text",
    [
        made_up(ASKED, ("settled", "q0", {"charged": PRICE, "release": {"labels": "x", "by_teachers": []}})),
        made_up(ASKED, ("settled", "q0", {"charged": PRICE, "release": {"labels": [10**30]}})),
        made_up(ASKED, ("settled", "q0", {"charged": PRICE})),
        made_up(ASKED, ("settled", "q0", {"charged": [-1.0] * len(PRICE), "release": None})),
        made_up(("reserved", "q0", {"event": [1], "price": PRICE})),
        made_up(("account", "a", {"epsilon": 1.0, "delta": 1e-5, "held_at": 17.123})),
        made_up(schema=99),
        made_up(epsilon=None),
        made_up(held_at="18"),
        ['{"tellers": "ledger", "format": 1}', "[" * 100_000, "{}"],
    ],
    ids=[
        "labels", "large labels", "no release", "a gift", "event", "order", "schema", "no budget",
        "text", "deep",
    ],
)  # fmt: skip
def test_lines_with_good_hashes_that_could_not_be_used_are_refused(tmp_path, text):
    with pytest.raises(LedgerConflict):
        import_ledger(text, tmp_path / "copy.db")
    assert not list(tmp_path.iterdir())


def test_a_made_up_chain_is_otherwise_read(tmp_path):
    good = {"labels": [1], "by_teachers": [True]}
    text = made_up(ASKED, ("settled", "q0", {"charged": PRICE, "release": good}))
    assert import_ledger(text, tmp_path / "copy.db").find("q0").labels.tolist() == [1]
