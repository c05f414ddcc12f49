"""Planning many labels: which mechanism answers the most within a budget, and how well."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import mul
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr

from ..data.metrics import LabelCounts, mean_over_labels
from ..errors import require_count, require_fraction, require_positive
from ..mechanisms.base import item_of
from ..mechanisms.labels._outcomes import distinct_ballots
from ..mechanisms.labels._published import LabelMechanism
from ..mechanisms.labels.adaptive import AdaptiveGNThreshold
from ..mechanisms.labels.binary import Binary, ConfidentBinary
from ..mechanisms.labels.gnthreshold import ConfidentGNThreshold, GNThreshold
from ..mechanisms.labels.powerset import ConfidentPowerset, PartialPowerset, Powerset
from ..mechanisms.labels.tau import ConfidentTau, Tau
from ..privacy.budget import Accountant, Budget
from ..privacy.noise import seeded
from ..privacy.rdp import Floats, RdpCurve
from ..privacy.release import SILENT
from ..privacy.votes import SetOf, Unit, Votes
from ._label_exact import bound_because
from .costs import expecting_silence, public_numbers, within_budget
from .exact import exact_cost
from .plan import Progress, n_within

Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelProfile:
    """How teachers are expected to vote on many labels, from public assumptions alone.

    A label is true in a share `yes_rate` of the examples, and a share `agreement` of all votes is right; both
    are one number for all labels, or one per label. Teachers say yes as often as it is true, so a rare label
    is missed more often than it is imagined. `correlation` ties the labels of an example together, and the
    mistakes of a teacher on it. As in `Consensus`, a `concentration` below 2 makes most votes easy.

    Nothing in it comes from private data; a wrong assumption only gives a worse plan.

    >>> LabelProfile(yes_rate=0.2)
    LabelProfile(yes_rate=0.2, agreement=0.95, correlation=0.0, concentration=1.5)
    >>> LabelProfile(yes_rate=0.1, agreement=0.7)
    Traceback (most recent call last):
        ...
    ValueError: Expected an agreement above 0.8 for a yes rate of 0.1: who always says no is ...
    """

    yes_rate: float | tuple[float, ...] = 0.1
    agreement: float | tuple[float, ...] = 0.95
    correlation: float = 0.0
    concentration: float = 1.5

    def __post_init__(self) -> None:
        for name in ("yes_rate", "agreement"):
            given = getattr(self, name)
            for value in given if isinstance(given, Sequence) else (given,):
                require_fraction(**{name: value})
            if isinstance(given, Sequence):
                object.__setattr__(self, name, tuple(float(value) for value in given))
        rates, right = np.broadcast_arrays(*self._each(None))
        for rate, share in zip(rates.ravel(), right.ravel(), strict=True):
            least = 1 - 2 * min(rate, 1 - rate)
            if share <= least:
                raise ValueError(
                    f"Expected an agreement above {least:.3g} for a yes rate of {rate:.3g}: who always says "
                    f"{'no' if rate <= 0.5 else 'yes'} is nearly as good as that, got {share:.3g}."
                )
        if not 0 <= self.correlation < 1:
            raise ValueError(f"Expected 0 <= correlation < 1, got correlation={self.correlation!r}.")
        require_positive(concentration=self.concentration)

    def votes(self, n_teachers: int, n_labels: int, *, n_queries: int, seed: int) -> tuple[Votes, Booleans]:
        """Return made-up votes and which labels were true, (queries, labels).

        >>> votes, truth = LabelProfile(correlation=0.3).votes(50, 22, n_queries=4, seed=7)
        >>> votes.n_teachers, truth.shape
        (50, (4, 22))
        """
        require_count(n_teachers=n_teachers, n_labels=n_labels, n_queries=n_queries)
        rate, right = self._each(n_labels)
        rng = np.random.default_rng(seed)
        truth = self._uniforms(rng, (n_queries, n_labels)) < rate
        # As many votes are yes as labels are true: missed ones make up for imagined ones.
        missed, imagined = (1 - right) / (2 * rate), (1 - right) / (2 * (1 - rate))
        wrong = np.where(truth, missed, imagined)
        c = self.concentration
        hard = betaincinv(c * wrong, c * (1 - wrong), self._uniforms(rng, wrong.shape))
        ballots = np.empty((n_teachers, n_queries, n_labels), dtype=np.uint8)
        for teacher in range(n_teachers):
            ballots[teacher] = truth ^ (self._uniforms(rng, wrong.shape) < hard)
        return Votes.from_ballots(ballots, SetOf(n_labels)), truth

    def _each(self, n_labels: int | None) -> tuple[Floats, Floats]:
        rate, right = np.asarray(self.yes_rate, dtype=float), np.asarray(self.agreement, dtype=float)
        for name, values in (("yes_rate", rate), ("agreement", right)):
            if n_labels is not None and values.shape not in ((), (n_labels,)):
                raise ValueError(
                    f"Expected one {name} for all labels, or one for each of {n_labels}, got {values.size}."
                )
        if rate.ndim and right.ndim and rate.size != right.size:
            raise ValueError(
                f"Expected as many values of yes_rate as of agreement, got {rate.size} and {right.size}."
            )
        return rate, right

    def _uniforms(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return uniform numbers, in each row correlated as a Gaussian copula has it."""
        if self.correlation == 0:
            return rng.random(shape)
        shared = rng.standard_normal((shape[0], 1)) * np.sqrt(self.correlation)
        own = rng.standard_normal(shape) * np.sqrt(1 - self.correlation)
        return np.asarray(ndtr(shared + own))


