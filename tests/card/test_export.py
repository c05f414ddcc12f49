"""A student goes out whole, comes back the same, and nothing of a stranger's is run."""

import json
import pickle
import stat
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load, save
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tellers.runs import ModelCard, export_student, load_student
from tellers.runs import card as module

CARD = ModelCard(
    task="tell 2 classes apart", classes=("a", "b"), unit="one record", n_teachers=60, mechanism="GNMax",
    parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5, is_guarantee=True, n_queries=100, n_labels=100,
    student="logistic (supervised)", accuracy=0.9, not_guaranteed=("The pool is public.",),
)  # fmt: skip
FILES = {"card.json", "card.md", "manifest.json", "student.skops"}


@dataclass(frozen=True, eq=False)
class Tensors:
    """A model that brings its own bytes."""

    weights: np.ndarray

    def to_bytes(self):
        return save({"weights": self.weights})

    @classmethod
    def from_bytes(cls, content):
        return cls(load(content)["weights"])


@pytest.fixture
def student():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 3))
    return LogisticRegression().fit(X, (X[:, 0] > 0).astype(int))


def names(folder):
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("kind", [LogisticRegression, RandomForestClassifier])
def test_a_student_comes_back_the_same(kind, tmp_path):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 3))
    student = kind(random_state=7).fit(X, (X[:, 0] > 0).astype(int))
    place = export_student(student, tmp_path / "deep" / "student", card=CARD)
    assert names(place) == FILES
    assert names(tmp_path / "deep") == {"student"}
    assert np.array_equal(load_student(place).predict_proba(X), student.predict_proba(X))
    assert json.loads((place / "card.json").read_text()) == CARD.as_dict()
    assert (place / "card.md").read_text() == CARD.markdown()


def test_others_may_read_what_is_public(student, tmp_path):
    beside = tmp_path / "beside"
    beside.write_text("made with the usual mode")
    place = export_student(student, tmp_path / "student", card=CARD)
    for file in place.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(beside.stat().st_mode)


def test_a_portable_model_travels_as_safetensors(tmp_path):
    model = Tensors(np.arange(6.0).reshape(2, 3))
    place = export_student(model, tmp_path / "student", card=CARD)
    assert names(place) == FILES - {"student.skops"} | {"student.safetensors"}
    named = json.loads((place / "manifest.json").read_text())["type"]
    with pytest.raises(ValueError, match="student of a known type"):
        load_student(place)
    # Where the file is imported by name, as a user's module is, the type can be found again.
    sys.modules.setdefault(Tensors.__module__, sys.modules[__name__])
    back = load_student(place, trusted=[named])
    assert np.array_equal(back.weights, model.weights)


def test_a_portable_model_without_a_way_back_is_refused(tmp_path):
    class OneWay:
        def to_bytes(self):
            return b""

    with pytest.raises(TypeError, match="to_bytes and from_bytes"):
        export_student(OneWay(), tmp_path / "student", card=CARD)
    assert names(tmp_path) == set()


def test_a_type_that_has_gone_is_named(tmp_path):
    place = export_student(Tensors(np.zeros(1)), tmp_path / "student", card=CARD)
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "type": "tellers.nowhere.Net"}))
    with pytest.raises(ValueError, match=r"class tellers\.nowhere\.Net with from_bytes, found none"):
        load_student(place)


@pytest.mark.parametrize("network", ["mlp", "function"])
def test_a_torch_student_comes_back_the_same(tmp_path, network):
    torch = pytest.importorskip("torch", reason="torch is an extra")
    from tellers.nn.classifier import TorchClassifier

    def line(*_arguments, **_named):
        return torch.nn.Linear(3, 2)

    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    made = "mlp" if network == "mlp" else line
    student = TorchClassifier(made, epochs=2, random_state=7).fit(X, (X[:, 0] > 0).astype(int))
    place = export_student(student, tmp_path / "student", card=CARD)
    assert (place / "student.safetensors").exists()
    needed = {} if network == "mlp" else {"network": line}
    back = load_student(place, **needed)
    assert np.array_equal(back.predict_proba(X), student.predict_proba(X))


