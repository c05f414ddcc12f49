#!/bin/sh
# Install the package into an empty environment, away from the source tree, and run the README's code there.
set -eu

here=$(pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT INT TERM

echo "Installing into an empty environment (about a minute) ..."
"$here/.venv/bin/python" -m venv "$room/venv"
"$room/venv/bin/python" -m pip install -qq --disable-pip-version-check -c "$here/.venv/constraints.txt" "$here"

# The first Python block of the README, as a reader would paste it.
awk '/^```python$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$here/README.md" >"$room/ten_lines.py"
cd "$room"
venv/bin/python ten_lines.py
venv/bin/tellers --help >/dev/null
venv/bin/tellers demo --out demo >/dev/null
grep -q "tellers\[report\]" demo/report.html # no matplotlib here: the page says so, in words
echo "The README's code, the command line and the demo work in an empty environment."
