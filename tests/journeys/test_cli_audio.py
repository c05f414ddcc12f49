"""Sound on the command line: from made-up clips, or real ones, to a student that tags recordings."""

import csv
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, GNMax, SqliteLedger
from tellers.cli import main
from tellers.data.sound import make_city
from tellers.privacy import Unit

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
    prepared = ask(tellers, "prepare", "--made", 90, "--seconds", 0.4, "--out", city)
    assert (prepared["n_pictures"], prepared["shape"], prepared["findings"]) == (90, [21, 64], [])
    quick = ("--iterations", 2, "--device", "cpu")
    trained = ask(tellers, "train", city, "--out", ears, "--teachers", 4, "--jobs", 1, *quick)
    assert (trained["n_teachers"], trained["n_pool"], trained["n_test"]) == (4, 12, 9)
    # Prices alone, unless private numbers are asked for.
    words = ("sweep", ears, "--sigma", "0.2,0.5", "--check", "none,0.6:0.6", "--json")
    code, out, err = tellers("audio", *words)
    assert (code, "tellers sweep does this for every run" in err) == (0, True)
    swept = json.loads(out)
    assert swept == json.loads(tellers(*words)[1])
    assert len(swept["rows"]) == 8
    assert all("macro_f1" not in row for row in swept["rows"])
    assert swept["rows"][0]["public_epsilon"] > swept["rows"][1]["public_epsilon"]
    assert "PRIVATE" in Path(swept["page"]).read_text()
    assert Path(swept["page"]).stat().st_mode & 0o077 == 0
    told = ask(tellers, "sweep", ears, "--sigma", "0.2", "--share", "0.5", "--show-private")["rows"]
    assert 0 <= told[0]["macro_f1"] <= 1
    given = ("--epsilon", 60, "--delta", 1e-3, *quick, "--private")
    result = ask(tellers, "student", ears, "--out", study, *given)
    assert result["queries"]["n_asked"] == 12
    relation = result["partition"].pop("relation")
    assert (relation["unit"], relation["change"]) == ("clip", "replace")
    assert result["partition"] == {"n_teachers": 4, "unit": "one clip", "notes": []}
    accountant = Accountant(Budget(60.0, 1e-3))
    with SqliteLedger(ears / "ledger.db", accountant) as ledger:
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
    assert "Log-Mel picture" in (tmp_path / "tags.html").read_text()
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
    first = ask(tellers, "student", ears, "--out", study, *given)
    twice = ask(tellers, "student", ears, "--out", study, *given)
    assert (twice["spent"], twice["queries"]) == (first["spent"], first["queries"])
    code, _, err = tellers("audio", "student", ears, "--out", study, *given, "--queries", 3)
    assert (code, "holds a run" in err) == (2, True)
    again = ask(tellers, "student", ears, "--out", study, *given, "--resume")
    assert again["spent"] == first["spent"]
    assert not (study / "ledger.db").exists()
    # Another student of the same votes finds what is left of the budget, and that is not enough.
    code, _, err = tellers("audio", "student", ears, "--out", tmp_path / "second", *given)
    assert (code, "past the budget of 30" in " ".join(err.split())) == (2, True)
    assert not (tmp_path / "second" / "student").exists()
    # Nor does it get a budget of its own by naming one, or other books.
    for more in (("--ledger", tmp_path / "fresh.db"), ("--epsilon", 60)):
        code, _, err = tellers("audio", "student", ears, "--out", tmp_path / "third", *given, *more)
        assert (code, "Expected" in err) == (2, True)
        assert not (tmp_path / "third" / "student").exists()
    assert not (tmp_path / "fresh.db").exists()


