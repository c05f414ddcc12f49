"""What an earlier version wrote is read by this one: ledgers, runs, teachers, students and the like.

The files in `old/` were made once, by `make.py`, and are never made again: models in them name the modules
of that day. Nothing here may change, hashes of ledgers included.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
NAMES = json.loads((HERE / "old.json").read_text(encoding="utf-8"))["kept"]
RUNS = [name for name in NAMES if name not in ("books", "teachers", "students")]
TORCH = ("networks", "label-networks")
# The rotation that made-up rows of three features had where these runs were made: the last digits of a QR
# decomposition differ from processor to processor, and a run goes on with its own rows alone.
ROTATION = np.array(
    [
        [-0.09566758570650524, -0.33463852249636405, -0.9374778783024902],
        [-0.0798180490027644, -0.936186030393776, 0.3423226483143298],
        [-0.9922080387189374, 0.10757683652624493, 0.06285246331310232],
    ]
)


@pytest.fixture(scope="module")
def golden(kept):
    """What is kept of everything here."""
    return kept.read("old.json")


@pytest.fixture(scope="module")
def books(kept, tmp_path_factory):
    pytest.importorskip("cryptography")
    pytest.importorskip("fastapi")
    return kept.old_books(kept.unpack("books", tmp_path_factory.mktemp("old")))


@pytest.fixture(scope="module")
def teachers(kept, tmp_path_factory):
    pytest.importorskip("torch")
    return kept.old_teachers(kept.unpack("teachers", tmp_path_factory.mktemp("old")))


@pytest.fixture(scope="module")
def students(kept, tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("soundfile")
    return kept.old_students(kept.unpack("students", tmp_path_factory.mktemp("old")))


@pytest.mark.parametrize("name", NAMES["books"])
def test_books_say_what_they_said(kept, golden, books, name):
    changed = kept.differences(books[name], golden["books"][name])
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("name", NAMES["teachers"])
def test_teachers_vote_as_they_did(golden, teachers, name):
    assert teachers[name] == golden["teachers"][name]


@pytest.mark.parametrize("name", NAMES["students"])
def test_students_answer_as_they_did(kept, golden, students, name):
    changed = kept.differences(students[name], golden["students"][name], rel=1e-4)
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_read_and_gone_on_with(kept, golden, tmp_path, name, monkeypatch):
    """Votes are cast again by the teachers that are kept, and nothing but the student is written anew."""
    decomposed = np.linalg.qr
    assert np.allclose(decomposed(np.random.default_rng(0).normal(size=(3, 3)))[0], ROTATION, rtol=1e-12)
    monkeypatch.setattr(
        "numpy.linalg.qr", lambda a, *rest: (ROTATION, None) if a.shape == (3, 3) else decomposed(a, *rest)
    )
    if name in TORCH:
        pytest.importorskip("torch")
    pytest.importorskip("fastapi")
    folder = kept.unpack(name, tmp_path)
    made_with = json.loads((folder / "result.json").read_text())["versions"]
    for library in ("numpy", "scikit-learn"):
        if version(library) != made_with[library]:
            pytest.skip(f"the teachers were trained by {library} {made_with[library]}, here is another")
    found, before = kept.old_run(folder), golden[name]
    changed = kept.differences({**found, "changed": []}, {**before, "changed": []})
    # The order of a network's settings in its file is no promise, and its last digits depend on threads.
    anew = set(found["changed"]) - set(before["changed"]) - {"student/student.safetensors"}
    changed += [f"{path} was written anew" for path in anew]
    assert not changed, "\n".join(changed)
    told = before["resumed"]["out"]
    result = kept.masked(json.loads((kept.unpack(name, tmp_path / "again") / "result.json").read_text()))
    assert not kept.differences(told, result), "going on gave another result than the run had"
