"""The helpers of golden tests, and a folder with the inputs of commands."""

import importlib.util
import sys
from pathlib import Path

import pytest

_NAME = "tellers_golden_kept"


def _load():
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parent / "golden_files.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        spec.loader.exec_module(module)
    return sys.modules[_NAME]


@pytest.fixture(scope="session")
def kept():
    """What golden tests share, as a module."""
    return _load()


@pytest.fixture
def place(kept, tmp_path):
    """A folder with a copy of every input."""
    return kept.inputs(tmp_path / "place")