@dataclass(frozen=True)
class BallotTraits:
    """What about a proxy's ballots decides which mechanism suits them.

    `agreement`: the share of teachers on the larger side of a label, on average; `shared_yes`: the share of
    yes votes that a majority joins, which says more where labels are rare. `ones` and `most_ones`: how many
    labels a ballot says yes to, on average and at the 90th percentile. `top_set`: the share of teachers
    that cast the most popular set of labels; `top_set_if_independent`: what it would be if they disagreed
    on every label for itself. `correlation`: the mean absolute correlation between two labels' votes.
    """

    n_teachers: int
    n_queries: int
    n_labels: int
    agreement: float
    shared_yes: float
    ones: float
    most_ones: int
    top_set: float
    top_set_if_independent: float
    correlation: float


def ballot_traits(votes: Votes) -> BallotTraits:
    """Return what a proxy's ballots are like; private where the votes are.

    >>> votes = Votes.from_ballots([[[1, 0, 0]], [[1, 0, 0]], [[0, 1, 0]], [[1, 0, 0]]], SetOf(3))
    >>> traits = ballot_traits(votes)
    >>> traits.ones, traits.top_set, round(traits.top_set_if_independent, 2)
    (1.0, 0.75, 0.56)
    """
    votes.require_all_labels("a plan")
    share = votes.sums / (votes.n_teachers * votes.resolution)
    sides = np.maximum(share, 1 - share)
    ones = votes.block().sum(axis=2)
    winning = 2 * votes.sums > votes.n_teachers * votes.resolution
    return BallotTraits(
        n_teachers=votes.n_teachers,
        n_queries=len(votes),
        n_labels=votes.n_labels,
        agreement=float(sides.mean()),
        shared_yes=float(votes.sums[winning].sum() / max(1, votes.sums.sum())),
        ones=float(ones.mean()),
        most_ones=max(1, int(np.quantile(ones, 0.9, method="higher"))),
        top_set=float(_top_sets(votes)[0].mean() / votes.n_teachers),
        top_set_if_independent=float(np.prod(sides, axis=1).mean()),
        correlation=_correlation(votes),
    )


def label_gaps(votes: Votes) -> NDArray[np.int64]:
    """Return by how many votes each label was decided, (queries, labels); private where the votes are."""
    return np.asarray(np.abs(2 * votes.sums - votes.n_teachers * votes.resolution))


def set_gaps(votes: Votes) -> NDArray[np.int64]:
    """Return by how many ballots the most popular set of labels led, (queries); private where votes are."""
    first, second = _top_sets(votes)
    return first - second


