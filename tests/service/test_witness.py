"""No answer leaves a service that its witness does not know of, and no ledger without it is served."""

import json
import secrets
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from tellers import open_ledger
from tellers.errors import LedgerConflict
from tellers.ledger.base import Head
from tellers.ledger.witness import FileWitness, last, open_witness
from tellers.service import Client, WitnessConfig, create_app, parse_settings
from tellers.service._ledger import ledger_id

from .. import forked
from .test_journey import Server, environment, folder, tellers  # noqa: F401


def copied(ledger, to):
    """Copy a ledger as a backup does: what is on the disk, without stopping who writes."""
    for file in ledger.parent.glob(ledger.name + "*"):
        shutil.copy(file, to / file.name)


@pytest.mark.parametrize("where", ["", "elsewhere/heads"])
def test_what_a_crash_and_an_old_copy_lost_is_named_and_not_spent_again(folder, tellers, tmp_path, where):  # noqa: F811
    settings = folder / "service.toml"
    if where:
        (folder / "elsewhere").mkdir()
        settings.write_text(f'{settings.read_text()}\n[witness]\nurl = "{where}"\n')
    url, key = (folder / "url").read_text(), tellers("keys", "create", "--name", "alice").strip()
    backup, ledger = tmp_path / "backup", folder / "ledger.db"
    backup.mkdir()
    server = Server(folder, url)
    copied(ledger, backup)
    with Client(url, key) as client:
        for number in range(6):
            assert len(client.ask(pool=[0, 1, 2, 3, 0, 1, 2, 3, 0, 1], key=f"k{number}").labels) == 10
    server.stop(signal.SIGKILL)
    with open_ledger(ledger) as spent:
        before = spent.head.number
    for file in folder.glob("ledger.db*"):
        file.unlink()
    copied(backup / "ledger.db", folder)

    for words in (("serve",), ("serve", "--check")):
        refused = " ".join(tellers(*words, code=2).split())
        assert "it ends at line 0" in refused
        assert f"{before} lines, 1 to {before}, acknowledged after 2" in refused
        assert "--trust-ledger" in refused

    trusting = ("-m", "tellers", "serve", "--config", "service.toml", "--trust-ledger")
    Server(folder, url, trusting).stop()
    with open_ledger(ledger) as trusted:
        said = [json.loads(line.body)["gone"][0] for line in trusted.lines() if line.kind == "trusted"]
    assert {(each["first_gone"], each["last_gone"]) for each in said} == {(1, before)}
    again = Server(folder, url)
    with Client(url, key) as client:
        assert client.ask(pool=[0], key="new").labels.tolist() == [0]
    again.stop()


class Away:
    """A witness that can be away."""

    def __init__(self, witness):
        self.witness, self.name, self.is_away = witness, witness.name, False

    def note(self, ledger, head, *, after=None):
        if self.is_away:
            raise ConnectionError("witness.example is away")
        return self.witness.note(ledger, head, after=after)


def asked(client, who, key):
    return client.post("/v1/labels", headers=who, json={"idempotency_key": key, "pool": [0]})


def test_an_answer_that_the_witness_does_not_know_of_is_withheld(place, alice):
    with place.open() as client:
        anchor = client.app.state.service.labels.ledger.anchor
        assert asked(client, alice, "k0").status_code == 200
        witness = anchor.witness = Away(anchor.witness)
        witness.is_away = True
        refused = asked(client, alice, "k1")
        assert refused.status_code == 503
        assert "under the same idempotency key" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 0
        on_the_books = place.spent()
        # Nothing new is charged, and nothing that is on the books is told in another way.
        assert [asked(client, alice, key).status_code for key in ("k2", "k1")] == [503, 503]
        assert client.get("/v1/releases", headers=alice).status_code == 503
        assert place.spent() == on_the_books
        assert client.get("/v1/budget", headers=alice).status_code == 200
        witness.is_away, anchor._again_at = False, 0.0
        answer = asked(client, alice, "k1").json()
        assert (len(answer["labels"]), answer["replayed"]) == (1, True)
        assert place.spent() == on_the_books
        assert asked(client, alice, "k2").status_code == 200
        assert last(witness.witness, anchor.key).head == anchor.ledger.head


def test_another_service_does_not_tell_what_was_withheld(place, alice):
    """A retry may reach another process on the same ledger, whose witness never failed."""
    with place.open() as one, place.open() as other:
        anchors = [client.app.state.service.labels.ledger.anchor for client in (one, other)]
        for anchor in anchors:
            anchor.witness = Away(anchor.witness)
            anchor.witness.is_away = True
        assert asked(one, alice, "k1").status_code == 503
        assert asked(other, alice, "k1").status_code == 503
        assert other.get("/v1/releases", headers=alice).status_code == 503
        anchors[1].witness.is_away, anchors[1]._again_at = False, 0.0
        assert asked(other, alice, "k1").json()["replayed"] is True


