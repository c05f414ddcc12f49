"""Publishing a private cost: smooth sensitivity, the noise, its price, and the record of it."""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ..errors import InsecureNoise, LedgerConflict, require_fraction, require_positive
from ..mechanisms.base import Mechanism
from ..mechanisms.sensitivity import smooth_sensitivity
from ..privacy.noise import Noise
from ..privacy.rdp import Floats, RdpCurve
from ..privacy.release import describe
from ..privacy.votes import Unit, Votes
from ._publishable import Method, cost_and_sensitivities
from .costs import independent_cost, public_numbers

# A data-dependent cost f is itself private. With S a beta-smooth bound on how fast it changes, the value
#
# F = f + S sigma_release (z + Z),      Z standard normal,
#
# may be released at the Rényi price `release_price`, and is at least f with probability Phi(z). The
# standard deviation S sigma_release looks at the votes and stays private; the shift by z moves with it,
# which is why z enters the price. What is published is F plus the price, at one order that was fixed
# before voting, turned into an epsilon: it holds between the votes at hand and each of their neighbours.


# F is rounded up to this grid, which hides the low bits of the floating-point noise.
_GRAIN = 1e-6
# Beyond, a logarithm stands for more than any public price, which is then published.
_MOST_LOG = 500.0


def release_price(order: float, *, beta: float, sigma_release: float, z: float = 0.0) -> float:
    """Return what releasing F costs at this order; infinite where no bound exists.

    Guarantee: the largest divergence of N(mu, s^2) from N(mu', s'^2) over log(s'/s) in [-beta, beta] and
               means that differ by at most the local sensitivity plus the shift: with r = s'/s and
               v = 1 - order + order r^2,
               order (min(1, r) + |z| sigma |1 - r|)^2 / (2 sigma^2 v) + (order log r - log(v)/2) / (order-1).
    Assumes:   S is beta-smooth and bounds the local sensitivity at both neighbours.
    Reference: Papernot et al. 2018, Theorem 23, print a lower value that does not hold; see `price_2018`.

    >>> round(release_price(10, beta=0.04, sigma_release=5.0), 3)
    0.836
    """
    require_positive(beta=beta, sigma_release=sigma_release)
    return float(release_prices(order, betas=np.array([beta]), sigmas=np.array([sigma_release]), z=z)[0, 0])


def release_prices(order: float, *, betas: Floats, sigmas: Floats, z: float = 0.0) -> Floats:
    """Return `release_price` for every pair of beta and sigma, (betas, sigmas)."""
    require_positive(order=order - 1)
    result = np.empty((betas.size, sigmas.size))
    # One beta at a time: what is added up then stays in a cache.
    for i, beta in enumerate(betas):
        # The maximum over r sits at an end for z = 0 and near one otherwise; both ends are in the grid.
        ratio = np.exp(beta * np.linspace(-1, 1, 801))
        v = 1 - order + order * ratio**2
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = (order * np.log(ratio) - 0.5 * np.log(v)) / (order - 1)
            move = np.minimum(1, ratio) + abs(z) * sigmas[:, None] * np.abs(1 - ratio)
            value = order * move**2 / (2 * sigmas[:, None] ** 2 * v) + spread
        result[i] = np.where(v > 0, value, np.inf).max(axis=1)
    # 801 points miss less than 1e-5 of a smooth maximum.
    return result * (1 + 1e-5)


def price_2018(order: float, *, beta: float, sigma_release: float) -> float:
    """Return the price of GNSS as printed in 2018; too low, kept to compare with published numbers.

    Guarantee: none: at order 10, beta 0.04 and sigma 5 the true price is 0.836.
    Assumes:   order < 1 / (2 beta).
    Reference: Papernot et al. 2018, Theorem 23.

    >>> round(price_2018(10, beta=0.04, sigma_release=5.0), 3)
    0.567
    """
    require_positive(beta=beta, sigma_release=sigma_release)
    if 2 * order * beta >= 1:
        return math.inf
    spread = (beta * order - 0.5 * math.log1p(-2 * order * beta)) / (order - 1)
    return order * math.exp(2 * beta) / sigma_release**2 + spread


