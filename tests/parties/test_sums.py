"""A confidential Gaussian sum: exact through the fake network and over TLS, at the price of `GaussianSum`."""

import secrets
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, MemoryLedger, Unit, noise
from tellers.accounting.sum_plan import given_sum
from tellers.data.label_models import OneEach
from tellers.errors import ConfigError, PeerRefused, RoundAborted
from tellers.ledger import open_ledger
from tellers.mechanisms import GaussianSum
from tellers.parties import AskRole, price_without_guardian
from tellers.parties._answer import AnswerRole
from tellers.parties._certificates import make_certificate
from tellers.parties._guard import GuardRole
from tellers.parties._ledger import query_price
from tellers.parties._messages import Limits, MaskSum, ScoreShare, decode, encode
from tellers.parties._policy import PartyContext
from tellers.parties._ports import held_port
from tellers.parties._ring import fresh_mask, ring_scaled, ring_sum
from tellers.parties._sums import digest_of, noisy_sum, open_sum, read_pool, share_of, write_pool
from tellers.parties.collaboration.members import Member
from tellers.parties.collaboration.sums import ScoredPool, learn_from_sum
from tellers.parties.prices import affordable_queries, gap, session_price
from tellers.runs import MechanismConfig, parse_party, read_party, write_party
from tellers.runs.settings.party import (
    BooksConfig,
    HardeningConfig,
    PoolConfig,
    SessionConfig,
    settings_for,
)
from tellers.teachers.models import dump_model, load_model

from ..cli.test_party import run
from .fake_network import NAMES, FakeNetwork

SUM = given_sum(0.5)
N_LABELS, N_FEATURES, N_DIRECTIONS = 3, 5, 4
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(40, N_FEATURES))
POOL = ScoredPool.of(ROWS, N_LABELS, N_DIRECTIONS)


class Kept:
    """A source of secure noise that keeps what it drew."""

    def __init__(self):
        self.source, self.drawn = noise.secure(), []
        self.name = self.source.name

    def discrete_gaussian(self, sigma, shape):
        self.drawn.append(self.source.discrete_gaussian(sigma, shape))
        return self.drawn[-1]


# --- What is summed. ---


@pytest.mark.parametrize("pairwise", [True, False])
def test_the_noisy_sum_is_the_clear_sum_and_the_drawn_noise_bit_for_bit(pairwise):
    network = FakeNetwork(mechanism=SUM, pairwise=pairwise)
    source = network.guardian.noise = Kept()
    qid = network.query(n_queries=1)
    agreed, summed = network.heard["ann"][-2:]
    assert (agreed.kind, agreed.parties, summed.kind) == ("agreed", NAMES, "summed")
    total = ring_sum([summed.table, *(network.shares[qid, name] for name in NAMES)])
    np.testing.assert_array_equal(total, network.tally(qid) + source.drawn[0])
    [entry] = network.ledger.entries()
    assert (entry.charged.values == SUM.batch_price(Unit()).values).all()
    assert entry.event["mechanism"] == "GaussianSum"
    assert entry.event["parameters"] == {"sigma": 0.5, "steps": SUM.steps}
    network.done(qid)
    assert not network.refusals


def test_nothing_is_drawn_or_told_that_is_not_paid():
    network = FakeNetwork(mechanism=SUM, epsilon=30.0)
    source = network.guardian.noise = Kept()
    price = SUM.batch_price(Unit())
    accountant, n_paid = Accountant(Budget(30.0, 1e-5)), 0
    while accountant.affords(price * n_paid, price):
        network.done(network.query(n_queries=1))
        n_paid += 1
    assert n_paid == affordable_queries(SUM, Budget(30.0, 1e-5)) == len(network.charged) > 0
    network.query(n_queries=1)
    assert network.last().kind == "aborted"
    assert len(source.drawn) == n_paid == sum(one.kind == "summed" for one in network.heard["ann"])
    refusing = FakeNetwork(mechanism=SUM)
    source = refusing.guardian.noise = Kept()
    refusing.ledger.reserve = lambda *_, **__: (_ for _ in ()).throw(TimeoutError())
    refusing.query(n_queries=1)
    assert refusing.last().kind == "aborted"
    assert not source.drawn


