"""A collaboration: some members ask all others within a budget, and learn from the answers."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import require_count
from ...ledger.memory import MemoryLedger
from ...mechanisms.labels._published import as_published_tau, published_label_cost
from ...mechanisms.labels.binary import Binary
from ...mechanisms.published import published_gnmax
from ...mechanisms.registry import answers_of
from ...privacy.budget import Accountant, Budget
from ...privacy.noise import Noise
from ...privacy.rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ...privacy.release import SILENT
from ...privacy.votes import SetOf, Votes
from ...students.order import least_confident
from .._last_step import decide, draw, is_sum, require_confidential
from .._ledger import charge_query, moved_by, query_price
from .._ring import Integers
from ..prices import affordable_queries
from .members import (
    Material,
    Member,
    choose_askers,
    fit_member,
    known_by,
    member_votes,
    score,
    voters_of,
)
from .sums import ScoredPool, ask_sum, learn_from_sum, without

# --- Asking ---
#
# The labels are those of a confidential query with the same votes and the same noise: the tally is decided by
# `tellers.parties._last_step`, after every answering party has written the price in its own ledger.

ORDERS = ("random", "uncertain")


def answering(members: Sequence[Member], asker: Member) -> tuple[Member, ...]:
    """Return who answers an asker: everybody else, as nobody votes on its own questions."""
    others = tuple(member for member in members if member.name != asker.name)
    if not others:
        raise ValueError(f"Expected somebody besides {asker.name!r} to answer, got nobody.")
    return others


def tally(members: Sequence[Member], X: NDArray[Any], *, mechanism: Any, n_outputs: int) -> Integers:
    """Return the sum of the members' votes, queries x outputs, as the mechanism counts them; private."""
    return counted(member_votes(members, X, n_outputs=n_outputs), mechanism)


def counted(votes: Votes, mechanism: Any) -> Integers:
    """Return the tally of votes as the mechanism counts them, with its cap on labels; private."""
    fitted = getattr(mechanism, "fitted_sums", None)
    return np.asarray(votes.totals if fitted is None else fitted(votes), dtype=np.int64)


def ask_members(
    asker: Member,
    X: NDArray[Any],
    *,
    members: Sequence[Member],
    mechanism: Any,
    ledgers: Mapping[str, MemoryLedger],
    noise: Noise,
    n_outputs: int,
    key: str,
) -> Integers:
    """Return what an asker is told about rows: charged to all who answer, then drawn, then decided.

    Guarantee: what is written in a party's ledger covers its records against everybody who sees any of the
               answers, whatever the votes; a party that cannot pay stops the question before anyone is
               charged.
    Assumes:   members' rows are disjoint, and so are people; each asks others with the model of its own rows.
    Reference: Choquette-Choo et al. 2021 (CaPC), steps 1 to 3; the price as in `parties._ledger`.
    """
    others = answering(members, asker)
    charge_members(
        asker, others, n_queries=len(X), mechanism=mechanism, ledgers=ledgers, noise=noise, key=key
    )
    counts = tally(others, X, mechanism=mechanism, n_outputs=n_outputs)
    return tell(counts, others, mechanism=mechanism, noise=noise)


def tell(counts: Integers, others: Sequence[Member], *, mechanism: Any, noise: Noise) -> Integers:
    """Return what is decided on a tally that was paid for: the mechanism's noise, then its last step.

    Guarantee: the law of `mechanism.release` on the same votes; only ties are broken by other draws.
    Assumes:   the price is in the ledgers (`charge_members`), and the same votes are not told twice for it.
    Reference: `tellers.parties._last_step`, which the guardian and the asker of a confidential query compute.
    """
    # There is one room, and so there are no masks.
    masks = np.zeros(counts.shape, dtype=np.int64)
    step = draw(
        mechanism, masks, n_answering=len(others), noise=noise, in_one_room=True, voters=voters_of(others)
    )
    return decide(step, counts)