def _top_sets(votes: Votes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, query, of_teacher = distinct_ballots(votes.block())
    counts = np.bincount(of_teacher.ravel(), minlength=query.size)
    # Sorted by query and then by count, downwards: the first and the second of each query.
    order = np.lexsort((-counts, query))
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    ends = np.append(starts[1:], query.size)
    first = counts[order[starts]]
    second = np.where(ends - starts > 1, counts[order[np.minimum(starts + 1, query.size - 1)]], 0)
    return first, second


def _correlation(votes: Votes) -> float:
    cells = votes.block().reshape(-1, votes.n_labels).astype(np.float64)
    cells = cells[:, cells.std(axis=0) > 0]
    if cells.shape[1] < 2:
        return 0.0
    pairs = np.corrcoef(cells, rowvar=False)[np.triu_indices(cells.shape[1], 1)]
    return float(np.abs(pairs).mean())


# --- What a label mechanism is expected to say, label by label, and how right that is. ---


# Draws of mechanisms whose chances are not computed label by label.
_DRAWS = 4


@dataclass(frozen=True)
class LabelScores:
    """How right labels are expected to be, silent ones left out.

    `balanced_accuracy` is the mean of the shares of right yes and right no, per label, over labels of which
    there are both; `macro_f1` is over labels that are true, or said to be, somewhere.
    """

    accuracy: float
    balanced_accuracy: float
    micro_f1: float
    macro_f1: float


def label_chances(mechanism: Any, votes: Votes, *, seed: int) -> Floats:
    """Return how likely every label is no, yes or silent, (3, queries, labels); private where votes are.

    Computed where labels are decided one by one; else shares of a few draws, from the seed.
    """
    votes.require_all_labels("a plan")
    if not hasattr(mechanism, "law") and not hasattr(mechanism, "choices"):
        source = seeded(seed)
        draws = np.stack([mechanism.release(votes, source).labels for _ in range(_DRAWS)])
        return np.stack([(draws == label).mean(axis=0) for label in (0, 1, SILENT)])
    # Where there are choices, one of them is drawn for every query.
    choices = [(np.ones(len(votes)), mechanism)]
    if hasattr(mechanism, "choices"):
        choices = mechanism.choices(votes)
    chances = np.zeros((3, len(votes), votes.n_labels))
    for chosen, at in choices:
        told = np.exp(at.law(votes.n_teachers).log_outcomes(at.fitted_sums(votes)))
        chances[: len(told)] += told * chosen[:, None]
    gate = getattr(mechanism, "gate", None)
    if gate is not None:
        opened, shut = gate(votes.n_teachers).log_pass_and_fail(mechanism.fitted_sums(votes))
        chances *= np.exp(opened)[:, None]
        chances[2] += np.exp(shut)[:, None]
    return chances


def expected_scores(chances: Floats, truth: ArrayLike) -> LabelScores:
    """Return how right labels of these chances are expected to be, against what is true, (queries, labels).

    Ratios are those of expected numbers.
    """
    true = np.asarray(truth, dtype=bool)
    no, yes = chances[0], chances[1]
    counts = LabelCounts(
        hits=(yes * true).sum(axis=0),
        misses=(no * true).sum(axis=0),
        false_alarms=(yes * ~true).sum(axis=0),
        rejections=(no * ~true).sum(axis=0),
    )
    right, micro = np.nan_to_num(counts.together.accuracy[0]), np.nan_to_num(counts.together.f1[0])
    balanced, macro = mean_over_labels(counts.balanced_accuracy), mean_over_labels(counts.f1)
    return LabelScores(
        float(right),
        float(right) if np.isnan(balanced) else balanced,
        float(micro),
        0.0 if np.isnan(macro) else macro,
    )


# --- Which kind of ballots these are, in words: what the published regimes advise, and what was found. ---


Name = Literal["consensus", "correlated", "sparse", "contested"]

# Above these the words apply; they steer no number.
_AGREE = 0.9
_SHARED_YES = 0.6
_TOP_SET = 0.5
_TOGETHER = 1.15


@dataclass(frozen=True)
class Regime:
    """The kind of ballots: its name, why it is called so, and what follows for the choice of mechanism."""

    name: Name
    why: str
    advice: str


def regime_of(
    traits: BallotTraits, best: LabelMechanism | None = None, best_exact: LabelMechanism | None = None
) -> Regime:
    """Return the regime of these ballots, and what to make of it given the settings that were found best.

    Guarantee: none; words about numbers that are all in the table.
    Assumes:   the traits are those of a public proxy.
    Reference: Dullerud et al. 2022, sections 3.3 and 5.2: Binary voting under consensus, tau voting where
               there is less of it and few labels per ballot, Powerset where labels are strongly correlated.
    """
    name = _name(traits)
    return Regime(name, _why(traits, name), _advice(name, best, best_exact))


def _name(traits: BallotTraits) -> Name:
    together = traits.top_set >= _TOGETHER * traits.top_set_if_independent
    if together and traits.top_set >= _TOP_SET:
        return "correlated"
    if traits.agreement >= _AGREE and traits.shared_yes >= _SHARED_YES:
        return "consensus"
    return "sparse" if 2 * traits.most_ones <= traits.n_labels else "contested"


def _why(traits: BallotTraits, name: Name) -> str:
    facts = {
        "agreement": f"on a label {traits.agreement:.1%} of the teachers are on the larger side, and a "
        f"majority joins {traits.shared_yes:.0%} of the yes votes",
        "sparse": f"a ballot says yes to {traits.ones:.1f} of {traits.n_labels} labels, nine in ten say it "
        f"to at most {traits.most_ones}",
        "sets": f"{traits.top_set:.0%} cast the same whole set of labels, where labels voted on one by one "
        f"would give {traits.top_set_if_independent:.0%}",
    }
    order = {
        "correlated": ("sets", "agreement", "sparse"),
        "consensus": ("agreement", "sparse", "sets"),
        "sparse": ("sparse", "agreement", "sets"),
        "contested": ("agreement", "sets", "sparse"),
    }[name]
    text = "; ".join(facts[fact] for fact in order)
    return f"{text[0].upper()}{text[1:]}."


_RULES: dict[Name, str] = {
    "correlated": "Labels come in few sets, so voting on whole sets pays for one election instead of one per "
    "label: Powerset is the published choice.",
    "consensus": "Most labels are clear, and a clear label costs next to nothing in the exact books: Binary "
    "voting is the published choice.",
    "sparse": "Teachers disagree on what is true, so the dearest pair of ballots is what is paid for; with "
    "few labels per ballot a clip brings it down: tau voting is the published choice.",
    "contested": "Teachers disagree and ballots are long: neither clear labels nor a clip help much. "
    "The published choice is the cheapest price, one set instead of many labels, if it survives the noise.",
}


def _advice(name: Name, best: LabelMechanism | None, best_exact: LabelMechanism | None) -> str:
    words = [_RULES[name]]
    if best is not None:
        reason = (
            "there consensus does not count, only how far one ballot can move all labels together"
            if not hasattr(best, "label_groups")
            else "there one set costs one election, however many labels it has"
        )
        words.append(f"Under the public price {_called(best)} answers most: {reason}.")
    if best_exact is not None:
        same = best is not None and _called(best) == _called(best_exact)
        also = "also " if same else ""
        words.append(f"In the private books {_called(best_exact)} is {also}forecast to answer most.")
    if best is None:
        words.append("No setting keeps the labels right within this budget: raise it, or get more teachers.")
    return " ".join(words)


def _called(mechanism: LabelMechanism) -> str:
    norm = getattr(mechanism, "norm", "")
    return f"{type(mechanism).__name__}{f' ({norm})' if norm else ''}"


# Every setting is tried on public votes. How many queries it answers is told twice: under the public price,
# which holds for all votes and is what a run stops by, and under the exact cost of votes like these, a
# forecast of what an operator will find in the private books.


# Noise on the yes and the no count, as a share of the teachers.
SIGMAS = (0.06, 0.1, 0.14, 0.2, 0.28, 0.4)
# Sides that a confident form asks for, and the noise of its check, as shares of the teachers.
_CHECKS = ((0.7, 0.2), (0.85, 0.3))
# From which an adaptive threshold is chosen: fewer than its own default, in time.
_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7)
# Where ballots are clipped, an exact cost takes time in the square of the labels: fewer queries then.
_CLIPPED_CELLS = 25_000
# Where groups of labels are voted on as sets, every group of a query is an election.
_ELECTIONS = 4_000
# Beyond, sets of all sizes are too many for Powerset.
MOST_LABELS = 1000


