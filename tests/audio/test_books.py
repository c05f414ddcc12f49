"""One ledger for all students of the same teachers: charged together, and nothing twice."""

from dataclasses import replace

import pytest

from tellers import Accountant, Budget, open_ledger
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.runs import BudgetConfig, MechanismConfig, run_voted
from tellers.runs.sound import student_config, teach_student
from tellers.runs.sound.teaching import books_of

pytestmark = pytest.mark.usefixtures("no_pages")


def config_of(taught, *, epsilon=60.0, sigma=2.0, n_queries=4, **given):
    return student_config(
        taught, mechanism=MechanismConfig(name="gnthreshold", sigma=sigma),
        budget=BudgetConfig(epsilon=epsilon, delta=1e-3, **given), n_queries=n_queries, model="tree",
    )  # fmt: skip


def charged(place, epsilon=60.0):
    accountant = Accountant(Budget(epsilon, 1e-3))
    with open_ledger(place, accountant) as ledger:
        return accountant.epsilon(ledger.spent), [entry.event["n_queries"] for entry in ledger.entries()]


def test_a_second_student_pays_on_top_of_the_first(ears, tmp_path):
    first, _ = teach_student(ears, tmp_path / "first", config_of(ears))
    second, _ = teach_student(ears, tmp_path / "second", config_of(ears, n_queries=2))
    books = ears.folder / "ledger.db"
    total, queries = charged(books)
    assert (sum(queries), not (tmp_path / "first" / "ledger.db").exists()) == (6, True)
    assert (first["spent"]["shared"], second["spent"]["shared"]) == (False, True)
    assert first["spent"]["charged"] < second["spent"]["charged"] == pytest.approx(total)
    # Others use the ledger: what may be stated of all of them is its budget.
    assert second["spent"]["epsilon"] == 60
    for name, said in (("first", False), ("second", True)):
        card = (tmp_path / name / "student" / "card.md").read_text()
        assert ("All releases together" in card) is said
    assert "of a budget of 60 is charged so far" in card
    # The same command twice answers from what was released.
    again, _ = teach_student(ears, tmp_path / "second", config_of(ears, n_queries=2))
    assert again["spent"] == second["spent"]
    assert charged(books) == (total, queries)
    with pytest.raises(ValueError, match="holds a run"):
        teach_student(ears, tmp_path / "second", config_of(ears, n_queries=3))


def test_what_is_left_of_the_budget_does_not_pay_for_another(ears, tmp_path):
    teach_student(ears, tmp_path / "first", config_of(ears, epsilon=16.0))
    before = charged(ears.folder / "ledger.db", 16.0)
    with pytest.raises(BudgetExhausted, match="past the budget"):
        teach_student(ears, tmp_path / "second", config_of(ears, epsilon=16.0, sigma=0.3))
    # Nor is there another budget for the same votes: by a larger one, by other books, or past the students.
    with pytest.raises(LedgerConflict, match="A budget is a promise"):
        teach_student(ears, tmp_path / "larger", config_of(ears, epsilon=90.0))
    for ledger in ("ledger-2.db", str(tmp_path / "fresh.db"), "postgresql://team@db.example/privacy"):
        with pytest.raises(ValueError, match="Two ledgers are two budgets"):
            teach_student(ears, tmp_path / "other", config_of(ears, epsilon=16.0, ledger=ledger))
        config = config_of(ears, epsilon=16.0, ledger=ledger)
        with pytest.raises(ValueError, match="Two ledgers are two budgets"):
            run_voted(config, tmp_path / "past", voted=ears.voted())
    assert not (tmp_path / "fresh.db").exists()
    assert not list(tmp_path.glob("*/student"))[1:]
    assert charged(ears.folder / "ledger.db", 16.0) == before


def test_the_first_student_may_name_the_books(ears, tmp_path):
    with pytest.raises(ValueError, match="without a password"):
        teach_student(ears, tmp_path / "no", config_of(ears, ledger="postgresql://a:secret@db/p"))
    assert not (ears.folder / "books.json").exists()
    team = str(tmp_path / "team.db")
    teach_student(ears, tmp_path / "first", config_of(ears, ledger=team))
    teach_student(ears, tmp_path / "second", config_of(ears, n_queries=2))
    assert sum(charged(team)[1]) == 6
    assert not (ears.folder / "ledger.db").exists()
    assert books_of(ears.folder) == team
    (ears.folder / "books.json").write_text("[]")
    with pytest.raises(ValueError, match="Restore the file"):
        books_of(ears.folder)


def test_books_go_where_the_teachers_go(ears, tmp_path):
    teach_student(ears, tmp_path / "first", config_of(ears))
    ears.folder.rename(tmp_path / "moved")
    moved = replace(ears, folder=tmp_path / "moved")
    second, _ = teach_student(moved, tmp_path / "second", config_of(ears))
    assert second["spent"]["shared"]
    assert not (tmp_path / "ears").exists()


def test_a_ledger_that_is_gone_is_no_fresh_budget(ears, tmp_path):
    teach_student(ears, tmp_path / "first", config_of(ears))
    (ears.folder / "ledger.db").unlink()
    for place in ("first", "second"):
        with pytest.raises(ValueError, match=r"it is not there\. Restore it"):
            teach_student(ears, tmp_path / place, config_of(ears))
    assert not (ears.folder / "ledger.db").exists()
    assert not (tmp_path / "second").exists()


def test_a_student_that_is_refused_leaves_nothing_in_the_way(ears, tmp_path):
    """Neither books with a budget that pays for nothing, nor a folder in the way of the right settings."""
    team = str(tmp_path / "team.db")
    with pytest.raises(BudgetExhausted, match="One question alone"):
        teach_student(ears, tmp_path / "first", config_of(ears, epsilon=0.01, ledger=team))
    assert not (tmp_path / "team.db").exists()
    assert books_of(ears.folder) == str(ears.folder / "ledger.db")
    teach_student(ears, tmp_path / "first", config_of(ears, epsilon=16.0))
    with pytest.raises(LedgerConflict, match="A budget is a promise"):
        teach_student(ears, tmp_path / "second", config_of(ears, epsilon=90.0))
    with pytest.raises(BudgetExhausted, match="past the budget"):
        teach_student(ears, tmp_path / "second", config_of(ears, epsilon=16.0, sigma=0.3))
    assert not (tmp_path / "second" / "config.toml").exists()


def test_what_a_run_writes_names_no_place_on_this_machine(ears, tmp_path):
    teach_student(ears, tmp_path / "study", config_of(ears))
    written = (tmp_path / "study" / "config.toml").read_text()
    assert 'ledger = "../ears/ledger.db"' in written
    assert str(tmp_path) not in (tmp_path / "study" / "result.json").read_text()


def test_teachers_that_voted_elsewhere_do_not_teach_another_student(ears, tmp_path):
    """Trained on with another device, the settings of a student are the same."""
    other = replace(ears.settings, tagger={**ears.settings.tagger, "device": "auto"})
    assert config_of(replace(ears, settings=other)) == config_of(ears)
