"""The server of a service: uvicorn with a limit on the size and the time of request headers, and TLS."""

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .settings import ServiceSettings

if TYPE_CHECKING:
    from .app import Service

MAX_HEADER_BYTES = 32_768
HEADER_SECONDS = 15.0


class HeaderTimeoutProtocol(H11Protocol):
    """Close connections whose request headers do not arrive within `seconds`.

    Limits on the body come later, when the key is known. Headers come from strangers: without a limit, one
    connection could fill the memory, and idle ones every socket.
    """

    seconds = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or not self.conn.trailing_data[0]:
            self._end()
        elif self._timer is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def serve(
    settings: ServiceSettings,
    *,
    log_stream: TextIO | None = None,
    wait: float = 0.0,
    waiting: Callable[[str, float], object] | None = None,
    ready: "Callable[[Service, str], object] | None" = None,
    trust_ledger: bool = False,
) -> None:
    """Listen until SIGINT or SIGTERM; requests in flight are finished first.

    Databases that do not answer yet are waited for, up to `wait` seconds, and `waiting` is told of it.
    `ready` is told the service and its address when it listens.

    A server that is killed leaves what it had reserved charged: asked again, such a question is answered
    with 409 and an explanation, never with a second draw.
    """
    from ..errors import MissingExtra

    try:
        import uvicorn

        from .app import create_app
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The service needs {error.name}: pip install 'tellers[service]'") from error
    from ._logs import forward_others

    server = settings.server
    require_tls(settings)
    app = create_app(settings, log_stream=log_stream, wait=wait, waiting=waiting, trust_ledger=trust_ledger)
    forward_others(app.state.service.log, server.log_level)

    class ReadyServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started and ready is not None:
                # Any free port is known from now on.
                port = self.servers[0].sockets[0].getsockname()[1]
                ready(app.state.service, replace(server, port=port).address)

    running = ReadyServer(uvicorn.Config(
        app, host=server.host, port=server.port, log_config=None, access_log=False, server_header=False,
        http=HeaderTimeoutProtocol, h11_max_incomplete_event_size=MAX_HEADER_BYTES, proxy_headers=False,
        ws="none", lifespan="on", timeout_keep_alive=15,
        timeout_graceful_shutdown=server.shutdown_seconds or None,
        ssl_certfile=str(settings.path(server.tls_cert)) if server.is_tls else None,
        ssl_keyfile=str(settings.path(server.tls_key)) if server.is_tls else None,
    ))  # fmt: skip
    with suppress(KeyboardInterrupt):  # how the server hands on Ctrl-C, when all is done
        running.run()
    if not running.started:
        sys.exit(3)


def require_tls(settings: ServiceSettings) -> None:
    """Refuse a certificate or a key that cannot be used, before anything is opened."""
    server = settings.server
    if not server.is_tls:
        return

    def none() -> str:
        # Asked for at a terminal, a service that starts by itself would wait for ever.
        raise ValueError("a passphrase")

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.path(server.tls_cert), settings.path(server.tls_key), password=none)
    except (OSError, ValueError):
        words = (
            "Expected a certificate chain (PEM) and its private key, without a passphrase, in "
            f"{server.tls_cert} and {server.tls_key}, got something else. Are both there and a pair?"
        )
        settings.refuse("server.tls_cert", words)
