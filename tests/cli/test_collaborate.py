"""`tellers collaborate`, as a person and as a script would call it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tellers.cli import main

SMALL = ["--parties", "12", "--rows-each", "15", "--askers", "2"]


def tellers(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tellers", "collaborate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_newcomer_sees_before_and_after_and_which_epsilon_holds(tmp_path):
    done = tellers(*SMALL, "--epsilon", "10", "--epsilon", "20", "--out", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "12 parties with 15 rows each; 2 ask (chosen at random)" in said
    assert "computed in one room, in the clear; the confidential protocol computes the same labels" in said
    assert "The epsilon that holds is a party's" in said
    rows = [line.split() for line in done.stdout.splitlines() if " before " in line]
    assert [row[-2] for row in rows] == ["before"] * 3
    assert [row[0].startswith("party-") for row in rows] == [True, True, False]
    page = (tmp_path / "study" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "no guarantee" in page
    assert "<script" not in page
    result = json.loads((tmp_path / "study" / "collaboration.json").read_text())
    assert [line["epsilon"] for line in result["summary"]] == [0.0, 10.0, 10.0, 20.0, 20.0]
    for line in result["summary"][1:]:
        if line["counting"] == "sound":
            assert line["party"] <= line["epsilon"]


def test_scripts_get_json_and_the_same_again():
    done = tellers("--data", "made", *SMALL, "--which", "weakest", "--repeat", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    result = json.loads(done.stdout)
    assert len(result["repetitions"]) == 2
    assert result["repetitions"][0]["which"] == "weakest"
    assert result["repetitions"][0]["mechanism"]["name"] == "GNThreshold"
    assert set(result["summary"][0]["scores"]) == {"accuracy", "bac", "auc", "map"}
    assert result["command"].startswith("tellers collaborate --epsilon 10 --data made --parties 12")
    again = tellers(*result["command"].split()[2:], "--json")
    assert json.loads(again.stdout) == result


def test_what_is_wrong_is_said_in_one_paragraph(capsys):
    wrong = {
        ("--data", "digit"): "Expected a data set: adult",
        ("--parties", "3", "--askers", "4"): "Expected at most 3 askers",
        ("--mechanism", "binary"): "Expected --mechanism gnmax or confident for one class per row",
        ("--mechanism", "confident"): "For example: --threshold 30",
        ("--threshold", "30"): "Expected no --threshold for --mechanism gnmax",
        ("--parties", "200"): "Take fewer parties, or fewer rows for each of them.",
        ("--epsilon", "-1"): "epsilon",
    }
    for words, message in wrong.items():
        with pytest.raises(SystemExit) as stopped:
            main(["collaborate", *words])
        said = capsys.readouterr()
        assert stopped.value.code == 2, (words, said)
        assert message in said.err
        assert said.err.count("\n") == 1
