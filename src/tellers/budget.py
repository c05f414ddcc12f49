"""Budgets and the arithmetic that says whether one more release fits."""

from dataclasses import dataclass

from .errors import BudgetExhausted, require_fraction, require_positive
from .rdp import RdpCurve


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent.

    >>> Budget(epsilon=2.0, delta=1e-5)
    Budget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_fraction(delta=self.delta)


@dataclass(frozen=True)
class Accountant:
    """Pure arithmetic over public curves: what has been spent, and what still fits.

    Guarantee: if every release was affordable when it was reserved, all of them together are
               (budget.epsilon, budget.delta)-differentially private, also when later queries
               depend on earlier outcomes and unused parts of a price were returned.
    Assumes:   prices are data-independent and each is known before its noise is drawn.
    Reference: Feldman and Zrnic 2021 (Rényi filters); Lécuyer 2021 (over several orders at once).

    >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    >>> one = RdpCurve.zcdp(0.01)
    >>> accountant.affords(RdpCurve.zero(), one), accountant.affords(10 * one, one)
    (True, False)
    """

    budget: Budget

    def epsilon(self, spent: RdpCurve) -> float:
        """Return the epsilon of what was spent, at the budget's delta.

        >>> Accountant(Budget(epsilon=1.0, delta=1e-5)).epsilon(RdpCurve.zero())
        0.0
        """
        return spent.epsilon(self.budget.delta)

    def affords(self, spent: RdpCurve, price: RdpCurve) -> bool:
        """Return whether `price` fits on top of what was spent.

        >>> Accountant(Budget(epsilon=1.0, delta=1e-5)).affords(RdpCurve.zero(), RdpCurve.zcdp(9.0))
        False
        """
        return self.epsilon(spent + price) <= self.budget.epsilon

    def require(self, spent: RdpCurve, price: RdpCurve, *, key: str) -> None:
        """Refuse a price that does not fit, before anything is drawn.

        >>> accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
        >>> accountant.require(RdpCurve.zero(), RdpCurve.zcdp(9.0), key="q17")
        Traceback (most recent call last):
            ...
        tellers.errors.BudgetExhausted: Query 'q17' would take epsilon to ..., past the budget of 1.0. ...
        """
        if not self.affords(spent, price):
            after = self.epsilon(spent + price)
            raise BudgetExhausted(
                f"Query {key!r} would take epsilon to {after:.4g}, past the budget of {self.budget.epsilon}. "
                "Raise the budget or stop here."
            )
