"""Images of digits and clothes: MNIST and Fashion-MNIST in idx files, SVHN in MATLAB files."""

import io
import math
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .base import Dataset
from .directory import find_file, read_file, unpack

_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def mnist(
    part: Literal["train", "test"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
    verify: bool = True,
) -> Dataset:
    """Return MNIST, 60,000 or 10,000 digits of 28 by 28 pixels, from its idx files.

    Pixels are float32 in [0, 1], or the bytes of the file with `scale=False`.

    >>> mnist("test", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    return _idx_dataset("mnist", part, names=(), data_dir=data_dir, scale=scale, verify=verify)


def fashion_mnist(
    part: Literal["train", "test"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
    verify: bool = True,
) -> Dataset:
    """Return Fashion-MNIST, pieces of clothing in the format of MNIST, from its idx files.

    Debian's package dataset-fashion-mnist puts them where `data_dir="/usr/share/datasets"` finds them.

    >>> fashion_mnist("train", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    return _idx_dataset("fashion-mnist", part, names=_CLOTHES, data_dir=data_dir, scale=scale, verify=verify)


def svhn(
    part: Literal["train", "test", "extra"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    scale: bool = True,
) -> Dataset:
    """Return SVHN, house numbers cropped to 32 by 32 pixels in colour, from its MATLAB files.

    The file writes zero as class 10; here it is class 0. Pixels are float32 in [0, 1], or the bytes of the
    file with `scale=False`, a quarter of the memory. No checksum is known for these files.

    >>> svhn("extra", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    _require_part(part, ("train", "test", "extra"))
    name = f"svhn/{part}_32x32.mat"
    path = find_file(name, data_dir=data_dir)
    from scipy.io import loadmat

    try:
        content = loadmat(io.BytesIO(unpack(path)) if path.suffix in (".gz", ".xz") else path)
        images, labels = np.asarray(content["X"]), np.asarray(content["y"]).ravel()
    except Exception as error:  # the reader raises whatever a damaged file makes it stumble over
        raise ValueError(f"Expected a MATLAB file with X and y in {path}, could not read it.") from error
    if images.shape != (32, 32, 3, len(labels)) or images.dtype != np.uint8:
        raise ValueError(
            f"Expected bytes of shape (32, 32, 3, {len(labels)}) in {path}, "
            f"got {images.dtype} of shape {images.shape}."
        )
    if not np.isin(labels, np.arange(1, 11)).all():
        raise ValueError(f"Expected labels 1 to 10 (10 is the digit zero) in {path}, got others.")
    rows = images.transpose(3, 0, 1, 2).reshape(len(labels), -1)
    y = labels.astype(np.int64) % 10
    return Dataset(name=f"svhn/{part}", X=_pixels(rows, scale), y=y, n_classes=10, image_shape=(32, 32, 3))


def read_idx(content: bytes) -> NDArray[Any]:
    """Return the array of an unpacked idx file.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES or content[3] == 0:
        raise ValueError("Expected an idx file, which starts with two zeros, a type and a number of axes.")
    dtype, n_axes = np.dtype(_IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * n_axes
    if len(content) < start:
        raise ValueError(f"Expected an idx file with {n_axes} axes, got {len(content)} bytes.")
    shape = tuple(int(n) for n in np.frombuffer(content, dtype=">u4", count=n_axes, offset=4))
    if len(content) != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"Expected an idx file of shape {shape}, got {len(content)} bytes. Fetch it again.")
    return np.frombuffer(content, dtype=dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _idx_dataset(
    folder: str,
    part: str,
    *,
    names: tuple[str, ...],
    data_dir: str | PathLike[str] | None,
    scale: bool,
    verify: bool,
) -> Dataset:
    _require_part(part, ("train", "test"))
    stem = f"{folder}/{'train' if part == 'train' else 't10k'}"
    images = read_idx(read_file(f"{stem}-images-idx3-ubyte", data_dir=data_dir, verify=verify))
    labels = read_idx(read_file(f"{stem}-labels-idx1-ubyte", data_dir=data_dir, verify=verify))
    if images.ndim != 3 or labels.shape != (len(images),):
        raise ValueError(
            f"Expected images and as many labels in {stem}-*, got shapes {images.shape} and {labels.shape}."
        )
    rows = images.reshape(len(images), -1)
    return Dataset(
        name=f"{folder}/{part}", X=_pixels(rows, scale), y=labels.astype(np.int64), n_classes=10,
        class_names=names, image_shape=images.shape[1:],
    )  # fmt: skip


def _pixels(rows: NDArray[Any], scale: bool) -> NDArray[Any]:
    # By a constant: a mean or a deviation of private images would be one more release.
    return rows.astype(np.float32) / np.float32(255) if scale else np.ascontiguousarray(rows)


def _require_part(part: str, parts: tuple[str, ...]) -> None:
    if part not in parts:
        raise ValueError(f"Expected part to be one of {', '.join(parts)}, got {part!r}.")
