"""From what teachers said of the pool to labels that students learn, on the GPU's machine and later."""

from dataclasses import replace
from typing import Any

import numpy as np
from plan import PERCENT, Lesson, seed_of

from tellers import GNMax, LabelVotes, Votes, noise
from tellers.mechanisms.labels.adaptive import as_published_share
from tellers.privacy import SILENT
from tellers.runs.sound import SweepSetting


def percent(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities in whole percent, as ballots are kept."""
    return np.round(PERCENT * np.asarray(probabilities)).astype(np.uint8)


def class_votes(said: np.ndarray) -> Votes:
    """Return one vote each for the likeliest class; said is teachers x queries x classes, in percent."""
    return Votes.from_ballots(said.argmax(axis=2), n_classes=said.shape[2])


def label_votes(said: np.ndarray, *, parts: bool) -> LabelVotes:
    """Return votes on labels: in parts of a vote, or yes from one half on."""
    if parts:
        return LabelVotes.from_ballots(said / PERCENT, n_labels=said.shape[2], resolution=PERCENT)
    return LabelVotes.from_ballots((said > PERCENT // 2).astype(np.int64), n_labels=said.shape[2])


def takes_parts(setting: SweepSetting) -> bool:
    """Say whether a setting is asked with parts of a vote, or with yes and no."""
    return "threshold" in setting.kind or setting.kind == "adaptive-as-published"


def votes_for(said: np.ndarray, setting: SweepSetting, *, whole: bool) -> LabelVotes:
    """Return the votes that a setting is asked with; `whole` where only yes and no were kept."""
    return label_votes(said, parts=takes_parts(setting) and not whole)


def noiseless_labels(said: np.ndarray, *, single: bool) -> np.ndarray:
    """Return what the ensemble says without noise: the plurality, or every label that half of it says."""
    if single:
        return np.eye(said.shape[2], dtype=np.int64)[class_votes(said).counts.argmax(axis=1)]
    return (said.mean(axis=0) > PERCENT / 2).astype(np.int64)


def told(said: np.ndarray, lesson: Lesson, *, key: str, whole: bool) -> np.ndarray:
    """Return the labels of a lesson, queries x labels, SILENT where nothing was told.

    The noise is seeded by the key, so that the labels can be made again: nothing here is a release.
    """
    said = said[:, : lesson.n_queries]
    if whole:
        said = np.where(said > PERCENT // 2, PERCENT, 0)
    single = lesson.setting is None
    if lesson.noiseless:
        return noiseless_labels(said, single="city" not in key and "multi" not in key)
    source = noise.seeded(seed_of(key))
    if single:
        labels = GNMax(lesson.sigma * len(said)).release(class_votes(said), source).labels
        return np.eye(said.shape[2], dtype=np.int64)[labels]
    setting = lesson.setting
    assert setting is not None
    votes = votes_for(said, setting, whole=whole)
    mechanism: Any = setting.mechanism(
        n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
    )
    if setting.kind != "adaptive-as-published":
        return np.asarray(mechanism.release(votes, source).labels)
    return _gap_labels(setting, votes, source)


def _gap_labels(setting: SweepSetting, votes: LabelVotes, source: Any) -> np.ndarray:
    """Return labels at the middle of each query's largest gap, the thesis's, behind its check."""
    n, unit = votes.n_teachers, votes.resolution
    sigma = setting.votes(setting.sigma, n) * unit
    means = votes.sums / (n * unit)
    shares = np.array([as_published_share(list(row)) for row in means])
    given = votes.sums + source.discrete_gaussian(sigma, votes.sums.shape)
    labels = (given > (shares * n * unit)[:, None]).astype(np.int64)
    if setting.confident_share is None or setting.sigma_gate is None:
        return labels
    gate = replace(setting, kind="gnthreshold")
    checked: Any = gate.mechanism(n_teachers=n, n_labels=votes.n_labels, resolution=unit)
    silent = (checked.release(votes, source).labels == SILENT).all(axis=1)
    return np.where(silent[:, None], SILENT, labels)