@dataclass(frozen=True)
class PublishPlan:
    """Everything a publication fixes before it looks at private votes. All of it is public.

    `expected_epsilon` is the median the plan saw on its public proxy; it promises nothing. With an `offset`
    what gets the noise is log(1 + f / offset) instead of f, for which `beta` and `sigma_release` are then.
    """

    method: Method
    order: float
    beta: float
    sigma_release: float
    confidence: float
    expected_epsilon: float
    offset: float | None = None

    @property
    def z(self) -> float:
        """Return the number of standard deviations by which the value is raised."""
        return float(ndtri(self.confidence)) if self.method != "independent" else 0.0

    @property
    def price(self) -> float:
        """Return the Rényi price of the publication itself, at the plan's order."""
        return self.price_to(1.0)

    def price_to(self, share: float, *, order: float | None = None) -> float:
        """Return what the publication costs someone who moves the value by that share of the most.

        Guarantee: as `release_price`. Who moves f by at most share * S, and S by at most a factor of
                   exp(beta * share), sees noise that is 1 / share times as wide, and smoother.
        Assumes:   0 < share <= 1.
        Reference: see "Personalised budgets", section on publishing a group's cost.
        """
        if self.method == "independent":
            return 0.0
        at = self.order if order is None else order
        return release_price(at, beta=self.beta * share, sigma_release=self.sigma_release / share, z=self.z)


@dataclass(frozen=True)
class PublishedEpsilon:
    """A sanitised epsilon: public, an upper value with the stated confidence.

    `charged` is the Rényi price of the publication at `order`; `epsilon_upper` already contains it.
    """

    epsilon_upper: float
    delta: float
    confidence: float
    order: float
    method: Method
    charged: float
    covers: Literal["both directions", "forward direction"]


def release_value(
    total: float, local: ArrayLike, noise: Noise, *, plan: PublishPlan, n_steps: int = 1
) -> float:
    """Draw the noise and return F, rounded up: what may be released of a private cost, once it was charged.

    `local` are the cost's local sensitivities at distance 0, 1, 2, ...; the plan's beta is for `n_steps` of
    them.

    Guarantee: at the price of the plan, for neighbours within n_steps; at least `total` with plan.confidence.
    Assumes:   the local sensitivities interleave, as `smooth_sensitivity` asks.
    Reference: see "Publishing a cost close to the exact one".
    """
    spread = smooth_sensitivity(local, plan.beta / n_steps) * plan.sigma_release
    value = total + spread * (plan.z + float(noise.gaussian(())))
    return math.ceil(max(value, 0.0) / _GRAIN) * _GRAIN


def release_cost(
    mechanism: Mechanism,
    votes: Votes,
    noise: Noise,
    *,
    plan: PublishPlan,
    answered: ArrayLike | None = None,
) -> float:
    """Draw the noise and return an upper value of what the answers cost at the plan's order, for anyone.

    Guarantee: as `release_value`, and never above the public price of the answers.
    Assumes:   the price of the plan was charged, and the plan is not "independent".
    Reference: see "Publishing a cost close to the exact one".
    """
    require_one_ballot(votes)
    total, local = cost_and_sensitivities(
        mechanism, votes, order=plan.order, method=plan.method, answered=answered, offset=plan.offset
    )
    value = release_value(total, local, noise, plan=plan)
    if plan.offset is not None:
        value = plan.offset * math.expm1(min(value, _MOST_LOG))
    # Post-processing: the public price bounds the labels' part too, whatever the noise did. All answers, not
    # those that were given: what happened to be silent bounds no divergence.
    public = independent_cost(mechanism, len(votes), orders=[plan.order], **public_numbers(votes))
    return min(value, float(public.values[0]))


def as_grains(value: float) -> int:
    """Return a released cost in whole millionths, rounded up: the form in which a ledger keeps it."""
    # The guard keeps what is on the grid from moving up it; beyond 2^53 a float has no such digits.
    return min(math.ceil(value / _GRAIN * (1 - 1e-12)), 2**53)


def from_grains(grains: int) -> float:
    """Return a released cost from whole millionths."""
    return round(int(grains) * _GRAIN, 6)


def published_epsilon(
    value: float, *, plan: PublishPlan, delta: float, charged: float, charged_before: float = 0.0
) -> PublishedEpsilon:
    """Return the epsilon that a released cost at the plan's order stands for; looks at public numbers alone.

    `charged` is what the publication costs at that order, `charged_before` what earlier ones of the same
    votes did.
    """
    curve = RdpCurve(np.array([plan.order]), np.array([value + charged + charged_before]))
    return PublishedEpsilon(
        curve.epsilon(delta),
        delta,
        plan.confidence,
        plan.order,
        plan.method,
        charged,
        "both directions" if plan.method == "envelope" else "forward direction",
    )


