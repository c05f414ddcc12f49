"""What public epsilons were, what they are, and the floor that no accountant of an adaptive run can pass.

delta = 1e-5. **Renyi** is the rule by Rényi divergence with the price of a check and that of an answer added
up; **joint** is that rule with the joint price of both; **clock** is the Gaussian clock. The **floor** is the
exact adaptive value: the best attack that asks one question after the other, by backward induction over
leads and thresholds on a lattice; of a check and its answer, over votes for two classes. **Histogram** is
exact composition of the noisy counts themselves.

No vote is looked at, but to say how often tested batches pass: all else is known before a teacher is trained.

    python experiments/public/run.py [--quick] [--write] [--check]

`--write` puts the tables where the documentation includes them, `--check` compares them row by row; `--quick`
makes a few of the rows, with floors left out. One core: six minutes, two where the tables of the clock
are in the cache; ten seconds with `--quick`.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tellers import (
    Accountant,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentGNMax,
    GNMax,
    GNThreshold,
    LNMax,
    Powerset,
    RdpCurve,
    Tau,
    Unit,
    Votes,
)  # fmt: skip
from tellers.accounting import plan_test
from tellers.accounting.costs import gaussian_dp_epsilon
from tellers.mechanisms import TestedGNMax
from tellers.mechanisms.base import price_of
from tellers.privacy._price import Item, Price, itemised

sys.path.insert(0, str(Path(__file__).parent))
import floor

PLACE = Path(__file__).parent / "tables.md"
DELTA = 1e-5
LARGE = 100_000
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SHARES = (0.0, 0.3, 0.7, 0.9)


@dataclass(frozen=True)
class Asked:
    """Queries of one mechanism, of so many teachers and classes or labels."""

    name: str
    mechanism: Any
    n_teachers: int = 250
    n_classes: int = 10
    n_labels: int = 1

    def expecting(self, share: float) -> Any:
        """Return the mechanism, told what share of silence to expect where it makes use of it."""
        known = {field.name for field in fields(self.mechanism)}
        if "expected_silence" not in known:
            return self.mechanism
        return replace(self.mechanism, expected_silence=share)

    def before(self, share: float) -> Price:
        """Return the price that knows of no teachers: a check, and an answer where it passed."""
        price = itemised(price_of(self.mechanism, Unit()))
        if len(price.terms) == 1:
            return price
        (n, one, _), (_, two, _) = price.terms
        # Which of the two is the check: the one with the noise of checks.
        is_first = one.clock.sigma == self.mechanism.sigma_threshold
        check, answer = (one, two) if is_first else (two, one)
        return n * Item((check.dearest, check.dearest + answer.dearest)).price()

    def now(self, share: float) -> Price:
        """Return the price for so many teachers."""
        said = {"n_teachers": self.n_teachers, "n_classes": self.n_classes}
        return itemised(price_of(self.expecting(share), Unit(), **said))


CONFIDENT = [
    Asked(
        f"Confident-GNMax {n}, {t}, {check}, {sigma}", ConfidentGNMax(float(sigma), float(t), float(check)), n
    )
    for n, t, check, sigma in (
        (250, 200, 150, 40),
        (250, 200, 40, 40),
        (50, 40, 10, 10),
        (1000, 600, 100, 100),
    )
]
BINARY = [
    Asked(
        f"Confident-Binary 250, 200, {check}, 40", ConfidentBinary(40.0, 10, 200.0, float(check)), 250, 10, 10
    )
    for check in (150, 40)
]
LABELS = [
    Asked(f"{name}, 10 labels", mechanism, 250, 10, 10)
    for name, mechanism in (
        ("Binary 40", Binary(40.0, 10)),
        ("Tau 40, norm 2", Tau(40.0, 10, 2.0)),
        ("GN-Threshold 40, at most 3", GNThreshold(40.0, 10, max_labels=3)),
        ("Powerset 40", Powerset(40.0, 10)),
    )
]
PLAIN = {
    "GNMax 40": Asked("GNMax 40", GNMax(40.0)),
    "GNMax 46": Asked("GNMax 46", GNMax(46.0)),
    "LNMax 0.05": Asked("LNMax 0.05", LNMax(0.05)),
}
VOTES, N_DRAWS = Path(__file__).parents[2] / "examples" / "mnist_votes.npz", 300
QUERIES = [("GNMax 40", 100), ("GNMax 40", 461), ("GNMax 40", 1000), ("GNMax 46", 100), ("LNMax 0.05", 100)]


def outcome(price: Price, share: float, before: int, n: int) -> list[tuple[int, Any, int | None]]:
    """Return what the n-th query turns out to cost where every so many outcomes are silent."""
    found: list[tuple[int, Any, int | None]] = []
    for count, item, _ in price.terms:
        if len(item.curves) == 1:
            found.append((count, item, None))
            continue
        # Silent ones spread evenly: as many of the first n queries as the share says.
        silent = math.floor(share * count * n + 1e-9) - math.floor(share * count * before + 1e-9)
        found += [(m, item, kind) for kind, m in ((0, silent), (1, count - silent)) if m]
    return found


def _many(price: Price, share: float, n: int) -> RdpCurve:
    terms = []
    for count, item, _ in price.terms:
        if len(item.curves) == 1:
            terms.append((n * count, item, None))
        else:
            silent = math.floor(share * count * n + 1e-9)
            terms += [(silent, item, 0), (n * count - silent, item, 1)]
    return Price.of(terms, like=price)


def n_on_clock(price: Price, share: float, epsilon: float, most: int) -> int:
    """Return how many queries a ledger on a clock lets through, one after the other, with refunds."""
    accountant = Accountant.by("clock", Budget(epsilon, DELTA), price=price)
    if share == 0 or all(len(item.curves) == 1 for _, item, _ in price.terms):
        return accountant.n_affordable(price, most)
    zero = RdpCurve.zero()
    ticks, events = 0, 0
    for n in range(1, most + 1):
        debit = accountant.debit(Price(zero.orders, zero.values, (), ticks, events), price)
        if debit is None:
            return n - 1
        bill = outcome(price, share, n - 1, n)
        back = debit.returned([(item.key, m, kind) for m, item, kind in bill])
        assert back is not None
        ticks, events = ticks + debit.ticks - back, events + debit.events
    return most


def n_by_renyi(price: Price, share: float, epsilon: float) -> int:
    """Return how many queries a ledger held by Rényi divergence lets through, with refunds."""
    accountant = Accountant(Budget(epsilon, DELTA))
    return accountant.n_affordable(price, LARGE, spent_after=lambda n: _many(price, share, n))


def on_clock(price: Price, share: float, n: int) -> float:
    """Return the least epsilon of a clock that lets n queries through."""
    low, high = 0.01, 60.0
    for _ in range(22):
        middle = (low + high) / 2
        low, high = (low, middle) if n_on_clock(price, share, middle, n) >= n else (middle, high)
    return high


def cell(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def plain_rows(quick: bool) -> list[str]:
    """Return the rows of mechanisms that always answer."""
    wanted = [("GNMax 40", 100)] if quick else QUERIES
    floors = {} if quick else floor.floors(sorted(set(wanted)), delta=DELTA)
    rows = ["| queries | Rényi | clock | floor | clock / floor | histogram |", "|---|---|---|---|---|---|"]
    for name, n in wanted:
        asked = PLAIN[name]
        price = asked.now(0.0)
        sigma = getattr(asked.mechanism, "sigma", None)
        lowest = floors.get((name, n))
        clock = on_clock(price, 0.0, n)
        counts = gaussian_dp_epsilon(math.sqrt(2 * n) / sigma, DELTA) if sigma else None
        renyi = (n * asked.before(0.0)).epsilon(DELTA)
        share = None if lowest is None else clock / lowest
        rows.append(
            f"| {name}, {n:,} | {renyi:.3f} | {clock:.3f} | {cell(lowest)} | {cell(share)} | {cell(counts)} |"
        )
    return rows


def confident_rows(quick: bool) -> list[str]:
    """Return the rows of a thousand answers or silences."""
    rows = ["| queries | silent | Rényi | joint | clock | floor |", "|---|---|---|---|---|---|"]
    # The floor knows of no refund: the worst attack, whatever is silent. Epsilons of 17 are past its grid.
    known = [asked.name for asked in CONFIDENT if asked.n_teachers > 50]
    floors = {} if quick else floor.floors([(name, 1000) for name in known], delta=DELTA)
    for asked in CONFIDENT[:1] if quick else [*CONFIDENT, *BINARY]:
        n = 100 if asked.n_labels > 1 else 1000
        for share in (0.0, 0.3, 0.7):
            before, now = asked.before(share), asked.now(share)
            values = [
                _many(before, share, n).epsilon(DELTA), _many(now, share, n).epsilon(DELTA),
                on_clock(now, share, n),
            ]  # fmt: skip
            lowest = None if share else floors.get((asked.name, n))
            shown = " | ".join([*(f"{value:.2f}" for value in values), cell(lowest, 2)])
            rows.append(f"| {asked.name}, {n:,} | {share:.0%} | {shown} |".replace("%", " %"))
            if quick:
                break
    return rows


def label_rows(quick: bool) -> list[str]:
    """Return how many answers a budget buys, before and now."""
    head = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    rows = [f"| answers | silent | {head} |", "|---" * (2 + len(EPSILONS)) + "|"]
    settings = [(PLAIN["GNMax 40"], (0.0,)), *((asked, SHARES) for asked in (*CONFIDENT[:3], *BINARY))]
    settings += [(asked, (0.0,)) for asked in LABELS]
    for asked, shares in settings[:1] if quick else settings:
        for share in shares:
            before, now, cells = asked.before(share), asked.now(share), []
            for epsilon in EPSILONS:
                n = n_by_renyi(before, share, epsilon)
                counts = {
                    "Rényi": n_by_renyi(now, share, epsilon),
                    "clock": n_on_clock(now, share, epsilon, LARGE),
                }
                best = max(counts, key=lambda rule: (counts[rule], rule == "clock"))
                each = asked.n_labels * (1 - share)
                gain = f" (× {counts[best] / n:.2f})" if n else ""
                mark = "" if best == "clock" else " R"
                cells.append(f"{int(each * n + 1e-9):,} → {int(each * counts[best] + 1e-9):,}{mark}{gain}")
            rows.append(f"| {asked.name} | {share:.0%} | ".replace("%", " %") + " | ".join(cells) + " |")
    return rows


def tested_rows(quick: bool) -> list[str]:
    """Return what a batch costs that passes its test, planned on made-up votes and tried on others."""
    rows = [
        "| queries | tested | Rényi | clock | the same buys: Rényi | clock | first pass | random pass |",
        "|---" * 8 + "|",
    ]
    ballots = np.load(VOTES)["ballots"]
    known = {"n_teachers": len(ballots), "n_classes": 10}
    price = PLAIN["GNMax 40"].now(0.0)
    for n in (461,) if quick else (100, 215, 461, 480, 1103, 1259, 1900):
        plan, rng = plan_test(40.0, n_queries=n, delta=DELTA, **known), np.random.default_rng([7, n])
        passes = [
            chance(plan.mechanism, ballots[:, asked])
            for asked in (
                np.arange(n),
                *(rng.choice(ballots.shape[1], n, replace=False) for _ in range(N_DRAWS)),
            )
        ]
        one_by_one = (price * n).epsilon(DELTA), on_clock(price, 0.0, n)
        bought = n_by_renyi(price, 0.0, plan.epsilon), n_on_clock(price, 0.0, plan.epsilon, LARGE)
        cells = [f"{n:,}", f"{plan.epsilon:.2f}", *(f"{value:.2f}" for value in one_by_one)]
        cells += [f"{m:,} (× {n / m:.2f})" for m in bought]
        random = f"{np.mean(passes[1:]):.0%}, {min(passes[1:]):.0%} at worst"
        rows.append(f"| {' | '.join(cells)} | {passes[0]:.0%} | {random} |".replace("%", " %"))
    return rows


def chance(mechanism: TestedGNMax, ballots: np.ndarray) -> float:
    """Return how likely a batch is to pass, with the law of the test written out."""
    depth = mechanism.depth(Votes.from_ballots(ballots, n_classes=10))
    law = floor.gaussian(mechanism.test_sigma, math.ceil(40 * mechanism.test_sigma))
    return float(law[max(0, law.size // 2 + mechanism.threshold - depth) :].sum())


def room_rows(quick: bool) -> list[str]:
    """Return how many questions, all answered, a budget buys, and how many the floor leaves room for."""
    some = (0.5, 1.0, 2.0)
    head = " | ".join(f"ε = {epsilon:g}" for epsilon in some)
    rows = [f"| questions | {head} |", "|---" * (1 + len(some)) + "|"]
    for asked in [] if quick else [PLAIN["GNMax 40"], *CONFIDENT[:2]]:
        counts = [n_on_clock(asked.now(0.0), 0.0, epsilon, LARGE) for epsilon in some]
        most = math.ceil(1.5 * counts[-1])
        floors = floor.floors([(asked.name, n) for n in range(1, most + 1)], delta=DELTA)
        reached = [sum(value <= epsilon for value in floors.values()) for epsilon in some]
        assert reached[-1] < most
        cells = [f"{n:,} of {room:,}" for n, room in zip(counts, reached, strict=True)]
        rows.append(f"| {asked.name} | " + " | ".join(cells) + " |")
    return rows


PARTS: dict[str, tuple[str, Callable[[bool], list[str]]]] = {
    "plain": ("Epsilon of mechanisms that always answer:", plain_rows),
    "confident": ("Epsilon of mechanisms that check first, with refunds for silence:", confident_rows),
    "labels": (
        "Answers that a budget buys, before → now (by the clock; R: by the Rényi rule, which buys more):",
        label_rows,
    ),
    "tested": (
        "Batches of GNMax 40 that are tested, planned on made-up votes and tried on 9,000 others of 250 "
        f"teachers, the first in order and {N_DRAWS} random draws:",
        tested_rows,
    ),
    "room": (
        "Questions, all answered, that a clock pays for, of those that the floor leaves room for:",
        room_rows,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few rows, no floors")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas")
    parser.add_argument("--write", action="store_true", help="put the tables where the page includes them")
    parser.add_argument("--check", action="store_true", help="compare with the kept tables, exit 1 if off")
    args = parser.parse_args()
    kept = PLACE.read_text(encoding="utf-8").splitlines() if args.check else []
    lines: list[str] = []
    for part in args.parts.split(","):
        title, make = PARTS[part]
        rows = make(args.quick)
        # In the quick form floors are left out, and so are the cells that need them.
        lines += [title, "", *rows, ""]
        print("\n".join([title, "", *rows, ""]), flush=True)
    if args.write:
        PLACE.write_text("\n".join(lines), encoding="utf-8")
    if args.check:
        missing = [line for line in lines if line and not any(_same(line, other) for other in kept)]
        for line in missing:
            print(f"DIFFERENT: {line}", file=sys.stderr)
        sys.exit(1 if missing else 0)


def _same(line: str, kept: str) -> bool:
    """Return whether two rows say the same, where both say anything."""
    one, other = line.strip("| ").split(" | "), kept.strip("| ").split(" | ")
    return len(one) == len(other) and all(a == b or a == "–" for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
