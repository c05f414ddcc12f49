"""How many more labels at this setting: what the price promises, and what an assumed agreement would give."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ...budget import Accountant
from ...calibrate import Consensus
from ...calibrate.labels import expected_labels
from ...mechanisms import Mechanism
from ...publishable import independent_cost
from ...rdp import RdpCurve
from ..teachers import Served

AGREEMENTS = (0.75, 0.9, 0.97)
_N_PROXIES = 200
_MOST_LABELS = 1_000_000_000
# Made-up votes: any seed will do, as long as a page shows the same numbers twice.
_SEED = 7


@dataclass(frozen=True)
class Profile:
    """What a setting gives on made-up votes: the share of queries answered, and of labels that are right.

    >>> Profile(0.9, share=0.8, accuracy=0.99).agreement
    0.9
    """

    agreement: float
    share: float
    accuracy: float


@dataclass(frozen=True)
class Estimate:
    """How many queries and labels a budget is likely to pay for, on an assumed profile.

    >>> Estimate(Profile(0.9, share=0.8, accuracy=0.99), n_queries=100, n_labels=80).n_labels
    80
    """

    profile: Profile
    n_queries: int
    n_labels: int


@dataclass(eq=False)
class Outlook:
    """Estimates for a service; made-up votes are counted once, beside whoever looks first.

    >>> from tellers import Budget, ConfidentGNMax
    >>> mechanism = ConfidentGNMax(sigma=20.0, threshold=60.0, sigma_threshold=40.0)
    >>> served = Served(None, mechanism, Budget(epsilon=4.0, delta=1e-5), "", 10, 100, n_pool=3)
    >>> outlook = Outlook(served)
    >>> outlook.start().join()
    >>> found = outlook.estimates(Accountant(served.budget), RdpCurve.zero())
    >>> [0 < one.n_labels <= one.n_queries for one in found]
    [True, True, True]
    """

    served: Served
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _profiles: list[Profile] | None = field(default=None, repr=False)
    _prices: tuple[RdpCurve, RdpCurve] | None = field(default=None, repr=False)

    def start(self) -> threading.Thread:
        """Begin to count, if nobody has, and return the thread that does."""
        with self._lock:
            if self._thread is None:
                # Votes of many thousand teachers take seconds; a page does not wait for them.
                self._thread = threading.Thread(target=self._count, name="outlook", daemon=True)
                self._thread.start()
            return self._thread

    def estimates(self, accountant: Accountant, spent: RdpCurve) -> list[Estimate] | None:
        """Return an estimate for each assumed profile, or None while they are being counted.

        There are none where the mechanism hears the student, whose answers nobody can assume, or where groups
        of people pay from budgets of their own.
        """
        self.start()
        profiles, prices = self._profiles, self._prices
        if profiles is None:
            return None
        found: list[Estimate] = []
        if prices is None:
            return found
        for profile in profiles:
            n = n_affordable(accountant, spent, prices=prices, share=profile.share)
            found.append(Estimate(profile, n, int(n * profile.share)))
        return found

    def _count(self) -> None:
        profiles: list[Profile] = []
        # A mechanism of somebody else's may not say how likely its outcomes are: then there is no estimate.
        with suppress(Exception):
            self._prices = check_and_answer(self.served.mechanism)
            if not self.served.listens and self.served.plan is None:
                profiles = make_profiles(self.served)
        self._profiles = profiles


def make_profiles(served: Served) -> list[Profile]:
    """Return what a setting gives on votes that are made up from assumptions.

    >>> from tellers import Budget, GNMax
    >>> served = Served(None, GNMax(sigma=20.0), Budget(epsilon=4.0, delta=1e-5), "", 10, 100, n_pool=3)
    >>> [profile.share for profile in make_profiles(served)]
    [1.0, 1.0, 1.0]
    """
    found = []
    for agreement in AGREEMENTS:
        made_up, truth = Consensus(agreement=agreement).votes(
            served.n_teachers, served.n_classes, n_queries=_N_PROXIES, seed=_SEED
        )
        share, accuracy = expected_labels(served.mechanism, made_up, truth)
        found.append(Profile(agreement, min(1.0, share), accuracy))
    return found


def check_and_answer(mechanism: Mechanism) -> tuple[RdpCurve, RdpCurve]:
    """Return what every query costs, answered or not, and what an answer costs on top.

    >>> from tellers import GNMax
    >>> check_and_answer(GNMax(sigma=40.0))[1].epsilon(1e-5)
    0.0
    """
    check, both = independent_cost(mechanism, 1, n_answers=0), independent_cost(mechanism, 1, n_answers=1)
    return check, RdpCurve(both.orders, np.maximum(0.0, both.values - check.values))


def n_affordable(
    accountant: Accountant, spent: RdpCurve, *, prices: tuple[RdpCurve, RdpCurve], share: float
) -> int:
    """Return how many queries a budget pays for when a share of them is answered and the rest is silent.

    >>> from tellers import Budget, GNMax
    >>> accountant, prices = Accountant(Budget(epsilon=1.0, delta=1e-5)), check_and_answer(GNMax(sigma=40.0))
    >>> n_affordable(accountant, RdpCurve.zero(), prices=prices, share=1.0)
    75
    """
    check, answer = prices

    def fits(n: int) -> bool:
        return accountant.affords(spent, check * n + answer * min(n, int(share * n) + 1))

    if not fits(1):
        return 0
    low, high = 1, 2
    while high < _MOST_LABELS and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
