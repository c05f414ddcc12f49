"""A whole day of a service: settings, keys, a real server, students on the command line, and its end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tellers import Votes
from tellers.errors import Unsettled
from tellers.service import Client
from tellers.service.client import ServiceError
from tellers.teachers import save_votes
from tellers.testing._ports import free_port

from .. import forked

SOURCE = Path(__file__).resolve().parents[2] / "src"

SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 3

[mechanism]
name = "gnmax"
sigma = 30.0

[ledger]
url = "ledger.db"
epsilon = 3.0
delta = 1e-5

[server]
port = {port}
"""


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TELLERS")}
    return {**kept, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1", "COLUMNS": "200", **more}


@pytest.fixture
def tellers(folder, capsys, monkeypatch):
    """Return a function that runs a command in the folder and returns what it says."""
    from tellers.cli import main

    def run(*words, code=0, key=None):
        with monkeypatch.context() as here:
            here.chdir(folder)
            here.setenv("NO_COLOR", "1")
            here.setenv("COLUMNS", "200")
            here.setenv("TELLERS_KEY", key) if key else here.delenv("TELLERS_KEY", raising=False)
            with pytest.raises(SystemExit) as caught:
                main(words)
        out, err = capsys.readouterr()
        assert caught.value.code == code, out + err
        return out if code == 0 else err

    return run


class Server:
    """A server in a process of its own, and all of its log."""

    def __init__(self, folder, url, code=("-m", "tellers", "serve", "--config", "service.toml")):
        self.url, self.log = url, folder / "service.log"
        with self.log.open("ab") as log:
            self.process = forked.Popen(
                [sys.executable, *code], cwd=folder, stdout=log, stderr=log, env=environment()
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if httpx.get(f"{url}/v1/health", timeout=1, verify=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(timeout=60)


@pytest.fixture
def folder(tmp_path):
    ballots = np.repeat(np.array([[0, 1, 2, 1]]), 400, axis=0)
    save_votes(tmp_path / "votes.npz", Votes.from_ballots(ballots, n_classes=3))
    port = free_port()
    (tmp_path / "service.toml").write_text(SETTINGS.format(port=port))
    (tmp_path / "url").write_text(f"http://127.0.0.1:{port}")
    return tmp_path


def test_a_day_of_a_service(folder, tellers):
    url = (folder / "url").read_text()
    key = tellers("keys", "create", "--name", "alice", "--epsilon", "1.0").strip()
    made = json.loads(tellers("keys", "create", "--name", "otto", "--role", "operator", "--json"))
    assert made["role"] == "operator"
    told = json.loads(tellers("serve", "--check", "--json"))
    assert (told["n_pool"], told["epsilon_left"]) == (4, 3.0)
    server = Server(folder, url)
    try:
        asked = ("ask", "--url", url, "--pool", "0-3", "--name", "day")
        said = tellers(*asked, "--out", "labels.npz", key=key)
        assert "4 labels for 4 queries" in said
        assert "Your account" in said
        with np.load(folder / "labels.npz") as kept:
            assert kept["labels"].tolist() == [0, 1, 2, 1]
            assert kept["rows"].tolist() == [0, 1, 2, 3]
        (folder / "key").write_text(key + "\n")
        again = json.loads(tellers(*asked, "--json", "--key-file", "key"))
        assert (again["labels"], again["replayed"]) == ([0, 1, 2, 1], [True])
        # As many as there is budget for, and what came is kept.
        words = ("ask", "--url", url, "--pool", ",".join(["0"] * 2000), "--batch", "10", "--out", "many.npz")
        refused = tellers(*words, code=2, key=key)
        assert "Your own budget pays for" in refused
        with np.load(folder / "many.npz") as kept:
            assert 10 <= len(kept["labels"]) < 2000
        listed = json.loads(tellers("keys", "list", "--json"))
        number = next(one["id"] for one in listed if one["name"] == "alice")
        assert "Revoked" in tellers("keys", "revoke", number)
        assert "not known, or was revoked" in tellers(*asked, code=2, key=key)
        metrics = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {made['key']}"}).text
        assert "tellers_queries_left" in metrics
        assert "server" not in httpx.get(f"{url}/v1/health").headers
    finally:
        code = server.stop()
    assert code in (0, -signal.SIGTERM)
    log = server.log.read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"serving", "request", "stopped"} <= {line["event"] for line in lines}
    for secret in (key.split("_", 2)[2], made["key"].split("_", 2)[2], "Bearer", "Traceback"):
        assert secret not in log
    assert (folder / "keys.db").stat().st_mode & 0o077 == 0


SLOW = """
import sys, time
from pathlib import Path
from tellers.service import _server as serving, read_settings
from tellers.teachers import VotedPool
vote = VotedPool.vote
def slow(self, rows):
    Path("voting").touch()
    time.sleep(4)
    return vote(self, rows)
VotedPool.vote = slow
serving.serve(read_settings("service.toml"))
"""


@pytest.mark.campaign
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_while_it_is_asked(folder, tellers, how):
    url = (folder / "url").read_text()
    key = tellers("keys", "create", "--name", "alice").strip()
    server = Server(folder, url, ("-c", SLOW))
    got = {}

    def ask():
        try:
            got["answer"] = Client(url, key, retries=0).ask(pool=[0, 2], key="k1")
        except Exception as error:
            got["error"] = error

    asking = threading.Thread(target=ask)
    asking.start()
    deadline = time.monotonic() + 60
    while not (folder / "voting").exists():  # reserved, and the teachers are at it for a while
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.01)
    server.stop(how)
    asking.join()
    again = Server(folder, url)
    try:
        with Client(url, key) as client:
            spent = client.budget()["data"]["epsilon_spent"]
            assert spent > 0
            if how == signal.SIGTERM:
                assert got["answer"].labels.tolist() == [0, 2]  # in flight, and finished
                assert client.ask(pool=[0, 2], key="k1").replayed
            else:
                assert "error" in got
                with pytest.raises(Unsettled, match="charge stands"):
                    client.ask(pool=[0, 2], key="k1")
                assert client.ask(pool=[0, 2], key="k2").labels.tolist() == [0, 2]
    finally:
        again.stop()


def test_tls(folder, tellers):
    openssl = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    if openssl.returncode:
        pytest.skip("no openssl to make a certificate with")
    text = (folder / "service.toml").read_text() + 'tls_cert = "cert.pem"\ntls_key = "key.pem"\n'
    (folder / "service.toml").write_text(text)
    url = (folder / "url").read_text().replace("http:", "https:")
    key = tellers("keys", "create", "--name", "alice").strip()
    server = Server(folder, url)
    try:
        said = tellers("ask", "--url", url, "--pool", "2", "--ca", "cert.pem", "--json", key=key)
        assert json.loads(said)["labels"] == [2]
        headers = httpx.get(f"{url}/v1/health", verify=False).headers
        assert headers["Strict-Transport-Security"].startswith("max-age")
        with pytest.raises(ServiceError, match=r"not trusted \(self-signed certificate\).*--ca FILE"):
            Client(
                url, key, sleep=pytest.fail
            ).budget()  # nobody vouches for it, and trying again would not help
    finally:
        server.stop()


def test_a_key_in_a_file_is_for_its_owner_alone(folder):
    words = [sys.executable, "-m", "tellers", "keys", "create", "--name", "alice"]
    with (folder / "alice.key").open("w") as out:
        os.fchmod(out.fileno(), 0o644)
        forked.run(words, cwd=folder, stdout=out, env=environment(), check=True)
    assert (folder / "alice.key").read_text().startswith("tlr_")
    assert (folder / "alice.key").stat().st_mode & 0o777 == 0o600


def test_a_key_in_a_file_of_somebody_else_comes_with_a_warning(folder, monkeypatch, capsys):
    from tellers.cli import main

    def refuse(*_given):
        raise PermissionError

    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.chdir(folder)
    for mode, is_open in ((0o644, True), (0o600, False)):
        with (folder / "alice.key").open("w") as out, monkeypatch.context() as here:
            (folder / "alice.key").chmod(mode)
            here.setattr(sys, "stdout", out)
            with pytest.raises(SystemExit) as caught:
                main(["keys", "create", "--name", "alice"])
        assert caught.value.code == 0
        assert (folder / "alice.key").read_text().startswith("tlr_")
        assert ("chmod 600" in " ".join(capsys.readouterr().err.split())) == is_open


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ask", "--url", "http://127.0.0.1:1", "--pool", "0"), "TELLERS_KEY"),
        (("ask", "--url", "http://127.0.0.1:1"), "either --rows"),
        (("ask", "--url", "http://127.0.0.1:1", "--pool", "3-1"), "Expected ids"),
        (("ask", "--url", "http://127.0.0.1:1", "--rows", "nowhere.npy"), "nowhere.npy"),
        (("keys", "create"), "Missing option '--name'"),
        (("keys", "create", "--name", "a", "--role", "king"), "Expected a role"),
        (("keys", "create", "--name", "a", "--role", "auditor", "--epsilon", "1"), "cannot spend"),
        (("keys", "create", "--name", "a", "--delta", "1e-5"), "Expected --epsilon"),
        (("keys", "revoke"), "Missing argument 'ID'"),
        (("keys", "revoke", "nobody"), "id of a key"),
        (("keys", "list", "--config", "nowhere.toml"), "tellers serve --init"),
        (("serve", "--config", "nowhere.toml"), "tellers serve --init"),
        (("serve", "--init", "service.toml"), "is there already"),
    ],
)
def test_slips_on_the_command_line_are_explained(folder, words, said, capsys, monkeypatch):
    from tellers.cli import main

    monkeypatch.chdir(folder)
    monkeypatch.delenv("TELLERS_KEY", raising=False)
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_budget_is_for_good(folder, capsys, monkeypatch):
    from tellers.cli import main

    monkeypatch.chdir(folder)
    for words, code in (
        (("keys", "create", "--name", "bob", "--epsilon", "1"), 0),
        (("keys", "create", "--name", "bob", "--epsilon", "1"), 0),
        (("keys", "create", "--name", "bob", "--epsilon", "2"), 2),
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == code
    assert "stays" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(("keys", "list", "--json"))
    listed = json.loads(capsys.readouterr().out)
    # The key whose budget was refused would have none: it opens nothing.
    assert [one["revoked"] is None for one in listed] == [True, True, False]


def test_a_written_file_can_be_read(folder, capsys, monkeypatch):
    from tellers.cli import main
    from tellers.service import ServiceSettings, read_settings

    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as caught:
        main(("serve", "--init", "new.toml"))
    assert caught.value.code == 0
    assert read_settings(folder / "new.toml") == ServiceSettings()
