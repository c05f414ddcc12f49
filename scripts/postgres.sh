#!/bin/sh
# Install PostgreSQL for the tests of ledgers in a database, where that is possible; else say what will be
# skipped. Never fails: TELLERS_REQUIRE_POSTGRES=1 makes the tests themselves fail without it. The tests start
# and stop a server of their own; the one that the package may start is not used.
set -eu

found() {
    command -v initdb >/dev/null 2>&1 && return 0
    for program in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$program" ] && return 0
    done
    return 1
}

skipped() {
    printf '%s\n' \
        "*****************************************************************************************" \
        "NO POSTGRESQL: $1" \
        "The tests of ledgers in a database (tests/ledger/test_postgres*.py) will be SKIPPED." \
        "Install the server: apt-get install postgresql" \
        "*****************************************************************************************" >&2
    exit 0
}

found && exit 0
[ "$(id -u)" = 0 ] || skipped "It is not installed, and only root could install it."
command -v apt-get >/dev/null 2>&1 || skipped "It is not installed, and there is no apt-get to install it."
echo "Installing PostgreSQL for the ledger tests ..."
export DEBIAN_FRONTEND=noninteractive
# The lists may be old or empty; without a network the second line still tries what is known.
apt-get update -qq >/dev/null 2>&1 || true
apt-get install -qq -y --no-install-recommends postgresql >/dev/null 2>&1 ||
    skipped "apt-get could not install postgresql."
found || skipped "apt-get installed something that does not bring initdb."
