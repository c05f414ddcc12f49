"""Votes in a folder of parts: what comes back, what a crash leaves, and what is refused."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import GNMax, Votes, exact_cost
from tellers.accounting import exact_cost_of_parts
from tellers.errors import FolderInUse
from tellers.teachers import Ensemble, VoteWriter, read_votes, stored_votes, vote_in_parts
from tellers.teachers import store as parts
from tellers.teachers.models import ConstantTeacher

from .. import forked

ROOT = Path(__file__).resolve().parents[2]


def votes_of(seed, n_queries, n_teachers=7, n_classes=4):
    ballots = np.random.default_rng(seed).integers(0, n_classes, (n_teachers, n_queries))
    return Votes.from_ballots(ballots, n_classes=n_classes)


def written(folder, pieces, **options):
    with VoteWriter(folder, **options) as writer:
        for piece in pieces:
            writer.append(piece)
    return stored_votes(folder)


def interrupted(folder, piece):
    def then_fail():
        yield piece
        raise RuntimeError("out of power")

    with pytest.raises(RuntimeError, match="out of power"):
        written(folder, then_fail())


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), kept=st.booleans())
@settings(max_examples=20)
def test_what_was_written_is_read(tmp_path_factory, sizes, kept):
    pieces = [votes_of(n, size) for n, size in enumerate(sizes)]
    stored = written(tmp_path_factory.mktemp("votes") / "new", pieces, ballots=kept)
    assert (len(stored), stored.sizes, stored.has_ballots) == (sum(sizes), tuple(sizes), kept)
    for mine, piece in zip(stored.parts(), pieces, strict=True):
        np.testing.assert_array_equal(mine.counts, piece.counts)
        assert (mine.ballots is not None) == kept
        if kept:
            np.testing.assert_array_equal(mine.ballots, piece.ballots)
    assert all(part.ballots is None for part in stored.parts(ballots=False))
    assert [len(part) for part in stored.parts(1, 3)] == sizes[1:3]
    everything = np.concatenate([piece.counts for piece in pieces])
    np.testing.assert_array_equal(stored.tallies().counts, everything)
    np.testing.assert_array_equal(read_votes(stored.folder).votes.counts, everything)


@pytest.mark.parametrize("kept", [True, False])
def test_stored_votes_cost_what_votes_in_memory_cost(tmp_path, kept):
    votes = votes_of(3, 60, n_teachers=50)
    stored = written(tmp_path / "votes", [votes[:25], votes[25:26], votes[26:]])
    whole = votes if kept else Votes.from_counts(votes.counts, n_teachers=50)
    mine = exact_cost_of_parts(GNMax(5.0), stored.parts(ballots=kept))
    np.testing.assert_allclose(
        mine.cost.reveal().values, exact_cost(GNMax(5.0), whole).cost.reveal().values, rtol=1e-12
    )


def test_only_the_owner_may_read(tmp_path):
    stored = written(tmp_path / "votes", [votes_of(1, 3)])
    assert stored.folder.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in stored.folder.iterdir())
    assert "private" in repr(stored)


# Interrupted ------------------------------------------------------------------------------------------------


def test_unfinished_votes_are_not_read_and_can_be_continued(tmp_path):
    folder, pieces = tmp_path / "votes", [votes_of(n, 5) for n in range(3)]
    interrupted(folder, pieces[0])
    with pytest.raises(ValueError, match="interrupted"):
        stored_votes(folder)
    with pytest.raises(ValueError, match="interrupted"):
        read_votes(folder)
    with pytest.raises(ValueError, match=r"unfinished ones\. Continue"), VoteWriter(folder):
        pass
    with pytest.raises(ValueError, match="as they were begun, with ballots"):
        written(folder, [], ballots=False, resume=True)
    with VoteWriter(folder, resume=True) as writer:
        assert writer.n_queries == 5
        for piece in pieces[1:]:
            writer.append(piece)
    ballots = np.concatenate([part.ballots for part in stored_votes(folder).parts()], axis=1)
    np.testing.assert_array_equal(ballots, np.concatenate([piece.ballots for piece in pieces], axis=1))
    with pytest.raises(ValueError, match="finished ones"):
        written(folder, pieces, resume=True)


def test_a_part_without_its_counts_is_no_part(tmp_path, monkeypatch):
    folder, real = tmp_path / "votes", parts.save_votes

    def full_disk(path, votes):
        if path.name == "counts-00000001.npz":
            raise OSError(28, "No space left on device")
        real(path, votes)

    monkeypatch.setattr(parts, "save_votes", full_disk)
    with pytest.raises(OSError, match="No space"):
        written(folder, [votes_of(1, 4), votes_of(2, 4)])
    assert (folder / "ballots-00000001.npz").exists()
    monkeypatch.undo()
    with VoteWriter(folder, resume=True) as writer:
        assert writer.n_queries == 4
        writer.append(votes_of(3, 4))
    _, last = stored_votes(folder).parts()
    np.testing.assert_array_equal(last.ballots, votes_of(3, 4).ballots)


class Slow:
    """Teachers whose ballot on a row is a function of the row."""

    def vote(self, X):
        return Votes.from_ballots((X[:, 0] * np.arange(1, 31)[:, None]) % 7, n_classes=7)


KILLED = f"""
import sys
import numpy as np
from tellers import Votes
from tellers.teachers import vote_in_parts

