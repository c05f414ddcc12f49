"""Tau voting: ballots are clipped to a norm, so that nobody has much to say on many labels at once."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...privacy.rdp import RdpCurve
from .._fields import ballot_norm, check_sigma, label_count, noise_sigma, side_threshold, vote_parts
from ..registry import parameter, register
from ._perlabel import Majority
from ._published import as_published_tau
from ._rules import BallotRule, clipped_ballots

_PARTS = 100  # a clipped vote counts in hundredths
_NOTE = (
    "The multi-winner paper charges tau voting max_norm^2 order / sigma^2 per query. Two ballots without a "
    "common label are twice as far apart, so that does not hold and is not used here."
)


class ClippedMajority(Majority):
    """A majority of ballots that are scaled down to a norm."""

    max_norm: float
    norm: Literal["l2", "l1"]
    lets_abstain: ClassVar[bool] = True
    votes_resolution: ClassVar[int] = 1
    note: ClassVar[str] = _NOTE

    @property
    def rule(self) -> BallotRule:
        return clipped_ballots(self.n_labels, self.max_norm, self.norm, self.resolution)


@register("tau", "every label by its majority, ballots clipped to a norm")
@dataclass(frozen=True)
class Tau(ClippedMajority):
    """Scale every ballot down to norm `max_norm`, then decide label by label as `Binary` does.

    Guarantee: one query costs at most `price`, the dearest pair of clipped ballots: for l2 at most
               0.637 min(n_labels, 2 max_norm^2) order / sigma^2 at orders well below sigma, since two ballots
               without a common label are that far apart.
    Assumes:   ballots of 0 and 1; a clipped vote is rounded down to 1 / `resolution`.
    Reference: Dullerud et al. 2022 (tau voting) charge max_norm^2 order / sigma^2, which the exact divergence
               exceeds; see "Many labels".

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 1, 0, 0]]] * 40 + [[[1, 1, 1, 1]]] * 10, n_labels=4)
    >>> Tau(sigma=2.0, n_labels=4, max_norm=1.5).release(votes, noise.seeded(7)).labels
    array([[1, 1, 0, 0]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    max_norm: float = parameter("clip every ballot to this norm, in votes", above=0, example=1.8)
    norm: Literal["l2", "l1"] = ballot_norm()
    resolution: int = vote_parts(default=_PARTS)
    one_price: ClassVar[bool] = True

    def published_claim(self) -> RdpCurve:
        """Return what the paper charges one query: too little, see `as_published_tau`.

        >>> tau = Tau(sigma=5.0, n_labels=4, max_norm=2**0.5)
        >>> round(tau.published_claim().epsilon(1e-5), 2)
        1.69
        """
        return as_published_tau(self.sigma, self.max_norm, norm=self.norm)


@register("confident-tau", "tau, silent on labels that the teachers do not agree on")
@dataclass(frozen=True)
class ConfidentTau(ClippedMajority):
    """Tau voting that tells a label only where the noisy count of the larger side reaches `threshold`.

    Guarantee: one query costs at most `price`: the checks and the answers, each at its dearest pair of
               ballots. A silent label pays for its check alone.
    Assumes:   as `Tau`; the no count is the number of teachers minus the yes count.
    Reference: as `Tau`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_ballots([[[1, 0]]] * 26 + [[[0, 0]]] * 24, n_labels=2)
    >>> confident = ConfidentTau(sigma=2.0, n_labels=2, max_norm=1.5, threshold=40, sigma_threshold=3.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[-1,  0]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    max_norm: float = parameter("clip every ballot to this norm, in votes", above=0, example=1.8)
    threshold: float = side_threshold()
    sigma_threshold: float = check_sigma(example=15.0)
    norm: Literal["l2", "l1"] = ballot_norm()
    resolution: int = vote_parts(default=_PARTS)
    has_bar: ClassVar[bool] = True
