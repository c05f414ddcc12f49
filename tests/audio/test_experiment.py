"""The experiments with sound: kept results account for themselves, parts stay apart, labels come again."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from .. import forked

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "audio"
MODULES = ("plan", "sounds", "asking", "kept", "grids", "costs", "forms", "reading", "train", "live")


@pytest.fixture
def experiment(monkeypatch):
    """The experiment's own modules, imported as `run.py` does and forgotten afterwards."""
    pytest.importorskip("torch")
    pytest.importorskip("rich")
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__
    for name in set(sys.modules) - before:
        if name in MODULES or name.split(".")[0] == "common":
            del sys.modules[name]


def run(*words, fails=False, **env):
    command = [sys.executable, str(FOLDER / "run.py"), *map(str, words)]
    full = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **env}
    done = forked.run(command, capture_output=True, text=True, timeout=900, check=False, env=full)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done


def measures(path):
    return {key: value["mean"] for key, value in json.loads(path.read_text())["measures"].items()}


def test_the_published_prices_are_met_to_the_digit(tmp_path):
    pytest.importorskip("rich")
    done = run("--parts", "published,ablation", "--check", "--json", tmp_path / "out.json")
    found = measures(tmp_path / "out.json")
    for n, printed in ((2000, 418.4), (5000, 1018.4)):
        assert round(found[f"published/5.4/{n}/its accounting"], 1) == printed
        assert found[f"published/5.4/{n}/sound price"] > 10 * printed
    assert "pretrained" in done.stdout
    assert "expected parts of" in run("--parts", "magic", fails=True).stderr


