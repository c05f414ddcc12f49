"""Data sets with many labels: checked, read-only, and images that are decoded only when asked for."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tellers.data import MultilabelDataset
from tellers.data.dataset import UNKNOWN
from tellers.errors import MissingExtra

NAMES = ("cat", "dog", "fish")


def made(**changed):
    fields = {"name": "tiny", "Y": [[1, 0, 0], [0, -1, 1]], "label_names": NAMES, "X": [[0.5], [1.5]]}
    return MultilabelDataset(**{**fields, **changed})


def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 8)) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", size, colour).save(path)
    return path


def test_what_is_known_is_told_and_nothing_can_be_changed():
    data = made(persons=["a", "b"])
    assert (len(data), data.n_labels) == (2, 3)
    assert data.known.tolist() == [[True] * 3, [True, False, True]]
    with pytest.raises(ValueError, match="read-only"):
        data.Y[0, 0] = 0
    assert "0.5" not in repr(data)


def test_rows_are_taken_with_all_that_belongs_to_them():
    data = made(X=None, paths=("a.png", "b.png"), persons=["ann", "bo"])
    for rows in ([1], [False, True], np.array([-1])):
        some = data.take(rows)
        assert some.Y.tolist() == [[0, UNKNOWN, 1]]
        assert some.paths == (Path("b.png"),)
        assert some.persons.tolist() == ["bo"]
    with pytest.raises(ValueError, match="row numbers or a mask"):
        data.take([])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Y": [1, 0]}, "shape"),
        ({"Y": [[2, 0, 0], [0, 0, 0]]}, "0, 1 or -1"),
        ({"Y": [[float("nan"), 0, 0], [0, 0, 0]]}, "0, 1 or -1"),
        ({"label_names": ("cat", "cat", "dog")}, "different label names"),
        ({"label_names": ("cat",)}, "different label names"),
        ({"X": None}, "either X or paths"),
        ({"paths": ("a", "b")}, "either X or paths"),
        ({"X": [[1.0]]}, "one entry for each of 2 rows"),
        ({"X": [[float("nan")], [1.0]]}, "finite"),
        ({"feature_names": ("a", "b")}, "feature names"),
        ({"persons": ["a"]}, "persons"),
    ],
)
def test_what_does_not_fit_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        made(**changed)


def test_images_are_decoded_when_asked_for(tmp_path):
    paths = (picture(tmp_path / "a.png", (255, 0, 0)), picture(tmp_path / "b.png", (0, 0, 255), (4, 30)))
    data = made(X=None, paths=paths)
    images = data.images(size=(6, 5))
    assert (images.shape, images.dtype) == ((2, 6, 5, 3), np.float32)
    assert images[0, 3, 2].tolist() == [1.0, 0.0, 0.0]
    assert images[1, 3, 2].tolist() == [0.0, 0.0, 1.0]
    assert data.images([1], size=(6, 5), grey=True).shape == (1, 6, 5)
    with pytest.raises(ValueError, match="has features"):
        made().images(size=(4, 4))
    with pytest.raises(ValueError, match="width"):
        data.images(size=(4, 0))


def test_a_damaged_or_missing_image_is_named_and_nothing_is_returned(tmp_path):
    good = picture(tmp_path / "a.png", (255, 0, 0))
    bad = tmp_path / "b.png"
    bad.write_bytes(good.read_bytes()[:40])
    data = made(X=None, paths=(good, bad))
    with pytest.raises(ValueError, match=r"row 1.*b\.png"):
        data.images(size=(4, 4))
    bad.unlink()
    with pytest.raises(ValueError, match=r"row 1.*no file.*b\.png"):
        data.images(size=(4, 4))


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"any")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtra, match=r"tellers\[images\]"):
        made(X=None, paths=(path, path)).images(size=(4, 4))


def test_models_learn_only_what_is_known():
    with pytest.raises(ValueError, match=r"not known in row 1, label 'dog'\. .*zeros"):
        _ = made().y
    known = made(Y=[[1, 0, 0], [0, 1, 1]])
    assert (known.y.dtype, known.y.tolist()) == (np.int64, [[1, 0, 0], [0, 1, 1]])


def test_labels_are_chosen_by_name_and_in_any_order():
    assert made().choose(["fish", "cat"]).Y.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"labels of 'tiny' \(cat, dog, fish\), got 'fox'"):
        made().choose(["fox"])


def test_decoded_images_are_rows_with_a_shape(tmp_path):
    paths = (picture(tmp_path / "a.png", (255, 0, 0)), picture(tmp_path / "b.png", (0, 0, 255)))
    data = made(X=None, paths=paths, sites=["north", "south"])
    with pytest.raises(ValueError, match="has images"):
        _ = data.n_features
    rows = data.decoded(size=(4, 5))
    assert (rows.X.shape, rows.image_shape, rows.n_features) == ((2, 60), (4, 5, 3), 60)
    assert np.array_equal(rows.X.reshape(2, 4, 5, 3), data.images(size=(4, 5)))
    assert (rows.take([1]).image_shape, rows.take([1]).sites.tolist()) == ((4, 5, 3), ["south"])
    assert data.decoded(size=(4, 5), grey=True).image_shape == (4, 5)
    with pytest.raises(ValueError, match="image_shape"):
        made(image_shape=(2, 2))
