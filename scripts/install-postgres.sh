#!/bin/sh
# Install PostgreSQL: the tests start their own server (tests/conftest.py).
set -eu
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || "$(dirname "$0")/apt-install.sh" postgresql
