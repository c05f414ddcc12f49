#!/bin/sh
# Install Chromium for the tests that open pages in a browser, where that is possible; else say what will be
# skipped. Never fails: TELLERS_REQUIRE_BROWSER=1 makes the tests themselves fail without one.
set -eu

found() {
    for name in "${TELLERS_CHROMIUM:-}" chromium chromium-browser google-chrome; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

skipped() {
    printf '%s\n' \
        "*****************************************************************************************" \
        "NO BROWSER: $1" \
        "The tests that open the report and the dashboard in Chromium will be SKIPPED." \
        "Install Chromium, or name one: TELLERS_CHROMIUM=/path/to/chrome" \
        "*****************************************************************************************" >&2
    exit 0
}

found && exit 0
[ "$(id -u)" = 0 ] || skipped "Chromium is not installed, and only root could install it."
command -v apt-get >/dev/null 2>&1 || skipped "Chromium is not installed, and there is no apt-get to install it."
echo "Installing Chromium for the browser tests ..."
export DEBIAN_FRONTEND=noninteractive
# The lists may be old or empty; without a network the second line still tries what is known.
apt-get update -qq >/dev/null 2>&1 || true
apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 ||
    apt-get install -qq -y --no-install-recommends chromium-browser >/dev/null 2>&1 ||
    skipped "apt-get could not install Chromium."
found || skipped "apt-get installed something that does not bring a command named chromium."
