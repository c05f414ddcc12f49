"""How many labels do the same votes and the same noise give at one epsilon, by each accountant?

250 MNIST teachers, Confident-GNMax with T=200, sigma1=150, sigma2=40, delta=1e-5. Seeded runs are made over
all 9,000 public images, each in another random order; for each accountant we look how far it gets within
epsilon = log 2, log 4, log 8, log 16, and report the mean over the runs:

  (a) the 2018 bound, orders 2..50, classic conversion, along the path taken;
  (b) the same bound, dense orders, tight conversion;
  (c) the exact cost of the whole outcome space, per teacher, both directions.

Beside each row stand the epsilons that could be published for the queries of (c) in the first run.
Everything here was computed from votes, so in a real run columns (a) to (c) are private, and the stopping
points too; this is an experiment on a public data set.

    python experiments/labels_per_epsilon/run.py [--runs 5] [--json FILE] [--markdown FILE] [--plot FILE]
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
from tellers.accounting import Consensus, publish
from tellers.accounting.costs import gaussian_dp_epsilon, independent_cost
from tellers.accounting.exact import exact_epsilons
from tellers.mechanisms.published import published_confident
from tellers.privacy import DEFAULT_ORDERS, RdpCurve
from tellers.runs import plan_publication

ROOT = Path(__file__).parents[2]
MECHANISM = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
DELTA = 1e-5
PAPER = {2: 99, 4: 426, 8: 914, 16: 1540}


@dataclass(frozen=True, eq=False)
class Run:
    """One seeded run: the votes in its order, what was answered, and epsilon after each query."""

    votes: Votes
    answered: np.ndarray
    accuracy: float
    epsilons: dict[str, np.ndarray]

    def reach(self, name: str, epsilon: float) -> int:
        """Return how many queries fit into epsilon."""
        return int(np.searchsorted(self.epsilons[name], epsilon, side="right"))

    def labels(self, name: str, epsilon: float) -> int:
        """Return how many of them were answered."""
        return int(self.answered[: self.reach(name, epsilon)].sum())


def make_run(ballots: np.ndarray, truth: np.ndarray, seed: int) -> Run:
    """Shuffle the public images, ask all of them, and account three times."""
    shuffled = np.random.default_rng(seed).permutation(truth.size)
    votes = Votes.from_ballots(ballots[:, shuffled], n_classes=10)
    release = MECHANISM.release(votes, noise.seeded(seed))
    right = (release.labels == truth[shuffled])[release.answered].mean()
    return Run(votes, release.answered, float(right), epsilons(votes, release.answered))


def published_epsilons(costs: np.ndarray, orders: np.ndarray, conversion: str) -> np.ndarray:
    """Return the epsilon after each query."""
    running = np.cumsum(costs, axis=0)
    return np.array([RdpCurve(orders, row).epsilon(DELTA, conversion=conversion) for row in running])


def epsilons(votes: Votes, answered: np.ndarray) -> dict[str, np.ndarray]:
    """Return, for each accountant, the epsilon after each query."""
    made = {
        "threshold": MECHANISM.threshold,
        "sigma_threshold": MECHANISM.sigma_threshold,
        "answered": answered,
    }
    few, dense = np.arange(2.0, 51.0), DEFAULT_ORDERS
    return {
        "a": published_epsilons(
            published_confident(votes, MECHANISM.sigma, orders=few, **made), few, "classic"
        ),
        "b": published_epsilons(
            published_confident(votes, MECHANISM.sigma, orders=dense, **made), dense, "tight"
        ),
        "c": exact_epsilons(MECHANISM, votes, delta=DELTA).reveal(),
    }


def publishable(votes: Votes, answered: np.ndarray) -> dict[str, float]:
    """Return the public epsilons of a run: by price, by exact Gaussian composition, by publication."""
    n, n_answers = len(votes), int(answered.sum())
    mu = math.sqrt(2 * n_answers / MECHANISM.sigma**2 + n / MECHANISM.sigma_threshold**2)
    return {
        "arg max price": independent_cost(MECHANISM, n, n_answers=n_answers).epsilon(DELTA),
        "Gaussian composition": gaussian_dp_epsilon(mu, DELTA),
        "2018 bound by GNSS": median_published(MECHANISM, votes, "gnss", answered),
        "gap envelope": median_published(MECHANISM, votes, "envelope"),
    }


def median_published(
    mechanism: GNMax | ConfidentGNMax, votes: Votes, method: str, answered: np.ndarray | None = None
) -> float:
    """Return the median of 201 published epsilons (95 % upper values), planned on the default consensus."""
    proxy, _ = Consensus().votes(votes.n_teachers, votes.n_classes, n_queries=1000, seed=1)
    plan = plan_publication(mechanism, proxy, n_queries=len(votes), delta=DELTA, method=method)[0]
    source = noise.seeded(0)
    made = {"plan": plan, "delta": DELTA, "answered": answered, "allow_seeded": True}
    return float(np.median([publish(mechanism, votes, source, **made).epsilon_upper for _ in range(201)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--votes", type=Path, default=ROOT / "examples" / "mnist_votes.npz")
    parser.add_argument("--runs", type=int, default=5, help="seeds 0, 1, ... of order and noise")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()

    start = time.process_time()
    data = np.load(args.votes)
    runs = []
    for seed in range(args.runs):
        print(f"run {seed + 1} of {args.runs} ...", file=sys.stderr)
        runs.append(make_run(data["ballots"].astype(np.int64), data["truth"], seed))
    first = runs[0]
    rows = []
    for base in PAPER:
        limit = math.log(base)
        n_queries = first.reach("c", limit)
        rows.append(
            {
                "base": base,
                "paper": PAPER[base],
                "labels": {name: mean_and_error([run.labels(name, limit) for run in runs]) for name in "abc"},
                "ratio": mean_and_error([run.labels("c", limit) / run.labels("a", limit) for run in runs]),
                "ran_out": n_queries == len(first.votes),
                "n_queries": n_queries,
                "exact": float(first.epsilons["c"][n_queries - 1]),
                "publishable": publishable(first.votes[:n_queries], first.answered[:n_queries]),
            }
        )
    gnmax, plain = GNMax(MECHANISM.sigma), first.votes[:461]
    report = {
        "command": "python experiments/labels_per_epsilon/run.py",
        "runs": args.runs,
        "hardware": f"{platform.machine()}, one core, Python {platform.python_version()}",
        "answered": mean_and_error([int(run.answered.sum()) for run in runs]),
        "accuracy": mean_and_error([run.accuracy for run in runs]),
        "rows": rows,
        "gnmax_461": {
            "exact, private": exact_cost(gnmax, plain).cost.reveal().epsilon(DELTA),
            "histogram price": (461 * gnmax.histogram_price(plain.unit)).epsilon(DELTA),
            "exact Gaussian composition": gaussian_dp_epsilon(math.sqrt(2 * 461) / 40, DELTA),
            "arg max price": (461 * gnmax.price(plain.unit)).epsilon(DELTA),
            "gap envelope, 95 % upper value, median": median_published(gnmax, plain, "envelope"),
        },
        "cpu_seconds": round(time.process_time() - start, 1),
    }
    table = markdown(report)
    print(table)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    if args.markdown:
        args.markdown.write_text(table)
    if args.plot:
        plot(first, args.plot)


def mean_and_error(values: list[float]) -> list[float]:
    """Return the mean and its standard error."""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return [round(float(np.mean(values)), 4), round(float(error), 4)]


def markdown(report: dict) -> str:
    """Return the tables as Markdown."""
    lines = [
        "| epsilon | paper | (a) 2018, as published | (b) 2018, tight conversion | (c) exact | (c) / (a) |",
        "|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        a, b, c = (f"{mean:.0f} ± {error:.0f}" for mean, error in row["labels"].values())
        more = " (images ran out)" if row["ran_out"] else ""
        lines.append(
            f"| log {row['base']} | {row['paper']} | {a} | {b} | {c}{more} | {row['ratio'][0]:.2f} |"
        )
    names = list(report["rows"][0]["publishable"])
    lines += [
        "",
        "| queries of (c) | exact, private | " + " | ".join(names) + " |",
        "|---" * (len(names) + 2) + "|",
    ]
    for row in report["rows"]:
        values = " | ".join(f"{row['publishable'][name]:.2f}" for name in names)
        lines.append(f"| {row['n_queries']} | {row['exact']:.2f} | {values} |")
    lines += ["", "| 461 plain GNMax queries, sigma 40 | epsilon |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in report["gnmax_461"].items()]
    lines += [
        "",
        f"Labels right: {report['accuracy'][0]:.4f} of {report['answered'][0]:.0f} answered. "
        f"Seeds 0 to {report['runs'] - 1}, mean ± standard error; {report['hardware']}; "
        f"{report['cpu_seconds']} CPU s; `{report['command']}`.",
        "",
    ]
    return "\n".join(lines)


def plot(run: Run, path: Path) -> None:
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
    # Every twentieth query: the lines look the same and the file stays small.
    labels = np.cumsum(run.answered)[::20]
    for name, values in run.epsilons.items():
        axes.plot(
            values[::20],
            labels,
            label=names[name],
            color=colours[name],
            linewidth=2.4 if name == "c" else 1.8,
        )
    for base in PAPER:
        axes.axvline(math.log(base), color="#dddddd", linewidth=1, zorder=0)
        look = {"color": "#888888", "fontsize": 8, "rotation": 90, "transform": axes.get_xaxis_transform()}
        axes.text(math.log(base), 0.68, f"log {base}", **look)
    axes.set(xlabel="epsilon (delta = 1e-5)", ylabel="labels released", xlim=(0, 3))
    axes.set_ylim(bottom=0)
    axes.set_title("The same votes, the same noise: labels per epsilon (250 MNIST teachers)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
