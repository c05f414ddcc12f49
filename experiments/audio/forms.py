"""The thesis's tables 5.1 to 5.4 in form, from kept ballots and scores."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from asking import label_votes, noiseless_labels, told, votes_for
from costs import lesson_costs
from grids import Cell, Grid
from kept import Kept
from plan import (
    DELTA,
    LARGEST,
    PERCENT,
    TEACHERS,
    Lesson,
    Task,
    lessons,
    published_rows,
    seed_of,
    setting_name,
)

from tellers import LabelVotes, noise
from tellers.accounting import public_cost
from tellers.data.metrics import micro_f1, precision_recall
from tellers.runs.sound import SweepSetting, noiseless_table, sweep

SHARES = ("adaptive", 0.2, 0.4, 0.6)
TITLES: dict[Task, str] = {
    "single": "ESC-10, one label",
    "multi": "ESC-10, two clips at once",
    "city": "The city",
}


def published_prices() -> Grid:
    """Table 5.4's data-independent epsilon without a check, to the digit, and what covers a changed clip."""
    rows: dict[str, dict[str, Cell]] = {}
    setting = SweepSetting(share=0.2, sigma=0.3, noise="variance")
    few = replace(setting, max_labels=3).mechanism(n_teachers=50, n_labels=153)
    for n, printed in ((2000, 418.4), (5000, 1018.4)):
        nobody = np.zeros((n, 153), dtype=np.int64)  # who says what changes none of these numbers
        votes = LabelVotes.from_sums(nobody, n_teachers=50)
        row = sweep(votes, nobody, [setting], delta=1e-8, noise=noise.seeded(7), exact=False)[0]
        rows[f"{n}"] = {
            "printed": f"{printed:g}",
            "its accounting": row.private.reveal().published_epsilon,
            "sound price": row.public_epsilon,
            "sound, 3 labels a ballot": public_cost(few, n, delta=1e-8).epsilon,
        }
    return Grid(
        "published/5.4",
        "Table 5.4, data-independent epsilon without a check (50 teachers, 153 labels, delta 1e-8)",
        tuple(rows["2000"]),
        rows,
        ("Its accounting charges the 3 labels of a clip; a changed clip can move a teacher on all 153.",),
        digits=1,
        first="queries",
    )


def single_table(kept: Kept, network: str, folds: Sequence[int]) -> Grid:
    """Teachers alone, their plurality, and the baseline, where every clip has one class."""
    rows: dict[str, dict[str, Cell]] = {}
    for n in TEACHERS["single"]:
        alone, together, test = [], [], []
        for fold in folds:
            truth, said = kept.truth("single", fold), kept.said("single", fold, network, n)
            right = np.take_along_axis(truth[None], said.argmax(axis=2)[:, :, None], axis=2)
            alone.append(float(right.mean()))
            together.append(float((noiseless_labels(said, single=True) * truth).sum(axis=1).mean()))
            test.append(kept.scores[f"single/{fold}/{network}/teacher/{n}"]["accuracy"])
        name = "baseline" if n == 1 else f"{n}"
        rows[name] = {"one teacher, pool": alone, "plurality, pool": together, "one teacher, test": test}
    return Grid(
        f"single/{network}/teachers",
        f"{TITLES['single']}: accuracy of teachers ({network}), no noise",
        ("one teacher, pool", "plurality, pool", "one teacher, test"),
        rows,
        first="teachers",
    )


def _noiseless(
    kept: Kept, task: Task, network: str, n: int, folds: Sequence[int]
) -> dict[tuple[object, object], list[dict[str, float]]]:
    found: dict[tuple[object, object], list[dict[str, float]]] = {}
    for fold in folds:
        votes = label_votes(kept.said(task, fold, network, n), parts=task != "city")
        table = noiseless_table(
            votes,
            kept.truth(task, fold),
            shares=SHARES,
            confident_shares=(None, 0.4, 0.6),  # type: ignore[arg-type]
        ).reveal()
        for row in table:
            found.setdefault((row["share"], row["confident_share"]), []).append(row)
    return found


def _prf(rows: list[dict[str, float]]) -> dict[str, Cell]:
    return {
        name: [row[key] for row in rows] for name, key in (("P", "precision"), ("R", "recall"), ("F1", "f1"))
    }


