"""The parts of a run: each measures its cells and returns its tables."""

from typing import Any

from accounting import Voting
from cells import DELTA, LIMITS, Bench, measure_cell, release, released_scores, without_noise
from curves import SIGMA, agreed, capacity, random_labels
from data import Setting
from published import BUDGETS, CHEXPERT, PASCAL, POWERSET
from scores import NAMES as SCORES
from scores import scores
from tables import Row, Table

ACCOUNTANTS = {
    "printed": "as printed",
    "bound": "printed, sound cap",
    "gauss": "data-independent",
    "price": "public price",
    "exact": "exact",
}
MAIN = ("as printed", "exact", "BAC")  # what is compared with what is expected in long tables
DROPS = {"bac": 0.02, "map": 0.03}  # of each measure, for noise that is called harmless
HARM = "no harmless noise"
STEPS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0)


def votings(setting: Setting) -> list[Voting]:
    """Return every way of voting that is tried on a data set."""
    kinds: list[tuple[str, float]] = [("binary", 0.0)]
    kinds += [("l2", square**0.5) for square in setting.squares]
    kinds += [("l1", square) for square in setting.squares]
    kinds.append(("powerset", 0.0))
    return [Voting(kind, sigma, limit) for kind, limit in kinds for sigma in setting.sigmas]


def counts(
    cells: list[dict[str, float]], limit: float, *, head: str = "", clipped: bool = False
) -> dict[str, Any]:
    """Return the columns of one budget: queries answered by every accountant; caps differ for tau alone."""
    return {
        f"{head}{words}": [cell[f"{name}/{limit:g}"] for cell in cells]
        for name, words in ACCOUNTANTS.items()
        if clipped or name != "bound"
    }


def measures(cells: list[dict[str, float]]) -> dict[str, Any]:
    """Return the columns of the four measures."""
    return {words: [cell[name] for cell in cells] for name, words in SCORES.items()}


def goal(bench: Bench, name: str, seeds: range, sigma: float) -> Table:
    """Binary voting at one noise: what each accountant lets a budget answer, over seeds."""
    cells = [measure_cell(bench, name, seed, Voting("binary", sigma)) for seed in seeds]
    plain = [without_noise(bench, name, seed) for seed in seeds]
    rows = []
    for limit in LIMITS:
        found = counts(cells, limit)
        exact, printed, gauss = (found[ACCOUNTANTS[name]] for name in ("exact", "printed", "gauss"))
        times = {
            "exact / printed": [a / b for a, b in zip(exact, printed, strict=True)],
            "exact / data-independent": [a / b for a, b in zip(exact, gauss, strict=True)],
        }
        cells_of = {"epsilon": f"{limit:g}"} | found | times | measures(cells)
        rows.append(Row(f"{limit:g}", cells_of | {"no noise: BAC": [one["bac"] for one in plain]}))
    columns = tuple(rows[0].cells)
    notes = (
        f"Seeds {seeds.start} to {seeds.stop - 1} draw the partition of the private rows and the noise.",
    )
    return Table(f"many/{name}/goal", f"{name}: Binary, sigma {sigma:g}", columns, tuple(rows), notes)


