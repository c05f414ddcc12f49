"""What queries of a session cost: by the books, and if guardian and asker tell each other everything.

The books hold the first alone. The second is what the promise is worth if the guardian breaks its own; it
rests on the noise of the answering parties, of which only those are counted that surely answer, the quorum,
and do not collude.
"""

import math
from dataclasses import dataclass
from typing import Any

from ..budget import Accountant, Budget
from ..config.party import PartySettings
from ..errors import require_count
from ..rdp import RdpCurve
from .books import query_price
from .noise_shares import price_without_guardian


@dataclass(frozen=True)
class Collusion:
    """Guardian, asker and `n_colluding` answering parties together: what they see, and what it costs.

    `n_shares` is how many shares of noise are left that none of them knows; `batch` and `whole` are the
    epsilon of one batch and of all that the budget pays for, infinite where no noise is left.

    >>> Collusion(n_colluding=1, sees="the noisy tally", n_shares=3, batch=2.5, whole=None).n_shares
    3
    """

    n_colluding: int
    sees: str
    n_shares: int
    batch: float
    whole: float | None


@dataclass(frozen=True)
class SessionPrice:
    """The price of a batch at a delta, how many queries a budget pays for, and what a betrayal would cost.

    >>> from tellers.config.party_files import example_settings
    >>> price = session_price(example_settings("guardian"), n_queries=10)
    >>> price.n_queries, price.n_affordable, price.collusions[0].sees
    (10, 177, 'the tally without any noise')
    """

    n_queries: int
    delta: float
    batch: float
    budget: Budget | None
    n_affordable: int | None
    collusions: tuple[Collusion, ...]


def session_price(
    settings: PartySettings, *, n_queries: int, delta: float = 1e-5, budget: Budget | None = None
) -> SessionPrice:
    """Return what a batch of queries costs in a session, honestly and betrayed.

    The budget is that of the party's own books unless one is given; an asker has none.

    Guarantee: as `query_price` and `price_without_guardian`; neither depends on votes.
    Assumes:   at least the quorum answers; parties that collude are among the answering ones.
    Reference: the same.

    >>> from dataclasses import replace
    >>> from tellers.config.party import HardeningConfig
    >>> from tellers.config.party_files import example_settings
    >>> hard = HardeningConfig(noise_sigma=6.0, n_colluding=1)
    >>> price = session_price(replace(example_settings("guardian"), hardening=hard), n_queries=10)
    >>> [(one.n_colluding, one.n_shares, round(one.batch, 2)) for one in price.collusions]
    [(0, 2, 2.3), (1, 1, 3.38)]
    """
    require_count(n_queries=n_queries)
    books = settings.ledger
    if budget is None and books.url:
        budget = Budget(epsilon=books.epsilon, delta=books.delta)
    delta = delta if budget is None else budget.delta
    mechanism = settings.build_mechanism()
    paid = None if budget is None else affordable_queries(mechanism, budget)
    hardening = settings.hardening
    counts = [0] if hardening.noise_sigma is None else sorted({0, hardening.n_colluding})
    return SessionPrice(
        n_queries=n_queries, delta=delta, batch=query_price(mechanism, n_queries).epsilon(delta),
        budget=budget, n_affordable=paid,
        collusions=tuple(_collusion(settings, mechanism, n, n_queries, paid, delta) for n in counts),
    )  # fmt: skip


def affordable_queries(mechanism: Any, budget: Budget) -> int:
    """Return how many queries a budget pays for, from its first on.

    Guarantee: so many queries cost at most the budget, whatever the votes, and one more costs more.
    Assumes:   as `query_price`; nothing was spent before.
    Reference: Feldman and Zrnic 2021, as in `Accountant`; the price of the mechanism.

    >>> from tellers import GNMax
    >>> affordable_queries(GNMax(sigma=8.0), Budget(epsilon=10.0, delta=1e-5))
    177
    """
    accountant, nothing, one = Accountant(budget), RdpCurve.zero(), query_price(mechanism, 1)

    def affords(n: int) -> bool:
        return accountant.affords(nothing, one * n)

    if not affords(1):
        return 0
    most = 1
    while affords(2 * most):
        most *= 2
    step = most
    while step := step // 2:
        most += step if affords(most + step) else 0
    return most


def _collusion(
    settings: PartySettings, mechanism: Any, n_colluding: int, n_queries: int, paid: int | None, delta: float
) -> Collusion:
    hardening = settings.hardening
    what = "the tally" if hardening.pairwise else "each party's vote"
    if hardening.noise_sigma is None:
        return Collusion(n_colluding, f"{what} without any noise", 0, math.inf, math.inf if paid else None)
    # Masks that do not cancel show every vote below its own share; sums are below all that are unknown.
    n_shares = settings.session.quorum - n_colluding if hardening.pairwise else 1
    price = price_without_guardian(mechanism, hardening.noise_sigma, n_shares=n_shares)
    below = f"{n_shares} share{'s' if n_shares > 1 else ''} of noise"
    whole = (paid * price).epsilon(delta) if paid else None
    return Collusion(
        n_colluding, f"{what} below {below}", n_shares, (n_queries * price).epsilon(delta), whole
    )
