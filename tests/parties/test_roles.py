"""Guardian, answering parties and an asker over TLS and with the engine, as processes or commands."""

import csv
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import PeerRefused, RoundAborted
from tellers.ledger import open_ledger
from tellers.parties import AskRole
from tellers.parties._certificates import make_certificate
from tellers.parties._ledger import query_price
from tellers.parties._policy import PartyContext
from tellers.parties._wire import connect
from tellers.runs import MechanismConfig, write_party

from .. import forked
from .process_network import ENVIRONMENT, ProcessNetwork, ThreadNetwork, charged, compare


@pytest.fixture
def make_network(tmp_path, engine):
    made = []

    def make(kind=ProcessNetwork, **options):
        made.append(kind(tmp_path, **options))
        return made[-1].start_all()

    yield make
    for one in made:
        one.close()


@pytest.mark.slow
def test_labels_are_those_of_the_clear_until_the_budget_is_used(make_network):
    network = make_network(ThreadNetwork, n_answerers=2, quorum=2, n_labels=3, epsilon=160.0)
    with AskRole(network.settings("ann")) as asker:
        price, more = (asker.price(n).epsilon(1e-5) for n in (40, 60))
        assert price < 160 < more, (price, more)
        for _ in range(2):
            compare(network, asker, 20)
        with pytest.raises(RoundAborted, match="Nothing was charged"):
            asker.ask(network.rows(20))
    # Refused before anybody lent a mask, and not asked again.
    for name in ("guard", *network.names):
        assert charged(network, name) == [20, 20]
    assert "failed" not in network.log("guard")  # the asker was done, and hung up


@pytest.mark.campaign
def test_plain_masks_and_parties_that_abstain(make_network):
    network = make_network(pairwise=False, abstain_below=1.2)
    with AskRole(network.settings("ann")) as asker:
        for n in (100, 31):
            compare(network, asker, n)
    assert charged(network) == charged(network, "north") == [100, 31]


@pytest.mark.campaign
@pytest.mark.parametrize("bar", [False, True])
def test_parties_that_know_different_labels(make_network, bar):
    mechanism = MechanismConfig(name="binary", sigma=1.0)
    if bar:
        mechanism = MechanismConfig(name="confident-binary", sigma=1.0, threshold=1.5, sigma_threshold=0.8)
    sets = {"east": (0, 1), "north": (1, 3), "south": (0, 1, 2)}
    network = make_network(n_answerers=3, n_labels=4, labels=sets, mechanism=mechanism, patience=240.0)
    with AskRole(network.settings("ann")) as asker:
        batch = compare(network, asker, 100)
        # South alone knows it. With the bar a row is told with probability 0.25: one of the two answers is
        # missing by chance in less than 1e-4 of all runs.
        assert {0, 1} <= set(np.unique(batch.labels[:, 2]))
        network.kill("south")
        batch = compare(network, asker, 100, parties=("east", "north"))
        assert (batch.labels[:, 2] == -1).all()
        assert {0, 1} <= set(np.unique(batch.labels[:, [0, 1, 3]]))
    assert charged(network) == charged(network, "north") == [100, 100]
    # A party pays for its own labels; the guardian's books hold for whoever of the set knows the most.
    known = {"guard": [3, 2], "north": [2, 2], "east": [2, 2], "south": [3]}
    for name, n_labels in known.items():
        with open_ledger(network.folder / name / "ledger.db") as ledger:
            for entry, n in zip(ledger.entries(), n_labels, strict=True):
                alone = replace(network.settings("guard").build_mechanism(), n_labels=n)
                np.testing.assert_allclose(entry.charged.values, query_price(alone, 100).values)


