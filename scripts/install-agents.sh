#!/bin/sh
# install-agents.sh [DIRECTORY]: the real agent clients, at the versions that the tests know, into DIRECTORY.
# Default: BAKEOFF_AGENTS, else .agents. What is there already at its version stays.
set -eu
cd "$(dirname "$0")/.."
target=${1:-${BAKEOFF_AGENTS:-.agents}}
mkdir -p "$target"
target=$(cd "$target" && pwd)
# Behind a proxy with a certificate of its own npm fails unless it is told of the system's.
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
    # The system's Python where there is one: a box sees that, and not one from somebody's home.
    python=${PYTHON:-/usr/bin/python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || python=python3
    rm -rf "$target/mini"
    "$python" -m venv --without-pip "$target/mini"
    pip() { scripts/pip-install.sh "$target/mini/bin/python" --compile "$@"; }
    # All that it asks for but `datasets`, which brings half a gigabyte and serves only its own benchmark scripts.
    pip --no-deps "$mini"
    pip litellm openai mcp tenacity rich python-dotenv typer platformdirs textual prompt_toolkit jinja2 pyyaml requests pydantic
    echo "$mini" >"$target/mini.installed"
fi