def test_the_price_holds_for_any_shares_on_a_small_ring():
    # All offsets of a ring of 2^6, which stands for 2^64: whatever asker and other parties send is a constant
    # there, and what is left of two neighbours of one party is noise that moved.
    ring, sigma = 64, 3.0
    far = np.arange(-40 * ring, 40 * ring + 1)
    weights = np.exp(-(far.astype(float) ** 2) / (2 * sigma**2))
    law = np.bincount(far % ring, weights=weights, minlength=ring) / weights.sum()
    for shift in (1, 2, 5):
        for order in (1.5, 2.0, 8.0):
            found = [
                np.log((np.roll(law, at) ** order * np.roll(law, at + shift) ** (1 - order)).sum())
                / (order - 1)
                for at in range(ring)
            ]
            assert max(found) <= order * shift**2 / (2 * sigma**2) * (1 + 1e-9)
            np.testing.assert_allclose(found, found[0], rtol=1e-9)


@pytest.mark.parametrize("lie", [2**63 - 1, -(2**63), 12345])
def test_a_share_that_is_shifted_shifts_what_is_told_and_nothing_else(lie):
    answers = [POOL.answer(model_of(seed), np.ones(N_LABELS, bool), SUM.steps) for seed in range(4)]
    masks = [fresh_mask((1, N_LABELS * N_DIRECTIONS)) for _ in answers]
    source = Kept()
    summed = noisy_sum(SUM, ring_sum(masks), source)
    shares = [share_of(answer, mask) for answer, mask in zip(answers, masks, strict=True)]
    clear = sum(answers).reshape(1, -1) + source.drawn[0]
    np.testing.assert_array_equal(ring_sum([summed, *shares]), clear)
    moved = np.full_like(clear, lie)
    told = ring_sum([summed, *shares, moved])
    np.testing.assert_array_equal(ring_sum([told, ring_scaled(moved, -1)]), clear)
    if abs(lie) > 2**60:
        with pytest.raises(ValueError, match="one of them broke its bound"):
            open_sum(told, SUM, POOL, n_parties=4)


def test_honest_sums_are_never_refused_and_long_ones_are():
    # The longest that four may say, with noise: refused by chance in less than 2^-55 of all cases each.
    most = np.zeros((1, N_LABELS * N_DIRECTIONS), dtype=np.int64)
    most[0, 0] = 4 * SUM.steps
    for _ in range(200):
        noisy = noisy_sum(SUM, most, noise.secure())
        np.testing.assert_array_equal(open_sum(noisy, SUM, POOL, n_parties=4).ravel(), noisy[0])
    with pytest.raises(ValueError, match="broke its bound"):
        open_sum(noisy_sum(SUM, 5 * most, noise.secure()), SUM, POOL, n_parties=4)
    shares = [noise.secure().discrete_gaussian(3.0 * SUM.steps, most.shape) for _ in range(4)]
    open_sum(ring_sum([most, *shares]), SUM, POOL, n_parties=4, share_sigma=3.0)


def test_neighbouring_models_move_an_answer_by_two_norms_at_most():
    everything = np.ones(N_LABELS, bool)
    ballots = [POOL.answer(model_of(seed), everything, SUM.steps) for seed in range(12)]
    ballots += [-ballots[0], np.zeros_like(ballots[0])]
    moves = [float(((one - other) ** 2).sum()) ** 0.5 for one in ballots for other in ballots]
    assert 1.9 * SUM.steps < max(moves) <= 2 * SUM.steps
    assert max(moves) <= SUM.mu() * SUM.sigma * SUM.steps


# --- What it costs. ---


