"""`tellers publish RUN` for every kind of run: charged first, drawn once, kept, shown, refused in words."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, GNMax, RdpCurve, Release, SqliteLedger, Unit, noise
from tellers.accounting import Consensus
from tellers.accounting.exact import exact_epsilons
from tellers.accounting.smooth import PublicationRecord, PublishPlan
from tellers.cli import main
from tellers.ledger import open_ledger
from tellers.privacy.rdp import check_orders
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    load_student,
    propose_publication,
    publish_run,
    run,
)
from tellers.runs import card as export
from tellers.teachers import read_votes, save_votes

from .. import forked, small_runs

CLASSES = replace(
    small_runs.SMALL,
    partition=PartitionConfig(n_teachers=40),
    mechanism=MechanismConfig(name="gnmax", sigma=8.0),
    queries=QueriesConfig(n_queries=40),
)
GROUPS = replace(CLASSES, personal=small_runs.two_groups(8.0, 16.0), queries=QueriesConfig(n_queries=20))
LABELS = replace(
    CLASSES,
    data=DataConfig(name="made_multilabel", n_public=40, n_test=60, options={"n_rows": 1500}),
    labels=LabelsConfig(names=("rain", "wind", "snow")),
    mechanism=MechanismConfig(name="binary", sigma=8.0),
    queries=QueriesConfig(n_queries=20),
)
KINDS = {"classes": CLASSES, "groups": GROUPS, "labels": LABELS}
CONFIDENT = MechanismConfig(name="confident", sigma=8.0, threshold=24.0, sigma_threshold=12.0)
SURE = ["--method", "envelope", "--yes", "--json"]
TOLD = [
    "kind", "epsilon_upper", "groups", "confidence", "order", "method", "delta", "covers", "unit", "queries",
    "drawn", "record", "meaning", "notes",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function that gives a fresh copy of a finished run, made once for all tests."""
    kept: dict[str, Path] = {}

    def copy(to: Path, config: RunConfig = CLASSES) -> Path:
        name = repr(config)
        if name not in kept:
            kept[name] = tmp_path_factory.mktemp("run") / "study"
            run(config, kept[name])
        return Path(shutil.copytree(kept[name], to / "study"))

    return copy


@pytest.fixture
def tellers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


def publications(study, budget=CLASSES.budget):
    with SqliteLedger(study / "ledger.db", Accountant(Budget(budget.epsilon, budget.delta))) as ledger:
        return [entry for entry in ledger.entries() if "Publication" in entry.event["mechanism"]]


def as_json(done):
    code, out, err = done
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_of_the_run_pays_and_everything_tells_of_it(tmp_path, finished, tellers, kind):
    study = finished(tmp_path, KINDS[kind])
    before = json.loads((study / "result.json").read_text())
    first = as_json(tellers("publish", study, *SURE))
    assert list(first) == TOLD
    assert (first["kind"], first["drawn"], first["confidence"]) == (kind, True, 0.95)
    (paid,) = publications(study)
    assert paid.is_settled
    assert len(paid.release) == len(first["groups"])
    assert not paid.release.answered.any()  # a number, and no label of a query
    line = first["groups"][-1]
    names = ["low", "high"] if kind == "groups" else ["everyone"]
    assert [group["name"] for group in first["groups"]] == names
    assert max(group["epsilon_upper"] for group in first["groups"]) == first["epsilon_upper"]
    assert line["public"] < line["after"] <= line["together"] * (1 + 1e-9) <= line["budget"] * (1 + 1e-9)
    # Asked again: the same digits, and nothing on the books moves.
    ledger = (study / "ledger.db").read_bytes()
    again = as_json(tellers("publish", study, "--yes", "--json"))
    assert again["drawn"] is False
    assert {**again, "drawn": 0, "notes": 0} == {**first, "drawn": 0, "notes": 0}
    assert (study / "ledger.db").read_bytes() == ledger
    # Result, card and report have it, beside the public epsilon; the student loads as before.
    result = json.loads((study / "result.json").read_text())
    card = json.loads((study / "student/card.json").read_text())
    kept = json.loads((study / "publication.json").read_text())
    assert result["published"] == card["published"] == kept
    assert kept["groups"] == first["groups"]
    assert result["spent"]["epsilon"] == before["spent"]["epsilon"] == card["epsilon"]
    words = (study / "student/card.md").read_text()
    assert "What was published of the cost" in words
    assert "about the votes at hand" in words
    assert "95 % confidence" in words
    assert "publication itself cost" in words
    page = (study / "report.html").read_text()
    assert "Published costs" in page
    assert "no guarantee for every data set" in page
    assert hasattr(load_student(study / "student"), "predict")
    # For people, and on the account of the run.
    code, out, _ = tellers("publish", study)
    assert code == 0
    for word in ("Anyone may know", "public cost", "on the account now", *names, "votes at hand"):
        assert word in out
    account = as_json(tellers("account", study, "--json"))
    told = account["groups"][-1]["published"] if kind == "groups" else account["published"]
    assert told == line["epsilon_upper"]
    # A run that is gone on with does not forget it.
    resumed = run(KINDS[kind], study, resume=True)
    assert resumed["published"] == kept
    assert resumed["spent"] == result["spent"]
    assert json.loads((study / "student/card.json").read_text())["published"] == kept
    assert "Published costs" in (study / "report.html").read_text()


