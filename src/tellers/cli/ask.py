"""`tellers ask`: labels from a service, from the command line."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import options

if TYPE_CHECKING:
    from ..service.client import LabelAnswer


def command(
    url: Annotated[str, options.option("The address of the service.", envvar="TELLERS_URL")],
    rows: Annotated[Path | None, options.option("An .npy of rows to be labelled.", metavar="FILE")] = None,
    pool: Annotated[
        str | None, options.option("Ids of the service's pool: 0-99, or 3,5,8-10.", metavar="IDS")
    ] = None,
    key_file: Annotated[
        Path | None, options.option("A file that holds the key. Without it: TELLERS_KEY.", metavar="FILE")
    ] = None,
    name: Annotated[
        str | None,
        options.option(
            "Names the question: asked again by the same name it costs nothing. Without it: random."
        ),
    ] = None,
    batch: Annotated[int, options.option("Queries in one request.", min=1)] = 100,
    out: Annotated[Path | None, options.option("Write labels and ids to an .npz.", metavar="FILE")] = None,
    ca: Annotated[
        Path | None, options.option("A certificate to trust, of one's own (PEM).", metavar="FILE")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Ask a service for labels, and say what they cost and what is left.

    The key comes from the environment (TELLERS_KEY) or a file, never from the command line, which others can
    see. What fails on the way is tried again under the same name, so that nothing is paid for twice.

    Example: tellers ask --url https://labels.example.org --pool 0-99 --out labels.npz
    """
    import numpy as np

    from ..errors import TellersError
    from ..service.client import Client

    if (rows is None) == (pool is None):
        raise ValueError("Expected either --rows FILE or --pool IDS.")
    table = None if rows is None else _read_rows(rows)
    ids = np.arange(len(table)) if table is not None else np.asarray(parse_ids(str(pool)))
    if out is not None:
        options.require_place_for("--out", out, "labels.npz")
    answers: list[LabelAnswer] = []
    with Client(url, _key(key_file), verify=True if ca is None else _context(ca)) as client:
        for start in range(0, len(ids), batch):
            now = slice(start, start + batch)
            key = None if name is None else f"{name}/{start}"
            try:
                asked: Any = {"pool": ids[now]} if table is None else {"rows": table[now]}
                answers.append(client.ask(**asked, key=key))
            except BaseException as error:
                if not answers:
                    raise
                _tell(answers, ids, out=out, as_json=as_json)  # what came is paid for, whatever comes now
                words = f"{sum(map(len, answers))} of {len(ids)} queries were answered before this."
                if isinstance(error, (TellersError, ValueError)):
                    raise type(error)(f"{words} {error}") from error
                error.add_note(words)
                raise
    _tell(answers, ids, out=out, as_json=as_json)


def parse_ids(text: str) -> list[int]:
    """Return the ids of a list such as 3,5,8-10, both ends included."""
    ids: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ValueError(f"Expected ids such as 0-99, or 3,5,8-10, got --pool {text}.")
        if int(last or first) - int(first) > 10_000_000:
            raise ValueError(f"Expected fewer ids, got --pool {text}.")
        ids += range(int(first), int(last or first) + 1)
    return ids


def _key(file: Path | None) -> str:
    if file is None:
        key = os.environ.get("TELLERS_KEY", "").strip()
        if not key:
            raise ValueError("Expected a key in TELLERS_KEY, or in a file (--key-file), got none.")
        return key
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"Expected a key in {file}, could not read it.") from error


def _context(ca: Path) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"Expected a certificate (PEM) in {ca}, got none.") from error


def _read_rows(file: Path) -> Any:
    from ..privacy._files import TooLarge, load_npy

    try:
        table = load_npy(file)
    except TooLarge:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"Expected an .npy of rows at {file}, got none.") from error
    if table.ndim != 2 or not len(table):
        raise ValueError(f"Expected a table in {file}, one row per query, got something else.")
    return table


def _tell(answers: "list[LabelAnswer]", ids: Any, *, out: Path | None, as_json: bool) -> None:
    import io

    import numpy as np

    labels = np.concatenate([answer.labels for answer in answers])
    by_teachers = np.concatenate([answer.by_teachers for answer in answers])
    asked, last = ids[: len(labels)], answers[-1]
    if out is not None:
        from ..privacy._files import write_whole

        content = io.BytesIO()
        np.savez(content, rows=asked, labels=labels, by_teachers=by_teachers)
        try:
            write_whole(out, content.getvalue(), shared=True)
        except OSError:
            print(json.dumps({"rows": asked.tolist(), "labels": labels.tolist()}))  # they are paid for
            raise
    n_silent = int((labels < 0).sum())
    left = last.own or last.left
    if as_json:
        told = {
            "rows": asked.tolist(), "labels": labels.tolist(), "n_silent": n_silent,
            "epsilon": [answer.epsilon for answer in answers], "replayed": [a.replayed for a in answers],
            **({"rule": "clock", "share_left": left.share_left} if left.epsilon_left is None
               else {"epsilon_left": left.epsilon_left}),
            "queries_left": left.queries_left,
        }  # fmt: skip
        print(json.dumps(told))
        return
    from . import show

    screen = show.console()
    silent = f", {n_silent:,} met silence" if n_silent else ""
    screen.print(f"{labels.size - n_silent:,} labels for {len(labels):,} queries{silent}.")
    if out is None:
        if last.names:
            screen.print(" ".join(last.names), markup=False)
        for row in [labels.tolist()] if labels.ndim == 1 else labels.tolist():
            screen.print(" ".join(map(str, row)), style="bold")
    else:
        screen.print(f"Wrote {out}.")
    whose = "Your account" if last.own else "The budget of the data"
    screen.print(f"{whose}: {show.standing(left)}; {left.queries_left:,} more queries at this setting.")
