"""Messages between a box's owner and its keeper: JSON with open descriptors behind it, over a packet socket."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

_MOST_FDS = 32
_LONGEST = 1 << 16

Message = tuple[dict[str, Any], list[int]]


def send(target: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """The message goes through a file in memory: a command line may be longer than a packet."""
    file = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        data = memoryview(json.dumps(message).encode())
        while data:
            data = data[os.write(file, data) :]
        socket.send_fds(target, [b"m"], [file, *fds])
    finally:
        os.close(file)


def receive(source: socket.socket) -> Message | None:
    """The next message; None when there will be no more. Its descriptors are ours to close."""
    # socket.recv_fds drops its flags (Python 3.11), and an open descriptor would be inherited by a box.
    room = socket.CMSG_SPACE(_MOST_FDS * array.array("i").itemsize)
    data, parts, _, _ = source.recvmsg(_LONGEST, room, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    fds = array.array("i")
    for _, _, part in parts:
        fds.frombytes(part[: len(part) - len(part) % fds.itemsize])
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        message: dict[str, Any] = json.loads(file.read())
    return message, list(fds[1:])
