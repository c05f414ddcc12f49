"""A run's folder to report on: made up, with every file the report may read."""

import json
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the folder of a finished run."""
    place = tmp_path / "run"
    shutil.copytree(HERE / "digits", place)
    (place / "config.toml").write_text('[data]\nname = "digits"\n')
    return place


@pytest.fixture
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


@pytest.fixture
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
