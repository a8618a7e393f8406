#!/bin/sh
# install-trainers.sh [DIRECTORY]: install the libraries that read what `bakeoff export` writes.
# They get a separate virtual environment (default: BAKEOFF_TRAINERS, else .trainers), because they need other versions of
# mcp and openai than the tests do. torch is not needed to load data. Does nothing if these versions are installed already.
set -eu
cd "$(dirname "$0")/.."
target=${1:-${BAKEOFF_TRAINERS:-.trainers}}
trl=1.16.0 verifiers=0.4.0 art=0.5.18 harbor=0.25.0 inspect=0.3.285
python=${PYTHON:-python3}

stamp="trl $trl verifiers $verifiers art $art harbor $harbor inspect $inspect"
[ "$(cat "$target/installed" 2>/dev/null)" = "$stamp" ] && exit 0

echo "installing training libraries into $target (once; may take two minutes)"
[ -x "$target/bin/python" ] || "$python" -m venv --without-pip "$target"
scripts/pip-install.sh "$target/bin/python" "verifiers==$verifiers" "openpipe-art==$art" "inspect-ai==$inspect" datasets
"$python" -m pip --python "$target/bin/python" install --quiet --disable-pip-version-check --no-deps \
    --ignore-requires-python "trl==$trl" "harbor==$harbor" # harbor's data models run on 3.11; the rest of it needs 3.12
echo "$stamp" >"$target/installed"
