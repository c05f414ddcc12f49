"""Sweeps: many settings of an aggregation on the same stored votes, and what each costs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from ..accounting.costs import public_cost, public_numbers, published_cost
from ..accounting.exact import exact_cost
from ..data.metrics import measure, precision_recall
from ..errors import require_count, require_fraction, require_positive
from ..mechanisms._flip_probability import log_q_gnmax
from ..mechanisms.labels._published import as_published_gnthreshold, as_published_tau
from ..mechanisms.labels.adaptive import as_published_share
from ..mechanisms.labels.gnthreshold import published_labels
from ..mechanisms.registry import mechanism_named
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve, check_orders
from ..privacy.release import SILENT
from ..privacy.sealed import Sealed
from ..privacy.votes import LabelVotes, Votes, keep, kept
from ._folder import RunFolder, require_queries
from ._tables import read_tables
from ._voting import stored_votes
from .settings.files import read_config

# --- One way to aggregate stored votes, and grids of such ways: what a sweep goes over. ---


Kind = Literal["adaptive", "adaptive-as-published", "binary", "gnmax", "gnthreshold", "powerset", "tau"]
KINDS: tuple[Kind, ...] = ("adaptive", "adaptive-as-published", "binary", "gnthreshold", "powerset", "tau")
"""Of votes on many labels."""
CLASS_KINDS: tuple[Kind, ...] = ("gnmax",)
"""Of votes on one class each."""
# Kinds that are not called as their mechanism is. The thesis's adaptive threshold is none: of it there is the
# labels' half.
_MECHANISMS = {"adaptive": "adaptive-gnthreshold", "adaptive-as-published": "gnthreshold"}
# Kinds that count parts of votes; the others take ballots of 0 and 1.
_THRESHOLDS = ("gnthreshold", "adaptive", "adaptive-as-published")


@dataclass(frozen=True, kw_only=True)
class SweepSetting:
    """One way to aggregate: shares and noises are parts of the ensemble, as the thesis has them.

    `share` (its th_e) is what a label needs; `confident_share` (th_c) what the `n_top` largest sums need for
    a query to be answered, or a label or set in Binary, tau and Powerset voting, None for no check. `sigma`
    and `sigma_gate` are the noises of the labels and of the check. `noise` says how these are read for n
    teachers: as a "deviation" of sigma n votes, or as a "variance" of sigma n, as the thesis's table 5.4 adds
    up. `max_labels` caps ballots (0: not), `max_norm` clips those of tau voting. "adaptive" chooses its share
    with noise of the scale of sigma. "gnmax" is for votes on one class each: a class needs no share, and with
    a check it is the confident one.

    >>> setting = SweepSetting(kind="gnthreshold", share=0.2, sigma=0.3, noise="variance")
    >>> round(setting.votes(setting.sigma, 50) ** 2, 9), setting.mechanism(n_teachers=50, n_labels=4).share
    (15.0, 0.2)
    >>> SweepSetting(kind="gnmax", sigma=0.2, confident_share=0.6, sigma_gate=0.3).mechanism(n_teachers=50)
    ConfidentGNMax(sigma=10.0, threshold=30.0, sigma_threshold=15.0)
    """

    kind: Kind = "gnthreshold"
    share: float = 0.5
    sigma: float
    confident_share: float | None = None
    sigma_gate: float | None = None
    n_top: int = 1
    n_samples: int | None = None
    noise: Literal["deviation", "variance"] = "deviation"
    max_labels: int = 0
    max_norm: float = 1.5

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, *CLASS_KINDS):
            known = ", ".join((*KINDS, *CLASS_KINDS))
            raise ValueError(f"Expected kind to be one of {known}, got {self.kind!r}.")
        if self.noise not in ("deviation", "variance"):
            raise ValueError(f"Expected noise='deviation' or 'variance', got {self.noise!r}.")
        require_positive(sigma=self.sigma)
        if (self.confident_share is None) != (self.sigma_gate is None):
            raise ValueError(
                "Expected confident_share and sigma_gate together, or neither, got one of them. A check "
                "needs a share and noise."
            )
        if self.sigma_gate is not None:
            require_positive(sigma_gate=self.sigma_gate)
            if self.kind == "adaptive":
                raise ValueError(
                    "Expected no check with kind='adaptive', got confident_share: no mechanism has both. "
                    "Take 'gnthreshold', or 'adaptive-as-published' for the thesis's numbers."
                )
        if self.n_samples is not None:
            require_count(n_samples=self.n_samples)

    def votes(self, sigma: float, n_teachers: int) -> float:
        """Return a noise as a standard deviation in votes."""
        return sigma * n_teachers if self.noise == "deviation" else math.sqrt(sigma * n_teachers)

    def mechanism(self, *, n_teachers: int, n_labels: int | None = None, resolution: int = 1) -> Any:
        """Return the mechanism that this is; of the thesis's adaptive one, which is none, the labels' half.

        `n_labels` and `resolution` are those of votes on many labels; votes on one class each have neither.
        """
        of_classes = self.kind in CLASS_KINDS
        if of_classes != (n_labels is None):
            wanted, other = (
                ("many labels", "one class each") if of_classes else ("one class each", "many labels")
            )
            raise ValueError(f"Expected a kind for {wanted}, got {self.kind!r}, which is for {other}.")
        sigma, share = self.votes(self.sigma, n_teachers), self.confident_share
        known = {
            "sigma": sigma,
            "scale": sigma,
            "share": self.share,
            "max_labels": self.max_labels,
            "max_norm": self.max_norm,
            "n_labels": n_labels,
        }
        if self.kind in _THRESHOLDS:
            known["resolution"] = resolution
        if share is not None and self.sigma_gate is not None:
            gate = self.votes(self.sigma_gate, n_teachers)
            known |= {"confident_share": share, "sigma_gate": gate, "n_top": min(self.n_top, n_labels or 1)}
            known |= {"threshold": share * n_teachers, "sigma_threshold": gate}
        name = _MECHANISMS.get(self.kind, self.kind)
        if share is not None:
            name = "confident" if of_classes else f"confident-{name}"
        made: Any = mechanism_named(name)
        return made(**{one.name: known[one.name] for one in fields(made) if one.name in known})


def mechanism_for(setting: SweepSetting, votes: LabelVotes | Votes) -> Any:
    """Return the mechanism that a setting is for some votes."""
    if not isinstance(votes, LabelVotes):
        return setting.mechanism(n_teachers=votes.n_teachers)
    return setting.mechanism(
        n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
    )


def sweep_settings(
    *,
    sigmas: Sequence[float],
    shares: Sequence[float] = (0.5,),
    kinds: Sequence[Kind] = ("gnthreshold",),
    checks: Sequence[tuple[float, float] | None] = (None,),
    n_samples: Sequence[int | None] = (None,),
    **fixed: Any,
) -> list[SweepSetting]:
    """Return all combinations: `checks` are None, or (confident_share, sigma_gate).

    Kinds that know no share have one setting for all of them. A check with a sound adaptive threshold is left
    out: no mechanism has both.

    >>> settings = sweep_settings(sigmas=[0.1, 0.3], shares=[0.2, 0.4], kinds=["gnthreshold", "binary"])
    >>> len(settings), settings[0].share
    (6, 0.2)
    """
    found: list[SweepSetting] = []
    for kind, share, check, sigma, n in product(kinds, shares, checks, sigmas, n_samples):
        if (kind == "adaptive" and check is not None) or (kind != "gnthreshold" and share != shares[0]):
            continue
        gate: dict[str, Any] = {}
        if check is not None:
            gate = {"confident_share": check[0], "sigma_gate": check[1]}
        found.append(SweepSetting(kind=kind, share=share, sigma=sigma, n_samples=n, **gate, **fixed))
    return found


# --- Sweeps: what many settings of an aggregation make of the same stored votes, and what each would cost.
#
# Teachers are asked once and their ballots kept; everything here is arithmetic on those. It is a study, for
# whoever may see the votes: to look at how good each setting is and then take the best is a release that
# nobody has paid for, unless the teachers learned from public rows, or are others than those that will be
# asked.


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# The thesis's tables are made at orders from 2 on, by the classic conversion.
_PUBLISHED_ORDERS = tuple(float(order) for order in (*range(2, 33), 64, 128, 256, 512))


@dataclass(frozen=True, kw_only=True)
class SweepNumbers:
    """What became of the votes at one setting. All of it was seen through the votes, and is private.

    Scores are of the labels that were told, against the truth; mAP ranks 1 above 0, and `accuracy` is the
    share of labels, or classes, that are right. `published_epsilon` and `dependent_epsilon` are the thesis's
    own, without and with a look at the votes: no bounds, for its tables. Of "gnmax", `dependent_epsilon` is
    that of Papernot et al. 2018, along the path taken. `mean_q` is the mean chance that a query's likeliest
    labels do not come out. NaN: not defined here, or the truth is not known.
    """

    accuracy: float = math.nan
    macro_f1: float = math.nan
    micro_f1: float = math.nan
    macro_precision: float = math.nan
    macro_recall: float = math.nan
    mean_average_precision: float = math.nan
    answered: float
    exact_epsilon: float = math.nan
    published_epsilon: float = math.nan
    dependent_epsilon: float = math.nan
    mean_q: float = math.nan


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One setting on one ensemble: `public_epsilon` holds for any votes, the rest is sealed.

    `public_epsilon` covers every query asked, answered or not; it is infinite for the thesis's adaptive
    threshold, which moves with the votes and promises nothing.

    >>> from tellers import noise
    >>> votes = LabelVotes.from_sums([[9, 0]], n_teachers=10)
    >>> settings = sweep_settings(sigmas=[0.1], kinds=["adaptive-as-published"])
    >>> sweep(votes, [[1, 0]], settings, delta=1e-5, noise=noise.seeded(7))[0].public_epsilon
    inf
    """

    setting: SweepSetting
    n_teachers: int
    n_samples: int
    public_epsilon: float
    private: Sealed[SweepNumbers]


