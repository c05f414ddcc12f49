"""Witnesses remember how far a ledger came, never go back, and believe only what their key signed."""

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from tellers import Accountant, Budget, GNMax, Votes, noise, open_ledger
from tellers.errors import LedgerConflict, Unwitnessed
from tellers.ledger import witness as witnesses
from tellers.ledger.base import Head
from tellers.ledger.witness import Anchor, FileWitness, HttpWitness, Seen, last, open_witness
from tellers.runs import Room

LEDGER, OTHER = "a" * 64, "b" * 64


def head(number, said="0"):
    return Head(number, f"{number:x}{said}".rjust(64, "0"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "heads"


@pytest.fixture(params=["file", "table", "http"])
def witness(request, tmp_path):
    """Every kind of witness."""
    if request.param == "file":
        yield FileWitness(tmp_path / "heads")
    elif request.param == "table":
        sa = pytest.importorskip("sqlalchemy")
        from tellers.ledger.sql._witness import TableWitness, make_table

        engine = sa.create_engine(f"sqlite:///{tmp_path}/witness.db")
        make_table(engine)
        yield TableWitness(engine.begin, name="a table")
        engine.dispose()
    else:
        pytest.importorskip("cryptography")
        with serving(tmp_path / "witness") as (server, url):
            yield open_witness(url, token_file=str(server.token_file), public_key=server.public_key)


@contextmanager
def serving(folder, port=0):
    """Run a witness server in a thread; what it says may be changed by `server.answer`."""
    from tellers.ledger._witness_server import WitnessServer

    server, ready, told = WitnessServer(folder), threading.Event(), {}

    async def run():
        told["loop"], told["stop"] = asyncio.get_running_loop(), asyncio.Event()
        opened = await asyncio.start_server(server._take, "127.0.0.1", port, limit=4096)
        told["port"] = opened.sockets[0].getsockname()[1]
        ready.set()
        await told["stop"].wait()
        opened.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server, f"http://127.0.0.1:{told['port']}"
    finally:
        told["loop"].call_soon_threadsafe(told["stop"].set)
        thread.join(10)


def test_a_witness_never_goes_back(witness):
    assert last(witness, LEDGER) is None
    assert witness.note(LEDGER, head(5)).head == head(5)
    assert witness.note(LEDGER, head(9)).head == head(9)
    # Out of order: nothing changes, and whoever noted it learns how far the ledger is.
    assert witness.note(LEDGER, head(7)).head == head(9)
    assert last(witness, LEDGER).head == head(9)
    assert witness.note(LEDGER, head(9)).head == head(9)
    with pytest.raises(LedgerConflict, match="two histories"):
        witness.note(LEDGER, head(9, "1"))
    assert last(witness, LEDGER).head == head(9)
    assert last(witness, OTHER) is None


def test_a_witness_notes_nothing_for_who_does_not_know_what_it_saw(witness):
    assert witness.note(LEDGER, head(3), after=head(1)).head == head(3)  # it knew nothing
    assert witness.note(LEDGER, head(5), after=head(3)).head == head(5)
    # Two that went on from line 3: the other one is told of line 5, also if it wrote more at once.
    assert witness.note(LEDGER, head(9, "1"), after=head(3)).head == head(5)
    assert witness.note(LEDGER, head(9, "1"), after=head(5, "1")).head == head(5)
    assert last(witness, LEDGER).head == head(5)
    assert witness.note(LEDGER, head(9), after=head(5)).head == head(9)


def test_a_witness_begins_anew_only_where_it_is_told_what_is_given_up(witness):
    witness.note(LEDGER, head(50))
    witness.note(OTHER, head(3))
    with pytest.raises(LedgerConflict, match="saw another"):
        witness.trust(LEDGER, head(8), instead_of=Seen(*head(49), ""))
    with pytest.raises(LedgerConflict, match="saw another"):
        witness.trust("c" * 64, head(8), instead_of=Seen(*head(50), ""))
    assert last(witness, LEDGER).head == head(50)
    witness.trust(LEDGER, head(8, "1"), instead_of=last(witness, LEDGER))
    assert [seen.head for seen in witness.history(LEDGER)] == [head(8, "1")]
    assert witness.note(LEDGER, head(10, "1")).head == head(10, "1")
    assert last(witness, OTHER).head == head(3)


def test_history_reaches_back(witness):
    for number in range(200):
        witness.note(LEDGER, head(number))
    numbers = [seen.number for seen in witness.history(LEDGER)]
    assert numbers[0] == 199
    assert numbers == sorted(set(numbers), reverse=True)
    # Three or fewer by chance: nothing was kept at 4, (15/16)^200, and hardly anything beyond; below 1e-5.
    assert 3 < len(numbers) < 30


@pytest.mark.parametrize(
    ("ledger", "noted"),
    [("x", head(1)), (LEDGER, Head(1, "no")), (LEDGER, Head(-1, OTHER)), (LEDGER, Head(2**63, OTHER))],
)
def test_what_is_no_line_is_not_noted(witness, ledger, noted):
    with pytest.raises((ValueError, ConnectionError)):
        witness.note(ledger, noted)
    assert last(witness, LEDGER) is None


# --- A file ---


def test_a_last_line_that_was_cut_short_is_ignored(path):
    FileWitness(path).note(LEDGER, head(1))
    whole = path.read_bytes()
    FileWitness(path).note(LEDGER, head(2))
    n_bytes = path.stat().st_size
    for cut in (1, 2, 40, n_bytes - len(whole) - 1):
        os.truncate(path, n_bytes)
        path.write_bytes(path.read_bytes()[: n_bytes - cut])
        assert last(FileWitness(path), LEDGER).head == head(1)
        witness = FileWitness(path)
        assert witness.note(LEDGER, head(2)).head == head(2)
        assert last(FileWitness(path), LEDGER).head == head(2)
        n_bytes = path.stat().st_size
    # A page that never reached the disk reads as zeros, with or without the end of the line.
    for end in (b"", b"\n"):
        path.write_bytes(whole + bytes(50) + end)
        assert last(FileWitness(path), LEDGER).head == head(1)
        assert path.read_bytes() == whole
    path.write_bytes(whole[:20])
    assert last(FileWitness(path), LEDGER) is None


def test_a_folder_that_is_not_there_is_no_witness_that_saw_nothing(path):
    assert FileWitness(path).history("a" * 64) == []
    with pytest.raises(FileNotFoundError, match=r"Is its disk mounted\?"):
        FileWitness(path / "elsewhere").history("a" * 64)


def test_a_file_that_is_no_witness_is_left_alone(path):
    nested = witnesses._HEADER + b"[" * 200_000 + b"\n\n\n"
    for said in (b"my notes\n", b"my notes", b"SQLite format 3\0", nested):
        path.write_bytes(said)
        with pytest.raises(OSError, match="Nothing was written"):
            FileWitness(path).note(LEDGER, head(1))
        assert path.read_bytes() == said
    path.unlink()
    FileWitness(path).note(LEDGER, head(1))
    FileWitness(path).note(LEDGER, head(2))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:30] + b"\n", lines[2]]))
    with pytest.raises(OSError, match="was changed"):
        last(FileWitness(path), LEDGER)


