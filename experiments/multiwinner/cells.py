"""One cell: a data set, a seed, its first labels, a way of voting; measured once and kept in a file."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accounting import Voting, answered
from data import Data, load
from ensembles import get_votes
from scores import scores

from tellers import LabelVotes, noise

LIMITS = (20.0, 8.0)
DELTA = 1e-5


@dataclass(frozen=True)
class Bench:
    """Where data, ballots and finished cells are, and how many processes train."""

    data_dir: Path | None
    keep: Path
    n_jobs: int = 1
    votes_dir: Path | None = None
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)

    def data(self, name: str) -> Data:
        """Return a data set, read once."""
        if name not in self.cache:
            self.cache[name] = load(name, self.data_dir)
        return self.cache[name]

    def votes(self, name: str, seed: int, first: int | None = None) -> LabelVotes:
        """Return the ballots of an ensemble, on all labels or on the first few."""
        if (name, seed) not in self.cache:
            folder = self.votes_dir or self.keep / "votes"
            self.cache[name, seed] = get_votes(self.data(name), folder, seed=seed, n_jobs=self.n_jobs)
        votes: LabelVotes = self.cache[name, seed]
        if first is None or first == votes.n_labels:
            return votes
        assert votes.ballots is not None
        return LabelVotes.from_ballots(votes.block()[:, :, :first], n_labels=first)

    def kept(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what was measured before under this name, or measure and keep it."""
        path = self.keep / "cells" / f"{name}.json"
        if not path.is_file():
            found = measure()
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.rename(path)
        return json.loads(path.read_text())


def release(bench: Bench, name: str, seed: int, voting: Voting, first: int | None = None) -> np.ndarray:
    """Return the labels that come out for all public rows, with seeded noise."""
    votes = bench.votes(name, seed, first)
    return voting.mechanism(votes.n_labels).release(votes, noise.seeded(seed)).labels


def measure_cell(
    bench: Bench, name: str, seed: int, voting: Voting, *,
    first: int | None = None, limits: tuple[float, ...] = LIMITS, delta: float = DELTA,
) -> dict[str, float]:  # fmt: skip
    """Return how many queries are answered by every accountant, and how good all released labels are."""
    k = first or bench.data(name).n_labels

    def measure() -> dict[str, float]:
        votes = bench.votes(name, seed, first)
        truth = bench.data(name).y_public[:, :k]
        found = answered(voting, votes, limits, delta=delta)
        return found | scores(truth, release(bench, name, seed, voting, first))

    words = "" if limits == LIMITS else f"-{limits[0]:g}to{limits[-1]:g}x{len(limits)}"
    words += "" if delta == DELTA else f"-{delta:g}"
    return bench.kept(f"{name}-{seed}-{k}-{voting.key}{words}", measure)


def without_noise(bench: Bench, name: str, seed: int, first: int | None = None) -> dict[str, float]:
    """Return how good the majority of the teachers is, with no noise at all."""
    k = first or bench.data(name).n_labels

    def measure() -> dict[str, float]:
        votes = bench.votes(name, seed, first)
        truth = bench.data(name).y_public[:, :k]
        return scores(truth, (2 * votes.sums > votes.n_teachers).astype(np.uint8))

    return bench.kept(f"{name}-{seed}-{k}-majority", measure)


def released_scores(
    bench: Bench, name: str, seed: int, voting: Voting, first: int | None = None
) -> dict[str, float]:
    """Return how good the labels are that come out, without accounting for them."""
    k = first or bench.data(name).n_labels

    def measure() -> dict[str, float]:
        return scores(bench.data(name).y_public[:, :k], release(bench, name, seed, voting, first))

    return bench.kept(f"{name}-{seed}-{k}-{voting.key}-scores", measure)
