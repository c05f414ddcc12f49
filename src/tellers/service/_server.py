"""The server of a service: uvicorn, with our own way of accepting connections, and TLS."""

import asyncio
import gc
import secrets
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TextIO

from .settings import ServiceSettings

if TYPE_CHECKING:
    from ._workers import Share
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

    Several workers are processes that are forked before anything is opened, and share its sockets.

    Databases that do not answer yet are waited for, up to `wait` seconds, and `waiting` is told of it.
    `ready` is told the service and its address when it listens.

    A server that is killed leaves what it had reserved charged: asked again, such a question is answered
    with 409 and an explanation, never with a second draw.
    """
    begin = partial(_serve, settings, log_stream=log_stream, wait=wait, waiting=waiting)
    if settings.server.workers == 1:
        begin(ready=ready, trust_ledger=trust_ledger)
        return
    from ._workers import Share, run_workers

    require_tls(settings)
    secret = secrets.token_bytes(32)

    def work(share: Share) -> None:
        is_first = share.is_first
        begin(
            ready=ready if is_first else None,
            trust_ledger=trust_ledger and is_first,
            share=share,
            secret=secret,
        )

    code = run_workers(settings.server.workers, _sockets_of(settings), work)
    if code:
        sys.exit(code)


def _sockets_of(settings: ServiceSettings) -> "list[socket.socket]":
    from ._connections import listening_sockets

    server = settings.server
    try:
        return asyncio.run(listening_sockets(server.host, server.port))
    except OSError as error:
        words = f"Expected to listen on {server.host}:{server.port}: {str(error.strerror).lower()}."
        raise OSError(f"{words} Is another service there? Name another port.") from error


def _serve(
    settings: ServiceSettings,
    *,
    log_stream: TextIO | None,
    wait: float,
    waiting: Callable[[str, float], object] | None,
    ready: "Callable[[Service, str], object] | None",
    trust_ledger: bool,
    share: "Share | None" = None,
    secret: bytes = b"",
) -> None:
    from ..errors import MissingExtra

    try:
        import uvicorn

        from ._connections import (
            Acceptor,
            Connection,
            ConnectionBudget,
            allowed_connections,
            listening_sockets,
        )
        from .app import create_app
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The service needs {error.name}: pip install 'tellers[service]'") from error
    from ._logs import forward_others

    server = settings.server
    require_tls(settings)
    app = create_app(
        settings, log_stream=log_stream, wait=wait, waiting=waiting, trust_ledger=trust_ledger, secret=secret
    )
    forward_others(app.state.service.log, server.log_level)

    limits = settings.limits
    wanted = -(-limits.max_connections // server.workers)
    n_connections = allowed_connections(wanted)
    if n_connections < wanted:
        app.state.service.log.warning(
            "fewer connections, for want of open files", n_connections=n_connections
        )
    per_address = -(-limits.connections_per_address // server.workers)
    budget = ConnectionBudget(n_connections, per_address=per_address)
    connect = partial(Connection, budget=budget)

    class ReadyServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # uvicorn would count connections when their TLS has begun, and could not shed one.
            await super().startup(sockets=[])
            try:
                listening = sockets or await listening_sockets(server.host, server.port)
            except OSError as error:
                app.state.service.log.error(
                    "cannot listen",
                    host=server.host,
                    port=server.port,
                    why=str(error.strerror).lower(),
                )
                await self.lifespan.shutdown()
                sys.exit(3)
            make = partial(
                connect, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )  # fmt: skip
            # What is there by now stays: looked at again and again for garbage, it would hold up whoever asks
            # then, for a twentieth of a second.
            gc.collect()
            gc.freeze()
            acceptor = Acceptor(listening, make, budget=budget, context=self.config.ssl)
            self.servers = [acceptor]  # type: ignore[list-item]
            if share is not None:
                # It ends when the parent does, and nobody is left who would hold the port.
                asyncio.get_running_loop().add_reader(share.lifeline, self._orphaned, share.lifeline)
                share.tell()
            if ready is not None:
                # Any free port is known from now on.
                port = listening[0].getsockname()[1]
                ready(app.state.service, replace(server, port=port).address)

        def _orphaned(self, lifeline: int) -> None:
            asyncio.get_running_loop().remove_reader(lifeline)
            self.should_exit = True

    running = ReadyServer(uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none",
        http=connect, lifespan="on",  # type: ignore[arg-type]
        timeout_graceful_shutdown=server.shutdown_seconds or None,
        ssl_certfile=str(settings.path(server.tls_cert)) if server.is_tls else None,
        ssl_keyfile=str(settings.path(server.tls_key)) if server.is_tls else None,
    ))  # fmt: skip
    try:
        with suppress(KeyboardInterrupt):  # how the server hands on Ctrl-C, when all is done
            running.run(sockets=None if share is None else list(share.sockets))
    finally:
        gc.unfreeze()
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