def test_a_long_file_is_written_anew_and_says_the_same(path, monkeypatch):
    monkeypatch.setattr(witnesses, "_SMALL", 4000)
    one, other = FileWitness(path), FileWitness(path)
    one.note(OTHER, head(99))
    one.trust(OTHER, head(7), instead_of=last(one, OTHER))
    sizes = []
    for number in range(100):
        (one, other)[number % 2].note(LEDGER, head(number))
        sizes.append(path.stat().st_size)
    assert max(sizes) < 9000
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 0
    for each in (one, other, FileWitness(path)):
        assert last(each, LEDGER).head == head(99)
        assert last(each, OTHER).head == head(7)
    assert one.history(LEDGER) == FileWitness(path).history(LEDGER)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_many_who_note_at_once_leave_the_highest(path, monkeypatch):
    monkeypatch.setattr(witnesses, "_SMALL", 3000)
    done = []

    def note(which):
        mine = FileWitness(path)
        for number in range(which, 80, 4):
            done.append(mine.note(LEDGER, head(number)).number >= number)

    threads = [threading.Thread(target=note, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 80
    assert all(done)
    assert last(FileWitness(path), LEDGER).head == head(79)


def test_who_did_not_see_a_file_written_anew_reads_all_of_it(path, monkeypatch):
    """The number of a file that is gone is given to another one, longer than what was read of the first."""
    monkeypatch.setattr(witnesses, "_SMALL", 2000)
    idle, busy = FileWitness(path), FileWitness(path)
    for number in range(400):
        busy.note(LEDGER, head(number))
        if number % 17 == 0:
            assert last(idle, LEDGER).number == number


def test_a_file_that_cannot_be_written_anew_is_written_on(path, monkeypatch):
    monkeypatch.setattr(witnesses, "_SMALL", 1000)
    tried = []

    def refuse(*given):
        tried.append(given)
        raise PermissionError("the folder is somebody else's")

    monkeypatch.setattr(witnesses, "write_whole", refuse)
    witness = FileWitness(path)
    for number in range(100):
        assert witness.note(LEDGER, head(number)).head == head(number)
    assert 0 < len(tried) < 10


def test_a_link_to_a_witness_stays_one(tmp_path, monkeypatch):
    monkeypatch.setattr(witnesses, "_SMALL", 1000)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other" / "heads")
    witness = FileWitness(tmp_path / "link")
    for number in range(50):
        witness.note(LEDGER, head(number))
    assert (tmp_path / "link").is_symlink()
    assert last(FileWitness(tmp_path / "other" / "heads"), LEDGER).number == 49


def test_a_line_that_was_not_flushed_is_flushed_before_it_is_relied_on(path, monkeypatch):
    killed, witness, flushed = FileWitness(path), FileWitness(path), []
    killed.note(LEDGER, head(1))
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda _: None)
    killed.note(LEDGER, head(2))  # as by one that is killed before it flushes
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(flush(file)))
    assert witness.note(LEDGER, head(2)).head == head(2)
    assert flushed

    def fail(_):
        raise OSError("the disk")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk"):
        witness.note(LEDGER, head(3))
    assert last(FileWitness(path), LEDGER).head == head(2)


