#!/bin/sh
# Install bubblewrap, which runs tasks in sandboxes, and busybox, from which the tests build a small image.
set -eu
missing=
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
command -v busybox >/dev/null 2>&1 || missing="$missing busybox-static"
PATH="$PATH:/usr/sbin:/sbin" command -v mkfs.ext4 >/dev/null 2>&1 || missing="$missing e2fsprogs"
[ -x /usr/bin/python3 ] || missing="$missing python3"
# shellcheck disable=SC2086
[ -z "$missing" ] || "$(dirname "$0")/apt-install.sh" $missing
