"""What one clip can move when clips are dealt: its own part, whatever becomes of it."""

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.cli import main
from tellers.data.clips import BY_CLIP, FILE, clip_notes
from tellers.data.dataset import TableLines
from tellers.data.sound import features_for, make_city, prepare_collection, read_clip_folder, read_collection
from tellers.errors import ConfigError
from tellers.privacy import LabelVotes
from tellers.runs import DataConfig, LabelsConfig, MechanismConfig, PartitionConfig, PersonalConfig, RunConfig
from tellers.runs._folder import tell_units
from tellers.runs._tables import deal_rows, read_tables
from tellers.runs.sound import Teaching, read_taught
from tellers.runs.sound.teaching import write_deal
from tellers.teachers import save_votes

NAMES = ("bell", "siren")
N = 40


@pytest.fixture(scope="module", autouse=True)
def pictures(tmp_path_factory):
    """Draw pictures once: number i is full of i."""
    place = tmp_path_factory.mktemp("pictures")
    for i in range(N):
        np.save(place / f"{i}.npy", np.full((2, 3), i, dtype=np.float32))
    DRAWN.append(place)


DRAWN: list[Path] = []


def write_clips(folder, *, lost=(), sources=None, names=None, contents=None, silent=()):
    """Write a folder of prepared clips by hand: clip i has picture i, or contents[i]."""
    folder.mkdir(parents=True)
    names = names or [f"/r/{i}.wav" for i in range(N)]
    clips = []
    for i, name in enumerate(names):
        content = i if contents is None else contents[i]
        clips.append({
            "path": name, "labels": [NAMES[i % 2]], "fold": None,
            "source": None if sources is None else sources[i],
            "picture": None if i in lost else str(DRAWN[-1] / f"{content}.npy"),
        })  # fmt: skip
    said = {
        "format": 1, "name": "made", "label_names": list(NAMES), "shape": [2, 3], "dtype": "float32",
        "features": asdict(features_for(rate=16_000, seconds=0.4)), "notes": [], "clips": clips,
        "findings": [{"path": names[i], "kind": "silent", "detail": ""} for i in silent],
    }  # fmt: skip
    (folder / FILE).write_text(json.dumps(said))
    return folder


def config_of(folder, *, classes=False, by="record", stratified=False, options=None, n_teachers=4, seed=7):
    return RunConfig(
        data=DataConfig(
            name="clips", private=folder.name, folder=str(folder.parent), n_public=8, n_test=4,
            classes=NAMES if classes else (), options=options or {},
        ),
        labels=LabelsConfig() if classes else LabelsConfig(names=NAMES), seed=seed,
        partition=PartitionConfig(n_teachers=n_teachers, by=by, stratified=stratified),
        mechanism=MechanismConfig(name="gnmax" if classes else "gnthreshold", sigma=2.0),
    )  # fmt: skip


def places_in_a_run(config):
    """Return who has each clip, by what is in its picture."""
    tables = read_tables(config)
    parts = deal_rows(config, tables)
    found = {}
    everyone = [*((i, tables.private.X[part]) for i, part in enumerate(parts))]
    for who, rows in (*everyone, ("pool", tables.pool), ("test", tables.test.X)):
        for content in rows[:, 0].astype(int).tolist():
            found.setdefault(content, set()).add(who)
    return found, parts


@settings(max_examples=12, deadline=None)
@given(
    lost=st.sets(st.integers(0, N - 1), min_size=1, max_size=3), seed=st.integers(0, 99),
    task=st.sampled_from([{}, {"classes": True}, {"classes": True, "stratified": True}]),
    n_sources=st.none() | st.integers(20, 30), n_teachers=st.integers(1, 4),
)  # fmt: skip
def test_a_clip_that_cannot_be_used_moves_no_other_in_a_run(lost, seed, task, n_sources, n_teachers):
    sources = None if n_sources is None else [f"s{i % n_sources}" for i in range(N)]
    if sources is not None and "stratified" in task:
        task = {**task, "options": {"by_clip": True}}
    with tempfile.TemporaryDirectory() as place:
        found = []
        for name, gone in (("whole", ()), ("some", lost)):
            folder = write_clips(Path(place) / name, lost=gone, sources=sources)
            config = config_of(folder, seed=seed, n_teachers=n_teachers, **task)
            found.append(places_in_a_run(config)[0])
    whole, some = found
    assert whole.keys() == set(range(N))
    assert some == {clip: where for clip, where in whole.items() if clip not in lost}
    assert all(len(where) == 1 for where in whole.values())


