"""An arg max with Gaussian noise, alone or behind a noisy check: prices, the papers' bounds, envelopes."""

from functools import lru_cache
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from ..privacy._price import Item
from ..privacy.noise import Noise
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.release import Cost, Release
from ..privacy.votes import Integers, Unit, Votes
from ._argmax import group_classes, win_probabilities
from ._check import check_outcomes, whole_thresholds
from ._joint import Checked, joint_item, two_events
from ._laws import DiscreteGaussian
from ._outcomes import Outcomes, assemble
from .gap_bounds import EnvelopeCost, gap_cost, gap_envelope
from .published import published_confident, published_gnmax
from .registry import check_parameters, repr_of
from .sensitivity import CheckedMargins, gaussian_sensitivities
from .suprema import answer_price, check_price


class GaussianArgmax:
    """Report the class that leads after Gaussian noise `sigma` on every count.

    What looks at votes is private.
    """

    sigma: float
    price_method: ClassVar[str] = "argmax-rdp"
    noise_on_counts: ClassVar[str] = "gaussian"
    has_bar: ClassVar[bool] = False

    __post_init__ = check_parameters

    @property
    def check_sigma(self) -> float | None:
        """Return the standard deviation of the check's noise, or None without a check."""
        return None

    def checked_against(self, votes: Votes, student: ArrayLike | None = None) -> Integers | None:
        """Return the whole thresholds of the counts, (queries, classes), or None without a check."""
        require_no_student(self, student)
        return None

    def published(
        self, votes: Votes, *, orders: ArrayLike | None = None, answered: ArrayLike | None = None
    ) -> Floats:
        """Return the paper's data-dependent cost of all these votes, at each order."""
        return published_gnmax(votes, self.sigma, orders=orders, total=True)

    def envelope(
        self,
        votes: Votes,
        *,
        order: float,
        student: ArrayLike | None = None,
        n_votes: int | None = None,
        n_fewest: int | None = None,
        weight: int = 1,
        **moved: Any,
    ) -> EnvelopeCost:
        """Return what bounds the exact cost and may be published with noise, and its local sensitivities.

        `n_votes` is how many there are at most, and `n_fewest` at least, all teachers' if not said; `weight`
        and what is `moved` are those of `gap_cost`. Private.
        """
        most = votes.n_teachers if n_votes is None else n_votes
        answers = gap_envelope(most, votes.n_classes, sigma=self.sigma, order=order, weight=weight)
        table, heights = self._checked_envelope(
            answers, votes, student, order=order, n_fewest=n_fewest, weight=weight
        )
        return gap_cost(table, votes.gap, heights, **moved)

    def _checked_envelope(
        self, answers: Floats, votes: Votes, student: ArrayLike | None, **how: Any
    ) -> tuple[Floats, Integers | None]:
        """Return the envelope behind the check, if any, and what it is read at besides the gap, or None."""
        require_no_student(self, student)
        return answers, None

    def published_sensitivities(
        self, votes: Votes, *, order: float, student: ArrayLike | None = None, **how: Any
    ) -> tuple[float, Floats]:
        """Return the paper's bound of the forward direction, and its local sensitivities."""
        check = self.margins(votes, student, how.get("n_votes", votes.n_teachers))
        return gaussian_sensitivities(votes, self.sigma, order=order, check=check, **how)

    def margins(self, votes: Votes, student: ArrayLike | None, n_votes: int) -> CheckedMargins | None:
        """Return by how much the top counts are above their thresholds, or None without a check."""
        return None


