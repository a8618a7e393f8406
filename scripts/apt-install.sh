#!/bin/sh
# apt-install.sh PACKAGE...: install Debian packages, or say which are missing.
set -eu
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

if ! command -v apt-get >/dev/null || { [ -n "$sudo" ] && ! command -v sudo >/dev/null; }; then
    echo "missing: $*. Install it with your system's package manager (apt-get is missing, or needs root or sudo)." >&2
    exit 2
fi
echo "installing $* with apt-get"
$sudo apt-get update -qq
# RUNLEVEL=1 keeps a newly installed service from being started.
$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
