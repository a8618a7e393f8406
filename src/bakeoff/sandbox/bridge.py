"""A loopback port inside a box that leads to a unix socket outside: the only way out of a box without network.

The listener is bound inside the box's network namespace; a thread each way carries the bytes of one connection.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping

_PIECE = 1 << 16


def listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def serve(listeners: Mapping[socket.socket, str]) -> None:
    """Forward connections of every listener to its unix socket, in threads of this process."""
    for listener, path in listeners.items():
        threading.Thread(target=_accept, args=(listener, path), daemon=True).start()


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # the listener was closed
        threading.Thread(target=_join, args=(client, path), daemon=True).start()


def _join(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            _connect(server, path)
        except OSError:
            return  # nobody answers outside: the client sees its connection closed
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_carry, args=(server, client), daemon=True)
        back.start()
        _carry(client, server)
        back.join()


def _connect(server: socket.socket, path: str) -> None:
    """A socket's address has 107 bytes at most; a long path is reached through its directory."""
    if len(os.fsencode(path)) < 108:
        server.connect(path)
        return
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)


def _carry(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already


def main() -> None:
    """`bridge.py PORT PATH ...`: forward, in whatever network namespace this was started, until standard input ends."""
    words = sys.argv[1:]
    serve({listen(int(port)): path for port, path in zip(words[::2], words[1::2], strict=True)})
    print("listening", flush=True)
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
