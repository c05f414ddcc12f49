"""What a finished run cost each group, published: charged first, drawn once, kept, and refused in time."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, RdpCurve, SqliteLedger, Votes, noise
from tellers.errors import BudgetExhausted, FolderInUse
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    RunConfig,
    propose_publication,
    publish_run,
    run,
)
from tellers.runs._finished import account_for_groups, read_finished
from tellers.runs._folder import RunFolder
from tellers.runs.personal import publishing
from tellers.runs.personal.publishing import independent_group_costs
from tellers.runs.result import PublishedCosts, read_published

from .. import small_runs
from ..small_runs import run_on_votes

TWO = {"levels": {"low": 8.0, "high": 16.0}, "shares": {"low": 0.5, "high": 0.5}}
MUCH = {"low": 24.0, "high": 48.0}
CONFIG = replace(small_runs.SMALL, personal=PersonalConfig(variant="weighting", **TWO))
CONFIDENT = MechanismConfig(name="confident", sigma=5.0, threshold=10.0, sigma_threshold=8.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function that gives a fresh copy of a finished run, made once for all tests."""
    kept: dict[str, Path] = {}

    def copy(to: Path, config: RunConfig = CONFIG) -> Path:
        name = repr(config)
        if name not in kept:
            kept[name] = tmp_path_factory.mktemp("run") / "study"
            run_on_votes(config, kept[name])
        shutil.copytree(kept[name], to / "study")
        return to / "study"

    return copy


def books(folder, config=CONFIG):
    return small_runs.books(folder, config)


def publications(folder):
    return [entry for entry in books(folder)[0] if entry.event["mechanism"] == "GroupPublication"]


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
@pytest.mark.parametrize("mechanism", [CONFIG.mechanism, CONFIDENT], ids=["gnmax", "confident"])
def test_every_group_pays_what_was_proposed_and_it_is_kept(tmp_path, finished, variant, mechanism):
    config = replace(CONFIG, mechanism=mechanism, personal=PersonalConfig(variant=variant, **TWO))
    config = replace(config, budget=BudgetConfig(epsilon=60.0, delta=1e-4))
    config = replace(config, personal=replace(config.personal, levels=MUCH))
    folder = finished(tmp_path, config)
    _, before = books(folder, config)
    proposal = propose_publication(folder, method="envelope")
    assert books(folder, config)[1]["group/low"].spent.values.sum() == before["group/low"].spent.values.sum()
    published = publish_run(proposal)
    entries, after = books(folder, config)
    (paid,) = [entry for entry in entries if entry.event["mechanism"] == "GroupPublication"]
    for group in published.groups:
        account = f"group/{group.name}"
        assert np.array_equal(paid.also[account].charged.values, proposal.prices[group.name].values)
        assert (before[account].spent.values < after[account].spent.values).all()
        assert group.public == before[account].epsilon
        assert group.public < group.after == after[account].epsilon <= group.budget
        assert group.epsilon_upper > 0
    assert read_published(folder) == published
    assert json.loads((folder / "publication.json").read_text())["plan"]["method"] == "envelope"
    assert "Published costs" in (folder / "report.html").read_text()


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_votes_are_counted_as_they_were_paid_for(tmp_path, finished, variant):
    folder = finished(tmp_path, replace(CONFIG, personal=PersonalConfig(variant=variant, **TWO)))
    closed = read_finished(folder)
    with closed.books() as ledger:
        asked, accounts = closed.asked(ledger), ledger.accounts()
    assert len(asked) == 20
    for name, curve in independent_group_costs(asked).items():
        spent = accounts[f"group/{name}"].spent
        if variant == "vanishing":  # charged batch by batch, each to its busiest teacher
            assert (curve.values <= spent.values * (1 + 1e-9)).all()
            assert (curve.values >= 0.5 * spent.values).all()
        else:
            assert np.allclose(curve.values, spent.values, rtol=1e-9)


def test_what_is_published_is_drawn_once(tmp_path, finished):
    folder = finished(tmp_path)
    proposal = propose_publication(folder, method="envelope")
    first = publish_run(proposal)
    page, entries = (folder / "report.html").read_bytes(), len(books(folder)[0])
    again = propose_publication(folder)
    assert again.done == first
    # Also for somebody who planned before it was there.
    assert publish_run(proposal) == first
    assert len(books(folder)[0]) == entries
    assert (folder / "report.html").read_bytes() == page
    with pytest.raises(ValueError, match=r"--method envelope and --confidence 0\.95"):
        propose_publication(folder, method="gnss")
    with pytest.raises(ValueError, match="What was published stays"):
        propose_publication(folder, confidence=0.5)


