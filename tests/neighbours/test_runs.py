"""Neighbouring tables through `tellers run`: one unit changes one ballot, and no word that leaves.

The votes are read where a run keeps them. Everything else in its folder is compared as it stands, with what
the command prints and how it ends; what is drawn anew in every run (labels, what a student learns from them,
clocks, keys) is left out by name.
"""

import json

import numpy as np
import pytest
from tellers_tables import (
    CHOICES,
    LEVELS,
    NAMES,
    OF_SITES,
    PERSONAL,
    SITES,
    a_clip_table,
    a_table,
    choices_of_clips,
    columns,
    tag,
    tried,
    write_clips,
    write_csv,
    write_pictures,
)

from tellers.cli import main
from tellers.runs import read_config
from tellers.runs._tables import read_tables
from tellers.teachers import read_votes
from tellers.testing import TableVotes, check_neighbours

SETTINGS = """
[teachers]
model = "naive_bayes"
n_jobs = 1

[student]
model = "naive_bayes"

[budget]
epsilon = 1000.0
delta = 1e-5

[queries]
n_queries = 20

"""
CLASSES = '[mechanism]\nname = "gnmax"\nsigma = 1000.0\n'
LABELS = '[mechanism]\nname = "gnthreshold"\nsigma = 1000.0\n'
FILES = '[data]\nname = "files"\nprivate = "rows.csv"\n'
POOL = 'public = "pool.csv"\n'
ASIDE = "n_public = 60\n"
TARGET = 'target = "y"\nclasses = ["0", "1", "2"]\n'
BY_PERSON = '[partition]\nn_teachers = 5\nby = "person"\n'
BY_RECORD = '[partition]\nn_teachers = 5\nby = "record"\n'

# Drawn anew in every run: labels, what a student learns from them, when, how long, and a key.
DRAWN = {"student", "labels", "labels_right", "accuracy", "scores", "started", "created", "seconds", "folder"}


def personal(variant):
    levels = ", ".join(f"{name} = {epsilon}" for name, epsilon in LEVELS.items())
    return f'[personal]\nvariant = "{variant}"\ncolumn = "budget"\nlevels = {{{levels}}}\n'


PERSONS = {"unit": "who"}
BUDGETS = {"unit": "who", "change": "replace", "keeps": ["budget"], "kinds": PERSONAL}
CASES = {
    "record": (FILES + POOL + TARGET + BY_RECORD + CLASSES, {}),
    "stratified": (FILES + POOL + TARGET + BY_RECORD + "stratified = true\n" + CLASSES, {"keeps": ["y"]}),
    "persons": (FILES + POOL + TARGET + 'person = "who"\n' + BY_PERSON + CLASSES, PERSONS),
    "persons, set aside": (FILES + ASIDE + TARGET + 'person = "who"\n' + BY_PERSON + CLASSES, PERSONS),
    "ids": (FILES + POOL + TARGET + 'id = "id"\n' + BY_RECORD + CLASSES, {"unit": "id"}),
    "ids, set aside": (FILES + ASIDE + TARGET + 'id = "id"\n' + BY_RECORD + CLASSES, {"unit": "id"}),
    "sites": (
        FILES + POOL + TARGET + 'site = "site"\n'
        + f'[partition]\nby = "site"\nn_teachers = 0\nsites = {json.dumps(SITES)}\n' + CLASSES,
        {"unit": "site", "change": "replace", "kinds": OF_SITES},
    ),
    **{
        variant: (
            FILES + POOL + TARGET + 'person = "who"\n' + BY_PERSON + personal(variant) + CLASSES, BUDGETS,
        )
        for variant in ("weighting", "vanishing", "upsampling")
    },
    "labels of persons": (
        FILES + POOL + 'person = "who"\n[labels]\nnames = ["y", "z"]\n' + BY_PERSON + LABELS, PERSONS,
    ),
}  # fmt: skip


