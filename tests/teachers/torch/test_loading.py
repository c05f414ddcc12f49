"""Networks read back from their folder vote as they did; what is not whole, or not one run, is refused."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("torch")

from torch import nn

from tellers.data import digits
from tellers.nn.batched import Batched
from tellers.nn.classifier import TorchClassifier
from tellers.nn.weights import dump_states, load_states, read_about
from tellers.teachers import load_ensemble, partition, train_ensemble
from tellers.teachers.models import ConstantTeacher, find_model, save_teacher, write_model

DATA = digits()
X, Y, PUBLIC = DATA.X[:600], DATA.y[:600], DATA.X[600:800]
PARTS = partition(600, 5, seed=3)


def train(folder, network="mlp", *, engine=None, epochs=2, **options):
    model = TorchClassifier(network, epochs=epochs, batch_size=20, device="cpu", **options)
    return train_ensemble(
        model, X, Y, PARTS, n_classes=10, seed=7, n_jobs=1, engine=engine or Batched(chunk=2), folder=folder
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    return folder, train(folder)


@pytest.fixture
def copied(trained, tmp_path):
    return shutil.copytree(trained[0], tmp_path / "teachers")


def same_votes(one, other):
    return (one.vote(PUBLIC).ballots == other.vote(PUBLIC).ballots).all()


def test_they_vote_as_they_did(trained):
    folder, made = trained
    loaded = load_ensemble(folder, n_classes=10, n_teachers=5)
    assert repr(loaded) == repr(made)
    assert same_votes(loaded, made)
    assert (loaded.n_features, loaded.classifier.epochs) == (64, 2)
    # Different teachers, in their order: a mix-up would show.
    assert len(np.unique(loaded.vote(PUBLIC).ballots, axis=0)) == 5


@pytest.mark.parametrize("engine", ["loop", Batched(chunk=5)], ids=["loop", "batched"])
def test_images_keep_their_shape(engine, tmp_path):
    made = train(tmp_path, "cnn", engine=engine, epochs=1, image_shape=(8, 8))
    loaded = load_ensemble(tmp_path, n_classes=10)
    assert loaded.shape == (1, 8, 8)
    assert same_votes(loaded, made)


def plain_network():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def test_a_function_has_to_be_given_again(tmp_path):
    made = train(tmp_path, plain_network)
    with pytest.raises(ValueError, match="network=the function"):
        load_ensemble(tmp_path, n_classes=10)
    assert same_votes(load_ensemble(tmp_path, n_classes=10, network=plain_network), made)
    with pytest.raises(ValueError, match="teachers of this network"):
        load_ensemble(tmp_path, n_classes=10, network=lambda: nn.Linear(64, 10))


@pytest.mark.parametrize("lost", ["teachers-00004-00004.json", "teachers-00000-00001.safetensors"])
def test_a_missing_teacher_is_refused(copied, lost):
    (copied / lost).unlink()
    with pytest.raises(ValueError, match=r"one finished run .* none that is"):
        load_ensemble(copied, n_classes=10)


def test_a_changed_file_is_no_teacher(copied):
    file = copied / "teachers-00002-00003.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="none that is"):
        load_ensemble(copied, n_classes=10)


def test_numbers_that_were_declared_must_be_right(trained):
    with pytest.raises(ValueError, match=r"n_teachers=6 .* got 5"):
        load_ensemble(trained[0], n_classes=10, n_teachers=6)
    with pytest.raises(ValueError, match=r"n_classes=11 .* got 10"):
        load_ensemble(trained[0], n_classes=11)


def test_an_unfinished_run_beside_is_left_alone_and_a_finished_one_is_refused(copied, trained):
    train(copied, engine=Batched(chunk=3))  # the same teachers, in files of another size
    with pytest.raises(ValueError, match="those of 2 runs"):
        load_ensemble(copied, n_classes=10)
    (copied / "teachers-00003-00004.json").unlink()
    assert same_votes(load_ensemble(copied, n_classes=10), trained[1])


def test_two_kinds_in_one_folder_are_refused(copied):
    save_teacher(copied, 0, model=ConstantTeacher(1), made_of={})
    with pytest.raises(ValueError, match="one kind"):
        load_ensemble(copied, n_classes=10)


def test_files_that_do_not_say_what_they_are_are_refused(copied):
    for file in copied.glob("*.safetensors"):
        content, made_of = find_model(copied, file.name)
        write_model(copied, file.name, content=dump_states(load_states(content)), made_of=made_of)
    with pytest.raises(ValueError, match="say what they are"):
        load_ensemble(copied, n_classes=10)


def test_what_is_said_about_teachers_comes_from_no_row(trained):
    """Of the rows there are fingerprints in the manifest, and weights; the words hold settings alone."""
    folder, _ = trained
    content, _ = find_model(folder, "teachers-00000-00001.safetensors")
    about = read_about(content)
    assert set(about) == {"parameters", "shape", "n_classes", "n_teachers", "first", "engine"}
    assert json.dumps(about)
