"""One whole run from its settings, in a folder, resumable; or the half of it that follows the votes."""

from .run import run
from .voted import Voted, run_voted

__all__ = ["Voted", "run", "run_voted"]
