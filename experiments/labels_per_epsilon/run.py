"""How many labels do the same votes and the same noise give at one epsilon, by each accountant?

250 MNIST teachers, Confident-GNMax with T=200, sigma1=150, sigma2=40, delta=1e-5. One seeded run is made
over all 9,000 public images in a random order; for each accountant we look how far it gets within
epsilon = log 2, log 4, log 8, log 16:

  (a) the 2018 bound, orders 2..50, classic conversion, along the path taken;
  (b) the same bound, dense orders, tight conversion;
  (c) the exact cost of the whole outcome space, per teacher, both directions.

Beside each row stand the epsilons that could be published for the queries of (c). Everything here was
computed from votes, so in a real run columns (a)-(c) are private and the stopping points too; this is
an experiment on a public data set.

    python experiments/labels_per_epsilon/run.py [--json FILE] [--markdown FILE] [--plot FILE]
"""

import argparse
import json
import math
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellers import ConfidentGNMax, GNMax, Votes, exact_cost, noise
from tellers.bounds import published_confident
from tellers.calibrate import Consensus, plan_publication
from tellers.exact import exact_epsilons
from tellers.gaussian_dp import gaussian_dp_epsilon
from tellers.publishable import independent_cost
from tellers.rdp import RdpCurve, check_orders
from tellers.smooth import publish

ROOT = Path(__file__).parents[2]
MECHANISM = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
DELTA = 1e-5
PAPER = {2: 99, 4: 426, 8: 914, 16: 1540}


@dataclass(frozen=True)
class Row:
    """One epsilon: queries asked and labels released by each accountant, and what could be published."""

    epsilon: float
    labels: dict[str, int]
    queries: dict[str, int]
    exact: float
    publishable: dict[str, float]
    ran_out: bool


def published_epsilons(costs: np.ndarray, orders: np.ndarray, conversion: str) -> np.ndarray:
    """Return the epsilon after each query."""
    running = np.cumsum(costs, axis=0)
    return np.array([RdpCurve(orders, row).epsilon(DELTA, conversion=conversion) for row in running])


def epsilons(votes: Votes, answered: np.ndarray) -> dict[str, np.ndarray]:
    """Return, for each accountant, the epsilon after each query."""
    made = {"threshold": MECHANISM.threshold, "sigma_threshold": MECHANISM.sigma_threshold, "answered": answered}
    few, dense = np.arange(2.0, 51.0), check_orders(None)
    return {
        "a": published_epsilons(published_confident(votes, MECHANISM.sigma, orders=few, **made), few, "classic"),
        "b": published_epsilons(published_confident(votes, MECHANISM.sigma, orders=dense, **made), dense, "tight"),
        "c": exact_epsilons(MECHANISM, votes, delta=DELTA).reveal(),
    }


def publishable(votes: Votes, answered: np.ndarray, seed: int) -> dict[str, float]:
    """Return the public epsilons of a run: by price, by exact Gaussian composition, by publication."""
    n, n_answers = len(votes), int(answered.sum())
    mu = math.sqrt(2 * n_answers / MECHANISM.sigma**2 + n / MECHANISM.sigma_threshold**2)
    found = {
        "arg max price": independent_cost(MECHANISM, n, n_answers=n_answers).epsilon(DELTA),
        "Gaussian DP": gaussian_dp_epsilon(mu, DELTA),
    }
    proxy, _ = Consensus().votes(votes.n_teachers, votes.n_classes, n_queries=1000, seed=1)
    for plan in plan_publication(MECHANISM, proxy, n_queries=n, delta=DELTA):
        if plan.method != "independent":
            source = noise.seeded(seed)
            made = {"plan": plan, "delta": DELTA, "answered": answered, "allow_seeded": True}
            values = [publish(MECHANISM, votes, source, **made).epsilon_upper for _ in range(201)]
            found[f"{plan.method} (median of 201)"] = float(np.median(values))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--votes", type=Path, default=ROOT / "examples" / "mnist_votes.npz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()

    start = time.process_time()
    data = np.load(args.votes)
    shuffled = np.random.default_rng(args.seed).permutation(data["ballots"].shape[1])
    votes = Votes.from_ballots(data["ballots"][:, shuffled].astype(np.int64), n_classes=10)
    truth = data["truth"][shuffled]
    release = MECHANISM.release(votes, noise.seeded(args.seed))
    answered = release.answered
    right = (release.labels == truth)[answered].mean()

    running = epsilons(votes, answered)
    rows = []
    for base in PAPER:
        queries = {name: int(np.searchsorted(values, math.log(base), side="right")) for name, values in running.items()}
        labels = {name: int(answered[:n].sum()) for name, n in queries.items()}
        part = votes[: queries["c"]]
        public = publishable(part, answered[: queries["c"]], args.seed)
        exact = float(running["c"][queries["c"] - 1])
        rows.append(Row(math.log(base), labels, queries, exact, public, queries["c"] == len(votes)))

    plain = votes[:461]
    gnmax = GNMax(MECHANISM.sigma)
    report = {
        "command": "python experiments/labels_per_epsilon/run.py",
        "seed": args.seed,
        "hardware": f"{platform.machine()}, one core, Python {platform.python_version()}, NumPy {np.__version__}",
        "cpu_seconds": round(time.process_time() - start, 1),
        "answered": int(answered.sum()),
        "label_accuracy": float(right),
        "paper": PAPER,
        "rows": [vars(row) for row in rows],
        "gnmax_461": {
            "exact": exact_cost(gnmax, plain).cost.reveal().epsilon(DELTA),
            "histogram price": (461 * gnmax.histogram_price(plain.unit)).epsilon(DELTA),
            "arg max price": (461 * gnmax.price(plain.unit)).epsilon(DELTA),
            "Gaussian DP": gaussian_dp_epsilon(math.sqrt(2 * 461) / 40, DELTA),
            "envelope": envelope_461(gnmax, plain, args.seed),
        },
    }
    table = markdown(report, rows)
    print(table)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    if args.markdown:
        args.markdown.write_text(table)
    if args.plot:
        plot(running, answered, args.plot)