def ensemble_tables(kept: Kept, task: Task, network: str, folds: Sequence[int]) -> list[Grid]:
    """Tables 5.1 to 5.3: ensembles without noise, at the best threshold, at every one, behind a check."""
    first: dict[str, dict[str, Cell]] = {}
    second: dict[str, dict[str, Cell]] = {}
    third: dict[str, dict[str, Cell]] = {}
    for n in TEACHERS[task]:
        found, name = _noiseless(kept, task, network, n, folds), "baseline" if n == 1 else f"{n}"
        best = max(SHARES, key=lambda share: float(np.mean([row["f1"] for row in found[share, None]])))
        chosen = found[best, None]
        alone = [_alone(kept, task, fold, network, n) for fold in folds]
        first[name] = {
            "mAP (raw)": [row["raw_map"] for row in chosen],
            "AUC (raw)": [row["raw_auc"] for row in chosen],
            "threshold": f"{best}",
            **_prf(chosen),
            **{f"alone {key}": [one[key] for one in alone] for key in ("P", "R", "F1") if n > 1},
        }
        for share in SHARES:
            second[f"{name}, {share}"] = _prf(found[share, None])
            if n > 1:
                third[f"{name}, {share}"] = {
                    f"{column} at {check}": cell
                    for check in (0.4, 0.6)
                    for column, cell in {
                        "answered": [row["answered"] for row in found[share, check]],
                        **_prf(found[share, check]),
                    }.items()
                }
    key, title = f"{task}/{network}", f"{TITLES[task]} ({network})"
    return [
        Grid(
            f"{key}/5.1",
            f"{title}: as table 5.1, ensemble and one teacher, no noise",
            tuple(first[f"{LARGEST[task]}"]),
            first,
            first="teachers",
        ),
        Grid(
            f"{key}/5.2",
            f"{title}: as table 5.2, by threshold, no noise",
            ("P", "R", "F1"),
            second,
            first="teachers, threshold",
        ),
        Grid(
            f"{key}/5.3",
            f"{title}: as table 5.3, behind a check, no noise",
            tuple(next(iter(third.values()))),
            third,
            first="teachers, threshold",
        ),
    ]