def test_prices_are_those_of_the_mechanism_whoever_knows_which_labels():
    price = SUM.batch_price(Unit())
    for known in ((), [(0,), (1, 2)], [()]):
        np.testing.assert_array_equal(query_price(SUM, 1, known=known).values, price.values)
        np.testing.assert_array_equal(query_price(SUM, 3, known=known).values, (price * 3).values)
    assert gap(20.0, 40) == 0.0  # why shares of noise are priced like one noise
    alone = price_without_guardian(SUM, 0.25, n_shares=4)
    np.testing.assert_allclose(alone.values, SUM.batch_price(Unit()).values)
    with pytest.raises(ValueError, match="finer steps"):
        price_without_guardian(GaussianSum(2.0, 8), 1.0, n_shares=4)


# --- What travels, and what is agreed on. ---


def test_shares_and_sums_travel_as_tables_of_one_shape():
    limits, table = Limits(max_queries=1, max_outputs=12), fresh_mask((1, 12))
    for kind in (ScoreShare, MaskSum):
        message = kind(qid=secrets.token_hex(16), table=table)
        header, body = encode(message)
        found = decode(header, body, limits=limits)
        np.testing.assert_array_equal(found.table, table)
        assert "table" not in repr(found)
        for wrong in (body[:-1], b"", body * 2):
            with pytest.raises(PeerRefused, match="body of 8 bytes"):
                decode(header, wrong, limits=limits)
        with pytest.raises(PeerRefused, match="at most 1 x 11"):
            decode(header, body, limits=Limits(max_queries=1, max_outputs=11))


def test_a_pool_is_the_one_that_was_agreed_on_or_refused(tmp_path):
    place = tmp_path / "pool.npz"
    digest = write_pool(place, POOL)
    agreed = {"digest": digest, "n_directions": N_DIRECTIONS}
    found = read_pool(place, N_LABELS, **agreed)
    np.testing.assert_array_equal(found.directions, POOL.directions)
    assert digest_of(found) == digest
    for name in ("X", "middle", "size", "directions"):
        other = getattr(POOL, name).copy()
        other.flat[0] *= 1 + 1e-12
        write_pool(place, replace(POOL, **{name: other}))
        with pytest.raises(ValueError, match="got another"):
            read_pool(place, N_LABELS, **agreed)
    write_pool(place, POOL)
    with pytest.raises(ValueError, match="got another"):
        read_pool(place, N_LABELS, digest=digest, n_directions=3)
    np.savez(place, X=ROWS)
    with pytest.raises(ValueError, match="got another"):
        read_pool(place, N_LABELS, **agreed)


ROLES = {"ann": "asker", "guard": "guardian"} | dict.fromkeys(("east", "north", "south"), "answerer")
MECHANISM = MechanismConfig(name="gaussian-sum")


def settings_of(name, *, cards=None, pool=None, labels=(), **changes):
    card = {"address": "127.0.0.1:7400", "pin": "0" * 64, "mask_key": "0" * 64}
    parties = {one: {"role": role, **(cards or {}).get(one, card)} for one, role in ROLES.items()}
    parties["east"]["labels"] = labels
    session = SessionConfig(n_features=N_FEATURES, n_outputs=N_LABELS, patience_seconds=20.0)
    pool = pool or PoolConfig(path="pool.npz", digest="ab" * 32, n_directions=N_DIRECTIONS, sigma=0.5)
    return replace(settings_for(name, parties, session=session, mechanism=MECHANISM, pool=pool), **changes)


def test_settings_read_back_and_terms_bind_pool_directions_scale_and_norm():
    one = settings_of("east")
    assert parse_party(write_party(one)) == one
    assert one.n_entries == 12
    assert PartyContext(one).program_hash(1) == one.pool.digest
    assert one.terms == settings_of("guard").terms
    others = [
        settings_of("east", pool=replace(one.pool, digest="cd" * 32)),
        settings_of("east", pool=replace(one.pool, n_directions=5)),
        settings_of("east", pool=replace(one.pool, sigma=0.6)),
        settings_of("east", labels=(0, 2)),
    ]
    assert len({other.terms for other in (one, *others)}) == 5
    policy = PartyContext(settings_of("guard", hardening=HardeningConfig(noise_sigma=2.0))).policy()
    assert (policy.session.n_outputs, policy.hardening.noise_sigma) == (12, 2.0 * SUM.steps)


