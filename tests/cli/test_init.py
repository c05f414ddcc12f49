"""`tellers init`, called in process: the file it writes, what it says comes next, what it refuses."""

import json

import pytest

from tellers.cli import main
from tellers.data._records import NAMED
from tellers.runs import default_config, read_config


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


def test_it_writes_settings_for_digits_and_says_what_comes_next(run, tmp_path):
    code, out, err = run("init")
    assert (code, err) == (0, "")
    assert read_config(tmp_path / "tellers.toml") == default_config()
    assert "Wrote tellers.toml: digits, 60 teachers" in out
    assert "tellers run tellers.toml" in out


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_data_set_has_settings(run, tmp_path, name):
    code, out, err = run("init", "my run.toml", "--data", name, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["file"] == "my run.toml"
    assert answer["next"] == "tellers run 'my run.toml'"
    assert bool(answer["to_do"]) == (name not in ("digits", "breast_cancer", "made_multilabel", "synthetic"))
    assert read_config(tmp_path / "my run.toml") == default_config(name)
    assert "tellers run my run.toml" in (tmp_path / "my run.toml").read_text()


def test_for_files_it_says_what_to_fill_in(run):
    code, out, _ = run("init", "--data", "files")
    assert code == 0
    assert "1. In [data]" in out
    assert "3. Run it: tellers run tellers.toml" in out


def test_a_file_that_is_there_stays_unless_forced(run, tmp_path):
    path = tmp_path / "tellers.toml"
    path.write_text("mine")
    code, out, err = run("init")
    assert (code, out) == (2, "")
    assert "is there already" in err
    assert path.read_text() == "mine"
    code, _, err = run("init", "--json")
    assert "is there already" in json.loads(err)["error"]
    assert run("init", "--force")[0] == 0
    assert read_config(path) == default_config()


def test_what_cannot_be_written(run, tmp_path):
    code, out, err = run("init", "nowhere/tellers.toml")
    assert (code, out) == (2, "")
    assert "Nothing was written" in err
    (tmp_path / "study").mkdir()
    code, _, err = run("init", "study", "--force")
    assert code == 2
    assert "Try study" in err
    code, _, err = run("init", "--data", "mnst")
    assert code == 2
    assert "Did you mean mnist?" in err
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_a_disk_that_fails_leaves_the_old_file(run, tmp_path, monkeypatch):
    path = tmp_path / "tellers.toml"
    path.write_text("mine")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = run("init", "--force")
    assert code == 2
    assert "No space left" in err
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["tellers.toml"]


def test_every_mistake_of_settings_is_a_line_of_its_own(capsys, monkeypatch):
    """A verb that reads settings tells all that is wrong with them, where an editor can find it."""
    from tellers.runs import parse_config

    def command(*_args, **_kwargs):
        parse_config("[budget]\nepsilon = 0\ndelta = 3\n", source="run.toml")

    monkeypatch.setattr("tellers.runs.settings.files.default_config", command)
    with pytest.raises(SystemExit) as ended:
        main(["init", "x.toml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "tellers: run.toml:2: budget.epsilon: Expected a number above 0, got 0.",
        "tellers: run.toml:3: budget.delta: Expected a number above 0 and below 1, got 3.",
    ]


@pytest.mark.parametrize(("kind", "section"), [("run", "queries"), ("service", "server"), ("party", "peer")])
def test_it_prints_a_schema_for_editors_and_writes_nothing(run, tmp_path, kind, section):
    code, out, err = run("init", "--schema", kind)
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert section in schema["properties"]
    assert not list(tmp_path.iterdir())