def sweep(bench: Bench, name: str, seed: int) -> list[Table]:
    """Figure 1 in numbers: every way of voting at every noise, and the best harmless setting of each."""
    setting, every, best = bench.data(name).setting, [], {}
    plain = without_noise(bench, name, seed)
    for voting in votings(setting):
        cell = measure_cell(bench, name, seed, voting)
        columns: dict[str, Any] = {"voting": voting.words, "sigma": f"{voting.sigma:g}"}
        for limit in LIMITS:
            columns |= counts([cell], limit, head=f"{limit:g}: ", clipped=True)
        columns |= measures([cell])
        every.append(Row(voting.key, columns))
        harmless = is_harmless(cell, plain)
        # Where no noise of the grid is harmless, the one that harms least stands in.
        rank = (harmless, cell["exact/20"] if harmless else cell["bac"])
        if voting.kind not in best or rank > best[voting.kind][0]:
            words = {"data set": name, "voting": voting.words}
            note = {"note": "" if harmless else HARM}
            best[voting.kind] = (rank, Row(voting.kind, words | columns | note))
    heads = tuple(every[0].cells)
    title = (
        f"{name}: queries answered at epsilon 20 and 8, and the labels that come out (figure 1 in numbers)"
    )
    notes = (f"Without noise: {', '.join(f'{SCORES[k]} {plain[k]:.3f}' for k in SCORES)}; delta {DELTA:g}.",)
    chosen = tuple(row for _, row in best.values())
    best_title = f"{name}: the best harmless setting of each"
    main = (*(head for head in heads if head.startswith("20: ")), "8: as printed", "8: exact", "BAC", "mAP")
    return [
        Table(f"many/{name}/sweep", title, heads, tuple(every), notes, measured=()),
        Table(f"many/{name}/best", best_title, ("data set", *heads, "note"), chosen, notes, measured=main),
    ]


def most_noise(bench: Bench, name: str, seed: int, kind: str, first: int) -> tuple[float, str]:
    """Return the most noise that is harmless on the first labels, and a remark where there is none."""
    plain, found = without_noise(bench, name, seed, first), 0.0
    for sigma in STEPS:
        if not is_harmless(released_scores(bench, name, seed, Voting(kind, sigma), first), plain):
            break
        found = sigma
    return (found, "") if found else (STEPS[0], HARM)


def is_harmless(noisy: dict[str, float], plain: dict[str, float]) -> bool:
    """Return whether noise takes little off the balanced accuracy and the mean average precision."""
    return all(noisy[name] >= plain[name] - drop for name, drop in DROPS.items())


def first_labels(bench: Bench, name: str, seed: int, which: int, firsts: tuple[int, ...] = ()) -> Table:
    """Tables 5 and 6 in form: Binary against Powerset on the first k labels, noise by what it leaves."""
    published = CHEXPERT if which == 5 else PASCAL
    rows = []
    for (first, kind), theirs in published.items():
        if first > bench.data(name).n_labels or (firsts and first not in firsts):
            continue
        sigma, remark = most_noise(bench, name, seed, kind, first)
        cell = measure_cell(bench, name, seed, Voting(kind, sigma), first=first)
        beside = {
            f"their {column}": "; ".join(f"{one[at]:g}" for one in theirs)
            for at, column in enumerate(("queries", "sigma", "ACC", "BAC", "AUC", "mAP"))
        }
        words = {"labels, mode": f"{first} {kind}", **beside, "our sigma": f"{sigma:g}", "note": remark}
        rows.append(Row(f"{first}-{kind}", words | counts([cell], 20.0) | measures([cell])))
    columns = (*(column for column in rows[0].cells if column != "note"), "note")
    theirs_name = "CheXpert" if which == 5 else "Pascal VOC"
    notes = (
        f"Theirs: {theirs_name}, not at hand; ours: the first labels of {name}, "
        f"{len(bench.data(name).y_public)} queries to ask. Epsilon 20, delta {DELTA:g}. Sigma is the largest "
        f"of {', '.join(f'{s:g}' for s in STEPS)} that takes at most {DROPS['bac']} off the majority's BAC "
        f"and {DROPS['map']} off its mAP.",
    )
    title = f"Table {which} in form ({name})"
    return Table(f"many/{name}/table{which}", title, columns, tuple(rows), notes, measured=MAIN)