def test_a_file_that_another_program_holds_is_not_waited_for_for_ever(path, monkeypatch):
    monkeypatch.setattr(witnesses, "_SECONDS", 0.1)
    witness = FileWitness(path)
    witness.note(LEDGER, head(1))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another program holds it"):
            witness.note(LEDGER, head(2))
    assert witness.note(LEDGER, head(2)).head == head(2)


def test_other_addresses_are_refused_without_being_quoted(tmp_path):
    with pytest.raises(ValueError, match="Expected a path") as caught:
        open_witness("mysql://me:secret@host/x")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="alone"):
        open_witness(tmp_path / "heads", public_key=LEDGER)
    with pytest.raises(ValueError, match="without a user"):
        HttpWitness("http://:secret@host", "token", LEDGER)
    with pytest.raises(ValueError, match="the token of a witness"):
        open_witness("http://127.0.0.1:1", token_file=str(tmp_path / "none"), public_key=LEDGER)


# --- A server ---


@pytest.fixture
def served(tmp_path):
    pytest.importorskip("cryptography")
    with serving(tmp_path / "witness") as (server, url):
        yield server, url


def client(served, **changes):
    server, url = served
    given = {"token": server.token_file.read_text().strip(), "public_key": server.public_key, **changes}
    return HttpWitness(url, given["token"], given["public_key"])


def test_a_receipt_of_another_key_is_not_believed(served, tmp_path):
    from tellers.ledger._witness_server import WitnessServer

    stranger = WitnessServer(tmp_path / "stranger").public_key
    with pytest.raises(ConnectionError, match="not believed"):
        client(served, public_key=stranger).note(LEDGER, head(1))


