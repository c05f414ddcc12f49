"""How many source files a reader passes on the way of one row, and of one price."""

import os
import sys
from pathlib import Path

import pytest

from .. import forked

ROOT = Path(__file__).parents[2]
SETTINGS = """
[data]
name = "breast_cancer"
n_public = 60
n_test = 60
[partition]
n_teachers = 20
[teachers]
model = "naive_bayes"
n_jobs = 1
[mechanism]
name = "gnmax"
sigma = 6.0
[queries]
n_queries = 10
[student]
model = "naive_bayes"
"""
VOTES = ("examples/mnist_votes.npz", "--classes", "10", "--delta", "1e-5", "--mechanism", "gnmax", "--sigma")


@pytest.mark.parametrize(("verb", "most"), [("run", 68), ("account", 18)])
def test_a_command_passes_few_files(tmp_path, verb, most):
    (tmp_path / "study.toml").write_text(SETTINGS)
    words = (tmp_path / "study.toml", "--out", tmp_path / "study") if verb == "run" else (*VOTES, "40")
    done = forked.run(
        [sys.executable, ROOT / "scripts" / "files_passed.py", verb, *words],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *files, last = [line for line in done.stderr.splitlines() if line.endswith((".py", " files"))]
    assert last == f"{len(files)} files"
    assert len(files) <= most, files