@dataclass(frozen=True)
class MultilabelPlan:
    """What one setting is expected to give. Public: it comes from assumptions or public votes.

    `n_queries` fit the budget under the public price, by the rule of a ledger: exactly as many as a run asks
    where every query costs the same, else as many as are expected; `epsilon_public` is what such a run
    states. `n_queries_exact` is the forecast for the operator's private books, under the exact cost of votes
    like the proxy's, None where it was not computed, and at least so many where that cost is an upper bound,
    for the reason in `bound_because`. `told` is
    the share of labels that are not silent, those that are true and those that are not weighing alike, and
    `agreement` how many of them equal the majority without noise. `scores` are against the truth of the
    proxy, or against that majority where none is known; `keeps` says whether they lose little to noise.

    >>> scores = LabelScores(accuracy=0.9, balanced_accuracy=0.8, micro_f1=0.7, macro_f1=0.7)
    >>> MultilabelPlan(Binary(7.0, 6), 40, 8.0, 90, told=0.5, agreement=0.99, scores=scores, keeps=True).worth
    20.0
    """

    mechanism: LabelMechanism
    n_queries: int
    epsilon_public: float
    n_queries_exact: int | None
    told: float
    agreement: float
    scores: LabelScores
    keeps: bool
    bound_because: str = ""

    @property
    def worth(self) -> float:
        """Return the queries under the public price, those told in part counting in part."""
        return self.n_queries * self.told

    @property
    def worth_exact(self) -> float:
        """Return the same under the exact cost; 0 where it was not forecast."""
        return (self.n_queries_exact or 0) * self.told