def charge_members(
    asker: Member, others: Sequence[Member], *, n_queries: int, mechanism: Any,
    ledgers: Mapping[str, MemoryLedger], noise: Noise, key: str,
) -> None:  # fmt: skip
    """Write a question in the ledger of everybody who answers it, or on nobody's."""
    prices = {other.name: query_price(mechanism, n_queries, known=[known_by(other)]) for other in others}
    # All are asked first: one that cannot pay must not leave the others charged for nothing.
    for other in others:
        ledger = ledgers[other.name]
        ledger.accountant.require(ledger.spent, prices[other.name], key=key)
    names = tuple(other.name for other in others)
    for other in others:
        charge_query(
            ledgers[other.name], key, mechanism=mechanism, noise=noise, n_queries=n_queries, asker=asker.name,
            parties=names, known=[known_by(other)],
        )  # fmt: skip


def choose_rows(asker: Member, X_pool: NDArray[Any], n: int, *, order: str, seed: int) -> Integers:
    """Return which rows of its pool an asker asks about, in order: at random, or where it is least sure.

    Where it is least sure depends on the asker's own rows; in a confidential query nobody else sees it.
    """
    if order not in ORDERS:
        raise ValueError(f"Expected order to be one of {', '.join(ORDERS)}, got {order!r}.")
    if order == "random" or not hasattr(asker.model, "predict_proba"):
        return np.random.default_rng(seed).permutation(len(X_pool))[:n]
    if asker.y.ndim == 1:
        return np.asarray(least_confident(asker.model, X_pool, n), dtype=np.int64)
    chances = asker.model.predict_proba(X_pool)
    return np.argsort(np.abs(chances - 0.5).mean(axis=1), kind="stable")[:n]


# --- Costs ---
#
# The paper has a budget for each asker, and a cost that depends on the votes, which in a confidential query
# nobody sees. What holds: the price that holds for any votes, added up over all askers, for each answering
# party. One asker that keeps its labels and its model to itself learns no more of a party than that asker's
# own price; several that compare what they have, or publish their models, learn what all of their prices
# add up to.


def queries_within(budget: Budget, mechanism: Any, *, n_askers: int = 1) -> int:
    """Return how many queries each asker can be answered if a party's budget covers all askers together.

    Guarantee: so many queries for each of so many askers cost a party that answers all of them at most its
               budget, whatever the votes and whoever compares what they were told.
    Assumes:   one record of a party changes its own ballots alone.
    Reference: Feldman and Zrnic 2021, as in `Accountant`; the price of the mechanism.
    """
    require_count(n_askers=n_askers)
    return affordable_queries(mechanism, budget) // n_askers


def published_curves(mechanism: Any, votes: Votes) -> Floats:
    """Return what the paper charges queries, (queries, orders): it depends on the votes, and is private.

    Confident forms are charged what they cost on average over their checks, as nothing was drawn yet.
    """
    if answers_of(mechanism) == "labels":
        return _label_curves(mechanism, votes)
    return published_gnmax(votes, mechanism.sigma, orders=DEFAULT_ORDERS)


def _label_curves(mechanism: Any, votes: Votes) -> Floats:
    """The paper goes label by label: labels that equally many know are taken together."""
    voting, share = mechanism, getattr(mechanism, "share", None)
    if share is not None:
        if np.any(np.asarray(share) != 0.5):
            # No election of two sides; the paper has no cost for it but that of all noisy sums.
            return np.tile(mechanism.plain_rates()[1] * DEFAULT_ORDERS, (len(votes), 1))
        # The noise of the paper's two counts is on their difference here.
        voting = Binary(math.sqrt(2) * mechanism.sigma, mechanism.n_labels)
    sums, voters = mechanism.fitted_sums(votes), votes.n_voters
    costs = np.zeros((len(votes), DEFAULT_ORDERS.size))
    for n in np.unique(voters[voters > 0]):
        alike = voters == n
        part = Votes.from_totals(sums[:, alike], SetOf(int(alike.sum())), n_teachers=int(n))
        costs += published_label_cost(replace(voting, n_labels=int(alike.sum())), part, orders=DEFAULT_ORDERS)
    if not getattr(mechanism, "max_labels", 0):
        return costs
    # Ballots of so many ones have this norm; that two of them may be twice as far apart is not counted.
    norm = math.sqrt(mechanism.max_labels)
    cap = as_published_tau(math.sqrt(2) * mechanism.sigma, norm, orders=DEFAULT_ORDERS)
    return np.minimum(costs, cap.values)


