"""One whole run from a config: what `tellers run` and `tellers demo` call."""

from .run import run

__all__ = ["run"]
