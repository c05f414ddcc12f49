#!/bin/sh
# Install a program that tests need and pip cannot bring, where that is possible; else say what will be skipped:
#     sh scripts/system.sh browser|postgres|compiler
# Never fails: TELLERS_REQUIRE_BROWSER=1, _POSTGRES=1 and _COMPILER=1 make the tests themselves fail without it.
set -eu

case ${1:-} in
browser)
    name=Chromium packages="chromium chromium-browser"
    lost="The tests that open the report and the dashboard in Chromium will be SKIPPED."
    hint="Install Chromium, or name one: TELLERS_CHROMIUM=/path/to/chrome"
    programs="${TELLERS_CHROMIUM:-} chromium chromium-browser google-chrome"
    ;;
postgres) # The tests start and stop a server of their own; the one that the package may start is not used.
    name=PostgreSQL packages=postgresql
    lost="The tests of ledgers in a database (tests/ledger/test_postgres*.py) will be SKIPPED."
    hint="Install the server: apt-get install postgresql"
    programs="initdb /usr/lib/postgresql/*/bin/initdb"
    ;;
compiler) # For the library that stands between a ledger and its files where power is cut.
    name="C compiler" packages="gcc"
    lost="Power losses, full disks and wrong clocks (scripts/chaos, tests/chaos) will be LEFT OUT."
    hint="Install a compiler and its headers: apt-get install gcc libc6-dev"
    programs=gcc
    ;;
*)
    echo "Expected browser, postgres or compiler, got '${1:-}'." >&2
    exit 2
    ;;
esac

found() {
    for program in $programs; do # unquoted: patterns are meant to match
        command -v "$program" >/dev/null 2>&1 && return 0
    done
    return 1
}

skipped() {
    line="*****************************************************************************************"
    printf '%s\n' "$line" "NO $name: $1" "$lost" "$hint" "$line" >&2
    exit 0
}

found && exit 0
[ "$(id -u)" = 0 ] || skipped "It is not installed, and only root could install it."
command -v apt-get >/dev/null 2>&1 || skipped "It is not installed, and there is no apt-get to install it."
echo "Installing $name for the tests ..."
export DEBIAN_FRONTEND=noninteractive
# The lists may be old or empty; without a network the next line still tries what is known.
apt-get update -qq >/dev/null 2>&1 || true
[ "$packages" != gcc ] || extra=libc6-dev
for package in $packages; do
    apt-get install -qq -y --no-install-recommends "$package" ${extra:-} >/dev/null 2>&1 && break
done
found || skipped "apt-get could not install it."
