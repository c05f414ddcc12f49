"""Named data sets: those that need no file, published ones in a data directory, and tables of one's own."""

import inspect
from collections.abc import Callable
from os import PathLike
from typing import Any

from .dataset import Dataset
from .embedded import breast_cancer, digits, synthetic
from .images import fashion_mnist, mnist, svhn
from .uci import adult, diabetes130

DATASETS: dict[str, Callable[..., Dataset]] = {
    "adult": adult,
    "breast_cancer": breast_cancer,
    "diabetes130": diabetes130,
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "mnist": mnist,
    "svhn": svhn,
    "synthetic": synthetic,
}


def load(name: str, *, data_dir: str | PathLike[str] | None = None, **options: Any) -> Dataset:
    """Return a data set by its name, for files and command lines; code calls the loader itself.

    The data directory is handed to the loaders that read one; `options` are the loader's own.

    >>> load("synthetic", n_rows=100, difficulty=0.5, seed=7)
    Dataset('synthetic', n_rows=100, n_features=20, n_classes=10)
    >>> load("imagenet")
    Traceback (most recent call last):
        ...
    ValueError: Expected one of adult, breast_cancer, ..., synthetic, got 'imagenet'. ...
    """
    if name not in DATASETS:
        raise ValueError(
            f"Expected one of {', '.join(DATASETS)}, got {name!r}. For a file of your own use read_table."
        )
    loader = DATASETS[name]
    known = inspect.signature(loader).parameters
    if "data_dir" in known:
        options["data_dir"] = data_dir
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = ", ".join(known) or "no options"
        raise TypeError(f"Expected {wanted} for the data set {name!r}, got {', '.join(unknown)}.")
    return loader(**options)
