"""The command line: one file per verb, no maths inside, heavy imports only where a verb runs.

Exit codes: 0 done, 1 something unexpected, 2 the input was wrong. Errors go to stderr in one paragraph, a
settings file's in one for each mistake, as `{"error": ...}` with `--json`; a traceback appears only where
TELLERS_DEBUG is set.
"""

import functools
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .. import __version__
from ..errors import ClipsRefused, ConfigError, TellersError
from . import options

if TYPE_CHECKING:
    from typer import Typer


# One module each, with a function `command`. The order is that of the help.
VERBS = (
    "demo", "init", "run", "sweep", "student", "report", "plan", "account", "publish", "audit", "serve",
    "ask", "collaborate",
)  # fmt: skip
# One module each, with verbs of its own in `COMMANDS` and what they are about in `HELP`.
GROUPS = ("keys", "ledger", "witness", "party", "audio")

_HELP = """Learn from data that must not leave the room, and know what it cost.

Teachers vote in secret, only a noisy outcome leaves the room, and what it cost is written down first.
Every verb speaks --json and explains itself with --help.
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in words
    if not as_json and words[0] != "serve":  # whose log is JSON
        logging.basicConfig(format="tellers: %(message)s")
        logging.getLogger("tellers.mechanisms").setLevel(logging.INFO)
    try:
        done = build(words)(args=words, prog_name="tellers", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _fail("Stopped.", 130, as_json=as_json)
    except _Stopped as stopped:
        _fail(_paragraph(f"Stopped. {stopped}"), 130, as_json=as_json)
    except Exception as error:
        if os.environ.get("TELLERS_DEBUG"):
            raise
        _fail(*_explain(error), as_json=as_json)
    sys.exit(done if isinstance(done, int) else 0)


def build(words: Sequence[str] = ()) -> "Typer":
    """Return the application: with the verb that the words name, or else with all of them.

    One verb is quick to build, so there is time to look up what the mechanisms declare as its options.
    """
    asked = [word for word in words[:1] if word in (*VERBS, *GROUPS)]
    app = typer.Typer(
        help=_joined(_HELP),
        add_completion=False,
        add_help_option=not asked,  # a verb has its own; to look for one here, typer would load pydantic
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        no_args_is_help=True,
    )
    app.callback()(_options)
    for name in asked or (*VERBS, *GROUPS):
        module, home = import_module(f".{name}", __name__), app
        if name in GROUPS:
            home = typer.Typer(help=_joined(module.HELP), rich_markup_mode="rich", no_args_is_help=True)
            app.add_typer(home, name=name)
        commands = module.COMMANDS if name in GROUPS else {name: module.command}
        for verb, command in commands.items():
            if asked:
                options.derive(command)
            home.command(verb, help=_joined(command.__doc__))(_stoppable(command))
    return app


def _joined(text: str) -> str:
    """Return help whose paragraphs are one line each, to be wrapped where they are shown."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else " ".join(p.split()) for p in paragraphs)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tellers {__version__}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


class _Stopped(Exception):
    """Ctrl-C, with what the work had to say of it; the library below would swallow both."""


def _stoppable(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(*given: Any, **named: Any) -> None:
        try:
            command(*given, **named)
        except KeyboardInterrupt as stop:
            raise _Stopped(" ".join(getattr(stop, "__notes__", []))) from stop

    return run


def _explain(error: Exception) -> tuple[str, int]:
    """Return a message and an exit code: 2 where the input was wrong, 1 where we were."""
    # Newer versions of typer carry their own copy of click, so its errors are known by what they can do.
    usage = getattr(error, "format_message", None)
    if callable(usage):
        path = getattr(getattr(error, "ctx", None), "command_path", "tellers")
        words = _paragraph(f"{usage().rstrip('.')}. See: {path} --help")
        return words, int(getattr(error, "exit_code", 2))
    if isinstance(error, ConfigError):
        return "\n".join(map(_paragraph, error.problems)), 2
    if isinstance(error, ClipsRefused):
        return str(error), 2  # a table: its lines stay lines
    if isinstance(error, FileNotFoundError) and error.errno is None:
        return _paragraph(str(error)), 2  # our own words: a file that was named is not there
    if isinstance(error, (ValueError, TellersError)):
        return _paragraph(str(error)), 2
    if isinstance(error, OSError):
        # A full disk, a folder that may not be written. Paths are the operator's own, rows are not in here.
        said = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename else ""
        kept = "" if "kept" in said else " What was finished is kept; put this right and run it again."
        return _paragraph(f"{said}{kept}" if said.endswith((".", "?")) else f"{said}{where}.{kept}"), 1
    # What went wrong inside may quote private votes: only its kind is shown.
    return f"Unexpected {type(error).__name__}. Set TELLERS_DEBUG=1 to see where, and please report it.", 1


def _fail(message: str, code: int, *, as_json: bool) -> NoReturn:
    shown = "\n".join(f"tellers: {line}" for line in message.splitlines())
    print(json.dumps({"error": message}) if as_json else shown, file=sys.stderr)
    sys.exit(code)


def _paragraph(message: str) -> str:
    return " ".join(message.split())
