#!/bin/sh
# pip-install.sh PYTHON ARGUMENT...: run `pip install` for PYTHON, with uv if .venv has it, which takes half the time.
set -eu
cd "$(dirname "$0")/.."
python=$1
shift
if [ -x .venv/bin/uv ]; then
    .venv/bin/uv pip install --quiet --python "$python" "$@" && exit
    echo "uv failed; trying pip" >&2
fi
pip=.venv/bin/python
[ -x $pip ] || pip=${PYTHON:-python3}
exec "$pip" -m pip --python "$python" --disable-pip-version-check install --quiet "$@"