@pytest.mark.campaign
def test_certificates_change_while_queries_go_on(make_network):
    """Everybody learns of the next pin, each changes by itself, and the old pin goes: no query fails."""
    network = make_network(ThreadNetwork, n_answerers=2, quorum=2)
    everybody, changing = ("guard", *network.names, "ann"), ("north", "guard", "ann")
    old = {name: network.settings(name) for name in everybody}
    roles = {name: old[name].party.role for name in changing}
    cards = {name: make_certificate(network.folder, name, role=roles[name], renews=True) for name in changing}

    def write(name, change):
        (network.folder / name / "party.toml").write_text(write_party(change(network.settings(name))))

    def write_pins(**pins):
        """Give everybody pins of those that change, by the field and what it is read from."""
        for name in everybody:
            write(name, lambda settings: replace(settings, peers=tuple(
                replace(peer, **{field: of(cards[peer.name]) for field, of in pins.items()})
                if peer.name in cards else peer for peer in settings.peers
            )))  # fmt: skip

    def restart(*names):
        for name in names:
            network.kill(name)
        network.restart(*names)

    def ask():
        with AskRole(network.settings("ann")) as ann:
            compare(network, ann, 2)

    def change(name):
        home = f"../{cards[name].folder}"
        write(name, lambda settings: replace(settings, party=replace(settings.party, certificates=home)))

    write_pins(next_pin=lambda card: card.pin)
    restart("guard", *network.names)
    change("north")
    restart("north")
    ask()  # the old and the new, side by side
    change("guard")
    change("ann")
    restart("guard")
    network.wait_until_connected(*network.names)
    ask()
    write_pins(pin=lambda card: card.pin, next_pin=lambda _: "")
    restart("guard", *network.names)
    ask()
    for host in ("guard", "north"):
        stolen, now = PartyContext(old["ann"]), PartyContext(network.settings("ann"))
        with pytest.raises(PeerRefused):
            connect(now.address(host), stolen.identity, now.peer(host), timeout=30.0)


DYING = """
import sys
from dataclasses import replace
from tellers.cli import main
from tests.parties.instrumented_party import die_at
if sys.argv[1]:
    die_at(sys.argv[1])
main(sys.argv[2:])
"""


@pytest.mark.campaign
def test_commands_write_labels_say_what_they_cost_and_go_on_where_they_stopped(make_network, tmp_path):
    network = make_network(n_answerers=2, quorum=2, n_labels=3, max_queries=10)
    rows = network.rows(35)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    np.save(tmp_path / "rows.npy", rows)
    words = ["party", "ask", "--config", tmp_path / "ann" / "party.toml", "--json"]

    def ask(given, out, *more, step=None):
        begin = ["-m", "tellers"] if step is None else ["-c", DYING, step]
        done = [*begin, *words, "--rows", tmp_path / given, "--out", tmp_path / out, *more]
        return forked.run(
            [sys.executable, *map(str, done)], capture_output=True, text=True, env=ENVIRONMENT, timeout=300,
            check=False,
        )  # fmt: skip

    def require_labels(told, numbers, labels):
        for batch in told["batches"]:
            start, end = batch["rows"]
            at = numbers.index(start)
            expected = network.clear(rows[start:end], batch["qid"], tuple(batch["answering"]))
            np.testing.assert_array_equal(labels[at : at + end - start], expected)

    def require_kept(told):
        with np.load(tmp_path / "labels.npz") as found:
            require_labels(told, found["rows"].tolist(), found["labels"])

    done = ask("rows.csv", "labels.csv")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [batch["n_queries"] for batch in told["batches"]] == charged(network) == [10, 10, 10, 5]
    with open(tmp_path / "labels.csv", newline="") as file:
        lines = np.array([[int(number) for number in line] for line in list(csv.reader(file))[1:]])
    require_labels(told, lines[:, 0].tolist(), lines[:, 1:])
    with open_ledger(network.folder / "guard" / "ledger.db") as ledger:
        assert told["epsilon"] == pytest.approx(ledger.spent.epsilon(1e-5))
    again = ask("rows.csv", "labels.csv")
    assert again.returncode == 2
    assert "is there" in again.stderr

    # Killed before the second batch could be charged: nothing is lost, and it goes on with that batch.
    assert ask("rows.npy", "labels.npz", step="on:opened:2").returncode == -9
    assert charged(network)[4:] == [10]
    # Killed after the third was charged, with its labels on their way: lost, and asked again if told to.
    assert ask("rows.npy", "labels.npz", step="on:agreed:2").returncode == -9
    assert charged(network)[5:] == [10, 10]
    done = ask("rows.npy", "labels.npz")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["n_before"], told["n_labelled"], told["n_lost"]) == (20, 25, 10)
    assert "10 rows, from row 20 on, may have been charged" in " ".join(done.stderr.split())
    require_kept(told)
    done = ask("rows.npy", "labels.npz", "--again")
    assert done.returncode == 0, done.stderr
    require_kept(json.loads(done.stdout))
    assert charged(network)[7:] == [5, 10]
    with AskRole(network.settings("ann")) as asker:
        assert json.loads(done.stdout)["epsilon_at_most"] == pytest.approx(asker.price(45).epsilon(1e-5))
