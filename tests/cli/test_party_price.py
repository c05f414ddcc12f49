"""`tellers party price`: the same numbers as the books, and what a betrayal would cost."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from tellers import Accountant, Budget, MemoryLedger, noise
from tellers.errors import BudgetExhausted
from tellers.parties import price_without_guardian
from tellers.parties._ledger import charge_query
from tellers.parties.prices import affordable_queries
from tellers.runs import MechanismConfig, write_party
from tellers.runs.settings.party import HardeningConfig, example_settings

from .test_party import run

HARD = HardeningConfig(noise_sigma=6.0, n_colluding=1)


def settings_file(folder, role="guardian", **changes):
    path = folder / "party.toml"
    path.write_text(write_party(replace(example_settings(role), **changes)))
    return path


def price_of(capsys, path, *words):
    code, out, err = run(capsys, "party", "price", "--config", path, *words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 7.5])
@pytest.mark.parametrize("name", ["gnmax", "binary", "confident-binary"])
def test_the_budget_pays_for_just_as_many_as_the_ledger_lets_through(epsilon, name):
    given = {"name": name, "sigma": 20.0}
    if name == "confident-binary":
        given |= {"threshold": 2, "sigma_threshold": 30.0}
    mechanism = replace(example_settings("guardian"), mechanism=MechanismConfig(**given)).build_mechanism()
    budget = Budget(epsilon=epsilon, delta=1e-5)
    n = affordable_queries(mechanism, budget)
    ledger = MemoryLedger(Accountant(budget))
    asked = {"mechanism": mechanism, "noise": noise.secure(), "asker": "ann", "parties": ("north", "south")}
    if n:
        charge_query(ledger, "0" * 32, n_queries=n, **asked)
    with pytest.raises(BudgetExhausted):
        charge_query(ledger, "1" * 32, n_queries=1, **asked)


def test_without_noise_of_the_parties_nothing_bounds_a_betrayal(tmp_path, capsys):
    told = price_of(capsys, settings_file(tmp_path), "--queries", "10")
    assert told["n_affordable"] > 0
    assert [one["batch_is_bounded"] for one in told["collusions"]] == [False]
    assert "no epsilon bounds" in told["notes"][0]
    code, out, _ = run(capsys, "party", "price", "--config", tmp_path / "party.toml")
    assert code == 0
    assert "infinite" in out
    assert "What remains" in " ".join(out.split())


def test_shares_of_noise_are_priced_alone_and_with_who_else_colludes(tmp_path, capsys):
    path = settings_file(tmp_path, hardening=HARD)
    told = price_of(capsys, path, "--queries", "10")
    mechanism = example_settings("guardian").build_mechanism()
    expected = [(10 * price_without_guardian(mechanism, 6.0, n_shares=n)).epsilon(1e-5) for n in (2, 1)]
    assert [one["batch"] for one in told["collusions"]] == pytest.approx(expected)
    assert [one["n_colluding"] for one in told["collusions"]] == [0, 1]
    assert told["batch"] < expected[0] < expected[1] < told["collusions"][1]["whole"]
    code, out, _ = run(capsys, "party", "price", "--config", path, "--queries", "10")
    assert code == 0
    assert "with 1 answering party" in " ".join(out.split())


def test_masks_that_do_not_cancel_leave_one_share_below_each_vote(tmp_path, capsys):
    path = settings_file(tmp_path, hardening=replace(HARD, pairwise=False, n_colluding=0))
    told = price_of(capsys, path, "--queries", "10")
    assert [one["n_shares"] for one in told["collusions"]] == [1]
    assert "Masks do not cancel" in told["notes"][0]


def test_an_asker_has_no_budget_unless_it_is_told_one(tmp_path, capsys):
    path = settings_file(tmp_path, "asker")
    told = price_of(capsys, path)
    assert told["n_affordable"] is told["budget"] is None
    assert told["n_queries"] == 100
    told = price_of(capsys, path, "--epsilon", "10", "--delta", "1e-6")
    assert told["budget"] == {"epsilon": 10.0, "delta": 1e-6}
    assert told["n_affordable"] < price_of(capsys, path, "--epsilon", "10")["n_affordable"]
    told = price_of(capsys, path, "--epsilon", "0.01")
    assert told["n_affordable"] == 0
    assert "does not pay for a single query" in told["notes"][0]
