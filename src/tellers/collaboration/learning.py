"""A whole collaboration: who asks, what it is told within a budget, and what it has learned from that."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..budget import Accountant, Budget
from ..errors import require_count
from ..ledger import MemoryLedger
from ..noise import Noise
from ..parties.books import query_price
from ..parties.last_step import require_confidential
from ..release import SILENT
from .asking import answering, charge_members, choose_rows, counted, moved_by, tell
from .counting import budget_for, published_curves, published_epsilon, published_queries, queries_within
from .material import Material
from .members import Integers, Member, choose_askers, fit_member, member_votes, score

Counting = Literal["sound", "published"]
Show = Callable[[str, int, int], None]
Judge = Callable[[Any], dict[str, float]]
IN_THE_CLEAR = "computed in one room, in the clear; the confidential protocol computes the same labels"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the parties agree on before anybody asks; all of it is public.

    `countings` are the ways of counting to try. How many are told as "published" depends on the votes: it is
    for experiments, with seeded noise and data that are public anyway.

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
        require_confidential(self.mechanism)
        require_count(n_askers=self.n_askers)
        if not self.epsilons or not self.countings:
            raise ValueError("Expected at least one epsilon and one way of counting, got none.")
        for epsilon in self.epsilons:
            self.budget(epsilon)

    def budget(self, epsilon: float) -> Budget:
        """Return the budget of this epsilon."""
        return Budget(float(epsilon), self.delta)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one asker was told under one budget, counted in one way, and how good it is afterwards.

    `published` is the epsilon that the paper would state, of this asker's answers alone and by a cost that
    depends on the votes: private, no guarantee, not printed, and not computed (NaN) with secure noise.
    `per_asker` is the public price of the same answers; `party` is what is on the books of the dearest
    answering party, over all askers: that one holds.

    >>> told = {"n_queries": 50, "n_labels": 50, "labels_right": 0.8, "after": {"accuracy": 0.8}}
    >>> counted = {"published": 5.0, "per_asker": 5.2, "party": 9.9}
    >>> Turn(asker="party-01", counting="sound", epsilon=10.0, **told, **counted).party
    9.9
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
    """Before and after, for every asker.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers import GNMax, noise
    >>> from tellers.collaboration.material import read_material
    >>> from tellers.collaboration.members import deal_members
    >>> material, model = read_material("digits", seed=7, n_private=400), LogisticRegression()
    >>> members = deal_members(material.X, material.y, 20, estimator=model, seed=7)
    >>> terms = Terms(mechanism=GNMax(sigma=4.0), n_askers=2)
    >>> held = collaborate(material, members, terms, estimator=model, noise=noise.secure(), seed=7)
    >>> [len(held.before), len(held.turns), held.mean_after("sound", 10.0)["accuracy"] > 0.4]
    [2, 2, True]
    >>> sorted(held.as_dict())[:4], held.mean_before()["accuracy"] < 0.9
    (['askers', 'data', 'delta', 'in_the_clear'], True)
    """

    data: str
    n_parties: int
    rows_each: int
    is_multilabel: bool
    terms: Terms
    before: dict[str, dict[str, float]]
    turns: tuple[Turn, ...]

    def mean_before(self) -> dict[str, float]:
        """Return the scores before, averaged over the askers."""
        return _mean(list(self.before.values()))

    def mean_after(self, counting: str, epsilon: float) -> dict[str, float]:
        """Return the scores after, averaged over the askers, for one budget and one way of counting."""
        return _mean([turn.after for turn in self.turns_of(counting, epsilon)])

    def turns_of(self, counting: str, epsilon: float) -> list[Turn]:
        """Return the turns of all askers for one budget and one way of counting.

        >>> Collaboration(
        ...     data="tiny", n_parties=2, rows_each=3, is_multilabel=False, terms=None, before={}, turns=()
        ... ).turns_of("sound", 10.0)
        []
        """
        return [turn for turn in self.turns if turn.counting == counting and turn.epsilon == epsilon]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        mechanism = self.terms.mechanism
        return {
            "data": self.data, "n_parties": self.n_parties, "rows_each": self.rows_each,
            "multilabel": self.is_multilabel, "which": self.terms.which, "order": self.terms.order,
            "delta": self.terms.delta, "in_the_clear": IN_THE_CLEAR,
            "mechanism": {"name": type(mechanism).__name__, **asdict(mechanism)},
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

    Each budget and each way of counting is a collaboration of its own, on books of its own. Members answer
    with the models of their own rows; an asker's pool is its own share of the public rows. `askers` are given
    where the terms do not choose them; they need not be members, who are those that answer. `judge` scores
    models in another way.

    Guarantee: for each budget, with sound counting: what is told to all askers together under that budget is
               (epsilon, delta)-differentially private for one record of a party that answers. Several budgets
               on the same rows add up. Counted as published, nothing is promised: the books say what the
               answers cost, and how many there are depends on the votes. An asker's own rows are in its model
               and its choice of questions, as it is free to do: no epsilon covers those.
    Assumes:   pools are public and independent of the members' rows; askers choose by their own model; nobody
               has records at two parties.
    Reference: Dullerud et al. 2022, section 5.3 and appendix H; Choquette-Choo et al. 2021.

    >>> callable(collaborate)  # see Collaboration
    True
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
    turns: list[Turn] = []
    cells = [(epsilon, counting) for epsilon in terms.epsilons for counting in terms.countings]
    asked = [
        _Asked.of(asker, members, terms, material, pool=pool, seed=seed + 1 + number, is_secure=is_secure)
        for number, (asker, pool) in enumerate(zip(askers, pools, strict=True))
    ]
    for done, (epsilon, counting) in enumerate(cells):
        say("cells", done, len(cells))
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

    def published(self, n: int, *, delta: float) -> float:
        """Return what the paper would state of the first n answers."""
        return math.nan if self.curves is None else published_epsilon(self.curves[:n], delta=delta)


def _cell(
    material: Material, members: Sequence[Member], terms: Terms, asked: Sequence[_Asked], *, epsilon: float,
    counting: Counting, estimator: Any, noise: Noise, seed: int, judge: Judge,
) -> list[Turn]:  # fmt: skip
    budget = terms.budget(epsilon)
    # Who knows the most labels can move the most, and pays the most.
    dearest = moved_by(terms.mechanism, max(members, key=lambda member: int(member.knows.sum())))
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
    books = {m.name: MemoryLedger(Accountant(budget), allow_seeded=seeded) for m in members}
    told: list[Integers] = []
    for one, n in zip(asked, sizes, strict=True):
        labels: Integers = np.empty((0, *material.y.shape[1:]), dtype=np.int64)
        if n:
            charge_members(
                one.asker, one.others, n_queries=n, mechanism=terms.mechanism, books=books, noise=noise,
                key=one.asker.name,
            )  # fmt: skip
            labels = tell(one.counts[:n], one.others, mechanism=terms.mechanism, noise=noise)
        told.append(labels)
    party = max(ledger.spent.epsilon(terms.delta) for ledger in books.values())
    turns = []
    for one, n, labels in zip(asked, sizes, told, strict=True):
        X = np.concatenate([one.asker.X, material.X_pool[one.rows[:n]]])
        y = np.concatenate([one.asker.y, labels])
        truth, spoken = material.y_pool[one.rows[:n]], labels != SILENT
        model = fit_member(estimator, X, y, seed=seed)
        turns.append(
            Turn(
                asker=one.asker.name, counting=counting, epsilon=epsilon, n_queries=n,
                n_labels=int(spoken.sum()),
                labels_right=float((labels == truth)[spoken].mean()) if spoken.any() else float("nan"),
                published=one.published(n, delta=terms.delta),
                per_asker=query_price(dearest, n).epsilon(terms.delta) if n else 0.0,
                party=party, after=judge(model),
            )
        )  # fmt: skip
    return turns


def _plain(turn: Turn) -> dict[str, Any]:
    told = asdict(turn)
    if math.isnan(turn.published):  # nobody computed it
        del told["published"]
    return told


def _mean(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}