def test_known_sources_stay_together_in_a_run_unless_told_otherwise(tmp_path):
    folder = write_clips(tmp_path / "clips", sources=[f"s{i % 25}" for i in range(N)])
    for config in (config_of(folder), config_of(folder, by="person"), config_of(folder, classes=True)):
        found, parts = places_in_a_run(config)
        assert (parts.unit, parts.notes) == ("one source", ())
        assert all(found[i] == found[i + 25] for i in range(N - 25))
    found, parts = places_in_a_run(config_of(folder, options={"by_clip": True}))
    assert (parts.unit, parts.notes) == ("one clip", (BY_CLIP,))
    assert any(found[i] != found[i + 25] for i in range(N - 25))
    told = []
    tell_units(read_tables(config_of(folder, options={"by_clip": True})), told.append)
    tell_units(read_tables(config_of(folder)), told.append)
    assert told == [BY_CLIP]
    with pytest.raises(ValueError, match="leave out by_clip"):
        places_in_a_run(config_of(folder, by="person", options={"by_clip": True}))
    with pytest.raises(ValueError, match="got some that stay together"):
        places_in_a_run(config_of(folder, classes=True, stratified=True))
    with pytest.raises(TypeError, match="true or false, got 'yes'"):
        places_in_a_run(config_of(folder, options={"by_clip": "yes"}))
    nobody = write_clips(tmp_path / "nobody")
    assert places_in_a_run(config_of(nobody))[1].unit == "one clip"
    with pytest.raises(ValueError, match="Name their sources"):
        places_in_a_run(config_of(nobody, by="person"))


def test_a_line_that_points_at_another_lines_file_moves_no_other(tmp_path):
    names = [f"/r/{i}.wav" for i in range(N)]
    sources = [f"s{i % 25}" for i in range(N)]
    for number, (known, options) in enumerate(((None, {}), (sources, {}), (sources, {"by_clip": True}))):
        found = []
        for name, last in (("one", N - 1), ("two", 0)):
            contents = [*range(N - 1), last]
            folder = write_clips(
                tmp_path / f"{name}{number}",
                names=[*names[:-1], names[last]],
                sources=known,
                contents=contents,
            )
            found.append(places_in_a_run(config_of(folder, options=options))[0])
        whole, other = found
        assert all(other[i] == whole[i] for i in range(1, N - 1))
        assert other[0] == whole[0] | whole[N - 1]


def test_two_files_of_one_content_are_dealt_as_any_others_and_their_owner_alone_is_told(tmp_path):
    """A unit is what the table says; that two are alike is a fact about private recordings."""
    contents = [0 if i == 17 else i for i in range(N)]
    folder, plain = (write_clips(tmp_path / name, contents=c) for name, c in (("a", contents), ("b", None)))
    calm, found = (read_tables(config_of(place)) for place in (plain, folder))
    assert (calm.notes, calm.n_declared) == (found.notes, found.n_declared)
    for one, other in zip(*(deal_rows(config_of(p), t) for p, t in ((plain, calm), (folder, found)))):
        np.testing.assert_array_equal(one, other)
    assert calm.withheld == ()
    assert found.withheld[0].startswith("1 clips have the recording of another under another name, 1 of")
    assert "clips 0 and 17" in found.withheld[0]
    together = ["ann" if i in (0, 17) else f"s{i}" for i in range(N)]
    known = write_clips(tmp_path / "known", contents=contents, sources=together)
    assert "0 of them in another unit" in read_tables(config_of(known)).withheld[0]
    quiet = write_clips(tmp_path / "quiet", contents=contents, silent=(0, 17))
    assert read_tables(config_of(quiet)).withheld == ()


def owners(collection, folder, **given):
    """Return whose every clip is, or mixture, without a training."""
    folder.mkdir()
    chosen = Teaching(**{"n_teachers": 4, "seed": 7, **given})
    if chosen.by_source is None:
        chosen = replace(chosen, by_source=collection.clips.sources is not None)
    write_deal(collection, folder, chosen, n_jobs=1, say=lambda *_: None)
    said = {"collection": str(collection.folder), "teaching": asdict(chosen)}
    (folder / "settings.json").write_text(json.dumps(said))
    return read_taught(folder)


def test_teachers_have_whole_sources_whatever_is_in_them(tmp_path):
    sources = [f"s{i % 25}" for i in range(N)]
    collection = read_collection(write_clips(tmp_path / "clips", sources=sources))
    known = owners(collection, tmp_path / "known")
    np.testing.assert_array_equal(known.owner[: N - 25], known.owner[25:])
    assert (known.partition().unit, known.partition().notes) == ("one source", ())
    split = owners(collection, tmp_path / "split", by_source=False)
    assert (split.owner[: N - 25] != split.owner[25:]).any()
    assert (split.partition().unit, split.partition().notes) == ("one clip", (BY_CLIP,))
    # What is in two recordings changes nothing about who has them.
    plain = owners(read_collection(write_clips(tmp_path / "plain")), tmp_path / "ears")
    twice = write_clips(tmp_path / "twice", contents=[0 if i == 17 else i for i in range(N)])
    alike = owners(read_collection(twice), tmp_path / "ears2")
    np.testing.assert_array_equal(alike.owner, plain.owner)
    assert "clips 0 and 17" in clip_notes(alike.collection)[1][0]