def test_a_run_that_was_published_can_be_gone_on_with(tmp_path, finished):
    folder = finished(tmp_path)
    before = json.loads((folder / "result.json").read_text())
    published = publish_run(propose_publication(folder, method="envelope"))
    after = run(CONFIG, folder, resume=True)
    for one, other in zip(before["personal"]["groups"], after["personal"]["groups"], strict=True):
        assert {**one, "budget_left": 0} == {**other, "budget_left": 0}
        assert other["budget_left"] < one["budget_left"]
    assert after["personal"]["cost"] == before["personal"]["cost"]
    assert read_published(folder) == published
    assert "Published costs" in (folder / "report.html").read_text()


def test_what_was_cut_off_is_drawn_later_and_charged_once(tmp_path, finished, monkeypatch):
    folder = finished(tmp_path)
    proposal = propose_publication(folder, method="envelope")

    def crash(*_args, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "release_value", crash)
        with pytest.raises(KeyboardInterrupt):
            publish_run(proposal)
    (reserved,) = publications(folder)
    assert not reserved.is_settled
    assert not (folder / "publication.json").exists()
    assert "Published costs" not in (folder / "report.html").read_text()
    second = propose_publication(folder)
    assert second.is_charged
    assert any("cut off" in note for note in second.notes)
    published = publish_run(second)
    (paid,) = publications(folder)
    assert paid.is_settled
    for group in published.groups:
        assert np.array_equal(
            paid.also[f"group/{group.name}"].charged.values, proposal.prices[group.name].values
        )
        assert group.after <= group.budget


def test_what_an_earlier_version_lost_stays_charged_and_counts(tmp_path, finished):
    folder = finished(tmp_path)
    closed = read_finished(folder)
    plan = propose_publication(folder, method="envelope").plan
    with closed.books() as ledger:
        key = f"{closed.folder.key}:publication/0"
        publishing.publish_group_costs(
            closed.asked(ledger), noise.secure(), plan=plan, delta=1e-4, ledger=ledger, key=key
        )
    second = propose_publication(folder, method="envelope")
    assert any("number lost" in note for note in second.notes)
    published = publish_run(second)
    first, paid = publications(folder)
    assert len(first.release) == 0
    for group in published.groups:
        lost = first.also[f"group/{group.name}"].charged
        at = float(lost.values[lost.orders == second.plan.order][0])
        assert paid.event["before"][group.name] == pytest.approx(at)


def test_a_charge_is_on_the_books_before_noise_is_drawn(tmp_path, finished, monkeypatch):
    folder, real, seen = finished(tmp_path), publishing.release_value, []

    def watched(*args, **named):
        seen.append(len(publications(folder)))
        return real(*args, **named)

    monkeypatch.setattr(publishing, "release_value", watched)
    publish_run(propose_publication(folder, method="envelope"))
    assert seen == [1, 1]


def test_public_prices_cost_nothing_and_are_not_kept(tmp_path, finished):
    folder = finished(tmp_path)
    entries = len(books(folder)[0])
    published = publish_run(propose_publication(folder, method="independent"))
    assert len(books(folder)[0]) == entries
    assert not (folder / "publication.json").exists()
    for group in published.groups:
        assert group.epsilon_upper == pytest.approx(group.public)
        assert group.after == group.public


def drain(folder, name, share):
    """Take a share of what is left on the account of a group."""
    with SqliteLedger(folder / "ledger.db", Accountant(Budget(30.0, 1e-4))) as ledger:
        state = ledger.accounts()[f"group/{name}"]
        price = RdpCurve.zcdp(share * state.accountant.value_left(state.spent) / state.held_at)
        event = {"mechanism": "GNMax", "noise": "secure", "n_queries": 1}
        others = [one for one in ("low", "high") if one != name]
        event["groups"] = {"variant": "weighting", "absent": others}
        ledger.reserve("other", price, event=event, also={f"group/{name}": price})


