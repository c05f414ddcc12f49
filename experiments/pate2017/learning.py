"""What the students learn: from labels (figure 4), from histograms (figure 5), and by asking well (B.2)."""

import numpy as np
from common.accounting import lnmax_epsilons
from common.images import Images
from common.measure import Section, measure
from common.rooms import open_room
from common.students import NAMES, accuracy, make_student, teach
from votes import GAMMA, PUBLISHED, draw_queries

from tellers import GNMax, LNMax, NoisyHistogram, Unit, noise
from tellers.runs import label_pool
from tellers.students import fit_distilled

SIGMA = 40.0


def students(images: Images, seeds: range, kinds: list[str]) -> Section:
    """Teach supervised students with the labels of the paper's two runs."""
    published, rows = PUBLISHED[images.name], []
    for n in published["queries"]:
        for kind in kinds:
            taught, right = [], []
            for seed in seeds:
                chosen = draw_queries(images, n, seed)
                labels = LNMax(GAMMA).release(images.largest[chosen], noise.seeded(seed)).labels
                taught.append(teach(kind, images, chosen, labels, seed=seed))
                if kind != "cnn":  # a network takes long, and its noisy labels are nearly all right
                    right.append(teach(kind, images, chosen, images.truth[chosen], seed=seed))
            rows.append(
                measure(
                    f"student/{n}/{kind}", f"{n} noisy labels: {NAMES[kind]}", taught, percent=True,
                    published=published["student"][n], where="figure 4 (theirs: semi-supervised, a GAN)",
                )
            )  # fmt: skip
            if right:
                words = f"{n} true labels: the same student"
                rows.append(measure(f"student-true/{n}/{kind}", words, right, percent=True))
    notes = (
        f"Held-out images: {len(images.X_test)}. Our students see labelled images only; the "  # type: ignore[arg-type]
        "paper's learn from the unlabelled pool too.",
        f"Published accuracy without privacy, on all training images: {published['open']} %.",
    )
    return Section(f"{images.name}: supervised students of LNMax labels (figure 4)", tuple(rows), notes)


