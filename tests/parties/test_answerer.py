"""An answering party: what it checks, and that a mask hides one vote, for one set, once."""

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import PeerRefused
from tellers.parties import _answer as answerer
from tellers.parties._ledger import marked
from tellers.parties._messages import Closed, Expect, Question, Roll
from tellers.privacy.noise import secure

from .fake_network import DAYS, NAMES, PROGRAM, TERMS, FakeNetwork, pairs_of, policy_of

QID = "1" * 32


def policy(**other):
    return policy_of("north", **{"quotas": {"ann": 6}, **other})


def asked(**other):
    given = {"n_queries": 2, "n_features": 4, "n_outputs": 3, "program": PROGRAM, "terms": TERMS, **other}
    return Question(**{"qid": QID, **given})


def ready(rules, qid=QID):
    state, answer = answerer.question(rules, answerer.AnswererState(), "ann", asked(qid=qid), now=0.0)
    assert answer.kind == "accepted"
    mask = state.queries[qid].mask
    state, [said] = answerer.delivered(state, qid)
    return state, said.nonce, mask


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"program": "0" * 64}, "another program"),
        ({"terms": "0" * 64}, "other terms"),
        ({"n_queries": 101}, "at most 100"),
        ({"n_queries": 7}, "quota of 6"),
        ({"n_features": 5}, "4 numbers"),
        ({"n_outputs": 4}, "votes 3"),
    ],
)
def test_questions_that_are_refused(other, words):
    state, answer = answerer.question(policy(), answerer.AnswererState(), "ann", asked(**other), now=0.0)
    assert answer.kind == "refused"
    assert words in answer.why
    assert not state.queries
    # The same id is not tried again with better words.
    assert answerer.question(policy(), state, "ann", asked(), now=0.0)[1].kind == "refused"


# --- What may be lost. ---


def lose(network, n=1, asker="ann"):
    """Let queries end after masks were lent."""
    network.breaking = {"west"}
    for _ in range(n):
        network.query(asker)
    network.breaking = set()


@pytest.fixture
def patient():
    """A guardian that lets everything happen, and parties that may lose 4 queries for an asker, 6 in all."""
    limits = {"max_lost_per_asker": 4, "max_lost_per_day": 6}
    return FakeNetwork(policy={"max_wasted_per_day": 10**6}, answerers={"quorum": 2, **limits})


def test_what_is_lost_stays_within_the_operators_quota(patient):
    lose(patient, 20)
    lose(patient, 20, "bea")
    for name in ("east", "north", "south"):
        assert patient.truly_lost(name) == {(patient.day, "ann"): 4, (patient.day, "bea"): 2}
    asked = Question(qid=QID, n_queries=1, n_features=4, n_outputs=3, program=PROGRAM, terms=TERMS)
    for asker, words in (("ann", "At most 4 queries of ann"), ("bea", "At most 6 queries in all")):
        policy, state = patient.policies["north"], patient.states["north"]
        said = answerer.question(policy, state, asker, asked, now=0.0)[1].why
        assert said == f"{words} may be lost or on their way here in a day (UTC)."
    # A restart forgets nothing, and the next day is another.
    patient.restart("north")
    assert (patient.n_lost("north", "ann"), patient.n_lost("north")) == (4, 6)
    patient.day = DAYS[10]
    lose(patient, 20)
    assert patient.truly_lost("north")[DAYS[10], "ann"] == 4


def test_what_went_on_is_not_lost_after_a_restart_too(patient):
    for _ in range(10):
        patient.done(patient.query())
        assert patient.n_lost("north") == 0
    assert len(patient.charged) == 10
    patient.restart("north")
    assert patient.n_lost("north") == 2  # the last: it was not written down yet that it went on
    patient.done(patient.query())
    patient.restart("north")
    assert patient.n_lost("north") == 4
    assert patient.n_lost("east") == 0
    went_on = [entry.event["went_on"] for entry in patient.books["east"].entries()]
    assert went_on == [[], *([qid] for qid in patient.charged[:-1])]


def test_what_is_under_way_counts_before_a_mask_is_lent(patient):
    first, second = patient.open(), patient.open()
    third = patient.open()
    assert [patient.ask(qid, "north") for qid in (first, second, third)] == [True, True, False]