@pytest.fixture
def city(tmp_path):
    pytest.importorskip("soundfile")
    clips = make_city(tmp_path / "sounds", N, seed=7, seconds=0.2, n_labels=(1, 2))
    rows = [f"{path.name},{';'.join(clips.labels_of(i))}" for i, path in enumerate(clips.paths)]
    (tmp_path / "clips.csv").write_text("\n".join(["file,labels", *rows]) + "\n")
    return tmp_path


def read_city(city, name, *, most=None):
    clips = read_clip_folder(city / "sounds", city / "clips.csv")
    clips = clips if most is None else clips.at_most(most)
    return prepare_collection(clips, city / name, features=features_for(rate=16_000, seconds=0.2))


def test_a_missing_recording_and_one_with_too_many_labels_move_no_other(city):
    whole = owners(read_city(city, "whole"), city / "ears")
    (city / "sounds" / "city-000020.wav").unlink()
    missing = read_city(city, "missing")
    assert [finding.kind for finding in missing.findings] == ["missing"]
    expected = np.where(np.arange(N) == 20, -1, whole.owner)
    np.testing.assert_array_equal(owners(missing, city / "ears-missing").owner, expected)
    few = read_city(city, "few", most=1)
    many = few.clips.Y.sum(axis=1) > 1
    assert 0 < many.sum() < N
    assert (len(few.clips), few.clips.left_out.tolist()) == (N, many.tolist())
    assert read_collection(city / "few").clips.left_out.tolist() == many.tolist()
    chosen = owners(few, city / "ears-few", one_class=True, n_teachers=2)
    expected = np.where(many, -1, owners(missing, city / "ears-two", n_teachers=2).owner)
    np.testing.assert_array_equal(chosen.owner, expected)


def test_a_sweep_over_teachers_of_mixtures(city, capsys):
    (city / "sounds" / "city-000020.wav").unlink()
    collection, places = read_city(city, "clips"), []
    for n_teachers in (3, 5):
        taught = owners(collection, city / f"ears{n_teachers}", n_teachers=n_teachers, mix=1, test=0.1)
        ballots = np.random.default_rng(7).integers(2, size=(n_teachers, *taught.truth.shape))
        save_votes(taught.folder / "votes.npz", LabelVotes.from_ballots(ballots, n_labels=4))
        assert (taught.owner != -1).all()  # what is missing is mixed with nothing
        places.append(taught)
    few, many = places
    assert [few.pictures[i] for i in few.pool] == [many.pictures[i] for i in many.pool]
    assert [few.pictures[i] for i in few.test] == [many.pictures[i] for i in many.test]
    given = [
        "audio",
        "sweep",
        str(few.folder),
        str(many.folder),
        "--sigma",
        "0.3",
        "--share",
        "0.5",
        "--json",
    ]
    with pytest.raises(SystemExit) as stop:
        main(given)
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert [row["n_teachers"] for row in json.loads(printed.out)["rows"]] == [3, 5]


def test_labels_are_declared_on_the_command_line(city, capsys):
    given = ["audio", "prepare", city / "sounds", "--layout", "table", "--table", city / "clips.csv"]
    given += ["--labels", "horn,bell", "--rate", 16_000, "--seconds", 0.2, "--out", city / "declared"]
    with pytest.raises(SystemExit) as stop:
        main([*map(str, given)])
    printed = capsys.readouterr()
    assert (stop.value.code, "no clip carries: horn" in printed.out) == (0, True), printed.err
    declared, whole = read_collection(city / "declared").clips, read_city(city, "whole").clips
    bells = whole.Y[:, whole.label_names.index("bell")]
    assert declared.label_names == ("horn", "bell")
    assert declared.notes == (f"{int((bells == 0).sum())} clips left out: none of the labels",)
    np.testing.assert_array_equal(declared.Y, np.stack([np.zeros(N), bells], axis=1))
    np.testing.assert_array_equal(declared.wanted, bells == 1)


def test_places_of_some_lines():
    places = TableLines(at=np.array([0, 2, 3]), units=np.array([0, 1, 0, 2]), classes=np.array([4, 5, 6, 7]))
    some = places.among(np.array([2, 3]))
    assert (some.at.tolist(), some.units.tolist(), some.classes.tolist()) == ([0, 1], [0, 2], [6, 7])
    assert places.take([2]).at.tolist() == [3]


def test_budgets_per_group_are_not_for_clips():
    with pytest.raises(ConfigError, match='got it with "clips"'):
        RunConfig(
            data=DataConfig(name="clips", private="city", n_public=8, classes=NAMES),
            mechanism=MechanismConfig(name="gnmax", sigma=2.0),
            personal=PersonalConfig(variant="weighting", levels={"a": 1.0}, shares={"a": 1.0}),
        )
