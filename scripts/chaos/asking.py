"""Askers and clerks: they ask questions, make keys and revoke them, and note what they were told."""

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from breaking import spoil
from ground import RATE, Ground, Space
from witness import Journal, watch_votes

from tellers import noise
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
from tellers.runs import Room
from tellers.service import Client
from tellers.service._keys import KeyStore
from tellers.service.client import ServiceError

_PATIENCE = 1.0  # seconds to wait for whoever is at the same question

Ask = Callable[[int], tuple[Sequence[int], list[Any]]]
"""Returns labels, and number and hash of the ledger's last line where it is at hand."""


def ask_ground(ground: Ground, numbers: Sequence[int], life: int, seed: int) -> None:
    """Be some askers until the round stops, each going on from where its journal ends.

    Those of one process share its ledger: threads whose questions meet in one turn at it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_votes(ground.folder, random.Random(f"{seed} {numbers} {life}"))
    spoil(ground.broken)
    rooms: list[Room] = []
    lock = threading.Lock()

    def room() -> Room:
        with lock:
            if not rooms:
                rooms.append(ground.room(ground.open_ledger(), noise.secure()))
            return rooms[0]

    threads = []
    for number in numbers:
        space, chance = ground.spaces[number // 2], random.Random(f"{seed} {number} {life}")
        ask = _by_service(ground, space) if space.by_service else _by_itself(ground, space, room)
        words = (ground, Journal(ground.folder / f"asker-{number}.jsonl"), ask, chance)
        threads.append(threading.Thread(target=_ask_on, args=words))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _ask_on(ground: Ground, journal: Journal, ask: Ask, chance: random.Random) -> None:
    stop = ground.folder / "stop"
    done = [said["n"] for said in journal.said if said["kind"] in ("answer", "lost")]
    told = [said["n"] for said in journal.said if said["kind"] == "answer"]
    n = max(done, default=-1) + 1
    while not stop.exists():
        # Old questions are asked again too: their answers must be the same for ever.
        which = chance.choice(told) if told and chance.random() < 0.15 else n
        begun = time.monotonic()
        said = _outcome(ask, which, stop.exists)
        if said is None:
            return
        journal.write(n=which, seconds=round(time.monotonic() - begun, 4), **said)
        if said["kind"] == "answer":
            told.append(which)
        if said["kind"] in ("answer", "lost", "wrong"):
            n = max(n, which + 1)
        else:
            time.sleep(chance.uniform(0.02, 0.2))


def _outcome(ask: Ask, n: int, is_over: Callable[[], bool]) -> dict[str, Any] | None:
    """Ask with the same key until there is an answer, a refusal, or nothing to hope for."""
    until = time.monotonic() + _PATIENCE
    met: list[str] = []
    while True:
        try:
            labels, head = ask(n)
            return {
                "kind": "answer",
                "labels": [int(label) for label in labels],
                "head": head,
                "met": met[-1:],
            }
        except BudgetExhausted as error:
            return {"kind": "refused", "account": error.account, "what": str(error)}
        except Unsettled:
            # Somebody may be at it. If whoever reserved it was killed, it is lost, and stays charged.
            if time.monotonic() > until:
                return {"kind": "lost"}
        except ServiceError as error:
            if 400 <= error.status < 500:
                return {"kind": "wrong", "what": f"{error.status}: {error}"}
            if error.status == 500:
                return {"kind": "failed", "what": str(error)}
            met.append(str(error))
        except LedgerConflict as error:
            return {"kind": "wrong", "what": str(error)}
        except TimeoutError as error:
            return {"kind": "waited", "what": str(error)}
        except ConnectionError as error:
            met.append(str(error))  # the database is on its way back
        except OSError as error:
            return {"kind": "disk", "what": str(error)}
        except Exception as error:
            return {"kind": "failed", "what": f"{type(error).__name__}: {error}"}
        if is_over():
            return None
        time.sleep(0.05)


def _by_service(ground: Ground, space: Space) -> Ask:
    client = Client(
        f"http://127.0.0.1:{ground.port}", ground.token(space.student),
        sleep=lambda s: time.sleep(min(s, 0.1)),
    )  # fmt: skip
    return lambda n: (client.ask(pool=space.ids(n), key=str(n)).labels.tolist(), [])


def _by_itself(ground: Ground, space: Space, room: Callable[[], Room]) -> Ask:
    account = ground.account(space)

    def ask(n: int) -> tuple[Sequence[int], list[Any]]:
        opened = room()
        labels = opened.ask(space.ids(n), key=space.key(n), account=account).labels.tolist()
        head: list[Any] = []
        with contextlib.suppress(OSError):  # the answer is there, whether the ledger can be looked at or not
            last = getattr(opened.ledger, "head", None)
            head = [] if last is None else [last.number, last.hash]
        return labels, head

    return ask


def keep_keys(ground: Ground, number: int, life: int, seed: int) -> None:
    """Be a clerk until the round stops: make keys, revoke some, and count requests of a key all share."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spoil(ground.broken)
    chance = random.Random(f"{seed} clerk {number} {life}")
    journal = Journal(ground.folder / f"clerk-{number}.jsonl")
    revoked = {said["id"] for said in journal.said if said["kind"] in ("revoking", "revoked")}
    made = [said["id"] for said in journal.said if said["kind"] == "made" and said["id"] not in revoked]
    shared = ground.token("clerks").split("_")[1]
    stop, store = ground.folder / "stop", None
    while not stop.exists():
        try:
            if store is None:
                store = KeyStore(ground.keys)
            what = chance.random()
            if what < 0.1:
                _, key = store.create(f"made-{number}", "auditor")
                journal.write(kind="made", id=key.id)
                made.append(key.id)
            elif what < 0.2 and made:
                key_id = made.pop(chance.randrange(len(made)))
                journal.write(kind="revoking", id=key_id)
                store.revoke(key_id)
                journal.write(kind="revoked", id=key_id)
            else:
                begun = time.monotonic()
                if store.hit(shared, most=RATE) == 0:
                    journal.write(kind="hit", begun=begun, ended=time.monotonic())
        except OSError:
            # The store is away, or its disk is full; what was not acknowledged was not noted.
            store = None
        except Exception as error:
            journal.write(kind="failed", what=f"{type(error).__name__}: {error}")
            store = None
        time.sleep(chance.uniform(0.0, 0.1))
