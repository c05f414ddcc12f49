"""Trees that take their time and say what they are at, importable by workers: they get this folder's path."""

import os
import time
from pathlib import Path

import fsspec
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from sklearn.tree import DecisionTreeClassifier


class SlowTree(DecisionTreeClassifier):
    """A tree that leaves a file while it is fitted, or asked, and may wait for a word before it goes on.

    `fitting` and `asking` are the seconds that take. With `stuck`, the first one to be fitted waits until
    there is a file of that name with .go at its end.
    """

    def __init__(self, folder="", fitting=0.0, asking=0.0, stuck="", random_state=None):
        super().__init__(random_state=random_state)
        self.folder = folder
        self.fitting = fitting
        self.asking = asking
        self.stuck = stuck

    def fit(self, X, y):
        if X.min() < 0:  # made up, to try it out
            return super().fit(X, y)
        if self.stuck:
            try:
                Path(self.stuck).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                deadline = time.monotonic() + 120
                while not Path(f"{self.stuck}.go").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
        with self._at_work("fit"):
            time.sleep(self.fitting)
            return super().fit(X, y)

    def predict(self, X):
        if X.min() < 0:
            return super().predict(X)
        with self._at_work("predict"):
            time.sleep(self.asking)
            return super().predict(X)

    def _at_work(self, verb):
        return _Marked(self.folder, f"{verb}-{self.random_state}-{os.getpid()}")


class _Marked:
    def __init__(self, folder, name):
        self.place = Path(folder) / name if folder else None

    def __enter__(self):
        if self.place is not None:
            self.place.touch()

    def __exit__(self, *_):
        if self.place is not None:
            self.place.rename(self.place.with_name(f"done-{self.place.name}"))


class DiesInFit(DecisionTreeClassifier):
    """A tree that ends its process, as one does that takes all memory."""

    def fit(self, X, y):
        if X.min() >= 0:  # not the rows that it is tried on
            os._exit(1)
        return super().fit(X, y)


class Loud(DecisionTreeClassifier):
    """A tree that cannot learn large numbers and says so, and is speechless after others."""

    def fit(self, X, y):
        if X.max() > 1e10:
            raise ValueError(f"cannot fit {X[0, 0]}")
        self.speechless_ = bool(X.max() > 1e5)
        return super().fit(X, y)

    def predict(self, X):
        if self.speechless_:
            raise RuntimeError(f"cannot say {X[0, 0]}")
        return super().predict(X)

    def predict_proba(self, X):
        if self.speechless_:
            raise RuntimeError(f"cannot say {X[0, 0]}")
        return super().predict_proba(X)


class Bucket(DirFileSystem):
    """An object store as far as fsspec can tell, in a folder of this machine; importing this registers it."""

    protocol = "bucket"

    def __init__(self, **options):
        super().__init__(path="/", fs=LocalFileSystem(auto_mkdir=True), **options)


class StoredTree(DecisionTreeClassifier):
    """A tree whose worker knows how to open bucket:// addresses."""


fsspec.register_implementation("bucket", Bucket, clobber=True)
