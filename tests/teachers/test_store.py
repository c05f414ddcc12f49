"""Vote files: what is read, and what is refused with which words."""

import pickle

import numpy as np
import pytest

from tellers.teachers import read_votes

BALLOTS = np.array([[0, 1, 2], [0, 1, 0], [2, 1, 0], [0, 1, 1]], dtype=np.uint8)  # 4 teachers, 3 queries
COUNTS = np.array([[3, 0, 1], [0, 4, 0], [2, 1, 1]])
STUDENT = np.full((3, 3), 1 / 3)


@pytest.fixture
def write(tmp_path):
    def save(**arrays):
        path = tmp_path / "votes.npz"
        np.savez(path, **arrays)
        return path

    return save


def test_an_npy_holds_ballots(tmp_path):
    np.save(tmp_path / "votes.npy", BALLOTS)
    loaded = read_votes(tmp_path / "votes.npy", n_classes=3)
    np.testing.assert_array_equal(loaded.votes.ballots, BALLOTS)
    np.testing.assert_array_equal(loaded.votes.counts, COUNTS)
    assert loaded.notes == ()
    assert loaded.student is loaded.answered is loaded.truth is None


def test_an_npz_holds_ballots_and_what_belongs_to_them(write):
    answered = np.array([True, False, True])
    loaded = read_votes(
        write(ballots=BALLOTS, student=STUDENT, answered=answered, truth=[0, 1, 0]), n_classes=3
    )
    np.testing.assert_array_equal(loaded.answered, answered)
    np.testing.assert_array_equal(loaded.student, STUDENT)
    np.testing.assert_array_equal(loaded.truth, [0, 1, 0])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_counts_bring_the_number_of_teachers(tmp_path, save):
    save(tmp_path / "votes.npz", counts=COUNTS)
    loaded = read_votes(str(tmp_path / "votes.npz"))
    assert (loaded.votes.n_teachers, loaded.votes.n_classes, loaded.votes.ballots) == (4, 3, None)
    assert loaded.notes == ()


def test_other_arrays_are_left_alone(write):
    assert read_votes(write(ballots=BALLOTS, names=np.array(["a", "b"])), n_classes=3).truth is None


def test_the_name_of_the_file_does_not_matter(tmp_path):
    with (tmp_path / "votes.dat").open("wb") as file:
        np.save(file, BALLOTS)
    assert len(read_votes(tmp_path / "votes.dat", n_classes=3).votes) == 3


def test_undeclared_classes_are_taken_and_mentioned(write):
    loaded = read_votes(write(ballots=BALLOTS))
    assert loaded.votes.n_classes == 3
    assert "3 were taken" in loaded.notes[0]
    assert "--classes" in loaded.notes[0]


def test_unanimous_ballots_still_have_two_classes(write):
    assert read_votes(write(ballots=np.zeros((4, 3), dtype=int))).votes.n_classes == 2


def test_votes_do_not_print(write):
    text = repr(read_votes(write(ballots=BALLOTS, student=STUDENT), n_classes=3))
    assert text == "VoteFile(Votes(<private>, n_queries=3, n_teachers=4, n_classes=3), student)"


