"""Binary voting: every label is an election of its own, yes or no."""

from dataclasses import dataclass
from typing import ClassVar

from .._fields import check_sigma, label_count, noise_sigma, side_threshold, silence_share, vote_parts
from ..registry import register
from ._perlabel import FreeMajority


@register("binary", "every label by its majority")
@dataclass(frozen=True)
class Binary(FreeMajority):
    """Give each label that a majority says yes to, after Gaussian noise `sigma` on the yes and the no count.

    Guarantee: one query costs at most `price`, about 0.637 n_labels order / sigma^2, and never more than
               n_labels order / sigma^2: one unit can change its teacher's mind on every label.
    Assumes:   a strict majority decides; the noise of both counts is drawn as one on their difference.
    Reference: Dullerud et al. 2022, section 3 (Binary voting); its Definition 4 draws one noise and would
               cost 2 order / sigma^2 per label.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 30]], n_teachers=50)
    >>> Binary(sigma=2.0, n_labels=3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 1]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    resolution: int = vote_parts()
    one_price: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True
    confidential: ClassVar[bool] = True


@register("confident-binary", "binary, silent on labels that the teachers do not agree on")
@dataclass(frozen=True, repr=False)
class ConfidentBinary(FreeMajority):
    """Tell a label only where the noisy count of the larger side reaches `threshold` votes; else be silent.

    Guarantee: one query costs at most `price`. Where the number of teachers is known, that is what the whole
               outcome of every label can cost, less than its check and its answer together. A silent label
               is charged less than one that is told: its check alone, or what `expected_silence` makes of it.
    Assumes:   as `Binary`; the check's noise has standard deviation `sigma_threshold`.
    Reference: Dullerud et al. 2022, appendix (confident multi-label PATE); "Many labels".

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 26]], n_teachers=50)
    >>> confident = ConfidentBinary(sigma=2.0, n_labels=3, threshold=40, sigma_threshold=3.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[ 1,  0, -1]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    threshold: float = side_threshold()
    sigma_threshold: float = check_sigma(example=15.0)
    resolution: int = vote_parts()
    expected_silence: float | None = silence_share()
    has_bar: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True
    confidential: ClassVar[bool] = True
