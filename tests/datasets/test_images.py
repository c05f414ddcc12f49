"""Image files: idx and MATLAB, made here, and the published ones where they are at hand."""

import gzip
import struct

import numpy as np
import pytest
from scipy.io import savemat

from tellers.data import fashion_mnist, mnist, svhn
from tellers.data.images import read_idx


def idx(array, code=8):
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.tobytes()


@pytest.fixture
def made(tmp_path):
    generator = np.random.default_rng(5)
    images = generator.integers(0, 256, size=(6, 28, 28), dtype=np.uint8)
    labels = np.array([0, 9, 3, 3, 1, 2], dtype=np.uint8)
    for folder in ("mnist", "fashion-mnist"):
        (tmp_path / folder).mkdir()
        for part in ("train", "t10k"):
            (tmp_path / folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
            (tmp_path / folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path, images, labels


@pytest.mark.parametrize("loader", [mnist, fashion_mnist])
@pytest.mark.parametrize("part", ["train", "test"])
def test_idx_files_become_a_data_set(made, loader, part):
    place, images, labels = made
    data = loader(part, data_dir=place, verify=False)
    assert data.X.dtype == np.float32
    np.testing.assert_allclose(data.images * 255, images, rtol=1e-6)
    np.testing.assert_array_equal(data.y, labels)
    np.testing.assert_array_equal(loader(part, data_dir=place, verify=False, scale=False).images, images)


def test_other_images_are_not_taken_for_the_published_ones(made):
    with pytest.raises(ValueError, match="published mnist/train-images-idx3-ubyte"):
        mnist(data_dir=made[0])


def test_labels_and_images_must_be_as_many(made):
    place, _, labels = made
    (place / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx(labels[:5]))
    with pytest.raises(ValueError, match="as many labels"):
        mnist(data_dir=place, verify=False)


def test_unknown_parts_are_named(made):
    with pytest.raises(ValueError, match="part to be one of train, test, got 'extra'"):
        mnist("extra", data_dir=made[0])


@pytest.mark.parametrize(
    ("code", "dtype"), [(8, ">u1"), (9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_numbers_of_every_type(code, dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    np.testing.assert_array_equal(read_idx(idx(array, code)), array)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\1\x08\1\0\0\0\0", b"\0\0\x07\1\0\0\0\0", b"\0\0\x08\0"]
)
def test_what_is_not_idx_is_refused(content):
    with pytest.raises(ValueError, match="Expected an idx file"):
        read_idx(content)


@pytest.mark.parametrize("cut", [3, 9, -1])
def test_idx_of_the_wrong_length_is_refused(cut):
    whole = idx(np.zeros((2, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match="Expected an idx file"):
        read_idx(whole[:cut])
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        read_idx(whole + b"!")


@pytest.fixture
def house_numbers(tmp_path):
    (tmp_path / "svhn").mkdir()

    def write(part="train", **changes):
        generator = np.random.default_rng(6)
        images = generator.integers(0, 256, size=(32, 32, 3, 5), dtype=np.uint8)
        content = {"X": images, "y": np.array([[10], [1], [9], [10], [5]], dtype=np.uint8), **changes}
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", content, do_compression=True)
        return tmp_path, content["X"]

    return write


@pytest.mark.parametrize("part", ["train", "test", "extra"])
def test_svhn_puts_images_first_and_zero_at_zero(house_numbers, part):
    place, images = house_numbers(part)
    data = svhn(part, data_dir=place)
    assert data.y.tolist() == [0, 1, 9, 0, 5]
    np.testing.assert_allclose(data.images[3] * 255, images[:, :, :, 3], rtol=1e-6)
    assert svhn(part, data_dir=place, scale=False).X.dtype == np.uint8
    plain = place / "svhn" / f"{part}_32x32.mat"
    plain.with_name(plain.name + ".gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    np.testing.assert_array_equal(svhn(part, data_dir=place).X, data.X)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": np.array([[0], [1], [2], [3], [4]])}, "labels 1 to 10"),
        ({"y": np.array([[1], [2]])}, r"shape \(32, 32, 3, 2\)"),
        ({"X": np.zeros((32, 32, 3, 5))}, "Expected bytes"),
    ],
)
def test_svhn_of_another_kind_is_refused(house_numbers, changes, words):
    place, _ = house_numbers(**changes)
    with pytest.raises(ValueError, match=words):
        svhn(data_dir=place)


def test_a_broken_matlab_file_is_named(tmp_path):
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"not MATLAB")
    with pytest.raises(ValueError, match=r"test_32x32\.mat, could not read it"):
        svhn("test", data_dir=tmp_path)


def test_published_mnist(published):
    place = published("mnist")
    train, test = mnist(data_dir=place), mnist("test", data_dir=place)
    assert np.bincount(train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert (len(test), test.image_shape) == (10_000, (28, 28))
    assert train.X.max() == 1.0


def test_published_fashion_mnist(published):
    place = published("fashion-mnist")
    assert np.bincount(fashion_mnist(data_dir=place).y).tolist() == [6000] * 10
    assert np.bincount(fashion_mnist("test", data_dir=place).y).tolist() == [1000] * 10