def distillation(images: Images, seeds: range, sizes: tuple[int, ...], kinds: list[str]) -> list[Section]:
    """Compare plurality labels with shares of votes, without noise as in the paper and with it."""
    votes, pool = images.largest, images.X_pool
    assert pool is not None
    quiet, noisy = [], []
    for kind in kinds:
        for n in sizes:
            found: dict[str, list[float]] = {"plurality": [], "T=1": [], "T=5": []}
            for seed in seeds if n < len(pool) else seeds[:1]:
                chosen = draw_queries(images, n, seed)
                counts = votes.counts[chosen]
                found["plurality"].append(teach(kind, images, chosen, counts.argmax(axis=1), seed=seed))
                for temperature in (1, 5):
                    model = make_student(kind, images, n_labels=n)
                    made = fit_distilled(model, pool[chosen], counts, temperature=temperature, seed=seed)
                    found[f"T={temperature}"].append(accuracy(made, images))
            for name, values in found.items():
                words = f"{n} queries, {name}, no noise: {NAMES[kind]}"
                quiet.append(measure(f"distil/{n}/{name}/{kind}", words, values, percent=True))
    n = min(1000, len(pool) // 2)
    for kind in kinds:
        found = {"label": [], "T=1": [], "T=5": []}
        for seed in seeds:
            chosen = draw_queries(images, n, seed)
            release = GNMax(SIGMA).release(votes[chosen], noise.seeded(seed))
            found["label"].append(teach(kind, images, chosen, release.labels, seed=seed))
            values = NoisyHistogram(SIGMA).release(votes[chosen], noise.seeded(seed))
            for temperature in (1, 5):
                made = fit_distilled(
                    make_student(kind, images, n_labels=n), pool[chosen], values,
                    temperature=temperature, floor=2 * SIGMA, seed=seed,
                )  # fmt: skip
                found[f"T={temperature}"].append(accuracy(made, images))
        for name, values_ in found.items():
            words = f"{n} queries, sigma {SIGMA:g}, {name}: {NAMES[kind]}"
            noisy.append(measure(f"distil-noisy/{name}/{kind}", words, values_, percent=True))
    for name, mechanism in (("label", GNMax(SIGMA)), ("histogram", NoisyHistogram(SIGMA))):
        epsilon = (mechanism.price(Unit()) * n).epsilon(images.delta)
        words = f"{n} queries, sigma {SIGMA:g}: public epsilon of the {name}"
        noisy.append(measure(f"distil-price/{name}", words, epsilon))
    return [
        Section(
            f"{images.name}: distillation without noise (figure 5, appendix B.1)",
            tuple(quiet),
            (
                "No noise, hence no privacy: this is the paper's own comparison, which it draws for SVHN and "
                "50 teachers without printing values. Ours shares out ballots; theirs sums probabilities.",
            ),
        ),
        Section(
            f"{images.name}: distillation from a noisy histogram, at its price",
            tuple(noisy),
            (f"Counts up to {2 * SIGMA:g}, two sigma, are taken for noise and cut off.",),
        ),
    ]


def active(images: Images, seeds: range, kind: str, *, per_round: int, n_rounds: int) -> Section:
    """Compare the student's least confident images with random ones, query for query."""
    votes, pool, rows = images.largest, images.X_pool, []
    assert pool is not None
    last = per_round * (n_rounds + 1)
    marks = sorted({2 * per_round, per_round * (n_rounds + 1) // 2 // per_round * per_round, last})
    reached: dict[str, dict[int, list[float]]] = {"active": {m: [] for m in marks}, "random": {}}
    costs: dict[str, list[dict[str, float]]] = {"active": [], "random": []}
    right: dict[str, list[float]] = {"active": [], "random": []}
    reached["random"] = {m: [] for m in marks}
    everything = np.arange(len(pool))
    for seed in seeds:
        model = make_student(kind, images, n_labels=last)
        now = label_pool(
            open_room(votes, LNMax(GAMMA), delta=images.delta, seed=seed), pool, seed=seed, order="active",
            n_queries=last, batch=per_round, student=model, first=per_round, per_round=per_round,
            queries=everything,
        )  # fmt: skip
        for mark in marks:
            taught = teach(kind, images, now.rows[:mark], now.labels[:mark], seed=seed)
            reached["active"][mark].append(taught)
        chosen = draw_queries(images, last, seed)
        labels = LNMax(GAMMA).release(votes[chosen], noise.seeded(seed + 1000)).labels
        for mark in marks:
            reached["random"][mark].append(teach(kind, images, chosen[:mark], labels[:mark], seed=seed))
        for order, asked, got in (("active", now.rows, now.labels), ("random", chosen, labels)):
            costs[order].append(lnmax_epsilons(votes[asked], GAMMA, delta=images.delta))
            right[order].append(float(np.mean(got == images.truth[asked])))
    for mark in marks:
        gain = np.array(reached["active"][mark]) - np.array(reached["random"][mark])
        for order in ("random", "active"):
            words = f"{mark} queries, {order}: {NAMES[kind]}"
            rows.append(measure(f"ask/{order}/{mark}/{kind}", words, reached[order][mark], percent=True))
        rows.append(
            measure(
                f"ask/gain/{mark}/{kind}", f"{mark} queries: active minus random", gain, percent=True,
                published="4 to 10 %", where="appendix B.2 (SVHN or MNIST, not said; no values)",
            )
        )  # fmt: skip
    for order in ("random", "active"):
        rows.append(
            measure(f"ask/right/{order}/{kind}", f"{last} queries, {order}: labels right", right[order],
                    percent=True)
        )  # fmt: skip
        for name in ("public", "moments", "exact"):
            values = [run[name] for run in costs[order]]
            rows.append(
                measure(f"ask/{name}/{order}/{kind}", f"{last} queries, {order}: epsilon, {name}", values)
            )
    notes = (
        f"LNMax, gamma {GAMMA}; first {per_round} at random, {per_round} a round, least confident first.",
        "Equal queries are an equal public budget. The images a student doubts are those teachers doubt, so "
        "the data-dependent costs of the active path are higher (and are the cost of that path alone).",
    )
    return Section(f"{images.name}: active against random queries (appendix B.2)", tuple(rows), notes)