def test_a_guardian_that_says_nothing_leaves_queries_lost():
    rules = policy(pair_keys=pairs_of("north"))
    state, nonce, _ = ready(rules)
    told = Roll(qid=QID, nonces={"east": "2" * 32, "north": nonce})
    state, [lent] = answerer.roll(rules, state, told, noise=secure())
    assert lent.kind == "mask"
    assert marked(state.marks, "lost", "ann", policy().today()) == 2
    silent = answerer.alone(state)
    assert marked(silent.marks, "lost", "ann", policy().today()) == 2
    for charged, n in ((False, 2), (True, 0)):
        told = answerer.closed(state, Closed(qid=QID, charged=charged))
        assert marked(told.marks, "lost", "ann", policy().today()) == n
        again = answerer.closed(told, Closed(qid=QID, charged=True))
        assert again.marks == told.marks  # it is told once


def test_strangers_and_too_many_at_once():
    rules = policy(max_open=1)
    assert "not among" in answerer.question(rules, answerer.AnswererState(), "eve", asked(), now=0.0)[1].why
    state, _ = answerer.question(rules, answerer.AnswererState(), "ann", asked(), now=0.0)
    assert "At most 1" in answerer.question(rules, state, "ann", asked(qid="2" * 32), now=0.0)[1].why


def test_who_was_announced_and_refused_hears_the_same_reason():
    rules = policy(quotas={"ann": 1})
    coming = Expect(qid=QID, asker="ann", n_queries=2, program=PROGRAM, terms=TERMS, seconds=9.0)
    state, [out] = answerer.expect(rules, answerer.AnswererState(), coming, now=0.0)
    assert out.why == "refused"
    assert "quota of 1" in answerer.question(rules, state, "ann", asked(), now=0.0)[1].why


def test_one_asker_takes_no_place_of_another():
    rules = policy(max_open=1, quotas={"ann": 6, "eve": 6})
    state, _ = answerer.question(rules, answerer.AnswererState(), "eve", asked(), now=0.0)
    assert answerer.question(rules, state, "ann", asked(qid="2" * 32), now=0.0)[1].kind == "accepted"


def test_a_question_that_nobody_announced_is_refused_for_good():
    state, answer = answerer.unannounced(answerer.AnswererState(), QID)
    assert "announced no such query" in answer.why
    assert answerer.question(policy(), state, "ann", asked(), now=0.0)[1].kind == "refused"
    coming = Expect(qid=QID, asker="ann", n_queries=2, program=PROGRAM, terms=TERMS, seconds=9.0)
    # Had it been kept as a query that is waited for, the guardian would blame the asker.
    assert answerer.expect(policy(), state, coming, now=0.0)[1][0].why == "refused"


def test_without_the_guardian_a_query_is_over_and_nothing_is_said_of_it_later():
    state, nonce, _ = ready(policy())
    state = answerer.alone(state)
    assert answerer.delivered(state, QID)[1] == []
    assert answerer.failed(state, QID)[1] == []
    assert answerer.tick(state, now=1e9)[1] == []
    assert answerer.roll(policy(), state, Roll(qid=QID, nonces={"north": nonce}), noise=secure())[1] == []


def test_quotas_count_lent_masks_for_ever_and_others_while_they_last():
    rules, state = policy(), answerer.AnswererState(answered={"ann": 4})
    state, first = answerer.question(rules, state, "ann", asked(), now=0.0)
    assert first.kind == "accepted"
    state, second = answerer.question(rules, state, "ann", asked(qid="2" * 32), now=0.0)
    assert "quota of 6" in second.why
    state, _ = answerer.failed(state, QID)
    state, third = answerer.question(rules, state, "ann", asked(qid="3" * 32), now=0.0)
    assert third.kind == "accepted"
    state, [said] = answerer.delivered(state, "3" * 32)
    nonces = {"north": said.nonce, "south": "0" * 32}
    state, _ = answerer.roll(rules, state, Roll(qid="3" * 32, nonces=nonces), noise=secure())
    assert state.answered == {"ann": 6}