def _alone(kept: Kept, task: Task, fold: int, network: str, n: int) -> dict[str, float]:
    truth, said = kept.truth(task, fold), kept.said(task, fold, network, n)
    each = [precision_recall(truth, (one > PERCENT // 2).astype(np.int64)) for one in said]
    return {
        "P": float(np.nanmean([one.macro_precision for one in each])),
        "R": float(np.mean([one.macro_recall for one in each])),
        "F1": float(np.mean([one.macro_f1 for one in each])),
    }


def labels_right(kept: Kept, task: Task, fold: int, network: str, lesson: Lesson) -> float:
    """Return how right the labels of a lesson are: the share of right ones, or the micro F1 of those told."""
    truth = kept.truth(task, fold)[: lesson.n_queries]
    if lesson.name == "truth":
        return 1.0
    key = student_key(task, fold, network, lesson)
    labels = told(kept.said(task, fold, network, lesson.n_teachers), lesson, key=key, whole=task == "city")
    return float((labels * truth).sum(axis=1).mean()) if task == "single" else micro_f1(truth, labels)


def student_key(task: Task, fold: int, network: str, lesson: Lesson) -> str:
    """Return the name that a student is kept under."""
    return f"{task}/{fold}/{network}/student/{lesson.n_teachers}/{lesson.name}/{lesson.n_queries}"


def student_table(kept: Kept, task: Task, network: str, folds: Sequence[int]) -> Grid:
    """What labels cost and what students learn from them, beside students of true labels and of no noise."""
    n_pools = {fold: len(kept.truth(task, fold)) for fold in folds}
    every = {fold: lessons(task, n_pools[fold], all_rows=network == "small") for fold in folds}
    published = {setting_name(one) for one in published_rows(1)}
    score = "accuracy" if task == "single" else "map"
    words = {
        "single": ("labels right", "student, accuracy"),
        "multi": ("labels, micro F1", "student, mAP"),
        "city": ("labels, micro F1", "student, mAP"),
    }[task]
    rows: dict[str, dict[str, Cell]] = {}
    for place, lesson in enumerate(every[folds[0]]):
        if lesson.name in published:
            continue
        ours = {fold: every[fold][place] for fold in folds}
        keys = {fold: student_key(task, fold, network, one) for fold, one in ours.items()}
        if not all(key in kept.scores for key in keys.values()):
            continue
        costs = [lesson_costs(kept, task, fold, network, one) for fold, one in ours.items()]
        cells: dict[str, Cell] = {"labels": [float(one.n_queries) for one in ours.values()]}
        cells[words[0]] = [labels_right(kept, task, fold, network, one) for fold, one in ours.items()]
        cells |= {name: [one[name] for one in costs] for name in ("exact", "told", "public")}
        cells[words[1]] = [kept.scores[key][score] for key in keys.values()]
        if task != "single":
            cells["macro F1"] = [kept.scores[key]["macro_f1"] for key in keys.values()]
        if all(f"{key}/mean-teacher" in kept.scores for key in keys.values()):
            cells["mean teacher"] = [kept.scores[f"{key}/mean-teacher"][score] for key in keys.values()]
        size = "all" if lesson.n_queries == n_pools[folds[0]] else "few"
        rows[f"{lesson.n_teachers} teachers, {lesson.name}, {size}"] = cells
    if not rows:
        return Grid(f"{task}/{network}/students", f"{TITLES[task]} ({network}): no student was kept", (), {})
    columns = (
        "labels",
        words[0],
        "exact",
        "told",
        "public",
        words[1],
        *(("mean teacher",) if task == "single" else ("macro F1",)),
    )
    rows = {name.replace("1 teachers, truth", "true labels"): cells for name, cells in rows.items()}
    return Grid(
        f"{task}/{network}/students",
        f"{TITLES[task]} ({network}): labels, epsilon and students",
        columns,
        rows,
        (
            f"delta {DELTA[task]:g}. exact: of these votes, private; told: publishable, 95 % upper value, "
            "the median, GNMax and Binary alone; public: data-independent. none: no noise and "
            "no promise, or not computed.",
        ),
        first="labels of",
    )


def table_54(kept: Kept, task: Task, network: str, folds: Sequence[int]) -> Grid:
    """Table 5.4 in form: the thesis's numbers, the sound ones beside them, and the student."""
    rows: dict[str, dict[str, Cell]] = {}
    n_teachers = LARGEST[task]
    for share in (4, 1):
        for place, one in enumerate(published_rows(1)):
            cells: dict[str, list[float]] = {}
            for fold in folds:
                said, truth = kept.said(task, fold, network, n_teachers), kept.truth(task, fold)
                n = len(truth) // share
                setting = published_rows(n)[place]
                votes = votes_for(said, setting, whole=task == "city")
                source = noise.seeded(seed_of("5.4", task, fold, setting_name(setting), n))
                row = sweep(votes, truth, [setting], delta=DELTA[task], noise=source, n_changed=2)[0]
                numbers = row.private.reveal()
                key = student_key(task, fold, network, Lesson(setting_name(setting), n_teachers, n, setting))
                # A check that lets nothing through leaves nothing to learn from.
                student = kept.scores.get(key, {})
                for name, value in (
                    ("dep.", numbers.dependent_epsilon),
                    ("indep.", numbers.published_epsilon),
                    ("exact", numbers.exact_epsilon),
                    ("public", row.public_epsilon),
                    ("q", numbers.mean_q),
                    ("answered", numbers.answered),
                    ("mAP", student.get("map")),
                    ("macro F1", student.get("macro_f1")),
                    ("micro F1", student.get("micro_f1")),
                ):
                    if value is not None:
                        cells.setdefault(name, []).append(value)
            kind = "adaptive" if one.kind == "adaptive-as-published" else f"{one.share:g}"
            rows[f"{'a quarter' if share > 1 else 'all'}: {kind}, {one.confident_share or 'None'}"] = dict(
                cells
            )
    return Grid(
        f"{task}/{network}/5.4",
        f"{TITLES[task]} ({network}): as table 5.4, {n_teachers} teachers",
        tuple(next(iter(rows.values()))),
        rows,
        (
            f"sigma_e 0.3, sigma_c 0.6, variances as parts of the ensemble; delta {DELTA[task]:g}. dep., "
            "indep.: the thesis's accounting, no bounds. exact: these votes', private; public: any votes'. "
            "Its adaptive threshold has neither.",
        ),
        first="queries: th_e, th_c",
    )
