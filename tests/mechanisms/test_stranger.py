"""A mechanism of another package works wherever ours do, as far as it answers; what it lacks is told."""

import inspect
import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from starlette.testclient import TestClient

from tellers import (
    Accountant,
    Budget,
    Cost,
    GNMax,
    MemoryLedger,
    PateClassifier,
    RdpCurve,
    Release,
    Room,
    Unit,
    Votes,
    noise,
)
from tellers.accounting import Consensus, account, exact_cost, plan_labels, publish
from tellers.cli import main
from tellers.errors import ConfigError
from tellers.mechanisms import (
    EVENTS,
    MECHANISMS,
    check_parameters,
    mechanism_named,
    names,
    parameter,
    register,
    registry,
)
from tellers.privacy.noise import Noise
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    RunConfig,
    TeachersConfig,
    parse_config,
    run,
    write_config,
)
from tellers.runs.result import MechanismPart
from tellers.service import LedgerConfig, ServedConfig, ServiceSettings, create_app
from tellers.service._keys import KeyStore
from tellers.teachers import save_votes
from tellers.testing import check_mechanism

THEIR_IMPORTS = """
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tellers import Cost, RdpCurve, Release, Unit, Votes
from tellers.mechanisms import check_parameters, parameter
from tellers.privacy.noise import Noise
"""


@dataclass(frozen=True)
class Exponential:
    """Report the class that leads after geometric noise, which is never negative, on every count.

    Guarantee: one query is (2 rate, 0)-differentially private for one ballot that changes arbitrarily. With
               noise P[G = k] = (1 - p) p^k, p = e^-rate, let one count grow by 1. The class that grew: its
               chance is E f(n + G) with f, its chance to win given all other noise, rising; dropping the term
               k = 0 leaves p E f(n + 1 + G), so the chance grows by a factor between 1 and 1 / p. Any other
               class j: whatever noise it won with, it still wins, or ties with no more rivals, with one unit
               more of its own, so its chance falls by a factor between p and 1. A changed ballot lowers one
               count and raises another: both factors multiply, at most 1 / p^2 = e^(2 rate). For a unit that
               moves more votes, one factor per vote.
    Assumes:   whole counts; ties are broken at random; noise from a secure source.
    Reference: Dwork and Roth 2014, Claim 3.9 (report noisy max); Ding et al. 2021 for exponential noise.
    """

    rate: float = parameter(
        "the noise on every count has mean about 1 / rate", above=0, example=0.2, in_votes=-1
    )
    one_price: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_parameters(self)

    def price(self, unit: Unit) -> RdpCurve:
        return RdpCurve.pure(self.rate * unit.l1).as_price()

    def release(self, votes: Votes, noise: Noise) -> Release:
        noisy = votes.counts + self.draw(noise, votes.counts.shape)
        return Release(noise.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)))

    def draw(self, noise: Noise, shape: tuple[int, ...]) -> np.ndarray:
        """A discrete Laplace draw that is not negative is geometric, exactly: others are drawn again."""
        scale = 1 / Fraction(self.rate)
        drawn = noise.discrete_laplace(scale, shape)
        while (negative := drawn < 0).any():
            drawn[negative] = noise.discrete_laplace(scale, (int(negative.sum()),))
        return drawn


DELTA = 1e-5
RATE = 0.5
VOTES, TRUTH = Consensus().votes(60, 3, n_queries=40, seed=7)
SMALL = RunConfig(
    data=DataConfig(
        name="synthetic", n_public=60, n_test=80, options={"n_rows": 740, "difficulty": 0.4, "n_classes": 3}
    ),
    partition=PartitionConfig(n_teachers=30),
    teachers=TeachersConfig(model="naive_bayes"),
    budget=BudgetConfig(epsilon=60.0, delta=DELTA),
)


@pytest.fixture
def registered():
    """The stranger under a name, for one test: others hold what is written against our own names."""
    register("exponential", "geometric noise, the winner")(Exponential)
    yield "exponential"
    del registry._named["exponential"], registry._events["Exponential"]


@pytest.fixture
def votes_file(tmp_path):
    save_votes(tmp_path / "votes.npz", VOTES)
    return tmp_path / "votes.npz"