def sweep(
    ensembles: LabelVotes | Votes | Sequence[LabelVotes] | Sequence[Votes],
    truth: ArrayLike | None,
    settings: Iterable[SweepSetting],
    *,
    delta: float,
    noise: Noise,
    n_changed: int = 3,
    exact: bool = True,
    progress: Callable[[int], object] | None = None,
) -> list[SweepRow]:
    """Return what every setting makes of stored votes, ensemble by ensemble; nothing is asked again.

    `ensembles` are the votes of one or more ensembles on the same queries, of which `truth` is known: labels
    of 0 and 1, or for votes on one class each their numbers, and then settings are of kind "gnmax". Without
    it (None) there are costs and no scores. `n_changed` is how many labels a training clip has at most, which
    is all that the thesis charges.

    Guarantee: `public_epsilon` holds for any votes. The rows as a whole are no release: see above.
    Assumes:   the votes are those that `release` would be given; `delta` is the same for every number.
    Reference: the thesis on private audio tagging, sections 4.3.4 and 5.3, figures 5.13 to 5.15.

    >>> from tellers import noise
    >>> votes = LabelVotes.from_ballots([[[1, 0]] * 4] * 9 + [[[0, 1]] * 4], n_labels=2)
    >>> rows = sweep(
    ...     votes, [[1, 0]] * 4, sweep_settings(sigmas=[0.1, 0.3]), delta=1e-5, noise=noise.seeded(7)
    ... )
    >>> [round(row.public_epsilon, 1) for row in rows], rows[0].private
    ([13.7, 3.6], Sealed(<private>))
    >>> named, settings = Votes.from_counts([[9, 1]] * 4, n_teachers=10), sweep_settings(
    ...     sigmas=[0.1, 0.3], kinds=["gnmax"]
    ... )
    >>> rows = sweep(named, [0] * 4, settings, delta=1e-5, noise=noise.seeded(7))
    >>> rows[0].private.reveal().accuracy
    1.0
    """
    require_fraction(delta=delta)
    require_count(n_changed=n_changed)
    given: list[Any] = [ensembles] if isinstance(ensembles, Votes) else list(ensembles)
    known = None if truth is None else np.asarray(truth)
    rows: list[SweepRow] = []
    chosen = list(settings)
    for whole in given:
        _require_fitting(whole, known, chosen)
        for setting in chosen:
            n = len(whole) if setting.n_samples is None else setting.n_samples
            if n > len(whole):
                raise ValueError(f"Expected n_samples of at most {len(whole)}, the queries asked, got {n}.")
            votes, right = _fitting(whole[:n], setting), None if known is None else known[:n]
            rows.append(_row(setting, votes, right, delta, noise, n_changed=n_changed, exact=exact))
            if progress is not None:
                progress(len(rows))
    return rows