def test_settings_that_do_not_go_together_are_refused():
    good = write_party(settings_of("east"))
    for old, new, words in [
        ('digest = "' + "ab" * 32, 'digest = "ab', "64 hexadecimal digits"),
        ("n_directions = 4", "n_directions = 0", "at least one direction"),
        ('path = "pool.npz"', 'path = ""', "file of the pool"),
        ("sigma = 0.5", "sigma = 0.0", "noise of the sum"),
        ('name = "gaussian-sum"', 'name = "gnmax"', "pool"),
    ]:
        assert old in good
        with pytest.raises(ConfigError, match=words):
            parse_party(good.replace(old, new))


# --- Real roles over TLS; no engine is needed. ---


def model_of(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, N_FEATURES))
    y = (X[:, :N_LABELS] + rng.normal(size=(80, N_LABELS)) > 0).astype(int)
    return OneEach(LogisticRegression()).fit(X, y)


def sklearn_model(seed):
    from sklearn.multiclass import OneVsRestClassifier

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, N_FEATURES))
    y = (X[:, :N_LABELS] + rng.normal(size=(80, N_LABELS)) > 0).astype(int)
    return OneVsRestClassifier(LogisticRegression()).fit(X, y)


@pytest.fixture
def session(tmp_path):
    """Run a guardian and three answering parties in this process, and return their folder and the roles."""
    with ExitStack() as stack:
        cards = {}
        for name, role in ROLES.items():
            card = make_certificate(tmp_path, name, role=role)
            port = stack.enter_context(held_port())
            cards[name] = {"address": f"127.0.0.1:{port}", "pin": card.pin, "mask_key": card.mask_key}
        digest = write_pool(tmp_path / "pool.npz", POOL)
        pool = PoolConfig(
            path=str(tmp_path / "pool.npz"), digest=digest, n_directions=N_DIRECTIONS, sigma=0.5
        )
        books = BooksConfig(url="ledger.db", epsilon=60.0, delta=1e-5)
        for number, (name, role) in enumerate(ROLES.items()):
            more = {} if role == "asker" else {"ledger": books}
            settings = settings_of(name, cards=cards, pool=pool, labels=(0, 2), **more)
            (tmp_path / name / "party.toml").write_text(write_party(settings))
            (tmp_path / name / "model.skops").write_bytes(dump_model(sklearn_model(number)))
        said, roles = [], {}
        for name, kind in {
            "guard": GuardRole,
            **dict.fromkeys(("east", "north", "south"), AnswerRole),
        }.items():
            roles[name] = kind(read_party(tmp_path / name / "party.toml"), say=said.append)
            roles[name].start()
            stack.callback(roles[name].stop)
        yield tmp_path, roles, said


def wait_until_connected(said):
    import time

    until = time.monotonic() + 30
    while sum("is connected." in words for words in said) < 3:
        assert time.monotonic() < until, said
        time.sleep(0.05)


def clear_sum(folder):
    total = 0
    for name in ("east", "north", "south"):
        model = load_model((folder / name / "model.skops").read_bytes())
        knows = np.isin(range(N_LABELS), (0, 2)) if name == "east" else np.ones(N_LABELS, bool)
        total = total + POOL.answer(model, knows, SUM.steps)
    return total