def require_one_ballot(votes: Votes) -> None:
    """Refuse votes of which one unit changes more than one ballot: no cost is published for those here."""
    if votes.unit != Unit():
        raise ValueError(
            "Expected votes of which one unit changes one ballot of one vote: a cost is published for that. "
            "For groups of people, see personal.publishing.publish_group_costs."
        )


def require_secure(noise: Noise, *, allow_seeded: bool) -> None:
    """Refuse to publish with noise that can be drawn again."""
    if not noise.is_secure and not allow_seeded:
        raise InsecureNoise(
            "Expected secure noise to publish an epsilon, got seeded noise. Use noise.secure(); "
            "allow_seeded=True is for experiments that protect nobody."
        )


def publish(
    mechanism: Mechanism,
    votes: Votes,
    noise: Noise,
    *,
    plan: PublishPlan,
    delta: float,
    answered: ArrayLike | None = None,
    charged_before: float = 0.0,
    allow_seeded: bool = False,
) -> PublishedEpsilon:
    """Release an epsilon for these votes: draw the noise, charge it, return a one-sided upper value.

    Guarantee: with probability at least plan.confidence over this noise, the joint release of labels and
               value has a Rényi divergence of at most the published cost at plan.order between these
               votes and each neighbour. A statement about the votes at hand, not about every data set.
    Assumes:   the plan was fixed without looking at private votes; each further publication of the same
               votes passes the sum of earlier prices as `charged_before`.
    Reference: see "Publishing a cost close to the exact one".

    >>> from tellers import GNMax, Votes, noise
    >>> votes = Votes.from_counts([[240, 10]] * 100, n_teachers=250)
    >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.0)
    >>> published = publish(GNMax(sigma=40.0), votes, noise.secure(), plan=plan, delta=1e-5)
    >>> published.method, published.epsilon_upper > 0
    ('envelope', True)
    """
    require_fraction(delta=delta)
    require_secure(noise, allow_seeded=allow_seeded)
    require_one_ballot(votes)
    if plan.method == "independent":
        cost = independent_cost(mechanism, len(votes), **public_numbers(votes))
        epsilon, order = cost.epsilon_and_order(delta)
        return PublishedEpsilon(epsilon, delta, 1.0, order, "independent", 0.0, "both directions")
    value = release_cost(mechanism, votes, noise, plan=plan, answered=answered)
    return published_epsilon(value, plan=plan, delta=delta, charged=plan.price, charged_before=charged_before)


# --- The record of publications: what was planned, charged and published for one set of votes. ---
#
# An append-only file of JSON lines, public throughout. The charge is on disk before noise is drawn, so that a
# crash in between leaves it charged; the value follows. A second publication of the same votes keeps the
# plan of the first, since a plan is fixed before voting, and pays on top of it.


@dataclass(frozen=True)
class PublicationRecord:
    """The publications of one set of votes, in a file of their own."""

    path: Path

    def entries(self) -> list[dict[str, Any]]:
        """Return everything on record, oldest first."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").split("\n")
        entries = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict) or entry.get("entry") not in ("charged", "published"):
                    raise ValueError(line)
            except ValueError:
                raise LedgerConflict(
                    f"Expected a record of publications in {self.path.name}, line {number} is not one. "
                    "Nothing was spent. Restore the file, or name another with --record."
                ) from None
            entries.append(entry)
        return entries

    def plan(self) -> PublishPlan | None:
        """Return the plan the first publication fixed, or None."""
        for entry in self.entries():
            if entry["entry"] == "charged":
                return PublishPlan(**entry["plan"])
        return None

    @property
    def charged(self) -> float:
        """Return the sum of all charges so far, at the order of the plan."""
        return float(sum(entry["charge"] for entry in self.entries() if entry["entry"] == "charged"))

    def charge(self, mechanism: Mechanism, plan: PublishPlan, *, delta: float, noise: Noise) -> None:
        """Write the charge down, durably, before any noise is drawn."""
        event = describe(mechanism, noise)
        for entry in self.entries():
            if entry["entry"] == "charged" and (entry["event"], entry["delta"]) != (event, delta):
                raise LedgerConflict(
                    f"Expected the mechanism and delta that {self.path.name} was begun with, got others. "
                    "The plan was fixed for those; use them again, or another --record for other votes."
                )
        self._append(
            {"entry": "charged", "event": event, "delta": delta, "plan": asdict(plan), "charge": plan.price}
        )

    def settle(self, published: PublishedEpsilon) -> None:
        """Write the published value down."""
        self._append({"entry": "published", **asdict(published)})

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, sort_keys=True, allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