def test_what_a_store_of_an_earlier_version_remembers_still_counts(place):
    from tellers.service._keys import _HEADS

    with place.ledger() as ledger:
        ledger.verify()
    path = place.settings.path("ledger.db")
    backup = path.with_name("backup")
    backup.mkdir()
    copied(path, backup)
    place.key("alice", budget=None)
    with place.ledger() as ledger:
        from tellers import Budget

        ledger.open_account("student/alice", Budget(0.5, 1e-5))
        known = ledger.verify()
    store = place.store
    with store._open() as connection:
        connection.execute(_HEADS.insert().values(ledger=ledger_id(str(path), "main"), head=known))
    store.close()
    for file in path.parent.glob("ledger.db*"):
        file.unlink()
    copied(backup / "ledger.db", path.parent)
    with pytest.raises(LedgerConflict, match="--trust-ledger"):
        create_app(place.settings, log_stream=place.log)
    create_app(place.settings, log_stream=place.log, trust_ledger=True).state.service.labels.close()
    create_app(place.settings, log_stream=place.log).state.service.labels.close()
    with place.ledger() as ledger:
        assert [line.kind for line in ledger.lines()].count("trusted") == 1


def test_an_empty_witness_in_place_of_the_one_that_knew_is_noticed(place, tmp_path):
    """A folder that was not mounted looks like a witness that saw nothing; the store of keys knows better."""
    path = place.settings.path("ledger.db")
    with_file = replace(place.settings, witness=WitnessConfig(url=str(tmp_path / "heads")))
    create_app(with_file, log_stream=place.log).state.service.labels.close()
    path.unlink()
    (tmp_path / "heads").unlink()
    with pytest.raises(LedgerConflict, match="another ledger"):
        create_app(with_file, log_stream=place.log)


def test_heads_go_to_the_witness_of_the_settings(place, alice, tmp_path):
    own = replace(place, settings=replace(place.settings, witness=WitnessConfig(url="heads", every=1)))
    with own.open() as client:
        anchor = client.app.state.service.labels.ledger.anchor
        assert asked(client, alice, "k0").status_code == 200
        assert last(FileWitness(tmp_path / "heads"), anchor.key).head == anchor.ledger.head


def test_a_witness_in_a_database(place, alice, own_database):
    settings = replace(place.settings, witness=WitnessConfig(url=own_database))
    own = replace(place, settings=settings)
    with own.open() as client:
        anchor = client.app.state.service.labels.ledger.anchor
        assert asked(client, alice, "k0").status_code == 200
        assert last(anchor.witness, anchor.key).head == anchor.ledger.head
        seen = last(anchor.witness, anchor.key)
        anchor.witness.trust(anchor.key, anchor.ledger.head, instead_of=seen)
        assert [each.head for each in anchor.witness.history(anchor.key)] == [anchor.ledger.head]
        assert seen.when.endswith("+00:00")
    create_app(settings, log_stream=place.log).state.service.labels.close()


def test_a_witness_in_a_database_that_writes_dates_in_another_way(postgres, own_database):
    postgres.sql(f"ALTER DATABASE {own_database.rpartition('/')[2]} SET datestyle = 'German'")
    witness, head = open_witness(own_database), Head(1, "b" * 64)
    witness.note("a" * 64, head)
    assert last(witness, "a" * 64).head == head


def test_a_database_in_which_no_table_may_be_made_is_no_witness(postgres, own_database):
    name, role = own_database.rpartition("/")[2], f"nobody_{secrets.token_hex(4)}"
    postgres.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    with pytest.raises(ConnectionError, match="may its user make a table"):
        open_witness(postgres.url(name, user=role, password="x"))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('url = "http://127.0.0.1:1"', "token_file"),
        ('url = "heads"\npublic_key = "00"', "only with an http"),
        ('url = "heads"\nevery = 0', "at least 1"),
    ],
)
def test_slips_in_the_settings_are_explained(said, words):
    text = (
        '[data]\nsource = "votes"\nn_classes = 3\n[mechanism]\nname = "gnmax"\nsigma = 9.0\n'
        f'[ledger]\nurl = "x.db"\nepsilon = 1.0\ndelta = 1e-5\n[witness]\n{said}\n'
    )
    with pytest.raises(ValueError, match=words):
        parse_settings(text)


def test_a_witness_that_cannot_be_one_is_refused_by_its_setting(place):
    settings = replace(place.settings, witness=WitnessConfig(url="ftp://me:secret@host"))
    with pytest.raises(ValueError, match=r"witness\.url") as caught:
        create_app(settings, log_stream=place.log)
    assert "secret" not in str(caught.value)


def test_a_witness_of_its_own_is_begun_named_and_asked(folder, tellers, place, alice):  # noqa: F811
    """The verbs: what `serve` shows is what the settings need; `check` says how a ledger stands."""
    process = forked.Popen(
        [sys.executable, "-m", "tellers", "witness", "serve", "seen", "--port", "0", "--json"],
        cwd=folder, stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        told = json.loads(process.stdout.readline())
        token_file = str(folder / told["token_file"])
        chosen = WitnessConfig(url=told["url"], public_key=told["public_key"], token_file=token_file)
        with replace(place, settings=replace(place.settings, witness=chosen)).open() as client:
            assert asked(client, alice, "k0").status_code == 200
        asking = (told["url"], "--token-file", token_file, "--public-key", told["public_key"])
        ledger = str(place.settings.path("ledger.db"))
        found = json.loads(tellers("witness", "check", ledger, *asking, "--json"))
        assert found["seen"] == found["number"] > 0
        assert "holds line" in tellers("witness", "check", ledger, str(folder / "seen" / "heads"))
        assert "knows nothing" in tellers("witness", "check", ledger, str(folder / "nowhere"), code=2)
        assert not (folder / "nowhere").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
