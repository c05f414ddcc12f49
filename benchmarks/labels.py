"""How long votes on many labels take: exact costs of 1,000 queries, and releases per second.

    python benchmarks/labels.py

Made-up ballots of 50 teachers on 20 labels, about 3 of them given, seed 0; 100 orders. CPU seconds, which a
busy machine makes longer: read them against each other.
"""

import platform
import time

import numpy as np

from tellers import Binary, LabelVotes, Powerset, Tau, noise
from tellers.accounting import exact_cost
from tellers.privacy import DEFAULT_ORDERS

N_TEACHERS, N_QUERIES, N_LABELS = 50, 1000, 20


def made_up(seed: int = 0) -> LabelVotes:
    """Return votes of teachers who are right on most labels, and unsure of some."""
    rng = np.random.default_rng(seed)
    shape = (N_QUERIES, N_LABELS)
    true = rng.random(shape) < 0.12
    doubt = rng.beta(1, 6, shape) * 0.56
    yes = np.clip(np.where(true, 1 - 2 * doubt, doubt), 0.001, 0.999)
    ballots = rng.random((N_TEACHERS, *shape)) < yes
    return LabelVotes.from_ballots(ballots.astype(np.int64), n_labels=N_LABELS)


def main() -> None:
    """Time every mechanism once."""
    votes, orders = made_up(), np.asarray(DEFAULT_ORDERS)[:100]
    print(
        f"\n{N_QUERIES:,} queries, {N_TEACHERS} teachers, {N_LABELS} labels, {orders.size} orders; "
        f"{platform.machine()}, Python {platform.python_version()}, seed 0"
    )
    for mechanism in (
        Binary(sigma=10.0, n_labels=N_LABELS),
        Powerset(sigma=10.0, n_labels=N_LABELS),
        Tau(sigma=10.0, n_labels=N_LABELS, max_norm=2.0),
        Tau(sigma=10.0, n_labels=N_LABELS, max_norm=3.0, norm="l1"),
    ):
        start = time.process_time()
        exact_cost(mechanism, votes, orders=orders)
        costs = time.process_time() - start
        start = time.process_time()
        mechanism.release(votes, noise.seeded(7))
        rate = N_QUERIES / (time.process_time() - start)
        name = f"{type(mechanism).__name__} {getattr(mechanism, 'norm', '')}"
        print(f"  {name:<12} exact {costs:6.2f} CPU s   released {rate:8,.0f} queries / CPU s")


if __name__ == "__main__":
    main()
