#!/bin/sh
# The tests start a PostgreSQL server of their own (tests/conftest.py); this puts its programs on the machine.
set -eu
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || "$(dirname "$0")/apt-install.sh" postgresql
