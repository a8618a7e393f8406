#!/bin/sh
# The tests open interactive plots in a real browser; this puts it on the machine.
set -eu
command -v chromium >/dev/null 2>&1 || "$(dirname "$0")/apt-install.sh" chromium
