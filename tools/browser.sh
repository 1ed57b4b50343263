#!/usr/bin/env bash
# Chromium for the tests that take screenshots: installed here if that needs no questions (Debian, as root).
#
# Prints one line and always succeeds: without a browser those tests are skipped, and say so.

set -u

say() { printf 'browser: %s\n' "$*"; }

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        say "$name is there"
        exit 0
    fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    say "none is there, and it is not installed without being asked: apt-get install chromium"
elif timeout 180 apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; then
    say "installed chromium"
else
    say "none is there, and apt-get could not install chromium"
fi
exit 0
