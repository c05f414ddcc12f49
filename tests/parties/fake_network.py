"""A whole session without a socket: guardian, answering parties and askers exchange messages by hand."""

import secrets
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
from tellers.errors import PeerRefused
from tellers.parties import _answer as answerer
from tellers.parties._guard import Finish, Guardian, Note, Send
from tellers.parties._hardening import new_mask_key, pair_keys
from tellers.parties._last_step import decide
from tellers.parties._ledger import marked, remembered
from tellers.parties._messages import Accepted, Answered, Done, Open, Out, Question
from tellers.parties._policy import Policy
from tellers.parties._ring import ring_scaled, ring_sum
from tellers.runs.settings.party import HardeningConfig, PartyLimitsConfig, SessionConfig

PROGRAM, TERMS = "ab" * 32, "cd" * 32
NAMES = ("east", "north", "south", "west")
DAYS = tuple(f"2026-03-{day:02d}" for day in range(1, 29))
_KEYS = {name: new_mask_key() for name in NAMES}


def program_for(n_queries: int) -> str:
    return PROGRAM


def policy_of(name, *, quorum=2, max_open=16, pairwise=True, noise_sigma=None, **other):
    """Return the rules of a small session at one party."""
    limits = {one: other.pop(one) for one in list(other) if one.startswith("max_")}
    given = {
        "roster": NAMES, "quotas": {"ann": 10_000, "bea": 10_000}, "terms": TERMS, "program_for": program_for,
        "session": SessionConfig(n_features=4, n_outputs=3, quorum=quorum, patience_seconds=30.0),
        "limits": PartyLimitsConfig(max_open=max_open, **limits),
        "hardening": HardeningConfig(pairwise=pairwise, noise_sigma=noise_sigma), **other,
    }  # fmt: skip
    return Policy(name, **given)


def pairs_of(name: str) -> dict[str, bytes]:
    return pair_keys(name, _KEYS[name][0], {n: public for n, (_, public) in _KEYS.items() if n != name})