@dataclass(frozen=True)
class Advice:
    """Settings, the best first; what the proxy is like, and how good labels without noise would be.

    `n_forecast` is on how few queries the slowest forecast of an exact cost was made.
    """

    plans: tuple[MultilabelPlan, ...]
    traits: BallotTraits
    noiseless: LabelScores
    against_truth: bool
    n_forecast: int

    @property
    def regime(self) -> Regime:
        """Return the kind of ballots, and what to make of it given what was found best."""
        found = [None if best is None else best.mechanism for best in (self.best, self.best_exact)]
        return regime_of(self.traits, *found)

    @property
    def best(self) -> MultilabelPlan | None:
        """Return what answers most under the public price, of the settings that keep labels right."""
        return _first(self.plans, lambda plan: plan.worth)

    @property
    def best_exact(self) -> MultilabelPlan | None:
        """Return the setting that is forecast to answer most under the exact cost."""
        return _first(self.plans, lambda plan: plan.worth_exact)


def multilabel_settings(
    traits: BallotTraits, *, sigmas: Sequence[float] = SIGMAS, groups: Sequence[Sequence[int]] = ()
) -> list[LabelMechanism]:
    """Return the settings that the advisor tries by default, in proportion to the electorate.

    Clips and caps come from the ballots: what the average ballot says yes to, and what nine out of ten do.
    With `groups`, which are declared and never found in votes, each may be voted on as a set.

    >>> from tellers.accounting import LabelProfile
    >>> votes, _ = LabelProfile().votes(50, 22, n_queries=20, seed=7)
    >>> kinds = {type(one).__name__ for one in multilabel_settings(ballot_traits(votes))}
    >>> sorted(kinds)[:4], len(kinds)
    (['AdaptiveGNThreshold', 'Binary', 'ConfidentBinary', 'ConfidentGNThreshold'], 9)
    """
    n, k = traits.n_teachers, traits.n_labels
    # A cap or a clip that every ballot fits into is none.
    sizes = sorted({max(1, round(traits.ones)), traits.most_ones} & set(range(1, k)))
    cap = sizes[-1] if sizes else 0
    # Two ballots differ on twice as many labels as each has: a cap from half of all labels on saves nothing.
    caps = [size for size in sizes if 2 * size < k] or [0]
    found: list[LabelMechanism] = []
    for sigma in (round(share * n, 2) for share in sigmas):
        found.append(Binary(sigma, k))
        found += [Tau(sigma, k, round(math.sqrt(size), 3)) for size in sizes]
        found += [Tau(sigma, k, float(size), "l1") for size in sizes]
        if k <= MOST_LABELS:
            found.append(Powerset(sigma, k))
        if cap:
            found.append(Powerset(sigma, k, cap))
        if groups:
            found.append(PartialPowerset(sigma, k, tuple(tuple(group) for group in groups)))
        # One noise on the sum, as strong as two on both counts.
        single = round(sigma / math.sqrt(2), 2)
        found += [GNThreshold(single, k, max_labels=size) for size in caps]
        if k > 1:
            # A choice with as much noise as a label has is paid for like a label or two.
            found.append(AdaptiveGNThreshold(single, k, single, _SHARES, caps[-1]))
        for side, check in _CHECKS:
            height, noise = round(side * n, 1), round(check * n, 2)
            found.append(ConfidentBinary(sigma, k, height, noise))
            if cap:
                found.append(ConfidentTau(sigma, k, round(math.sqrt(cap), 3), height, noise))
            if k <= MOST_LABELS or cap:
                # The votes spread over many sets: a top set of half the height is sure enough.
                found.append(ConfidentPowerset(sigma, k, round(side * n / 2, 1), noise, cap))
            found.append(ConfidentGNThreshold(single, k, 1, side, noise, max_labels=caps[-1]))
    return found


