"""From settings to a server that listens until it is told to stop."""

import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from ..config.problems import Problem, complain
from .settings import ServiceSettings

if TYPE_CHECKING:
    from .app import Service


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

    >>> from tellers.service import ServiceSettings
    >>> serve(ServiceSettings(folder="nowhere"))
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: data.path: Expected the folder of a finished run at nowhere/study, got none.
    """
    from ..errors import MissingExtra

    try:
        import uvicorn

        from .app import create_app
        from .hurrying import MOST_HEAD_BYTES, HurriedProtocol
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The service needs {error.name}: pip install 'tellers[service]'") from error
    from .logs import forward_others

    server = settings.server
    require_tls(settings)
    app = create_app(settings, log_stream=log_stream, wait=wait, waiting=waiting, trust_ledger=trust_ledger)
    forward_others(app.state.service.log, server.log_level)

    class Listening(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started and ready is not None:
                # Any free port is known from now on.
                port = self.servers[0].sockets[0].getsockname()[1]
                ready(app.state.service, replace(server, port=port).address)

    listening = Listening(uvicorn.Config(
        app, host=server.host, port=server.port, log_config=None, access_log=False, server_header=False,
        http=HurriedProtocol, h11_max_incomplete_event_size=MOST_HEAD_BYTES, proxy_headers=False, ws="none",
        lifespan="on", timeout_keep_alive=15,
        timeout_graceful_shutdown=server.shutdown_seconds or None,
        ssl_certfile=str(settings.path(server.tls_cert)) if server.is_tls else None,
        ssl_keyfile=str(settings.path(server.tls_key)) if server.is_tls else None,
    ))  # fmt: skip
    with suppress(KeyboardInterrupt):  # how the server hands on Ctrl-C, when all is done
        listening.run()
    if not listening.started:
        sys.exit(3)


def require_tls(settings: ServiceSettings) -> None:
    """Refuse a certificate or a key that cannot be used, before anything is opened.

    >>> from tellers.service import ServerConfig, ServiceSettings
    >>> require_tls(ServiceSettings(server=ServerConfig(tls_cert="no.pem", tls_key="no.key")))
    Traceback (most recent call last):
        ...
    tellers.errors.ConfigError: server.tls_cert: Expected a certificate chain (PEM) and its private key, ...
    """
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
        complain([Problem(("server", "tls_cert"), words)], settings.source, settings.lines)
