"""`tellers account` and `tellers publish` on votes with many labels."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tellers import Binary, GNThreshold, LabelVotes, PartialPowerset, Tau
from tellers.accounting import LabelConsensus, account
from tellers.cli import main, options
from tellers.mechanisms import LABEL_MECHANISMS
from tellers.teachers import save_votes

DELTA = ["--delta", "1e-5"]
VOTES = LabelConsensus().votes(50, 4, n_queries=30, seed=7)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tags.npz"
    save_votes(path, VOTES)
    return path


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


@pytest.fixture
def books(run):
    def call(*words):
        code, out, err = run("account", *words, *DELTA, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def words_for(name):
    """The example that an error would give."""
    with pytest.raises(ValueError, match="For example") as caught:
        options.require_parameters(name, {})
    return ["--mechanism", name, *shlex.split(str(caught.value).partition("For example: ")[2])]


@pytest.mark.parametrize("name", sorted(LABEL_MECHANISMS))
def test_every_mechanism_is_priced_public_beside_private(name, file, books):
    answer = books(file, *words_for(name), "--show-private")
    assert (answer["queries"], answer["teachers"], answer["labels"]) == (30, 50, 4)
    assert answer["public"]["method"] == "labels-rdp"
    assert answer["private"]["exact"]["epsilon"] <= answer["public"]["epsilon"]
    assert "private" not in books(file, *words_for(name))


def test_the_numbers_are_those_of_the_library(file, books):
    for words, mechanism in (
        (["--mechanism", "binary", "--sigma", 9], Binary(9.0, 4)),
        (["--mechanism", "tau", "--sigma", 9, "--max-norm", 2, "--norm", "l1"], Tau(9.0, 4, 2.0, "l1")),
        (
            ["--mechanism", "gnthreshold", "--sigma", 9, "--share", "0.3,0.4,0.5,0.6", "--max-labels", 2],
            GNThreshold(9.0, 4, (0.3, 0.4, 0.5, 0.6), 2),
        ),
        (
            ["--mechanism", "partial-powerset", "--sigma", 9, "--groups", "0,3;1,2"],
            PartialPowerset(9.0, 4, ((0, 3), (1, 2))),
        ),
    ):
        expected = account(mechanism, VOTES, delta=1e-5)
        answer = books(file, *words, "--show-private")
        assert answer["public"]["epsilon"] == expected.public.epsilon
        assert answer["private"]["exact"]["epsilon"] == expected.private.reveal().exact_epsilon


def test_people_see_the_same(file, run):
    code, out, _ = run("account", file, *words_for("confident-binary"), *DELTA, "--show-private")
    assert code == 0
    assert "30 queries by 50 teachers on 4 labels each" in out
    for word in ("labels-rdp", "sums-rdp", "sums-gdp", "private: do not publish", "exact"):
        assert word in out


def test_probabilities_are_counted_in_parts_or_turned_into_votes(tmp_path, books, run):
    rng = np.random.default_rng(3)
    shares = rng.random((9, 5, 3))
    path = tmp_path / "shares.npz"
    np.savez(path, label_ballots=shares)
    parts = books(path, "--mechanism", "gnthreshold", "--sigma", 3, "--resolution", 100, "--show-private")
    expected = account(
        GNThreshold(3.0, 3, resolution=100),
        LabelVotes.from_ballots(shares, n_labels=3, resolution=100),
        delta=1e-5,
    )
    assert parts["private"]["exact"]["epsilon"] == expected.private.reveal().exact_epsilon
    votes = books(path, "--mechanism", "powerset", "--sigma", 3, "--label-threshold", 0.4)
    assert votes["labels"] == 3
    code, out, err = run("account", path, "--mechanism", "binary", "--sigma", 3, *DELTA)
    assert (code, out) == (2, "")
    assert "Expected 0 or 1 in ballots" in err
    save_votes(path, LabelVotes.from_ballots(shares, n_labels=3, resolution=100))
    kept = books(path, "--mechanism", "gnthreshold", "--sigma", 3, "--show-private")
    assert kept["private"] == parts["private"]
    code, _, err = run("account", path, "--mechanism", "tau", "--sigma", 3, "--max-norm", 1, *DELTA)
    assert code == 2
    assert "Expected ballots of 0 and 1 for --mechanism tau" in err


def test_sparse_files_and_masks(tmp_path, books, file):
    dense = books(file, *words_for("confident-binary"), "--show-private")
    ballots = VOTES.block()
    sparse = LabelVotes.from_ballots([csr_array(one) for one in ballots], n_labels=4)
    path = tmp_path / "sparse.npz"
    save_votes(path, sparse)
    assert books(path, *words_for("confident-binary"), "--show-private") == dense
    save_votes(path, sparse, answered=np.arange(120).reshape(30, 4) % 3 == 0)
    masked = books(path, *words_for("confident-binary"), "--show-private")
    assert masked["public"] == dense["public"]
    assert masked["charged"]["epsilon"] < dense["public"]["epsilon"]
    assert masked["private"]["published"]["kind"] == "realised"
    assert masked["private"]["exact"] == dense["private"]["exact"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mechanism", "tau", "--sigma", "9"], "Expected --max-norm for --mechanism tau"),
        (["--mechanism", "binary", "--sigma", "9", "--max-norm", "2"], "got --max-norm too"),
        (["--mechanism", "gnmax", "--sigma", "9"], "got votes on many labels"),
        (["--mechanism", "gnmax", "--sigma", "9", "--share", "0.4"], "got --share too"),
        (["--mechanism", "binary", "--sigma", "9", "--classes", "4"], "Expected no --classes"),
        (["--mechanism", "partial-powerset", "--sigma", "9", "--groups", "a"], "for --groups, got 'a'"),
        (["--mechanism", "partial-powerset", "--sigma", "9", "--groups", "0,9"], "groups of labels 0..3"),
        (["--mechanism", "gnthreshold", "--sigma", "9", "--share", "1.5"], "strictly between 0 and 1"),
        (["--mechanism", "tau", "--sigma", "9", "--max-norm", "-1"], "Expected max_norm > 0"),
        (["--mechanism", "binary", "--sigma", "9", "--resolution", "7"], "counted with, 1, got 7"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(words, said, file, run):
    for verb in ("account", "publish"):
        code, out, err = run(verb, file, *words, *DELTA, "--json", *(["--yes"] if verb == "publish" else []))
        assert (code, out) == (2, "")
        assert said in json.loads(err)["error"]
    assert not list(file.parent.glob("*.jsonl"))


def test_files_that_are_not_votes_on_labels(tmp_path, run):
    path = tmp_path / "other.npz"
    for arrays, said in (
        ({"ballots": [[0, 1]]}, "got votes for one class per query"),
        ({"label_ballots": [[0, 1]]}, "(teachers, queries, labels)"),
        ({"label_ballots": [[[0, 2]]]}, "Expected ballots in [0, 1]"),
        ({"label_sums": [[3]]}, "got none of them"),
        ({"label_ballots": [[[0, 1]]], "answered": [True]}, "one True or False per query and label"),
        (
            {"label_data": [1], "label_indices": [5], "label_indptr": [0, 1], "label_shape": [1, 1, 2]},
            "below the number of labels",
        ),
    ):
        np.savez(path, **arrays)
        code, _, err = run("account", path, "--mechanism", "binary", "--sigma", "9", *DELTA)
        assert code == 2
        assert said in " ".join(err.split())


def test_publishing_plans_on_public_votes_and_keeps_its_record(file, tmp_path, run):
    proxy = tmp_path / "proxy.npz"
    save_votes(proxy, LabelConsensus().votes(50, 4, n_queries=50, seed=8))
    words = ["publish", file, "--mechanism", "gnthreshold", "--sigma", 12, "--share", "0.4,0.5,0.5,0.5"]
    words += [*DELTA, "--method", "envelope", "--proxy", proxy, "--yes", "--json"]
    code, out, _ = run(*words)
    assert code == 0
    first = json.loads(out)
    assert (first["method"], first["covers"], first["confidence"]) == ("envelope", "both directions", 0.95)
    assert first["epsilon_upper"] > 0
    code, out, _ = run(*words)
    second = json.loads(out)
    assert code == 0
    assert second["order"] == first["order"]
    lines = [json.loads(line) for line in Path(first["record"]).read_text().splitlines()]
    assert [line["entry"] for line in lines] == ["charged", "published"] * 2
    save_votes(proxy, LabelConsensus().votes(50, 3, n_queries=50, seed=8))
    words[words.index("--proxy") + 1 :] = [proxy, "--record", tmp_path / "new.jsonl", "--yes", "--json"]
    code, _, err = run(*words)
    assert code == 2
    assert "a proxy of 50 teachers and 4 labels, got 50 and 3" in json.loads(err)["error"]


def test_without_a_proxy_it_says_what_was_assumed(file, run):
    code, out, _ = run(
        "publish", file, "--mechanism", "tau", "--sigma", 9, "--max-norm", 1.5, *DELTA, "--yes"
    )
    assert code == 0
    shown = " ".join(out.split())
    assert "LabelConsensus(" in shown
    assert "It holds whatever the votes were" in shown
    code, _, err = run(
        *["publish", file, "--mechanism", "powerset", "--sigma", 9, *DELTA, "--method", "envelope", "--yes"]
    )
    assert code == 2
    assert "Expected one of independent to publish the cost of Powerset" in " ".join(err.split())