def few_labels(bench: Bench, name: str, seed: int, wanted: tuple[tuple[int, int], ...] = ()) -> Table:
    """Table 8 in form: Powerset with at most tau labels per ballot."""
    rows = []
    for (first, most), theirs in POWERSET.items():
        if first > bench.data(name).n_labels or (wanted and (first, most) not in wanted):
            continue
        sigma, _ = most_noise(bench, name, seed, "powerset", first)
        voting = Voting("powerset", sigma, 0.0 if most == first else most)
        cell = measure_cell(bench, name, seed, voting, first=first)
        beside = {
            f"their {column}": f"{theirs[at]:g}"
            for at, column in enumerate(("queries", "sigma", "ACC", "BAC", "AUC", "mAP"))
        }
        words = {"labels": str(first), "tau": str(most), **beside, "our sigma": f"{sigma:g}"}
        rows.append(Row(f"{first}-{most}", words | counts([cell], 20.0) | measures([cell])))
    notes = (
        "Of more labels than tau a ballot keeps the first ones. Sigma is table 6's for that many labels.",
    )
    title, columns = f"Table 8 in form ({name})", tuple(rows[0].cells)
    return Table(f"many/{name}/table8", title, columns, tuple(rows), notes, measured=MAIN)


def budgets(bench: Bench, name: str, seed: int, first: int, wanted: tuple[int, ...] = ()) -> Table:
    """Table 10 in form: Binary at sigma 7, epsilon 1 to 20; measured on the queries exact costs answer."""
    limits = tuple(float(epsilon) for epsilon in wanted or BUDGETS)
    voting = Voting("binary", SIGMA)
    cell = measure_cell(bench, name, seed, voting, first=first, limits=limits)
    said, truth = release(bench, name, seed, voting, first), bench.data(name).y_public[:, :first]
    rows = []
    for epsilon in limits:
        theirs = BUDGETS[int(epsilon)]
        heads = ("queries", "ACC", "BAC", "AUC", "mAP")
        beside = {f"their {h}": f"{theirs[at]:g}" if at < len(theirs) else "-" for at, h in enumerate(heads)}
        n = int(cell[f"exact/{epsilon:g}"])
        found: dict[str, Any] = dict.fromkeys(SCORES.values(), "none answered")
        if n:
            found = measures([scores(truth[:n], said[:n])])
        rows.append(
            Row(f"{epsilon:g}", {"epsilon": f"{epsilon:g}", **beside} | counts([cell], epsilon) | found)
        )
    notes = (
        f"Theirs: Pascal VOC, 20 labels; ours: the first {first} labels of {name}. Sigma {SIGMA:g}, delta "
        f"{DELTA:g}; measures are of the queries that exact costs answer. A dash: no answered query "
        "has such a label.",
    )
    title, columns = f"Table 10 in form ({name})", tuple(rows[0].cells)
    return Table(f"many/{name}/table10", title, columns, tuple(rows), notes, measured=MAIN)


def curves(*, quick: bool) -> list[Table]:
    """Figures 3 and 4: Binary against Powerset as labels become random, and where all agree."""
    tables = []
    n_queries, seed = (20, 0) if quick else (60, 0)
    for figure, epsilon, along in (
        (3, 20.0, (0, 1, 5, 20) if quick else tuple(range(21))),
        (4, 2.0, (1, 5, 20) if quick else tuple(range(1, 21))),
    ):
        rows = []
        for n in along:
            votes = random_labels(20, n, n_queries, seed) if figure == 3 else agreed(n)
            cells: dict[str, Any] = {"random labels" if figure == 3 else "labels": str(n)}
            for kind in ("binary", "powerset"):
                found = capacity(kind, votes, epsilon, DELTA)
                cells |= {f"{kind}, {name}": float(value) for name, value in found.items()}
            rows.append(Row(str(n), cells))
        title = {
            3: "Figure 3, computed: queries answered, some of 20 labels fair coins, all no to the others",
            4: "Figure 4, computed: queries answered where everybody says no to everything",
        }[figure]
        notes = (f"50 teachers, sigma {SIGMA:g}, epsilon {epsilon:g}, delta {DELTA:g}, seed {seed}.",)
        columns = tuple(rows[0].cells)
        main = tuple(column for column in columns if column.endswith(("published", "exact")))
        tables.append(Table(f"curve/figure{figure}", title, columns, tuple(rows), notes, measured=main))
    return tables
