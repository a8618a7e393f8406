"""The work in a sandbox of its own, called by tests in another one through a unix socket.

For tasks with `isolation = "launcher"`. The tests get a program and a module (`work_in_box.py`) whose orders arrive
here; commands run in the work's sandbox, as another user. Nothing of the tests is there: no file, no process, no
variable that was not named, and the tests see of the work only bytes. One command runs at a time.

    with Launcher(work, user="agent", seconds=60) as launcher:
        with sandbox.open(replace(spec, mounts=(*spec.mounts, *launcher.mounts))) as tests: ...
"""

from __future__ import annotations

import base64
import errno
import json
import os
import posixpath
import re
import shutil
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, Mount
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks import work_in_box
from bakeoff.workloads.tasks.environment import chown, command_path

PLACE = "/opt/bakeoff"
USER = "65534:65534"
"""Who the work runs as if the task names no user for the agent: nobody, whom not every image knows by name."""
LONGEST_ORDER = 64 << 20
LONGEST_OUTPUT = 16 << 20
CALL_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAUSE = 0.05
"""Seconds before the next try to accept a connection after one that failed."""


class Launcher:
    """Serves the tests of one sandbox until it is closed. `check` raises what broke on our side meanwhile."""

    def __init__(self, work: Box, *, user: str | None, seconds: float) -> None:
        """`work` is the sandbox of the work, `user` who it runs as (default: nobody), `seconds` the tests' time limit."""
        self._work = work
        isolated = command_path(work, "/") == "/"  # sandbox `none` has no other users
        self._user = (user or USER) if isolated else None
        self._deadline = time.monotonic() + seconds
        self._broken: InfraError | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Unix sockets have paths of at most 107 bytes (unix(7)), and scratch directories are short.
            self._sockets = stack.enter_context(scratch("work"))
            self._programs = stack.enter_context(scratch("client"))
            for folder in (self._sockets, self._programs):
                folder.chmod(0o755)  # tests may run as any user
            for name in ("work", "bakeoff_work.py"):
                shutil.copyfile(work_in_box.__file__, self._programs / name)
                (self._programs / name).chmod(0o755)
            self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            self._listener.bind(str(self._sockets / "socket"))
            (self._sockets / "socket").chmod(0o666)
            self._listener.listen(64)
            if self._user is not None:
                chown(self._work, self._user, (self._work.spec.workdir,))
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._work.end_processes()
        self._thread.join()
        self._stack.close()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What the tests' sandbox needs. A socket can be reached through a plain mount only, so that one is writable."""
        return (
            Mount(self._programs, PLACE),
            Mount(self._sockets, posixpath.dirname(work_in_box.SOCKET), writable=True),
        )

    def env(self, tests: Box) -> dict[str, str]:
        """Variables by which tests find the program, the module and the socket."""
        place = command_path(tests, PLACE)
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, (place, tests.spec.env.get("PYTHONPATH")))),
            "BAKEOFF_WORK": f"{place}/work",
            "BAKEOFF_WORK_SOCKET": command_path(tests, work_in_box.SOCKET),
        }

    def check(self) -> None:
        """Raise InfraError if the work's sandbox broke, which is not the fault of the work."""
        if self._broken is not None:
            raise self._broken

    def _serve(self) -> None:
        """Answer one connection after another. Each brings one order."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):
                    return  # closed, or shut down
                time.sleep(_PAUSE)
                continue
            with connection:
                try:
                    connection.settimeout(30)
                    answer = self._answer(_received(connection))
                    connection.settimeout(None)
                    connection.sendall(json.dumps(answer).encode())
                except Exception:
                    continue  # the tests hung up, or sent something that is not an order

    def _answer(self, order: Any) -> dict[str, Any]:
        """Carry out one order. What the tests did wrong is an `error` in the answer."""
        try:
            if order.get("op") == "run":
                return self._run(order)
            path = posixpath.normpath(posixpath.join(self._work.spec.workdir or "/", str(order["path"])))
            if order.get("op") == "write":
                self._work.write(path, base64.b64decode(order["data"]), int(order["mode"]) & 0o777)
                return {}
            if order.get("op") == "read":
                return {"data": self._read(path)}
            return {"error": f"unknown order {order.get('op')!r}"}
        except InfraError as error:
            self._broken = error
            return {"error": str(error)}
        except (UsageError, KeyError, ValueError, TypeError, AttributeError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _read(self, path: str) -> str | None:
        try:
            return base64.b64encode(self._work.read(path, LONGEST_OUTPUT)).decode()
        except (UsageError, OSError):
            return None

    def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a command of the work, for no longer than the tests have left."""
        left = max(self._deadline - time.monotonic(), 0.1)
        wanted = order.get("timeout")
        env = {str(name): str(value) for name, value in order["env"].items() if _NAME.fullmatch(str(name))}
        with scratch("output") as here:
            out, err = here / "out", here / "err"
            ended = self._work.run(
                [str(word) for word in order["argv"]],
                env={"HOME": "/tmp", **env},
                cwd=order.get("cwd"),
                timeout=min(left, CALL_SECONDS if wanted is None else float(wanted)),
                stdin=base64.b64decode(order.get("input") or ""),
                stdout=out,
                stderr=err,
                user=self._user,
            )
            return {
                "code": ended.code,
                "timed_out": ended.timed_out,
                "seconds": ended.seconds,
                "stdout": _start_of(out),
                "stderr": _start_of(err),
            }


def _received(connection: socket.socket) -> Any:
    """The order that a connection brings: JSON, up to the end of what the other side sends."""
    chunks, size = [], 0
    while chunk := connection.recv(1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if size > LONGEST_ORDER:
            return {"op": f"with more than {LONGEST_ORDER} bytes"}
    try:
        return json.loads(b"".join(chunks))
    except (ValueError, RecursionError):
        return {"op": "that is not JSON"}


def _start_of(file: Path) -> str:
    with file.open("rb") as opened:
        return base64.b64encode(opened.read(LONGEST_OUTPUT)).decode()
