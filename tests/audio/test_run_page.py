"""The page of sound that `tellers run` writes beside its report."""

from dataclasses import replace

import numpy as np
import pytest

from tellers.audio.run_page import write_run_sound
from tellers.cli import main
from tellers.config import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from tellers.config.writing import write_config
from tellers.pipeline import run
from tellers.pipeline.data import Tables
from tellers.pipeline.label_data import LabelTables

NAMES = ("siren", "bell", "engine")


def config_of(folder, *, one, by="record", n_test=10):
    return RunConfig(
        data=DataConfig(
            name="clips", private="clips", folder=str(folder), classes=NAMES * one, n_public=20, n_test=n_test
        ),
        labels=LabelsConfig() if one else LabelsConfig(names=NAMES),
        partition=PartitionConfig(n_teachers=5, by=by),
        teachers=TeachersConfig(model="logistic", n_jobs=1),
        mechanism=MechanismConfig(name="gnmax" if one else "gnthreshold", sigma=0.1),
        budget=BudgetConfig(epsilon=1e6, delta=1e-3), queries=QueriesConfig(n_queries=20),
        student=StudentConfig(model="logistic"),
    )  # fmt: skip


@pytest.mark.parametrize("by", ["record", "person"])
@pytest.mark.parametrize("one", [False, True])
def test_the_page_shows_the_test_clips_of_the_run_and_no_private_one(
    made_clips, tmp_path, monkeypatch, no_pages, one, by
):
    made_clips(tmp_path / "clips", one=one, n_clips=100, sources=20 if by == "person" else 0)
    tables = []
    for kind in (Tables, LabelTables):

        def keep(self, *given, begun=kind.__init__, **named):
            begun(self, *given, **named)
            tables.append(self)

        monkeypatch.setattr(kind, "__init__", keep)
    config = config_of(tmp_path, one=one, by=by)
    run(config, tmp_path / "study")
    ran, shown = tables[-1], {}
    monkeypatch.setattr(
        "tellers.audio.run_page.write_sound",
        lambda path, hearing, pictures, *, truth: shown.update(pictures=pictures, truth=truth) or path,
    )
    assert write_run_sound(tmp_path / "study", config) == tmp_path / "study" / "sound.html"
    np.testing.assert_array_equal(shown["pictures"].reshape(len(ran.test.X), -1), ran.test.X)
    truth = np.eye(3)[ran.test.y] if one else ran.test.y
    np.testing.assert_array_equal(shown["truth"], truth)
    private = {row.tobytes() for row in np.asarray(ran.private.X, dtype=np.float32)}
    assert len(private) > 20
    assert not private & {picture.tobytes() for picture in np.asarray(shown["pictures"], dtype=np.float32)}


@pytest.mark.parametrize("n_test", [10, 0])
def test_the_command_writes_it_and_says_where(made_clips, tmp_path, monkeypatch, capsys, n_test):
    made_clips(tmp_path / "clips", n_clips=80)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tellers.pipeline.outcome.write_report", lambda *_, **__: None)
    config = replace(config_of("", one=False, n_test=n_test))
    (tmp_path / "a.toml").write_text(write_config(config))
    with pytest.raises(SystemExit) as stopped:
        main(["run", "a.toml", "--out", "study"])
    said = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0
    page = tmp_path / "study" / "sound.html"
    assert page.exists() == (n_test > 0) == ("curves of every label: study/sound.html" in said)
    if n_test:
        words = page.read_text()
        assert all(name in words for name in NAMES)
        assert "Test clip" in words
        assert "<script" not in words