def advise(
    proxy: Votes,
    truth: ArrayLike | None = None,
    *,
    budget: Budget,
    n_public: int,
    seed: int,
    max_loss: float = 0.03,
    n_sample: int = 200,
    mechanisms: Sequence[LabelMechanism] | None = None,
    groups: Sequence[Sequence[int]] = (),
    forecast_all: bool = False,
    progress: Progress | None = None,
) -> Advice:
    """Return what each label mechanism gives within the budget, and which kind of ballots the proxy has.

    Settings that lose at most `max_loss` of accuracy and of balanced accuracy (in proportion to what it has
    above chance) against a majority without noise come first, by how many queries they answer under the
    public price. Exact costs are forecast for those alone, or
    for all with `forecast_all`. At most `n_sample` queries of the proxy, drawn from the seed, are looked at.
    A mechanism that asks which share of labels to expect silent, and was not told, is told that of the proxy.
    Labels of declared `groups` are also tried as sets, unless `mechanisms` says what to try.

    Guarantee: none about privacy is needed: only public or made-up votes are looked at.
    Assumes:   the proxy resembles the private votes; the exact cost of a real run is private, and a run that
               stops by it tells something by stopping. Plan here and fix the number of queries.
    Reference: Dullerud et al. 2022, section 5, compare the same mechanisms on the private votes themselves.

    >>> from tellers import Budget
    >>> from tellers.accounting import LabelProfile
    >>> proxy, truth = LabelProfile().votes(50, 6, n_queries=40, seed=7)
    >>> tried = [Binary(7.0, 6), Powerset(3.0, 6)]
    >>> advice = advise(proxy, truth, budget=Budget(8.0, 1e-5), n_public=1000, seed=7, mechanisms=tried)
    >>> advice.best.n_queries <= advice.best.n_queries_exact
    True
    """
    require_count(n_public=n_public, n_sample=n_sample)
    if not 0 <= max_loss <= 1:
        raise ValueError(f"Expected 0 <= max_loss <= 1, got max_loss={max_loss!r}.")
    votes, right = _sample(proxy, truth, n_sample, seed)
    traits = ballot_traits(votes)
    majority = 2 * votes.sums > votes.n_teachers
    reference = majority if right is None else right
    silent = np.stack([~majority, majority, np.zeros_like(majority)]).astype(np.float64)
    noiseless = expected_scores(silent, reference)
    tried = multilabel_settings(traits, groups=groups) if mechanisms is None else list(mechanisms)
    grid = budget_orders(budget)
    plans = []
    for mechanism in tried:
        chances = label_chances(mechanism, votes, seed=seed)
        told = 1 - chances[2]
        scores = expected_scores(chances, reference)
        known = public_numbers(votes)
        held = [Accountant(budget).held_at]
        mechanism = expecting_silence(
            mechanism, float(chances[2].mean()), budget, n_public,
            spent_after=lambda tried, n: expected_price(tried, chances, orders=held, **known) * n,  # noqa: B023
            **known,
        )  # fmt: skip
        expected = expected_price(mechanism, chances, orders=held, **known)
        n_queries, stated = within_budget(
            mechanism, budget, n_public, spent_after=partial(mul, expected), **known
        )
        plan = MultilabelPlan(
            mechanism,
            n_queries,
            stated,
            None,
            # True and untrue labels weigh alike, however rare one kind is.
            float(np.mean([told[kind].mean() for kind in (reference, ~reference) if kind.any()])),
            expected_scores(chances, majority).accuracy,
            scores,
            _keeps(scores, noiseless, max_loss) and bool((told > 0).any()),
            bound_because(mechanism, votes),
        )
        if plan.keeps or forecast_all:
            few = votes[: _forecast_queries(mechanism, len(votes))]
            exact = exact_cost(cast(Any, mechanism), few, orders=grid)
            plan = replace(plan, n_queries_exact=n_within(exact, budget, n_public))
        plans.append(plan)
        if progress is not None:
            progress(1)
    plans.sort(
        key=lambda plan: (not plan.keeps, -plan.worth if plan.keeps else -plan.scores.balanced_accuracy)
    )
    n_forecast = min((_forecast_queries(m, len(votes)) for m in tried), default=0)
    return Advice(tuple(plans), traits, noiseless, right is not None, n_forecast)