def test_an_old_receipt_and_another_ledgers_are_not_believed(served, monkeypatch):
    server, _ = served
    witness, answer, old = client(served), server.answer, []

    def record(*given):
        old.append(answer(*given))
        return old[-1]

    monkeypatch.setattr(server, "answer", record)
    witness.note(LEDGER, head(5))
    monkeypatch.setattr(server, "answer", lambda *_: old[0])
    for ask in (lambda: witness.note(LEDGER, head(5)), lambda: witness.history(LEDGER)):
        with pytest.raises(ConnectionError, match="for this very request"):
            ask()

    def of_another(authorization, body):
        # Whoever is in between cannot ask for another ledger either: the request is authenticated.
        return answer(authorization, body.replace(LEDGER.encode(), OTHER.encode()))

    monkeypatch.setattr(server, "answer", of_another)
    with pytest.raises(ConnectionError, match="token"):
        witness.note(LEDGER, head(6))

    def one_behind(authorization, body):
        _, said, _ = answer(authorization, body)
        told = json.loads(said)
        told["history"] = [[4, head(4).hash, "then"]]
        changed = json.dumps(told).encode()
        return 200, changed, server._key.sign(changed).hex()

    monkeypatch.setattr(server, "answer", one_behind)
    with pytest.raises(ConnectionError, match="got another"):
        witness.note(LEDGER, head(6))


def test_a_changed_receipt_is_not_believed(served, monkeypatch):
    server, _ = served
    answer = server.answer
    monkeypatch.setattr(
        server, "answer", lambda *given: (lambda s, b, t: (s, b.replace(b"5", b"6", 1), t))(*answer(*given))
    )
    with pytest.raises(ConnectionError, match="not believed"):
        client(served).note(LEDGER, head(0x5))


def test_strangers_cannot_note(served):
    with pytest.raises(ConnectionError, match="token"):
        client(served, token="guessed").note(LEDGER, head(10**9))
    assert last(client(served), LEDGER) is None


def test_a_second_history_is_refused_by_a_server_too(served):
    client(served).note(LEDGER, head(5))
    with pytest.raises(LedgerConflict, match="two histories"):
        client(served).note(LEDGER, head(5, "1"))


