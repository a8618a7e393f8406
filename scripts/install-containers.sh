#!/bin/sh
# Install docker and podman: the tests start their own dockerd and podman (tests/sandbox/test_docker.py).
set -eu
missing=
command -v dockerd >/dev/null 2>&1 || missing="$missing docker.io"
command -v podman >/dev/null 2>&1 || missing="$missing podman"
PATH="$PATH:/usr/sbin:/sbin" command -v runc >/dev/null 2>&1 || missing="$missing runc"
# shellcheck disable=SC2086
[ -z "$missing" ] || "$(dirname "$0")/apt-install.sh" $missing
