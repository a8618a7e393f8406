#!/bin/sh
# install-launchers.sh [DIRECTORY]: install SkyPilot, which checks the tasks that `bakeoff launch --to sky` writes.
# It gets a separate virtual environment (default: BAKEOFF_LAUNCHERS, else .launchers), because its dependencies are many.
# Does nothing if this version is installed already.
set -eu
cd "$(dirname "$0")/.."
target=${1:-${BAKEOFF_LAUNCHERS:-.launchers}}
skypilot=0.14.1
python=${PYTHON:-python3}

[ "$(cat "$target/installed" 2>/dev/null)" = "skypilot $skypilot" ] && exit 0

echo "installing SkyPilot into $target (once; may take a minute)"
[ -x "$target/bin/python" ] || "$python" -m venv --without-pip "$target"
scripts/pip-install.sh "$target/bin/python" "skypilot==$skypilot"
echo "skypilot $skypilot" >"$target/installed"
