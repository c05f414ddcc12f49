"""A link's two ends by name and pin: the same certificates and the same check as for messages."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import LinkFailed, PeerRefused
from .wire import Identity, Peer, shake_hands


@dataclass(frozen=True)
class Pinned:
    """Who this end of a link is, and the one party that may be at the other.

    >>> ends = Pinned(Identity("ann", "asker", home="certs/ann"), Peer("north", "answerer", pin="0" * 64))
    >>> read_pinned(ends.told()) == ends
    True
    """

    identity: Identity
    peer: Peer

    def told(self) -> dict[str, Any]:
        """Return both ends as plain values, for a worker; keys stay in their folder.

        >>> ends = Pinned(Identity("ann", "asker", home="ann"), Peer("north", "answerer", pin="0" * 64))
        >>> ends.told()["name"], ends.told()["peer_name"]
        ('ann', 'north')
        """
        own, peer = self.identity, self.peer
        return {
            "name": own.name, "role": own.role, "home": str(own.home),
            "trusted": [str(place) for place in own.trusted],
            "peer_name": peer.name, "peer_role": peer.role, "pin": peer.pin,
        }  # fmt: skip

    def shake_hands(
        self, plain: socket.socket, *, listens: bool, timeout: float
    ) -> tuple[ssl.SSLSocket, str]:
        """Turn a connected socket into TLS, if the party behind the pin is at its other end.

        >>> callable(Pinned.shake_hands)
        True
        """
        context = self.identity.context(as_server=listens)
        try:
            secure, peer = shake_hands(plain, context, [self.peer], server=listens, timeout=timeout)
        except (PeerRefused, TimeoutError) as refusal:
            raise LinkFailed(str(refusal)) from None
        return secure, peer.name


def read_pinned(told: Mapping[str, Any]) -> Pinned:
    """Return the ends that `Pinned.told` described.

    >>> ends = Pinned(Identity("ann", "asker", home="ann"), Peer("north", "answerer", pin="0" * 64))
    >>> read_pinned(ends.told()).peer == ends.peer, read_pinned(ends.told()).told() == ends.told()
    (True, True)
    """
    own = Identity(told["name"], told["role"], home=told["home"], trusted=tuple(told["trusted"]))
    return Pinned(own, Peer(told["peer_name"], told["peer_role"], pin=told["pin"]))
