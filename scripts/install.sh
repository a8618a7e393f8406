#!/bin/sh
# install.sh [EXTRA]: update .venv to match pyproject.toml; create it if it does not exist.
set -eu
cd "$(dirname "$0")/.."
extra=${1:-}
python=.venv/bin/python

"$python" -c 'import pip' 2>/dev/null || scripts/create-venv.sh

# The key includes the directory, because an editable install points to it.
key=$({ pwd; cat pyproject.toml; } | sha256sum | cut -c1-64)
stamp=.venv/.installed-${extra:-base}
fresh=
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
    echo "installing bakeoff${extra:+[$extra]} into .venv (once; may take a minute)"
    # torch first, and with pip: that is its CPU build (200 MB). uv would take one with gigabytes of CUDA.
    [ "$extra" != test ] || "$python" -m pip install --quiet --disable-pip-version-check torch==2.13.0
    scripts/pip-install.sh "$python" --compile --editable ".${extra:+[$extra]}"
    echo "$key" >"$stamp"
    fresh=yes
fi

# If PYTHONDONTWRITEBYTECODE is set, nothing else writes bytecode, and every start would compile the package again.
"$python" -m compileall -q src

# Compile the market world's kernels now. Otherwise their first use would take twenty seconds.
if [ -n "$fresh" ] && "$python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("numba") is None)'; then
    first=$(mktemp -d)
    .venv/bin/bakeoff market run --agent kelly-bayes --duration 10 --output "$first/played" >/dev/null
    rm -rf "$first"
fi
