#!/bin/sh
# install-for-tests.sh: install everything that the tests use. Downloads take most of the time, so some run in parallel.
set -eu
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

scripts/install.sh test
together="agents trainers"
for name in $together; do
    { scripts/install-$name.sh && echo done >"$logs/$name.done"; } >"$logs/$name" 2>&1 &
done
for name in bubblewrap containers postgres chromium; do
    scripts/install-$name.sh # one after the other, because apt-get holds a lock
done
wait
for name in $together; do
    [ -e "$logs/$name.done" ] || { cat "$logs/$name" >&2; echo "scripts/install-$name.sh failed" >&2; exit 1; }
done
