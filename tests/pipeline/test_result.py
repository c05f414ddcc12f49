"""The result of a run: written once, read once, whatever version wrote it."""

import copy
import json
from pathlib import Path

import pytest

from tellers.runs import RunResult
from tellers.runs.result import PrivateNumbers, read_result, write_result

TABLE = json.loads((Path(__file__).parents[1] / "report" / "digits" / "result.json").read_text())


def changed(**entries):
    """Return the table of a result with some entries replaced, by dotted path."""
    table = copy.deepcopy(TABLE)
    for path, value in entries.items():
        *way, last = path.split("__")
        part = table
        for step in way:
            part = part[step]
        part[last] = value
    return table


def test_what_is_written_is_what_was_read(tmp_path):
    write_result(tmp_path, RunResult.from_dict(TABLE))
    assert json.loads((tmp_path / "result.json").read_text()) == TABLE
    assert read_result(tmp_path) == RunResult.from_dict(TABLE)


def test_entries_of_another_version_are_kept(tmp_path):
    table = changed(weather="rain", data__origin="a shelf", queries__n_asked=7)
    write_result(tmp_path, RunResult.from_dict(table))
    assert json.loads((tmp_path / "result.json").read_text()) == table


def test_every_wrong_entry_is_named_and_none_is_quoted():
    wrong = changed(
        data__n_test="many secrets", spent__delta=7.25, mechanism__sigma="wide", cost=[{"n_queries": 1.5}]
    )
    del wrong["student"]["model"]
    with pytest.raises(ValueError, match="Expected") as error:
        RunResult.from_dict(wrong)
    words = str(error.value)
    assert "a whole number from 0 at data.n_test, got a str" in words
    assert "a number from 0 to 1 at spent.delta, got another number" in words
    assert "a finite number at mechanism.sigma, got a str" in words
    assert "at cost.0.n_queries, got another number" in words
    assert "at cost.0.epsilon, got nothing" in words
    assert "at student.model, got nothing" in words
    assert not any(value in words for value in ("secrets", "7.25", "wide"))
    assert error.value.__cause__ is error.value.__context__ is None


@pytest.mark.parametrize("missing", ["notes", "n_private"])
def test_null_is_the_default(missing):
    run = RunResult.from_dict(changed(**{f"data__{missing}": None}, cost=None, personal=None, labels=None))
    assert getattr(run.data, missing) in ((), None)
    assert (run.cost, run.labels, run.personal) == ((), (), None)


def test_it_reads_like_the_table_too():
    run = RunResult.from_dict(TABLE)
    assert run["spent"]["epsilon"] == run.spent.epsilon == TABLE["spent"]["epsilon"]
    assert {**run} == run.as_dict() == TABLE
    assert "personal" not in run
    assert set(run) == set(TABLE)


def test_private_numbers_do_not_show_themselves():
    numbers = PrivateNumbers.from_dict({"gaps": [3, 50], "plurality_accuracy": 0.5})
    assert repr(numbers) == str(numbers) == f"{numbers}" == "PrivateNumbers(<private>)"
    with pytest.raises(ValueError, match="Expected") as error:
        PrivateNumbers.from_dict({"gaps": [0.4242], "plurality_accuracy": 4242})
    assert "4242" not in str(error.value)