def test_a_skops_student_needs_nothing_else(student, tmp_path):
    place = export_student(student, tmp_path / "student", card=CARD)
    with pytest.raises(TypeError, match="got network"):
        load_student(place, network=print)


def test_another_student_is_replaced_only_when_asked(student, tmp_path):
    place = export_student(student, tmp_path / "student", card=CARD)
    other = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_student(other, place, card=CARD)
    assert load_student(place).n_features_in_ == 3
    export_student(other, place, card=CARD, overwrite=True)
    assert load_student(place).n_features_in_ == 1
    assert names(tmp_path) == {"student"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_other_things_is_never_touched(student, tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds other files"):
        export_student(student, tmp_path, card=CARD, overwrite=overwrite)
    place = export_student(student, tmp_path / "student", card=CARD)
    (place / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds other files"):
        export_student(student, place, card=CARD, overwrite=overwrite)
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("fail_at", range(5))
def test_a_failure_leaves_what_was_there(student, tmp_path, monkeypatch, fail_at):
    """Four files and a renaming: whichever fails, the old student stands and nothing lies about."""
    place = export_student(student, tmp_path / "student", card=CARD)
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    steps = iter(range(9))
    write = module.write_whole

    def fails(path, content, *, shared):
        if next(steps) == fail_at:
            raise OSError(28, "No space left on device")
        write(path, content, shared=shared)

    monkeypatch.setattr(module, "write_whole", fails)
    if fail_at == 4:
        rename = module.Path.rename

        def refuses(self, target):
            if str(self).endswith(".tmp"):
                raise OSError(5, "Input/output error")
            return rename(self, target)

        monkeypatch.setattr(module.Path, "rename", refuses)
    with pytest.raises(OSError, match=r"error|space"):
        export_student(student, place, card=CARD, overwrite=True)
    assert names(tmp_path) == {"student"}
    assert {file.name: file.read_bytes() for file in place.iterdir()} == before


@pytest.mark.parametrize("file", sorted(FILES - {"manifest.json"}))
def test_damage_is_found(student, tmp_path, file):
    place = export_student(student, tmp_path / "student", card=CARD)
    content = bytearray((place / file).read_bytes())
    content[len(content) // 2] ^= 1
    (place / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} as it was exported"):
        load_student(place)
    (place / file).unlink()
    with pytest.raises(ValueError, match=f"Expected {file}"):
        load_student(place)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"{", "readable manifest.json"),
        (b"[]", "readable manifest.json"),
        (b'{"format": 1, "files": {"../../etc/passwd": "0"}}', "format 1"),
        (b'{"format": 9, "files": {"card.md": "", "card.json": "", "student.skops": ""}}', "format 1"),
    ],
)
def test_a_strange_manifest_is_refused(student, tmp_path, manifest, words):
    place = export_student(student, tmp_path / "student", card=CARD)
    (place / "manifest.json").write_bytes(manifest)
    with pytest.raises(ValueError, match=words):
        load_student(place)


def test_a_folder_without_a_manifest_holds_no_student(tmp_path):
    with pytest.raises(ValueError, match=r"manifest\.json in .*, found none"):
        load_student(tmp_path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def test_nothing_is_unpickled(student, tmp_path):
    place = export_student(student, tmp_path / "student", card=CARD)
    content = pickle.dumps(Bomb())
    (place / "student.skops").write_bytes(content)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"]["student.skops"] = module.hashlib.sha256(content).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="saved with skops"):
        load_student(place)


def test_a_model_of_unknown_types_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match="trusted="):
        export_student(Bomb, tmp_path / "student", card=CARD)
    assert names(tmp_path) == set()