class _Dies(noise.Noise):
    """Noise at whose draw the process ends."""

    def gaussian(self, *_args, **_named):
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
def test_cut_off_between_charge_and_number_it_is_drawn_and_not_charged_again(
    tmp_path, finished, tellers, monkeypatch, kind
):
    study = finished(tmp_path, KINDS[kind])
    with monkeypatch.context() as patch:
        patch.setattr(noise, "secure", lambda: _Dies(os.urandom))
        assert tellers("publish", study, *SURE)[0] != 0
    (reserved,) = publications(study)
    assert not reserved.is_settled
    assert not (study / "publication.json").exists()
    code, _, err = tellers("publish", study, "--method", "independent", "--yes", "--json")
    assert code == 2
    assert "What was published stays" in err
    second = as_json(tellers("publish", study, "--yes", "--json"))
    assert second["drawn"] is True
    assert "not charged again" in " ".join(second["notes"])
    (paid,) = publications(study)
    assert paid.is_settled
    assert np.array_equal(paid.charged.values, reserved.reserved.values)
    assert as_json(tellers("publish", study, "--yes", "--json"))["groups"] == second["groups"]
    assert "Published costs" in (study / "report.html").read_text()


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        *((kind, "write_result") for kind in KINDS),
        *(("classes", at) for at in ("replace_card", "write_page", "write_json")),
    ],
)
def test_cut_off_after_the_number_was_kept_it_is_shown_and_written(
    tmp_path, finished, tellers, monkeypatch, kind, at
):
    study = finished(tmp_path, KINDS[kind])

    def dies(*_args, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"tellers.runs.publishing.{at}", dies)
        assert tellers("publish", study, *SURE)[0] != 0
    (paid,) = publications(study)
    assert paid.is_settled
    ledger = (study / "ledger.db").read_bytes()

    def no_noise():
        raise AssertionError("Nothing may be drawn.")

    monkeypatch.setattr(noise, "secure", no_noise)
    shown = as_json(tellers("publish", study, "--yes", "--json"))
    assert shown["drawn"] is False
    assert (study / "ledger.db").read_bytes() == ledger
    # The number is the one on the ledger: at its order, with what publishing cost.
    line = shown["groups"][0]
    price, value = line["charged"], int(paid.release.labels[0]) * 1e-6
    there = RdpCurve(np.array([shown["order"]]), np.array([value + price])).epsilon(1e-4)
    assert line["epsilon_upper"] == pytest.approx(there, rel=1e-12)
    kept = json.loads((study / "publication.json").read_text())
    assert json.loads((study / "result.json").read_text())["published"] == kept
    assert json.loads((study / "student/card.json").read_text())["published"] == kept
    assert "Published costs" in (study / "report.html").read_text()
    assert as_json(tellers("publish", study, "--yes", "--json"))["groups"] == shown["groups"]


