"""The core runs where there is NumPy and SciPy and nothing else, on the old NumPy and on the new one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What may need more than NumPy and SciPy; everything else is the core.
OUTER = (
    "__main__", "cli", "ledger.migrations", "ledger.sql", "nn", "parties", "runs", "service",
    "students.torch", "teachers.torch", "testing",
)  # fmt: skip

PROBE = """
import importlib, importlib.util, pkgutil, sys

for absent in ("sklearn", "typer", "rich", "pydantic", "sqlalchemy", "torch", "matplotlib", "dp_accounting"):
    assert importlib.util.find_spec(absent) is None, f"{absent} is installed: this environment proves nothing"

import tellers

outer = tuple("tellers." + name for name in %(outer)r)
names = [m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.", onerror=lambda name: None)]
core = [n for n in names if not any(n == o or n.startswith(o + ".") for o in outer)]
for name in core:
    importlib.import_module(name)

foreign = {m.partition(".")[0] for m in sys.modules} - set(sys.stdlib_module_names)
foreign -= {"tellers", "numpy", "scipy", "__main__", "_distutils_hack", "pip"}
foreign = {m for m in foreign if getattr(sys.modules.get(m), "__file__", None) and not m.startswith("_")}
assert not foreign, f"the core also imports {sorted(foreign)}"

import numpy, scipy
from tellers import Accountant, Budget, ConfidentGNMax, GNMax, LNMax, Unit, Votes, noise
from tellers.accounting import exact_cost

votes = Votes.from_ballots([[0, 1]] * 40 + [[1, 1]] * 10, n_classes=3)
confident = ConfidentGNMax(sigma=5.0, threshold=30.0, sigma_threshold=8.0)
for mechanism in (LNMax(gamma=0.1), GNMax(sigma=5.0), confident):
    price = mechanism.price(Unit()) * len(votes)
    exact = exact_cost(mechanism, votes).cost.reveal()
    assert 0 <= exact.epsilon(1e-5) <= price.epsilon(1e-5)
    assert len(mechanism.release(votes, noise.secure())) == 2
assert Accountant(Budget(epsilon=9.0, delta=1e-5)).affords(price, price)
print(len(core), numpy.__version__, scipy.__version__)
"""


def clean_environment() -> dict[str, str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    kept = {k: v for k, v in os.environ.items() if k not in hidden}
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


def pip_install(python: Path, *words: str) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]
    try:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("THE CORE WAS NOT TRIED ALONE: no answer of a package index in 10 minutes.")
    if done.returncode == 0:
        return
    unreachable = (
        "No matching distribution", "Could not fetch", "ConnectionError", "ReadTimeout", "timed out",
        "HTTP error 5",
    )  # fmt: skip
    if any(sign in done.stderr for sign in unreachable):
        pytest.skip(f"THE CORE WAS NOT TRIED ALONE: pip cannot reach a package index.\n{done.stderr[-1500:]}")
    pytest.fail(f"pip install {' '.join(words)} failed:\n{done.stderr[-3000:]}")


@pytest.mark.campaign
@pytest.mark.parametrize("numpy", ["numpy>=1.26,<2", "numpy>=2"])
def test_core_alone(numpy, tmp_path):
    if numpy == "numpy>=1.26,<2" and sys.version_info >= (3, 13):
        pytest.skip("NumPy 1.26 has no wheels for this Python")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    python = tmp_path / "venv" / "bin" / "python"
    scipy = [
        line
        for line in (ROOT / "constraints" / "ci.txt").read_text().splitlines()
        if line.startswith("scipy==")
    ]
    pip_install(python, numpy, *(scipy if "<2" in numpy else ["scipy"]))
    done = subprocess.run(
        [str(python), "-c", PROBE % {"outer": OUTER}],
        capture_output=True, text=True, timeout=300, check=False, env=clean_environment(), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    n_modules, numpy_version, _ = done.stdout.split()
    assert int(n_modules) >= 10
    assert numpy_version.startswith("1.26") if "<2" in numpy else int(numpy_version.partition(".")[0]) >= 2