def test_real_roles_give_the_clear_sum_and_the_guardians_noise(session, capsys):
    folder, roles, said = session
    source = roles["guard"]._guardian.noise = Kept()
    wait_until_connected(said)
    with AskRole(read_party(folder / "ann" / "party.toml"), say=said.append) as asker:
        told = asker.ask_pool()
        with pytest.raises(ValueError, match="ask_pool"):
            asker.ask(ROWS)
        assert told.parties == ("east", "north", "south")
        noisy = clear_sum(folder) + source.drawn[0].reshape(N_DIRECTIONS, N_LABELS)
        np.testing.assert_array_equal(told.sums, noisy)
        values = np.rint(POOL.directions @ noisy).astype(np.int64)
        np.testing.assert_array_equal(told.release.values, values)
        price = SUM.batch_price(Unit())
        np.testing.assert_array_equal(asker.price(1).values, price.values)
    X = RNG.normal(size=(30, N_FEATURES))
    own = Member("ann", X, (X[:, :N_LABELS] > 0).astype(int), model_of(9))
    learned = learn_from_sum(own, told.release, POOL, estimator=LogisticRegression())
    assert learned.predict_proba(ROWS).shape == (40, N_LABELS)
    # The command says the same, and every party's books hold both.
    out = folder / "sum.npz"
    code, words, err = run(capsys, "party", "sum", "--config", folder / "ann" / "party.toml", "--out", out)
    assert code == 0, err
    assert "noisy sum of 3 parties" in words
    with np.load(out) as found:
        again = clear_sum(folder) + source.drawn[1].reshape(N_DIRECTIONS, N_LABELS)
        np.testing.assert_array_equal(found["sums"], again)
        assert (found["steps"], found["n_parties"]) == (SUM.steps, 3)
    for name in ("guard", "east", "north", "south"):
        with open_ledger(folder / name / "ledger.db") as ledger:
            entries = ledger.entries()
            assert [entry.event["mechanism"] for entry in entries] == ["GaussianSum"] * 2
            np.testing.assert_allclose(ledger.spent.values, 2 * price.values)
    code, words, err = run(capsys, "party", "price", "--config", folder / "guard" / "party.toml", "--json")
    assert code == 0, err
    assert f'"batch": {price.epsilon(1e-5)}' in words


def test_a_party_with_another_pool_or_dishonest_norm_is_noticed(session):
    folder, roles, said = session
    wait_until_connected(said)
    roles["north"]._model["answer"][0, 0] = 10**7  # far beyond the norm: seen by the asker in the clear
    other = read_party(folder / "ann" / "party.toml")
    with AskRole(other, say=said.append) as asker, pytest.raises(ValueError, match="broke its bound"):
        asker.ask_pool()
    other = replace(other, pool=replace(other.pool, digest="00" * 32))
    with AskRole(other, say=said.append) as asker, pytest.raises(ValueError, match="got another"):
        asker.ask_pool()  # its own file is not what it agreed on
    with AskRole(other, say=said.append) as asker:
        asker._context.__dict__["pool"] = POOL
        with pytest.raises(RoundAborted, match="other terms"):
            asker.ask_pool(n_retries=0)


def test_a_pool_is_written_by_the_command(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", ROWS)
    code, out, err = run(
        capsys, "party", "pool", "--rows", tmp_path / "rows.npy", "--out", tmp_path / "pool.npz",
        "--directions", "4",
    )  # fmt: skip
    assert code == 0, err
    assert f'digest = "{digest_of(POOL)}"' in out
    assert "n_directions = 4" in out
    read_pool(tmp_path / "pool.npz", N_LABELS, digest=digest_of(POOL), n_directions=4)


def test_session_prices_are_of_whole_sums():
    settings = settings_of("guard", hardening=HardeningConfig(noise_sigma=2.0))
    said = session_price(settings, n_queries=1, epsilon=30.0)
    assert said.batch == SUM.batch_price(Unit()).epsilon(1e-5)
    assert said.n_affordable == affordable_queries(SUM, Budget(30.0, 1e-5))
    ledger = MemoryLedger(Accountant(Budget(30.0, 1e-5)))
    assert ledger.accountant.affords(ledger.spent, SUM.batch_price(Unit()) * said.n_affordable)
    assert [one.n_shares for one in said.collusions] == [2]
