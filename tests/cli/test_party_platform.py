"""Where the engine does not exist, commands that need it say where it does, and all else works."""

import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

pytest.importorskip("cryptography")

from tellers.parties._certificates import make_certificate
from tellers.runs import write_party
from tellers.runs.settings.party import HardeningConfig, example_settings
from tellers.teachers.models import dump_model

from .test_party import PARTIES, run


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """As on a platform without wheels: neither the engine nor what it compiles with can be imported."""
    for name in ("spu", "jax"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # what a role changes for its whole process
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("role", "verb"), [("asker", "ask"), ("answerer", "answer"), ("guardian", "guard")])
def test_the_error_says_which_platforms_can(tmp_path, capsys, role, verb):
    X = np.eye(4)[[0, 1, 2]]
    (tmp_path / "model.skops").write_bytes(dump_model(LogisticRegression().fit(X, [0, 1, 2])))
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",")
    settings = example_settings(role)
    make_certificate(tmp_path, settings.party.name, role=role)
    party = replace(settings.party, certificates=settings.party.name, listen="127.0.0.1:0")
    plain = replace(settings, hardening=HardeningConfig(pairwise=False), party=party)
    (tmp_path / "party.toml").write_text(write_party(plain))
    more = ["--rows", "rows.csv", "--out", "labels.csv"] if verb == "ask" else []
    code, _, err = run(capsys, "party", verb, *more)
    assert code == 2
    for words in (
        "Python 3.11 on Linux (x86-64, aarch64) and macOS (arm64)",
        "tellers[capc]",
        "works without",
    ):
        assert words in " ".join(err.split())
    assert not (tmp_path / "labels.csv").exists()


def test_all_that_computes_nothing_together_works_without(capsys):
    code, _, _ = run(capsys, "party", "certs", "all", *(w for p in PARTIES for w in ("--party", p)))
    assert code == 0
    code, _, _ = run(capsys, "party", "init", "all", "--features", "4", "--classes", "3")
    assert code == 0
    code, out, _ = run(capsys, "party", "price", "--config", "all/guard/party.toml")
    assert code == 0
    assert "pays for" in out
