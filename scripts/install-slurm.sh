#!/bin/sh
# Install Slurm, and what the tests of clusters need beside it: they start their own daemons in namespaces (tests/cluster).
set -eu
PATH="$PATH:/usr/sbin:/sbin"
missing=
{ command -v slurmctld && command -v slurmd && command -v sbatch; } >/dev/null 2>&1 || missing="$missing slurm-wlm"
command -v munged >/dev/null 2>&1 || missing="$missing munge"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
command -v iptables >/dev/null 2>&1 || missing="$missing iptables"
command -v faketime >/dev/null 2>&1 || missing="$missing faketime"
# shellcheck disable=SC2086
[ -z "$missing" ] || "$(dirname "$0")/apt-install.sh" $missing
