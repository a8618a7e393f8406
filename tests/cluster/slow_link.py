"""Delay every packet of a link of a `Site`, without netem: a relay in user space between a machine and the switch.

    with SlowLink(site, "n1", 0.05): ...       # 50 ms in each direction

    n1: eth0 -- to-n1 (relay) slow-n1 -- from-n1 -- switch

Frames are read and written whole. Both ends compute checksums and segments themselves, because a relay sees what a wire
would.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the relay starts at once
    from cluster.machines import Machine, Site

_SIOCETHTOOL, _STXCSUM = 0x8946, 0x17
_LARGEST = 65535
_WAITING = 20_000
"""Frames that may be under way in each direction; further ones are lost, as in a router."""


class SlowLink:
    """Frames to and from the machine `name` arrive `delay` seconds late, plus up to a fifth of that."""

    def __init__(self, site: Site, name: str, delay: float) -> None:
        self._site, self._name = site, name
        to, slow, back = f"to-{name}", f"slow-{name}", f"from-{name}"
        site.in_head("ip", "link", "add", "name", slow, "type", "veth", "peer", "name", back)
        _without_offload(site.head, back)
        _without_offload(site[name], "eth0")
        site.in_head("ip", "link", "set", slow, "up", "promisc", "on")
        site.in_head("ip", "link", "set", to, "nomaster", "promisc", "on")
        site.in_head("ip", "link", "set", back, "master", "switch", "up")
        self._process = subprocess.Popen(
            ["nsenter", "-t", str(site.head.pid), "-n", "--", sys.executable, "-I", __file__, to, slow, str(delay)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None and self._process.stdout.readline() == b"relays\n"

    def close(self) -> None:
        """As it was before."""
        self._process.kill()
        self._process.wait()
        self._site.in_head("ip", "link", "set", f"to-{self._name}", "master", "switch")
        self._site.in_head("ip", "link", "del", f"slow-{self._name}")

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _without_offload(machine: Machine, interface: str) -> None:
    """Let the kernel finish checksums and segments before frames leave this interface (`ethtool -K tx off`)."""
    code = (
        "import array, fcntl, socket, struct\n"
        f"value = array.array('B', struct.pack('II', {_STXCSUM}, 0))\n"
        f"request = struct.pack('16sP', {interface!r}.encode(), value.buffer_info()[0])\n"
        f"fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), {_SIOCETHTOOL}, request)\n"
    )
    argv = ["nsenter", "-t", str(machine.pid), "-n", "--", sys.executable, "-c", code]
    subprocess.run(argv, check=True)


def relay(one: str, other: str, delay: float) -> None:
    """Copy frames between two interfaces of this network, each `delay` seconds late, for ever."""
    sockets = []
    for name in (one, other):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        end.bind((name, 0))
        end.setblocking(False)
        sockets.append(end)
    print("relays", flush=True)
    waiting: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    while True:
        due = [queue[0][0] for queue in waiting if queue]
        patience = max(0.0, min(due) - time.monotonic()) if due else None
        for source in select.select(sockets, [], [], patience)[0]:
            queue = waiting[sockets.index(source)]
            at = time.monotonic() + delay * (1 + 0.2 * os.urandom(1)[0] / 255)
            at = max(at, queue[-1][0]) if queue else at  # in order
            while True:
                try:
                    frame, facts = source.recvfrom(_LARGEST)
                except OSError:
                    break
                if facts[2] != socket.PACKET_OUTGOING and len(queue) < _WAITING:
                    queue.append((at, frame))
        now = time.monotonic()
        for queue, target in zip(waiting, reversed(sockets), strict=True):
            while queue and queue[0][0] <= now:
                try:
                    target.send(queue.popleft()[1])
                except OSError:
                    pass  # the link is down, or too much is under way: lost


if __name__ == "__main__":
    relay(sys.argv[1], sys.argv[2], float(sys.argv[3]))