def flip_chances(votes: LabelVotes, share: float | Floats, sigma: float) -> Floats:
    """Return for every query how likely its likeliest labels do not come out: the thesis's q. Private.

    `share` is one for all queries or one each, `sigma` the noise in votes.

    Reference: the thesis on private audio tagging, Theorem 13 (continuous noise).
    """
    limits = np.broadcast_to(np.asarray(share, dtype=np.float64), (len(votes),))[:, None]
    margins = np.abs(votes.sums / votes.resolution - limits * votes.n_teachers) / sigma
    return np.asarray(-np.expm1(log_ndtr(margins).sum(axis=1)))


def as_counted(mechanism: Any, votes: LabelVotes) -> LabelVotes:
    """Return votes with the sums that a threshold sees: those of ballots cut to so many labels."""
    if not mechanism.max_labels:
        return votes
    sums = mechanism.fitted_sums(votes)
    return LabelVotes.from_sums(sums, n_teachers=votes.n_teachers, resolution=votes.resolution)


def as_indicators(classes: ArrayLike, n_classes: int) -> Integers:
    """Return classes as rows of labels, 1 for the class and 0 for all others; silence stays silence."""
    chosen = np.asarray(classes, dtype=np.int64)
    rows: Integers = (chosen[:, None] == np.arange(n_classes)).astype(np.int64)
    rows[chosen == SILENT] = SILENT
    return rows