def test_clips_of_one_class_each(tellers, tmp_path):
    clips = make_city(tmp_path / "sounds", 90, seed=7, seconds=0.4, n_labels=(1, 1))
    rows = [(path.name, clips.labels_of(i)[0]) for i, path in enumerate(clips.paths)]
    lines = "\n".join(",".join(row) for row in [("file", "labels"), *rows])
    (tmp_path / "clips.csv").write_text(lines + "\n")
    city, ears, study = tmp_path / "city", tmp_path / "ears", tmp_path / "study"
    ask(
        tellers, "prepare", tmp_path / "sounds", "--layout", "table", "--table", tmp_path / "clips.csv",
        "--rate", 16_000, "--seconds", 0.4, "--out", city,
    )  # fmt: skip
    quick = ("--iterations", 2, "--device", "cpu")
    given = ("--out", ears, "--teachers", 4, "--jobs", 1, "--iterations", 25, "--device", "cpu")
    trained = ask(tellers, "train", city, *given, "--one-class")
    assert (trained["one_class"], trained["n_pool"]) == (True, 12)
    code, _, err = tellers("audio", "train", city, *given)
    assert (code, "got others for one_class" in err) == (2, True)
    _sweep_classes(tellers, ears)
    many = tmp_path / "many"
    ask(tellers, "train", city, "--out", many, "--teachers", 2, "--iterations", 1, "--device", "cpu")
    code, _, err = tellers("audio", "sweep", ears, many)
    assert (code, "name one class each, got both" in " ".join(err.split())) == (2, True)
    budget = ("--epsilon", 60, "--delta", 1e-3, *quick)
    result = ask(tellers, "student", ears, "--out", study, *budget, "--private")
    assert result["mechanism"] == {"name": "GNMax", "sigma": 1.0}
    assert (result["queries"]["n_asked"], result["partition"]["unit"]) == (12, "one clip")
    assert result["data"]["class_names"] == ["bell", "engine", "siren", "voice"]
    accountant = Accountant(Budget(60.0, 1e-3))
    with SqliteLedger(ears / "ledger.db", accountant) as ledger:
        assert accountant.epsilon(ledger.spent) == pytest.approx(result["spent"]["charged"])
    # A row of GNMax is moved by one ballot, whatever the number of classes: as GNMax alone would be charged.
    twelve = 12 * GNMax(sigma=1.0).price(Unit())
    assert accountant.epsilon(twelve) == pytest.approx(result["spent"]["charged"])
    assert "tell 4 classes apart" in (study / "student" / "card.md").read_text()
    assert "Precision over recall" in (study / "sound.html").read_text()
    private = json.loads((study / "private" / "summary.json").read_text())
    assert len(private["teacher_accuracies"]) == 4
    page = study / "private" / "sound.private.html"
    for words in ("PRIVATE", "4 teachers together on 12 queries", "How likely labels flip", "no check"):
        assert words in page.read_text(), words
    assert page.stat().st_mode & 0o077 == 0
    assert "without noise" not in (study / "sound.html").read_text()
    heard = ask(tellers, "tag", tmp_path / "sounds" / rows[0][0], "--student", study, "--top", 4)
    tags = heard["files"][0]["tags"]
    assert sum(tag["score"] for tag in tags) == pytest.approx(1.0, abs=1e-4)  # one of them, and no other
    again = ask(tellers, "student", ears, "--out", study, *budget, "--private", "--resume")
    assert again["spent"] == result["spent"]
    # With a check before each answer, and from all of the pool. Twelve noisy answers that are all of one
    # class, or all silence, would leave nothing to learn from: a chance below 1e-5.
    check = ("--mechanism", "confident", "--sigma", 1, "--threshold", 1, "--sigma-threshold", 1.5)
    whole = ("--student", "mixmatch", "--queries", 9)
    for name, words in {"checked": check, "whole": whole}.items():
        other = ask(tellers, "student", ears, "--out", tmp_path / name, *budget, *words)
        assert other["spent"]["epsilon"] <= 60
        assert len(ask(tellers, "tag", clips.paths[0], "--student", tmp_path / name)["files"][0]["tags"]) == 3
    for words, said in (
        (("--mechanism", "binary"), "Expected --mechanism gnmax or confident"),
        (("--student", "multilabel_mixmatch"), "Expected --student tagger, mixmatch, mean_teacher or vat"),
    ):
        code, _, err = tellers("audio", "student", ears, "--out", tmp_path / "no", *words)
        assert (code, said in " ".join(err.split())) == (2, True)


