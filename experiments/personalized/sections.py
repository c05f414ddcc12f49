"""From kept results to tables: published beside ours, one row per number, or one table as in the paper."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell
from common.measure import Measure, Report, Section, measure
from published import (
    AVERAGE,
    BY_CLASS,
    BY_CLASS_AVERAGE,
    FACTORS,
    LABELS,
    MAXIMUM,
    MINIMUM,
    MINORITY,
    PLAIN_TEACHERS,
    RATIOS,
    SHARES,
    STUDENTS,
    TABLES,
    average_factor,
)  # fmt: skip

NAMES = {
    "paper": "the paper's accounting",
    "exact": "exact",
    "combined": "exact, and who runs out vanishes",
    "public": "public price",
}
VARIANTS = {
    "u": "upsampling", "v": "vanishing, power 2", "v4": "vanishing, power 4", "w": "weighting",
}  # fmt: skip
SCALED = {"mnist": "MNIST", "adult": "Adult", "digits": "digits"}


@dataclass
class Results:
    """Every number that was measured, by data set, cell and name, over ensembles and votings."""

    values: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    lessons: dict[Path, Any] = field(default_factory=dict)

    def add(self, data_set: str, cell: Cell, seed: int, about: dict[str, Any]) -> None:
        """Take in one cell of one ensemble."""
        for record in about["records"]:
            for name, n in record.get("labels", {}).items():
                self.values[data_set, cell.key, f"labels/{name}"].append(n)
            if "combined" in record:
                self.values[data_set, cell.key, "labels/combined"].append(record["combined"])
            if "right" in record:
                self.values[data_set, cell.key, "right"].append(record["right"])
            for name, ratio in record.get("ratios", {}).items():
                self.values[data_set, f"figure4-{cell.factor}", name].append(ratio)
        for name in ("precision", "recall"):
            if name in about:
                self.values[data_set, cell.key, name].append(about[name])

    def add_students(self, data_set: str, cell: Cell, scores: dict[str, float]) -> None:
        """Take in the students of one cell of one ensemble: {"voting/accountant": accuracy}."""
        for name, score in scores.items():
            self.values[data_set, cell.key, "student/" + name.split("/", 1)[1]].append(score)

    def get(self, data_set: str, key: str, name: str) -> list[float]:
        """Return the values of one number, none where it was not measured."""
        return self.values.get((data_set, key, name), [])

    @property
    def data_sets(self) -> list[str]:
        """Return what was measured on."""
        return [name for name in SCALED if any(key[0] == name for key in self.values)]


def add_sections(report: Report, results: Results) -> None:
    """Add one section per table to the report."""
    for name in results.data_sets:
        title = SCALED[name]
        for section in (
            baselines(results, name),
            *(variant_table(results, name, variant) for variant in VARIANTS),
            class_table(results, name),
            figure4_table(results, name),
        ):
            if section.measures:
                report.add(Section(f"{title}: {section.title}", section.measures, section.notes))


def baselines(results: Results, name: str) -> Section:
    """Return plain PATE with everybody's budget the lowest, the highest, or the average."""
    rows: list[Measure] = []
    wanted: dict[str, tuple[str, Any]] = {"1": ("the lowest, log 2", MINIMUM.get(name))}
    for factor in FACTORS:
        for ratio in RATIOS:
            text = f"the average, {ratio} % with log {2**factor}"
            published = AVERAGE.get(name, {}).get((ratio, factor))
            wanted.setdefault(f"{average_factor(ratio / 100, factor):.6g}", (text, published))
        wanted[f"{factor}"] = (f"the highest, log {2**factor}", MAXIMUM.get(name, {}).get(factor))
    for factor_name, (text, published) in wanted.items():
        if name == "digits":
            text = f"{float(factor_name):.3g} times the lowest"
        rows += _rows(results, name, "base", f"/{factor_name}", f"everybody's budget {text}", published)
    right = results.get(name, "base", "right")
    if right:
        rows.append(measure(f"{name}/base/right", "labels right", right, percent=True))
    return Section("without personalisation", tuple(rows))


def variant_table(results: Results, name: str, variant: str) -> Section:
    """Return one variant's labels and students, cell by cell."""
    rows: list[Measure] = []
    at = "uvw".index(variant[0])
    for factor in FACTORS:
        for ratio in RATIOS:
            published = None
            if name in LABELS and variant != "v4":
                published = (LABELS[name][ratio, factor][at], STUDENTS[name][ratio, factor][at])
            text = f"log {2**factor} for {ratio} %" if name != "digits" else f"{factor} times for {ratio} %"
            rows += _rows(results, name, Cell(variant, ratio, factor).key, "", text, published)
    return Section(VARIANTS[variant], tuple(rows))