def test_a_run_that_used_a_budget_up_is_not_published(tmp_path, finished):
    used_up = replace(
        CONFIG,
        data=DataConfig(name="breast_cancer", n_public=150, n_test=60),
        partition=PartitionConfig(n_teachers=40),
        queries=QueriesConfig(n_queries=120),
    )
    folder = finished(tmp_path, used_up)
    assert json.loads((folder / "result.json").read_text())["queries"]["stopped_by"] == "the budget of high"
    with pytest.raises(BudgetExhausted, match=r"that of high \(1 % of 16 left\)\. Nothing was charged"):
        propose_publication(folder)
    assert publications(folder) == []
    assert not (folder / "publication.json").exists()


@pytest.mark.parametrize("name", ["low", "high"])
def test_a_group_that_cannot_pay_refuses_it_for_all(tmp_path, finished, name):
    folder = finished(tmp_path)
    drain(folder, name, 1 - 1e-9)
    with pytest.raises(BudgetExhausted, match=rf"too little in that of {name} \(0 % of"):
        propose_publication(folder, method="envelope")
    assert publications(folder) == []


def test_what_others_took_meanwhile_refuses_it_and_nothing_is_written(tmp_path, finished):
    folder = finished(tmp_path)
    proposal = propose_publication(folder, method="envelope")
    drain(folder, "low", 0.99)
    with pytest.raises(BudgetExhausted, match="account 'group/low'"):
        publish_run(proposal)
    assert publications(folder) == []
    assert not (folder / "publication.json").exists()


def test_costs_that_no_sum_bounds_are_refused_before_anything_is_charged(tmp_path, finished):
    def refused(config, match):
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        folder = finished(tmp_path, config)
        with pytest.raises(ValueError, match=match):
            propose_publication(folder)
        assert publications(folder) == []

    few = replace(CONFIG, mechanism=CONFIDENT, queries=QueriesConfig(n_labels=20))
    refused(few, "number of labels may end: how many are asked then depends on what comes out")
    active = QueriesConfig(n_queries=20, order="active", first=10, per_round=5)
    refused(replace(CONFIG, queries=active), "in which the student took part in the asking")
    leaving = PersonalConfig(
        variant="vanishing", levels={"low": 3.0, "high": 16.0}, shares=TWO["shares"], power=0.5, leave=True
    )
    left = replace(CONFIG, personal=leaving, queries=QueriesConfig(n_queries=60))
    refused(left, "got one that 'low' left")


def test_upsampling_of_many_classes_has_the_papers_form_alone(tmp_path, finished):
    config = replace(
        CONFIG,
        data=DataConfig(name="digits", n_public=60, n_test=60),
        personal=PersonalConfig(variant="upsampling", levels=MUCH, shares=TWO["shares"]),
        budget=BudgetConfig(epsilon=60.0, delta=1e-4),
    )
    folder = finished(tmp_path, config)
    with pytest.raises(ValueError, match=r"Expected two classes, or one ballot per person.*'gnss'"):
        propose_publication(folder)
    assert read_published(folder) is None
    assert publish_run(propose_publication(folder, method="gnss")).covers == "forward direction"


def test_one_at_a_time_is_at_work_in_a_folder(tmp_path, finished):
    folder = finished(tmp_path)
    proposal = propose_publication(folder, method="envelope")
    with RunFolder(folder).held(), pytest.raises(FolderInUse):
        publish_run(proposal)
    assert publications(folder) == []


def test_a_proxy_must_be_alike(tmp_path, finished):
    other = Votes.from_ballots(np.zeros((7, 4), dtype=int), n_classes=2)
    with pytest.raises(ValueError, match="proxy of 20 teachers and 2 classes, got 7 and 2"):
        propose_publication(finished(tmp_path), proxy=other)


def test_exact_costs_are_sealed_and_below_public_ones(tmp_path, finished):
    closed = read_finished(finished(tmp_path))
    assert all(group.exact is None for group in account_for_groups(closed))
    for group in account_for_groups(closed, private=True):
        assert repr(group.exact) == "Sealed(<private>)"
        assert 0 < group.exact.reveal() < group.public == group.on_account
        assert group.n_labels == 20


def test_a_record_of_another_format_is_refused():
    with pytest.raises(ValueError, match="format 1 or 2, got format 3"):
        PublishedCosts.from_dict({"format": 3})


def test_noise_is_secure(tmp_path, finished):
    folder = finished(tmp_path)
    publish_run(propose_publication(folder, method="envelope"))
    assert [entry.event["noise"] for entry in publications(folder)] == [noise.secure().name]
