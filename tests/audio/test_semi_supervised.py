"""Students of sound that learn from the whole pool, also where every clip of it was asked."""

import json

import numpy as np
import pytest

from tellers.cli import main
from tellers.privacy import Votes
from tellers.runs.sound import load_hearing
from tellers.teachers import save_votes

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("no_pages")


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["audio", "student", *map(str, words), "--json"])
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


@pytest.fixture
def ears(request, made_clips, made_ears, tmp_path):
    one = request.param
    made_ears(made_clips(tmp_path / "clips", one=one), tmp_path / "ears")
    if one:
        settings = json.loads((tmp_path / "ears" / "settings.json").read_text())
        settings["teaching"]["one_class"] = True
        (tmp_path / "ears" / "settings.json").write_text(json.dumps(settings))
        with np.load(tmp_path / "ears" / "dealt.npz") as file:
            owner, Y = file["owner"], file["Y"]
        for name, whose in (("votes.npz", -2), ("test_votes.npz", -3)):
            ballots = np.repeat(Y[owner == whose].argmax(axis=1)[None], 5, axis=0)
            save_votes(tmp_path / "ears" / name, Votes.from_ballots(ballots, n_classes=3))
    return tmp_path / "ears"


@pytest.mark.parametrize(
    ("ears", "learner"),
    [
        (False, "multilabel_mixmatch"),
        (True, "vat"),
        pytest.param(True, "mean_teacher", marks=pytest.mark.campaign),
        pytest.param(True, "mixmatch", marks=pytest.mark.campaign),
    ],
    indirect=["ears"],
)
def test_students_of_the_whole_pool(ears, learner, tmp_path, capsys):
    given = (ears, "--epsilon", 1e6, "--delta", 1e-3, "--sigma", 0.1, "--iterations", 2, "--device", "cpu")
    # With a model of all private clips beside it, where that takes the pool as well.
    more = ("--private",) if learner == "multilabel_mixmatch" else ()
    code, out, err = call(capsys, *given, "--out", tmp_path / "study", "--student", learner, *more)
    assert code == 0, err
    result = json.loads(out)
    assert (result["queries"]["n_asked"], result["data"]["n_public"]) == (10, 10)  # nothing is left over
    assert (result["student"]["kind"], result["student"]["model"]) == ("semi_supervised", learner)
    hearing = load_hearing(tmp_path / "study")
    assert hearing.scores(np.zeros((2, *hearing.features.shape))).shape == (2, 3)


@pytest.mark.parametrize(
    ("ears", "learner", "said"),
    [
        (False, "vat", "Expected --student tagger or multilabel_mixmatch where clips have many labels"),
        (True, "multilabel_mixmatch", "Expected --student tagger, mixmatch, mean_teacher or vat where"),
    ],
    indirect=["ears"],
)
def test_a_student_of_the_other_kind_is_refused(ears, learner, said, tmp_path, capsys):
    code, out, err = call(capsys, ears, "--out", tmp_path / "study", "--student", learner)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not (ears / "ledger.db").exists()