def expected_price(
    mechanism: LabelMechanism,
    chances: Floats,
    *,
    orders: ArrayLike | None = None,
    n_teachers: int | None = None,
) -> RdpCurve:
    """Return what a query is expected to cost under the public price, where silence costs less."""
    unit = Unit()
    item = item_of(mechanism, unit, orders, n_teachers=n_teachers)
    if item is not None:
        each = float((1 - chances[2]).sum(axis=1).mean())
        silent: RdpCurve = item.curve(0) * (mechanism.n_labels - each)
        return silent + item.curve(1) * each
    if getattr(mechanism, "one_price", False):
        return cast(RdpCurve, mechanism.price(unit, orders))
    told = 1 - chances[2]
    checks: RdpCurve = mechanism.check_price(unit, orders)
    k = mechanism.n_labels
    if getattr(mechanism, "answers_whole_queries", False):
        whole: RdpCurve = mechanism.answer_price(unit, n_labels=k, orders=orders)
        return checks + whole * float(told.mean())
    n_told = float(told.sum(axis=1).mean())
    low = math.floor(n_told + 1e-9)
    part = max(0.0, n_told - low)
    # The price of n labels bends downwards in n: at the mean it is no less than the mean of prices.
    price: RdpCurve = mechanism.answer_price(unit, n_labels=low, orders=orders) * (1 - part)
    if part > 1e-9:
        price = price + mechanism.answer_price(unit, n_labels=low + 1, orders=orders) * part
    return checks + price


def budget_orders(budget: Budget, n_orders: int = 14) -> Floats:
    """Return the few orders among which the best one for this budget lies.

    For a cost rho times order the best is 1 + sqrt(log(1/delta) / rho), with the rho that uses up the budget;
    data-dependent costs bend upwards and have theirs below.
    """
    length = math.log(1 / budget.delta)
    rho = (math.sqrt(length + budget.epsilon) - math.sqrt(length)) ** 2
    middle = min(200.0, math.sqrt(length / rho))
    return np.asarray(1 + middle * np.geomspace(0.2, 3.0, n_orders))


def _sample(
    proxy: Votes, truth: ArrayLike | None, n_sample: int, seed: int
) -> tuple[Votes, NDArray[np.bool_] | None]:
    if proxy.ballots is None or proxy.resolution != 1:
        raise ValueError(
            "Expected a proxy with ballots of 0 and 1: what clipping and sets make of ballots cannot be told "
            "from sums. Use LabelVotes.from_ballots, or from_probabilities."
        )
    right = None if truth is None else np.asarray(truth)
    if right is not None and (right.shape != proxy.sums.shape or not np.isin(right, (0, 1)).all()):
        raise ValueError(
            f"Expected truth of 0 and 1 of shape (queries, labels) = {proxy.sums.shape}, got {right.shape}."
        )
    if len(proxy) > n_sample:
        rows = np.sort(np.random.default_rng(seed).choice(len(proxy), size=n_sample, replace=False))
        proxy, right = proxy[rows], None if right is None else right[rows]
    return proxy, None if right is None else right.astype(bool)


