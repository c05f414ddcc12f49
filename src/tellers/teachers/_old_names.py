"""Names of before an answer space said what teachers answer: each does what it did, and warns."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..privacy.votes import SetOf
from .ensemble import Ensemble, load_ensemble, train_ensemble
from .store import VoteFile, read_votes, save_votes


def renamed(old: str, new: str) -> None:
    """Say what a name is now, to whoever calls what calls this."""
    words = f"{old} is now {new}. The old name is removed in version 0.4."
    warnings.warn(words, DeprecationWarning, stacklevel=3)


def _plain(old: str, new: str, now: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        renamed(f"tellers.teachers.{old}", new)
        return now(*given, **named)

    return _named(call, old, new)


def _of_labels(old: str, new: str, now: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, n_labels: int, resolution: int = 1, **named: Any) -> Any:
        renamed(f"tellers.teachers.{old}", f"{new}(..., space=SetOf(n_labels))")
        return now(*given, space=SetOf(n_labels, resolution), **named)

    return _named(call, old, new)


def _named(call: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"Do what `{new}` does, and say that this is its name now."
    return call


def _train_dask(*given: Any, **named: Any) -> Any:
    from .dask.ensemble import train_dask_ensemble

    return train_dask_ensemble(*given, **named)


train_teachers = _plain("train_teachers", "train_ensemble", train_ensemble)
train_torch_ensemble = _plain("train_torch_ensemble", "train_ensemble", train_ensemble)
load_torch_ensemble = _plain("load_torch_ensemble", "load_ensemble", load_ensemble)
save_label_votes = _plain("save_label_votes", "save_votes", save_votes)
train_label_teachers = _of_labels("train_label_teachers", "train_ensemble", train_ensemble)
train_label_ensemble = _of_labels("train_label_ensemble", "train_ensemble", train_ensemble)
train_torch_label_ensemble = _of_labels("train_torch_label_ensemble", "train_ensemble", train_ensemble)
train_dask_label_ensemble = _of_labels("train_dask_label_ensemble", "train_dask_ensemble", _train_dask)
load_label_ensemble = _of_labels("load_label_ensemble", "load_ensemble", load_ensemble)
load_torch_label_ensemble = _of_labels("load_torch_label_ensemble", "load_ensemble", load_ensemble)
LabelVoteFile = VoteFile


def LabelEnsemble(  # noqa: N802 - it was a class
    teachers: Sequence[Any],
    n_labels: int,
    thresholds: float | Sequence[float] = 0.5,
    resolution: int = 1,
) -> Ensemble:
    """Return an `Ensemble` of teachers of many labels."""
    renamed("tellers.teachers.LabelEnsemble", "Ensemble(..., space=SetOf(n_labels))")
    return Ensemble(teachers, space=SetOf(n_labels, resolution), thresholds=thresholds)


def read_label_votes(path: Any, **options: Any) -> VoteFile:
    """Return what a file of votes on many labels holds."""
    renamed("tellers.teachers.read_label_votes", "read_votes(..., kind='labels')")
    return read_votes(path, kind="labels", **options)
