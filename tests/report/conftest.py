"""A run's folder to report on: made up, with every file the report may read."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from tellers.runs import write_report

HERE = Path(__file__).parent


def copied(room):
    """Return a copy of the folder of a finished run."""
    place = room / "run"
    shutil.copytree(HERE / "digits", place)
    (place / "config.toml").write_text('[data]\nname = "digits"\n')
    return place


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the folder of a finished run, to be changed."""
    return copied(tmp_path)


@pytest.fixture(scope="session")
def written(make_ugly, tmp_path_factory):
    """Return a function that returns the report of the run, or of the ugly one; not to be changed."""

    @cache
    def write(*, private=False, ugly=False):
        place = copied(tmp_path_factory.mktemp("written"))
        if ugly:
            make_ugly(place)
        return write_report(place, private=private)

    return lambda private=False, ugly=False: write(private=private, ugly=ugly)


@pytest.fixture(scope="session")
def change():
    """Return a function that replaces entries of a JSON file, by path with double underscores."""

    def replace(file, **changes):
        table = json.loads(file.read_text())
        for path, value in changes.items():
            *way, last = path.split("__")
            part = table
            for step in way:
                part = part[step]
            part[last] = value
        file.write_text(json.dumps(table))

    return replace


@pytest.fixture(scope="session")
def make_ugly(change):
    """Return a function that turns a run into one where everything that can be awkward is."""

    def worsen(place):
        nasty = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}'
        names = [f"A class with a long name, number {i}, {'and on ' * 6}" for i in range(28)]
        names += [nasty, "x" * 150]
        scores = [
            {"name": name, "precision": None, "recall": 0.5 if i % 2 else None, "n_test": i}
            for i, name in enumerate(names)
        ]
        change(
            place / "result.json",
            data__name=f"ugly & co {nasty}",
            data__class_names=names,
            data__notes=[f"A note {nasty}"],
            spent__epsilon=None,
            spent__is_guarantee=False,
            spent__why=f"Classes were read off private labels. {nasty}",
            budget__epsilon=None,
            queries={"n_asked": 3, "n_answered": 1, "n_silent": 2, "n_lost": 10, "stopped_by": nasty},
            cost=[{"n_queries": 10, "epsilon": None}],
            student={"kind": nasty, "model": nasty, "n_labels": 1, "accuracy": None, "per_class": scores},
            versions={nasty: nasty},
            settings={"data": {nasty: nasty, "private": "/somewhere/of/mine/patients.csv"}},
            started=nasty,
            seed=None,
            seconds={},
            warnings=[nasty, "y" * 300],
        )

    return worsen


@pytest.fixture(scope="session")
def a_group():
    """Return a function that makes the entry of a group."""

    def make(at, *, epsilon, name=None, **changes):
        group = {
            "name": name or f"level {at}", "epsilon": epsilon, "stated": epsilon, "spent": 0.9 * epsilon,
            "budget_left": 0.2, "n_persons": 100, "share": 0.1, "waste": 0.0, "n_teachers": 10,
            "weight": at + 1, "n_queries": 40,
        }  # fmt: skip
        return {**group, **changes}

    return make


def personal(groups, **changes):
    names = {group["name"]: group["spent"] for group in groups}
    cost = [
        {"n_queries": n, "epsilon": {name: spent * n / 40 for name, spent in names.items()}}
        for n in (10, 20, 30, 40)
    ]
    return {
        "variant": "weighting",
        "leave": False,
        "plan": [],
        "groups": groups,
        "cost": cost,
        "left": [],
        **changes,
    }


@pytest.fixture
def grouped(folder, change):
    """Return a function that gives the run of the folder groups, and exact costs to its private numbers."""

    def give(groups, **changes):
        table = personal(groups, **changes)
        change(folder / "result.json", personal=table)
        exact = [{**p, "epsilon": {n: 0.5 * e for n, e in p["epsilon"].items()}} for p in table["cost"]]
        change(folder / "private" / "summary.json", personal={"exact_cost": exact})
        return folder

    return give


@pytest.fixture(scope="session")
def a_publication():
    """Return a function that makes what was published of groups."""

    def make(groups):
        return {
            "format": 1, "made": "2026-11-15T12:00:00+00:00", "n_queries": 40, "delta": 1e-5,
            "covers": "both directions",
            "plan": {"method": "envelope", "order": 8.0, "beta": 0.01, "sigma_release": 3.0,
                     "confidence": 0.95, "expected_epsilon": 1.0},
            "groups": [
                {"name": group["name"], "budget": group["epsilon"], "public": group["spent"],
                 "epsilon_upper": 0.4321, "charged": 0.1, "after": group["spent"] + 0.05, "budget_left": 0.1}
                for group in groups
            ],
        }  # fmt: skip

    return make