def _require_fitting(
    votes: LabelVotes | Votes, truth: NDArray[Any] | None, settings: list[SweepSetting]
) -> None:
    of_classes = not isinstance(votes, LabelVotes)
    shape = (len(votes),) if of_classes else votes.totals.shape
    if truth is not None and truth.shape != shape:
        what = "class numbers" if of_classes else "0 and 1"
        each = "one for each query" if of_classes else "queries x labels"
        raise ValueError(f"Expected truth of {what} of shape {shape}, {each}, got {truth.shape}.")
    fitting = CLASS_KINDS if of_classes else KINDS
    other = sorted({setting.kind for setting in settings} - set(fitting))
    if other:
        raise ValueError(
            f"Expected kinds among {', '.join(fitting)} for votes on "
            f"{'one class each' if of_classes else 'many labels'}, got {', '.join(other)}."
        )


def _fitting(votes: LabelVotes | Votes, setting: SweepSetting) -> LabelVotes | Votes:
    """Return votes in the form a kind takes: parts of a vote become yes or no where sums are not of parts."""
    if not isinstance(votes, LabelVotes) or setting.kind in _THRESHOLDS or votes.resolution == 1:
        return votes
    said = votes.block() * 2 >= votes.resolution
    return LabelVotes.from_ballots(said, n_labels=votes.n_labels)


def _row(
    setting: SweepSetting,
    votes: LabelVotes | Votes,
    truth: NDArray[Any] | None,
    delta: float,
    noise: Noise,
    *,
    n_changed: int,
    exact: bool,
) -> SweepRow:
    mechanism = mechanism_for(setting, votes)
    as_published = setting.kind == "adaptive-as-published"
    shares = None
    if as_published and isinstance(votes, LabelVotes):
        means = as_counted(mechanism, votes).sums / (votes.n_teachers * votes.resolution)
        shares = np.clip([as_published_share(list(row)) for row in means], 1e-6, 1 - 1e-6)
        labels = _gap_labels(mechanism, votes, shares, noise)
    else:
        labels = mechanism.release(votes, noise).labels
    if not isinstance(votes, LabelVotes):
        told = labels != SILENT
        answered = told if setting.sigma_gate is not None else None
        published = RdpCurve(check_orders(None), published_cost(mechanism, votes, answered=answered))
        costs = {
            "dependent_epsilon": published.epsilon(delta),
            "mean_q": float(np.exp(log_q_gnmax(votes.counts, mechanism.sigma)).mean()),
        }
    else:
        told = (labels != SILENT).any(axis=1)
        costs = _as_published(mechanism, setting, votes, told, shares, n_changed=n_changed, delta=delta)
    if as_published:
        public = costs["exact_epsilon"] = math.inf
    else:
        public = public_cost(mechanism, len(votes), delta=delta, **public_numbers(votes)).epsilon
        if exact:
            costs["exact_epsilon"] = exact_cost(mechanism, votes).cost.reveal().epsilon(delta)
    scores = _scores(truth, labels, told, n_outputs=votes.space.n_answers)
    private = SweepNumbers(**scores, **costs, answered=float(told.mean()))
    return SweepRow(
        setting=setting,
        n_teachers=votes.n_teachers,
        n_samples=len(votes),
        public_epsilon=public,
        private=Sealed(private),
    )


