"""Teachers that voted, without a sound and without a network: what costs seconds is not what is tested."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from tellers.data.sound import features_for, read_collection
from tellers.privacy import LabelVotes
from tellers.runs.sound import Teaching, read_taught
from tellers.runs.sound.teaching import write_deal, written_settings
from tellers.teachers import save_votes

NAMES = ("bell", "engine", "siren")
FEATURES = features_for(rate=16_000, seconds=0.1)


def write_clips(
    folder, *, n_clips=60, names=NAMES, features=FEATURES, seed=7, unusable=(), one=False, sources=0
):
    """Write a folder of prepared clips whose pictures are noise around what their labels look like."""
    draw = np.random.default_rng(seed)
    Y = np.eye(len(names), dtype=int)[draw.integers(len(names), size=n_clips)]
    if not one:
        Y |= draw.random(Y.shape) < 0.2
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    clips = []
    for i, labels in enumerate(Y):
        picture = draw.normal(size=features.shape) + 2 * np.repeat(labels, -(-64 // len(names)))[:64]
        np.save(folder / "pictures" / f"{i}.npy", picture.astype(np.float32))
        clips.append(
            {
                "path": f"/sounds/{i}.wav", "labels": [names[j] for j in np.flatnonzero(labels)],
                "fold": 1 + i % 5, "source": f"street {i % sources}" if sources else None,
                "picture": None if i in unusable else f"pictures/{i}.npy",
            }
        )  # fmt: skip
    said = {
        "format": 1, "name": "noise", "label_names": list(names), "shape": list(features.shape),
        "features": asdict(features), "notes": [], "clips": clips,
        "findings": [
            {"path": f"/sounds/{i}.wav", "kind": "broken", "detail": "no recording"} for i in unusable
        ],
    }  # fmt: skip
    (folder / "clips.json").write_text(json.dumps(said))
    return read_collection(folder)


def write_ears(collection, folder, *, n_teachers=5, **given):
    """Write teachers that are right about every clip of the pool, and about the test."""
    settings = Teaching(n_teachers=n_teachers, seed=7, **given)
    folder.mkdir()
    write_deal(collection, folder, settings, n_jobs=1, say=lambda *_: None)
    (folder / "settings.json").write_text(json.dumps(written_settings(collection, settings)))
    taught = read_taught(folder)
    for name, rows in (("votes.npz", taught.pool), ("test_votes.npz", taught.test)):
        ballots = np.repeat(taught.Y[rows][None].astype(np.int64), n_teachers, axis=0)
        save_votes(folder / name, LabelVotes.from_ballots(ballots, n_labels=ballots.shape[2]))
    return taught


@pytest.fixture
def made_clips():
    """Return the function that writes prepared clips of noise."""
    return write_clips


@pytest.fixture
def made_ears():
    """Return the function that writes teachers of prepared clips."""
    return write_ears


@pytest.fixture
def ears(tmp_path):
    """Return five teachers of noise, in a folder `ears`."""
    return write_ears(write_clips(tmp_path / "clips"), tmp_path / "ears")


@pytest.fixture
def no_pages(monkeypatch):
    """Draw no pages, which take a second each."""
    monkeypatch.setattr("tellers.runs.pipeline.write_page", lambda *_, **__: None)
    monkeypatch.setattr("tellers.runs.sound._pages.write_sound", lambda *_, **__: None)
    monkeypatch.setattr("tellers.runs.sound.teaching.write_votes", lambda *_, **__: None)
