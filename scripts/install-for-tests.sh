#!/bin/sh
# install-for-tests.sh: install everything that the tests use besides what `install.sh test` puts into .venv. It needs
# only a .venv that exists, so both can run at once. Downloads take most of the time, so some run in parallel.
set -eu
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
downloads=
# Whatever ends this script also ends the downloads that it started: each is a process group (setsid).
trap '[ -z "$downloads" ] || kill -- $downloads 2>/dev/null || true; rm -rf "$logs"' EXIT
trap 'exit 130' HUP INT TERM

for name in agents trainers launchers; do
    setsid sh -c "scripts/install-$name.sh && touch '$logs/$name.done'" >"$logs/$name" 2>&1 &
    downloads="$downloads -$!"
done
for name in bubblewrap containers postgres slurm chromium; do
    scripts/install-$name.sh # one after the other, because apt-get holds a lock
done
wait
downloads=
for name in agents trainers launchers; do
    [ -e "$logs/$name.done" ] || { cat "$logs/$name" >&2; echo "scripts/install-$name.sh failed" >&2; exit 1; }
done
