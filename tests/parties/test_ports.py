"""Ports that are kept for somebody who is yet to listen on them."""

import socket
import sys

import pytest

from tellers.parties._ports import held_port
from tellers.testing import _ports as ports
from tellers.testing._ports import OURS, free_port, free_ports


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let nobody listen on a port that is held")
def test_a_held_port_is_given_to_nobody_and_its_owner_listens_again_and_again():
    with held_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        for _ in range(3):
            with (
                socket.create_server(("127.0.0.1", port)) as server,
                socket.create_connection(("127.0.0.1", port), timeout=10),
            ):
                server.accept()[0].close()


def test_a_port_is_let_go_in_the_end():
    with held_port() as port:
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_free_ports_differ_and_are_out_of_the_range_of_the_system():
    found = free_ports(50)
    assert len(set(found)) == 50
    assert set(found) <= set(OURS)


def test_a_port_that_is_held_or_listened_on_is_not_free(monkeypatch):
    one = free_port()
    few = range(one, one + 1)
    monkeypatch.setattr(ports, "OURS", few)
    assert free_port() == few[0]
    with socket.create_server(("127.0.0.1", few[0])), pytest.raises(OSError, match="1 free ports"):
        free_port()