@dataclass
class FakeNetwork:
    """Parties that talk until nobody has anything to say; `lost` holds those that hear and say nothing.

    Those in `breaking` say that they are ready, and are out when masks are asked for.
    """

    pairwise: bool = True
    mechanism: object = field(default_factory=lambda: GNMax(sigma=2.0))
    epsilon: float = 1e6
    ledger: object = None
    noise_sigma: float | None = None
    policy: dict = field(default_factory=dict)
    answerers: dict = field(default_factory=dict)

    def __post_init__(self):
        self.now, self.day, self.said = 0.0, DAYS[9], []
        self.books = {name: MemoryLedger(Accountant(Budget(epsilon=1e9, delta=1e-5))) for name in NAMES}
        if self.ledger is None:
            self.ledger = MemoryLedger(Accountant(Budget(epsilon=self.epsilon, delta=1e-5)))
        today = {"today": lambda: self.day}
        given = {"quorum": 3, "max_open": 4, **today, **self.policy}
        self.rules = policy_of("guard", pairwise=self.pairwise, **given)
        self.states = {name: answerer.AnswererState() for name in NAMES}
        self.open_guardian()
        self.policies = {
            name: policy_of(
                name, pairwise=self.pairwise, noise_sigma=self.noise_sigma,
                pair_keys=pairs_of(name) if self.pairwise else None, **today, **self.answerers,
            )
            for name in NAMES
        }  # fmt: skip
        self.heard = {"ann": [], "bea": []}
        self.steps, self.refusals = {}, []
        self.lost, self.breaking, self.masks_sent = set(), set(), []
        self.shares, self.votes = {}, {}

    def open_guardian(self):
        """Begin a guardian with what its ledger says; whoever had a connection to another lost it."""
        self.guardian = Guardian(
            self.rules, self.mechanism, self.ledger, noise.secure(), clock=lambda: self.now
        )
        for name in (*self.rules.roster, "ann", "bea"):
            self.guardian.joined(name)
        self.states = {name: answerer.alone(state) for name, state in self.states.items()}

    def restart(self, name):
        """Begin an answering party anew, with what its books say."""
        self.follow(self.guardian.left(name))
        known = remembered(self.books[name])
        self.states[name] = answerer.AnswererState(
            used=known["used"], answered=known["answered"], marks=known["marks"]
        )
        self.guardian.joined(name)

    # --- What travels. ---

    def say(self, sender, message):
        """Hand a message to the guardian, as its connection would; a refusal closes that connection."""
        try:
            self.follow(self.guardian.handle(sender, message))
        except PeerRefused as refusal:
            self.refusals.append((sender, str(refusal)))
            self.follow(self.guardian.broke(sender, str(refusal)))
            self.follow(self.guardian.left(sender))

    def follow(self, tasks):
        for task in tasks:
            if isinstance(task, Finish):
                self.steps[task.qid] = task.step
            elif isinstance(task, Send):
                self.hear(task.to, task.message)
            elif isinstance(task, Note):
                self.said.append(task.words)

    def hear(self, name, message):
        if name in self.heard:
            self.heard[name].append(message)
            return
        if name in self.lost:
            return
        state, policy, said = self.states[name], self.policies[name], []
        if message.kind == "expect":
            state, said = answerer.expect(policy, state, message, now=self.now)
        elif message.kind == "roll" and name in self.breaking:
            state, said = answerer.forget(state, message.qid), [Out(qid=message.qid, why="refused")]
        elif message.kind == "roll":
            state, said = answerer.lend_mask(
                policy, state, message, noise=noise.secure(), ledger=self.books[name],
                mechanism=self.mechanism, say=self.said.append,
            )  # fmt: skip
            self.masks_sent += [(name, m.qid) for m in said if m.kind == "mask"]
        elif message.kind == "closed":
            state = answerer.closed(state, message)
        self.states[name] = state
        for word in said:
            self.say(name, word)

    def wait(self, seconds):
        self.now += seconds
        for name in NAMES:
            if name not in self.lost:
                self.states[name], said = answerer.tick(self.states[name], now=self.now)
                for word in said:
                    self.say(name, word)
        self.follow(self.guardian.tick())

    # --- What an asker does. ---

    def open(self, asker="ann", n_queries=2, qid=None, **other):
        qid = secrets.token_hex(16) if qid is None else qid
        told = {"program": PROGRAM, "terms": TERMS, **other}
        self.say(asker, Open(qid=qid, n_queries=n_queries, **told))
        return qid

    def ask(self, qid, name, asker="ann", n_queries=2, *, deliver=True):
        """Ask one party, compute its share in the clear, and return whether the asker has it."""
        if name not in self.lost and qid not in self.states[name].used:
            return False  # the guardian has announced no such query
        asked = Question(
            qid=qid, n_queries=n_queries, n_features=4, n_outputs=3, program=PROGRAM, terms=TERMS
        )
        state, answer = answerer.question(self.policies[name], self.states[name], asker, asked, now=self.now)
        self.states[name] = state
        if not isinstance(answer, Accepted) or not deliver:
            return False
        vote = np.eye(3, dtype=np.int64)[np.random.default_rng(len(self.votes)).integers(0, 3, n_queries)]
        self.votes[qid, name] = vote
        self.shares[qid, name] = ring_sum([vote, ring_scaled(state.queries[qid].mask, -1)])
        self.states[name], said = answerer.delivered(self.states[name], qid)
        for word in said:
            if name not in self.lost:
                self.say(name, word)
        return True

    def fail(self, qid, name, why="failed"):
        self.states[name], said = answerer.failed(self.states[name], qid, why=why)
        for word in said:
            self.say(name, word)

    def answered(self, qid, parties, asker="ann"):
        self.say(asker, Answered(qid=qid, parties=tuple(sorted(parties))))

    def query(self, asker="ann", n_queries=2, parties=NAMES, claim=None, failing=(), why="failed"):
        """Ask a whole query and return its id; links to some parties fail."""
        qid = self.open(asker, n_queries)
        for name in failing:
            self.ask(qid, name, asker, n_queries, deliver=False)
            self.fail(qid, name, why)
        roster = getattr(self.last(asker), "roster", ())
        held = [name for name in parties if name in roster and self.ask(qid, name, asker, n_queries)]
        self.answered(qid, held if claim is None else claim, asker)
        return qid

    def done(self, qid, asker="ann"):
        self.say(asker, Done(qid=qid))

    # --- What can be seen. ---

    def last(self, asker="ann"):
        return self.heard[asker][-1]

    @property
    def charged(self):
        return [entry.key for entry in self.entries]

    @property
    def entries(self):
        """Return what the guardian's ledger has of queries that were charged."""
        return [entry for entry in self.ledger.entries() if "note" not in entry.event]

    def marks(self, what, name):
        """Return what the guardian counts against a party today."""
        return marked(self.guardian.state.marks, what, name, self.day)

    def n_lost(self, name, asker=None):
        """Return how many queries a party lost today, by its own count."""
        return marked(self.states[name].marks, "lost", asker, self.day)

    def truly_lost(self, name):
        """Return what is on a party's books and came to no label, by day and asker."""
        charged, lost = set(self.charged), Counter()
        for entry in self.books[name].entries():
            if entry.key not in charged:
                lost[entry.event["day"], entry.event["asker"]] += entry.event["n_queries"]
        return lost

    def tally(self, qid, parties=NAMES):
        return sum(self.votes[qid, name] for name in parties)

    def labels(self, qid, parties=NAMES):
        return decide(self.steps[qid], ring_sum(self.shares[qid, name] for name in parties))
