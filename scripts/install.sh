#!/bin/sh
# install.sh [EXTRA]: bring .venv up to date with pyproject.toml, creating it when it is absent.
set -eu
cd "$(dirname "$0")/.."
extra=${1:-}
python=.venv/bin/python

"$python" -c 'import pip' 2>/dev/null || scripts/create-venv.sh

# The directory belongs to the key: an editable install points at it.
key=$({ pwd; cat pyproject.toml; } | sha256sum | cut -c1-64)
stamp=.venv/.installed-${extra:-base}
fresh=
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
    echo "installing bakeoff${extra:+[$extra]} into .venv (once; may take a minute)"
    scripts/pip-install.sh "$python" --compile --editable ".${extra:+[$extra]}"
    echo "$key" >"$stamp"
    fresh=yes
fi

# Where PYTHONDONTWRITEBYTECODE is set nothing else writes these, and every start would compile the package again.
"$python" -m compileall -q src

# The market world's kernels become machine code at their first use, which takes twenty seconds: better here than there.
if [ -n "$fresh" ] && "$python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("numba") is None)'; then
    first=$(mktemp -d)
    .venv/bin/bakeoff market run --agent kelly-bayes --duration 10 --output "$first/played" >/dev/null
    rm -rf "$first"
fi
