"""Sound on the command line: from made-up clips, or real ones, to a student that tags recordings."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, SqliteLedger
from tellers.cli import main

pytest.importorskip("soundfile")
pytest.importorskip("torch")


@pytest.fixture
def tellers(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


def ask(tellers, *words):
    code, out, err = tellers("audio", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_from_made_up_clips_to_tags(tellers, tmp_path):
    city, ears, study = tmp_path / "city", tmp_path / "ears", tmp_path / "study"
    prepared = ask(tellers, "prepare", "--made", 90, "--seconds", 0.6, "--out", city)
    assert (prepared["n_pictures"], prepared["shape"], prepared["findings"]) == (90, [31, 64], [])
    trained = ask(
        tellers, "train", city, "--out", ears, "--teachers", 4, "--iterations", 25, "--jobs", 1,
        "--device", "cpu",
    )  # fmt: skip
    assert (trained["n_teachers"], trained["n_pool"], trained["n_test"]) == (4, 12, 9)
    # Prices alone, unless private numbers are asked for.
    swept = ask(tellers, "sweep", ears, "--sigma", "0.2,0.5", "--check", "none,0.6:0.6")
    assert len(swept["rows"]) == 8
    assert all("macro_f1" not in row for row in swept["rows"])
    assert swept["rows"][0]["public_epsilon"] > swept["rows"][1]["public_epsilon"]
    assert "PRIVATE" in Path(swept["page"]).read_text()
    assert Path(swept["page"]).stat().st_mode & 0o077 == 0
    told = ask(tellers, "sweep", ears, "--sigma", "0.2", "--share", "0.5", "--show-private")["rows"]
    assert 0 <= told[0]["macro_f1"] <= 1
    result = ask(
        tellers, "student", ears, "--out", study, "--epsilon", 60, "--delta", 1e-3, "--iterations", 60,
        "--device", "cpu", "--private",
    )  # fmt: skip
    assert result["queries"]["n_asked"] == 12
    assert result["partition"] == {"n_teachers": 4, "unit": "one clip", "notes": []}
    accountant = Accountant(Budget(60.0, 1e-3))
    with SqliteLedger(study / "ledger.db", accountant) as ledger:
        assert accountant.epsilon(ledger.spent) == pytest.approx(result["spent"]["charged"])
        entries = list(ledger.entries())
    assert sum(entry.event["n_queries"] for entry in entries) == 12
    with (study / "labels.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 12
    assert "Precision over recall" in (study / "sound.html").read_text()
    assert "How likely labels flip" in (study / "private" / "sound.private.html").read_text()
    assert "How likely" not in (study / "sound.html").read_text()
    card = (study / "student" / "card.md").read_text()
    assert "bell, engine, siren, voice" in card
    assert "| What is protected | one clip |" in card
    assert "only each clip by itself" in card
    heard = ask(
        tellers, "tag", city / "sounds" / "city-000000.wav", tmp_path / "gone.wav", "--student", study,
        "--page", tmp_path / "tags.html",
    )  # fmt: skip
    first, second = heard["files"]
    assert len(first["tags"]) == 3
    assert first["tags"][0]["score"] >= first["tags"][1]["score"]
    assert second["finding"]["kind"] == "missing"
    assert "<image" in (tmp_path / "tags.html").read_text()
    # The student goes where it likes: no run around it, no teacher, no recording.
    (study / "student").rename(tmp_path / "published")
    alone = ask(tellers, "tag", city / "sounds" / "city-000000.wav", "--student", tmp_path / "published")
    assert alone["files"][0]["tags"] == first["tags"]


def test_what_is_asked_twice_is_refused_or_gone_on_with(tellers, tmp_path):
    city, ears, study = tmp_path / "city", tmp_path / "ears", tmp_path / "study"
    ask(tellers, "prepare", "--made", 40, "--seconds", 0.4, "--out", city)
    quick = ("--iterations", 2, "--device", "cpu")
    ask(tellers, "train", city, "--out", ears, "--teachers", 3, "--jobs", 1, *quick)
    given = ("--epsilon", 30, "--delta", 1e-3, *quick)
    sound = city / "sounds" / "city-000000.wav"
    first = ask(tellers, "student", ears, "--out", study, *given)
    code, _, err = tellers("audio", "student", ears, "--out", study, *given)
    assert (code, "holds a run" in err) == (2, True)
    again = ask(tellers, "student", ears, "--out", study, *given, "--resume")
    assert again["spent"] == first["spent"]
    # Other students of the same kept votes: from the whole pool, and with a check before each answer.
    others = {
        "mixmatch": ("--student", "multilabel_mixmatch"),
        "checked": (
            "--mechanism", "confident-gnthreshold", "--n-top", 1, "--confident-share", 0.5, "--sigma-gate", 1,
        ),
    }  # fmt: skip
    for name, words in others.items():
        other = ask(tellers, "student", ears, "--out", tmp_path / name, *given, *words)
        assert other["spent"]["epsilon"] <= 30
        assert len(ask(tellers, "tag", sound, "--student", tmp_path / name)["files"][0]["tags"]) == 3
    # Another student on the same ledger finds what is left of the budget, and that is not enough.
    code, _, err = tellers(
        "audio", "student", ears, "--out", tmp_path / "second", *given, "--ledger", study / "ledger.db"
    )
    assert code == 2
    assert "budget" in err
    assert not (tmp_path / "second" / "student").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prepare",), "Expected a folder of recordings, got none"),
        (("prepare", "nowhere"), "Expected --layout, got none"),
        (("prepare", "nowhere", "--made", "3"), "got both"),
        (("prepare", "nowhere", "--layout", "table"), "Expected --table"),
        (("prepare", "nowhere", "--layout", "audioset"), "Expected --segments and --ontology"),
        (("train", "nowhere"), "found no clips.json in nowhere"),
        (("sweep", "nowhere"), "found no settings.json in nowhere"),
        (("sweep", "nowhere", "--sigma", "much"), "Expected numbers such as 0.1,0.3 for --sigma"),
        (("sweep", "nowhere", "--check", "0.6"), "Expected none, or checks such as 0.6:0.5"),
        (("student", "nowhere"), "found no settings.json in nowhere"),
        (("tag", "a.wav", "--student", "nowhere"), "Expected the folder of an exported student"),
    ],
)
def test_mistakes_are_told(tellers, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = tellers("audio", *words)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_used_is_listed_or_refused(tellers, tmp_path):
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    (sounds / "a.wav").write_bytes(b"no recording")
    (tmp_path / "clips.csv").write_text("file,labels\na.wav,dog\nb.wav,cat;dog\n")
    given = (sounds, "--layout", "table", "--table", tmp_path / "clips.csv", "--out", tmp_path / "clips")
    code, out, err = tellers("audio", "prepare", *given)
    assert code == 0, err
    assert "recordings cannot be used" in out
    code, _, err = tellers("audio", "prepare", *given, "--on-finding", "refuse")
    assert code == 2
    assert "recordings cannot be used" in err


@pytest.mark.campaign
@pytest.mark.parametrize("mix", [0, 2])
def test_real_sounds(tellers, tmp_path, mix):
    """The quick form on ESC-10; two minutes of a CPU. A student that guesses has an AUC near 0.5."""
    data = os.environ.get("TELLERS_DATA")
    if not data or not (Path(data) / "esc10").is_dir():
        pytest.skip("TELLERS_DATA names no directory with esc10")
    clips, ears = tmp_path / "clips", tmp_path / "ears"
    where = (Path(data) / "esc10", "--layout", "esc", "--rate", 16_000, "--seconds", 5)
    prepared = ask(tellers, "prepare", *where, "--out", clips, "--jobs", 2)
    assert prepared["n_pictures"] == 400
    ask(
        tellers, "train", clips, "--out", ears, "--teachers", 5, "--iterations", 100, "--batch-size", 16,
        "--test-fold", 5, "--by-source", "--mix", mix, "--student", 0.25, "--resolution", 10,
    )  # fmt: skip
    # Five teachers stand little noise: what is shown is that it works, and epsilon says how little that is.
    result = ask(
        tellers, "student", ears, "--out", tmp_path / "study", "--sigma", 0.7, "--share", 0.3,
        "--max-labels", max(1, mix), "--queries", 80, "--epsilon", 600, "--delta", 1e-3, "--iterations", 100,
    )  # fmt: skip
    assert result["partition"]["unit"] == "one source"
    assert result["student"]["scores"]["auc"] > 0.65
    recording = json.loads((clips / "clips.json").read_text())["clips"][0]["path"]
    heard = ask(tellers, "tag", recording, "--student", tmp_path / "study")
    assert np.isfinite(heard["files"][0]["tags"][0]["score"])