def _forecast_queries(mechanism: LabelMechanism, n_queries: int) -> int:
    if hasattr(mechanism, "label_groups"):
        return min(n_queries, max(8, _ELECTIONS // len(mechanism.label_groups)))
    if not mechanism.needs_ballots:
        return n_queries
    return min(n_queries, max(8, _CLIPPED_CELLS // int(mechanism.n_labels) ** 2))


def _keeps(scores: LabelScores, noiseless: LabelScores, max_loss: float) -> bool:
    # Balanced accuracy is 1/2 for a coin: where the majority itself is little better, a little is all of it.
    above = (noiseless.balanced_accuracy - 0.5) * (1 - 2 * max_loss)
    return scores.accuracy >= noiseless.accuracy - max_loss and scores.balanced_accuracy - 0.5 >= above


def _first(
    plans: Sequence[MultilabelPlan], worth: Callable[[MultilabelPlan], float]
) -> MultilabelPlan | None:
    able = [plan for plan in plans if plan.keeps and worth(plan) > 0]
    return max(able, key=worth) if able else None


# --- One parameter at a time: the settings whose plans, side by side, show what it does. ---


_NOISES = (0.04, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
_SIDES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Sweep:
    """A parameter, what it is, and for each family of mechanisms its values with the setting at each."""

    parameter: str
    meaning: str
    series: dict[str, tuple[tuple[float, LabelMechanism], ...]]

    @property
    def mechanisms(self) -> list[LabelMechanism]:
        """Return all settings of the sweep."""
        return [mechanism for points in self.series.values() for _, mechanism in points]


def sweeps_of(traits: BallotTraits, sigma: float) -> list[Sweep]:
    """Return sweeps of the noise, of the clip and of the threshold; the last two with noise `sigma`."""
    n, k = traits.n_teachers, traits.n_labels
    cap = min(traits.most_ones, k)
    clip = round(math.sqrt(cap), 3)
    noises = [round(share * n, 2) for share in _NOISES]
    heights = [round(side * n, 1) for side in _SIDES]
    clips = sorted({round(float(x), 3) for x in np.geomspace(0.7, max(1.0, math.sqrt(2 * cap)), 6)})
    check, small = round(0.2 * n, 2), cap if k > MOST_LABELS else 0
    return [
        Sweep(
            "sigma",
            "noise on the yes and the no count, in votes",
            {
                "Binary": _points(noises, lambda x: Binary(x, k)),
                f"tau l2, {clip:g}": _points(noises, lambda x: Tau(x, k, clip)),
                f"tau l1, {cap}": _points(noises, lambda x: Tau(x, k, float(cap), "l1")),
                "Powerset": _points(noises, lambda x: Powerset(x, k, small)),
                f"GNThreshold, {cap} labels": _points(
                    noises, lambda x: GNThreshold(x / math.sqrt(2), k, max_labels=cap)
                ),
            },
        ),
        Sweep(
            "max_norm",
            f"largest norm of a ballot, at sigma {sigma:g}",
            {
                "tau l2": _points(clips, lambda x: Tau(sigma, k, x)),
                "tau l1": _points([x**2 for x in clips], lambda x: Tau(sigma, k, round(x, 3), "l1")),
            },
        ),
        Sweep(
            "T",
            f"votes that a label or a set needs to be told, at sigma {sigma:g}",
            {
                "Confident Binary": _points(heights, lambda x: ConfidentBinary(sigma, k, x, check)),
                f"Confident tau l2, {clip:g}": _points(
                    heights, lambda x: ConfidentTau(sigma, k, clip, x, check)
                ),
                "Confident Powerset": _points(
                    heights, lambda x: ConfidentPowerset(sigma, k, x, check, small)
                ),
            },
        ),
    ]


def _points(
    values: list[float], make: Callable[[float], LabelMechanism]
) -> tuple[tuple[float, LabelMechanism], ...]:
    return tuple((value, make(value)) for value in values)
