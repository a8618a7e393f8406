#!/bin/sh
# install-agents.sh [DIRECTORY]: install the real agent clients, at the versions that the tests use, into DIRECTORY
# (default: BAKEOFF_AGENTS, else .agents). Clients that are installed at the right version are kept.
set -eu
cd "$(dirname "$0")/.."
target=${1:-${BAKEOFF_AGENTS:-.agents}}
mkdir -p "$target"
target=$(cd "$target" && pwd)
# Behind a proxy with its own certificate, npm works only if it knows the system's certificates.
certificates=/etc/ssl/certs/ca-certificates.crt
[ -n "${NODE_EXTRA_CA_CERTS:-}" ] || [ ! -e $certificates ] || export NODE_EXTRA_CA_CERTS=$certificates
npm="@openai/codex@0.166.0 @anthropic-ai/claude-code@2.1.325 opencode-ai@1.18.33"
mini=mini-swe-agent==2.4.6

done_already() { [ "$(cat "$target/$1.installed" 2>/dev/null)" = "$2" ]; }

if ! done_already npm "$npm"; then
    command -v npm >/dev/null || scripts/apt-install.sh nodejs npm
    # shellcheck disable=SC2086
    npm install --prefix "$target" --no-audit --no-fund --no-save --loglevel=error $npm
    echo "$npm" >"$target/npm.installed"
fi

if ! done_already mini "$mini"; then
    # Prefer the system's Python: a sandbox can see it, but not a Python in a home directory.
    python=${PYTHON:-/usr/bin/python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || python=python3
    rm -rf "$target/mini"
    "$python" -m venv --without-pip "$target/mini"
    pip() { scripts/pip-install.sh "$target/mini/bin/python" --compile "$@"; }
    # All of its dependencies except `datasets`, which takes half a gigabyte and is used only by its benchmark scripts.
    pip --no-deps "$mini"
    pip litellm openai mcp tenacity rich python-dotenv typer platformdirs textual prompt_toolkit jinja2 pyyaml requests pydantic
    echo "$mini" >"$target/mini.installed"
fi