def test_pool_test_and_teachers_share_no_recording(experiment, tmp_path):
    plan, sounds = experiment("plan"), experiment("sounds")
    from tellers.data import Clips

    n, rate = 160, 1600  # a tenth of a second each
    rng = np.random.default_rng(7)
    clips = Clips(
        name="t", paths=tuple(Path(f"{i}.wav") for i in range(n)), Y=np.eye(3, dtype=int)[np.arange(n) % 3],
        label_names=tuple("abc"), sources=np.arange(n) // 2, folds=np.arange(n) // 2 % 5 + 1,
    )  # fmt: skip
    waves = sounds.Waves(rng.integers(-999, 999, size=(n, rate)).astype(np.int16), clips)
    seen = []
    sounds.draw_pictures = lambda samples, heard, n_jobs: (
        seen.append(heard[0]) or np.zeros((len(heard[0]), 2, 2))
    )
    for task in ("single", "multi"):
        seen.clear()
        sounds.make_parts(waves, task, tmp_path, n_jobs=1, folds=(2,), sizes=(5,))
        pool, test, teachers = seen
        owner = np.load(tmp_path / f"{task}-2" / "teachers-5" / "owner.npy")
        whose = [set((pairs // 2).ravel().tolist()) for pairs in (pool, test)]
        whose += [set((teachers[owner == t] // 2).ravel().tolist()) for t in range(5)]
        assert sum(map(len, whose)) == len(
            set.union(*whose)
        )  # a recording is in one place, mixtures included
        assert {int(clips.folds[row]) for row in test.ravel()} == {2}
        assert len(pool) == (1 if task == "single" else plan.TIMES) * len(np.unique(pool[:, 0]))


def test_packed_waves_are_the_same(experiment, tmp_path):
    sounds = experiment("sounds")
    from tellers.data import Clips

    clips = Clips(
        name="t", paths=(Path("a"), Path("b")), Y=[[1, 0], [0, 1]], label_names=("x", "y"),
        sources=np.array([3, 4]), folds=np.array([1, 2]),
    )  # fmt: skip
    waves = sounds.Waves(np.arange(8, dtype=np.int16).reshape(2, 4), clips)
    sounds.pack_waves(waves, tmp_path / "w.npz")
    again = sounds.unpack_waves(tmp_path / "w.npz")
    assert (again.samples == waves.samples).all()
    assert again.clips.sources.tolist() == ["3", "4"]
    assert again.clips.label_names == ("x", "y")


def test_thinning_looks_at_one_part_at_a_time(experiment):
    sounds = experiment("sounds")
    rng = np.random.default_rng(7)
    Y, owner = np.eye(4, dtype=int)[rng.integers(4, size=400)], np.arange(400) % 2
    left = sounds.thinned(Y, owner, keep=0.25, seed=1)
    rare = Y[:, :2].any(axis=1)
    assert set(np.flatnonzero(~rare)) <= set(left)
    assert 0.1 < rare[left].sum() / rare.sum() < 0.4  # 0.25 of about 200: five standard deviations
    other = Y.copy()
    other[owner == 1] = Y[owner == 1][::-1]
    moved = sounds.thinned(other, owner, keep=0.25, seed=1)
    assert [row for row in left if owner[row] == 0] == [row for row in moved if owner[row] == 0]


def test_labels_are_made_again_from_kept_ballots(experiment):
    plan, asking = experiment("plan"), experiment("asking")
    said = np.random.default_rng(7).integers(0, 101, size=(20, 24, 4)).astype(np.uint8)
    for task, n_labels in (("single", 24), ("multi", 24)):
        for lesson in plan.lessons(task, n_labels):
            if lesson.name == "truth" or lesson.n_teachers != 20:
                continue
            key = f"{task}/1/small/student/20/{lesson.name}/{lesson.n_queries}"
            labels = asking.told(said, lesson, key=key, whole=False)
            assert labels.shape == (lesson.n_queries, 4)
            assert (labels == asking.told(said, lesson, key=key, whole=False)).all()
            if task == "single":
                assert (labels.sum(axis=1) == 1).all()


def test_what_is_kept_is_what_was_said(experiment, tmp_path):
    kept = experiment("kept")
    rng = np.random.default_rng(7)
    said, scores, truth = {}, {}, {}
    row = dict.fromkeys(kept.SCORES, 0.5)
    for task, n_teachers, k in (("multi", 5, 3), ("city", 200, 4)):
        truth |= {
            f"{task}/1/{part}": rng.integers(2, size=(9, k)).astype(np.int8) for part in ("pool", "test")
        }
        for teacher in range(n_teachers):
            key = f"{task}/1/small/teacher/{n_teachers}/{teacher}"
            said[f"{key}/pool"] = rng.integers(101, size=(9, k)).astype(np.uint8)
            scores[key] = row | {"map": teacher / n_teachers}
    np.savez(tmp_path / "said.npz", **said)
    np.savez(tmp_path / "truth.npz", **truth)
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    kept.keep([tmp_path], tmp_path / "out")
    found = kept.load(tmp_path / "out")
    assert (found.said("multi", 1, "small", 5)[3] == said["multi/1/small/teacher/5/3/pool"]).all()
    yes = found.said("city", 1, "small", 200)[7]
    assert (yes == 100 * (said["city/1/small/teacher/200/7/pool"] > 50)).all()  # of the city yes and no alone
    assert (found.truth("city", 1, "test") == truth["city/1/test"]).all()
    assert found.scores["multi/1/small/teacher/5"] == row | {"map": 0.4, "n": 5}


def test_a_grid_says_mean_and_error(experiment):
    grids = experiment("grids")
    cells = {"a": [1.0, 2.0, 3.0], "b": "word", "c": float("inf")}
    grid = grids.Grid("k", "title", ("a", "b", "c"), {"row": cells}, first="x")
    assert grid.lines() == [["row", "2.000 ± 0.577", "word", "none"]]
    assert [one.key for one in grid.measures()] == ["k/row/a"]
    assert "| row | 2.000 ± 0.577 | word | none |" in grid.markdown()


def test_what_is_not_complete_is_left_out(experiment, tmp_path):
    kept, plan = experiment("kept"), experiment("plan")
    row = dict.fromkeys(kept.SCORES, 0.5)
    said = {
        f"multi/{fold}/resnet18/teacher/{n}/{teacher}/pool": np.zeros((2, 3), dtype=np.uint8)
        for fold, n in [(1, n) for n in plan.TEACHERS["multi"]] + [(2, 5), (2, 1)]
        for teacher in range(n)
    }
    said |= {f"multi/2/resnet18/teacher/10/{t}/pool": np.zeros((2, 3), dtype=np.uint8) for t in range(3)}
    scores = {name.removesuffix("/pool"): row for name in said}
    scores |= {f"multi/1/small/even/no mixup/{t}": row for t in range(4)}
    scores |= {"multi/1/resnet18/even/no mixup/0": row}
    np.savez(tmp_path / "said.npz", **said)
    np.savez(tmp_path / "truth.npz", **{"multi/1/pool": np.zeros((2, 3), dtype=np.int8)})
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    kept.keep([tmp_path], tmp_path / "out")
    found = kept.load(tmp_path / "out")
    assert found.folds("multi", "resnet18") == (1,)
    teachers = "multi/2/resnet18/teacher"
    assert [f"{teachers}/{n}" in found.scores for n in (1, 5, 10)] == [True, True, False]
    assert "multi/1/small/even/no mixup" not in found.scores  # four of five networks
    assert "multi/1/resnet18/even/no mixup" in found.scores


@pytest.mark.reproduction
def test_the_quick_form(tmp_path):
    pytest.importorskip("torch")
    done = run("--quick", "--check", "--json", tmp_path / "out.json")
    found = measures(tmp_path / "out.json")
    for name in ("5 teachers, gnmax-s0.2, all", "20 teachers, gnmax-s0.2, all"):
        cost = {kind: found[f"single/small/students/{name}/{kind}"] for kind in ("exact", "told", "public")}
        assert cost["exact"] < cost["public"]
        assert cost["exact"] < cost["told"]
    # Enough data: the city's labels cost a tenth, and its student is nearly as good as one of true labels.
    city, few = (
        "city/small/students/200 teachers, binary-s0.2, few",
        "multi/small/students/20 teachers, binary-s0.2, few",
    )
    assert found[f"{city}/exact"] < 0.1 * found[f"{few}/exact"]
    assert found[f"{city}/student, mAP"] > 0.95
    assert "here and now" in done.stdout


@pytest.mark.reproduction
def test_the_city_stands_in_for_recordings(tmp_path):
    pytest.importorskip("torch")
    done = run("--quick", "--parts", "live", "--json", tmp_path / "out.json", TELLERS_DATA=str(tmp_path))
    assert "SKIPPED: live on ESC-10" in done.stderr
    found = measures(tmp_path / "out.json")
    assert (
        found["live/city/student, test"] > 0.5
    )  # one label in two is there: to say yes always gives 0.67 at most