@pytest.mark.campaign
def test_killed_for_good_at_the_draw(tmp_path, finished, tellers):
    study = finished(tmp_path)
    dies = (
        "import os, signal, sys; from tellers import noise; from tellers.cli import main\n"
        "noise.Noise.gaussian = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main(['publish', sys.argv[1], '--method', 'envelope', '--yes', '--json'])"
    )
    done = forked.run([sys.executable, "-c", dies, str(study)], check=False, capture_output=True)
    assert done.returncode == -9
    (reserved,) = publications(study)
    assert not reserved.is_settled
    shown = as_json(tellers("publish", study, "--yes", "--json"))
    (paid,) = publications(study)
    assert np.array_equal(paid.charged.values, reserved.charged.values)
    assert as_json(tellers("publish", study, "--yes", "--json"))["groups"] == shown["groups"]


def test_a_card_that_was_half_written_is_repaired(tmp_path, finished, tellers, monkeypatch):
    study = finished(tmp_path)
    before, real = (study / "student/student.skops").read_bytes(), export.write_whole

    def dies(path, *args, **named):
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        return real(path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(export, "write_whole", dies)
        assert tellers("publish", study, *SURE)[0] != 0
    told = as_json(tellers("publish", study, "--yes", "--json"))
    assert told["drawn"] is False
    assert json.loads((study / "student/card.json").read_text())["published"]["groups"] == told["groups"]
    assert hasattr(load_student(study / "student"), "predict")
    assert (study / "student/student.skops").read_bytes() == before


def test_nothing_is_spent_without_a_yes_and_json_is_not_asked(tmp_path, finished, tellers, monkeypatch):
    study = finished(tmp_path)
    ledger = (study / "ledger.db").read_bytes()
    monkeypatch.setattr("typer.confirm", lambda *_args, **_named: False)
    shown = tellers("publish", study, "--method", "envelope")[1]
    assert "the ledger of the run" in shown
    assert "nothing was spent" in shown
    assert tellers("publish", study, "--json")[0] == 2
    free = as_json(tellers("publish", study, "--method", "independent", "--yes", "--json"))
    assert free["record"] is None
    assert free["groups"][0]["epsilon_upper"] == pytest.approx(free["groups"][0]["public"])
    assert (study / "ledger.db").read_bytes() == ledger
    assert not (study / "publication.json").exists()
    assert "tellers publish study" in tellers("publish", "--help")[1]


MECHANISMS = {
    "gnmax": (CLASSES.mechanism, ["--method", "envelope"]),
    "gnmax, as in the papers": (CLASSES.mechanism, ["--method", "gnss"]),
    "lnmax": (MechanismConfig(name="lnmax", gamma=0.2), ["--method", "gnss"]),
    "confident": (CONFIDENT, ["--method", "envelope"]),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_with_a_publishable_cost(tmp_path, finished, tellers, name):
    mechanism, how = MECHANISMS[name]
    config = replace(CLASSES, mechanism=mechanism, budget=BudgetConfig(epsilon=60.0, delta=1e-4))
    study = finished(tmp_path, config)
    told = as_json(tellers("publish", study, *how, "--confidence", 0.999999, "--yes", "--json"))
    assert len(publications(study, config.budget)) == 1
    (line,) = told["groups"]
    assert told["covers"] == ("forward direction" if "gnss" in how else "both directions")
    assert ("one direction" in " ".join(told["meaning"])) == ("gnss" in how)
    # An upper value, of all queries that were asked: false alarms once in a million.
    with np.load(study / "labels.npz") as kept:
        rows = kept["rows"]
    votes = read_votes(study / "private/votes.npz", n_classes=2).votes[rows]
    if "gnss" not in how:
        exact = exact_epsilons(config.build_mechanism(), votes, delta=1e-4).reveal()[-1]
        assert exact <= line["epsilon_upper"]
    assert line["together"] <= 60.0
    if name == "confident":
        # What came out is no guarantee: held to is what all queries would have cost, had all been answered.
        assert line["together"] > line["after"]


def test_where_there_is_no_release_the_public_price_is_told(tmp_path, finished, tellers):
    config = replace(CLASSES, mechanism=MechanismConfig(name="lnmax", gamma=0.2))
    study = finished(tmp_path, config)
    told = as_json(tellers("publish", study, "--yes", "--json"))
    assert (told["method"], told["record"]) == ("independent", None)
    assert "--method gnss" in " ".join(told["notes"])
    assert publications(study) == []


def test_a_budget_that_cannot_pay_refuses_before_anything_is_drawn(tmp_path, finished, tellers, monkeypatch):
    one = GNMax(8.0).price(Unit())
    just_enough = BudgetConfig(epsilon=(20 * one).epsilon(1e-4) * (1 + 1e-9), delta=1e-4)
    study = finished(tmp_path, replace(CLASSES, budget=just_enough, queries=QueriesConfig()))
    assert json.loads((study / "result.json").read_text())["queries"]["stopped_by"] == "the budget"
    ledger = (study / "ledger.db").read_bytes()
    monkeypatch.setattr(noise.Noise, "gaussian", lambda *_a, **_k: pytest.fail("Drawn."))
    for how in ([], ["--method", "envelope"]):
        code, out, err = tellers("publish", study, *how, "--yes", "--json")
        assert (code, out) == (2, "")
        assert "room for a publication" in err
        assert "Nothing was charged" in err
    assert (study / "ledger.db").read_bytes() == ledger


INTERACTIVE = replace(
    CLASSES,
    mechanism=MechanismConfig(
        name="interactive", sigma=8.0, threshold=10.0, sigma_threshold=12.0, student_confidence=0.9
    ),
    queries=QueriesConfig(n_queries=20, warm_up=10, warm_up_threshold=24.0, per_round=5),
)
REFUSED = {
    "the student took part": replace(
        CLASSES, queries=QueriesConfig(n_queries=20, order="active", first=10, per_round=5)
    ),
    "interactive mechanism": INTERACTIVE,
    'stop = "private"': replace(
        CLASSES, budget=BudgetConfig(epsilon=30.0, delta=1e-4, stop="private", private_epsilon=3.0)
    ),
    "ended by the budget": replace(
        CLASSES, mechanism=CONFIDENT, queries=QueriesConfig(), budget=BudgetConfig(epsilon=3.0, delta=1e-4)
    ),
    # Five labels are of one class in a quarter of runs, and then there is nothing to learn from.
    "ended by the number of labels": replace(
        CLASSES, mechanism=CONFIDENT, queries=QueriesConfig(n_labels=25)
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_sum_along_the_path_is_refused_in_words(tmp_path, finished, tellers, why):
    study = finished(tmp_path, REFUSED[why])
    ledger = (study / "ledger.db").read_bytes()
    code, out, err = tellers("publish", study, "--yes", "--json")
    assert (code, out) == (2, "")
    words = " ".join(json.loads(err)["error"].split()) if err.lstrip().startswith("{") else err
    assert why in words
    assert "Nothing was charged" in words
    assert (study / "ledger.db").read_bytes() == ledger
    assert not (study / "publication.json").exists()


def test_answers_that_happened_to_be_given_are_not_summed_up(tmp_path, finished, tellers):
    study = finished(tmp_path, replace(CLASSES, mechanism=CONFIDENT))
    code, _, err = tellers("publish", study, "--method", "gnss", "--yes", "--json")
    assert code == 2
    assert "along the path" in err
    assert publications(study) == []


@pytest.mark.parametrize("kind", KINDS)
def test_votes_of_a_run_do_not_go_around_its_ledger(tmp_path, finished, tellers, kind):
    study = finished(tmp_path, KINDS[kind])
    ledger = (study / "ledger.db").read_bytes()
    (tmp_path / "elsewhere.npz").symlink_to(study / "private/votes.npz")
    how = ["--mechanism", KINDS[kind].mechanism.name, "--sigma", 8, "--delta", 1e-4, "--yes", "--json"]
    for path in (study / "private/votes.npz", tmp_path / "elsewhere.npz"):
        code, out, err = tellers("publish", path, *how, "--record", tmp_path / "record.jsonl")
        assert (code, out) == (2, "")
        assert f"tellers publish {study}" in err
    assert (study / "ledger.db").read_bytes() == ledger
    assert list(study.rglob("*.publications.jsonl")) == []
    assert not (tmp_path / "record.jsonl").exists()
    # A copy that belongs to no run is a file like any other.
    shutil.copy(study / "private/votes.npz", tmp_path / "copy.npz")
    assert tellers("publish", tmp_path / "copy.npz", *how, "--method", "independent")[0] == 0


def test_what_was_charged_to_a_file_beside_the_votes_is_charged_to_the_ledger(tmp_path, finished, tellers):
    study = finished(tmp_path)
    plan = PublishPlan("envelope", 12.0, 0.005, 30.0, confidence=0.95, expected_epsilon=1.0)
    record = PublicationRecord(study / "private/votes.npz.publications.jsonl")
    record.charge(GNMax(8.0), plan, delta=1e-4, noise=noise.secure())
    record.charge(GNMax(8.0), plan, delta=1e-4, noise=noise.secure())
    told = as_json(tellers("publish", study, *SURE))
    assert "on no ledger" in " ".join(told["notes"])
    (paid,) = publications(study)
    at = int(np.flatnonzero(paid.charged.orders == 12.0)[0])
    own = PublishPlan(**paid.event["parameters"]).price_to(1.0, order=12.0)
    assert paid.charged.values[at] == pytest.approx(own + 2 * plan.price)
    assert paid.event["before"]["everyone"] == pytest.approx(2 * plan.price_to(1.0, order=told["order"]))


def test_a_ledger_that_others_use_too(tmp_path, tellers):
    config = replace(CLASSES, budget=BudgetConfig(epsilon=30.0, delta=1e-4, ledger="../shared.db"))
    for name in ("one", "two"):
        run(config, tmp_path / name)
    told = as_json(tellers("publish", tmp_path / "two", *SURE))
    (line,) = told["groups"]
    assert line["together"] == 30.0  # others spend from it, and what they do hangs on what comes out
    assert line["public"] < line["after"]
    assert "not the others" in " ".join(told["meaning"])
    with SqliteLedger(tmp_path / "shared.db", Accountant(Budget(30.0, 1e-4))) as ledger:
        keys = [e.key for e in ledger.entries() if e.event["mechanism"] == "Publication"]
    assert keys == [f"{(tmp_path / 'two/key.txt').read_text()}:publication/0"]
    assert as_json(tellers("publish", tmp_path / "one", *SURE))["drawn"] is True
    assert as_json(tellers("publish", tmp_path / "two", "--yes", "--json"))["groups"] == [line]


def test_where_others_spend_too_the_budget_ends_a_run_at_an_outcome(tmp_path, tellers):
    config = replace(CLASSES, budget=BudgetConfig(epsilon=4.0, delta=1e-4, ledger="../shared.db"))
    run(replace(config, queries=QueriesConfig(n_queries=20)), tmp_path / "one")
    run(replace(config, queries=QueriesConfig()), tmp_path / "two")
    code, _, err = tellers("publish", tmp_path / "two", "--yes", "--json")
    assert code == 2
    assert "ended by the budget" in err


def test_of_two_who_draw_at_once_the_ledger_takes_one(tmp_path, tellers, monkeypatch):
    config = replace(CLASSES, budget=BudgetConfig(epsilon=30.0, delta=1e-4, ledger="../shared.db"))
    run(config, tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")  # another machine's copy of the same run
    draw, other = noise.Noise.gaussian, []

    def overtaken(self, *args, **named):
        if not other:
            other.append(None)
            other.append(publish_run(propose_publication(tmp_path / "there")))
        return draw(self, *args, **named)

    monkeypatch.setattr(noise.Noise, "gaussian", overtaken)
    told = as_json(tellers("publish", tmp_path / "here", *SURE))
    assert told["groups"] == other[1].as_dict()["groups"]
    with SqliteLedger(tmp_path / "shared.db", Accountant(Budget(30.0, 1e-4))) as ledger:
        assert [e.event["mechanism"] for e in ledger.entries()].count("Publication") == 1


@pytest.mark.campaign
def test_a_ledger_in_postgresql(tmp_path, tellers, postgres, own_database, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    url = own_database.replace(f":{postgres.password}@", "@")
    config = replace(CLASSES, budget=BudgetConfig(epsilon=30.0, delta=1e-4, ledger=url))
    run(config, tmp_path / "study")
    with monkeypatch.context() as patch:
        patch.setattr(noise, "secure", lambda: _Dies(os.urandom))
        assert tellers("publish", tmp_path / "study", *SURE)[0] != 0
    told = as_json(tellers("publish", tmp_path / "study", "--yes", "--json"))
    with open_ledger(url, Accountant(Budget(30.0, 1e-4))) as ledger:
        (paid,) = [e for e in ledger.entries() if e.event["mechanism"] == "Publication"]
    assert paid.is_settled
    assert as_json(tellers("publish", tmp_path / "study", "--yes", "--json"))["groups"] == told["groups"]


def test_a_file_that_tells_another_number_than_the_ledger_is_refused(tmp_path, finished, tellers):
    study = finished(tmp_path)
    told = as_json(tellers("publish", study, *SURE))
    kept = json.loads((study / "publication.json").read_text())
    kept["groups"][0]["epsilon_upper"] /= 2
    (study / "publication.json").write_text(json.dumps(kept))
    code, _, err = tellers("publish", study, "--yes", "--json")
    assert code == 2
    assert "Move it away" in err
    (study / "publication.json").unlink()
    assert as_json(tellers("publish", study, "--yes", "--json"))["groups"] == told["groups"]


def test_a_ledger_that_is_gone_is_not_begun_anew(tmp_path, finished, tellers):
    study = finished(tmp_path)
    (study / "ledger.db").unlink()
    code, _, err = tellers("publish", study, *SURE)
    assert code == 2
    assert "Restore it" in err
    assert not (study / "ledger.db").exists()


def test_what_an_earlier_version_told_of_many_labels_stays(tmp_path, finished, tellers):
    study = finished(tmp_path, LABELS)
    plan = PublishPlan("envelope", 4.0, 0.01, 10.0, confidence=0.95, expected_epsilon=2.0)
    grid = check_orders(None)
    price = RdpCurve(grid, np.array([plan.price_to(1.0, order=float(order)) for order in grid]))
    key = (study / "key.txt").read_text()
    event = {"mechanism": "Publication", "parameters": vars(plan), "noise": "secure", "n_queries": 0}
    with SqliteLedger(study / "ledger.db", Accountant(Budget(30.0, 1e-4))) as ledger:
        ticket = ledger.reserve(f"{key}:publication/0", price, event=event)
        ledger.settle(ticket, Release(np.empty(0, dtype=np.int64), Cost(price)))
    kept = {
        "format": 1, "epsilon_upper": 2.5, "delta": 1e-4, "confidence": 0.95, "order": 4.0,
        "method": "envelope", "charged": plan.price, "covers": "both directions",
    }  # fmt: skip
    (study / "published.json").write_text(json.dumps(kept))
    told = as_json(tellers("publish", study, "--yes", "--json"))
    assert (told["drawn"], told["epsilon_upper"]) == (False, 2.5)
    assert json.loads((study / "result.json").read_text())["published"]["groups"] == told["groups"]
    assert len(publications(study)) == 1


def test_the_example_of_the_help(tmp_path, finished, tellers, monkeypatch):
    finished(tmp_path)
    monkeypatch.chdir(tmp_path)
    save_votes("public_votes.npz", Consensus().votes(40, 2, n_queries=50, seed=7)[0])
    words = ["publish", "study", "--confidence", "0.99", "--proxy", "public_votes.npz", "--yes", "--json"]
    assert as_json(tellers(*words))["confidence"] == 0.99
    save_votes("other.npz", Consensus().votes(20, 2, n_queries=50, seed=7)[0])
    (tmp_path / "fresh").mkdir()
    fresh = finished(tmp_path / "fresh")
    code, _, err = tellers("publish", fresh, "--proxy", "other.npz", "--yes", "--json")
    assert code == 2
    assert "a proxy of 40 teachers and 2 classes" in err
