"""How a service begins: what it says to people and to machines, and a database that is not there yet."""

import io
import json
import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from tellers.cli import main
from tellers.cli import serve as welcome
from tellers.ledger.sql import wait_until_there
from tellers.service import KeysConfig, LedgerConfig, VaultConfig, _server, create_app, write_settings
from tellers.service._ledger import wait_for_databases
from tellers.service._logs import _OTHERS

from .. import forked

SRC = Path(__file__).resolve().parents[2] / "src"
NOBODY = "postgresql://team:very-secret@127.0.0.1:1/privacy"


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TELLERS")}
    return {**kept, "PYTHONPATH": str(SRC), "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}


def settings_file(place, tmp_path, **server):
    chosen = replace(place.settings, server=replace(place.settings.server, **server))
    (tmp_path / "service.toml").write_text(write_settings(chosen))


def serve(tmp_path, *words, **streams):
    return forked.Popen(
        [sys.executable, "-m", "tellers", "serve", "--config", "service.toml", *words], cwd=tmp_path,
        env=environment(), **streams,
    )  # fmt: skip


def until(look, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def answers(url):
    try:
        return httpx.get(f"{url}/v1/health", timeout=1).status_code == 200
    except httpx.TransportError:
        return False


def test_a_person_is_told_where_and_what(place, tmp_path, find_leaks):
    """On a terminal, with any free port: the address is the one that answers."""
    settings_file(place, tmp_path, port=0)
    ours, theirs = pty.openpty()
    process = serve(tmp_path, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    said = bytearray()

    def listen():
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is gone
                return
            if not more:
                return
            said.extend(more)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        words = until(lambda: said.decode() if b"Ctrl-C ends it" in said else "")
        address = words.split("/v1/labels")[0].rpartition(" ")[2]
        assert address.startswith("http://127.0.0.1:")
        assert not address.endswith(":0")
        assert until(lambda: answers(address))
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
        listener.join(timeout=60)
        os.close(ours)
    assert code in (0, -signal.SIGINT, 130)
    for part in (
        f"{address}/dashboard", f"{address}/v1/openapi.json", "GNMax(sigma=150.0)", "ledger.db",
        "20,011 (votes: votes.npz)", "of 2 at delta 1e-05 is spent", "more queries at this setting",
        "exact costs are not kept", "tellers keys create",
    ):  # fmt: skip
        assert part in words
    assert not find_leaks(said.decode())


@pytest.fixture
def logs_as_before():
    """Put back whom the web server and libraries log to."""
    loggers = [logging.getLogger(name) for name in _OTHERS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (logger.handlers, logger.propagate, level) in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("logs_as_before")
def test_a_port_that_is_taken_is_an_error(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = replace(place.settings.server, port=taken.getsockname()[1])
        with pytest.raises(SystemExit) as caught:
            _server.serve(replace(place.settings, server=server), log_stream=place.log)
    assert caught.value.code
    assert "address already in use" in place.log.getvalue()


def test_the_words_of_the_beginning(place, monkeypatch):
    """Also with a database, whose password is not said, and with a vault and keys."""
    place.key("alice")
    with place.open() as client:
        service = client.app.state.service
        told = welcome.facts(service, "http://127.0.0.1:8420")
        assert "keys" not in told
        far = replace(
            service, settings=replace(
                service.settings, vault=VaultConfig(path="costs.sealed", key_env="K"),
                ledger=LedgerConfig(url=NOBODY, name="study", epsilon=2.0, delta=1e-5),
            ),
        )  # fmt: skip
        monkeypatch.setattr(service.labels, "served", replace(service.labels.served, ledger=NOBODY))
        told = welcome.facts(far, "http://127.0.0.1:8420")
    assert told["ledger"] == "'study' in privacy on 127.0.0.1:1"
    assert told["vault"] == "costs.sealed"
    assert "very-secret" not in str(told)


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "//localhost:9"), ("::", "//localhost:9"), ("10.1.2.3", "//10.1.2.3:9")]
)
def test_an_address_that_is_everywhere_is_shown_as_one_that_can_be_visited(place, capsys, host, shown):
    with place.open() as client:
        service = client.app.state.service
        server = replace(service.settings.server, host=host, port=9, plain_http=True)
        welcome.announce(replace(service, settings=replace(service.settings, server=server)), server.address)
    assert f"http:{shown}/dashboard" in capsys.readouterr().err


def test_a_database_that_stays_away_ends_the_start_with_a_clear_error(place, tmp_path, capsys, monkeypatch):
    there = replace(place.settings, keys=KeysConfig(store=NOBODY))
    (tmp_path / "service.toml").write_text(write_settings(there))
    begun = time.monotonic()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(("serve", "--config", "service.toml", "--wait", "1.5"))
    out, said = capsys.readouterr()
    assert caught.value.code == 1
    assert out == ""
    assert time.monotonic() - begun >= 1.5
    assert "privacy on 127.0.0.1:1 within 1.5 seconds" in said
    assert "--wait" in said
    assert json.loads(said.splitlines()[0])["event"] == "waiting for a database"
    assert "very-secret" not in said
    assert "Traceback" not in said


def test_a_database_that_comes_up_is_waited_for(place, postgres, own_database):
    """Somebody listens who is no server yet; then the server is there."""
    said = []
    chosen = replace(
        place.settings, keys=KeysConfig(store=own_database),
        ledger=LedgerConfig(url=own_database, name="labels", epsilon=2.0, delta=1e-5),
    )  # fmt: skip
    postgres.stop()
    starter = threading.Timer(3.0, postgres.start)
    starter.start()
    try:
        app = create_app(
            chosen, log_stream=io.StringIO(), wait=60.0, waiting=lambda *words: said.append(words)
        )
    finally:
        starter.join()
    assert app.state.service.labels.budget_status().epsilon == 2.0
    app.state.service.labels.close()
    app.state.service.authenticator.store.close()
    assert said
    assert all(0 <= left <= 60 for _, left in said)


def test_a_server_that_keeps_us_out_is_not_waited_for(own_database):
    wrong = own_database.rsplit("/", 1)[0] + "/no_such_database"
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match="let in"):
        wait_until_there(wrong, 30.0)
    assert time.monotonic() - begun < 20
    wait_until_there(own_database, 0.0)


def test_files_are_not_waited_for(place):
    wait_for_databases(place.settings, place.settings.place("ledger.db"), 30.0, say=pytest.fail)


def test_waiting_is_said_now_and_then():
    out = io.StringIO()
    say = welcome.waiting(Console(file=out, width=200))
    for left in (30.0, 29.5, 29.0):
        say("privacy on db.example", left)
    assert out.getvalue().count("Waiting for PostgreSQL: privacy on db.example") == 1
    assert "30 more seconds" in out.getvalue()