class CheckedArgmax(GaussianArgmax):
    """Answer only where a noisy check passes; else stay silent, and charge the check alone."""

    threshold: float
    sigma_threshold: float
    expected_silence: float | None
    checked_by: ClassVar[Literal["classes", "margin"]] = "classes"
    has_bar: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_thresholds(self.threshold)  # refuses what no count can be compared with

    __repr__ = repr_of

    @property
    def check_sigma(self) -> float:
        return self.sigma_threshold

    def _release(self, votes: Votes, noise: Noise, *, thresholds: Integers, labels: Integers) -> Release:
        """Check every query, fill in the labels of those that pass, and charge checks and answers."""
        margin = (votes.counts - thresholds).max(axis=1)
        passed = margin + noise.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        if passed.any():
            counts = votes.counts[passed]
            noisy = counts + noise.discrete_gaussian(self.sigma, counts.shape)
            labels[passed] = noise.break_ties(noisy)
        public: dict[str, int] = {}
        if votes.n_votes.max(initial=0) <= votes.n_teachers:  # weights are public
            public = {"n_teachers": votes.n_teachers, "n_classes": votes.n_classes}
        item, n_passed = self.item(votes.unit, **public), int(passed.sum())
        cost = item.price(0) * (len(votes) - n_passed) + item.price(1) * n_passed
        return Release(labels, Cost(cost), passed)

    def _outcomes(self, votes: Votes, thresholds: Integers) -> Outcomes:
        groups = group_classes(votes.counts, thresholds, unit=votes.unit)
        wins = win_probabilities(groups, DiscreteGaussian(self.sigma))
        return assemble(groups, wins, check_outcomes(groups, self.sigma_threshold))

    def price(
        self,
        unit: Unit,
        orders: ArrayLike | None = None,
        *,
        n_teachers: int | None = None,
        n_classes: int | None = None,
    ) -> RdpCurve:
        """Return the most one query can cost: that of silence or of an answer, whichever is dearer.

        With the numbers of teachers and classes, and one ballot of one vote, check and answer have a joint
        price; else it is that of the check and that of the answer.
        """
        return self.item(unit, orders, n_teachers=n_teachers, n_classes=n_classes).price()

    def item(
        self,
        unit: Unit,
        orders: ArrayLike | None = None,
        *,
        n_teachers: int | None = None,
        n_classes: int | None = None,
    ) -> Item:
        """Return a query as one thing that is paid for, silent (kind 0) or answered (kind 1).

        Guarantee: with `n_teachers` and `n_classes` the charges of `joint_charges`, which no filter at one
                   order tells from the true loss; without them, silence is charged its check and an answer
                   both.
        Assumes:   `n_teachers` is the most votes that a query can have.
        Reference: "The joint price of a check and its answer"; Feldman and Zrnic 2021.
        """
        grid = tuple(check_orders(orders).tolist())
        plain = checked_item(self.sigma, self.sigma_threshold, unit, grid)
        if n_teachers is None or n_classes is None or unit != Unit():
            return plain
        checked = Checked(
            self.checked_by, n_teachers, n_classes, self.sigma,
            int(whole_thresholds(self.threshold)[0, 0]), self.sigma_threshold,
        )  # fmt: skip
        clock: Any = plain.clock
        return joint_item(checked, grid, self.expected_silence, clock)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most the check alone can cost, which is what a query without an answer costs."""
        return check_price(self.sigma_threshold, unit, orders)

    def answer_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most the answer alone can cost, which is paid where the check passes."""
        return answer_price(self.sigma, unit, orders)

    def published(
        self,
        votes: Votes,
        *,
        orders: ArrayLike | None = None,
        answered: ArrayLike | None = None,
        student: ArrayLike | None = None,
    ) -> Floats:
        """Return the paper's data-dependent cost of all these votes, at each order.

        With `answered` along the path that was taken; without it answers count by their probability.
        """
        return published_confident(
            votes, self.sigma, threshold=self.threshold, sigma_threshold=self.sigma_threshold,
            student=student, answered=answered, orders=orders, total=True,
        )  # fmt: skip


@lru_cache(maxsize=256)
def checked_item(sigma: float, sigma_threshold: float, unit: Unit, orders: tuple[float, ...]) -> Item:
    """Return a query of two events, a check and the answer behind it: silent costs the check alone."""
    check, answer = check_price(sigma_threshold, unit, orders), answer_price(sigma, unit, orders)
    curves = RdpCurve(check.orders, check.values), RdpCurve(check.orders, (check + answer).values)
    return Item(curves, two_events(check, answer))


def require_no_student(mechanism: object, student: object) -> None:
    """Refuse a student's probabilities that nobody looks at."""
    if student is not None:
        raise ValueError(
            f"Expected no student: {type(mechanism).__name__} does not look at one. Leave it out."
        )