def envelope_461(mechanism: GNMax, votes: Votes, seed: int) -> float:
    """Return the median published epsilon of plain GNMax, planned on the default consensus."""
    proxy, _ = Consensus().votes(votes.n_teachers, votes.n_classes, n_queries=1000, seed=1)
    plan = plan_publication(mechanism, proxy, n_queries=len(votes), delta=DELTA, method="envelope")[0]
    source = noise.seeded(seed)
    made = {"plan": plan, "delta": DELTA, "allow_seeded": True}
    return float(np.median([publish(mechanism, votes, source, **made).epsilon_upper for _ in range(201)]))


def markdown(report: dict, rows: list[Row]) -> str:
    """Return the tables as Markdown."""
    lines = [
        "| epsilon | paper | (a) 2018, classic | (b) 2018, tight | (c) exact | (c) / (a) | queries of (c) |",
        "|---|---|---|---|---|---|---|",
    ]
    for base, row in zip(PAPER, rows, strict=True):
        a, b, c = (row.labels[name] for name in "abc")
        more = "all" if row.ran_out else str(row.queries["c"])
        shown = f"{c} (images ran out)" if row.ran_out else str(c)
        lines.append(f"| log {base} | {PAPER[base]} | {a} | {b} | {shown} | {c / a:.2f} | {more} |")
    names = list(rows[0].publishable)
    lines += ["", "| queries of (c) at | exact, private | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for base, row in zip(PAPER, rows, strict=True):
        values = " | ".join(f"{row.publishable[name]:.2f}" for name in names)
        lines.append(f"| log {base} | {row.exact:.2f} | {values} |")
    lines += ["", "| 461 plain GNMax queries, sigma 40 | epsilon |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in report["gnmax_461"].items()]
    lines += [
        "",
        f"Labels right: {report['label_accuracy']:.4f} of {report['answered']} answered. "
        f"Seed {report['seed']}; {report['hardware']}; {report['cpu_seconds']} CPU s; `{report['command']}`.",
        "",
    ]
    return "\n".join(lines)


def plot(running: dict[str, np.ndarray], answered: np.ndarray, path: Path) -> None:
    """Draw labels against epsilon, one line per accountant."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("The picture needs matplotlib: pip install 'tellers[report]'")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = {
        "a": "2018 bound, as published",
        "b": "2018 bound, tight conversion",
        "c": "exact",
    }
    colours = {"a": "#9aa0a6", "b": "#5b8db8", "c": "#c0392b"}
    figure, axes = plt.subplots(figsize=(7, 4))
    labels = np.cumsum(answered)
    for name, values in running.items():
        axes.plot(values, labels, label=names[name], color=colours[name], linewidth=2.4 if name == "c" else 1.8)
    for base in PAPER:
        axes.axvline(math.log(base), color="#dddddd", linewidth=1, zorder=0)
        axes.text(math.log(base), axes.get_ylim()[1] * 0.01, f" log {base}", color="#888888", fontsize=8)
    axes.set(xlabel="epsilon (delta = 1e-5)", ylabel="labels released", xlim=(0, 3))
    axes.set_ylim(bottom=0)
    axes.set_title("The same votes, the same noise: labels per epsilon (250 MNIST teachers)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