def class_table(results: Results, name: str) -> Section:
    """Return upsampling of the minority class: labels, students, votes and teachers."""
    rows: list[Measure] = []
    for factor in FACTORS:
        for share in SHARES:
            labels, student, right, precision, recall = BY_CLASS[share, factor]
            key = Cell("c", share, factor).key
            text = f"log {2**factor} for {share} % of the minority"
            rows += _rows(results, name, key, "", text, (labels, student))
            for what, words, published in (
                ("right", "labels right", right),
                ("precision", "teachers' precision", precision),
                ("recall", "teachers' recall", recall),
            ):
                values = results.get(name, key, what)
                if values:
                    rows.append(
                        measure(f"{name}/{key}/{what}", f"{text}: {words}", values, percent=True,
                                published=published, where="table 7")
                    )  # fmt: skip
    return Section("the higher budget to the minority class (tables 6, 7, 10)", tuple(rows))


def figure4_table(results: Results, name: str) -> Section:
    """Return the ratios of costs."""
    rows = []
    for c in range(2, 10):
        for variant, published in (("u", f"{c}"), ("w", f"{c}"), ("v", f"{np.sqrt(c):.2f}")):
            for accountant in ("paper", "exact"):
                values = results.get(name, f"figure4-{c}", f"{variant}/{accountant}")
                if values:
                    words = f"c = {c}, {VARIANTS[variant].split(',')[0]}: {NAMES[accountant]}"
                    rows.append(
                        measure(f"{name}/figure4/{c}/{variant}/{accountant}", words, values,
                                published=f"about {published}", where="figure 4, section 5.1")
                    )  # fmt: skip
    return Section("ratio of the two groups' epsilons after 4,000 queries (figure 4)", tuple(rows))


def _rows(
    results: Results, name: str, key: str, suffix: str, text: str, published: tuple[float, ...] | None
) -> list[Measure]:
    rows = []
    labels_where, student_where = TABLES.get(name, ("", ""))
    for accountant in ("paper", "exact", "combined", "public"):
        values = results.get(name, key, f"labels/{accountant}{suffix}")
        if values:
            beside = published[0] if published and accountant != "public" else None
            rows.append(
                measure(f"{name}/{key}{suffix}/{accountant}", f"{text}: labels, {NAMES[accountant]}", values,
                        published=beside, where=labels_where if beside is not None else "")
            )  # fmt: skip
        scores = results.get(name, key, f"student/{accountant}{suffix}")
        if scores:
            beside = published[1] if published else None
            rows.append(
                measure(f"{name}/{key}{suffix}/student/{accountant}", f"{text}: student, {NAMES[accountant]}",
                        scores, published=beside, where=student_where if beside is not None else "",
                        percent=True)
            )  # fmt: skip
    return rows


def markdown(results: Results) -> str:
    """Return tables in the paper's form: a row per budget and accountant, a column per ratio and variant."""
    lines: list[str] = []
    for name in results.data_sets:
        for variants, words in ((("u", "w"), "upsampling and weighting"), (("v", "v4"), "vanishing")):
            for what, title, published in (
                ("labels", "Labels", LABELS.get(name, {})),
                ("student", "Student accuracy, %", STUDENTS.get(name, {})),
            ):
                lines += _pivot(results, name, what, variants, published, f"{title}, {words}")
        lines += _baseline_pivot(results, name)
        lines += _class_pivot(results, name)
        lines += _figure_pivot(results, name)
    return "\n".join(lines)


def _said(values: list[float], what: str) -> str:
    if not values:
        return "-"
    mean, n = float(np.mean(values)), len(values)
    scale, places = (1, 0) if what == "labels" else (1, 2) if what == "ratio" else (100, 2)
    text = f"{scale * mean:.{places}f}"
    if n == 1 or what == "ratio":
        return text
    return f"{text} ± {scale * float(np.std(values, ddof=1)) / np.sqrt(n):.{places}f}"


def _pivot(
    results: Results,
    name: str,
    what: str,
    variants: tuple[str, ...],
    published: dict[tuple[int, int], tuple[float, ...]],
    title: str,
) -> list[str]:
    measured = {key[1].split("-")[0] for key in results.values if key[0] == name and key[2].startswith(what)}
    columns = [(ratio, variant) for ratio in RATIOS for variant in variants if variant in measured]
    heads = [f"{ratio} % {variant}" for ratio, variant in columns]
    lines = [f"**{title}, {SCALED[name]}**", "", f"| higher budget | | {' | '.join(heads)} |"]
    lines.append("|---|---|" + "---|" * len(heads))
    found = False
    for factor in FACTORS:
        head = f"log {2**factor}" if name != "digits" else f"{factor} times"
        beside = [
            published[ratio, factor]["uvw".index(variant[0])] if published else None
            for ratio, variant in columns
        ]
        texts = [
            "-" if b is None or v == "v4" else f"{b:g}" for b, (_, v) in zip(beside, columns, strict=True)
        ]
        if published:
            lines.append(f"| {head} | published | {' | '.join(texts)} |")
        for accountant in ("paper", "exact", "combined", "public"):
            values = [
                results.get(name, Cell(variant, ratio, factor).key, f"{what}/{accountant}")
                for ratio, variant in columns
            ]
            if not any(values):
                continue
            found = True
            lines.append(f"| {head} | {NAMES[accountant]} | {' | '.join(_said(v, what) for v in values)} |")
            if accountant == "exact" and what == "labels" and published and variants[0] == "u":
                times = [
                    f"{np.mean(v) / b:.2f}" if v and b else "-" for v, b in zip(values, beside, strict=True)
                ]
                lines.append(f"| {head} | exact / published | {' | '.join(times)} |")
    return [*lines, ""] if found else []