@pytest.fixture
def no_pages(monkeypatch):
    """Draw no pages, which take most of the time and say what `result.json` says."""
    monkeypatch.setattr("tellers.runs.pipeline.write_page", lambda *_, **__: None)


@pytest.fixture
def ran(tmp_path, capsys, no_pages):
    """Run settings on the table that was written last; return the ballots, and everything that leaves."""
    runs = iter(range(10**6))

    def run(settings, owners):
        (tmp_path / "settings.toml").write_text(SETTINGS + settings)
        folder = tmp_path / f"run-{next(runs)}"
        with pytest.raises(SystemExit) as ended:
            main(["run", str(tmp_path / "settings.toml"), "--out", str(folder), "--json"])
        told = capsys.readouterr()
        if ended.value.code:
            raise ValueError(f"exit {ended.value.code}: {told.err}")
        public = {"stdout": known(json.loads(told.out))}
        for name in ("result.json", "student/card.json", "plan.json"):
            if (folder / name).exists():
                public[name] = known(json.loads((folder / name).read_text()))
        public["files"] = sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if "private" not in path.parts
        )
        many = "[labels]" in settings
        votes = folder / "private" / "votes.npz"
        found = read_votes(votes, kind="labels").votes if many else read_votes(votes, n_classes=3).votes
        read = read_tables(read_config(tmp_path / "settings.toml"))
        return TableVotes(np.asarray(found.ballots), public, owners(read.pool))

    return run


def known(result):
    """Return what is known before anything is drawn."""
    return {name: value for name, value in result.items() if name not in DRAWN}


@tried(4, 22)
@pytest.mark.parametrize("case", CASES)
def test_a_run_on_files(tmp_path, ran, case, n_tables):
    settings, given = CASES[case]
    unit = given.get("unit")
    # So many that a teacher who learned from another row answers one of them in another way.
    write_csv(tmp_path / "pool.csv", {"x": np.linspace(-1.5, 1.5, 400)})

    def way(table):
        units, written = range(len(table["x"])) if unit is None else table[unit].tolist(), dict(table)
        if ASIDE in settings:
            written["tag"] = np.array([tag(one) for one in units])
        if "[labels]" in settings:
            written |= {"y": (table["y"] > 0).astype(int), "z": (table["y"] > 1).astype(int)}
        write_csv(tmp_path / "rows.csv", written)
        tags = {tag(one): one for one in units}
        return ran(settings, lambda pool: {tags[row[-1]] for row in pool if row[-1] in tags})

    table = columns(a_table(160, 80), *filter(None, [unit]), *given.get("keeps", []), "x", "y")
    n_ballots = (lambda rows: 1 + (rows["budget"][0] == "high")) if case == "upsampling" else 1
    found = check_neighbours(
        way, table, target="y", choices=CHOICES, n_ballots=n_ballots, n_tables=n_tables, seed=len(case),
        **given,
    )  # fmt: skip
    assert found.n_tried >= n_tables / 3


@tried(4, 22)
def test_a_run_on_clips(tmp_path, ran, n_tables):
    features = write_pictures(tmp_path, 80)
    shown = {np.load(tmp_path / f"pictures/{n}.npy").tobytes(): n for n in range(80)}
    data = f'[data]\nname = "clips"\nprivate = "."\nclasses = {json.dumps(NAMES)}\nn_public = 20\n'
    settings = data + BY_PERSON + CLASSES

    def way(table):
        write_clips(tmp_path, table, features)
        units = dict(zip(table["picture"].tolist(), table["source"].tolist()))
        return ran(settings, lambda rows: {units[shown[row.tobytes()]] for row in rows})

    found = check_neighbours(
        way, a_clip_table(60, 30, broken=False), unit="source", target="label",
        choices=choices_of_clips(60, broken=False), n_tables=n_tables,
    )  # fmt: skip
    assert found.n_tried >= n_tables / 6
