"""`tellers collaborate`, as a person and as a script would call it."""

import json

import pytest

from tellers.cli import main

SMALL = ["--parties", "10", "--rows-each", "15", "--askers", "2"]


@pytest.fixture
def tellers(capsys, monkeypatch):
    """Run the command in this process, which has loaded everything, and return code, stdout and stderr."""
    monkeypatch.delenv("TELLERS_DATA", raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as stopped:
            main(["collaborate", *map(str, words)])
        said = capsys.readouterr()
        return stopped.value.code, said.out, said.err

    return run


def test_a_newcomer_sees_before_and_after_and_which_epsilon_holds(tellers, tmp_path):
    code, out, err = tellers(*SMALL, "--epsilon", "10", "--epsilon", "20", "--out", tmp_path / "study")
    assert code == 0, err
    said = " ".join(out.split())
    assert "10 parties with 15 rows each; 2 ask (chosen at random)" in said
    assert "computed in one room, in the clear; the confidential protocol computes the same labels" in said
    assert "The one that holds is a party's: for one record of it, over all askers together." in said
    rows = [line.split() for line in out.splitlines() if " before " in line]
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


def test_scripts_get_json(tellers):
    code, out, err = tellers("--data", "made", *SMALL, "--which", "weakest", "--json")
    assert code == 0, err
    assert not err
    result = json.loads(out)
    assert result["repetitions"][0]["which"] == "weakest"
    assert result["repetitions"][0]["mechanism"]["name"] == "GNThreshold"
    assert set(result["summary"][0]["scores"]) == {"accuracy", "bac", "auc", "map"}
    assert result["command"].startswith("tellers collaborate --epsilon 10 --data made --parties 10")


def test_parties_may_know_some_of_many_labels_each(tellers, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    how = ("--data", "made", *SMALL, "--mechanism", "binary", "--labels-each", "4")
    code, out, err = tellers(*how)
    assert code == 0, err
    # Nothing is cut off in a terminal of usual width.
    assert "…" not in out
    code, out, err = tellers(*how, "--json")
    assert "--labels-each 4" in json.loads(out)["command"]
    for wrong in (("--labels-each", "4"), ("--data", "made", "--labels-each", "400")):
        code, _, err = tellers(*SMALL, *wrong)
        assert code != 0
        assert "--labels-each within the many labels" in " ".join(err.split())


@pytest.mark.campaign
def test_the_command_that_is_written_down_gives_the_same_again(tellers):
    result = json.loads(tellers(*SMALL, "--repeat", "2", "--seed", "5", "--json")[1])
    assert len(result["repetitions"]) == 2
    assert result["seeds"] == [5, 6]
    assert json.loads(tellers(*result["command"].split()[2:], "--json")[1]) == result


def test_what_is_wrong_is_said_in_one_paragraph(tellers):
    wrong = {
        ("--data", "digit"): "Expected a data set: adult",
        ("--data", "yeast"): "Pass --data-dir or set TELLERS_DATA",
        ("--parties", "3", "--askers", "4"): "Expected at most 3 askers",
        ("--mechanism", "binary"): "Expected --mechanism gnmax or confident for one class per row",
        ("--threshold", "30"): "Expected only --sigma for --mechanism gnmax, got --threshold too.",
        ("--parties", "200"): "Take fewer parties, or fewer rows for each of them.",
        ("--epsilon", "-1"): "epsilon",
    }
    for words, message in wrong.items():
        code, out, err = tellers(*words)
        assert code == 2, (words, out, err)
        assert message in err
        assert err.count("\n") == 1


def test_one_sum_for_all_askers(tellers, tmp_path):
    how = ("--data", "made", *SMALL, "--mechanism", "gaussian-sum", "--epsilon", "20")
    code, out, err = tellers(*how, "--out", tmp_path / "study")
    assert code == 0, err
    assert "PoolSum(n_directions=50, weight=None)" in " ".join(out.split())
    assert "the confidential protocol computes the same labels" not in " ".join(out.split())
    assert "infinite" not in out + (tmp_path / "study" / "report.html").read_text()
    result = json.loads((tmp_path / "study" / "collaboration.json").read_text())
    assert [line["counting"] for line in result["summary"]] == ["", "sound"]
    assert result["summary"][1]["party"] <= 20
    code, _, err = tellers(*how, "--sigma", "4")
    assert code == 2
    assert "Expected no --sigma with gaussian-sum" in err
