"""TensorBoard, where it is asked for: its files hold losses of the rows that are learned from."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

if TYPE_CHECKING:
    from .descent import Board


def require_board(folder: str | PathLike[str] | None) -> None:
    """Refuse to log where TensorBoard is not installed, before anything is trained.

    >>> require_board(None)
    """
    if folder is not None:
        _writer()


@contextmanager
def open_board(folder: str | PathLike[str] | None) -> "Iterator[Board | None]":
    """Open TensorBoard's files in a folder, and close them after; nothing where no folder is named.

    What a teacher writes there depends on its rows: the folder is as private as they are.

    >>> with open_board(None) as board:
    ...     board is None
    True
    """
    if folder is None:
        yield None
        return
    writer_of = _writer()
    Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    writer = writer_of(str(folder))
    try:
        yield writer
    finally:
        writer.close()


def _writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            "Expected tensorboard for log_folder, found none: pip install 'tellers[tensorboard]', or leave "
            "log_folder out."
        ) from error
    return SummaryWriter
