"""The report of a run in which people have budgets of their own."""

import json

import pytest

from tellers.runs import ModelCard, write_report
from tellers.runs.result import read_result

NASTY = '"><script>alert(1)</script>{{ 7 * 7 }} a.b'


def test_groups_have_a_table_and_a_plot_and_exact_costs_stay_private(grouped, a_group):
    strict = a_group(0, epsilon=1.0, n_queries=20, spent=0.987)
    folder = grouped([strict, a_group(1, epsilon=2.0)], left=[{"name": "level 0", "after": 20}], leave=True)
    page = write_report(folder).read_text()
    n_asked = json.loads((folder / "result.json").read_text())["queries"]["n_asked"]
    assert "Budgets, group by group" in page
    assert f"until 20 of {n_asked}" in page
    assert "0.99" in page  # rounded up
    assert ">Public epsilon of each group over questions; group 1: 0.99 of 1" in page
    assert "var(--group-2)" in page
    assert "exact, private" not in page
    assert "and exact" not in page
    secret = write_report(folder, private=True).read_text()
    assert "Public and exact cost per group" in secret
    assert "exact, private" in secret


def test_a_run_without_groups_has_none(folder):
    assert "group by group" not in write_report(folder).read_text()
    assert read_result(folder).personal is None


def test_names_of_groups_are_text(grouped, a_group):
    page = write_report(grouped([a_group(0, epsilon=1.0, name=NASTY), a_group(1, epsilon=2.0)])).read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_damaged_entry_is_named(grouped, change, a_group):
    folder = grouped([a_group(0, epsilon=1.0)])
    change(folder / "result.json", personal__groups=[{"name": "low"}])
    with pytest.raises(ValueError, match=r"at personal.groups.0.epsilon, got nothing.*changed or damaged"):
        write_report(folder)


def test_the_card_promises_each_group_its_own(grouped, a_group):
    groups = [a_group(0, epsilon=1.0), a_group(1, epsilon=2.0, name="a|b")]
    folder = grouped(groups, left=[{"name": "level 0", "after": 20}])
    card = ModelCard.from_result(json.loads((folder / "result.json").read_text()))
    assert "the more its teachers' ballots count" in card.groups[0]
    assert card.groups[1].startswith(
        "level 0 (100 records): agreed to epsilon = 1, and is held to epsilon = 1.00"
    )
    assert "then its budget was used" in card.groups[1]
    assert "What each group is promised" in card.markdown()
    assert "a\\|b" in card.markdown()
    assert card.as_dict()["groups"] == list(card.groups)
    assert any("treated as public, and so is who takes part" in line for line in card.not_guaranteed)


def test_labels_and_shares_are_told_and_every_cost_in_numbers(grouped, a_group):
    groups = [a_group(0, epsilon=1.0, n_labels=31, budget_left=0.25), a_group(1, epsilon=2.0, n_labels=37)]
    page = write_report(grouped(groups)).read_text()
    assert '<td>75 %</td><td class="roomy">31</td>' in page
    assert ", paid for 31 labels" in page
    assert "Public cost of each group in numbers" in page
    assert "<tr><td>30</td><td>0.68</td><td>1.35</td></tr>" in page  # rounded up
    assert "Published costs" not in page
    # An older result does not say how many labels a group paid for.
    assert ", paid for" not in write_report(grouped([a_group(0, epsilon=1.0)])).read_text()


def test_what_was_published_is_in_the_report(grouped, a_group, a_publication):
    groups = [a_group(0, epsilon=1.0, name=NASTY), a_group(1, epsilon=2.0)]
    folder = grouped(groups)
    record = a_publication(groups)
    (folder / "publication.json").write_text(json.dumps(record))
    page = write_report(folder).read_text()
    assert "Published costs" in page
    assert "95 % confidence" in page
    assert "<strong>0.44</strong>" in page
    assert "<script" not in page
    assert "one direction" not in page
    (folder / "publication.json").write_text(json.dumps({**record, "covers": "forward direction"}))
    assert "one direction of the divergence" in write_report(folder).read_text()
    (folder / "publication.json").write_text(json.dumps({**record, "groups": [{"name": "low"}]}))
    with pytest.raises(ValueError, match=r"at groups.0.budget, got nothing.*Restore the file"):
        write_report(folder)
