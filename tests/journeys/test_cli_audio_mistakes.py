"""What a new user does wrong with sound: told in one paragraph, nothing spent, nothing left in the way."""

import json
import os
import shutil

import pytest

from tellers.cli import main

pytest.importorskip("soundfile")
pytest.importorskip("torch")

LIGHT = ("--iterations", 2, "--device", "cpu")


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["audio", *map(str, words)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return stop.value.code, printed.out, printed.err


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "city"
    with pytest.raises(SystemExit):
        main(["audio", "prepare", "--made", "40", "--seconds", "0.5", "--out", str(place), "--json"])
    return place


@pytest.fixture(scope="module")
def trained(city):
    place = city.parent / "ears"
    words = ["audio", "train", city, "--out", place, "--teachers", 3, "--jobs", 1, *LIGHT, "--json"]
    with pytest.raises(SystemExit):
        main([*map(str, words)])
    return place


@pytest.fixture
def ears(trained, tmp_path):
    """Teachers of whom nobody asked anything yet: their books lie with them."""
    return shutil.copytree(trained, tmp_path / "ears")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--device", "tpu"), "Expected device 'auto', 'cpu' or 'cuda', got 'tpu'"),
        (("--learning-rate", 0), "Expected learning_rate > 0"),
        (("--held-out", 2), "Expected held_out as a share"),
        (("--pretrained", "gone.pt"), "Expected a file of weights at gone.pt, found none"),
    ],
)
def test_teachers_that_were_refused_may_be_put_right_in_the_same_folder(capsys, city, tmp_path, wrong, said):
    out = tmp_path / "ears"
    words = ("train", city, "--out", out, "--teachers", 3, "--jobs", 1, *LIGHT)
    code, _, err = call(capsys, *words, *wrong)
    assert code == 2
    assert said in err
    assert {entry.name for entry in out.iterdir()} <= {".lock"}
    assert call(capsys, *words)[0] == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--device", "tpu"), "Expected device 'auto', 'cpu' or 'cuda', got 'tpu'"),
        (("--pretrained", "gone.pt"), "Expected a file of weights at gone.pt, found none"),
        (("--network", "alexnet"), "Expected network to be one of"),
        (("--epsilon", 0.01), "One question alone would go past the budget of epsilon 0.01: it needs"),
    ],
)
def test_a_student_that_was_refused_cost_nothing_and_may_be_put_right(capsys, ears, tmp_path, wrong, said):
    out = tmp_path / "study"
    words = ("student", ears, "--out", out, "--epsilon", 40, "--delta", 1e-3, *LIGHT)
    code, _, err = call(capsys, *words, *wrong)
    assert code == 2
    assert said in err
    assert not (ears / "ledger.db").exists()
    assert not (out / "config.toml").exists()
    assert call(capsys, *words)[0] == 0


def test_the_budget_that_is_named_pays_for_one_question(capsys, ears, tmp_path):
    words = ("student", ears, "--out", tmp_path / "study", "--delta", 1e-3, *LIGHT)
    said = call(capsys, *words, "--epsilon", 0.01)[2]
    needed = float(said.split("it needs ")[1].split(" ")[0])
    assert call(capsys, *words, "--epsilon", 0.9 * needed)[0] == 2
    assert call(capsys, *words, "--epsilon", 1.01 * needed)[0] == 0
    result = json.loads((tmp_path / "study" / "result.json").read_text())
    assert result["queries"]["n_asked"] == 1


@pytest.fixture(scope="module")
def study(trained):
    place = trained.parent / "study"
    words = ["audio", "student", trained, "--out", place, "--epsilon", 40, "--delta", 1e-3, *LIGHT, "--json"]
    with pytest.raises(SystemExit):
        main([*map(str, words)])
    return place


def table(tmp_path, text):
    place = tmp_path / "clips.csv"
    place.write_text(text, encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "--layout", "esc"), "Expected a folder of recordings at nowhere, there is none"),
        (("--made", 3, "--rate", 0), "greater than or equal to 1000"),
        (("--made", 3, "--seconds", 0), "Expected seconds > 0"),
        (
            ("--made", 3, "--labels", "horse"),
            "no clip carries any of horse. Take some of bell, engine",
        ),
        (("--made", 3, "--most", 0), "Expected clips with at most 0 labels in 'city', all have more"),
        (("--made", 3, "--layout", "esc"), "with --made, got --layout"),
        ((".", "--layout", "esc", "--remove", "Music"), "with --layout esc, got --remove"),
        ((".", "--layout", "table", "--table", "gone.csv"), "Expected a table at gone.csv, there is none"),
    ],
)
def test_recordings_that_cannot_be_read_as_told(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "prepare", *words, "--out", "clips")
    assert code == 2
    assert said in err
    assert "What was finished is kept" not in err
    assert not (tmp_path / "clips" / "clips.json").exists()


def test_a_table_without_a_heading_is_not_quoted(capsys, city, tmp_path):
    rows = table(tmp_path, "city-000001.wav,secret\n")
    words = ("prepare", city / "sounds", "--layout", "table", "--table", rows, "--out", tmp_path / "c")
    code, _, err = call(capsys, *words)
    assert code == 2
    assert "Expected the columns file, labels in clips.csv, got 2 others" in err
    assert "secret" not in err
    rows.write_text("file,tags\ncity-000001.wav,secret\n")
    assert "got file, tags. Name them so in its first line" in call(capsys, *words)[2]


