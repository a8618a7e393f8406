#!/bin/sh
# apt-install.sh PACKAGE...: install Debian packages, or say which are missing. Services that come with them stay off.
set -eu
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

if ! command -v apt-get >/dev/null || { [ -n "$sudo" ] && ! command -v sudo >/dev/null; }; then
    echo "missing: $*. Install it with your system's package manager (here: no apt-get, or no right to use it)." >&2
    exit 2
fi
echo "installing $* with apt-get"
# Packages ask this script whether their services may start; 101 means no (invoke-rc.d(8)). Someone's own script stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$sudo rm -f $policy' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
    $sudo chmod 755 $policy
fi
# Another apt-get may be running, such as the nightly upgrade: wait up to ten minutes for its lock.
apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@"; }
# That setting does not cover the lock of the package lists (apt.conf(5)), so `update` is tried again while it is held.
tries=0
until message=$(apt update 2>&1); do
    case $message in *lists/lock*) ;; *) tries=60 ;; esac
    [ $tries -lt 60 ] || { echo "$message" >&2; exit 1; }
    tries=$((tries + 1))
    sleep 10
done
apt install -y --no-install-recommends "$@" >/dev/null
