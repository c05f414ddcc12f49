"""`tellers party`: certificates, pins to exchange, and settings that can be read back."""

import json
import stat
import tomllib

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.cli import main
from tellers.parties import AskRole
from tellers.parties._certificates import read_card
from tellers.parties.ask import LabelledBatch
from tellers.runs import read_party

PARTIES = ["asker:ann", "guardian:guard", "answerer:north", "answerer:south", "answerer:west"]


def run(capsys, *words):
    with pytest.raises(SystemExit) as done:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    return done.value.code, captured.out, captured.err


def make(capsys, folder, *more):
    flags = [word for party in PARTIES for word in ("--party", party)]
    return run(capsys, "party", "certs", folder, *flags, *more)


def test_certificates_and_the_lines_that_others_need(tmp_path, capsys):
    code, out, err = make(capsys, tmp_path / "certs", "--days", "30")
    assert code == 0
    peers = tomllib.loads(out)["peer"]
    assert [f"{peer['role']}:{peer['name']}" for peer in peers] == PARTIES
    for peer in peers:
        card = read_card(tmp_path / "certs" / peer["name"])
        assert peer["pin"] == card.pin
        assert peer.get("mask_key", card.mask_key) == card.mask_key
        assert stat.S_IMODE((tmp_path / "certs" / peer["name"] / "key.pem").stat().st_mode) == 0o600
    assert "Compare pins" in " ".join(err.split())


def test_next_certificates_are_beside_the_ones_in_use_and_in_all_settings(tmp_path, capsys):
    folder = tmp_path / "certs"
    make(capsys, folder)
    code, out, err = run(capsys, "party", "certs", folder, "--party", "answerer:north", "--renew")
    assert code == 0
    (peer,) = tomllib.loads(out)["peer"]
    assert "pin" not in peer
    assert peer["mask_key"] == read_card(folder / "north").mask_key
    (home,) = folder.glob("north-*")
    assert read_card(home).pin == peer["next_pin"]
    assert home.name in "".join(err.split())
    assert run(capsys, "party", "init", folder, "--features", "4", "--classes", "3")[0] == 0
    settings = read_party(folder / "ann" / "party.toml")
    pins = {one.name: (one.pin, one.next_pin) for one in settings.peers}
    assert pins["north"] == (read_card(folder / "north").pin, peer["next_pin"])
    assert pins["south"][1] == ""
    assert len(settings.peers) == len(PARTIES) - 1
    run(capsys, "party", "certs", folder, "--party", "answerer:north", "--renew")
    code, _, err = run(capsys, "party", "init", folder, "--features", "4", "--classes", "3", "--force")
    assert code == 2
    assert "at most a next one" in " ".join(err.split())


def test_label_sets_are_on_cards_and_in_all_settings(tmp_path, capsys):
    parties = [*PARTIES[:2], "answerer:north:0,2", "answerer:south", "answerer:west:1"]
    flags = [word for party in parties for word in ("--party", party)]
    code, out, _ = run(capsys, "party", "certs", tmp_path / "certs", *flags)
    assert code == 0
    assert [peer.get("labels") for peer in tomllib.loads(out)["peer"]] == [None, None, [0, 2], None, [1]]
    assert run(capsys, "party", "init", tmp_path / "certs", "--features", "4", "--labels", "3")[0] == 0
    every = [read_party(tmp_path / "certs" / text.split(":")[1] / "party.toml") for text in parties]
    assert {one.terms for one in every} == {every[0].terms}
    assert every[0].label_sets == every[2].label_sets == {"north": (0, 2), "west": (1,)}
    code, _, err = run(
        capsys, "party", "init", tmp_path / "certs", "--features", "4", "--labels", "2", "--force"
    )
    assert code == 2
    assert "labels from 0 to 1" in " ".join(err.split())


def test_labels_that_nobody_who_answered_knows_are_named_once(tmp_path, capsys, monkeypatch):
    parties = [*PARTIES[:2], "answerer:north:0,2", "answerer:south", "answerer:west:0"]
    flags = [word for party in parties for word in ("--party", party)]
    run(capsys, "party", "certs", tmp_path / "certs", *flags)
    run(capsys, "party", "init", tmp_path / "certs", "--features", "2", "--labels", "3")
    answering = iter([("north", "south"), ("north", "west"), ("north", "west")])

    def ask(_role, rows, **_):
        return LabelledBatch("0" * 32, np.full((len(rows), 3), -1), next(answering), seconds=1.0, n_bytes=1)

    monkeypatch.setattr(AskRole, "ask", ask)
    np.savetxt(tmp_path / "rows.csv", np.ones((5, 2)), delimiter=",")
    code, out, err = run(
        capsys, "party", "ask", "--config", tmp_path / "certs" / "ann" / "party.toml", "--rows",
        tmp_path / "rows.csv", "--out", tmp_path / "labels.csv", "--batch", "2", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert [batch["unknown_labels"] for batch in json.loads(out)["batches"]] == [[], [1], [1]]
    assert err.count("Nobody who answered knows label 1: silent (-1) on every row.") == 1


def test_nothing_is_written_where_something_is(tmp_path, capsys):
    make(capsys, tmp_path / "certs")
    before = sorted(path.name for path in (tmp_path / "certs").iterdir())
    code, _, err = run(
        capsys, "party", "certs", tmp_path / "certs", "--party", "asker:bea", "--party", "asker:ann"
    )
    assert code == 2
    assert "Nothing was written" in " ".join(err.split())
    assert sorted(path.name for path in (tmp_path / "certs").iterdir()) == before


@pytest.mark.parametrize("party", [
    "ann", "teacher:ann", "asker:Ann", "asker:", "asker:ann:0,1", "answerer:ann:1,0", "answerer:ann:1,1",
    "answerer:ann:one", "answerer:ann:-1",
])  # fmt: skip
def test_parties_that_make_no_sense(tmp_path, capsys, party):
    code, _, err = run(capsys, "party", "certs", tmp_path / "certs", "--party", party)
    assert code == 2
    assert "Expected" in err
    assert not (tmp_path / "certs").exists()


def test_settings_for_everybody(tmp_path, capsys):
    folder = tmp_path / "certs"
    make(capsys, folder, "--json")
    code, out, _ = run(capsys, "party", "init", folder, "--features", "64", "--classes", "10", "--json")
    assert code == 0
    files = json.loads(out)["files"]
    settings = [read_party(file) for file in files]
    assert {one.party.name for one in settings} == {party.partition(":")[2] for party in PARTIES}
    assert len({one.terms for one in settings}) == 1
    for one in settings:
        assert one.roster == ("north", "south", "west")
        assert one.session.quorum == 2
        assert one.path(one.party.certificates) == folder / one.party.name
    code, _, err = run(capsys, "party", "init", folder, "--features", "64", "--labels", "5")
    assert code == 2
    assert "--force" in err
    code, _, _ = run(capsys, "party", "init", folder, "--features", "64", "--labels", "5", "--force")
    assert code == 0
    assert read_party(files[0]).build_mechanism().n_labels == 5


def test_settings_need_certificates_and_a_task(tmp_path, capsys):
    code, _, err = run(capsys, "party", "init", tmp_path, "--features", "64", "--classes", "10")
    assert code == 2
    assert "tellers party certs" in " ".join(err.split())
    code, _, err = run(capsys, "party", "init", tmp_path, "--features", "64")
    assert code == 2
    assert "--classes or --labels" in " ".join(err.split())
