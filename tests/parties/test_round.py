"""A whole round over real connections: messages, certificates, ledger and noise, with a clear computation
where the two-party engine would be."""

import contextlib
import queue
import secrets
import threading
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers import Accountant, Budget, GNMax, SqliteLedger, noise
from tellers.errors import PeerRefused
from tellers.parties import _answer as answerer
from tellers.parties._certificates import make_certificate, read_secret
from tellers.parties._guard import Finish, Guardian, Send
from tellers.parties._hardening import pair_keys
from tellers.parties._last_step import decide
from tellers.parties._listener import Listener
from tellers.parties._messages import Answered, Closed, Done, Expect, Open, Question, Roll
from tellers.parties._ring import ring_scaled, ring_sum
from tellers.parties._wire import Identity, Peer, connect

from .fake_network import PROGRAM, TERMS, policy_of

ROLES = {"ann": "asker", "guard": "guardian", "east": "answerer", "north": "answerer", "south": "answerer"}
ROSTER = ("east", "north", "south")


class GuardianAtWork:
    """A guardian behind a listener: one thread per connection, and whatever follows is sent on."""

    def __init__(self, world, ledger):
        policy = policy_of("guard", roster=ROSTER, quotas={"ann": 1000}, max_open=4)
        self.guardian = Guardian(policy, GNMax(sigma=1e-3), ledger, noise.secure())
        self.channels, self.steps, self.turn = {}, queue.Queue(), threading.Lock()
        peers = [peer for name, peer in world.peers.items() if name != "guard"]
        self.listener = Listener(
            "127.0.0.1:0", world.identities["guard"], peers, handle=self.handle, timeout=10.0
        )

    def handle(self, channel):
        name = channel.peer.name
        self.channels[name] = channel
        with self.turn:
            self.guardian.joined(name)
        with contextlib.suppress(PeerRefused, TimeoutError):
            while True:
                message = channel.receive(timeout=60)
                with self.turn:
                    tasks = self.guardian.handle(name, message)
                self.follow(tasks)
        channel.close()
        with self.turn:
            tasks = self.guardian.left(name)
        self.follow(tasks)

    def follow(self, tasks):
        for task in tasks:
            if isinstance(task, Finish):
                self.steps.put(task)
            elif isinstance(task, Send):
                with contextlib.suppress(PeerRefused, TimeoutError):
                    self.channels[task.to].send(task.message)


class AnswererAtWork:
    """An answering party with a connection to the guardian; `compute` is where the engine would be."""

    def __init__(self, world, name, address):
        keys = {other: world.cards[other].mask_key for other in ROSTER if other != name}
        secret = read_secret(world.folder / name / "mask.key")
        self.policy = policy_of(
            name, roster=ROSTER, quotas={"ann": 1000}, pair_keys=pair_keys(name, secret, keys)
        )
        self.state, self.lock = answerer.AnswererState(), threading.Lock()
        self.channel = connect(address, world.identities[name], world.peers["guard"], timeout=10.0)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(PeerRefused, TimeoutError):
            while True:
                message, said = self.channel.receive(timeout=60), []
                with self.lock:
                    if isinstance(message, Expect):
                        self.state, said = answerer.expect(self.policy, self.state, message, now=0.0)
                    elif isinstance(message, Roll):
                        self.state, said = answerer.roll(
                            self.policy, self.state, message, noise=noise.secure()
                        )
                    elif isinstance(message, Closed):
                        self.state = answerer.closed(self.state, message)
                for word in said:
                    self.channel.send(word)

    def compute(self, asked, vote):
        """Return the asker's share, as the two-party computation would."""
        with self.lock:
            self.state, answer = answerer.question(self.policy, self.state, "ann", asked, now=0.0)
            assert answer.kind == "accepted", answer
            share = ring_sum([vote, ring_scaled(self.state.queries[asked.qid].mask, -1)])
            self.state, said = answerer.delivered(self.state, asked.qid)
        for word in said:
            self.channel.send(word)
        return share


@pytest.fixture
def world(tmp_path):
    cards = {name: make_certificate(tmp_path, name, role=role) for name, role in ROLES.items()}
    return SimpleNamespace(
        folder=tmp_path,
        cards=cards,
        identities={name: Identity(name, role, home=tmp_path / name) for name, role in ROLES.items()},
        peers={name: Peer(name, role, pin=cards[name].pin) for name, role in ROLES.items()},
    )


def wait_for(condition):
    deadline = threading.Event()
    for _ in range(1000):
        if condition():
            return
        deadline.wait(0.01)
    raise AssertionError("waited in vain")


def ask(channel, work, answerers, votes):
    """Ask a batch as an asker does, and return its id, who answered, and the labels."""
    qid = secrets.token_hex(16)
    n = len(next(iter(votes.values())))
    channel.send(Open(qid=qid, n_queries=n, program=PROGRAM, terms=TERMS))
    opened = channel.receive()
    assert opened.kind == "opened"
    asked = Question(qid=qid, n_queries=n, n_features=4, n_outputs=3, program=PROGRAM, terms=TERMS)
    shares = {name: answerers[name].compute(asked, votes[name]) for name in opened.roster}
    channel.send(Answered(qid=qid, parties=tuple(sorted(shares))))
    agreed = channel.receive()
    assert agreed.kind == "agreed", agreed
    finish = work.steps.get(timeout=10)
    assert finish.qid == qid
    labels = decide(finish.step, ring_sum(shares[name] for name in agreed.parties))
    channel.send(Done(qid=qid))
    return qid, agreed.parties, labels


def test_a_round_over_tls_and_one_without_a_party_that_died(world, tmp_path):
    ledger = SqliteLedger(tmp_path / "spend.db", Accountant(Budget(epsilon=1e12, delta=1e-5)))
    work = GuardianAtWork(world, ledger)
    address = work.listener.address
    answerers = {name: AnswererAtWork(world, name, address) for name in ROSTER}
    present = work.guardian
    rng = np.random.default_rng(3)
    with closing(connect(address, world.identities["ann"], world.peers["guard"], timeout=10.0)) as channel:
        wait_for(lambda: present.state.present >= set(ROLES) - {"guard"})
        for gone in ((), ("south",)):
            for name in gone:
                answerers[name].channel.close()
                wait_for(lambda name=name: name not in present.state.present)
            votes = {name: np.eye(3, dtype=np.int64)[rng.integers(0, 3, 20)] for name in ROSTER}
            _, parties, labels = ask(channel, work, answerers, votes)
            assert parties == tuple(name for name in ROSTER if name not in gone)
            tally = sum(votes[name] for name in parties)
            assert (tally[np.arange(20), labels] == tally.max(axis=1)).all()
        wait_for(lambda: not present.state.queries)
        wait_for(lambda: all(not one.state.queries for name, one in answerers.items() if name != "south"))
    assert [entry.event["answering"] for entry in ledger.entries()] == [list(ROSTER), ["east", "north"]]
    work.listener.close()
    for one in answerers.values():
        one.channel.close()
    ledger.close()
