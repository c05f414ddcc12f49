"""An audit of a whole run: the same run many times over, with canaries in one teacher's rows and without.

Teachers learn from disjoint rows, so canaries change the ballots of one teacher: that one is trained twice,
all others once. What is repeated, with fresh noise each time, is everything from the votes on.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.audit.membership import MembershipAudit, audit_membership
from ..errors import require_count
from ..ledger.memory import MemoryLedger
from ..privacy import noise
from ..privacy.noise import Noise
from ..privacy.votes import Votes
from ..students.fitting import spread_columns
from ..teachers.ensemble import train_ensemble
from ..teachers.partitions import Partition
from ..teachers.pool import VotedPool
from ..teachers.store import read_votes
from ._folder import (
    RunFolder,
    first_price,
    make_teacher,
    public_counts,
    require_able,
    require_queries,
)  # fmt: skip
from ._tables import Tables, deal_rows, digest, read_tables
from ._voting import Spending, ask_by_settings, counts_of
from .labelling import guaranteed_epsilon, most_expected, pool_order
from .pipeline import Show, teach
from .room import Room
from .settings.sections import RunConfig

# The attacks, by what each looks at. A student that could not be taught is as sure of anything as of nothing.
CONFIDENCE = "how sure the student is of the canaries' labels"
BALLOTS = "whose ballots the student agrees with"


@dataclass(frozen=True, eq=False, repr=False)
class _Canaries:
    """Rows that go to one teacher or to nobody, and what the teachers say with them and without; private."""

    X: NDArray[Any]
    with_them: Votes
    y: NDArray[np.int64]
    without: Votes
    moved: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Canaries(<private>, n_canaries={len(self.y)})"


def audit_run(
    config: RunConfig,
    *,
    n_shadows: int = 200,
    folder: RunFolder | None = None,
    n_canaries: int = 20,
    source: Noise | None = None,
    confidence: float = 0.95,
    show: Show | None = None,
) -> MembershipAudit:
    """Return what an attack on the students of many shadow runs proves, beside what the run states.

    Half of the shadows have `n_canaries` more rows in one teacher's part: public rows on which the teachers
    are split, with the label of the minority. The guarantee of a partition covers whatever one teacher says,
    so it covers all of them together. With the `folder` of a run its votes are read; without, all teachers
    are trained. Nothing is written, and no ledger is charged: nothing of a shadow may leave. The noise is
    drawn afresh, or from `source`, for an audit that can be repeated.

    Guarantee: `epsilon` is above the truth with chance at most 1 - `confidence`.
    Assumes:   nothing; that it is far below the claim says little, since the attack may be a weak one.
    Reference: "Audit".
    """
    require_count(8, n_shadows=n_shadows)
    require_count(n_canaries=n_canaries)
    advice = "Audit the mechanism alone: tellers audit --mechanism gaussian-sum --sigma 8 --delta 1e-5."
    require_queries(config, "to make shadows of it", advice)
    _require_plain(config)
    tell, drawn = show or (lambda *_: None), source or noise.secure()
    tell("data", 0, 0)
    tables = read_tables(config)
    require_able(config, tables)
    canaries = _lay(config, tables, folder, n_canaries, tell)
    claims, scores = [], ([], [])  # type: tuple[list[float], tuple[list[Any], list[Any]]]
    for shadow in range(n_shadows):
        tell("shadows", shadow, n_shadows)
        there = shadow % 2 == 0
        student, claim = _shadow(config, tables, canaries.with_them if there else canaries.without, drawn)
        claims.append(claim)
        scores[0 if there else 1].append(_attacks(student, tables, canaries))
    tell("shadows", n_shadows, n_shadows)
    sides = [{name: [score[name] for score in side] for name in (CONFIDENCE, BALLOTS)} for side in scores]
    return audit_membership(*sides, claim=max(claims), delta=config.budget.delta, confidence=confidence)


def _require_plain(config: RunConfig) -> None:
    """Refuse runs whose shadows would be others: no claim would cover them."""
    for section, name, value, wanted in (
        ("personal", "variant", config.personal.variant, "a run with one budget for all"),
        ("labels", "names", config.labels.names, "a run with one label per row"),
        ("budget", "stop", config.budget.stop == "private", "a run that stops on public numbers"),
    ):
        if value:
            raise ValueError(
                f"{config.where(section, name)}: Expected {wanted} to audit, got another. Audit its "
                "mechanism instead: tellers audit --mechanism NAME"
            )


def _require_pool(folder: RunFolder, tables: Tables) -> None:
    """Refuse votes on another pool: rows may have been dealt by other means than those of a run."""
    if folder.identity.exists():
        there = json.loads(folder.identity.read_bytes())
        if there.get("public") != digest(tables.pool):
            raise ValueError(
                f"Expected a run that dealt its own rows in {folder.path}, got one whose votes are on "
                "another pool (of tellers audio train, say). Audit its mechanism instead: tellers audit "
                "--mechanism NAME"
            )


def _lay(
    config: RunConfig, tables: Tables, folder: RunFolder | None, n_canaries: int, tell: Show
) -> _Canaries:
    """Let all teachers vote, choose whose rows get the canaries, and let that one vote twice."""
    chosen, data, parts = config.teachers, tables.private, deal_rows(config, tables)
    model = make_teacher(config, tables)
    options: dict[str, Any] = {"n_classes": data.n_classes, "seed": config.seed}
    if folder is not None and folder.votes.exists():
        _require_pool(folder, tables)
        votes = read_votes(folder.votes, n_classes=data.n_classes).votes
    else:
        votes = train_ensemble(
            model, data.X, data.y, parts, n_jobs=chosen.n_jobs or None, timeout=chosen.timeout or None,
            retries=chosen.retries, progress=lambda done, total: tell("teachers", done, total), **options,
        ).vote(tables.pool)  # fmt: skip
    if votes.ballots is None or votes.counts.shape != (len(tables.pool), data.n_classes):
        raise ValueError("Expected the votes of every teacher on every row of the pool, got others.")
    tell("canaries", 0, 2)
    n_asked = min(config.queries.n_queries or len(tables.pool), len(tables.pool))
    asked = pool_order(tables.pool, config.queries.order, seed=config.seed)[:n_asked]
    ordered = np.sort(votes.counts[asked], axis=1)
    # Where the two leaders are closest, one ballot says most; the canaries speak for the second of them.
    rows = asked[np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")[:n_canaries]]
    labels = np.argsort(votes.counts[rows], axis=1, kind="stable")[:, -2]
    number = int(np.random.default_rng(config.seed).integers(len(parts)))
    own = parts[number]
    X, y = np.concatenate([data.X[own], tables.pool[rows]]), np.concatenate([data.y[own], labels])
    sides = []
    for n_rows in (len(y), len(own)):
        alone = Partition((np.arange(n_rows),), unit=parts.unit)
        teacher = train_ensemble(model, X[:n_rows], y[:n_rows], alone, n_jobs=1, **options)
        cast = teacher.vote(tables.pool).ballots
        assert cast is not None  # teachers vote with ballots
        ballots = votes.ballots.copy()
        ballots[number] = cast[0]
        sides.append(Votes.from_ballots(ballots, n_classes=data.n_classes))
        tell("canaries", len(sides), 2)
    after, before = (side.ballots[number] for side in sides if side.ballots is not None)
    moved = asked[after[asked] != before[asked]]
    there, gone = sides
    return _Canaries(X[len(own) :], there, labels, gone, moved, before[moved], after[moved])


def _shadow(config: RunConfig, tables: Tables, votes: Votes, source: Noise) -> tuple[Any, float]:
    """Return the student of one run from the votes on, None where none came of it, and the run's claim."""
    asking, mechanism = config.queries, config.build_mechanism()
    price = first_price(config, **public_counts(config, tables)) if config.budget.rule == "clock" else None
    accountant = config.accountant(price)
    ledger = MemoryLedger(accountant, allow_seeded=True)
    most = getattr(mechanism, "n_queries", min(asking.n_queries or len(tables.pool), len(tables.pool)))
    room = Room(VotedPool(votes), mechanism, ledger, source)
    labels = ask_by_settings(config, tables, room, n_queries=most, batch=asking.batch)
    expected = most_expected(most, mechanism, config.warm_up(), **counts_of(votes))
    claim = guaranteed_epsilon(ledger, accountant, most=expected)
    try:
        return teach(config, tables, labels, Spending(claim, claim, ())), claim
    except ValueError:  # too few labels to teach one: an outcome too, and the claim covers it
        return None, claim


def _attacks(student: Any, tables: Tables, canaries: _Canaries) -> dict[str, float]:
    if student is None:
        return {CONFIDENCE: 0.0, BALLOTS: 0.0}
    n_classes = tables.private.n_classes
    sure = _log_shares(student, canaries.X, n_classes)
    scores = {CONFIDENCE: float(sure[np.arange(len(canaries.y)), canaries.y].mean()), BALLOTS: 0.0}
    if canaries.moved.size:
        sure = _log_shares(student, tables.pool[canaries.moved], n_classes)
        each = np.arange(canaries.moved.size)
        scores[BALLOTS] = float((sure[each, canaries.after] - sure[each, canaries.before]).mean())
    return scores


def _log_shares(student: Any, X: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
    """Return how likely a student thinks every class is, in logs; one that only decides is nearly sure."""
    if hasattr(student, "predict_proba"):
        shares = spread_columns(student.predict_proba(X), student, n_classes=n_classes, never_met=0.0)
    else:
        shares = np.eye(n_classes)[np.asarray(student.predict(X), dtype=np.int64)]
    return np.asarray(np.log(shares + 1e-6))
