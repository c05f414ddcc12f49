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
echo "The README's code and the command line work in an empty environment."
