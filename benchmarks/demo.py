"""How long the demo takes, end to end and step by step: from data to report, on digits.

    python benchmarks/demo.py

Wall seconds of a fresh process, its imports included, and of each step as the run itself measures them.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Run the demo in a folder that is thrown away, and print what it took."""
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tellers", "demo", "--out", str(Path(scratch) / "demo"), "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        whole = time.perf_counter() - start
        result = json.loads((Path(scratch) / "demo" / "result.json").read_text())
        steps = json.loads((Path(scratch) / "demo" / "private" / "summary.json").read_text())["seconds"]
    where = f"{platform.machine()}, Python {platform.python_version()}"
    print(f"\nThe demo on {where}, seed {result['seed']}: {whole:.1f} s")
    for name, seconds in {**steps, "imports, card and report": whole - sum(steps.values())}.items():
        print(f"  {name:<26}{seconds:7.1f} s")


if __name__ == "__main__":
    main()
