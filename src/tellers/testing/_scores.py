"""What `check_mechanism` holds a mechanism to that adds up scores of the whole pool."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..mechanisms.base import price_of
from ..privacy import noise
from ..privacy.rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..privacy.release import Release
from ..privacy.votes import Scores, Unit, Votes
from ._draws import ROUNDING, clopper_pearson, coin
from ._require import require

_SHAPES = ((1, 2), (3, 2))
_MOST_CUTS = 60


def check_scores(mechanism: Any, *, n_teachers: int, n_draws: int, seed: int, alarm: float) -> None:
    """Raise AssertionError if a mechanism of scores breaks a promise, saying which one.

    Its price does not fall with the number of queries. Releases are labels, whole values and a noise level,
    drawn from the noise they are given and from nothing else, and cost the price. At neighbours whose ballot
    turns round, along one entry and along all, the statistic that tells them apart best, found on draws of
    its own, proves no divergence above the price.
    """
    price, again, more = (price_of(mechanism, Unit(), n) for n in (1, 1, 50))
    require(np.array_equal(price.orders, DEFAULT_ORDERS), "Expected a price on the default orders.")
    require(np.array_equal(price.values, again.values), "Expected the same price each time it is asked.")
    falls = (np.diff(price.values) < 0).any() or (more.values < price.values).any()
    require(not falls, "Expected a price that falls neither with the order nor with the number of queries.")
    steps = int(getattr(mechanism, "steps", 1024))
    rng = np.random.default_rng(seed)
    n_pairs = 2 * len(_SHAPES)
    for n_queries, n_columns in _SHAPES:
        space = Scores(n_columns, steps)
        scores = rng.normal(size=(n_teachers, n_queries, n_columns))
        for along in ("one entry", "all entries"):
            here, there = scores.copy(), scores.copy()
            here[0] = 1.0
            if along == "one entry":
                here[0] = 0.0
                here[0, 0, 0] = 1.0
            there[0] = -here[0]
            sides = [Votes.from_ballots(one, space).replaced(ballots=None) for one in (here, there)]
            limit = price_of(mechanism, Unit(), n_queries)
            _check_release(mechanism, sides[0], limit, seed)
            words = f"{n_queries} x {n_columns} scores whose ballot turns along {along}"
            _check_apart(
                mechanism, sides, limit, n_draws=n_draws, seed=seed, alarm=alarm / n_pairs, words=words
            )
        _check_told(mechanism, Votes.from_ballots(scores, replace(space, one_class=True)), seed)


def _check_release(mechanism: Any, votes: Votes, price: RdpCurve, seed: int) -> None:
    release = mechanism.release(votes, noise.seeded(seed))
    require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
    shape, labels, values = votes.space.told(len(votes)), release.labels, release.values
    require(labels.shape == shape, f"Expected labels of shape {shape}, got {labels.shape}.")
    wanted = len(votes), votes.space.n_answers
    fits = values is not None and values.shape == wanted and values.dtype.kind in "iu"
    require(fits, f"Expected whole values of shape {wanted}, got another shape or none.")
    require(release.noise_level is not None, "Expected the level of the noise beside the values, got none.")
    same = mechanism.release(votes, noise.seeded(seed))
    require(
        bool((values == same.values).all() and (labels == same.labels).all()),
        "Expected noise from the source that is given and from nothing else; a seed gave two releases.",
    )
    cost = release.cost.worst.values
    over = bool((cost > price.values * (1 + ROUNDING)).any())
    require(not over, "Expected releases that cost at most the price.")
    if getattr(mechanism, "one_price", False):
        require(bool((cost == price.values).all()), "Expected releases that cost the price, by `one_price`.")


def _check_told(mechanism: Any, votes: Votes, seed: int) -> None:
    release = mechanism.release(votes, noise.seeded(seed))
    inside = bool(((release.labels >= 0) & (release.labels < votes.space.n_answers)).all())
    require(inside and release.labels.shape == (len(votes),), "Expected one declared class per query.")


def _check_apart(
    mechanism: Any, sides: list[Votes], price: RdpCurve, *, n_draws: int, seed: int, alarm: float, words: str
) -> None:
    source = noise.seeded(seed + 11)
    n_pilot = max(50, n_draws // 4)

    def drawn(n: int) -> list[Floats]:
        return [
            np.stack([_told(mechanism.release(votes, source)) for _ in range(n)]).astype(np.float64)
            for votes in sides
        ]

    pilot, judged = drawn(n_pilot), drawn(n_draws)
    # The linear statistic of Fisher: it also finds entries that share their noise.
    spread = np.cov(pilot[0], rowvar=False) + np.cov(pilot[1], rowvar=False)
    scale = np.trace(spread) / len(spread)
    weights = np.linalg.solve(
        spread + 1e-9 * max(scale, 1e-9) * np.eye(len(spread)), pilot[0].mean(0) - pilot[1].mean(0)
    )
    first, (here, there) = [one @ weights for one in pilot], [one @ weights for one in judged]
    cuts = np.unique(np.quantile(np.concatenate(first), np.linspace(0.02, 0.98, _MOST_CUTS)))
    above = [(one[:, None] >= cuts).sum(axis=0) for one in (here, there)]
    p, q = (clopper_pearson(n, n_draws, alarm / (4 * cuts.size)) for n in above)
    divergence = np.maximum(coin(p, q, price.orders), coin(q, p, price.orders))
    over = divergence > price.values * (1 + ROUNDING) + ROUNDING
    worst = int(np.argmax(np.where(over, divergence / np.maximum(price.values, 1e-300), 0.0)))
    require(
        not over.any(),
        f"Expected a price above every divergence; draws prove more, at least {divergence[worst]:.4g} where "
        f"the price is {price.values[worst]:.4g}, at order {price.orders[worst]:g}, for {words}. Raise the "
        "price, or look for noise that is not drawn.",
    )


def _told(release: Release) -> Any:
    return np.asarray(release.values).ravel()
