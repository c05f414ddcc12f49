"""What each party of a confidential query receives: every byte of it, and nothing of others' secrets in it.

False alarms: patterns are of 16 bytes or more, which a stream of 1e9 uniform bytes holds one of 1e9 others of
with a chance below 1e-20; what chi-square refuses, it refuses of uniform bytes once in a million runs of this
file, all of its tests together.
"""

import ast
import json
import re

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.parties._messages import KINDS
from tellers.parties._policy import PartyContext

from . import views
from .definitions import scores_of, votes_of
from .model_network import ModelNetwork, read
from .process_network import SOURCE

ALARM = 1e-6
LONG = 1024  # Shorter messages of the engine are bits that do not fill their last word.


@pytest.fixture
def make_network(tmp_path, engine):
    made = []

    def make(**options):
        made.append(ModelNetwork(tmp_path, watched=True, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def streams(network, name):
    """Return all that a party received, and what it read from it, by file; framing taken away as well."""
    view = network.view(name)
    found = {
        place.name: place.read_bytes()
        for place in view.iterdir()
        if not place.name.startswith(("own.", "most")) and place.stat().st_size
    }
    for other in ("ann", "guard", *network.names):
        for channel, values in views.engine_channels(view, other).items():
            found[f"{other}, {channel}"] = b"".join(values)
    return found


def lines(place):
    return place.read_text().splitlines()


def put_in(network, name, peer):
    """Return what a party put into its runs with another, in order."""
    return [dict(np.load(place)) for place in sorted(network.view(name).glob(f"own.{peer}.*.npz"))]


def secrets_of(network, rows, batch, qids):
    """Return runs of all that is secret, by whose it is and what; of several batches together."""
    parts = [rows[i : i + batch] for i in range(0, len(rows), batch)]
    found = {"ann": {"rows": views.written(rows)}, "guard": {}}
    program = PartyContext(network.settings("ann")).vote_program(batch)
    coded = [program.encode(part) for part in parts]
    found["ann"]["rows as whole numbers"] = views.written(np.stack(coded))
    shares = [one["shares"] for one in put_in(network, "ann", "guard")]
    found["ann"]["sum of shares"] = views.written(np.stack(shares))
    for name in network.names:
        model = PartyContext(network.settings(name)).model()
        own = {"model": set().union(*(views.written(table) for table in model.values()))}
        inner = network.estimator(name)
        for weights in getattr(inner, "coefs_", None) or [
            e.coef_ for e in getattr(inner, "estimators_", [inner])
        ]:
            own["model"] |= views.written(np.asarray(weights)) | views.written(np.asarray(weights).T)
        own["scores"] = views.written(np.stack([scores_of(program, model, x) for x in coded]))
        own["votes"] = set().union(*(views.written_small(votes_of(program, model, x)) for x in coded))
        own["mask"] = views.written(np.stack([one["mask"] for one in put_in(network, name, "ann")]))
        got = np.frombuffer(read(network.view("ann") / f"outcomes.{name}.bin"), dtype="<i8")
        found["ann"][f"share of {name}"] = views.written(got)
        found[name] = own
    kept = [dict(np.load(network.folder / "noise" / f"{qid}.npz")) for qid in qids]
    drawn = [one["answer_noise"] for one in kept]
    found["guard"] = {
        "noise": set().union(*(views.written_small(one) for one in drawn)),
        "sum of masks": views.written(np.stack([one["masks"] for one in kept])),
        "sums of masks and noise": set().union(
            *(
                views.written(one[name])
                for one in put_in(network, "guard", "ann")
                for name in ("answer", "range")
            )
        ),
    }
    if "ranks" in kept[0]:
        found["guard"]["ranks"] = set().union(*(views.written_small(one["ranks"]) for one in kept))
    opened = np.frombuffer(read(network.view("ann") / "outcomes.guard.bin"), dtype="<i8")
    found["ann"]["codes that were opened"] = views.written(opened)
    found["ann"]["codes"] = views.written(np.stack([one["codes"] for one in put_in(network, "ann", "guard")]))
    return found


KINDS_RECEIVED = {
    "asker": {"guardian": {"hello", "opened", "agreed"}, "answerer": {"hello", "accepted"}},
    "answerer": {"guardian": {"hello", "expect", "roll", "closed"}, "asker": {"hello", "question"}},
    "guardian": {"asker": {"hello", "open", "answered", "done"}, "answerer": {"hello", "ready", "mask"}},
}
SESSIONS = {
    "classes, linear, masks that cancel, shares of noise": {"n_outputs": 10, "noise_sigma": 2.0},
    "labels, network, plain masks": {
        "task": "multi",
        "kind": "network",
        "n_outputs": 8,
        "n_answerers": 2,
        "pairwise": False,
    },
}


@pytest.mark.campaign
@pytest.mark.parametrize("session", SESSIONS)
def test_nobody_receives_what_is_anothers(make_network, session):
    options = SESSIONS[session]
    network = make_network(**{"n_answerers": 3, "n_features": 12, **options}).start_all()
    rows, batch = network.rows(200), 100
    _, qids, _ = network.ask(rows, batch)
    roles = {"ann": "asker", "guard": "guardian"} | dict.fromkeys(network.names, "answerer")
    secrets = secrets_of(network, rows, batch, qids)
    cancelling = options.get("pairwise", True)
    n_bytes = n_runs = 0
    for name, role in roles.items():
        # Which messages came, from whom, with which fields.
        messages = network.messages(name)
        for other, kinds in KINDS_RECEIVED[role].items():
            assert {kind for sender, kind in messages if sender == other} == kinds, (name, other)
        assert {sender for sender, _ in messages} == set(KINDS_RECEIVED[role])
        # What the engine opened: to the asker alone.
        outcomes = {place.name.split(".")[1] for place in network.view(name).glob("outcomes.*")}
        assert outcomes == ({"guard", *network.names} if role == "asker" else set()), name
        told = [json.loads(line) for place in network.view(name).glob("told.*") for line in lines(place)]
        assert {one["how"] for one in told} == ({"all_gather", "recv"} if role == "asker" else {"all_gather"})
        # Every byte of it, against everybody's secrets but those that this party has itself.
        others = {
            f"{owner}: {what}": runs
            for owner, own in secrets.items() for what, runs in own.items()
            if owner != name or what in ("votes", "scores")  # an answerer does not see its own votes either
        }  # fmt: skip
        if role == "guardian" and not cancelling:
            others = {what: runs for what, runs in others.items() if not what.endswith(": mask")}
        received = streams(network, name)
        n_bytes += sum(map(len, received.values()))
        n_runs = max(n_runs, sum(map(len, others.values())))
        assert not views.leaks(received.values(), others), name
    shortest = min(len(run) for own in secrets.values() for runs in own.values() for run in runs)
    assert shortest >= views.needle_length(n_bytes, n_runs)
    print(f"{session}: {n_runs} runs looked for in {n_bytes / 1e6:.1f} MB; the shortest has {shortest} bytes")
    # The other way round: what a party does receive is found by the same means.
    wire = read(network.view("guard") / "wire.answerer.bin")
    masks = {
        "masks": views.written(np.frombuffer(read(network.view("guard") / "masks.north.bin"), dtype="<i8"))
    }
    assert views.leaks([wire], masks) == ["masks"]
    if not cancelling:
        raw = {"mask": secrets["north"]["mask"]}
        assert views.leaks([wire], raw) == ["mask"]
    theirs = {
        "share": {share.hex().encode() for share in views.needles(_output_share(network, "north"), width=2)}
    }
    link = max(network.view("ann").glob("engine.north.*.bin"), key=lambda place: place.stat().st_size)
    assert views.leaks([link.read_bytes()], theirs) == ["share"]
    # And a leak: one row, somewhere in what the guardian received.
    planted = wire[:1001] + np.ascontiguousarray(rows[77]).tobytes() + wire[1001:]
    assert views.leaks([planted], {"rows": secrets["ann"]["rows"]}) == ["rows"]


def _output_share(network, name):
    """Return the numbers of another engine's shares of outcomes, as the asker's engine was told them."""
    found = []
    for line in lines(network.view("ann") / f"told.{name}.jsonl"):
        said = json.loads(line)
        if said["how"] == "recv":
            _, *chunks = json.loads(said["words"][0])
            # A chunk is a record of the engine's: lengths, and the numbers as its third field.
            found += [np.frombuffer(views.record(bytes.fromhex(chunk))[3], dtype="<i8") for chunk in chunks]
    return np.concatenate(found)


@pytest.mark.campaign
def test_shares_and_masks_are_uniform(make_network):
    network = make_network(task="multi", n_outputs=64, n_answerers=2, max_queries=500)
    for name in ("ann", "guard", *network.names):
        network.view(name).mkdir(parents=True)
        (network.view(name) / "most").write_text("16000000")
    network.start_all()
    rows = network.rows(2000)
    labels, qids, parties = network.ask(rows, 500)
    uniform, rest = {}, {}
    for name in network.names:
        uniform[f"masks, {name} to guardian"] = read(network.view("guard") / f"masks.{name}.bin")
        uniform[f"asker's shares of {name}'s votes"] = read(network.view("ann") / f"outcomes.{name}.bin")
        uniform[f"shares of outcomes, {name} to asker"] = _output_share(network, name).tobytes()
    links = [("ann", "guard"), ("guard", "ann")]
    links += [ends for name in network.names for ends in ((name, "ann"), ("ann", name))]
    for here, there in links:
        compared, small = b"", b""
        for channel, values in views.engine_channels(network.view(here), there).items():
            if re.fullmatch(r"link-\d+", channel):  # one for each of the engine's threads
                compared += b"".join(value for value in values if len(value) >= LONG)
                small += b"".join(value for value in values if len(value) < LONG)
            else:
                rest[f"{channel}, {there} to {here}"] = b"".join(values)
        uniform[f"comparisons, {there} to {here}"] = compared
        rest[f"comparisons, {there} to {here}, messages under {LONG} bytes"] = small
    uniform["shares of outcomes, guardian to asker"] = _output_share(network, "guard").tobytes()
    print(f"| {'what':65} | bytes | chi2 per degree | p |")
    for what, data in uniform.items():
        p, ratio = views.uniformity(data)
        print(f"| {what:65} | {len(data)} | {ratio:.3f} | {p:.3g} |")
    print("not meant to be uniform: framing, text, compressed ciphertexts, packed bits")
    for what, data in rest.items():
        if len(data) >= 4096:
            print(f"| {what:65} | {len(data)} | {views.uniformity(data)[1]:.3f} |")
    for what, data in uniform.items():
        assert len(data) >= 1_000_000, (what, len(data))
        assert views.uniformity(data)[0] > ALARM / len(uniform), what
    # Beside: so many labels are those of the clear computation.
    for n, (qid, answering) in enumerate(zip(qids, parties)):
        part = slice(500 * n, 500 * n + 500)
        np.testing.assert_array_equal(labels[part], network.clear(rows[part], qid, answering))


# --- The means themselves: they find what is there, and not what is not. ---


@pytest.mark.parametrize("kind", ["<i8", ">i8", "<f8", "hex"])
def test_a_planted_run_is_found_wherever_it_stands(kind):
    rng = np.random.default_rng(5)
    numbers = rng.integers(-(2**19), 2**19, (40, 6))
    planted = numbers[7, 2:4].astype("<i8" if kind == "hex" else kind).tobytes()
    planted = planted.hex().encode() if kind == "hex" else planted
    secrets = {"rows": views.written(numbers), "other": views.written(numbers + 1)}
    for offset in range(8):
        stream = rng.bytes(10_000 + offset) + planted + rng.bytes(999)
        assert views.leaks([stream], secrets) == ["rows"]
    assert views.leaks([rng.bytes(100_000)], secrets) == []


@pytest.mark.parametrize("kind", ["words", "bytes", "bits"])
def test_planted_votes_are_found(kind):
    rng = np.random.default_rng(6)
    votes, others = (np.eye(10, dtype=np.int64)[rng.integers(0, 10, 100)] for _ in range(2))
    planted = {
        "words": votes.astype("<i8").tobytes(),
        "bytes": votes.astype(np.uint8).tobytes(),
        "bits": np.packbits(votes.astype(np.uint8)).tobytes(),
    }[kind]
    secrets = {"votes": views.written_small(votes), "others": views.written_small(others)}
    assert views.leaks([rng.bytes(5_003) + planted, rng.bytes(77)], secrets) == ["votes"]
    assert views.leaks([bytes(5_000), rng.bytes(5_000)], secrets) == []


def test_bytes_that_are_nearly_uniform_are_told_from_uniform_ones():
    rng = np.random.default_rng(7)
    words = rng.integers(0, 2**64, 125_000, dtype=np.uint64)
    assert views.uniformity(words.tobytes())[0] > 1e-6
    # A mask of 63 bits, a mask drawn from too few, a vote that one in ten masks leaves as it is.
    for wrong in (words >> 1, words % 5_000, np.where(rng.random(125_000) < 0.1, 1, words)):
        assert views.uniformity(np.asarray(wrong, dtype=np.uint64).tobytes())[0] < 1e-9


def test_patterns_are_long_enough():
    assert views.needle_length(10**9, 10**9) <= 16
    assert 256.0**16 > 1e18 / 1e-20
    assert sorted(
        kind for by in KINDS_RECEIVED.values() for kinds in by.values() for kind in kinds - {"hello"}
    ) == sorted(set(KINDS) - {"hello", "refused", "out", "held", "aborted"})


def test_nothing_in_the_product_leads_to_what_keeps_bytes():
    for place in (SOURCE / "tellers").rglob("*.py"):
        words = place.read_text(encoding="utf-8")
        if place.parent.name != "testing":
            assert "recording_party" not in words, place
            assert place.name == "_link.py" or "_WORKER" not in words, place
    # There it is a constant, which no function changes.
    tree = ast.parse((SOURCE / "tellers" / "parties" / "_link.py").read_text(encoding="utf-8"))
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "_WORKER"]
    assert sum(isinstance(node.ctx, ast.Store) for node in uses) == 1
