"""From settings to a server that listens until it is told to stop."""

from typing import TextIO

from .settings import ServiceSettings


def serve(settings: ServiceSettings, *, log_stream: TextIO | None = None) -> None:
    """Listen until SIGINT or SIGTERM; requests in flight are finished first.

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
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The service needs {error.name}: pip install 'tellers[service]'") from error
    from .logs import forward_others

    server = settings.server
    app = create_app(settings, log_stream=log_stream)
    forward_others(app.state.service.log, server.log_level)
    uvicorn.run(
        app, host=server.host, port=server.port, log_config=None, access_log=False, server_header=False,
        proxy_headers=False, ws="none", lifespan="on", timeout_keep_alive=15,
        timeout_graceful_shutdown=server.shutdown_seconds or None,
        ssl_certfile=str(settings.path(server.tls_cert)) if server.is_tls else None,
        ssl_keyfile=str(settings.path(server.tls_key)) if server.is_tls else None,
    )  # fmt: skip
