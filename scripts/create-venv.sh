#!/bin/sh
# Create .venv. Also works with a Debian Python without ensurepip. PYTHON selects the interpreter.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "bakeoff needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2
    exit 2
fi
if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv .venv
elif "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --without-pip .venv
    "$python" -m pip --python .venv/bin/python install --quiet pip
else
    scripts/apt-install.sh python3-venv
    "$python" -m venv .venv
fi
# uv installs in half the time, but does not read pip's settings. So do not install it if pip is set to a custom index.
.venv/bin/python -m pip config list | grep -q '\.index-url=' || .venv/bin/python -m pip install --quiet uv || true