def _scores(
    truth: NDArray[Any] | None, labels: Integers, told: NDArray[np.bool_], *, n_outputs: int
) -> dict[str, float]:
    """Return how right the labels that were told are, where the truth is known."""
    if truth is None:
        return {}
    found = {"accuracy": accuracy_told(truth, labels, told)}
    if labels.ndim == 1:
        truth, labels = as_indicators(truth, n_outputs), as_indicators(labels, n_outputs)
    by_label = precision_recall(truth, labels)
    for name in ("macro_f1", "micro_f1", "macro_precision", "macro_recall"):
        found[name] = getattr(by_label, name)
    return {**found, "mean_average_precision": measure(truth, labels).mean_average_precision}


def accuracy_told(truth: NDArray[Any], labels: Integers, told: NDArray[np.bool_]) -> float:
    """Return the share of what was told that is true; NaN where nothing was."""
    answered = labels[told] != SILENT
    return float((labels[told] == truth[told])[answered].mean()) if answered.any() else math.nan


def _gap_labels(mechanism: Any, votes: LabelVotes, shares: Floats, noise: Noise) -> Integers:
    """Return labels at the middle of each query's largest gap, behind the gate where there is one."""
    sums, units = mechanism.fitted_sums(votes), votes.resolution
    given = sums + noise.discrete_gaussian(mechanism.sigma * units, sums.shape)
    labels: Integers = (given > (shares * votes.n_teachers * units)[:, None]).astype(np.int64)
    if hasattr(mechanism, "gate"):
        gate = mechanism.gate(votes.n_teachers)
        top = gate.top(sums)
        opened = (top + noise.discrete_gaussian(gate.sigma, top.shape) >= 0).all(axis=1)
        labels[~opened] = SILENT
    return labels


def _as_published(
    mechanism: Any,
    setting: SweepSetting,
    votes: LabelVotes,
    told: NDArray[np.bool_],
    shares: Floats | None,
    *,
    n_changed: int,
    delta: float,
) -> dict[str, float]:
    """Return the thesis's numbers: its costs without and with a look at the votes, and its mean q."""
    orders, sigma = np.array(_PUBLISHED_ORDERS), setting.votes(setting.sigma, votes.n_teachers)
    if setting.kind == "tau" and setting.sigma_gate is None:
        curve = as_published_tau(sigma, setting.max_norm, orders=_PUBLISHED_ORDERS) * len(votes)
        return {"published_epsilon": curve.epsilon(delta, conversion="classic")}
    if setting.kind not in ("gnthreshold", "adaptive-as-published"):
        return {}

    def printed(n_labels: int, variance: float, n_queries: int) -> RdpCurve:
        return published_labels(n_labels, variance=variance, n_queries=n_queries, orders=_PUBLISHED_ORDERS)

    # Queries that were not answered are charged the labels that were checked, those that were, the answer.
    silent = RdpCurve.zero(_PUBLISHED_ORDERS)
    if setting.sigma_gate is not None:
        gate = setting.votes(setting.sigma_gate, votes.n_teachers)
        silent = printed(setting.n_top, gate**2, int((~told).sum()))
    blind = printed(n_changed, sigma**2, int(told.sum())) + silent
    total = silent.values.copy()
    answered = np.flatnonzero(told)
    if shares is None:
        groups = [(mechanism, answered)] if answered.size else []
    else:
        groups = [
            (replace(mechanism, share=float(share)), answered[shares[answered] == share])
            for share in np.unique(shares[answered])
        ]
    for one, rows in groups:
        total += as_published_gnthreshold(one, votes[rows], n_changed=n_changed, orders=orders).sum(axis=0)
    at = setting.share if shares is None else shares
    return {
        "published_epsilon": blind.epsilon(delta, conversion="classic"),
        "dependent_epsilon": RdpCurve(orders, total).epsilon(delta, conversion="classic"),
        "mean_q": float(flip_chances(as_counted(mechanism, votes), at, sigma).mean()),
    }


