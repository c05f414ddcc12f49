"""Certificates that are made once for all tests of parties."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROLES = {
    "ann": "asker", "bea": "asker", "guard": "guardian", "north": "answerer", "south": "answerer",
}  # fmt: skip


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Return the folder of an authority, with a card, an identity and a peer for every party."""
    pytest.importorskip("cryptography")
    from tellers.parties.certificates import make_certificate
    from tellers.parties.wire import Identity, Peer

    folder = tmp_path_factory.mktemp("certificates")
    cards = {name: make_certificate(folder, name, role=role) for name, role in ROLES.items()}
    return SimpleNamespace(
        folder=Path(folder),
        cards=cards,
        identities={name: Identity(name, role, home=folder / name) for name, role in ROLES.items()},
        peers={name: Peer(name, role, pin=cards[name].pin) for name, role in ROLES.items()},
    )
