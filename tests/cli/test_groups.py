"""`tellers publish` and `tellers account` on the folder of a run with budgets per group."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    RunConfig,
    TeachersConfig,
    run,
)

from .. import forked

CONFIG = RunConfig(
    data=DataConfig(name="breast_cancer", n_public=60, n_test=60),
    partition=PartitionConfig(n_teachers=20),
    teachers=TeachersConfig(model="naive_bayes"),
    mechanism=MechanismConfig(name="gnmax", sigma=5.0),
    queries=QueriesConfig(n_queries=20),
    budget=BudgetConfig(epsilon=30.0, delta=1e-4),
    personal=PersonalConfig(
        variant="weighting", levels={"low": 8.0, "[b]high[/b]": 16.0}, shares={"low": 0.5, "[b]high[/b]": 0.5}
    ),
)


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """Return a run that is made once, and not to be changed."""
    folder = tmp_path_factory.mktemp("run") / "study"
    run(CONFIG, folder)
    return folder


@pytest.fixture
def study(once: Path, tmp_path: Path) -> Path:
    """Return a copy of the run."""
    return Path(shutil.copytree(once, tmp_path / "study"))


def tellers(*words: str | Path, answer: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tellers", *map(str, words)]
    return forked.run(command, input=answer, capture_output=True, text=True, timeout=120, check=False)


def test_groups_are_published_once_and_shown_again(study: Path) -> None:
    words = ["publish", study, "--method", "envelope", "--yes", "--json"]
    done = tellers(*words)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert [group["name"] for group in first["groups"]] == ["low", "[b]high[/b]"]
    assert first["drawn"] is True
    assert first["covers"] == "both directions"
    assert json.loads(Path(first["record"]).read_text())["groups"] == first["groups"]
    for group in first["groups"]:
        assert 0 < group["public"] < group["after"] <= group["budget"]
        assert group["charged"] > 0
    ledger = (study / "ledger.db").read_bytes()
    again = json.loads(tellers("publish", study, "--yes", "--json").stdout)
    assert again["drawn"] is False
    assert again["groups"] == first["groups"]
    assert any("Nothing was drawn" in note for note in again["notes"])
    shown = tellers("publish", study)  # what is there is not asked for
    assert shown.returncode == 0, shown.stderr
    assert "Anyone may know" in shown.stdout
    assert "[b]high[/b]" in shown.stdout  # a name, not markup
    assert (study / "ledger.db").read_bytes() == ledger
    books = json.loads(tellers("account", study, "--json").stdout)
    assert [g["published"] for g in books["groups"]] == [g["epsilon_upper"] for g in first["groups"]]
    status = tellers("ledger", "status", study / "ledger.db")
    assert status.returncode == 0, status.stderr
    assert tellers("ledger", "verify", study / "ledger.db").returncode == 0


def test_nothing_is_spent_without_a_yes(study: Path) -> None:
    ledger = (study / "ledger.db").read_bytes()
    done = tellers("publish", study, "--method", "envelope", answer="n\n")
    assert done.returncode == 0
    assert "costs low" in done.stdout
    assert "nothing was spent" in done.stdout.lower()
    refused = tellers("publish", study, "--json")
    assert refused.returncode == 2
    assert "--yes" in json.loads(refused.stderr)["error"]
    assert (study / "ledger.db").read_bytes() == ledger
    assert not (study / "publication.json").exists()


def test_account_tells_each_group_and_private_numbers_only_on_request(once: Path) -> None:
    plain = json.loads(tellers("account", once, "--json").stdout)
    assert plain["variant"] == "weighting"
    assert "private" not in plain
    for group in plain["groups"]:
        assert group["labels"] == 20
        assert group["public"] == group["on_account"] <= group["budget"]
        assert group["published"] is None
    # The plan stands for the run that it lies in.
    assert json.loads(tellers("account", once / "plan.json", "--json").stdout) == plain
    secret = json.loads(tellers("account", once, "--show-private", "--json").stdout)
    for group in secret["groups"]:
        assert 0 < secret["private"]["exact"][group["name"]] < group["public"]
    shown = tellers("account", once, "--show-private").stdout
    assert "private: do not publish" in shown
    assert "exact" not in tellers("account", once).stdout


@pytest.mark.parametrize("verb", ["account", "publish"])
def test_settings_of_the_run_are_not_asked_for_and_those_of_a_file_are(once: Path, verb: str) -> None:
    done = tellers(verb, once, "--delta", "1e-5", "--sigma", "4")
    assert done.returncode == 2
    assert "Expected no --delta and no --sigma with the folder of a run" in done.stderr
    done = tellers(verb, once / "private" / "votes.npz")
    assert done.returncode == 2
    asked = "Expected --mechanism and --delta for a file of votes"
    belongs = "Expected votes that belong to no run"
    assert {"account": asked, "publish": belongs}[verb] in " ".join(done.stderr.split())
    done = tellers(verb, once / "student")
    assert done.returncode == 2
    assert "neither result.json nor config.toml" in done.stderr
    told = " ".join(tellers(verb, "--help").stdout.split())
    assert "{FILE|RUN}" in told
    assert "where people have budgets of their own" in told
