"""A run that asks one Gaussian sum: from settings to one public number, killed and resumed, and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tellers import open_ledger
from tellers.cli import main
from tellers.errors import ConfigError
from tellers.mechanisms import GaussianSum
from tellers.runs import load_student, parse_config, run, write_config
from tellers.runs import sums as sums_module
from tellers.runs.pipeline import run_steps
from tellers.runs.result import read_result

LABELS = """
[data]
name = "made_multilabel"
n_public = 200
n_test = 200
[labels]
names = ["sun", "rain", "wind", "fog", "snow"]
[partition]
n_teachers = 80
[teachers]
model = "auto"
n_jobs = 1
[mechanism]
name = "gaussian-sum"
[budget]
epsilon = 4.0
delta = 1e-5
[student]
model = "auto"
"""
CLASSES = LABELS.replace('"made_multilabel"', '"breast_cancer"').replace(
    '[labels]\nnames = ["sun", "rain", "wind", "fog", "snow"]\n', ""
)


def with_rule(text, rule):
    return parse_config(text.replace("delta = 1e-5", f'delta = 1e-5\nrule = "{rule}"'))


@pytest.fixture
def tellers(capsys):
    """Run a command line, and return its exit code and what it printed."""

    def call(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        code = ended.value.code
        return code, out if code == 0 else err

    return call


@pytest.mark.parametrize("rule", ["renyi", "clock"])
@pytest.mark.parametrize("text", [LABELS, CLASSES], ids=["labels", "classes"])
def test_settings_buy_a_prior_and_a_sum_and_every_place_states_the_same(tmp_path, tellers, text, rule):
    config = with_rule(text, rule)
    result = run(config, tmp_path / "study")
    place = tmp_path / "study"
    with open_ledger(place / "ledger.db") as ledger:
        prior, scores = ledger.entries()
        assert ledger.accountant.rule == rule
        assert ledger.accountant.left(ledger.spent) < 1e-3
        spent = ledger.accountant.epsilon(ledger.spent)
    assert prior.key.endswith("/prior")
    assert scores.key.endswith("/pool")
    assert (prior.event["n_queries"], scores.event["n_queries"]) == (1, 200)
    assert result.mechanism.name == "GaussianSum"
    assert result.mechanism.parameters["sigma"] == scores.event["parameters"]["sigma"]
    assert result.spent.epsilon == pytest.approx(spent)
    assert 3.99 < result.spent.epsilon <= 4.0
    assert result.queries.n_asked == 200
    assert result.student.model == "Ridge, of noisy scores"
    assert read_result(place) == result
    card = (place / "student" / "card.md").read_text()
    assert "Epsilon | 4.00 at delta = 1e-05 (a guarantee)" in card
    assert ("epsilon 4 (clock)" in card) == (rule == "clock")
    assert "GaussianSum" in (place / "report.html").read_text()
    student = load_student(place / "student")
    width = 5 if text is LABELS else 2
    assert student.decision_function(np.zeros((3, result.data.n_features))).shape == (3, width)
    assert (place / "labels.csv").exists() == (text is LABELS)
    assert not (place / "private" / "votes.npz").exists()
    code, told = tellers("account", place, "--json")
    assert code == 0
    assert json.loads(told)["stated"] == pytest.approx(result.spent.epsilon)


def test_a_run_goes_on_where_it_was_killed_and_is_charged_once(tmp_path, monkeypatch):
    config, place = parse_config(LABELS), tmp_path / "study"

    def killed(*_args, **_given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sums_module, "public_directions", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config, place)
    with open_ledger(place / "ledger.db") as ledger:
        [bought] = ledger.entries()
    with pytest.raises(ValueError, match="--resume"):
        run(config, place)
    result = run(config, place, resume=True)
    with open_ledger(place / "ledger.db") as ledger:
        prior, scores = ledger.entries()
    assert prior.key == bought.key
    assert prior.charged.epsilon(1e-5) == bought.charged.epsilon(1e-5)
    paid = [one.charged.epsilon(1e-5) for one in (prior, scores)]
    again = replace(config, student=replace(config.student, model="sklearn.linear_model:LinearRegression"))
    other = run(again, place, resume=True)
    with open_ledger(place / "ledger.db") as ledger:
        assert [one.charged.epsilon(1e-5) for one in ledger.entries()] == paid
    assert other.student.model == "LinearRegression, of noisy scores"
    assert other.spent.epsilon == result.spent.epsilon


def test_a_given_noise_and_a_declared_prior_are_taken_and_less_than_the_budget_is_stated(tmp_path):
    text = LABELS.replace(
        "[budget]", "[sum]\nsigma = 12.0\nprior = [0.2, 0.4, 0.3, 0.4, 0.5]\nn_directions = 10\n[budget]"
    )
    config = parse_config(text)
    assert parse_config(write_config(config)) == config
    assert isinstance(config.build_mechanism(), GaussianSum)
    result = run(config, tmp_path / "study")
    with open_ledger(tmp_path / "study" / "ledger.db") as ledger:
        [only] = ledger.entries()
    assert only.key.endswith("/pool")
    assert result.mechanism.parameters["sigma"] == 12.0
    assert result.spent.epsilon < 1.0


def test_teachers_by_name_score_too(tmp_path):
    text = CLASSES.replace('[teachers]\nmodel = "auto"', '[teachers]\nmodel = "scaled_logistic"')
    assert run(parse_config(text), tmp_path / "study").student.accuracy > 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("budget.epsilon=0.001", "Expected a budget that affords less noise than 80 teachers can say"),
        ("sum.sigma=0.01", "Expected a sum that the budget affords, got sigma = 0.01"),
    ],
)
def test_a_sum_that_is_too_dear_is_refused_before_anything_is_written(tmp_path, tellers, change, words):
    (tmp_path / "sum.toml").write_text(LABELS)
    code, told = tellers("run", tmp_path / "sum.toml", "--out", tmp_path / "study", "--set", change)
    assert code == 2
    assert words in " ".join(told.split())
    assert not (tmp_path / "study" / "config.toml").exists()


def test_what_does_not_go_with_a_sum_is_told_all_at_once():
    text = LABELS.replace('model = "auto"\nn_jobs', 'model = "torch_mlp"\nn_jobs')
    text = text.replace('name = "gaussian-sum"', 'name = "gaussian-sum"\nsigma = 4.0')
    text = text.replace('[student]\nmodel = "auto"', '[student]\nmodel = "forest"')
    text += (
        "[queries]\nn_queries = 9\n[sum]\nprior = [0.1]\nprior_share = 0.2\n[report]\nprivate = true\n"
        '[cluster]\naddress = "local"\n'
    )
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    said = "\n".join(caught.value.problems)
    for key in (
        "teachers.model", "mechanism.sigma", "queries.n_queries", "sum.prior:", "sum.prior_share",
        "student.model", "report.private", "cluster.address",
    ):  # fmt: skip
        assert key in said, key


def test_options_of_a_sum_need_one():
    with pytest.raises(ConfigError) as caught:
        parse_config('[sum]\nsigma = 3.0\n[student]\nmodel = "auto"\n[teachers]\nmodel = "auto"\n')
    assert [one.split(": ")[1] for one in caught.value.problems] == [
        "sum.sigma", "student.model", "teachers.model",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="gaussian-sum where rows have many"):
        parse_config('[data]\nname = "made_multilabel"\n[labels]\nnames = ["sun"]\n')


def test_what_needs_votes_says_that_none_are_kept(tmp_path, tellers):
    config, place = parse_config(CLASSES), tmp_path / "study"
    run(config, place)
    with pytest.raises(ValueError, match="last step of a Gaussian sum"):
        run_steps(config, tmp_path / "other", until="votes")
    for words in (
        ("student", place, "--out", tmp_path / "second"), ("sweep", place), ("publish", place),
        ("audit", place),
    ):  # fmt: skip
        code, told = tellers(*words)
        assert code == 2, words
        assert "Expected a run that asks query by query" in " ".join(told.split()), words
    code, told = tellers("account", place, "--show-private")
    assert code == 0
    assert "no exact cost" in " ".join(told.split())
    assert tellers("report", place)[0] == 0


def test_a_sum_is_planned_and_audited_on_the_command_line(tmp_path, tellers):
    terms = ("--epsilon", 4, "--delta", 1e-5)
    code, told = tellers("plan", "--mechanism", "gaussian-sum", "--teachers", 80, *terms, "--json")
    assert code == 0
    found = json.loads(told)
    assert found["rule"] == "clock"
    assert found["rules"]["clock"] < found["rules"]["renyi"]
    assert found["stated"] == 4.0
    pasted = LABELS[: LABELS.index("[partition]")] + found["toml"]
    assert run(parse_config(pasted), tmp_path / "study").mechanism.parameters["sigma"] == found["sigma"]
    assert "Paste" in tellers("plan", "--mechanism", "gaussian-sum", *terms)[1]
    few = tellers("plan", "--mechanism", "gaussian-sum", "--teachers", 1, *terms)[1]
    assert "a run is refused" in " ".join(few.split())
    code, told = tellers("plan", "--mechanism", "gaussian-sum", "--queries", 9, *terms)
    assert code == 2
    assert "Expected no --queries" in told
    audit = ("audit", "--mechanism", "gaussian-sum", "--delta", 1e-3, "--samples", 2000)
    code, told = tellers(*audit, "--sigma", 2, "--json")
    assert code == 0
    assert 0 < json.loads(told)["epsilon"] < json.loads(told)["claim"]
    assert "An audit can refute" in tellers(*audit, "--sigma", 2)[1]
    assert "Expected --sigma" in tellers(*audit)[1]


def test_the_page_and_the_service_say_that_it_was_a_sum(tmp_path, tellers):
    pytest.importorskip("fastapi")
    place = tmp_path / "study"
    run(parse_config(CLASSES), place)
    page = " ".join((place / "report.html").read_text().split())
    assert "learned from one noisy sum of their scores" in page
    assert "The sum is paid once" in page
    assert (
        "Held at a Rényi order (renyi), by a ledger whose budget was epsilon = 4.00 at delta = 1e-05" in page
    )
    (tmp_path / "service.toml").write_text(f'[data]\nsource = "run"\npath = "{place}"\n')
    code, told = tellers("serve", "--config", tmp_path / "service.toml", "--check")
    assert code == 2
    assert "Expected a run that asks query by query" in " ".join(told.split())
