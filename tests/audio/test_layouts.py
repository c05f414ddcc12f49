"""Published layouts, in small: which clips, which labels, whose they are, and what does not fit."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.data import Clips
from tellers.data.clips import READ_OFF
from tellers.data.sound import (
    Decoding,
    Ontology,
    decode,
    read_audioset,
    read_clip_folder,
    read_esc,
    read_fsd50k,
    read_ontology,
    read_urbansound,
)


def touched(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def esc(tmp_path):
    written(
        tmp_path / "meta" / "esc50.csv",
        "filename,fold,target,category,esc10,src_file,take\n"
        "1-17-A-0.wav,1,0,dog,True,17,A\n1-17-B-0.wav,1,0,dog,True,17,B\n"
        "2-30-A-7.wav,2,7,crow,False,30,A\n3-40-A-1.wav,3,1,rooster,True,40,A\n",
    )
    touched(tmp_path / "audio", "1-17-A-0.wav", "1-17-B-0.wav", "2-30-A-7.wav")
    return tmp_path


def test_esc(esc):
    clips = read_esc(esc)
    assert (clips.name, clips.label_names) == ("ESC-50", ("crow", "dog", "rooster"))
    assert clips.classes.tolist() == [1, 1, 0, 2]
    assert clips.sources.tolist() == ["17", "17", "30", "40"]
    assert clips.folds.tolist() == [1, 1, 2, 3]
    assert clips.paths[3] == esc / "audio" / "3-40-A-1.wav"  # which is not there, and keeps its place
    ten = read_esc(esc, ten=True)
    assert (ten.name, ten.label_names, len(ten)) == ("ESC-10", ("dog", "rooster"), 3)


def test_esc_where_it_is_not(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a table"):
        read_esc(tmp_path)


@pytest.mark.skipif("TELLERS_DATA" not in os.environ, reason="TELLERS_DATA names no data directory")
def test_the_real_esc10():
    folder = Path(os.environ["TELLERS_DATA"]) / "esc10"
    if not folder.is_dir():
        pytest.skip("no esc10 in the data directory")
    pytest.importorskip("soundfile")
    clips = read_esc(folder)
    assert (len(clips), clips.n_labels, clips.notes) == (400, 10, ())
    assert np.bincount(clips.folds).tolist() == [0, 80, 80, 80, 80, 80]
    assert clips.Y.sum(axis=0).tolist() == [40] * 10
    # Publisher's folds keep sources together.
    folds = {}
    for source, fold in zip(clips.sources, clips.folds):
        assert folds.setdefault(source, fold) == fold
    assert decode(clips.paths[0], Decoding(rate=16_000, seconds=5.0)).shape == (80_000,)


def test_urbansound(tmp_path):
    written(
        tmp_path / "metadata" / "UrbanSound8K.csv",
        "slice_file_name,fsID,start,end,salience,fold,classID,class\n"
        "7-3-0-0.wav,7,0,4,1,1,3,dog_bark\n7-3-0-1.wav,7,4,8,1,1,3,dog_bark\n9-8-0-0.wav,9,0,4,2,10,8,siren\n",
    )
    touched(tmp_path / "audio", "fold1/7-3-0-0.wav", "fold1/7-3-0-1.wav", "fold10/9-8-0-0.wav")
    clips = read_urbansound(tmp_path)
    assert clips.label_names == ("dog_bark", "siren")
    assert clips.classes.tolist() == [0, 0, 1]
    assert (clips.sources.tolist(), clips.folds.tolist()) == (["7", "7", "9"], [1, 1, 10])
    assert clips.paths[2] == tmp_path / "audio" / "fold10" / "9-8-0-0.wav"


# Things > Vehicle > Bus, Siren; Human > Speech, Choir; Music > Choir, Drum. Siren lies below Alarm as well.
TREE = [
    {"id": "/t", "name": "Sounds of things", "child_ids": ["/v", "/a"]},
    {"id": "/v", "name": "Vehicle", "child_ids": ["/b", "/s"]},
    {"id": "/a", "name": "Alarm", "child_ids": ["/s"]},
    {"id": "/b", "name": "Bus", "child_ids": []},
    {"id": "/s", "name": "Siren", "child_ids": []},
    {"id": "/h", "name": "Human", "child_ids": ["/p", "/c"]},
    {"id": "/p", "name": "Speech", "child_ids": []},
    {"id": "/c", "name": "Choir", "child_ids": []},
    {"id": "/m", "name": "Music", "child_ids": ["/c", "/d"]},
    {"id": "/d", "name": "Drum", "child_ids": []},
]


@pytest.fixture
def audioset(tmp_path):
    written(tmp_path / "ontology.json", json.dumps(TREE))
    head = "# Segments csv\n# num_ytids=5\n# YTID, start_seconds, end_seconds, positive_labels\n"
    rows = {
        "balanced_train_segments": 'aaa, 0.000, 10.000, "/b,/p"\n-bb, 30.000, 40.000, "/s"\n'
        'ccc, 5.000, 15.000, "/d"\n'
        'aaa, 60.000, 70.000, "/s,/p,/c"\n',
        "eval_segments": 'ddd, 0.000, 10.000, "/c"\neee, 0.000, 10.000, "/b"\n',
    }
    for name, text in rows.items():
        written(tmp_path / f"{name}.csv", head + text)
    touched(
        tmp_path / "clips", "aaa_0_10.wav", "aaa_60000_70000.wav", "Y-bb.flac", "ccc_5.000.ogg", "ddd.wav"
    )
    return tmp_path


def read(folder: Path, **options) -> Clips:
    segments = [folder / "balanced_train_segments.csv", folder / "eval_segments.csv"]
    return read_audioset(segments, folder / "ontology.json", audio=folder / "clips", **options)


def label_sets(clips: Clips) -> list[set[str]]:
    """Return the labels of the clips that are of the task."""
    return [set(clips.labels_of(i)) for i in np.flatnonzero(clips.wanted)]


def test_audioset_as_it_is(audioset):
    clips = read(audioset)
    assert label_sets(clips) == [
        {"Bus", "Speech"}, {"Siren"}, {"Drum"}, {"Siren", "Speech", "Choir"}, {"Choir"}, {"Bus"},
    ]  # fmt: skip
    assert [p.name for p in clips.paths] == [
        "aaa_0_10.wav", "Y-bb.flac", "ccc_5.000.ogg", "aaa_60000_70000.wav", "ddd.wav",
        "eee_0.000_10.000.wav",
    ]  # fmt: skip
    assert clips.sources.tolist() == ["aaa", "-bb", "ccc", "aaa", "ddd", "eee"]
    assert clips.folds.tolist() == ["balanced_train_segments"] * 4 + ["eval_segments"] * 2
    assert not clips.paths[5].exists()  # and it keeps its place all the same


def test_a_file_that_names_a_video_alone_is_none_of_its_two_segments(audioset):
    touched(audioset / "clips", "aaa.wav")
    (audioset / "clips" / "aaa_60000_70000.wav").unlink()
    assert [p.name for p in read(audioset).paths][::3] == ["aaa_0_10.wav", "aaa_60.000_70.000.wav"]


def test_files_that_begin_with_a_byte_order_mark(audioset):
    plain = read(audioset)
    for name in ("balanced_train_segments.csv", "eval_segments.csv", "ontology.json"):
        text = (audioset / name).read_text()
        (audioset / name).write_text(text, encoding="utf-8-sig")
    marked = read(audioset)
    assert (marked.paths, label_sets(marked)) == (plain.paths, label_sets(plain))
    # Also where no line of words comes first.
    rows = [
        line
        for line in (audioset / "eval_segments.csv").read_text("utf-8-sig").splitlines()
        if line[0] != "#"
    ]
    (audioset / "eval_segments.csv").write_text("\n".join(rows) + "\n", encoding="utf-8-sig")
    assert read(audioset).paths == plain.paths


def test_audioset_without_music_and_what_is_below_it(audioset):
    clips = read(audioset, remove=["Music"])
    assert label_sets(clips) == [{"Bus", "Speech"}, {"Siren"}, {"Siren", "Speech"}, {"Bus"}]
    assert len(clips) == 6
    assert "2 clips left out: none of the labels" in clips.notes


def test_audioset_by_subtree_with_parents(audioset):
    clips = read(audioset, keep=["Sounds of things"], parents=True)
    assert label_sets(clips) == [
        {"Sounds of things", "Vehicle", "Bus"},
        {"Sounds of things", "Vehicle", "Alarm", "Siren"},
        {"Sounds of things", "Vehicle", "Alarm", "Siren"},
        {"Sounds of things", "Vehicle", "Bus"},
    ]
    # The task is what was asked for, whether or not it occurs.
    assert clips.label_names == ("Sounds of things", "Vehicle", "Alarm", "Bus", "Siren")


def test_audioset_with_few_labels_each(audioset):
    few = [{"Bus", "Speech"}, {"Siren"}, {"Drum"}, {"Choir"}, {"Bus"}]
    assert label_sets(read(audioset, most=2)) == few
    # Counted after removal.
    assert len(label_sets(read(audioset, most=2, remove=["Music"]))) == 4


def test_audioset_that_does_not_fit(audioset):
    with pytest.raises(ValueError, match="'Whale' is none"):
        read(audioset, keep=["Whale"])
    with pytest.raises(ValueError, match="Keep more labels"):
        read(audioset, keep=["Drum"], remove=["Music"])
    written(audioset / "eval_segments.csv", "aaa, zero, ten\n")
    with pytest.raises(ValueError, match="line 1 of eval_segments"):
        read(audioset)
    written(audioset / "ontology.json", '{"labels": 3}')
    with pytest.raises(ValueError, match="json list of labels"):
        read(audioset)


def fsd(folder: Path) -> Path:
    truth = folder / "FSD50K.ground_truth"
    written(truth / "dev.csv", 'fname,labels,mids,split\n1,"Bus,Vehicle","/b,/v",train\n2,Speech,/p,val\n')
    written(truth / "eval.csv", 'fname,labels,mids\n3,"Choir,Music","/c,/m"\n4,Bus,/b\n')
    written(truth / "vocabulary.csv", "0,Bus,/b\n1,Choir,/c\n2,Music,/m\n3,Speech,/p\n4,Vehicle,/v\n")
    written(
        folder / "FSD50K.metadata" / "dev_clips_info_FSD50K.json",
        '{"1": {"uploader": "ann"}, "2": {"uploader": "ann"}}',
    )
    written(folder / "FSD50K.metadata" / "eval_clips_info_FSD50K.json", '{"3": {"uploader": " "}, "4": {}}')
    touched(folder / "FSD50K.dev_audio", "1.wav", "2.wav")
    touched(folder / "FSD50K.eval_audio", "3.wav")
    return folder


def test_fsd50k(tmp_path):
    clips = read_fsd50k(fsd(tmp_path))
    assert label_sets(clips) == [{"Bus", "Vehicle"}, {"Speech"}, {"Choir", "Music"}, {"Bus"}]
    assert clips.folds.tolist() == ["train", "val", "eval", "eval"]
    assert clips.sources.tolist() == ["uploader ann", "uploader ann", "clip 3", "clip 4"]
    assert [path.exists() for path in clips.paths] == [True, True, True, False]
    some = read_fsd50k(tmp_path, remove=["Music", "Choir"])
    assert some.wanted.tolist() == [True, True, False, True]
    assert read_fsd50k(tmp_path, keep=["Bus", "Speech"]).label_names == ("Bus", "Speech")
    with pytest.raises(ValueError, match="give an ontology"):
        read_fsd50k(tmp_path, remove=["Sounds of things"])
    tree = read_ontology(written(tmp_path / "ontology.json", json.dumps(TREE)))
    clips = read_fsd50k(tmp_path, ontology=tree, remove=["Music"], parents=True)
    assert label_sets(clips)[:2] == [{"Bus", "Vehicle", "Sounds of things"}, {"Speech", "Human"}]
    # Without a word on who uploaded the clips of one part, sources are not known.
    (tmp_path / "FSD50K.metadata" / "eval_clips_info_FSD50K.json").unlink()
    clips = read_fsd50k(tmp_path)
    assert clips.sources is None
    assert "FSD50K.metadata is not there" in clips.notes[-1]


def test_a_folder_of_ones_own(tmp_path):
    touched(tmp_path, "a.wav", "b/c.ogg")
    table = written(
        tmp_path / "mine.csv",
        "file,labels,street,day\na.wav,bell; siren,north,1\nb/c.ogg,,south,2\nd.wav,bell,south,1\n",
    )
    clips = read_clip_folder(tmp_path, table, source_column="street", fold_column="day")
    assert (clips.label_names, clips.Y.tolist()) == (("bell", "siren"), [[1, 1], [0, 0], [1, 0]])
    assert (clips.sources.tolist(), clips.folds.tolist()) == (["north", "south", "south"], ["1", "2", "1"])
    assert clips.notes == ("label names were read off the table",)
    declared = read_clip_folder(tmp_path, table, label_names=["horn", "bell"], others="ignore")
    assert (declared.Y.tolist(), declared.notes) == ([[0, 1], [0, 0], [0, 1]], ())
    with pytest.raises(ValueError, match="Declare every label"):
        read_clip_folder(tmp_path, table, label_names=["bell"])
    table = written(tmp_path / "many.csv", "file,bell,siren\na.wav,1,0\nb/c.ogg,0,1\n")
    clips = read_clip_folder(tmp_path, table, label_column=None, label_names=["siren", "bell"])
    assert clips.Y.tolist() == [[0, 1], [1, 0]]
    written(table, "file,bell,siren\na.wav,1,maybe\n")
    with pytest.raises(ValueError, match="line 2 of many"):
        read_clip_folder(tmp_path, table, label_column=None, label_names=["siren", "bell"])


def test_two_recordings_of_one_name_are_refused(esc):
    touched(esc / "audio", "1-17-A-0.flac")
    with pytest.raises(ValueError, match="one recording of each name"):
        read_esc(esc)


def test_sources_are_told_apart_by_more_than_blanks(tmp_path):
    touched(tmp_path, "a.wav")
    text = "file,labels,who\na.wav,bell,Anna\nb.wav,bell, Anna\nc.wav,bell,Anna \n"
    table = written(tmp_path / "mine.csv", text)
    assert read_clip_folder(tmp_path, table, source_column="who").sources.tolist() == ["Anna"] * 3
    written(table, text + "d.wav,bell,\n")
    with pytest.raises(ValueError, match=r"column who of mine\.csv, got none in line 5"):
        read_clip_folder(tmp_path, table, source_column="who")


def test_labels_are_declared_whether_or_not_they_occur():
    clips = Clips(name="x", paths=list("abc"), Y=[[1, 0], [0, 1], [1, 1]], label_names=["bell", "dog"])
    some = clips.with_labels(["siren", "bell"])
    assert (some.label_names, some.Y.tolist()) == (("siren", "bell"), [[0, 1], [0, 0], [0, 1]])
    assert some.wanted.tolist() == [True, False, True]
    assert clips.at_most(1).with_labels(["bell"]).wanted.tolist() == [True, False, False]
    assert clips.at_most(1).classes.tolist() == [0, 1, -1]
    assert clips.at_most(1).take([1, 2]).wanted.tolist() == [True, False]
    with pytest.raises(ValueError, match="without a letter"):
        clips.with_labels(["bell", ""])


@st.composite
def trees(draw):
    n = draw(st.integers(1, 12))
    names = {f"/{i}": f"label {i}" for i in range(n)}
    children = {
        f"/{i}": tuple(sorted({f"/{j}" for j in draw(st.lists(st.integers(0, n - 1), max_size=4))}))
        for i in range(n)
    }
    return Ontology(names=names, children=children)  # circles included: nothing may run for ever


@given(trees(), st.data())
def test_above_and_below_are_each_other_s_mirror(tree, data):
    label = data.draw(st.sampled_from(sorted(tree.names)))
    for other in tree.names:
        if other != label:
            assert (other in tree.below(label)) == (label in tree.above(other))
    removed = tree.select(remove=[label])
    assert not set(removed) & set(tree.below(label))
    assert set(removed) | set(tree.below(label)) == set(tree.names)
    implied = tree.imply({label})
    assert tree.imply(implied) == implied


def test_clips_are_checked():
    with pytest.raises(ValueError, match="Expected Y of shape"):
        Clips(name="x", paths=["a"], Y=[[1, 0], [0, 1]], label_names=["a", "b"])
    with pytest.raises(ValueError, match="0 or 1"):
        Clips(name="x", paths=["a"], Y=[[2]], label_names=["a"])
    with pytest.raises(ValueError, match="different label names"):
        Clips(name="x", paths=["a"], Y=[[1, 0]], label_names=["a", "a"])
    with pytest.raises(ValueError, match="one label for each clip"):
        Clips(name="x", paths=["a"], Y=[[1, 1]], label_names=["a", "b"]).classes  # noqa: B018


def test_labels_that_nobody_declared_are_noted(audioset):
    clips = read(audioset)
    assert READ_OFF in clips.notes
    assert READ_OFF not in clips.with_labels(clips.label_names[:1]).notes
    assert READ_OFF not in read(audioset, keep=["Vehicle"]).notes