def _sweep_classes(tellers, ears):
    """Prices alone, unless private numbers are asked for; nothing is charged, as nothing leaves."""
    before = {file: file.stat().st_mtime_ns for file in ears.rglob("*") if file.is_file()}
    swept = ask(tellers, "sweep", ears, "--sigma", "0.3,0.6", "--check", "none,0.5:0.5", "--samples", "6,0")
    assert [row["kind"] for row in swept["rows"]] == ["gnmax"] * 8
    assert all("accuracy" not in row and "exact_epsilon" not in row for row in swept["rows"])
    accountant = Accountant(Budget(60.0, 1e-4))
    assert swept["rows"][0]["public_epsilon"] <= accountant.epsilon(6 * GNMax(sigma=1.2).price(Unit()))
    page = Path(swept["page"])
    assert page.stat().st_mode & 0o077 == 0
    text = page.read_text()
    assert all(
        words in text for words in ("PRIVATE", "exact cost of these votes", "which holds for any votes")
    )
    after = {file: file.stat().st_mtime_ns for file in ears.rglob("*") if file.is_file() and file != page}
    assert after == before
    code, out, _ = tellers("audio", "sweep", ears, "--sigma", "0.3", "--show-private")
    assert (code, "accuracy" in out, "PRIVATE" in out.upper()) == (0, True, True)
    told = ask(tellers, "sweep", ears, "--sigma", "0.3", "--show-private")["rows"]
    assert 0 <= told[0]["accuracy"] <= 1
    assert told[0]["exact_epsilon"] <= told[0]["public_epsilon"]
    code, _, err = tellers("audio", "sweep", ears, "--share", "0.3", "--max-labels", 2)
    assert (code, "Expected no --share or --max-labels" in " ".join(err.split())) == (2, True)


def test_networks_may_hold_clips_out_and_log(tellers, tmp_path, monkeypatch):
    city, ears, logs = tmp_path / "city", tmp_path / "ears", tmp_path / "logs"
    ask(tellers, "prepare", "--made", 40, "--seconds", 0.4, "--out", city)
    more = ("--iterations", 4, "--device", "cpu", "--held-out", 0.3, "--log-folder", logs)
    words = ("train", city, "--out", ears, "--teachers", 3, "--jobs", 1, *more)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = tellers("audio", *words)
    assert (code, "pip install 'tellers[tensorboard]'" in " ".join(err.split())) == (2, True)
    assert not (ears / "votes.npz").exists()
    written = {}

    class Writer:
        def __init__(self, folder):
            self.lines = written.setdefault(folder, [])

        def add_scalar(self, tag, value, step):
            self.lines.append((tag, step))

        def close(self):
            pass

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    ask(tellers, *words)
    assert len(written) == 3  # each teacher in a folder of its own
    assert all(Path(folder).parent == logs and ("loss/held out", 4) in written[folder] for folder in written)
    budget = ("--out", tmp_path / "study", "--epsilon", 30, "--delta", 1e-3)
    ask(tellers, "student", ears, *budget, *more)
    assert len(written) == 4
    code, _, err = tellers("audio", "student", ears, *budget, *more, "--student", "multilabel_mixmatch")
    assert (code, "with --student tagger alone" in " ".join(err.split())) == (2, True)


