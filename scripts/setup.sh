#!/bin/sh
# Make .venv or complete it: `setup.sh base` is what a user gets, `setup.sh dev` adds the tools and
# the extras that the tests compare against. Needs Python 3.11 or newer and a package index.
set -eu

what=$1
python=${PYTHON:-python3}
venv=.venv

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if ! usable "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    command -v "$python" >/dev/null 2>&1 ||
        fail "Expected Python 3.11 or newer as '$python', found none." \
            "Install it, or name another one: make PYTHON=/path/to/python3.12 ..."
    usable "$python" ||
        fail "Expected Python 3.11 or newer, got $("$python" --version 2>&1)." \
            "Name a newer one: make PYTHON=python3.12 ..."
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        fail "Expected the modules venv and ensurepip in $("$python" --version 2>&1), at least one is missing." \
            "On Debian and Ubuntu: apt install python3-venv"
    echo "Making .venv with $("$python" --version 2>&1) ..."
    "$python" -m venv --clear "$venv"
fi

# NumPy 1.26, held back by the confidential-computing extra, has no wheels from Python 3.13 on.
pins=$venv/constraints.txt
if "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then
    cp constraints/ci.txt "$pins"
else
    grep -v -i -E '^(numpy|jax|jaxlib|ml_dtypes|spu)==' constraints/ci.txt >"$pins"
fi

# -qq hides the chatter and keeps the errors.
install() {
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check -c "$pins" "$@"
}

case $what in
base)
    echo "Installing tellers, its base dependencies and plots into .venv (about a minute, 0.5 GB) ..."
    install "pip>=25.3" # dependency groups and build constraints
    install --build-constraint "$pins" -e ".[report]"
    ;;
dev)
    echo "Installing torch and the test, lint and documentation tools (some minutes, 1.6 GB) ..."
    install --build-constraint "$pins" \
        -e ".[accounting,report,torch,postgres,sealed,service,distributed,audio,capc]" --group dev --group experiments
    ;;
*)
    fail "Expected 'base' or 'dev', got '$what'."
    ;;
esac
"$venv/bin/python" -m pip check >/dev/null || fail "The packages in .venv contradict each other:" \
    "$("$venv/bin/python" -m pip check)" "Remove .venv and run make again."
