"""`tellers sweep` over the votes of any run: classes, labels, and pools whose truth is not known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers import GNMax, GNThreshold, LabelVotes, Votes
from tellers.accounting import public_cost
from tellers.cli import main
from tellers.runs import DataConfig, PersonalConfig, default_config, with_absolute_paths, write_config
from tellers.runs._tables import read_tables
from tellers.teachers import save_votes

N = 12


@pytest.fixture
def tellers(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


def write_run(folder, config, votes):
    """Write as much of a run as there is once the teachers have voted."""
    (folder / "private").mkdir(parents=True)
    (folder / "config.toml").write_text(write_config(with_absolute_paths(config)))
    save = save_votes
    save(folder / "private" / "votes.npz", votes)
    return folder


def of_classes(folder):
    """A run of twelve teachers on classes, three of which are wrong about every row."""
    data = DataConfig(name="breast_cancer", n_public=30, n_test=10)
    config = replace(default_config("breast_cancer"), data=data)
    pool_y = read_tables(config).pool_y
    ballots = np.repeat(pool_y[None], N, axis=0)
    ballots[:3] = 1 - ballots[:3]
    return write_run(folder, config, Votes.from_ballots(ballots, n_classes=2))


def of_labels(folder):
    """A run of twelve teachers on many labels, all of which are right."""
    config = default_config("made_multilabel")
    config = replace(config, data=replace(config.data, n_public=20))
    ballots = np.repeat(read_tables(config).pool_y[None], N, axis=0)
    return write_run(folder, config, LabelVotes.from_ballots(ballots, n_labels=ballots.shape[2]))


@pytest.mark.parametrize("make", [of_classes, of_labels])
def test_prices_are_told_and_scores_are_for_the_operator(tellers, tmp_path, make):
    study = make(tmp_path / "study")
    code, out, err = tellers("sweep", study, "--sigma", "0.2,0.4", "--check", "none,0.6:0.5", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["private"] is False
    assert all("accuracy" not in row and "exact_epsilon" not in row for row in told["rows"])
    page = Path(told["page"])
    assert page == study / "private" / "sweep.html"
    assert page.stat().st_mode & 0o077 == 0
    assert all(words in page.read_text() for words in ("PRIVATE", "without noise", "How likely labels flip"))
    if make is of_classes:
        price = public_cost(GNMax(0.2 * N), 30, delta=1e-4)
    else:
        price = public_cost(GNThreshold(0.2 * N, n_labels=5, share=0.3), 20, delta=1e-4)
    assert told["rows"][0]["public_epsilon"] == pytest.approx(price.epsilon)
    seen = json.loads(tellers("sweep", study, "--sigma", "0.01", "--show-private", "--json")[1])["rows"][0]
    assert seen["accuracy"] == 1.0
    assert seen["exact_epsilon"] <= seen["public_epsilon"] * (1 + 1e-9)
    code, out, _ = tellers("sweep", study, "--sigma", "0.2")
    assert (code, "release that nobody paid for" in " ".join(out.split())) == (0, True)


def test_without_the_truth_there_are_costs_alone(tellers, tmp_path):
    rows = "\n".join(f"{i},{i % 2}" for i in range(40))
    (tmp_path / "private.csv").write_text(f"x,y\n{rows}\n")
    (tmp_path / "public.csv").write_text("x\n" + "\n".join(map(str, range(10))) + "\n")
    data = DataConfig(
        name="files", private="private.csv", public="public.csv", target="y", classes=("0", "1"),
        folder=str(tmp_path),
    )  # fmt: skip
    votes = Votes.from_counts([[9, 3]] * 10, n_teachers=N)
    study = write_run(tmp_path / "study", replace(default_config("files"), data=data), votes)
    told = json.loads(tellers("sweep", study, "--sigma", "0.2", "--show-private", "--json")[1])
    assert told["rows"][0]["accuracy"] is None
    assert told["rows"][0]["exact_epsilon"] > 0
    page = Path(told["page"]).read_text()
    assert ("What each setting costs" in page, "without noise" in page) == (True, False)


def test_what_cannot_be_swept_is_refused(tellers, tmp_path):
    classes, labels = of_classes(tmp_path / "classes"), of_labels(tmp_path / "labels")
    groups = replace(
        default_config("breast_cancer"),
        personal=PersonalConfig(
            variant="weighting", levels={"a": 1.0, "b": 2.0}, shares={"a": 0.5, "b": 0.5}
        ),
    )
    write_run(tmp_path / "groups", groups, Votes.from_counts([[9, 3]], n_teachers=N))
    (classes / "private" / "votes.npz").rename(tmp_path / "votes.npz")
    for words, said in (
        ((classes,), "go on with it, tellers run"),
        ((tmp_path / "groups",), "with one budget for all"),
        ((tmp_path / "nowhere",), "Expected the folder of a run, found none"),
        ((labels, "--sigma", "much"), "Expected numbers such as 0.1,0.3 for --sigma"),
        ((labels, "--check", "0.6"), "Expected none, or checks such as 0.6:0.5"),
        ((labels, "--samples", "few"), "Expected whole numbers such as 0,100 for --samples"),
        ((labels, "--out", tmp_path), "Expected a file for --out"),
    ):
        code, out, err = tellers("sweep", *words)
        assert (code, out, said in " ".join(err.split())) == (2, "", True), err
    (tmp_path / "votes.npz").rename(classes / "private" / "votes.npz")
    code, _, err = tellers("sweep", labels, classes)
    assert (code, "got both" in " ".join(err.split())) == (2, True)
    code, _, err = tellers("sweep", classes, "--share", "0.3", "--max-labels", 2)
    assert (code, "Expected no --share or --max-labels" in " ".join(err.split())) == (2, True)
