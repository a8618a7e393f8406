#!/bin/sh
# test-needs.sh: say what `make test` needs, and what this machine has, before anything is installed.
set -eu
cd "$(dirname "$0")/.."
user=$(id -un)
apt=$(command -v apt-get >/dev/null && echo "has apt-get" || echo "has no apt-get")
free=$(df -Pm . | awk 'NR == 2 { print int($4 / 1000) }')
cat <<EOF
make test needs root and Debian's apt-get (sandboxes, PostgreSQL, Slurm, Chromium, docker and podman), a network for apt, pip and
npm, 6 GB of disk here and 2 GB for Debian packages, and about 12 minutes on two idle cores once everything is installed.
This machine: user $user, $apt, $free GB free here, $(nproc) cores. \`make check\` runs what needs only Python, in about 2 minutes.
EOF