def test_one_class_wants_one_label(tellers, tmp_path):
    city = tmp_path / "city"
    ask(tellers, "prepare", "--made", 40, "--seconds", 0.4, "--out", city)
    words = ("audio", "train", city, "--out", tmp_path / "ears", "--teachers", 3, "--one-class")
    code, _, err = tellers(*words)
    assert (code, "exactly one label for every clip" in " ".join(err.split())) == (2, True)
    code, _, err = tellers(*words, "--mix", 2)
    assert (code, "neither mixtures nor parts of a vote" in " ".join(err.split())) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prepare",), "Expected a folder of recordings, got none"),
        (("prepare", "nowhere"), "Expected --layout, got none"),
        (("prepare", "nowhere", "--made", "3"), "got both"),
        (("prepare", ".", "--layout", "table"), "Expected --table"),
        (("prepare", ".", "--layout", "audioset"), "Expected --segments and --ontology"),
        (("prepare", "--made", "3", "--layout", "esc"), "with --made, got --layout, which it does not take"),
        *(
            (("prepare", ".", "--layout", layout, *option), f"got {option[0]}, which it does not take")
            for layout, option in (
                ("esc", ("--remove", "Music")),
                ("urbansound", ("--parents",)),
                ("table", ("--keep", "Vehicle")),
                ("table", ("--ontology", "tree.json")),
                ("fsd50k", ("--source", "speaker")),
                ("audioset", ("--fold", "fold")),
                ("esc", ("--segments", "train.csv")),
                ("fsd50k", ("--table", "clips.csv")),
            )
        ),
        (("train", "nowhere"), "found no clips.json in nowhere"),
        (("sweep", "nowhere"), "found no settings.json in nowhere"),
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
def test_the_page_of_a_city_runs_as_it_stands(tellers, tmp_path, monkeypatch):
    """Every command of the page, word for word; a minute of a CPU.

    Students were right in 92 to 95 of 100 labels; one that always says no is right in 65.
    """
    page = Path(__file__).resolve().parents[2] / "docs" / "city-microphones.md"
    monkeypatch.chdir(tmp_path)
    # What a reader is told not to run has a note in front of its block.
    blocks = re.findall(r"(<!-- not run: .*-->\n)?```bash\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line for skipped, text in blocks if not skipped for line in text.splitlines()]
    verbs = []
    for words in (line.split() for line in lines if line.startswith("tellers ")):
        code, _, err = tellers(*words[1:])
        assert code == 0, (words, err)
        verbs.append(words[2] if words[1] == "audio" else words[1])
    assert verbs == ["prepare", "init", "run", "sweep", "student", "tag"]
    result = json.loads((tmp_path / "study" / "result.json").read_text())
    assert result["spent"]["epsilon"] <= 8
    assert result["student"]["accuracy"] > 0.85


@pytest.mark.campaign
def test_real_sounds(tellers, tmp_path):
    """The quick form on ESC-10, mixed; a minute of a CPU. A student that guesses has an AUC near 0.5."""
    data = os.environ.get("TELLERS_DATA")
    if not data or not (Path(data) / "esc10").is_dir():
        pytest.skip("TELLERS_DATA names no directory with esc10")
    clips, ears = tmp_path / "clips", tmp_path / "ears"
    where = (Path(data) / "esc10", "--layout", "esc", "--rate", 16_000, "--seconds", 5)
    prepared = ask(tellers, "prepare", *where, "--out", clips, "--jobs", 2)
    assert prepared["n_pictures"] == 400
    ask(
        tellers, "train", clips, "--out", ears, "--teachers", 5, "--iterations", 100, "--batch-size", 16,
        "--test-fold", 5, "--by-source", "--mix", 1, "--student", 0.25, "--resolution", 10,
    )  # fmt: skip
    # Five teachers stand little noise: what is shown is that it works, and epsilon says how little that is.
    result = ask(
        tellers, "student", ears, "--out", tmp_path / "study", "--sigma", 0.7, "--share", 0.3,
        "--max-labels", 2, "--queries", 80, "--epsilon", 600, "--delta", 1e-3, "--iterations", 100,
    )  # fmt: skip
    assert result["partition"]["unit"] == "one source"
    assert result["student"]["scores"]["auc"] > 0.65
    recording = json.loads((clips / "clips.json").read_text())["clips"][0]["path"]
    heard = ask(tellers, "tag", recording, "--student", tmp_path / "study")
    assert np.isfinite(heard["files"][0]["tags"][0]["score"])