{inspect.getsource(Slow)}
vote_in_parts(Slow(), np.arange(400)[:, None], sys.argv[1], n_queries=5, resume=True)
"""


def test_killed_again_and_again_the_votes_are_the_same(tmp_path):
    """SIGKILL wherever it falls; three times, then left to finish."""
    folder = tmp_path / "votes"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", KILLED, str(folder)]
    for n_parts in (3, 17, 40):
        process = forked.Popen(command, env=environment)
        end = time.monotonic() + 60
        while len(list(folder.glob("counts-*.npz"))) < n_parts and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if json.loads((folder / "votes.json").read_text())["sizes"] is not None:
            break  # it was faster than we are, and that is allowed
        with pytest.raises(ValueError, match="interrupted"):
            stored_votes(folder)
    else:
        forked.run(command, env=environment, check=True, timeout=60)
    rows = np.arange(400)[:, None]
    ballots = np.concatenate([part.ballots for part in stored_votes(folder).parts()], axis=1)
    np.testing.assert_array_equal(ballots, Slow().vote(rows).ballots)
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*.tmp"))


def test_one_writer_at_a_time(tmp_path):
    with VoteWriter(tmp_path / "votes") as writer:
        writer.append(votes_of(1, 2))
        with (
            pytest.raises(FolderInUse, match="another writer of votes"),
            VoteWriter(tmp_path / "votes", resume=True),
        ):
            pass
    assert len(stored_votes(tmp_path / "votes")) == 2


# Refused ----------------------------------------------------------------------------------------------------


def test_parts_of_other_teachers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="7 teachers on 4 classes"):
        written(tmp_path / "a", [votes_of(1, 2), votes_of(1, 2, n_teachers=8)])
    with pytest.raises(ValueError, match="weighted"):
        written(tmp_path / "b", [votes_of(1, 2).weighted(np.arange(1, 8))])
    with pytest.raises(ValueError, match="counts alone"):
        written(tmp_path / "c", [Votes.from_counts([[1, 1]], n_teachers=2)])
    with pytest.raises(ValueError, match="at least one part"):
        written(tmp_path / "d", [])


def test_damage_is_seen(tmp_path):
    stored = written(tmp_path / "votes", [votes_of(1, 50), votes_of(2, 50)])
    place = stored.folder / "ballots-00000001.npz"
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(bytes(content))
    assert len(list(stored.parts(ballots=False))) == 2
    with pytest.raises(ValueError, match="damaged"):
        list(stored.parts())
    other = written(tmp_path / "other", [votes_of(3, 50)])
    place.write_bytes((other.folder / "ballots-00000000.npz").read_bytes())
    with pytest.raises(ValueError, match=r"part 1 in .* is another"):
        list(stored.parts())


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"sizes": [0]}, {"sizes": "all"}, {"n_teachers": "7"}, {"ballots": 1}]
)
def test_a_strange_head_is_refused(tmp_path, change):
    stored = written(tmp_path / "votes", [votes_of(1, 3)])
    place = stored.folder / "votes.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with pytest.raises(ValueError, match="head of a folder of votes"):
        stored_votes(stored.folder)


def test_ballots_that_were_not_kept_are_not_made_up(tmp_path):
    stored = written(tmp_path / "votes", [votes_of(1, 3)], ballots=False)
    with pytest.raises(ValueError, match="counts alone were kept"):
        next(stored.parts(ballots=True))
    with pytest.raises(ValueError, match="written with, 4, got 5"):
        read_votes(stored.folder, n_classes=5)


# An ensemble ------------------------------------------------------------------------------------------------


def test_an_ensemble_votes_in_parts(tmp_path):
    ensemble, seen = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3), []
    stored = vote_in_parts(ensemble, np.zeros((7, 2)), tmp_path / "v", n_queries=3, progress=seen.append)
    assert (stored.sizes, seen) == ((3, 3, 1), [3, 3, 1])
    interrupted(tmp_path / "w", ensemble.vote(np.zeros((5, 2))))
    with pytest.raises(ValueError, match="fewer than were voted on"):
        vote_in_parts(ensemble, np.zeros((4, 2)), tmp_path / "w", resume=True)
    assert vote_in_parts(ensemble, np.zeros((7, 2)), tmp_path / "w", resume=True).sizes == (5, 2)


# Scale ------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_queries(tmp_path):
    def peak(n_parts):
        tracemalloc.start()
        try:
            with VoteWriter(tmp_path / str(n_parts)) as writer:
                for i in range(n_parts):
                    writer.append(votes_of(i, 256, n_teachers=300))
            stored = stored_votes(tmp_path / str(n_parts))
            exact_cost_of_parts(GNMax(12.0), stored.parts(), orders=[2.0, 8.0])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(8)  # tables of the noise are made once
    assert peak(32) < 1.1 * peak(12)


def test_the_benchmark_of_scale_runs_within_its_limit():
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--queries", "1500", "--teachers", "300"],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "exact, each teacher" in done.stdout
    assert "address space limited to 2 GiB" in done.stdout