def test_a_server_goes_on_with_what_it_saw(tmp_path):
    pytest.importorskip("cryptography")
    keys = []
    for number in (3, 2):
        with serving(tmp_path / "witness") as served:
            keys.append(served[0].public_key)
            client(served).note(LEDGER, head(number))
            assert last(client(served), LEDGER).head == head(3)
    assert keys[0] == keys[1]
    for secret in ("token", "signing.key", "heads"):
        assert (tmp_path / "witness" / secret).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"x" * 10_000,
    ],
)
def test_requests_that_are_none_change_nothing(served, sent):
    port = int(served[1].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(sent)
        said = line.recv(1000)
    assert said == b"" or said.split()[1] in (b"400", b"401")
    assert client(served).note(LEDGER, head(1)).number == 1


@pytest.mark.parametrize(
    "drop", [b"HTTP/1.1 100 Continue\r\n\r\n", b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"]
)
def test_a_server_whose_answer_never_ends_is_not_waited_for(served, drop):
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def drip():
            line, _ = slow.accept()
            with line, contextlib.suppress(OSError):
                while True:
                    line.sendall(drop)
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        witness = HttpWitness(
            f"http://127.0.0.1:{slow.getsockname()[1]}", "token", served[0].public_key, timeout=0.5
        )
        begun = time.monotonic()
        with pytest.raises(ConnectionError, match="it does not"):
            witness.note(LEDGER, head(1))
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("secret", ["token", "signing.key"])
def test_a_secret_that_was_cut_short_is_none(tmp_path, secret):
    """A disk that was full at the first start leaves an empty file, and an empty token is known to all."""
    pytest.importorskip("cryptography")
    from tellers.ledger._witness_server import WitnessServer

    (tmp_path / secret).touch(0o600)
    with pytest.raises(ValueError, match="cut short"):
        WitnessServer(tmp_path)


def test_who_is_slow_is_let_go_and_others_are_answered(served, monkeypatch):
    from tellers.ledger import _witness_server

    monkeypatch.setattr(_witness_server, "_SECONDS", 0.2)
    port = int(served[1].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(b"POST / HTT")
        assert client(served).note(LEDGER, head(1)).number == 1
        assert line.recv(10) == b""


# --- A ledger and its witness ---


@dataclass
class Away:
    """A witness that can be away."""

    witness: FileWitness
    is_away: bool = False
    name: str = "a witness"

    def note(self, ledger, head, *, after=None):
        if self.is_away:
            raise ConnectionError("away")
        return self.witness.note(ledger, head, after=after)

    def history(self, ledger):
        return self.witness.history(ledger)

    def trust(self, ledger, head, *, instead_of):
        self.witness.trust(ledger, head, instead_of=instead_of)


def begin(place):
    return open_ledger(place, Accountant(Budget(2.0, 1e-5)))


def spend(ledger, n=1):
    for _ in range(n):
        ledger.open_account(secrets.token_hex(8), Budget(1.0, 1e-5))


def restored(ledger, old, place):
    """Put what the ledger was at some time in its place, and open it."""
    ledger.close()
    for file in place.parent.glob(place.name + "*"):
        file.unlink()
    place.write_bytes(old)
    return open_ledger(place)


@pytest.fixture
def spent(tmp_path, path):
    """A ledger whose last five lines its witness saw, and what it was before."""
    place = tmp_path / "spend.db"
    ledger = begin(place)
    spend(ledger, 3)
    ledger.close()
    old = place.read_bytes()
    anchor = Anchor(ledger, FileWitness(path))
    anchor.start()
    spend(ledger, 5)
    anchor(ledger.head)
    return ledger, old, place


def test_a_ledger_put_back_is_refused_by_what_is_gone_until_it_is_trusted(spent, path):
    ledger, old, place = spent
    seen = [each.when for each in FileWitness(path).history(Anchor(ledger, FileWitness(path)).key)]
    back = restored(ledger, old, place)
    anchor = Anchor(back, FileWitness(path))
    with pytest.raises(LedgerConflict, match="ends at line 3; 5 lines, 4 to 8, ") as caught:
        anchor.start()
    assert f"after {seen[-1]} and until {seen[0]}" in str(caught.value)
    assert back.head.number == 3
    anchor.start(trusted=True)
    line = list(back.lines())[-1]
    assert line.kind == "trusted"
    [gone] = json.loads(line.body)["gone"]
    assert (gone["first_gone"], gone["last_gone"], gone["seen"]) == (4, 8, seen[0])
    Anchor(back, FileWitness(path)).start()
    assert last(FileWitness(path), anchor.key).head == back.head


def test_a_ledger_that_went_on_from_an_old_copy_is_another_history(spent, path):
    ledger, old, place = spent
    back = restored(ledger, old, place)
    spend(back, 7)
    with pytest.raises(LedgerConflict, match=r"another line 8 .* up to 5 lines, 4 to 8"):
        Anchor(back, FileWitness(path)).start()


def test_a_second_copy_that_is_behind_is_noticed_at_its_first_answer(spent, tmp_path, path):
    ledger, old, _ = spent
    (tmp_path / "copy.db").write_bytes(old)
    copy = open_ledger(tmp_path / "copy.db")
    anchor = Anchor(copy, FileWitness(path))
    spend(copy)
    with pytest.raises(LedgerConflict, match="another copy"):
        anchor(copy.head)
    with pytest.raises(LedgerConflict, match="another copy"):
        anchor.catch_up()
    # The one that is ahead goes on, and so does another program on the same file that notes late.
    late = Anchor(ledger, FileWitness(path))
    earlier = ledger.head
    spend(ledger)
    Anchor(ledger, FileWitness(path))(ledger.head)
    late(earlier)


def test_a_copy_that_writes_many_lines_at_once_does_not_overtake_the_other(spent, tmp_path, path):
    ledger, _, _ = spent
    ledger.close()
    (tmp_path / "copy.db").write_bytes((tmp_path / "spend.db").read_bytes())
    copy = open_ledger(tmp_path / "copy.db")
    one, other = (Anchor(each, FileWitness(path)) for each in (ledger, copy))
    for anchor in (one, other):
        anchor.start()
    spend(ledger, 2)
    one(ledger.head)
    spend(copy, 5)
    for _ in range(2):
        with pytest.raises(LedgerConflict, match="another copy"):
            other(copy.head)
        spend(copy, 5)
    with pytest.raises(LedgerConflict, match="another line"):
        Anchor(copy, FileWitness(path)).start()
    spend(ledger)
    one(ledger.head)
    assert last(FileWitness(path), one.key).head == ledger.head


def test_a_copy_that_is_overtaken_while_it_starts_is_noticed(spent, tmp_path, path, monkeypatch):
    ledger, _, _ = spent
    ledger.close()
    (tmp_path / "copy.db").write_bytes((tmp_path / "spend.db").read_bytes())
    copy, one = open_ledger(tmp_path / "copy.db"), Anchor(ledger, FileWitness(path))
    one.start()
    anchor = Anchor(copy, FileWitness(path))
    require = anchor.require

    def slowly():
        require()
        spend(ledger, 3)
        one(ledger.head)

    monkeypatch.setattr(anchor, "require", slowly)
    with pytest.raises(LedgerConflict, match="another copy"):
        anchor.start()


class Agreed:
    def vote(self, rows):
        return Votes.from_ballots(np.tile(rows, (250, 1)), n_classes=10)


def test_a_program_that_is_behind_another_on_the_same_ledger_tells_what_that_was_told(tmp_path, path):
    """The witness is ahead of what this program saw of the ledger, which is no second history."""
    one = begin(tmp_path / "spend.db")
    with one, open_ledger(tmp_path / "spend.db") as other:
        for ledger in (one, other):
            ledger.anchor = Anchor(ledger, FileWitness(path))
            ledger.anchor.start()
        rooms = [Room(Agreed(), GNMax(sigma=40.0), ledger, noise.secure()) for ledger in (one, other)]
        told = rooms[0].ask([3, 1], key="first")
        assert other.head == one.head
        rooms[0].ask([4, 1], key="second")
        assert rooms[1].ask([3, 1], key="first").labels.tolist() == told.labels.tolist()


def test_a_ledger_keeps_its_witness_when_it_moves(spent, tmp_path, path):
    ledger, old, place = spent
    ledger.close()
    place.rename(tmp_path / "moved.db")
    Anchor(open_ledger(tmp_path / "moved.db"), FileWitness(path), place=OTHER).start()
    (tmp_path / "backup.db").write_bytes(old)
    with pytest.raises(LedgerConflict, match="5 lines"):
        Anchor(open_ledger(tmp_path / "backup.db"), FileWitness(path), place=LEDGER).start()


def test_another_ledger_in_its_place_is_refused(tmp_path, path):
    first, second = begin(tmp_path / "one.db"), begin(tmp_path / "two.db")
    anchor = Anchor(first, FileWitness(path), place=LEDGER)
    anchor.start()
    spend(first, 4)
    anchor.stop()
    new = Anchor(second, FileWitness(path), place=LEDGER)
    with pytest.raises(LedgerConflict, match=r"another ledger .* of which 5 lines, 0 to 4"):
        new.start()
    new.start(trusted=True)
    Anchor(second, FileWitness(path), place=LEDGER).start()


def test_nothing_is_noted_twice_and_nothing_is_forgotten_while_a_witness_is_away(tmp_path, path, monkeypatch):
    ledger, witness = begin(tmp_path / "spend.db"), Away(FileWitness(path))
    anchor = Anchor(ledger, witness)
    anchor.start()
    witness.is_away = True
    spend(ledger)
    with pytest.raises(Unwitnessed, match="ask again with the same key"):
        anchor(ledger.head)
    witness.is_away = False
    with pytest.raises(Unwitnessed):  # it is not asked again at once: others would wait for it, one by one
        anchor.catch_up()
    monkeypatch.setattr(witnesses, "_PAUSE", 0.0)
    anchor._again_at = 0.0
    anchor.catch_up()
    assert last(witness, anchor.key).head == ledger.head


def test_every_so_many_lines(tmp_path, path):
    ledger = begin(tmp_path / "spend.db")
    anchor = Anchor(ledger, FileWitness(path), every=3)
    anchor.start()
    noted = []
    for _ in range(6):
        spend(ledger)
        anchor(ledger.head)
        noted.append(last(FileWitness(path), anchor.key).number)
    assert noted == [0, 0, 3, 3, 3, 6]
    spend(ledger)
    anchor.stop()
    assert last(FileWitness(path), anchor.key).number == 7
