"""How many labels does each personalised variant buy, at public prices, as more people are generous?

Confident-GNMax with 250 teachers, T=200, sigma1=150, sigma2=40, delta=1e-5; everybody has a budget of log 2,
but for a share of the people, who have log 4 or log 8. A batch of queries, all of them answered, is made as
large as every group can pay for. No vote is looked at: these numbers can be had before anything is trained.

    python experiments/personal_prices/run.py [--plot FILE] [--every 5]
"""

import argparse
import math
import sys
from pathlib import Path

from tellers import ConfidentGNMax
from tellers.runs.personal import PersonalPlan, make_plan, read_consent

MECHANISM = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
DELTA, N_TEACHERS, N_PERSONS, SEED = 1e-5, 250, 1000, 7
VARIANTS = ("weighting", "vanishing", "upsampling")
HIGHER = (4, 8)


def labels(plan: PersonalPlan) -> int:
    """Return the size of the largest batch that every group can pay for."""

    def fits(n_queries: int) -> bool:
        prices = plan.prices(n_queries, key="all")
        return all(prices[group.name].epsilon(DELTA) <= group.epsilon for group in plan.groups)

    # A schedule that rounds badly makes one batch dearer than a larger one: look well past the first refusal.
    most, n_queries = 0, 1
    while n_queries <= 2 * most + 40:
        if fits(n_queries):
            most = n_queries
        n_queries += 1
    return most


def sweep(higher: int, shares: list[int]) -> dict[str, list[int]]:
    """Return the labels of each variant, one number per share of generous people in percent."""
    bought: dict[str, list[int]] = {variant: [] for variant in VARIANTS}
    for share in shares:
        n_generous = round(N_PERSONS * share / 100)
        budgets = [math.log(2)] * (N_PERSONS - n_generous) + [math.log(higher)] * n_generous
        consent = read_consent(budgets, delta=DELTA)
        for variant in VARIANTS:
            plan = make_plan(variant, consent, MECHANISM, n_teachers=N_TEACHERS, seed=SEED)
            bought[variant].append(labels(plan))
    return bought


def plot(shares: list[int], found: dict[int, dict[str, list[int]]], path: Path) -> None:
    """Draw labels against the share of generous people, one panel per higher budget."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("The picture needs matplotlib: pip install 'tellers[report]'")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    looks = {"weighting": ("#c0392b", "-"), "vanishing": ("#5b8db8", "-"), "upsampling": ("#2e7d5b", "--")}
    figure, panels = plt.subplots(1, len(found), figsize=(8, 3.8))
    for axes, (higher, bought) in zip(panels, found.items(), strict=True):
        for variant, numbers in bought.items():
            colour, line = looks[variant]
            axes.plot(shares[1:-1], numbers[1:-1], line, color=colour, linewidth=2, label=variant)
        # At the ends there is one group, and all variants are the same: no line leads there.
        ends = [bought["weighting"][at] for at in (0, -1)]
        axes.plot([0, 100], ends, "o", color="#444444", markersize=4, clip_on=False)
        axes.axhline(bought["weighting"][0], color="#999999", linewidth=1, zorder=0)
        axes.text(100, bought["weighting"][0], "all as strict as the strictest", color="#666666", fontsize=8,
                  ha="right", va="bottom")  # fmt: skip
        axes.set(xlabel=f"people with log {higher} instead of log 2, in %", xlim=(0, 100))
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("labels at public prices")
    panels[0].legend(frameon=False)
    figure.suptitle("Labels that budgets buy before anybody votes (250 teachers, delta = 1e-5)", fontsize=10)
    figure.tight_layout()
    plt.rcParams["svg.hashsalt"] = "personal prices"
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, and draw the picture where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", type=Path, help="where to draw the picture")
    parser.add_argument("--every", type=int, default=5, help="distance of shares in percent")
    given = parser.parse_args()
    shares = sorted({*range(0, 101, given.every), 25, 50, 75, 100})
    found = {higher: sweep(higher, shares) for higher in HIGHER}
    for higher, bought in found.items():
        print(f"\n| share with log {higher} | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}")
        for at, share in enumerate(shares):
            print(f"| {share} % | {' | '.join(str(bought[variant][at]) for variant in VARIANTS)} |")
    if given.plot:
        plot(shares, found, given.plot)


if __name__ == "__main__":
    main()
