"""What a worker reads of its engine's log, what it leaves in memory, and who may look there."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tellers.errors import LinkFailed
from tellers.parties import _worker
from tellers.parties._link import read_message, write_message
from tellers.parties._worker import LOG_BYTES, Worker, read_new
from tellers.parties.programs import VoteProgram, describe_program


def test_a_log_is_read_once():
    with tempfile.TemporaryFile("w+b", buffering=0) as log:
        log.write(b"one")
        assert read_new(log.fileno()) == "one"
        log.write(b"two")
        assert read_new(log.fileno()) == "two"
        assert read_new(log.fileno()) == ""


@pytest.mark.parametrize(("n_more", "fails"), [(-1, False), (0, True), (1, True)])
def test_a_log_that_may_be_longer_than_what_was_read_fails_the_link(n_more, fails):
    with tempfile.TemporaryFile("w+b", buffering=0) as log:
        log.write(b"x" * (LOG_BYTES + n_more))
        if not fails:
            assert len(read_new(log.fileno())) == LOG_BYTES - 1
        else:
            with pytest.raises(LinkFailed, match="less than 4 MiB of log"):
                read_new(log.fileno())
        assert read_new(log.fileno()) == ""  # the next command begins anew


# --- Memory. ---


class FakeEngine:
    """Keeps what it was given, and fails if it is told to."""

    def __init__(self, fails=False):
        self.fails, self.had, self.bound_to = fails, {}, []

    def run(self, program, inputs, bound_to):
        self.had, self.seen = dict(inputs), {name: table.copy() for name, table in inputs.items()}
        self.bound_to.append(bound_to)
        if self.fails:
            raise LinkFailed("It failed.")
        return inputs["mask"] + 1


class FakeTunnel:
    n_sent = n_received = 0


PROGRAM = VoteProgram(model="linear", task="single", n_features=2, n_outputs=3, batch=1)


@pytest.mark.parametrize("fails", [False, True])
def test_inputs_are_overwritten_after_use_and_models_when_they_are_replaced(fails):
    """They are the very bytes that came through the pipe, so that no copy of them stays behind."""
    worker = Worker(None, str)
    worker._engine, worker._tunnel = FakeEngine(fails), FakeTunnel()
    model = {slot.name: np.full(slot.shape, 7) for slot in PROGRAM.model_slots}
    kept = through_pipe({"do": "model"}, model)[1]
    worker.obey({"do": "model"}, kept)
    head = {"do": "run", "program": describe_program(PROGRAM), "query": "0" * 32, "terms": "0" * 64}
    told, tables = through_pipe(head, {"mask": np.full((1, 3), 5)})
    read = whole_of(tables["mask"]).obj
    assert isinstance(read, bytearray)
    assert np.frombuffer(read, dtype=np.int64).tolist() == [5, 5, 5]
    try:
        worker.obey(told, tables)
    except LinkFailed:
        assert fails
    assert worker._engine.seen["mask"].tolist() == [[5, 5, 5]]  # it was there when it was needed
    assert not tables["mask"].any()
    assert not any(read)
    assert all((table == 7).all() for table in kept.values())  # for the next query
    worker.obey({"do": "model"}, {})
    assert not any(table.any() for table in kept.values())


def test_a_worker_that_ends_by_itself_overwrites_its_model(monkeypatch):
    worker, codes = Worker(None, str), []
    monkeypatch.setattr(_worker.os, "_exit", codes.append)
    model = {"weights": np.full((2, 3), 7)}
    worker.obey({"do": "model"}, model)
    worker.end(3)
    assert codes == [3]
    assert not model["weights"].any()


def through_pipe(head, tables):
    ours, theirs = os.pipe()
    try:
        write_message(theirs, head, tables)
        return read_message(ours, timeout=10.0)
    finally:
        os.close(ours)
        os.close(theirs)


def whole_of(table):
    """Return the memory below an array, down to what owns it."""
    while isinstance(table, np.ndarray) and table.base is not None:
        table = table.base
    return table


# --- Other processes of the same user. ---

SOURCE = str(Path(__file__).parents[2] / "src")
PEEK = """
import ctypes, os, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
try:
    with open(f"/proc/{pid}/mem", "rb"):
        print("read", end=" ")
except PermissionError:
    print("kept out", end=" ")
print("kept out" if libc.ptrace(16, pid, 0, 0) == -1 and ctypes.get_errno() == 1 else "attached")
"""  # 16 is PTRACE_ATTACH


# Takes from a program, before it starts, root's right to trace any other; other users have none.
WITHOUT_TRACING = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""  # PR_CAPBSET_DROP, CAP_SYS_PTRACE


@contextmanager
def started(*words, **options):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TRACING, *words], env=environment, **options
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def peek(process):
    """Return what another process of the same user can do with one."""
    with started("-c", PEEK, str(process.pid), stdout=subprocess.PIPE) as other:
        return other.communicate(timeout=60)[0].decode().strip()


def core_limit(process):
    limits = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
    return next(line for line in limits if line.startswith("Max core file size")).split()[4:6]


@pytest.fixture
def curious():
    """Skip where the system lets nobody in anyway: then it could not be seen whether we close the door."""
    if sys.platform != "linux":
        pytest.skip("other systems have no such switch")
    with started("-c", "import sys; sys.stdin.read()", stdin=subprocess.PIPE) as open_to_all:
        if peek(open_to_all) != "read attached":
            pytest.skip("this system lets no process look into another")


def test_a_worker_is_closed_to_other_processes_before_it_is_told_anything(curious):
    ours, theirs = socket.socketpair()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": [theirs.fileno()]}
    with ours, theirs, started("-m", "tellers.parties._worker", str(theirs.fileno()), **pipes) as worker:
        write_message(worker.stdin.fileno(), {"do": "nothing"})
        assert "failed" in read_message(worker.stdout.fileno(), timeout=60.0)[0]  # it reads commands
        assert peek(worker) == "kept out kept out"
        assert core_limit(worker) == ["0", "0"]


ASK = ["--rows", "rows.npy", "--out", "labels.csv"]


@pytest.mark.parametrize("command", [["guard"], ["answer"], ["ask", *ASK]], ids=lambda words: words[0])
def test_a_party_is_closed_to_other_processes_before_it_reads_anything(curious, tmp_path, command):
    """Its settings are a pipe that nobody has written to: whatever is private would be read after them."""
    place = tmp_path / "party.toml"
    os.mkfifo(place)
    words = ["-m", "tellers", "party", *command, "--config", str(place)]
    with started(*words) as party, open(place, "wb"):  # waits until it reads
        assert peek(party) == "kept out kept out"
        assert core_limit(party) == ["0", "0"]