def test_recordings_that_are_missing_keep_their_place_and_can_be_refused(capsys, city, tmp_path):
    places = "city-000001.wav,Glocke\nfehlt.wav,Lärm\nTöne 2.wav,Lärm\ntext.wav,Lärm\n"
    rows, sounds = table(tmp_path, f"file,labels\n{places}"), tmp_path / "die Töne"
    sounds.mkdir()
    first = (city / "sounds" / "city-000001.wav").read_bytes()
    (sounds / "city-000001.wav").write_bytes(first)
    (sounds / "Töne 2.wav").write_bytes(first)
    (sounds / "text.wav").write_text("no sound at all")
    words = ("prepare", sounds, "--layout", "table", "--table", rows, "--rate", 16000, "--seconds", 0.5)
    out = tmp_path / "die Bilder"
    code, printed, _ = call(capsys, *words, "--out", out)
    assert code == 0
    assert "2 recordings cannot be used: 1 broken, 1 missing" in printed
    # What is told to be typed next can be typed.
    assert f"tellers audio train '{out}' --out ears" in printed
    kept = json.loads((out / "clips.json").read_text())["clips"]
    assert [clip["picture"] is None for clip in kept] == [False, True, False, True]
    refused = tmp_path / "refused"
    code, _, err = call(capsys, *words, "--out", refused, "--on-finding", "refuse")
    assert code == 2
    assert not (refused / "clips.json").exists()
    lines = err.splitlines()
    assert any("missing" in line and "fehlt.wav" in line and "text.wav" not in line for line in lines)
    assert "take --on-finding skip" in lines[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--samples", "2.5"), "Expected whole numbers such as 0,100 for --samples, got '2.5'"),
        (("--out", "nowhere/page.html"), "Expected a file in a folder that is there for --out"),
        (("--out", "."), "Expected a file for --out, got the folder ."),
    ],
)
def test_a_sweep_that_would_not_be_what_was_asked(capsys, ears, words, said):
    code, _, err = call(capsys, "sweep", ears, *words)
    assert code == 2
    assert said in err
    assert ".tmp" not in err


def test_tags_of_what_is_no_recording(capsys, city, ears, study, tmp_path):
    sound = city / "sounds" / "city-000001.wav"
    code, _, err = call(capsys, "tag", sound, "--student", ears)
    assert code == 2
    assert "or teach one: tellers audio student" in err
    code, _, err = call(capsys, "tag", city / "sounds", "--student", study)
    assert code == 2
    assert "Expected recordings, got the folder" in err
    code, _, err = call(capsys, "tag", sound, "--student", study, "--page", tmp_path / "no" / "tags.html")
    assert code == 2
    assert "Expected a file in a folder that is there for --page" in err
    long = tmp_path / ("x" * 90 + ".wav")
    long.write_bytes(sound.read_bytes())
    code, printed, _ = call(capsys, "tag", long, "--student", study)
    assert code == 0
    assert "…" not in printed


def test_without_clips_to_test_on_no_page_is_promised(capsys, city, tmp_path):
    ears = tmp_path / "ears"
    words = ("--teachers", 3, "--jobs", 1, "--test", 0, *LIGHT)
    assert call(capsys, "train", city, "--out", ears, *words)[0] == 0
    words = ("student", ears, "--out", tmp_path / "study", "--epsilon", 40, "--delta", 1e-3, *LIGHT)
    code, printed, _ = call(capsys, *words)
    assert code == 0
    assert "so there is no sound.html" in printed
    assert "accuracy on the labels" not in printed


def test_clips_that_are_prepared_otherwise_are_not_taken_for_those_that_were_dealt(capsys, tmp_path):
    city, ears = tmp_path / "city", tmp_path / "ears"
    made = ("prepare", "--made", 30, "--seconds", 0.5, "--out", city)
    train = ("train", city, "--out", ears, "--teachers", 3, "--jobs", 1, *LIGHT)
    student = ("student", ears, "--out", tmp_path / "study", "--epsilon", 40, "--delta", 1e-3, *LIGHT)
    assert call(capsys, *made)[0] == 0
    assert call(capsys, *train)[0] == 0
    # The same labels in another order: every tag of the student would be another one.
    assert call(capsys, *made, "--labels", "voice,siren,engine,bell")[0] == 0
    for words in (train, student, ("sweep", ears)):
        code, _, err = call(capsys, *words)
        assert code == 2
        assert "prepared anew since with other labels" in err
    # Other clips of the same labels: teachers that are there may teach, but are not those of these clips.
    assert call(capsys, *made, "--seed", 8)[0] == 0
    code, _, err = call(capsys, *train)
    assert code == 2
    assert "prepared anew since with other recordings" in err
    assert call(capsys, *made)[0] == 0
    assert call(capsys, *train)[0] == 0
    assert call(capsys, *student)[0] == 0


def test_teachers_that_were_stopped_are_told_how_to_go_on(capsys, city, trained, ears, tmp_path):
    stopped = ears
    (stopped / "votes.npz").unlink()
    for words in (("sweep", stopped), ("student", stopped, "--out", tmp_path / "study", *LIGHT)):
        code, _, err = call(capsys, *words)
        assert code == 2
        assert "Their training was stopped: give the same tellers audio train again" in err
    assert not (tmp_path / "study").exists()
    (stopped / "dealt.npz").write_bytes((trained / "dealt.npz").read_bytes()[:100])
    code, _, err = call(capsys, "sweep", stopped)
    assert code == 2
    assert "Expected a whole dealt.npz" in err


def test_a_page_in_a_folder_that_may_not_be_written(capsys, ears, tmp_path, monkeypatch):
    # Not by its mode: whoever runs the tests may be allowed everything.
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: mode != os.W_OK and allowed(path, mode, **more)
    )
    code, _, err = call(capsys, "sweep", ears, "--out", tmp_path / "sweep.html")
    assert code == 2
    assert "Expected a folder that may be written for --out" in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["ears"]