def _baseline_pivot(results: Results, name: str) -> list[str]:
    if not results.get(name, "base", "labels/paper/1"):
        return []
    lines = [f"**Baselines, {SCALED[name]}**", "", "| everybody's budget | published | paper's accounting | "
             "exact | public price | student published | student, paper's accounting | student, exact |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    wanted: dict[str, tuple[str, Any]] = {"1": ("log 2", MINIMUM.get(name))}
    for factor in FACTORS:
        for ratio in RATIOS:
            factor_name = f"{average_factor(ratio / 100, factor):.6g}"
            text = f"average, {ratio} % log {2**factor}"
            wanted.setdefault(factor_name, (text, AVERAGE.get(name, {}).get((ratio, factor))))
    for factor in FACTORS:
        wanted[f"{factor}"] = (f"log {2**factor}", MAXIMUM.get(name, {}).get(factor))
    if name == "adult":
        for factor in FACTORS:
            for share in SHARES:
                factor_name = f"{average_factor(MINORITY * share / 100, factor):.6g}"
                text = f"average, {share} % of the minority log {2**factor}"
                wanted[factor_name] = (text, BY_CLASS_AVERAGE[share, factor])
    for factor_name, (text, published) in wanted.items():
        if not results.get(name, "base", f"labels/paper/{factor_name}"):
            continue
        labels = [
            _said(results.get(name, "base", f"labels/{a}/{factor_name}"), "labels")
            for a in ("paper", "exact", "public")
        ]
        students = [
            _said(results.get(name, "base", f"student/{a}/{factor_name}"), "student")
            for a in ("paper", "exact")
        ]
        beside = [f"{number:g}" for number in published] if published else ["-", "-"]
        cells = [text, beside[0], *labels, beside[1], *students]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _class_pivot(results: Results, name: str) -> list[str]:
    if not any(key[0] == name and key[1].startswith("c-") for key in results.values):
        return []
    heads = ("labels published", "paper's accounting", "exact", "student published", "paper's accounting",
             "exact", "votes right published", "ours", "precision published", "ours", "recall published",
             "ours")  # fmt: skip
    lines = [f"**The higher budget to a share of {SCALED[name]}'s minority class, upsampling**", ""]
    lines += [f"| higher budget, share | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]

    def row(text: str, key: str, published: tuple[float, ...], suffix: str = "") -> str:
        labels, student, right, precision, recall = (f"{number:g}" for number in published)
        got = {
            what: _said(results.get(name, key, what + (suffix if "/" in what else "")), what.split("/")[0])
            for what in ("labels/paper", "labels/exact", "student/paper", "student/exact", "right",
                         "precision", "recall")
        }  # fmt: skip
        cells = (
            labels, got["labels/paper"], got["labels/exact"], student, got["student/paper"],
            got["student/exact"], right, got["right"], precision, got["precision"], recall, got["recall"],
        )  # fmt: skip
        return f"| {text} | {' | '.join(cells)} |"

    lines.append(row("nobody", "base", (*MINIMUM["adult"], *PLAIN_TEACHERS), "/1"))
    for factor in FACTORS:
        for share in SHARES:
            key = Cell("c", share, factor).key
            lines.append(row(f"log {2**factor}, {share} %", key, BY_CLASS[share, factor]))
    return [*lines, ""]


def _figure_pivot(results: Results, name: str) -> list[str]:
    if not any(key[0] == name and key[1].startswith("figure4") for key in results.values):
        return []
    heads = (
        "published u, w", "u, paper's", "w, paper's", "u, exact", "w, exact", "published v", "v, paper's",
        "v, exact",
    )  # fmt: skip
    lines = [
        "**Figure 4: ratio of epsilons**",
        "",
        f"| c | {' | '.join(heads)} |",
        "|---|" + "---|" * len(heads),
    ]
    for c in range(2, 10):
        got = {
            f"{v}/{a}": _said(results.get(name, f"figure4-{c}", f"{v}/{a}"), "ratio")
            for v in "uwv"
            for a in ("paper", "exact")
        }
        cells = (f"about {c}", got["u/paper"], got["w/paper"], got["u/exact"], got["w/exact"],
                 f"about {np.sqrt(c):.2f}", got["v/paper"], got["v/exact"])  # fmt: skip
        lines.append(f"| {c} | {' | '.join(cells)} |")
    return [*lines, ""]
