"""Modules are found by the names they had before version 0.2, and stored models without a word."""

import importlib
import subprocess
import sys

import pytest

import tellers
from tellers.runs._old_names import OLD_NAMES, STORED


@pytest.mark.parametrize("old", sorted(OLD_NAMES))
def test_an_old_name_leads_to_modules_that_are_there(old):
    for home in OLD_NAMES[old].split():
        importlib.import_module(f"tellers.{home}")


def test_an_old_name_works_and_says_where_its_names_are_now():
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    from tellers.votes import Votes\n"
        "    import tellers.teachers.partition\n"
        "print([str(one.message) for one in said][0])\n"
        "import tellers\n"
        "print(Votes is tellers.Votes, len(tellers.teachers.partition(6, 3, seed=7)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "tellers.votes is now tellers.privacy.votes. The old name is removed in version 0.4."
    assert second == "True 3"


def test_names_that_stored_models_use_do_not_warn():
    imports = "; ".join(
        f"import tellers.{old}" for old in STORED if "torch" not in old and "audio." not in old
    )
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", imports], check=True)
    assert set(STORED) <= set(OLD_NAMES)


def test_a_name_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"tellers\.nowhere"):
        importlib.import_module("tellers.nowhere")
    with pytest.raises(AttributeError, match="nowhere"):
        tellers.nowhere  # noqa: B018