# --- Votes that are kept: those of a run, or of teachers of sounds in a folder of their own. ---


@dataclass(frozen=True, eq=False)
class SweptVotes:
    """Votes of teachers on a pool, kept with what is known of it, and the private folder they lie in."""

    folder: Path
    of_classes: bool

    @classmethod
    def of(cls, folder: Path, votes: LabelVotes | Votes, truth: NDArray[np.int64] | None) -> "SweptVotes":
        """Keep votes, and the truth of their queries where it is known."""
        swept = cls(folder, not isinstance(votes, LabelVotes))
        keep(swept, (votes, truth))
        return swept

    def require_same_pool(self, other: "SweptVotes") -> None:
        """Refuse votes of another kind, or on another pool."""
        if other.of_classes != self.of_classes:
            raise ValueError(
                "Expected teachers of many labels, or teachers that name one class each, got both. Sweep "
                "over them one after the other."
            )
        (mine, truth), (theirs, known) = kept(self), kept(other)
        same = truth is known if truth is None or known is None else np.array_equal(truth, known)
        if len(mine) != len(theirs) or not same:
            raise ValueError(
                f"Expected teachers that voted on one pool, those in {other.folder} voted on another. Train "
                "them with the same seed and shares."
            )


def read_stored_votes(folder: str | PathLike[str]) -> SweptVotes:
    """Return the votes that are kept in the folder of a run, or in one of `tellers audio train`."""
    place = RunFolder(Path(folder))
    if not place.config.exists() and (place.path / "settings.json").exists():
        from .sound.teaching import read_taught

        taught = read_taught(folder)
        return SweptVotes.of(taught.folder, taught.votes, taught.truth)
    if not place.config.exists():
        raise ValueError(
            f"Expected the folder of a run, found none at {place.path}. Give the folder that `tellers run` "
            "wrote."
        )
    config = read_config(place.config)
    if config.personal.variant:
        raise ValueError(
            f"Expected a run with one budget for all, {place.path} holds one with budgets per group: what a "
            "setting costs each of them is planned with tellers plan."
        )
    require_queries(config, "to try other settings on its votes", "Plan another: tellers plan.")
    if not place.votes.exists():
        raise ValueError(
            f"Expected votes in {place.path}, found none. The run was cut short: go on with it, tellers run "
            "--resume --until votes"
        )
    tables = read_tables(config)
    return SweptVotes.of(place.private, stored_votes(place.votes, tables), tables.pool_y)


def sweep_stored(
    stored: Sequence[SweptVotes],
    settings: Iterable[SweepSetting],
    *,
    delta: float,
    noise: Noise,
    page: str | PathLike[str] | None = None,
    n_changed: int = 3,
    progress: Callable[[int], object] | None = None,
) -> tuple[list[SweepRow], Path]:
    """Sweep over votes that are kept, all on one pool, and write the private page of it; return both.

    The page is `sweep.html` among the private files of the first ones, unless `page` names another place. The
    guarantee is that of `sweep`.
    """
    from .report.sweep import write_sweep

    first = stored[0]
    for other in stored[1:]:
        first.require_same_pool(other)
    every: Any = [kept(one)[0] for one in stored]
    votes, truth = kept(first)
    rows = sweep(every, truth, settings, delta=delta, noise=noise, n_changed=n_changed, progress=progress)
    place = first.folder / "sweep.html" if page is None else Path(page)
    return rows, write_sweep(place, rows, votes=votes, truth=truth, delta=delta)