def published_epsilon(curves: Floats, *, delta: float) -> float:
    """Return the epsilon that the paper states for an asker's queries; private, and no guarantee."""
    return RdpCurve(DEFAULT_ORDERS, curves.sum(axis=0)).epsilon(delta)


def published_queries(curves: Floats, budget: Budget) -> int:
    """Return how many of an asker's queries fit a budget as the paper counts; private."""
    running = np.cumsum(curves, axis=0)
    return bisect_right(
        running, budget.epsilon, key=lambda spent: RdpCurve(DEFAULT_ORDERS, spent).epsilon(budget.delta)
    )


def budget_for(price: RdpCurve, *, delta: float) -> Budget:
    """Return a budget that just covers a price, for a ledger that must hold what the paper's count allows."""
    epsilon, nothing = max(price.epsilon(delta), 1e-3), RdpCurve.zero()
    while not Accountant(Budget(epsilon, delta)).affords(nothing, price):
        epsilon *= 1.002
    return Budget(epsilon * (1 + 1e-6), delta)  # the same price added up in parts may round upwards


# --- Collaboration ---

Counting = Literal["sound", "published"]
Show = Callable[[str, int, int], None]
Judge = Callable[[Any], dict[str, float]]
IN_THE_CLEAR = "computed in one room, in the clear; the confidential protocol computes the same labels"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the parties agree on before anybody asks; all of it is public.

    `countings` are the ways of counting to try. How many are told as "published" depends on the votes: it is
    for experiments, with seeded noise and data that are public anyway. With a `PoolSum` as mechanism members
    score the whole pool at once, one sum is released to all askers, and there is no cost but the sound one.

    >>> from tellers import GNMax
    >>> Terms(mechanism=GNMax(sigma=8.0)).budget(10.0)
    Budget(epsilon=10.0, delta=1e-05)
    """

    mechanism: Any
    epsilons: tuple[float, ...] = (10.0,)
    delta: float = 1e-5
    n_askers: int = 3
    which: str = "random"
    order: str = "random"
    countings: tuple[Counting, ...] = ("sound",)

    def __post_init__(self) -> None:
        if not self.is_sum:
            require_confidential(self.mechanism)
        elif self.countings != ("sound",):
            raise ValueError("Expected one Gaussian sum to be counted sound alone: no cost depends on votes.")
        require_count(n_askers=self.n_askers)
        if not self.epsilons or not self.countings:
            raise ValueError("Expected at least one epsilon and one way of counting, got none.")
        for epsilon in self.epsilons:
            self.budget(epsilon)

    @property
    def is_sum(self) -> bool:
        """Return whether members score a whole pool at once, for one noisy sum."""
        return is_sum(self.mechanism)

    @property
    def in_the_clear(self) -> str:
        """Return in words how it is computed here."""
        return IN_THE_CLEAR.replace("labels", "sum") if self.is_sum else IN_THE_CLEAR

    def budget(self, epsilon: float) -> Budget:
        """Return the budget of this epsilon."""
        return Budget(float(epsilon), self.delta)


@dataclass(frozen=True, kw_only=True)
class AskerTurn:
    """What one asker was told under one budget, counted in one way, and how good it is afterwards.

    `published` is the epsilon that the paper would state, of this asker's answers alone and by a cost that
    depends on the votes: private, no guarantee, not printed, and not computed (NaN) with secure noise.
    `per_asker` is the public price of the same answers; `party` is what is in the ledger of the dearest
    answering party, over all askers: that one holds.
    """

    asker: str
    counting: Counting
    epsilon: float
    n_queries: int
    n_labels: int
    labels_right: float
    published: float = field(repr=False)
    per_asker: float
    party: float
    after: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Collaboration:
    """Before and after, for every asker."""

    data: str
    n_parties: int
    rows_each: int
    is_multilabel: bool
    terms: Terms
    before: dict[str, dict[str, float]]
    turns: tuple[AskerTurn, ...]

    def mean_before(self) -> dict[str, float]:
        return _mean(list(self.before.values()))

    def mean_after(self, counting: str, epsilon: float) -> dict[str, float]:
        """Return the scores after, averaged over the askers, for one budget and one way of counting."""
        return _mean([turn.after for turn in self.turns_of(counting, epsilon)])

    def turns_of(self, counting: str, epsilon: float) -> list[AskerTurn]:
        return [turn for turn in self.turns if turn.counting == counting and turn.epsilon == epsilon]

    def as_dict(self) -> dict[str, Any]:
        mechanism = self.terms.mechanism
        given = {name: value for name, value in asdict(mechanism).items() if value is not None}
        return {
            "data": self.data, "n_parties": self.n_parties, "rows_each": self.rows_each,
            "multilabel": self.is_multilabel, "which": self.terms.which, "order": self.terms.order,
            "delta": self.terms.delta, "in_the_clear": self.terms.in_the_clear,
            "mechanism": {"name": type(mechanism).__name__, **given},
            "askers": [
                {
                    "name": name, "before": scores,
                    "turns": [_plain(turn) for turn in self.turns if turn.asker == name],
                }
                for name, scores in self.before.items()
            ],
        }  # fmt: skip


def collaborate(
    material: Material,
    members: Sequence[Member],
    terms: Terms,
    *,
    estimator: Any,
    noise: Noise,
    seed: int,
    askers: Sequence[Member] | None = None,
    judge: Judge | None = None,
    show: Show | None = None,
) -> Collaboration:
    """Let some members ask all others, teach them what they were told, and say what it did and what it cost.

    Each budget and each way of counting is a collaboration of its own, in ledgers of its own. Members answer
    with the models of their own rows; an asker's pool is its own share of the public rows. `askers` are given
    where the terms do not choose them; they need not be members, who are those that answer. `judge` scores
    models in another way.

    Guarantee: for each budget, with sound counting: what is told to all askers together under that budget is
               (epsilon, delta)-differentially private for one record of a party that answers. Several budgets
               on the same rows add up. Counted as published, nothing is promised: the ledgers say what the
               answers cost, and how many there are depends on the votes. An asker's own rows are in its model
               and its choice of questions, as it is free to do: no epsilon covers those.
    Assumes:   pools are public and independent of the members' rows; askers choose by their own model; nobody
               has records at two parties.
    Reference: Dullerud et al. 2022, section 5.3 and appendix H; Choquette-Choo et al. 2021.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers import GNMax, noise
    >>> from tellers.parties import deal_members, read_material
    >>> material, model = read_material("digits", seed=7, n_private=200, n_pool=40), LogisticRegression()
    >>> members = deal_members(material.X, material.y, 10, estimator=model, seed=7)
    >>> terms = Terms(mechanism=GNMax(sigma=2.0), n_askers=1)
    >>> held = collaborate(material, members, terms, estimator=model, noise=noise.seeded(8), seed=7)
    >>> [turn.party <= 10.0 for turn in held.turns]
    [True]
    """
    is_secure = noise.name == "secure"
    if is_secure and "published" in terms.countings:
        raise ValueError(
            "Expected seeded noise where queries are counted as published, got secure noise: how many are "
            "told and what they cost depend on the votes, and are private. Count sound, or, with data that "
            "are public, draw from noise.seeded()."
        )
    say = (lambda *_: None) if show is None else show
    if askers is None:
        where = {"X": material.X_choice, "y": material.y_choice}
        askers = choose_askers(members, terms.n_askers, which=terms.which, seed=seed, **where)
    judged: Judge = judge or (lambda model: score(model, material.X_test, material.y_test))
    pools = np.array_split(np.random.default_rng(seed).permutation(len(material.X_pool)), len(askers))
    before = {asker.name: judged(asker.model) for asker in askers}
    turns: list[AskerTurn] = []
    cells = [(epsilon, counting) for epsilon in terms.epsilons for counting in terms.countings]
    asked = [
        _Asked.of(asker, members, terms, material, pool=pool, seed=seed + 1 + number, is_secure=is_secure)
        for number, (asker, pool) in enumerate(zip(askers, pools, strict=True))
        if not terms.is_sum
    ]
    for done, (epsilon, counting) in enumerate(cells):
        say("cells", done, len(cells))
        if terms.is_sum:
            turns += _sum_cell(
                material, members, terms, askers, epsilon=epsilon, estimator=estimator, noise=noise,
                seed=seed, judge=judged,
            )  # fmt: skip
            continue
        turns += _cell(
            material, members, terms, asked, epsilon=epsilon, counting=counting, estimator=estimator,
            noise=noise, seed=seed, judge=judged,
        )  # fmt: skip
    say("cells", len(cells), len(cells))
    return Collaboration(
        data=material.name, n_parties=len(members), rows_each=len(members[0].X),
        is_multilabel=material.is_multilabel, terms=terms, before=before, turns=tuple(turns),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Asked:
    """What an asker would ask about, in order, the tally of that, and what the paper would charge for it.

    With secure noise nothing but what is told may depend on the votes: then there is no such charge.
    """

    asker: Member
    others: tuple[Member, ...]
    rows: Integers
    counts: Integers
    curves: NDArray[np.float64] | None

    @classmethod
    def of(
        cls, asker: Member, members: Sequence[Member], terms: Terms, material: Material, *, pool: Integers,
        seed: int, is_secure: bool,
    ) -> "_Asked":  # fmt: skip
        others = answering(members, asker)
        order = choose_rows(asker, material.X_pool[pool], len(pool), order=terms.order, seed=seed)
        rows = pool[order]
        votes = member_votes(others, material.X_pool[rows], n_outputs=material.n_outputs)
        curves = None if is_secure else published_curves(terms.mechanism, votes)
        return cls(asker, others, rows, counted(votes, terms.mechanism), curves)


def _cell(
    material: Material, members: Sequence[Member], terms: Terms, asked: Sequence[_Asked], *, epsilon: float,
    counting: Counting, estimator: Any, noise: Noise, seed: int, judge: Judge,
) -> list[AskerTurn]:  # fmt: skip
    budget = terms.budget(epsilon)
    dearest = moved_by(terms.mechanism, map(known_by, members))
    if counting == "sound":
        # Nobody answers itself: where all ask, a party pays for all but one of them.
        names = {one.asker.name for one in asked}
        paying = max(len(names - {member.name}) for member in members)
        most = queries_within(budget, dearest, n_askers=paying)
        sizes = [min(most, len(one.rows)) for one in asked]
    else:
        sizes = [published_queries(one.curves, budget) for one in asked if one.curves is not None]
        total = sum(sizes)
        if total:
            budget = budget_for(query_price(dearest, total), delta=terms.delta)
    seeded = noise.name != "secure"
    ledgers = {m.name: MemoryLedger(Accountant(budget), allow_seeded=seeded) for m in members}
    told: list[Integers] = []
    for one, n in zip(asked, sizes, strict=True):
        labels: Integers = np.empty((0, *material.y.shape[1:]), dtype=np.int64)
        if n:
            charge_members(
                one.asker, one.others, n_queries=n, mechanism=terms.mechanism, ledgers=ledgers, noise=noise,
                key=one.asker.name,
            )  # fmt: skip
            labels = tell(one.counts[:n], one.others, mechanism=terms.mechanism, noise=noise)
        told.append(labels)
    party = max(ledger.spent.epsilon(terms.delta) for ledger in ledgers.values())
    turns = []
    for one, n, labels in zip(asked, sizes, told, strict=True):
        X = np.concatenate([one.asker.X, material.X_pool[one.rows[:n]]])
        y = np.concatenate([one.asker.y, labels])
        truth, spoken = material.y_pool[one.rows[:n]], labels != SILENT
        published = math.nan if one.curves is None else published_epsilon(one.curves[:n], delta=terms.delta)
        model = fit_member(estimator, X, y, seed=seed)
        turns.append(
            AskerTurn(
                asker=one.asker.name, counting=counting, epsilon=epsilon, n_queries=n,
                n_labels=int(spoken.sum()),
                labels_right=float((labels == truth)[spoken].mean()) if spoken.any() else float("nan"),
                published=published,
                per_asker=query_price(dearest, n).epsilon(terms.delta) if n else 0.0,
                party=party, after=judge(model),
            )
        )  # fmt: skip
    return turns


def _sum_cell(
    material: Material, members: Sequence[Member], terms: Terms, askers: Sequence[Member], *, epsilon: float,
    estimator: Any, noise: Noise, seed: int, judge: Judge,
) -> list[AskerTurn]:  # fmt: skip
    chosen, budget = terms.mechanism, terms.budget(epsilon)
    mechanism = chosen.planned(budget)
    pool = ScoredPool.of(material.X_pool, material.n_outputs, chosen.n_directions)
    seeded = noise.name != "secure"
    ledgers = {m.name: MemoryLedger(Accountant(budget), allow_seeded=seeded) for m in members}
    release = ask_sum(members, pool, mechanism=mechanism, ledgers=ledgers, noise=noise, key="pool")
    party, names = max(book.spent.epsilon(terms.delta) for book in ledgers.values()), set(ledgers)
    turns = []
    for asker in askers:
        others = release
        if asker.name in names:
            others = without(release, pool.ballot(asker, mechanism.steps), pool)
        model = learn_from_sum(asker, others, pool, estimator=estimator, weight=chosen.weight, seed=seed)
        turns.append(
            AskerTurn(
                asker=asker.name, counting="sound", epsilon=epsilon, n_queries=len(pool.X), n_labels=0,
                labels_right=math.nan, published=math.nan, per_asker=party, party=party, after=judge(model),
            )
        )  # fmt: skip
    return turns


def _plain(turn: AskerTurn) -> dict[str, Any]:
    told = asdict(turn)
    if math.isnan(turn.published):  # nobody computed it
        del told["published"]
    return told


def _mean(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


# --- Summary ---


@dataclass(frozen=True)
class SummaryRow:
    """A line of the table: before, or after with one budget counted in one way.

    `scores` are means with standard errors over repetitions, each the mean of its askers; `party` is the
    largest epsilon of any party, over all askers; `published`, which is private and not printed, the largest
    that the paper would state.
    """

    state: str
    counting: str
    epsilon: float
    n_queries: float
    labels_right: float
    published: float = field(repr=False)
    per_asker: float
    party: float
    scores: dict[str, tuple[float, float]]


def summary(repetitions: Sequence[Collaboration]) -> list[SummaryRow]:
    """Return the table of collaborations that differ in their seeds alone."""
    first = repetitions[0]
    nothing = (math.nan,) * 2
    before = _spread([one.mean_before() for one in repetitions])
    lines = [SummaryRow("before", "", 0.0, 0.0, *nothing, *nothing, before)]
    for epsilon in first.terms.epsilons:
        for counting in first.terms.countings:
            turns = [turn for one in repetitions for turn in one.turns_of(counting, epsilon)]
            right = [turn.labels_right for turn in turns if not math.isnan(turn.labels_right)]
            lines.append(
                SummaryRow(
                    "after", counting, epsilon, float(np.mean([turn.n_queries for turn in turns])),
                    float(np.mean(right)) if right else math.nan,
                    max(turn.published for turn in turns), max(turn.per_asker for turn in turns),
                    max(turn.party for turn in turns),
                    _spread([one.mean_after(counting, epsilon) for one in repetitions]),
                )
            )  # fmt: skip
    return lines


def _spread(means: Sequence[dict[str, float]]) -> dict[str, tuple[float, float]]:
    found = {}
    for name in means[0]:
        values = np.array([one[name] for one in means])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
        found[name] = (float(values.mean()), error)
    return found