def test_a_mask_is_lent_once_to_one_set():
    rules = policy(pair_keys=pairs_of("north"))
    state, nonce, mask = ready(rules)
    first = Roll(qid=QID, nonces={"north": nonce, "south": "0" * 32})
    state, [lent] = answerer.roll(rules, state, first, noise=secure())
    assert (lent.mask != mask).all()
    assert state.queries[QID].mask is None
    other = Roll(qid=QID, nonces={"east": "0" * 32, "north": nonce, "south": "0" * 32})
    assert answerer.roll(rules, state, other, noise=secure())[1] == []
    assert answerer.roll(rules, state, first, noise=secure())[1] == []
    assert answerer.failed(state, QID)[1] == []


def test_sets_that_are_too_small_foreign_or_without_our_number():
    for nonces in ({"north": None}, {"eve": "0" * 32, "north": None}):
        state, nonce, _ = ready(policy())
        told = Roll(qid=QID, nonces={n: v or nonce for n, v in nonces.items()})
        state, [out] = answerer.roll(policy(), state, told, noise=secure())
        assert out.why == "refused"
        assert not state.queries
    state, _, _ = ready(policy())
    for nonces in ({"north": "0" * 32, "south": "0" * 32}, {"east": "0" * 32, "south": "0" * 32}):
        with pytest.raises(PeerRefused, match="own fresh number"):
            answerer.roll(policy(), state, Roll(qid=QID, nonces=nonces), noise=secure())
    with pytest.raises(PeerRefused, match="that this party answered"):
        answerer.roll(policy(), answerer.AnswererState(), Roll(qid=QID, nonces={}), noise=secure())


def test_masks_and_numbers_are_never_the_same_twice():
    seen = [ready(policy(), qid=f"{i:032x}") for i in range(20)]
    assert len({nonce for _, nonce, _ in seen}) == 20
    assert len({mask.tobytes() for _, _, mask in seen}) == 20
    assert "mask=" not in repr(seen[0][0].queries)


def coming(**other):
    given = {"qid": QID, "asker": "ann", "n_queries": 2, "program": PROGRAM, "terms": TERMS, "seconds": 9}
    return Expect(**{**given, **other})


def test_what_is_announced_and_asked_must_be_the_same():
    state, _ = answerer.expect(policy(), answerer.AnswererState(), coming(), now=0.0)
    with pytest.raises(PeerRefused, match="announced once"):
        answerer.expect(policy(), state, coming(), now=0.0)
    assert "another query" in answerer.question(policy(), state, "ann", asked(n_queries=1), now=0.0)[1].why
    state, answer = answerer.question(policy(), state, "ann", asked(), now=0.0)
    assert answer.kind == "accepted"
    # The announcement may also come after the question.
    state, _ = answerer.question(policy(), answerer.AnswererState(), "ann", asked(), now=0.0)
    state, said = answerer.expect(policy(), state, coming(), now=0.0)
    assert said == []
    assert state.queries[QID].phase == "asked"


def test_what_would_be_refused_is_refused_when_it_is_announced():
    state, [out] = answerer.expect(policy(), answerer.AnswererState(), coming(n_queries=7), now=0.0)
    assert out.why == "refused"
    assert answerer.expect(policy(), state, coming(), now=0.0)[1][0].why == "refused"


def test_time_ends_what_nobody_asks_for():
    state, _ = answerer.expect(policy(), answerer.AnswererState(), coming(), now=0.0)
    assert answerer.tick(state, now=8.0)[1] == []
    state, [out] = answerer.tick(state, now=9.5)
    assert out.why == "not asked"
    state, _, _ = ready(policy())
    assert answerer.tick(state, now=100.0)[0].queries
    assert not answerer.tick(state, now=1000.0)[0].queries
    assert not answerer.forget(state, QID).queries


def test_shares_of_noise_reach_the_tally():
    network = FakeNetwork(noise_sigma=50.0)
    qid = network.query(n_queries=100)
    shares = sum(network.shares[qid, name].astype(object) for name in NAMES) + network.steps[qid].masks
    drawn = ((shares + 2**63) % 2**64 - 2**63 - network.tally(qid)).astype(np.int64)
    # 300 sums of four shares: their variance is 10,000, within six standard deviations of 8.2 %.
    assert abs(drawn.var() / 10_000 - 1) < 0.5
