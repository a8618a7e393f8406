#!/bin/sh
# pip-install.sh PYTHON ARGUMENT...: `pip install` for PYTHON, by uv where .venv has it: that takes half the time.
set -eu
cd "$(dirname "$0")/.."
python=$1
shift
if [ -x .venv/bin/uv ]; then
    .venv/bin/uv pip install --quiet --python "$python" "$@" && exit
    echo "uv could not do it; trying pip" >&2
fi
pip=.venv/bin/python
[ -x $pip ] || pip=${PYTHON:-python3}
exec "$pip" -m pip --python "$python" --disable-pip-version-check install --quiet "$@"
