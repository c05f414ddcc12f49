"""An asker: asks question after question, with a key for each, and notes what it was told."""

import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from breaking import spoil
from ground import MECHANISM, Ground, Space
from witness import Journal, watch_votes

from tellers import noise
from tellers.errors import BudgetExhausted, LedgerConflict, Unsettled
from tellers.runs import Room
from tellers.service import Client
from tellers.service.client import ServiceError

_PATIENCE = 1.0  # seconds to wait for whoever is at the same question


def ask_ground(ground: Ground, number: int, life: int, seed: int) -> None:
    """Be an asker until the round stops, going on from where its journal ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    chance = random.Random(f"{seed} {number} {life}")
    watch_votes(ground.folder, chance)
    spoil(ground.broken)
    space = ground.spaces[number // 2]
    journal = Journal(ground.folder / f"asker-{number}.jsonl")
    ask = _by_service(ground, space) if space.by_service else _by_itself(ground, space)
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


def _outcome(
    ask: Callable[[int], Sequence[int]], n: int, is_over: Callable[[], bool]
) -> dict[str, Any] | None:
    """Ask with the same key until there is an answer, a refusal, or nothing to hope for."""
    until = time.monotonic() + _PATIENCE
    met: list[str] = []
    while True:
        try:
            return {"kind": "answer", "labels": [int(label) for label in ask(n)], "met": met[-1:]}
        except BudgetExhausted as error:
            return {"kind": "refused", "account": error.account}
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
        except Exception as error:
            return {"kind": "failed", "what": f"{type(error).__name__}: {error}"}
        if is_over():
            return None
        time.sleep(0.05)


def _by_service(ground: Ground, space: Space) -> Callable[[int], Sequence[int]]:
    client = Client(
        f"http://127.0.0.1:{ground.port}", ground.token(space), sleep=lambda s: time.sleep(min(s, 0.1))
    )
    return lambda n: client.ask(pool=space.ids(n), key=str(n)).labels.tolist()


def _by_itself(ground: Ground, space: Space) -> Callable[[int], Sequence[int]]:
    pool, source, account = ground.pool(), noise.secure(), ground.account(space)
    rooms: list[Room] = []

    def ask(n: int) -> Sequence[int]:
        if not rooms:
            rooms.append(Room(pool, MECHANISM, ground.open_ledger(), source))
        return rooms[0].ask(space.ids(n), key=space.key(n), account=account).labels.tolist()

    return ask
