"""Several processes of one service: one address, one ledger, one set of counts, and nobody left behind."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tellers import Votes
from tellers.service import Client
from tellers.service._keys import KeyStore
from tellers.teachers import save_votes
from tellers.testing._ports import free_port

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PER_ADDRESS = 10
SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 3
[mechanism]
name = "gnmax"
sigma = 40.0
[ledger]
url = "ledger.db"
epsilon = 5.0
delta = 1e-5
[limits]
connections_per_address = {per_address}
[server]
port = {port}
workers = 2
log_level = "warning"
"""


@pytest.fixture
def served(tmp_path):
    """Serve with two workers; give process, address and the store of keys."""
    port = free_port()
    save_votes(tmp_path / "votes.npz", Votes.from_counts([[30, 5, 5], [3, 30, 7]] * 20, n_teachers=40))
    (tmp_path / "service.toml").write_text(SETTINGS.format(port=port, per_address=PER_ADDRESS))
    store = KeyStore(str(tmp_path / "keys.db"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tellers", "serve", "--config", str(tmp_path / "service.toml")]
    )
    try:
        until(lambda: len(workers(process)) == 2 and answers(port))
        yield process, f"http://127.0.0.1:{port}", store
    finally:
        process.kill()
        process.wait()
        store.close()


def workers(process):
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in told]


def answers(port):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/v1/health").status_code == 200
    return False


def until(happened, seconds=60.0):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_they_share_address_ledger_counts_and_sessions_and_end_together(served):
    process, url, store = served
    port = int(url.rpartition(":")[2])
    student, operator = store.create("alice", "student")[0], store.create("otto", "operator")[0]
    for n in range(12):  # each over a connection of its own, which either of them may take
        assert len(Client(url, student).ask(pool=[n], key=f"q{n}").labels) == 1
    told = {"Authorization": f"Bearer {operator}"}
    for _ in range(4):
        text = httpx.get(f"{url}/metrics", headers=told).text
        assert re.search(r'tellers_labels_total\{outcome="answered"\} 12\.0', text)
        assert httpx.get(f"{url}/v1/releases", headers=told).json()["total"] == 12
    # A sign-in holds with whoever answers, and so does its end.
    page = httpx.get(f"{url}/dashboard/sign-in")
    form = re.search(r'name="form" value="([0-9a-f]{64})"', page.text)[1]
    signed = httpx.post(
        f"{url}/dashboard/sign-in", data={"form": form, "key": operator}, cookies=dict(page.cookies)
    )
    assert signed.status_code == 303
    for _ in range(6):
        assert httpx.get(f"{url}/dashboard", cookies=dict(signed.cookies)).status_code == 200
    # One that is killed is replaced, and nobody's answers are lost.
    first, second = workers(process)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(workers(process)) == 2 and first not in workers(process) and answers(port))
    assert second in workers(process)
    for n in range(12):
        assert Client(url, student).ask(pool=[n], key=f"q{n}").replayed
    process.terminate()
    assert process.wait(60) == 0
    assert not answers(port)


def test_nobody_is_left_where_the_parent_is_killed(served):
    process, url, _store = served
    left = workers(process)
    process.kill()
    until(lambda: not any(map(is_there, left)))
    assert not answers(int(url.rpartition(":")[2]))


def test_what_keeps_the_first_from_serving_is_said_in_plain_words(tmp_path):
    (tmp_path / "service.toml").write_text(SETTINGS.format(port=free_port(), per_address=0))
    done = subprocess.run(
        [sys.executable, "-m", "tellers", "serve", "--config", str(tmp_path / "service.toml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert "votes.npz" in done.stderr
    assert "Traceback" not in done.stderr


PARENT = """\
import os, signal, sys, time
from tellers.service._workers import run_workers

fork, n_forked = os.fork, 0

def forked():
    global n_forked
    process, n_forked = fork(), n_forked + 1
    if n_forked == {at} and process:
        os.kill(os.getpid(), signal.SIGTERM)
    return process

def work(share):
    os.read(share.lifeline, 1) if share.is_first and {at} == 1 else None
    ended, end = [], time.monotonic() + 60
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    share.tell()
    while not ended and time.monotonic() < end:
        time.sleep(0.01)

os.fork = forked
sys.exit(run_workers(2, [], work))
"""


@pytest.mark.parametrize("at", [1, 2])
def test_a_signal_that_comes_as_one_begins_ends_all_the_same(at):
    process = subprocess.Popen([sys.executable, "-c", PARENT.format(at=at)])
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()


LATE = """\
import os, sys
from tellers.service._workers import run_workers

def work(share):
    if share.is_first:
        share.tell()
        [os.open("books", os.O_RDWR) for _ in range(9)]
        raise OSError("late")

sys.exit(run_workers(1, [], work))
"""


def test_what_fails_later_is_written_into_no_file_that_was_opened_since(tmp_path):
    (tmp_path / "books").write_text("what was spent")
    done = subprocess.run(
        [sys.executable, "-c", LATE], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "late" in done.stderr
    assert (tmp_path / "books").read_text() == "what was spent"


def test_who_comes_while_they_end_is_refused_at_once(served):
    process, url, store = served
    port, token = int(url.rpartition(":")[2]), store.create("alice", "student")[0]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        head = f"POST /v1/labels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\n".encode())
        line.sendall(b"Content-Length: 40\r\nExpect: 100-continue\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 100")
        process.terminate()
        until(lambda: is_refused(port), 10)
        assert process.poll() is None
        line.sendall(b'{"idempotency_key": "last", "pool": [0]}')
        assert line.recv(100).startswith(b"HTTP/1.1 200")
    assert process.wait(60) == 0


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_one_address_has_no_more_strangers_than_it_may_over_all_of_them(served):
    process, url, _store = served
    port, lines = int(url.rpartition(":")[2]), []
    first, second = workers(process)
    try:
        for stopped in (first, second):
            os.kill(stopped, signal.SIGSTOP)
            for _ in range(20):
                lines.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            until(lambda: sum(map(is_open, lines)) <= PER_ADDRESS, 8)  # before a deadline ends them
            os.kill(stopped, signal.SIGCONT)
    finally:
        os.kill(first, signal.SIGCONT)
        os.kill(second, signal.SIGCONT)
        for line in lines:
            line.close()


def is_open(line):
    line.setblocking(False)
    try:
        return line.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
