"""Versions that must agree: teachers are the same wherever they are trained, or the run does not begin."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from ... import __version__

Versions = dict[str, str]

# Where each is missing, by the extra that brings it.
EXTRAS = {"torch": "torch", "lightgbm": "boost", "distributed": "distributed"}


def versions_here(packages: Sequence[str] = ()) -> Versions:
    """Return what this process runs: Python, NumPy, this package and those that are named; "" is missing.

    >>> versions_here(["no such package"])["no such package"]
    ''
    """
    python = ".".join(platform.python_version_tuple()[:2])
    named = ("numpy", "scikit-learn", "distributed", *packages)
    return {name: _version(name) for name in named} | {"python": python, "tellers": __version__}


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return one line for each version that differs; builds of one version for other devices do not.

    >>> differences({"numpy": "1.26.4", "torch": "2.6.0"}, {"numpy": "1.26.4", "torch": "2.6.0+cpu"})
    []
    >>> differences({"numpy": "2.1.0"}, {"numpy": "1.26.4"})
    ['numpy 1.26.4 instead of 2.1.0']
    """
    lines = []
    for name, here in wanted.items():
        there = found.get(name, "")
        if there.partition("+")[0] != here.partition("+")[0]:
            lines.append(f"{name} {there or 'missing'} instead of {here or 'none'}")
    return lines


def say_different(where: str, lines: Sequence[str]) -> str:
    """Say what differs there and what to do about it.

    >>> say_different("the worker north", ["torch missing instead of 2.6.0"])
    "Expected the versions of this program on the worker north, got torch missing instead of 2.6.0. ..."
    """
    lacking = [EXTRAS[line.split()[0]] for line in lines if " missing " in line and line.split()[0] in EXTRAS]
    what = f"pip install 'tellers[{','.join(lacking)}]'" if lacking else "the same versions everywhere"
    return f"Expected the versions of this program on {where}, got {'; '.join(lines)}. Install there: {what}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
