"""Sweeps: many settings of an aggregation on the same stored votes, and what each costs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from ...accounting.costs import published_cost
from ...accounting.exact import exact_cost
from ...accounting.public import public_cost
from ...data.metrics import measure, precision_recall
from ...errors import require_count, require_fraction, require_positive
from ...mechanisms._flip_probability import log_q_gnmax
from ...mechanisms.confident import ConfidentGNMax
from ...mechanisms.gnmax import GNMax
from ...mechanisms.labels._published import LabelMechanism, as_published_gnthreshold, as_published_tau
from ...mechanisms.labels.adaptive import AdaptiveGNThreshold, as_published_share
from ...mechanisms.labels.binary import Binary, ConfidentBinary
from ...mechanisms.labels.gnthreshold import ConfidentGNThreshold, GNThreshold, published_labels
from ...mechanisms.labels.powerset import ConfidentPowerset, Powerset
from ...mechanisms.labels.tau import ConfidentTau, Tau
from ...privacy.noise import Noise
from ...privacy.rdp import RdpCurve, check_orders
from ...privacy.release import SILENT
from ...privacy.sealed import Sealed
from ...privacy.votes import LabelVotes, Votes

# --- One way to aggregate stored votes, and grids of such ways: what a sweep goes over. ---


Kind = Literal["adaptive", "adaptive-as-published", "binary", "gnmax", "gnthreshold", "powerset", "tau"]
KINDS: tuple[Kind, ...] = ("adaptive", "adaptive-as-published", "binary", "gnthreshold", "powerset", "tau")
"""Of votes on many labels."""
CLASS_KINDS: tuple[Kind, ...] = ("gnmax",)
"""Of votes on one class each."""


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
    >>> SweepSetting(kind="gnmax", sigma=0.2, confident_share=0.6, sigma_gate=0.3).class_mechanism(50)
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

    def mechanism(self, *, n_teachers: int, n_labels: int, resolution: int = 1) -> LabelMechanism:
        """Return the mechanism that this is; of the thesis's adaptive one, which is none, the labels' half.

        `resolution` is that of the votes. Binary, tau and Powerset voting take ballots of 0 and 1.
        """
        if self.kind in CLASS_KINDS:
            raise ValueError(
                f"Expected a kind for many labels, got {self.kind!r}, which is for one class each."
            )
        sigma, k = self.votes(self.sigma, n_teachers), n_labels
        if self.kind == "adaptive":
            return AdaptiveGNThreshold(
                sigma, k, scale=sigma, max_labels=self.max_labels, resolution=resolution
            )
        gate, height = self.sigma_gate, self.confident_share
        if gate is None or height is None:
            plain: dict[str, Callable[[], LabelMechanism]] = {
                "binary": lambda: Binary(sigma, k),
                "tau": lambda: Tau(sigma, k, self.max_norm),
                "powerset": lambda: Powerset(sigma, k, self.max_labels),
            }
            if self.kind in plain:
                return plain[self.kind]()
            return GNThreshold(sigma, k, self.share, self.max_labels, resolution)
        check, needed = self.votes(gate, n_teachers), height * n_teachers
        checked: dict[str, Callable[[], LabelMechanism]] = {
            "binary": lambda: ConfidentBinary(sigma, k, needed, check),
            "tau": lambda: ConfidentTau(sigma, k, self.max_norm, needed, check),
            "powerset": lambda: ConfidentPowerset(sigma, k, needed, check, self.max_labels),
        }
        if self.kind in checked:
            return checked[self.kind]()
        return ConfidentGNThreshold(
            sigma, k, min(self.n_top, k), height, check, self.share, self.max_labels, resolution
        )

    def class_mechanism(self, n_teachers: int) -> GNMax | ConfidentGNMax:
        """Return the mechanism that this is for votes on one class each."""
        if self.kind not in CLASS_KINDS:
            raise ValueError(
                f"Expected a kind for one class each, got {self.kind!r}, which is for many labels."
            )
        sigma = self.votes(self.sigma, n_teachers)
        if self.sigma_gate is None or self.confident_share is None:
            return GNMax(sigma)
        return ConfidentGNMax(
            sigma, self.confident_share * n_teachers, self.votes(self.sigma_gate, n_teachers)
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


__all__ = [
    "CLASS_KINDS", "KINDS", "Kind", "SweepNumbers", "SweepRow", "SweepSetting", "as_counted", "as_indicators",
    "flip_chances", "sweep", "sweep_settings",
]  # fmt: skip

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# The thesis's tables are made at orders from 2 on, by the classic conversion.
_PUBLISHED_ORDERS = tuple(float(order) for order in (*range(2, 33), 64, 128, 256, 512))
_THRESHOLDS = ("gnthreshold", "adaptive", "adaptive-as-published")


@dataclass(frozen=True, kw_only=True)
class SweepNumbers:
    """What became of the votes at one setting. All of it was seen through the votes, and is private.

    Scores are of the labels that were told, against the truth; mAP ranks 1 above 0, and `accuracy` is the
    share of labels, or classes, that are right. `published_epsilon` and `dependent_epsilon` are the thesis's
    own, without and with a look at the votes: no bounds, for its tables. Of "gnmax", `dependent_epsilon` is
    that of Papernot et al. 2018, along the path taken. `mean_q` is the mean chance that a query's likeliest
    labels do not come out. NaN: not defined here.
    """

    accuracy: float
    macro_f1: float
    micro_f1: float
    macro_precision: float
    macro_recall: float
    mean_average_precision: float
    answered: float
    exact_epsilon: float
    published_epsilon: float
    dependent_epsilon: float
    mean_q: float


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
    truth: ArrayLike,
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
    of 0 and 1, or for votes on one class each their numbers, and then settings are of kind "gnmax".
    `n_changed` is how many labels a training clip has at most, which is all that the thesis charges.

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
    given: list[LabelVotes | Votes] = (
        [ensembles] if isinstance(ensembles, (LabelVotes, Votes)) else list(ensembles)
    )
    known = np.asarray(truth)
    rows: list[SweepRow] = []
    chosen = list(settings)
    for whole in given:
        _require_fitting(whole, known, chosen)
        for setting in chosen:
            n = len(whole) if setting.n_samples is None else setting.n_samples
            if n > len(whole):
                raise ValueError(f"Expected n_samples of at most {len(whole)}, the queries asked, got {n}.")
            if isinstance(whole, Votes):
                rows.append(_class_row(setting, whole[:n], known[:n], delta, noise, exact))
            else:
                votes = _fitting(whole[:n], setting)
                rows.append(_row(setting, votes, known[:n], delta, noise, n_changed, exact))
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


def _require_fitting(votes: LabelVotes | Votes, truth: NDArray[Any], settings: list[SweepSetting]) -> None:
    of_classes = isinstance(votes, Votes)
    shape = (len(votes),) if isinstance(votes, Votes) else votes.sums.shape
    if truth.shape != shape:
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


def _fitting(votes: LabelVotes, setting: SweepSetting) -> LabelVotes:
    """Return votes in the form a kind takes: parts of a vote become yes or no where sums are not of parts."""
    if setting.kind in _THRESHOLDS or votes.resolution == 1:
        return votes
    said = votes.block() * 2 >= votes.resolution
    return LabelVotes.from_ballots(said, n_labels=votes.n_labels)


def _row(
    setting: SweepSetting, votes: LabelVotes, truth: NDArray[Any], delta: float, noise: Noise,
    n_changed: int, exact: bool,
) -> SweepRow:  # fmt: skip
    any_kind: Any = setting.mechanism(
        n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
    )
    as_published = setting.kind == "adaptive-as-published"
    fixed = setting.kind in ("gnthreshold", "adaptive-as-published")
    heard = as_counted(any_kind, votes) if fixed else votes
    shares = _gap_shares(heard) if as_published else None
    labels = _gap_labels(any_kind, votes, shares, noise) if shares is not None else any_kind.release(
        votes, noise
    ).labels  # fmt: skip
    said, by_label = measure(truth, labels), precision_recall(truth, labels)
    told = (labels != SILENT).any(axis=1)
    sigma = setting.votes(setting.sigma, votes.n_teachers)
    q, dependent = math.nan, math.nan
    if fixed:
        at = setting.share if shares is None else shares
        q = float(flip_chances(heard, at, sigma).mean())
        dependent = _dependent(any_kind, setting, votes, told, shares, n_changed, delta)
    private = SweepNumbers(
        accuracy=_right(truth, labels, told),
        macro_f1=by_label.macro_f1, micro_f1=by_label.micro_f1, macro_precision=by_label.macro_precision,
        macro_recall=by_label.macro_recall, mean_average_precision=said.mean_average_precision,
        answered=float(told.mean()),
        exact_epsilon=(
            math.inf if as_published
            else exact_cost(any_kind, votes).cost.reveal().epsilon(delta) if exact else math.nan
        ),
        published_epsilon=_independent(setting, votes, told, n_changed, delta),
        dependent_epsilon=dependent, mean_q=q,
    )  # fmt: skip
    public = math.inf if as_published else public_cost(any_kind, len(votes), delta=delta).epsilon
    return SweepRow(
        setting=setting, n_teachers=votes.n_teachers, n_samples=len(votes), public_epsilon=public,
        private=Sealed(private),
    )  # fmt: skip


def _class_row(
    setting: SweepSetting, votes: Votes, truth: NDArray[Any], delta: float, noise: Noise, exact: bool
) -> SweepRow:
    mechanism = setting.class_mechanism(votes.n_teachers)
    classes = mechanism.release(votes, noise).labels
    told = classes != SILENT
    known, said = as_indicators(truth, votes.n_classes), as_indicators(classes, votes.n_classes)
    scores, by_class = measure(known, said), precision_recall(known, said)
    published = published_cost(mechanism, votes, answered=told if setting.sigma_gate is not None else None)
    private = SweepNumbers(
        accuracy=_right(truth, classes, told), macro_f1=by_class.macro_f1, micro_f1=by_class.micro_f1,
        macro_precision=by_class.macro_precision, macro_recall=by_class.macro_recall,
        mean_average_precision=scores.mean_average_precision, answered=float(told.mean()),
        exact_epsilon=exact_cost(mechanism, votes).cost.reveal().epsilon(delta) if exact else math.nan,
        published_epsilon=math.nan,
        dependent_epsilon=RdpCurve(check_orders(None), published).epsilon(delta),
        mean_q=float(np.exp(log_q_gnmax(votes.counts, mechanism.sigma)).mean()),
    )  # fmt: skip
    return SweepRow(
        setting=setting, n_teachers=votes.n_teachers, n_samples=len(votes), private=Sealed(private),
        public_epsilon=public_cost(mechanism, len(votes), delta=delta).epsilon,
    )  # fmt: skip


def _right(truth: NDArray[Any], labels: Integers, told: NDArray[np.bool_]) -> float:
    """Return the share of what was told that is true; NaN where nothing was."""
    answered = labels[told] != SILENT
    return float((labels[told] == truth[told])[answered].mean()) if answered.any() else math.nan


def _gap_shares(votes: LabelVotes) -> Floats:
    means = votes.sums / (votes.n_teachers * votes.resolution)
    return np.clip([as_published_share(list(row)) for row in means], 1e-6, 1 - 1e-6)


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


def _independent(
    setting: SweepSetting, votes: LabelVotes, told: NDArray[np.bool_], n_changed: int, delta: float
) -> float:
    """Return the thesis's cost without a look at the sums: answers for what was told, checks for the rest."""
    sigma = setting.votes(setting.sigma, votes.n_teachers)
    if setting.kind == "tau" and setting.sigma_gate is None:
        curve = as_published_tau(sigma, setting.max_norm, orders=_PUBLISHED_ORDERS) * len(votes)
        return curve.epsilon(delta, conversion="classic")
    if setting.kind not in ("gnthreshold", "adaptive-as-published"):
        return math.nan
    curve = published_labels(
        n_changed, variance=sigma**2, n_queries=int(told.sum()), orders=_PUBLISHED_ORDERS
    ) + _silent(setting, votes, told)
    return curve.epsilon(delta, conversion="classic")


def _silent(setting: SweepSetting, votes: LabelVotes, told: NDArray[np.bool_]) -> RdpCurve:
    """Return what the thesis charges queries that were not answered: the labels that were checked."""
    if setting.sigma_gate is None:
        return RdpCurve.zero(_PUBLISHED_ORDERS)
    variance = setting.votes(setting.sigma_gate, votes.n_teachers) ** 2
    return published_labels(
        setting.n_top, variance=variance, n_queries=int((~told).sum()), orders=_PUBLISHED_ORDERS
    )


def _dependent(
    mechanism: Any, setting: SweepSetting, votes: LabelVotes, told: NDArray[np.bool_], shares: Floats | None,
    n_changed: int, delta: float,
) -> float:  # fmt: skip
    orders = np.array(_PUBLISHED_ORDERS)
    total = _silent(setting, votes, told).values.copy()
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
    return RdpCurve(orders, total).epsilon(delta, conversion="classic")