def floats(**places):
    table = BALLOTS.astype(float)
    for value in places.values():
        table[1, 2] = value
    return table


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "neither"),
        ({"labels": [0, 1]}, "neither .its arrays: labels"),
        ({"ballots": BALLOTS, "counts": COUNTS}, "got both"),
        ({"ballots": [0, 1, 2]}, "looks like labels"),
        ({"ballots": np.zeros((0, 3), dtype=int)}, "at least one teacher"),
        ({"ballots": BALLOTS > 0}, "dtype bool"),
        ({"ballots": np.array([["a", "b"]])}, "whole numbers"),
        ({"ballots": floats(at=np.nan)}, "NaN or infinity at teacher 1, query 2"),
        ({"ballots": floats(at=np.inf)}, "NaN or infinity at teacher 1, query 2"),
        ({"ballots": floats(at=0.5)}, "fraction at teacher 1, query 2"),
        ({"ballots": BALLOTS.astype(int) - 1}, "outside at teacher 0, query 0"),
        ({"ballots": BALLOTS.astype(int) + 10**9}, "class ids below"),
        ({"counts": COUNTS[0]}, "looks like labels"),
        ({"counts": COUNTS[:, :1]}, "at least 2 classes"),
        ({"counts": COUNTS * 0}, "at least one teacher"),
        ({"counts": COUNTS - 1}, "negative entry at query 0, class 1"),
        ({"counts": COUNTS / 2}, "fraction at query 0, class 0"),
        ({"counts": COUNTS + np.eye(3, dtype=int)[[0, 0, 0]] * [[0], [0], [1]]}, "query 2 does not.*query 0"),
        ({"counts": COUNTS, "student": STUDENT[:, :2]}, "student probabilities of shape"),
        ({"counts": COUNTS, "student": STUDENT[0]}, "student probabilities of shape"),
        ({"counts": COUNTS, "student": np.full((3, 3), "x")}, "as numbers"),
        ({"counts": COUNTS, "answered": [1, 0, 1]}, "astype.bool"),
        ({"counts": COUNTS, "answered": [True, False]}, "per query, shape .3,., got shape .2,."),
        ({"counts": COUNTS, "truth": [0, 1]}, "truth with one class id"),
        ({"counts": COUNTS, "truth": [0.0, 1.0, 2.0]}, "truth with one class id"),
    ],
)
def test_what_does_not_fit_is_refused(write, arrays, words):
    with pytest.raises(ValueError, match=words) as raised:
        read_votes(write(**arrays))
    assert "votes.npz" in str(raised.value)


def test_declared_classes_must_fit(write):
    with pytest.raises(ValueError, match=r"classes 0\.\.1"):
        read_votes(write(ballots=BALLOTS), n_classes=2)
    with pytest.raises(ValueError, match="each of 4 classes"):
        read_votes(write(counts=COUNTS), n_classes=4)
    with pytest.raises(ValueError, match="n_classes >= 2"):
        read_votes(write(counts=COUNTS), n_classes=1)


def test_messages_never_carry_a_tally(write):
    counts = np.array([[111, 222], [111, 333]])
    with pytest.raises(ValueError, match="query 1 does not") as raised:
        read_votes(write(counts=counts))
    assert not any(tally in str(raised.value) for tally in ("111", "222", "444"))
    ids = np.full((2, 2), 123_456)
    with pytest.raises(ValueError, match="class ids below") as raised:
        read_votes(write(ballots=ids))
    assert "123456" not in str(raised.value)


# --- Files that are not what they should be. ---


def test_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match="found nothing at"):
        read_votes(tmp_path / "nowhere.npz")


def test_a_directory(tmp_path):
    with pytest.raises(ValueError, match="directory"):
        read_votes(tmp_path)


@pytest.mark.parametrize("content", [b"", b"0,1,2\n", b"\x80\x04K\x01.", b"\x93NUMP"])
def test_a_file_of_another_kind(tmp_path, content):
    path = tmp_path / "votes.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="Expected a NumPy file"):
        read_votes(path)


@pytest.mark.parametrize("name", ["votes.npy", "votes.npz"])
@pytest.mark.parametrize("kept", [20, 150])
def test_a_damaged_file(tmp_path, name, kept):
    path = tmp_path / name
    if name.endswith("npy"):
        np.save(path, np.zeros((40, 40), dtype=int))
    else:
        np.savez_compressed(path, ballots=np.zeros((40, 40), dtype=int))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="damaged"):
        read_votes(path)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.mark.parametrize("kind", ["npy", "npz", "pickle"])
def test_python_objects_are_never_loaded(tmp_path, kind):
    mark, path = tmp_path / "mark", tmp_path / f"votes.{kind}"
    ballots = np.array([[Trap(mark)]], dtype=object)
    if kind == "npy":
        np.save(path, ballots, allow_pickle=True)
    elif kind == "npz":
        np.savez(path, ballots=ballots)
    else:
        path.write_bytes(pickle.dumps(ballots))
    with pytest.raises(ValueError, match="Python objects" if kind != "pickle" else "Expected a NumPy file"):
        read_votes(path)
    assert not mark.exists()
