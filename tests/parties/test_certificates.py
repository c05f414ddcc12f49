"""Certificates: one per party, for their owners alone, with the pins that are exchanged."""

import datetime
import hashlib
import ssl
import stat
import subprocess
import sys

import pytest

pytest.importorskip("cryptography")

from tellers.errors import MissingExtra
from tellers.parties import _hardening
from tellers.parties._certificates import make_certificate, read_card, read_secret, require_pin


def test_files_are_for_their_owner_alone(tmp_path):
    make_certificate(tmp_path / "made", "north", role="answerer")
    files = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == [
        "authority.key", "authority.pem", "authority.pem", "certificate.pem", "key.pem", "mask.key",
    ]  # fmt: skip
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE((tmp_path / "made" / "north").stat().st_mode) == 0o700


def test_parties_of_one_folder_share_an_authority_and_nothing_else(tmp_path):
    cards = [make_certificate(tmp_path, name, role="answerer") for name in ("north", "south")]
    homes = [tmp_path / "north", tmp_path / "south"]
    assert cards[0].pin != cards[1].pin
    assert cards[0].mask_key != cards[1].mask_key
    authorities = {(home / "authority.pem").read_bytes() for home in homes}
    assert authorities == {(tmp_path / "authority.pem").read_bytes()}
    assert len({(home / "key.pem").read_bytes() for home in homes}) == 2


def test_a_card_holds_what_others_may_know(tmp_path):
    card = make_certificate(tmp_path, "hospital-a", role="asker", days=30)
    assert (card.name, card.role) == ("hospital-a", "asker")
    assert card == read_card(tmp_path / "hospital-a")
    left = card.expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=29) < left <= datetime.timedelta(days=30)
    encoded = ssl.PEM_cert_to_DER_cert((tmp_path / "hospital-a" / "certificate.pem").read_text())
    assert hashlib.sha256(encoded).hexdigest() == card.pin
    secret = (tmp_path / "hospital-a" / "mask.key").read_text().strip()
    assert secret not in repr(card)
    require_pin(card.pin, name=card.name)


def test_nothing_is_overwritten(tmp_path):
    first = make_certificate(tmp_path, "north", role="answerer")
    with pytest.raises(ValueError, match="Nothing was written"):
        make_certificate(tmp_path, "north", role="asker")
    assert read_card(tmp_path / "north") == first


def test_the_next_certificate_has_a_new_key_and_the_old_mask_key_and_labels(tmp_path):
    first = make_certificate(tmp_path, "north", role="answerer", labels=(0, 2))
    coming = make_certificate(tmp_path, "north", role="answerer", renews=True)
    assert coming == read_card(tmp_path / coming.folder)
    assert coming.folder.startswith("north-")
    assert read_card(tmp_path / "north") == first
    assert (coming.name, coming.role, coming.labels) == (first.name, first.role, first.labels)
    assert coming.mask_key == first.mask_key
    assert coming.pin != first.pin
    keys = {(tmp_path / card.folder / "key.pem").read_bytes() for card in (first, coming)}
    assert len(keys) == 2
    before = sorted(tmp_path.iterdir())
    for name, role in (("north", "asker"), ("south", "answerer")):
        with pytest.raises(ValueError, match="Expected"):
            make_certificate(tmp_path, name, role=role, renews=True)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["", "North", "no rth", "-north", "n" * 64, "../north", "a/b", 3])
def test_names_that_no_party_has(tmp_path, name):
    with pytest.raises(ValueError, match="small letters"):
        make_certificate(tmp_path, name, role="answerer")
    assert not list(tmp_path.iterdir())


def test_wrong_roles_days_and_pins(tmp_path):
    with pytest.raises(ValueError, match="asker, answerer, guardian"):
        make_certificate(tmp_path, "north", role="teacher")
    with pytest.raises(ValueError, match="days"):
        make_certificate(tmp_path, "north", role="answerer", days=0)
    with pytest.raises(ValueError, match="'north'"):
        require_pin("AB" * 32, name="north")


def test_keys_that_others_may_read_are_refused(tmp_path):
    make_certificate(tmp_path, "north", role="answerer")
    (tmp_path / "north" / "mask.key").chmod(0o640)
    with pytest.raises(ValueError, match="mode 0640"):
        read_card(tmp_path / "north")
    with pytest.raises(ValueError, match="No such file"):
        read_secret(tmp_path / "nothing.key")


def test_files_that_are_something_else(tmp_path):
    make_certificate(tmp_path, "north", role="answerer")
    (tmp_path / "north" / "certificate.pem").write_text("hello")
    with pytest.raises(ValueError, match="something else"):
        read_card(tmp_path / "north")
    (tmp_path / "authority.key").write_text("hello")
    with pytest.raises(ValueError, match="key of an authority"):
        make_certificate(tmp_path, "south", role="answerer")
    authority = tmp_path / "authority.pem"
    (tmp_path / "north" / "certificate.pem").write_bytes(authority.read_bytes())
    with pytest.raises(ValueError, match="certificate of a party"):
        read_card(tmp_path / "north")


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(_hardening, "x25519", None)
    for act in (lambda: make_certificate(tmp_path, "north", role="answerer"), lambda: read_card(tmp_path)):
        with pytest.raises(MissingExtra, match=r"tellers\[capc\]"):
            act()


def test_the_module_is_there_without_the_library():
    code = "import sys; sys.modules['cryptography'] = None; from tellers.parties import _certificates"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
