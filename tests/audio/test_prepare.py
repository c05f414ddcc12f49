"""Whole folders: the same pictures however they are made, interrupted, found again or damaged."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from tellers.data.sound import (
    Decoding,
    Features,
    Kind,
    LogMel,
    decode,
    log_mel,
    make_city,
    prepare_clips,
    stream_clips,
)
from tellers.data.sound import prepare as workers_module
from tellers.data.sound.prepare import Store, sole_writer
from tellers.errors import ClipsRefused, FolderInUse

pytest.importorskip("soundfile")
pytest.importorskip("soxr")

SMALL = Features(
    decoding=Decoding(rate=8000, seconds=0.5),
    logmel=LogMel(rate=8000, window=256, hop=80, n_mels=16),
)


@pytest.fixture
def city(tmp_path):
    return make_city(tmp_path / "city", 20, seed=3, rate=8000, seconds=0.5)


def by_hand(path: Path) -> np.ndarray:
    return log_mel(decode(path, SMALL.decoding), SMALL.logmel)


def test_pictures_are_those_of_each_clip_alone(city, tmp_path):
    calls = []
    found = prepare_clips(
        city.paths,
        tmp_path / "store",
        features=SMALL,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert found.rows.tolist() == list(range(20))
    assert calls == [(n, 20) for n in range(1, 21)]
    for row in (0, 7, 19):
        np.testing.assert_array_equal(found.pictures([row])[0], by_hand(city.paths[row]))


def test_nothing_is_read_twice(city, tmp_path, monkeypatch):
    first = prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    assert first.n_known == 0
    monkeypatch.setattr(workers_module, "make_picture", None)  # calling it would raise
    second = prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    assert second.n_known == 20
    np.testing.assert_array_equal(first.pictures(), second.pictures())


def test_content_counts_and_not_the_name(city, tmp_path):
    prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    moved = shutil.copytree(tmp_path / "city", tmp_path / "elsewhere")
    again = prepare_clips(sorted(moved.glob("*.wav")), tmp_path / "store", features=SMALL)
    assert again.n_known == 20
    # A changed file is another clip, under whatever name.
    other = by_hand(city.paths[1])
    shutil.copy(city.paths[1], city.paths[0])
    os.utime(city.paths[0], ns=(5, 5))
    np.testing.assert_array_equal(
        prepare_clips(city.paths, tmp_path / "store", features=SMALL).pictures([0])[0], other
    )


def test_recheck_reads_what_looks_unchanged(city, tmp_path):
    prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    before = city.paths[0].stat()
    other = by_hand(city.paths[1])
    shutil.copy(city.paths[1], city.paths[0])
    os.utime(city.paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    found = prepare_clips(city.paths, tmp_path / "store", features=SMALL, recheck=True)
    np.testing.assert_array_equal(found.pictures([0])[0], other)


def test_other_settings_are_other_pictures(city, tmp_path):
    coarse = Features(decoding=SMALL.decoding, logmel=LogMel(rate=8000, window=256, hop=160, n_mels=16))
    fine = prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    rough = prepare_clips(city.paths, tmp_path / "store", features=coarse)
    assert rough.n_known == 0
    assert (fine.pictures([0]).shape, rough.pictures([0]).shape) == ((1, 51, 16), (1, 26, 16))


def test_half_precision_is_close(city, tmp_path):
    half = Features(decoding=SMALL.decoding, logmel=SMALL.logmel, dtype="float16")
    found = prepare_clips(city.paths, tmp_path / "store", features=half).pictures()
    assert found.dtype == np.float16
    np.testing.assert_allclose(found[4].astype(np.float64), by_hand(city.paths[4]), atol=0.035)


@pytest.fixture
def poor(city, tmp_path):
    """Twenty good clips with four others among them."""
    folder = tmp_path / "poor"
    folder.mkdir()
    (folder / "broken.wav").write_bytes(b"RIFF" + bytes(100))
    wavfile.write(folder / "silent.wav", 8000, np.zeros(4000, dtype=np.int16))
    wavfile.write(folder / "short.wav", 8000, np.full(20, 9000, dtype=np.int16))
    paths = list(city.paths)
    for at, name in ((3, "broken.wav"), (9, "silent.wav"), (15, "short.wav"), (22, "gone.wav")):
        paths.insert(at, folder / name)
    return paths


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_cannot_be_used_is_a_line_in_a_table(poor, tmp_path, n_jobs):
    for _ in range(2):  # the second time from memory
        found = prepare_clips(poor, tmp_path / "store", features=SMALL, n_jobs=n_jobs)
        kinds = [(Path(f.path).name, f.kind) for f in found.findings]
        assert kinds == [
            ("broken.wav", Kind.BROKEN), ("silent.wav", Kind.SILENT), ("short.wav", Kind.TOO_SHORT),
            ("gone.wav", Kind.MISSING),
        ]  # fmt: skip
        assert found.rows.tolist() == [n for n in range(24) if n not in (3, 9, 15, 22)]
        np.testing.assert_array_equal(found.pictures([4])[0], by_hand(poor[4]))
        assert len(found.table().splitlines()) == 5
    with pytest.raises(KeyError, match="clip 9 has none"):
        found.pictures([9])


def test_findings_are_refused_or_kept_as_asked(poor, tmp_path):
    with pytest.raises(ClipsRefused, match="4 recordings") as caught:
        prepare_clips(poor, tmp_path / "store", features=SMALL, on_finding="refuse")
    assert len(caught.value.findings) == 4
    with pytest.raises(ClipsRefused, match="1 recording cannot be used: 1 too short"):
        prepare_clips(poor, tmp_path / "store", features=SMALL, on_finding={Kind.TOO_SHORT: "refuse"})
    kept = prepare_clips(poor, tmp_path / "store", features=SMALL, on_finding={Kind.SILENT: "keep"})
    assert 9 in kept.rows
    np.testing.assert_allclose(kept.pictures([9]), -100, atol=1e-4)
    with pytest.raises(ValueError, match="on a broken clip"):
        prepare_clips(poor, tmp_path / "store", features=SMALL, on_finding={Kind.BROKEN: "keep"})


def test_a_recording_that_kills_its_reader_is_a_finding(city, tmp_path, monkeypatch):
    def deadly(jobs, folder, features):
        import os as system

        from tellers.data.sound.prepare import make_picture

        if any("000007" in job.name for job in jobs):
            system.kill(system.getpid(), 9)
        return [make_picture(job.name, job.parts, folder=folder, features=features) for job in jobs]

    monkeypatch.setattr(workers_module, "make_all", deadly)
    found = prepare_clips(city.paths, tmp_path / "store", features=SMALL, n_jobs=2)
    assert [(Path(f.path).name, f.kind) for f in found.findings] == [("city-000007.wav", Kind.CRASHED)]
    assert found.rows.tolist() == [n for n in range(20) if n != 7]


def test_two_recordings_at_once_are_their_sum(city, tmp_path):
    a, b = city.paths[:2]
    found = prepare_clips(
        [[(a, 1.0), (b, 0.5)], a, [(a, 1.0), (b, 0.25)]], tmp_path / "store", features=SMALL
    )
    samples = decode(a, SMALL.decoding) + np.float32(0.5) * decode(b, SMALL.decoding)
    np.testing.assert_array_equal(found.pictures([0])[0], log_mel(samples, SMALL.logmel))
    np.testing.assert_array_equal(found.pictures([1])[0], by_hand(a))
    assert np.abs(found.pictures([2]) - found.pictures([0])).max() > 0.1
    assert prepare_clips([[(a, 1.0), (b, 0.5)]], tmp_path / "store", features=SMALL).n_known == 1


def test_what_nobody_thought_of_is_a_finding_too(city, tmp_path, monkeypatch):
    decoded = workers_module.decode_bytes

    def fails(content, settings, *, path):
        if path == str(city.paths[3]):
            raise ZeroDivisionError("something private")
        return decoded(content, settings, path=path)

    monkeypatch.setattr(workers_module, "decode_bytes", fails)
    found = prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    assert [(f.path, f.kind) for f in found.findings] == [(str(city.paths[3]), Kind.BROKEN)]
    assert "private" not in found.findings[0].detail
    assert len(found) == 19


def test_loud_recordings_may_be_too_loud_together(city, tmp_path):
    wavfile.write(tmp_path / "loud.wav", 8000, np.full(4000, 9e5, dtype=np.float32))
    loud = tmp_path / "loud.wav"
    found = prepare_clips([loud, [(loud, 1.0), (loud, 1.0)]], tmp_path / "store", features=SMALL)
    assert found.rows.tolist() == [0]
    assert found.findings[0].kind is Kind.NOT_FINITE
    assert np.isfinite(found.pictures()).all()


def test_pictures_and_their_index_are_the_owners(city, tmp_path):
    prepare_clips(city.paths[:2], tmp_path / "store", features=SMALL)
    assert (tmp_path / "store" / SMALL.name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("harm", ["no index", "no real index", "half a picture", "no picture"])
def test_damage_is_made_good(city, tmp_path, harm):
    whole = prepare_clips(city.paths, tmp_path / "store", features=SMALL).pictures()
    folder = tmp_path / "store" / SMALL.name
    some = sorted(folder.rglob("*.npy"))[5]
    if harm == "no index":
        (folder / "index.db").unlink()
    elif harm == "no real index":
        (folder / "index.db").write_bytes(b"nonsense" * 1000)
    elif harm == "half a picture":
        some.write_bytes(some.read_bytes()[:500])
    else:
        some.unlink()
    np.testing.assert_array_equal(
        prepare_clips(city.paths, tmp_path / "store", features=SMALL).pictures(), whole
    )


def test_a_changed_picture_is_noticed_and_made_again(city, tmp_path):
    found = prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    whole = found.pictures()
    some = sorted((tmp_path / "store" / SMALL.name).rglob("*.npy"))[5]
    content = bytearray(some.read_bytes())
    content[-1] ^= 1
    some.write_bytes(content)
    with pytest.raises(FileNotFoundError, match="Prepare again"):
        found.pictures()
    np.testing.assert_array_equal(
        prepare_clips(city.paths, tmp_path / "store", features=SMALL).pictures(), whole
    )


def test_a_killed_run_is_taken_up_where_it_was(tmp_path):
    clips = make_city(tmp_path / "city", 60, seed=3, rate=8000, seconds=0.5)
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tellers.data.sound import Decoding, Features, LogMel, prepare_clips\n"
        "small = Features(decoding=Decoding(rate=8000, seconds=0.5),"
        " logmel=LogMel(rate=8000, window=256, hop=80, n_mels=16))\n"
        "prepare_clips(sorted(Path(sys.argv[1]).glob('*.wav')), sys.argv[2], features=small,"
        " progress=lambda done, total: (print(done, flush=True), time.sleep(0.05)))\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "city"), str(tmp_path / "store")], stdout=subprocess.PIPE
    )
    for line in run.stdout:
        if int(line) == 20:
            break
    run.send_signal(signal.SIGKILL)
    run.wait()
    folder = tmp_path / "store" / SMALL.name
    (folder / "pictures" / "00").mkdir(exist_ok=True)
    (folder / "pictures" / "00" / "left.part").write_bytes(b"half")
    found = prepare_clips(clips.paths, tmp_path / "store", features=SMALL)
    assert 20 <= found.n_known < 60
    assert len(found) == 60
    assert not list(folder.rglob("*.part"))
    np.testing.assert_array_equal(found.pictures([33])[0], by_hand(clips.paths[33]))


def test_one_process_at_a_time(city, tmp_path):
    with (
        sole_writer(tmp_path / "store" / SMALL.name),
        pytest.raises(FolderInUse, match="Another process"),
    ):
        prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    assert len(prepare_clips(city.paths, tmp_path / "store", features=SMALL)) == 20


def test_recordings_may_come_without_end(city, tmp_path):
    """Ten times the clips take no more memory: what is under way is all that is kept."""

    def peak(n: int) -> int:
        many = (city.paths[i % 20] for i in range(n))
        tracemalloc.start()
        for _ in stream_clips(many, tmp_path / "store", features=SMALL):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)  # what is loaded once
    few, many = peak(300), peak(3000)
    assert many < few + 200_000


def test_the_index_is_ordinary(city, tmp_path):
    prepare_clips(city.paths, tmp_path / "store", features=SMALL)
    with closing(Store(tmp_path / "store", SMALL)) as store:
        assert store.folder.name == SMALL.name
    index = sqlite3.connect(tmp_path / "store" / SMALL.name / "index.db")
    assert index.execute("SELECT count(*) FROM contents").fetchone() == (20,)
    index.close()


@pytest.mark.slow
def test_a_second_run_is_at_least_twenty_times_faster(tmp_path):
    """CPU and wall on one process; measured about a hundredfold, so that a busy machine does not matter."""
    clips = make_city(tmp_path / "city", 60, seed=3, rate=44_100, seconds=2.0)
    features = Features(decoding=Decoding(seconds=10.0))
    times = []
    for _ in range(4):
        begin = time.process_time()
        prepare_clips(clips.paths, tmp_path / "store", features=features)
        times.append(time.process_time() - begin)
    # So short that one collection of garbage would be all of it: the best of three.
    assert times[0] > 20 * min(times[1:])
