#!/bin/sh
# Install Chromium: the tests open pages in a real browser.
set -eu
command -v chromium >/dev/null 2>&1 || "$(dirname "$0")/apt-install.sh" chromium
