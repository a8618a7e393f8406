"""A loopback port inside a box that leads to a unix socket outside: the only way out of a box without network.

The listener is bound inside the box's network namespace; the process that forwards is outside of its mount
namespace, so it reaches the unix socket by path. A thread each way carries the bytes of one connection. Only the
standard library is imported: the file is also run on its own, inside the network of a container (`main`).

    serve({listen(8080): "/run/proxy.sock"})
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping

CONNECTIONS = 256
"""Most connections at once, of all ports together. Others wait in the listener's queue."""
_CHUNK = 1 << 16
_PAUSE = 0.05
"""Seconds before the next try to accept a connection after one that failed."""
_END_SECONDS = 1.0
_MAX_ADDRESS = 108  # sun_path of struct sockaddr_un with its zero byte: unix(7)


def listen(port: int) -> socket.socket:
    """A socket that listens on a loopback port of the network namespace this process is in."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


_live: set[socket.socket] = set()
"""Both ends of the connections that are carried."""


def hang_up() -> None:
    """End all connections. Their clients are gone; a server that never answers would keep two threads for each."""
    for end in tuple(_live):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
    deadline = time.monotonic() + _END_SECONDS
    while _live and time.monotonic() < deadline:  # until their threads have ended
        time.sleep(0.001)


def serve(listeners: Mapping[socket.socket, str]) -> None:
    """Forward the connections of each listener to its unix socket, in threads of this process. Returns at once.

    To end it, shut the listener down.
    """
    free = threading.Semaphore(CONNECTIONS)
    for listener, path in listeners.items():
        threading.Thread(target=_accept, args=(listener, path, free), daemon=True).start()


def _accept(listener: socket.socket, path: str, free: threading.Semaphore) -> None:
    """Give each connection of a listener its own thread, until the listener is shut down; then close it.

    Nobody else closes it: this thread may be about to wait on its number, which would then be another socket's.
    """
    with listener:
        _accept_all(listener, path, free)


def _accept_all(listener: socket.socket, path: str, free: threading.Semaphore) -> None:
    while True:
        try:
            client, _ = listener.accept()
            free.acquire()
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EINVAL):
                return  # the listener was shut down
            time.sleep(_PAUSE)  # no descriptors are left, or the client has gone already (accept(2))
            continue
        try:
            threading.Thread(target=_forward, args=(client, path, free), daemon=True).start()
        except RuntimeError:  # too many threads: this client sees its connection closed, the next one may be luckier
            client.close()
            free.release()
            time.sleep(_PAUSE)


def _forward(client: socket.socket, path: str, free: threading.Semaphore) -> None:
    """Carry one connection until both sides are done."""
    try:
        _carry_both(client, path)
    except (OSError, RuntimeError):
        pass  # no descriptors or threads are left: the client sees its connection closed
    finally:
        free.release()


def _carry_both(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            if len(os.fsencode(path)) < _MAX_ADDRESS:
                server.connect(path)
            else:  # too long for an address: reach it through its open directory
                directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    server.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
                finally:
                    os.close(directory)
        except OSError:
            return  # nothing answers outside: the client sees its connection closed
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _live.update((client, server))
        try:
            back = threading.Thread(target=_carry, args=(server, client), daemon=True)
            back.start()
            _carry(client, server)
            back.join()
        finally:
            _live.difference_update((client, server))


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes one way. The end of one direction is passed on; the other direction goes on (half-close)."""
    try:
        while chunk := source.recv(_CHUNK):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already


def main() -> None:
    """`bridge.py PID PORT PATH ...`: forward in the network namespace this was started in, until standard input or the
    process PID ends: it is in the cgroups of a container, which cannot be removed before."""
    container, words = os.pidfd_open(int(sys.argv[1])), sys.argv[2:]
    serve({listen(int(port)): path for port, path in zip(words[::2], words[1::2], strict=True)})
    print("listening", flush=True)  # container.py waits for this line
    while container not in select.select([0, container], [], [])[0] and os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
