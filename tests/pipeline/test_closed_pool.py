"""A finished run with many labels, read again: what it cost, and an epsilon of it that may be told."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers import Unit
from tellers.accounting import LabelConsensus
from tellers.accounting.exact import exact_epsilons
from tellers.cli import main
from tellers.errors import BudgetExhausted
from tellers.runs import (
    BudgetConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    propose_publication,
    run,
)
from tellers.runs._finished import account_for_pool, asked_votes, read_finished
from tellers.teachers import save_votes

from ..small_runs import LABELS, run_on_votes

CONFIG = replace(
    LABELS,
    data=replace(LABELS.data, options={"n_rows": 1500}),
    partition=PartitionConfig(n_teachers=40),
    mechanism=MechanismConfig(name="binary", sigma=8.0),
    budget=BudgetConfig(epsilon=30.0, delta=1e-4),
    queries=QueriesConfig(n_queries=30),
    report=ReportConfig(private=True),
)
DEPENDENT = replace(
    CONFIG,
    labels=LabelsConfig(names=("rain", "wind", "snow"), implies_not={"rain": ["snow"]}),
)
CONFIDENT = replace(
    CONFIG,
    mechanism=MechanismConfig(name="confident-binary", sigma=8.0, threshold=32.0, sigma_threshold=6.0),
)


def made(tmp_path_factory, config):
    folder = tmp_path_factory.mktemp("run") / "study"
    run_on_votes(config, folder)
    return folder


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    return made(tmp_path_factory, CONFIG)


@pytest.fixture(scope="module")
def dependent(tmp_path_factory):
    return made(tmp_path_factory, DEPENDENT)


@pytest.fixture(scope="module")
def confident(tmp_path_factory):
    return made(tmp_path_factory, CONFIDENT)


@pytest.fixture
def study(once, tmp_path):
    return Path(shutil.copytree(once, tmp_path / "study"))


@pytest.fixture
def tellers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


def charged(folder):
    closed = read_finished(folder)
    with closed.books() as ledger:
        return ledger.spent, ledger.accountant


@pytest.mark.parametrize("kind", ["once", "dependent", "confident"])
def test_queries_and_labels_are_counted_apart(kind, request):
    folder = request.getfixturevalue(kind)
    closed = read_finished(folder)
    books = account_for_pool(closed, private=True)
    with np.load(folder / "labels.npz") as kept:
        labels, told = kept["labels"], kept["by_teachers"]
    assert books.n_queries == len(labels) == 30
    assert books.n_told == int(told.sum())
    assert books.n_answered == int(told.any(axis=1).sum())
    assert books.n_inferred == int(((labels != -1) & ~told).sum())
    assert (books.n_inferred > 0) == (kind == "dependent")
    assert (books.n_told < 90) == (kind != "once")
    spent, accountant = charged(folder)
    assert books.charged == pytest.approx(accountant.epsilon(spent))
    assert books.left == accountant.left(spent)
    assert books.charged <= books.stated * (1 + 1e-9)


def test_the_exact_cost_is_that_of_the_votes_that_were_asked(once):
    closed = read_finished(once)
    exact = account_for_pool(closed, private=True).exact
    expected = exact_epsilons(CONFIG.build_mechanism(), asked_votes(closed), delta=1e-4).reveal()[-1]
    assert exact.reveal() == expected
    summary = json.loads((once / "private/summary.json").read_text())
    assert exact.reveal() == pytest.approx(summary["exact_cost"][-1]["epsilon"])
    assert account_for_pool(closed).exact is None


def test_an_upper_bound_is_not_called_exact(dependent, tellers):
    secret = json.loads(tellers("account", dependent, "--json", "--show-private")[1])
    assert secret["private"]["kind"] == "upper bound"
    shown = " ".join(tellers("account", dependent, "--show-private")[1].split())
    assert "upper bound, the worst teacher over all queries" in shown
    assert "exact, the worst teacher" not in shown


def test_account_shows_private_numbers_only_on_request(once, tellers):
    code, out, err = tellers("account", once, "--json")
    assert (code, err) == (0, "")
    plain = json.loads(out)
    assert (plain["queries"], plain["labels"], plain["answered"], plain["told"]) == (30, 3, 30, 90)
    assert "private" not in plain
    secret = json.loads(tellers("account", once, "--json", "--show-private")[1])
    assert 0 < secret["private"]["exact"] < secret["charged"]
    assert secret["private"]["kind"] == "exact"
    shown = tellers("account", once)[1]
    assert "30 queries by 40 teachers on 3 labels each: 90 of 90 labels told, in 30 queries." in shown
    assert "--show-private" in shown
    assert f"{secret['private']['exact']:.4g}"[:4] not in shown
    assert "private: do not publish" in tellers("account", once, "--show-private")[1]
    code, _, err = tellers("account", once, "--sigma", 3)
    assert code == 2
    assert "Expected no --sigma with the folder of a run" in err


def test_what_is_published_is_charged_kept_and_shown_again(study, tellers):
    before, accountant = charged(study)
    sure = ["--method", "envelope", "--confidence", 0.999999]
    code, out, err = tellers("publish", study, *sure, "--yes", "--json")
    assert code == 0, err
    first = json.loads(out)
    exact = account_for_pool(read_finished(study), private=True).exact.reveal()
    # An upper value: false alarms once in a million.
    assert first["epsilon_upper"] >= exact
    assert first["drawn"] is True
    after, _ = charged(study)
    at = np.flatnonzero(after.orders == first["order"])[0]
    (line,) = first["groups"]
    assert after.values[at] - before.values[at] == pytest.approx(line["charged"])
    assert accountant.left(after) < accountant.left(before)
    ledger = (study / "ledger.db").read_bytes()
    again = json.loads(tellers("publish", study, "--yes", "--json")[1])
    assert again["drawn"] is False
    assert again["epsilon_upper"] == first["epsilon_upper"]
    assert (study / "ledger.db").read_bytes() == ledger
    assert json.loads(tellers("account", study, "--json")[1])["published"] == first["epsilon_upper"]
    code, _, err = tellers("publish", study, "--method", "independent")
    assert code == 2
    assert "What was published stays" in err
    assert tellers("ledger", "verify", study / "ledger.db")[0] == 0
    # The run itself can still be gone on with: nothing is asked twice, and what is stated covers both.
    told = json.loads((study / "result.json").read_text())
    resumed = run(CONFIG, study, resume=True)
    assert resumed["queries"] == told["queries"]
    assert resumed["spent"] == told["spent"]
    assert resumed["published"] == told["published"]
    assert resumed["spent"]["charged"] == pytest.approx(accountant.epsilon(after))


def test_nothing_is_spent_without_a_yes_or_for_a_public_price(study, tellers, monkeypatch):
    ledger = (study / "ledger.db").read_bytes()
    monkeypatch.setattr("typer.confirm", lambda *_args, **_named: False)
    shown = tellers("publish", study, "--method", "envelope")[1]
    assert "paid by" in shown
    assert "nothing was spent" in shown
    code, out, _ = tellers("publish", study, "--method", "independent", "--yes", "--json")
    assert code == 0
    assert json.loads(out)["record"] is None
    assert (study / "ledger.db").read_bytes() == ledger
    assert not (study / "publication.json").exists()


def test_a_budget_without_room_refuses_and_is_not_touched(tmp_path):
    just_enough = (10 * CONFIG.build_mechanism().price(Unit())).epsilon(1e-4) * (1 + 1e-9)
    poor = replace(CONFIG, queries=QueriesConfig(), budget=BudgetConfig(epsilon=just_enough, delta=1e-4))
    result = run_on_votes(poor, tmp_path / "out")
    assert (result["queries"]["n_asked"], result["queries"]["stopped_by"]) == (10, "the budget")
    ledger = (tmp_path / "out/ledger.db").read_bytes()
    with pytest.raises(BudgetExhausted, match="Expected room for a publication"):
        propose_publication(tmp_path / "out", method="envelope")
    assert (tmp_path / "out/ledger.db").read_bytes() == ledger


def test_a_run_whose_end_hangs_on_what_came_out_is_not_summed_up(tmp_path):
    ended = replace(CONFIDENT, queries=QueriesConfig(n_labels=5))
    run_on_votes(ended, tmp_path / "out")
    with pytest.raises(ValueError, match="a number of queries fixed beforehand"):
        propose_publication(tmp_path / "out")


def test_a_proxy_is_one_of_as_many_teachers_and_labels(once, tmp_path, tellers):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    save_votes(good, LabelConsensus().votes(40, 3, n_queries=50, seed=7))
    save_votes(bad, LabelConsensus().votes(40, 4, n_queries=50, seed=7))
    assert propose_publication(once, method="envelope").notes[0].startswith("Order and noise")
    code, _, err = tellers("publish", once, "--proxy", bad, "--yes", "--json")
    assert code == 2
    assert "a proxy of 40 teachers and 3 labels" in err


def test_a_damaged_record_is_refused(study):
    (study / "publication.json").write_text("{}")
    with pytest.raises(ValueError, match=r"publication\.json.*Restore the file"):
        propose_publication(study)


def test_the_ledger_lists_queries_and_labels(confident, tellers):
    code, out, err = tellers("ledger", "list", confident / "ledger.db", "--json", "--limit", 0)
    assert code == 0, err
    rows = json.loads(out)
    rows = rows if isinstance(rows, list) else rows["entries"]
    books = account_for_pool(read_finished(confident))
    assert sum(row["n_queries"] for row in rows) == 30
    assert sum(row["n_answered"] for row in rows) == books.n_answered
    assert sum(row["n_told"] for row in rows) == books.n_told
    assert {row["n_labels"] for row in rows} == {3}
    assert f"({rows[0]['n_told']} labels)" in tellers("ledger", "list", confident / "ledger.db")[1]
