"""What the ensembles say: teachers, plurality, noisy labels (figure 2), gaps (figure 3), and the price."""

from collections.abc import Iterable

import numpy as np
from common.accounting import NAMES, lnmax_epsilons
from common.images import Images
from common.measure import Measure, Section, measure

from tellers import LNMax, Votes, noise

GAMMA = 0.05
GAMMAS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
PUBLISHED = {
    "MNIST": {
        "teacher": 83.86, "noisy": 93.18, "queries": (100, 1000),
        "epsilon": {100: 2.04, 1000: 8.03}, "student": {100: 98.00, 1000: 98.10}, "open": 99.18,
    },
    "SVHN": {
        "teacher": 83.18, "noisy": 87.79, "queries": (500, 1000),
        "epsilon": {500: 5.04, 1000: 8.19}, "student": {500: 82.72, 1000: 90.66}, "open": 92.80,
    },
}  # fmt: skip


def noisy_accuracies(votes: Votes, truth: np.ndarray, gamma: float, seeds: Iterable[int]) -> list[float]:
    """Return the share of right labels after Laplace noise, one per seed."""
    mechanism = LNMax(gamma)
    return [float(np.mean(mechanism.release(votes, noise.seeded(s)).labels == truth)) for s in seeds]


def ensembles(images: Images, seeds: range) -> Section:
    """Measure each ensemble: its teachers, its plurality, its noisy labels and its gap."""
    published, rows = PUBLISHED[images.name], []
    for n, votes in images.votes.items():
        largest = n == 250
        assert votes.ballots is not None
        teachers = (votes.ballots == images.truth).mean(axis=1)
        rows += [
            measure(
                f"teacher/{n}", f"{n} teachers: mean accuracy of one", float(teachers.mean()), percent=True,
                published=published["teacher"] if largest else None,
                where="section 4.1, prediction accuracy" if largest else "",
            ),
            measure(
                f"plurality/{n}", f"{n} teachers: plurality",
                float((votes.counts.argmax(axis=1) == images.truth).mean()), percent=True,
            ),
            measure(
                f"noisy/{n}", f"{n} teachers: noisy label, gamma {GAMMA}",
                noisy_accuracies(votes, images.truth, GAMMA, seeds), percent=True,
                published=published["noisy"] if largest else None,
                where="section 4.1" if largest else "",
            ),
            measure(
                f"gap/{n}", f"{n} teachers: gap / teachers (figure 3)", float((votes.gap / n).mean()),
                percent=True, published="over 60 %", where="section 4.1, prediction confidence; figure 3",
            ),
        ]  # fmt: skip
    notes = (f"Seeded noise, seeds {seeds.start} to {seeds.stop - 1}, on all pool images.", *images.notes)
    return Section(f"{images.name}: the ensembles", tuple(rows), notes)


def figure_2(images: Images, seeds: range) -> Section:
    """Measure the accuracy of the noisy aggregation for every noise and ensemble."""
    rows: list[Measure] = []
    for n, votes in images.votes.items():
        for gamma in GAMMAS:
            values = noisy_accuracies(votes, images.truth, gamma, seeds)
            rows.append(
                measure(f"figure2/{n}/{gamma:g}", f"{n} teachers, gamma {gamma:g}", values, percent=True)
            )
    return Section(
        f"{images.name}: accuracy of the noisy aggregation (figure 2)",
        tuple(rows),
        ("The paper draws these as curves and prints no values but the one at gamma 0.05, 250 teachers.",),
    )


def accounting(images: Images, seeds: range) -> Section:
    """Measure epsilon of the paper's two runs by every accountant."""
    published, votes, rows = PUBLISHED[images.name], images.largest, []
    for n in published["queries"]:
        runs, right = [], []
        for seed in seeds:
            chosen = draw_queries(images, n, seed)
            runs.append(lnmax_epsilons(votes[chosen], GAMMA, delta=images.delta))
            labels = LNMax(GAMMA).release(votes[chosen], noise.seeded(seed)).labels
            right.append(float(np.mean(labels == images.truth[chosen])))
        for name, words in NAMES.items():
            value = {"composition": 5.80 if n == 100 else None, "moments": published["epsilon"][n]}.get(name)
            rows.append(
                measure(
                    f"epsilon/{n}/{name}", f"{n} queries: {words}", [run[name] for run in runs],
                    published=value if images.name == "MNIST" or name == "moments" else None,
                    where={"composition": "section 3.2", "moments": "figure 4"}[name] if value else "",
                )
            )  # fmt: skip
        rows.append(measure(f"labels/{n}", f"{n} queries: labels right", right, percent=True))
    notes = (
        f"LNMax, gamma {GAMMA}, delta {images.delta:g}; the queries are drawn from the pool, seeds "
        f"{seeds.start} to {seeds.stop - 1}.",
        "Better teachers agree more and cost less: compare the accuracy of one teacher above.",
    )
    return Section(f"{images.name}: epsilon of LNMax by every accountant (figure 4)", tuple(rows), notes)


def draw_queries(images: Images, n: int, seed: int) -> np.ndarray:
    """Return some rows of the shuffled pool."""
    return np.random.default_rng(seed).permutation(images.truth.size)[:n]
