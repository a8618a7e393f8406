"""What a hostile command tries, one box for each try, as the user who runs this file.

`python attacks.py TARGETS` prints a JSON object: for each attack how it ended and what it printed. TARGETS is JSON of
things outside to attack. Nothing imports this file, so that it can run as another user with another Python.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from bakeoff.sandbox.base import BoxSpec, CommandResult, Limits, choose

LIMITS = Limits(memory_mb=128, cpus=1, pids=40, disk_mb=32)

READ = """
for path in /etc/shadow /etc/gshadow /etc/ssh /etc/sudoers /root/.bashrc /root/.cache /root/.ssh {secret} {project}; do
    ls "$path" >/dev/null 2>&1 && echo "SEEN $path"
done
for directory in /home /var/lib /var/log /opt /srv /mnt /run /sys /tmp /root; do
    ls -A "$directory" | sed "s|^|SEEN $directory/|"
done
"""

CONNECT = """
import socket
def tried(name, address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        try:
            s.connect(address); print("REACHED", name)
        except OSError as error:
            print("refused", name, error)
tried("loopback", ("127.0.0.1", {port}))
tried("host", ({host!r}, {port}))
tried("outside", ("1.1.1.1", 53))
tried("abstract", "\\0{abstract}", socket.AF_UNIX)
tried("path", {path!r}, socket.AF_UNIX)
try:
    print("REACHED names", socket.getaddrinfo("example.com", 80))
except OSError as error:
    print("refused names", error)
print("interfaces", [name for _, name in socket.if_nameindex()])
"""

FORKS = """
import os, time
for _ in range(3000):
    try:
        if os.fork() == 0:
            while True: time.sleep(1)
    except OSError:
        pass
print("still here")
"""

MEMORY = """
blocks = []
while True:
    blocks.append(bytearray(b"x" * (16 << 20)))
    print(len(blocks) * 16, flush=True)
    if len(blocks) > 64: break
"""

SHARED_MEMORY = """
import os
written = 0
try:
    with open("/dev/shm/fill", "wb") as file:
        while written < 1 << 30: written += file.write(b"x" * (1 << 20))
except OSError as error:
    print(error)
print("WROTE", written >> 20)
"""

DISK = """
written = 0
try:
    with open("/tmp/fill", "wb", buffering=0) as file:
        while written < 1 << 30: written += file.write(b"x" * (1 << 20))
except OSError as error:
    print(error)
print("WROTE", written >> 20)
"""

FLOOD = "yes 'all work and no play' | head -c 300000000"

OUTLIVE = """
trap '' TERM HUP INT
setsid sleep {stamp} &
nohup sleep {stamp} >/dev/null 2>&1 &
(setsid sh -c "trap '' TERM; (sleep {stamp} & ) " & )
env -i setsid sleep {stamp} &
exit 0
"""

STUBBORN = "trap '' TERM HUP INT; while true; do sleep {stamp} & wait; done"

PROCESSES = """
for pid in {owner} 1; do [ -r /proc/$pid/environ ] && tr '\\0' '\\n' </proc/$pid/environ | grep -q . && echo "SEEN $pid"; done
kill -0 {owner} 2>/dev/null && echo "SEEN {owner}"
kill -9 {owner} 2>/dev/null && echo "SEEN {owner}"
echo "processes $(ls /proc | grep -c '^[0-9]')"
ls /proc/1/root/etc/shadow /proc/self/root/etc/shadow 2>/dev/null && echo "SEEN shadow"
exit 0
"""

MOUNTS = """
tried() { "$@" >/dev/null 2>&1 && echo "DONE $*"; }
tried mount -t tmpfs none /mnt
tried mount -t proc proc /mnt
tried mount -t cgroup -o memory none /mnt
tried mount -t cgroup2 none /mnt
tried mount -o remount,rw /usr
tried mount -o remount,rw,bind /usr
tried mount --bind /tmp /usr
tried umount /proc
tried umount -l /proc/sys
tried umount -l /usr
tried unshare -m true
tried unshare -Ur true
tried unshare -Urm true
tried nsenter -t 1 -m true
tried mknod /tmp/disk b 8 0
tried mknod /tmp/memory c 1 1
tried touch /usr/bin/planted
tried touch /dev/planted
tried sh -c 'cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern'
tried sh -c 'cat /proc/sys/vm/overcommit_memory >/proc/sys/vm/overcommit_memory'
tried sh -c 'echo h >/proc/sysrq-trigger'
tried sh -c 'echo 100 >/proc/sys/user/max_user_namespaces'
find /proc/sys /proc/irq /proc/bus /proc/fs /proc/driver -writable 2>/dev/null | sed 's/^/DONE find /'
tried sh -c 'echo -1000 >/proc/self/oom_score_adj'
tried hostname planted
tried date -s 2001-01-01
ls /dev | tr '\\n' ' '
exit 0
"""

CHROOT = """
import os
os.makedirs("/tmp/jail", exist_ok=True)
try:
    here = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail"); os.fchdir(here)
    for _ in range(64): os.chdir("..")
    os.chroot(".")
except OSError as error:
    print("refused", error)
for path in ("/etc/shadow", {secret!r}):
    if os.path.exists(path): print("SEEN", path)
"""

DESCRIPTORS = 'for fd in /proc/$$/fd/*; do echo "${{fd##*/}} $(readlink $fd)"; done'

TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for pid in ({owner},):
    if libc.ptrace(16, pid, 0, 0) == 0: print("SEEN", pid)
buffer = ctypes.create_string_buffer(8)
ours = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
theirs = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
if libc.process_vm_readv({owner}, ours, 1, theirs, 1, 0) != -1: print("SEEN memory")
"""


KERNEL = """
import ctypes, os, platform, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *words):
    if libc.syscall(*(ctypes.c_long(word) if isinstance(word, int) else word for word in words)) >= 0:
        print("DONE", name)
def opened(name, family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close(); print("DONE socket", name)
    except OSError:
        pass
room = ctypes.create_string_buffer(4096)
for number, name in enumerate(("user session", "user", "session", "process"), 1):
    tried(f"keyring of the {name}", {"x86_64": 250, "aarch64": 219}[platform.machine()], 0, -number, 1)
if platform.machine() == "x86_64":
    tried("add_key", 248, b"user", b"planted", b"x", 1, -4)
    tried("io_setup", 206, 1, ctypes.create_string_buffer(8))
    tried("userfaultfd", 323, 1)
    tried("bpf", 321, 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1), 128), 128)
    tried("perf_event_open", 298, ctypes.create_string_buffer(struct.pack("IIQ", 1, 120, 0), 120), 0, -1, -1, 0)
    tried("fanotify_init", 300, 0x200, 0)
    tried("open_by_handle_at", 304, os.open("/usr", os.O_RDONLY), struct.pack("IIII", 8, 1, 2, 0), 0)
    for bits in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        tried(f"unshare {bits:x}", 272, bits)
    for kind in os.listdir("/proc/1/ns"):
        tried(f"setns {kind}", 308, os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), 0)
tried("io_uring_setup", 425, 8, room)
tried("open_tree", 428, -100, b"/", 1)
tried("fsopen", 430, b"tmpfs", 0)
new_user = struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
if (child := libc.syscall(435, new_user, 64)) == 0: os._exit(0)
if child > 0: print("DONE clone3")
opened("vsock", 40, 1); opened("alg", 38, 5); opened("bluetooth", 31, 3, 1); opened("packet", 17, 3); opened("raw", 2, 3, 1)
for node in ("null", "zero", "full", "random", "urandom", "tty"):
    for how in (lambda path: os.chmod(path, 0o666), lambda path: os.chown(path, -1, -1), os.utime):
        try:
            how(f"/dev/{node}"); print("DONE", node)
        except OSError:
            pass
if os.readlink("/proc/self/fd/0").startswith("/dev"): print("DONE standard input is a device of the machine")
for name in ("/proc/keys", "/proc/timer_list", "/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger"):
    try:
        if open(name, "rb").read(1): print("DONE read", name)
    except OSError:
        pass
print("tried")
"""

LOG = """
import os
for how in (
    lambda: os.fchown(1, 1000, 1000),
    lambda: os.fchmod(1, 0o6777),
    lambda: os.setxattr(1, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")),
    lambda: os.setxattr(1, "user.planted", b"x"),
):
    try:
        how(); print("changed", flush=True)
    except OSError as error:
        print(error, flush=True)
"""


def python(code: str) -> list[str]:
    return ["/usr/bin/python3", "-c", code]


def shell(code: str) -> list[str]:
    return ["/bin/sh", "-c", code]


def commands(targets: dict[str, Any]) -> dict[str, list[str]]:
    def aimed(text: str) -> str:
        return text.format(**targets)

    return {
        "read": shell(aimed(READ)),
        "connect": python(aimed(CONNECT)),
        "forks": python(FORKS),
        "memory": python(MEMORY),
        "shared_memory": python(SHARED_MEMORY),
        "disk": python(DISK),
        "flood": shell(FLOOD),
        "outlive": shell(aimed(OUTLIVE)),
        "stubborn": shell(aimed(STUBBORN)),
        "processes": shell(aimed(PROCESSES)),
        "mounts": shell(MOUNTS),
        "chroot": python(aimed(CHROOT)),
        "descriptors": python(aimed(DESCRIPTORS)),
        "trace": python(aimed(TRACE)),
        "kernel": python(KERNEL),
        "log": python(LOG),
    }


def described(result: CommandResult) -> dict[str, Any]:
    facts = dataclasses.asdict(result)
    for name in ("stdout", "stderr"):
        facts[f"{name}_size"] = len(facts[name])
        facts[name] = facts[name][-4000:].decode(errors="replace")
    return facts


def attack(targets: dict[str, Any], user: str | None = None) -> dict[str, dict[str, Any]]:
    outcomes = {}
    for name, argv in commands({**targets, "owner": os.getpid()}).items():
        with choose("bubblewrap").open(BoxSpec(limits=LIMITS, name=name.replace("_", "-"), user=user)) as box:
            output = Path(targets["scratch"]) / f"{name}.out" if name in ("flood", "log") else None
            result = box.run(argv, timeout={"stubborn": 0.8, "flood": 3}.get(name, 20), stdout=output)
            outcomes[name] = described(result)
            if output is not None:
                facts = output.stat()
                outcomes[name]["stdout_size"] = facts.st_size
                outcomes[name]["log"] = [facts.st_mode & 0o7777, facts.st_uid, facts.st_gid, os.listxattr(output)]
                outcomes[name]["ours"] = [0o644, os.geteuid(), os.getegid(), []]
    return outcomes


if __name__ == "__main__":
    targets = json.loads(sys.argv[1])
    print(json.dumps(attack(targets, targets.get("user"))))