@pytest.fixture
def tellers(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


# --- What it promises: by brute force. ---


def chances(counts, rate, most=50):
    """Return who wins how often, by going through all noise up to so much: what is beyond is nothing."""
    p = math.exp(-rate)
    law = (1 - p) * p ** np.arange(most)
    noisy = np.meshgrid(*[count + np.arange(most) for count in counts], indexing="ij")
    weight = np.ones((most,) * len(counts))
    for axis in range(len(counts)):
        shape = [1] * len(counts)
        shape[axis] = most
        weight = weight * law.reshape(shape)
    leads = np.stack(noisy) == np.max(noisy, axis=0)
    return (weight * leads / leads.sum(axis=0)).reshape(len(counts), -1).sum(axis=1)


@pytest.mark.parametrize("rate", [0.7, 1.5])
def test_no_changed_ballot_moves_a_chance_by_more_than_the_price_says(rate):
    found = {c: chances(c, rate) for c in itertools.product(range(5), repeat=3)}
    largest = 0.0
    for counts, here in found.items():
        for a, b in itertools.permutations(range(3), 2):
            there = list(counts)
            there[a], there[b] = there[a] - 1, there[b] + 1
            if tuple(there) in found:
                largest = max(largest, np.abs(np.log(here / found[tuple(there)])).max())
    assert largest <= 2 * rate + 1e-9
    assert largest >= 1.9 * rate  # and no smaller epsilon would do
    assert Exponential(rate).price(Unit()).values[-1] == pytest.approx(2 * rate, rel=0.02)


def test_draws_follow_the_law():
    counts, n = (6, 5, 3), 40_000
    labels = Exponential(RATE).release(Votes.from_counts([counts] * n, n_teachers=14), noise.seeded(7)).labels
    expected = chances(counts, RATE)
    assert np.allclose(np.bincount(labels, minlength=3) / n, expected, atol=5 / math.sqrt(n))


def test_it_keeps_every_promise_of_a_mechanism():
    check_mechanism(Exponential(RATE), n_teachers=20, n_classes=3, n_random=100, n_draws=2000)


# --- Passed in as an object. ---


def test_account_prices_it_and_says_what_there_is_not():
    books = account(Exponential(RATE), VOTES, delta=DELTA, budget=30.0)
    price = Exponential(RATE).price(Unit())
    assert books.public.method == "price-rdp"
    assert books.budget_needed >= (price * len(VOTES)).epsilon(DELTA) > 0
    assert books.afforded.n_queries <= len(VOTES)
    assert books.private is None
    assert any("Exponential does not say how likely" in note for note in books.notes)
    with pytest.raises(TypeError, match="mechanism with outcomes, got Exponential"):
        exact_cost(Exponential(RATE), VOTES)


def test_a_plan_counts_its_labels_in_releases():
    [plan] = plan_labels(
        VOTES, TRUTH, budget=Budget(30.0, DELTA), n_public=1000, mechanisms=[Exponential(RATE)]
    )
    assert plan.epsilon_exact is None
    assert plan.accuracy > 0.8
    assert 0 < plan.epsilon_public <= 30.0
    with pytest.raises(ValueError, match="Hold it against the public price"):
        plan_labels(
            VOTES,
            TRUTH,
            budget=Budget(30.0, DELTA),
            n_public=9,
            mechanisms=[Exponential(RATE)],
            against="exact",
        )


def test_a_classifier_learns_from_it():
    X = np.random.default_rng(7).normal(size=(900, 4))
    y = (X[:, 0] > 0).astype(int)
    pate = PateClassifier(
        n_teachers=30, n_classes=2, mechanism=Exponential(RATE), budget=Budget(60.0, DELTA), random_state=7
    ).fit(X[:700], y[:700], public=X[700:780])
    assert (pate.predict(X[780:]) == y[780:]).mean() > 0.8
    assert 0 < pate.epsilon_ <= 60.0


def test_a_room_charges_it():
    class Agreed:
        n_classes = 3

        def vote(self, X):
            return VOTES[: len(X)]

    ledger = MemoryLedger(Accountant(Budget(9.0, DELTA)))
    room = Room(Agreed(), Exponential(RATE), ledger, noise.secure())
    release = room.ask(np.zeros((4, 1)), key="first")
    assert len(release) == 4
    assert ledger.entries()[0].event["mechanism"] == "Exponential"
    assert np.allclose(ledger.spent.values, (Exponential(RATE).price(Unit()) * 4).values)


# --- By its name. ---


def test_a_name_leads_to_it_and_to_its_parameters(registered):
    assert registered in names("class")
    assert MECHANISMS[registered] is mechanism_named(registered) is EVENTS["Exponential"] is Exponential
    assert MechanismConfig(name=registered, rate=RATE).build() == Exponential(RATE)
    with pytest.raises(ValueError, match="name of its own"):
        register(registered)(GNMax)
    for wrong, words in (
        ({"rate": 0}, "above 0"),
        ({"rate": RATE, "sigma": 3}, "Expected only rate"),
        ({}, "For example: rate = 1.0"),
    ):
        lines = "".join(f"{name} = {value}\n" for name, value in wrong.items())
        with pytest.raises(ConfigError, match=words):
            parse_config(f'[mechanism]\nname = "{registered}"\n{lines}')


def test_a_written_file_has_its_parameter_with_its_words(registered):
    config = replace(SMALL, mechanism=MechanismConfig(name=registered, rate=RATE))
    text = write_config(config)
    assert "exponential: the noise on every count has mean about 1 / rate." in " ".join(text.split("\n# "))
    assert parse_config(text) == config


def test_the_command_line_has_its_options(registered, votes_file, tellers):
    assert "--rate" in tellers("account", "--help")[1]
    how = ["--mechanism", registered, "--rate", RATE, "--delta", DELTA, "--json"]
    code, out, err = tellers("account", votes_file, *how, "--show-private")
    assert (code, err) == (0, "")
    books = json.loads(out)
    assert books["public"]["epsilon"] == account(Exponential(RATE), VOTES, delta=DELTA).public.epsilon
    assert "private" not in books
    assert any("there is no exact cost" in note for note in books["notes"])
    code, out, _ = tellers("account", votes_file, *how[:-1])
    assert (code, "price-rdp" in out) == (0, True)
    code, out, _ = tellers("publish", votes_file, *how, "--yes")
    assert (code, json.loads(out)["method"]) == (0, "independent")
    code, out, _ = tellers("plan", "--teachers", 60, "--classes", 3, "--epsilon", 30, *how, "--queries", 500)
    [plan] = json.loads(out)["plans"]
    assert (code, plan["mechanism"], plan["epsilon_exact"]) == (0, "Exponential", None)
    code, _, err = tellers("account", votes_file, "--mechanism", registered, "--delta", DELTA)
    assert (code, "For example: --rate 0.2" in err) == (2, True)


def test_publishing_is_its_price(registered):
    from tellers.accounting.smooth import PublishPlan

    plan = PublishPlan("independent", 2.0, 0.0, 0.0, 1.0, 1.0)
    published = publish(Exponential(RATE), VOTES, noise.secure(), plan=plan, delta=DELTA)
    assert published.epsilon_upper == (Exponential(RATE).price(Unit()) * len(VOTES)).epsilon(DELTA)


def test_a_run_by_its_name(registered, tmp_path, tellers):
    (tmp_path / "settings.toml").write_text(
        write_config(replace(SMALL, mechanism=MechanismConfig(name=registered, rate=RATE)))
    )
    code, out, err = tellers("run", tmp_path / "settings.toml", "--out", tmp_path / "study", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["mechanism"]["name"] == "Exponential"
    assert 0 < result["spent"]["epsilon"] <= 60.0
    assert (tmp_path / "study" / "report.html").is_file()
    code, out, err = tellers("account", tmp_path / "study", "--json", "--show-private")
    assert code == 0, err
    assert "no exact cost" in " ".join(json.loads(out)["notes"])
    with pytest.raises(ConfigError, match=r"budget\.stop"):
        run(
            replace(
                SMALL,
                mechanism=MechanismConfig(name=registered, rate=RATE),
                budget=BudgetConfig(epsilon=60.0, delta=DELTA, stop="private", private_epsilon=1.0),
            ),
            tmp_path / "other",
        )


def test_a_service_hands_out_its_labels(registered, tmp_path, votes_file):
    settings = ServiceSettings(
        data=ServedConfig(source="votes", path=votes_file.name, n_classes=3),
        mechanism=MechanismConfig(name=registered, rate=RATE),
        ledger=LedgerConfig(url="ledger.db", epsilon=30.0, delta=DELTA),
        folder=str(tmp_path),
    )
    store = KeyStore(settings.place(settings.keys.store))
    token, _ = store.create("alice", "student")
    store.close()
    with TestClient(create_app(settings)) as client:
        said = client.post(
            "/v1/labels",
            headers={"Authorization": f"Bearer {token}"},
            json={"idempotency_key": "first", "pool": [0, 1, 2]},
        ).json()
    assert len(said["labels"]) == 3
    assert said["charge"]["epsilon"] == (3 * Exponential(RATE).price(Unit())).epsilon(DELTA)


def test_an_installed_package_is_found_by_its_entry_point(tmp_path, votes_file):
    (tmp_path / "their_package.py").write_text(f"{THEIR_IMPORTS}\n\n{inspect.getsource(Exponential)}")
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[tellers.mechanisms]\nexponential = their_package:Exponential\nbroken = nowhere:Nothing\n"
    )
    how = "--mechanism exponential --rate 1 --delta 1e-5 --json"
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    done = subprocess.run(
        [sys.executable, "-m", "tellers", "account", str(votes_file), *how.split()],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = account(Exponential(1.0), VOTES, delta=1e-5).public.epsilon
    assert json.loads(done.stdout)["public"]["epsilon"] == expected
    assert "'broken' of nowhere:Nothing does not load" in done.stderr


def test_what_parameters_disagree_on_is_left_to_the_mechanism():
    @dataclass(frozen=True)
    class Loose:
        sigma: float = parameter("any noise", example=1.0)

    register("loose")(Loose)
    try:
        assert "above" not in registry.parameters()["sigma"].limits
        assert MechanismConfig(name="loose", sigma=-3.0).build() == Loose(-3.0)
    finally:
        del registry._named["loose"], registry._events["Loose"]


def test_parameters_that_are_no_numbers_can_be_written_down():
    """A result is written after its labels were paid for: what it refuses then, nobody gets."""
    assert MechanismPart(name="Theirs", ties="random", shares=[0.5, 0.5]).parameters["ties"] == "random"
    with pytest.raises(ValueError, match="a finite number"):
        MechanismPart(name="GNMax", sigma="40")
