"""Print which source files of tellers a command passes: those with a function that it calls.

What runs while modules are imported does not count, nor do classes while they are made.

    python scripts/files_passed.py run tellers.toml --out study
"""

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType

import tellers
from tellers.cli import main

SOURCE = str(Path(tellers.__file__).parent)
passed: set[str] = set()


def called(frame: FrameType, event: str, _argument: object) -> None:
    """Note the file of a function of tellers that is called."""
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(SOURCE) or code.co_filename in passed:
        return
    if code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):
        passed.add(code.co_filename)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(SOURCE):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        main(sys.argv[1:])
    finally:
        sys.setprofile(None)
        files = sorted(str(Path(name).relative_to(SOURCE)) for name in passed)
        print(*files, f"{len(files)} files", sep="\n", file=sys.stderr)
