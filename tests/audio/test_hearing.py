"""A student that hears: tags in the order of the files, findings where there are none."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from scipy.io import wavfile

from tellers.data.clips import recording_settings
from tellers.data.sound import features_for, make_city
from tellers.runs.sound import Hearing, load_hearing
from tellers.runs.sound._pages import write_tags

FEATURES = features_for(rate=16_000, seconds=0.4)
DRAWN = True


class Loudness:
    """Says how loud a picture is, in halves."""

    def predict_proba(self, X):
        loud = (X.mean(axis=1, keepdims=True) + 100) / 100
        return np.hstack([loud, 1 - loud])


def test_every_file_has_its_own_tags_whatever_is_beside_it(tmp_path):
    pytest.importorskip("soundfile")
    clips = make_city(tmp_path, 66, seed=7, seconds=0.4)
    hearing = Hearing(Loudness(), FEATURES, ("loud", "soft"))
    alone = [hearing.tag([path])[0].scores for path in clips.paths[:3]]
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    wavfile.write(tmp_path / "silent.wav", 16_000, np.zeros(6400, dtype=np.int16))
    files = [tmp_path / "broken.wav", *clips.paths[:2], tmp_path / "silent.wav", *clips.paths[2:]]
    tagged = hearing.tag(files)
    assert [one.path for one in tagged] == [str(path) for path in files]
    assert (tagged[0].scores, tagged[0].finding.kind, tagged[0].top(2)) == (None, "broken", [])
    for at, scores in zip((1, 2, 4), alone, strict=True):
        np.testing.assert_allclose(tagged[at].scores, scores)
        assert tagged[at].finding is None
    assert tagged[3].finding.kind == "silent"
    assert tagged[3].scores is not None
    assert tagged[1].picture.shape == FEATURES.shape
    assert tagged[0].as_dict() == {
        "file": str(files[0]),
        "finding": {"kind": "broken", "detail": tagged[0].finding.detail},
        "tags": [],
    }


def test_recordings_are_shown_with_their_pictures(tmp_path):
    pytest.importorskip("soundfile")
    hearing = Hearing(Loudness(), FEATURES, ("loud", "soft"))
    paths = make_city(tmp_path, 2, seed=7, seconds=0.4).paths
    page = write_tags(tmp_path / "tags.html", hearing, hearing.tag([*paths, "gone.wav"])).read_text()
    assert (page.count("<image"), page.count("missing: no such file")) == (2, 1)
    titles = [re.search(rf'<title id="(.+?)">Log-Mel picture {number}</title>', page)[1] for number in (1, 2)]
    assert titles[0] != titles[1]


def test_a_model_of_other_labels_is_refused():
    with pytest.raises(ValueError, match="a score for each of 3 labels"):
        Hearing(Loudness(), FEATURES, ("a", "b", "c")).scores(np.zeros((1, *FEATURES.shape)))


def test_a_student_of_something_else_is_told_so(tmp_path):
    from sklearn.linear_model import LogisticRegression

    from tellers.runs import ModelCard, export_student

    card = ModelCard(
        task="t", classes=("a", "b"), unit="one record", n_teachers=6, mechanism="GNMax", parameters={},
        epsilon=2.0, delta=1e-5, is_guarantee=True, n_queries=1, n_labels=1, student="s", accuracy=None,
        not_guaranteed=(),
    )  # fmt: skip
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    export_student(model, tmp_path / "student", card=card)
    with pytest.raises(ValueError, match=r"found no hearing\.json"):
        load_hearing(tmp_path / "student")
    with pytest.raises(ValueError, match="Expected files among"):
        export_student(model, tmp_path / "other", card=card, beside={"run.py": b""})
    beside = {"hearing.json": recording_settings(("a", "b"), asdict(FEATURES))}
    export_student(model, tmp_path / "student", card=card, overwrite=True, beside=beside)
    assert load_hearing(tmp_path / "student").features == FEATURES
    # What lies beside is checked as the model is.
    (tmp_path / "student" / "hearing.json").write_text("{}")
    with pytest.raises(ValueError, match="damaged or changed"):
        load_hearing(tmp_path / "student")
