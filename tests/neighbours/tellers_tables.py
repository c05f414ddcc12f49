"""Small tables with everything that a deal may look at, and the files that a run reads them from."""

import json
import os
from dataclasses import asdict
from zlib import crc32

import numpy as np
import pytest

N_TEACHERS = 9
LEVELS = {"low": 0.5, "high": 1.0}
SITES = ("north", "south", "east", "west", "none yet")
CLASSES = (0, 1, 2)  # no row has the last one
NAMES = ("bell", "engine", "siren")  # of the labels of clips and images
CHOICES = {"y": list(CLASSES), "site": list(SITES)}
OF_ROWS = ("insert row", "delete row", "replace", "move", "re-order", "duplicate", "relabel")
PERSONAL = (*OF_ROWS, "rename")  # how many people are in a group is public
OF_SITES = (*OF_ROWS, "delete unit")  # declared sites may be empty


def tried(few, many):
    """Parametrise a test by how many tables it tries: few in every run of the tests, many where asked to.

    TELLERS_NEIGHBOURS=many python -m pytest tests/neighbours
    """
    return pytest.mark.parametrize(
        "n_tables", [many if os.environ.get("TELLERS_NEIGHBOURS") == "many" else few]
    )


def a_table(n_rows=80, n_persons=40, *, seed=7):
    """Return a table; the person of the first row has more of them, others have one, and one has many."""
    rng = np.random.default_rng(seed)
    who = rng.integers(1, n_persons, size=n_rows)
    who[:: n_rows // 4] = 0
    x = rng.normal(size=n_rows)
    return {
        "who": np.array([str(3 * name) for name in who]),
        "id": np.array([f"r{number}" for number in rng.permutation(n_rows)]),
        "site": np.array(SITES)[rng.integers(4, size=n_rows)],
        # Everybody agreed to one thing, whichever of their rows is asked.
        "budget": np.array(list(LEVELS))[(who % 3 > 0).astype(int)],
        "x": x,
        "y": (x + rng.normal(size=n_rows) > 0).astype(np.int64),
    }


def columns(table, *names):
    """Return some columns of a table."""
    return {name: table[name] for name in names}


def tag(name):
    """Return a number by which a unit is known again among features."""
    return float(crc32(str(name).encode()))


def write_csv(path, table):
    """Write a table as CSV."""
    lines = [
        ",".join(table),
        *(",".join(map(str, row)) for row in zip(*(c.tolist() for c in table.values()))),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_pictures(folder, n):
    """Write pictures that no clip has yet, each for one label, and return the settings they were made by."""
    from tellers.data.sound import features_for

    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    features = features_for(rate=16_000, seconds=0.1)
    draw = np.random.default_rng(7)
    for number in range(n):
        np.save(folder / f"pictures/{number}.npy", draw.normal(size=features.shape).astype(np.float32))
    return features


def write_clips(folder, table, features):
    """Write the table of a folder of prepared clips; a picture below 0 is that of a broken recording."""
    clips = [
        {
            "path": path, "labels": [NAMES[label]], "fold": 1, "source": source,
            "picture": None if picture < 0 else f"pictures/{picture}.npy",
        }
        for path, label, source, picture in zip(
            *(table[name].tolist() for name in ("path", "label", "source", "picture"))
        )
    ]  # fmt: skip
    said = {
        "format": 1, "name": "noise", "label_names": list(NAMES), "shape": list(features.shape),
        "features": asdict(features), "notes": [], "clips": clips, "findings": [],
    }  # fmt: skip
    (folder / "clips.json").write_text(json.dumps(said))


def a_clip_table(n_rows=40, n_sources=20, *, seed=7, broken=True):
    """Return a table of clips; each has a picture of its own, and one recording may be broken."""
    rng = np.random.default_rng(seed)
    source = rng.integers(1, n_sources, size=n_rows)
    source[:: n_rows // 4] = 0
    picture = np.arange(n_rows)
    if broken:
        picture[n_rows // 2] = -1
    return {
        "path": np.array([f"/sounds/{number}.wav" for number in range(n_rows)]),
        "label": rng.integers(2, size=n_rows),
        "source": np.array([f"street {name}" for name in source]),
        "picture": picture,
    }


def choices_of_clips(n_rows=40, *, broken=True):
    """Return what a changed clip may be: a label that no clip has yet, a picture that none has, or none."""
    return {"label": [0, 1, 2], "picture": [-1] * broken + [*range(n_rows, n_rows + 20)]}
