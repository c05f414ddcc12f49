"""Planning: synthetic votes from public assumptions, and how many labels a budget buys."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_fraction, require_positive
from ..mechanisms.base import Mechanism
from ..mechanisms.confident import ConfidentGNMax
from ..mechanisms.gnmax import GNMax
from ..privacy.budget import Accountant, Budget
from ..privacy.noise import seeded
from ..privacy.rdp import RdpCurve
from ..privacy.votes import SetOf, Votes
from .costs import expecting_silence, independent_cost, public_numbers, within_budget
from .exact import ExactCost, exact_cost


@dataclass(frozen=True)
class Consensus:
    """How much the teachers are expected to agree, as a distribution over queries.

    On each query a teacher is right with a probability drawn from a Beta distribution of mean
    `agreement`; `concentration` below 2 makes a few queries hard and most easy, as in practice. Wrong
    votes favour one wrong class (`focus` is its share) and spread over the others.

    The default profile resembles 250 small networks on handwritten digits. Nothing in it comes from
    private data; a better assumption gives a better plan, a wrong one only a worse plan.

    >>> Consensus()
    Consensus(agreement=0.9, concentration=1.5, focus=0.6)
    """

    agreement: float = 0.9
    concentration: float = 1.5
    focus: float = 0.6

    def __post_init__(self) -> None:
        require_fraction(agreement=self.agreement, focus=self.focus)
        require_positive(concentration=self.concentration)

    def votes(
        self, n_teachers: int, n_classes: int, *, n_queries: int, seed: int
    ) -> tuple[Votes, NDArray[np.int64]]:
        """Return made-up votes and the classes that were right.

        >>> votes, truth = Consensus().votes(50, 10, n_queries=4, seed=7)
        >>> votes.n_teachers, truth.shape
        (50, (4,))
        """
        require_count(n_teachers=n_teachers, n_queries=n_queries)
        require_count(2, n_classes=n_classes)
        rng = np.random.default_rng(seed)
        right = rng.beta(
            self.concentration * self.agreement, self.concentration * (1 - self.agreement), size=n_queries
        )
        truth = rng.integers(n_classes, size=n_queries)
        rival = (truth + rng.integers(1, n_classes, size=n_queries)) % n_classes
        chances = np.full((n_queries, n_classes), 1.0 / max(1, n_classes - 2))
        chances *= ((1 - right) * (1 - self.focus))[:, None]
        rows = np.arange(n_queries)
        chances[rows, rival] = (1 - right) * (self.focus if n_classes > 2 else 1.0)
        chances[rows, truth] = right
        chances /= chances.sum(axis=1, keepdims=True)
        edges = np.cumsum(chances, axis=1)[:, :-1]
        ballots = np.zeros((n_teachers, n_queries), dtype=np.int64)
        for teacher in range(n_teachers):
            draws = rng.random((n_queries, 1))
            ballots[teacher] = (draws > edges).sum(axis=1)
        return Votes.from_ballots(ballots, n_classes=n_classes), truth


@dataclass(frozen=True)
class LabelConsensus:
    """How much the teachers are expected to agree on each label, as a distribution over queries and labels.

    A label is right with probability `positive`. Of a label that is right a teacher says yes with a
    probability drawn from a Beta distribution of mean `found`, of one that is not with mean `spurious`;
    `concentration` below 2 makes a few labels hard and most easy, as in practice.

    Nothing in it comes from private data; a wrong assumption only gives a worse plan.

    >>> LabelConsensus()
    LabelConsensus(positive=0.1, found=0.8, spurious=0.08, concentration=4.0)
    """

    positive: float = 0.1
    found: float = 0.8
    spurious: float = 0.08
    concentration: float = 4.0

    def __post_init__(self) -> None:
        require_fraction(positive=self.positive, found=self.found, spurious=self.spurious)
        require_positive(concentration=self.concentration)

    def votes(
        self, n_teachers: int, n_labels: int, *, n_queries: int, seed: int, resolution: int = 1
    ) -> Votes:
        """Return made-up votes; with a `resolution` above 1 teachers give their probability instead of a yes.

        >>> LabelConsensus().votes(50, 22, n_queries=4, seed=7)
        Votes(<private>, n_queries=4, n_teachers=50, n_labels=22)
        """
        require_count(n_teachers=n_teachers, n_labels=n_labels, n_queries=n_queries)
        rng = np.random.default_rng(seed)
        right = rng.random((n_queries, n_labels)) < self.positive
        mean = np.where(right, self.found, self.spurious)
        chance = rng.beta(self.concentration * mean, self.concentration * (1 - mean))
        shape = (n_teachers, n_queries, n_labels)
        if resolution > 1:
            spread = rng.beta(8 * np.clip(chance, 0.01, 0.99), 8 * np.clip(1 - chance, 0.01, 0.99), shape)
            return Votes.from_ballots(spread, SetOf(n_labels, resolution))
        return Votes.from_ballots(rng.random(shape) < chance, SetOf(n_labels))


# --- Planning labels: how many a setting gives, how right they are, and what they cost. ---


Against = Literal["exact", "public"]
Progress = Callable[[int], None]

# Releases by which a mechanism is judged that does not say how likely its outcomes are.
_DRAWS = 20
# The best order of a plan lies among these; a plan needs no finer grid.
_ORDERS = np.array([1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 64, 96, 128, 256, 512])


@dataclass(frozen=True)
class LabelPlan:
    """What one setting is expected to give. Public: it comes from assumptions or public votes.

    `n_labels` answers out of `n_queries` questions, a share `accuracy` of them right. `epsilon_exact` is the
    expected cost by the exact accountant (private in a real run), an upper bound where `bound_because` says
    why. `epsilon_public` is what such a run states, `epsilon_charged` what its ledger is expected to charge:
    less, where queries stay silent. `information` is what the labels tell about the
    truth, in bits: many labels that are wrong can tell less than few that are right, and plans are ranked by
    it.
    """

    mechanism: Mechanism
    n_queries: int
    n_labels: float
    accuracy: float
    epsilon_exact: float | None
    epsilon_public: float
    epsilon_charged: float
    information: float
    bound_because: str = ""


def settings(n_teachers: int) -> list[Mechanism]:
    """Return the settings a planner tries by default: GNMax, and Confident at several thresholds."""
    sigmas = [share * n_teachers for share in (0.06, 0.1, 0.16, 0.24, 0.34)]
    plans: list[Mechanism] = [GNMax(sigma=round(sigma, 2)) for sigma in sigmas]
    for sigma in sigmas:
        for threshold in (0.5, 0.65, 0.8, 0.9):
            for check in (0.2, 0.4, 0.6):
                made = (round(sigma, 2), round(threshold * n_teachers, 1), round(check * n_teachers, 2))
                plans.append(ConfidentGNMax(*made))
    return plans


def plan_labels(
    proxy: Votes,
    truth: ArrayLike,
    *,
    budget: Budget,
    n_public: int,
    against: Against = "public",
    mechanisms: list[Mechanism] | None = None,
    progress: Progress | None = None,
) -> list[LabelPlan]:
    """Return what each setting gives within the budget, the most informative first.

    Held against the public price, a setting in which every query costs the same asks exactly as many queries
    as a run with this budget does; where queries can stay silent, as many as are expected.

    Guarantee: none about privacy is needed: only public or made-up votes are looked at.
    Assumes:   the proxy resembles the private votes; a budget held against the exact cost has a private
               stopping time, so plan the number of queries here and fix it before asking.
    Reference: Papernot et al. 2018, section 4.4 tune the same numbers on private votes, which leaks.

    >>> from tellers import Budget
    >>> from tellers.accounting import Consensus
    >>> proxy, truth = Consensus().votes(100, 5, n_queries=60, seed=7)
    >>> budget, tried = Budget(1.0, 1e-5), [GNMax(sigma=20.0)]
    >>> plans = plan_labels(proxy, truth, budget=budget, n_public=1000, mechanisms=tried)
    >>> plans[0].n_labels > 0
    True
    """
    require_count(n_public=n_public)
    right = np.asarray(truth)
    if right.shape != (len(proxy),):
        raise ValueError(
            f"Expected one true class per proxy query, {len(proxy)} of them, got shape {right.shape}."
        )
    plans = []
    for mechanism in settings(proxy.n_teachers) if mechanisms is None else mechanisms:
        trial = _Trial(mechanism, proxy, right, budget, against)
        plans.append(trial.expecting(n_public).plan(n_public))
        if progress is not None:
            progress(1)
    return sorted(plans, key=lambda plan: -plan.information)


def sigma_for_labels(
    n_labels: int,
    proxy: Votes,
    truth: ArrayLike,
    *,
    budget: Budget,
    against: Against = "public",
    make: Callable[[float], Mechanism] = GNMax,
) -> LabelPlan:
    """Return the plan with the least noise that still gives this many labels within the budget.

    `make` turns a sigma into a mechanism, for instance with a threshold in proportion.

    >>> from tellers import Budget
    >>> from tellers.accounting import Consensus
    >>> proxy, truth = Consensus().votes(100, 5, n_queries=60, seed=7)
    >>> plan = sigma_for_labels(200, proxy, truth, budget=Budget(1.0, 1e-5))
    >>> plan.n_labels >= 200 and plan.epsilon_public <= 1.0
    True
    """
    require_count(n_labels=n_labels)
    low, high = math.log(0.005 * proxy.n_teachers + 0.5), math.log(20.0 * proxy.n_teachers + 100)

    def tried(log_sigma: float) -> tuple[_Trial, int, bool]:
        trial = _Trial(make(math.exp(log_sigma)), proxy, np.asarray(truth), budget, against)
        n_needed = math.ceil(n_labels / max(trial.share, 1e-9))
        return trial, n_needed, trial.afforded(n_needed)[0] * trial.share >= n_labels

    trial, n_needed, is_enough = tried(high)
    if not is_enough:
        raise ValueError(
            f"Expected a budget that can pay for {n_labels} labels, got {budget}. "
            "Ask for fewer labels or raise the budget."
        )
    for _ in range(14):
        middle = (low + high) / 2
        quieter, n_quieter, is_enough = tried(middle)
        if is_enough:
            trial, n_needed, high = quieter, n_quieter, middle
        else:
            low = middle
    return trial.plan(n_needed)


def expected_of(
    consensus: Consensus, mechanism: Mechanism, n_teachers: int, n_classes: int, *, n_queries: int, seed: int
) -> tuple[float, float]:
    """Return `expected_labels` of votes that are made up from an assumption."""
    made_up, truth = consensus.votes(n_teachers, n_classes, n_queries=n_queries, seed=seed)
    return expected_labels(mechanism, made_up, truth)


def expected_labels(
    mechanism: Mechanism, votes: Votes, truth: ArrayLike | None = None
) -> tuple[float, float]:
    """Return the expected share of answered queries and, of those, of right labels; 0 without a truth.

    The average is over the noise alone, so it says something about the votes: plan with made-up ones.
    """
    if hasattr(mechanism, "outcomes"):
        parts = [votes[start : start + 128] for start in range(0, len(votes), 128)]
        labels = np.concatenate([np.exp(mechanism.outcomes(part).log_labels) for part in parts])
    else:
        source, labels = seeded(0), np.zeros((len(votes), 1 + votes.n_classes))
        for _ in range(_DRAWS):
            drawn = mechanism.release(votes, source).labels
            labels[np.arange(len(votes)), 1 + drawn] += 1 / _DRAWS  # silence is -1
    answered = 1 - labels[:, 0]
    if truth is None or answered.sum() == 0:
        return float(answered.mean()), 0.0
    right = labels[np.arange(len(votes)), 1 + np.asarray(truth, dtype=np.int64)]
    return float(answered.mean()), float(right.sum() / answered.sum())


@dataclass(frozen=True, eq=False)
class _Trial:
    """A setting, the public votes it is tried on, and the budget it is held to."""

    mechanism: Mechanism
    proxy: Votes
    truth: NDArray[Any]
    budget: Budget
    against: Against

    @cached_property
    def expected(self) -> tuple[float, float]:
        return expected_labels(self.mechanism, self.proxy, self.truth)

    @property
    def share(self) -> float:
        return self.expected[0]

    @cached_property
    def exact(self) -> ExactCost | None:
        if hasattr(self.mechanism, "outcomes"):
            return exact_cost(self.mechanism, self.proxy, orders=_ORDERS)
        if self.against == "exact":
            raise ValueError(
                f"Expected a mechanism with outcomes to hold a budget against its exact cost, got "
                f"{type(self.mechanism).__name__}. Hold it against the public price."
            )
        return None

    def expecting(self, n_public: int) -> "_Trial":
        """Return the trial of the setting that expects as much silence as the public votes have."""

        def charged(mechanism: Any, n_queries: int) -> RdpCurve:
            n_answers = math.ceil(self.share * n_queries)
            known = {"n_answers": n_answers, **public_numbers(self.proxy)}
            return independent_cost(mechanism, n_queries, orders=[Accountant(self.budget).held_at], **known)

        if getattr(self.mechanism, "expected_silence", 0.0) is not None:
            return self
        told = expecting_silence(
            self.mechanism, 1 - self.share, self.budget, n_public, spent_after=charged,
            **public_numbers(self.proxy),
        )  # fmt: skip
        return replace(self, mechanism=told)

    def charged(self, n_queries: int, orders: ArrayLike | None = None) -> RdpCurve:
        one_price = getattr(self.mechanism, "one_price", False)
        n_answers = None if one_price else math.ceil(self.share * n_queries)
        return independent_cost(
            self.mechanism, n_queries, n_answers=n_answers, orders=orders, **public_numbers(self.proxy)
        )

    def afforded(self, n_public: int) -> tuple[int, float]:
        """Return how many queries fit the budget, and the public epsilon of a run that asks them."""
        if self.exact is not None and self.against == "exact":
            n_queries = n_within(self.exact, self.budget, n_public)
            cost = independent_cost(self.mechanism, n_queries, **public_numbers(self.proxy))
            return n_queries, cost.epsilon(self.budget.delta)
        held = [Accountant(self.budget).held_at]
        charged = partial(self.charged, orders=held)
        known = public_numbers(self.proxy)
        return within_budget(self.mechanism, self.budget, n_public, spent_after=charged, **known)

    def plan(self, n_public: int) -> LabelPlan:
        (n_queries, public), delta, (share, accuracy) = (
            self.afforded(n_public),
            self.budget.delta,
            self.expected,
        )
        exact = None
        if self.exact is not None:
            exact = (_each(self.exact) * n_queries).epsilon(delta)
        return LabelPlan(
            self.mechanism,
            n_queries,
            n_queries * share,
            accuracy,
            exact,
            public,
            self.charged(n_queries).epsilon(delta),
            n_queries * share * _bits(accuracy, self.proxy.n_classes),
            "" if self.exact is None else self.exact.bound_because,
        )


def n_within(exact: ExactCost, budget: Budget, n_public: int) -> int:
    """Return how many queries fit the budget, if they cost what those cost that were voted on."""
    one = _each(exact)
    return bisect_left(
        range(1, n_public + 1), True, key=lambda n: (one * n).epsilon(budget.delta) > budget.epsilon
    )


def _each(exact: ExactCost) -> RdpCurve:
    return exact.cost.reveal() * (1 / exact.n_queries)


def _bits(accuracy: float, n_classes: int) -> float:
    """Information of one label about the truth, errors being spread evenly: log2 m minus the entropy."""
    wrong = min(max(1 - accuracy, 1e-12), 1 - 1e-12)
    entropy = -(1 - wrong) * math.log2(1 - wrong) - wrong * math.log2(wrong / (n_classes - 1))
    return max(0.0, math.log2(n_classes) - entropy) if accuracy > 1 / n_classes else 0.0
