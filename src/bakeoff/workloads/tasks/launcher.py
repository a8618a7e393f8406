"""The work in a sandbox of its own, called by tests in another one through a unix socket.

For tasks with `isolation = "launcher"`. The tests get a program and a module (`work_in_box.py`) whose orders arrive
here; commands run in the work's sandbox, as another user. Nothing of the tests is there: no file, no process, no
variable that was not named, and the tests see of the work only bytes. One command runs at a time. Modules of the work
that tests import (`imported_work.py`) are served by one process of the work (`object_server.py`), as long as the tests
keep the connection open.

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
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox.base import Box, Mount
from bakeoff.sandbox.cache import scratch
from bakeoff.workloads.tasks import imported_work, object_server, work_in_box, work_startup
from bakeoff.workloads.tasks.environment import chown, command_path

PLACE = "/opt/bakeoff"
USER = "65534:65534"
"""Who the work runs as if the task names no user for the agent: nobody, whom not every image knows by name."""
LONGEST_ORDER = 64 << 20
LONGEST_OUTPUT = 16 << 20
CALL_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROGRAMS = {
    "work": work_in_box.__file__,
    "bakeoff_work.py": work_in_box.__file__,
    "bakeoff_imports.py": imported_work.__file__,
    "bakeoff_objects.py": object_server.__file__,
    "sitecustomize.py": work_startup.__file__,
}
"""Files in `PLACE` of the tests' sandbox."""
_END_SECONDS = 1.0
"""How long a process of the work may take to end after its last question."""
_PAUSE = 0.05
"""Seconds before the next try to accept a connection after one that failed."""


class Launcher:
    """Serves the tests of one sandbox until it is closed. `check` raises what broke on our side meanwhile."""

    def __init__(
        self, work: Box, *, user: str | None, seconds: float, modules: Sequence[str] = (), top: str | None = None
    ) -> None:
        """`work` is the sandbox of the work, `user` who it runs as (default: nobody), `seconds` the tests' time limit.

        `modules` of the work are imported by tests; they are looked for in its workdir and below `top`.
        """
        self._work = work
        self._modules = tuple(modules)
        folders = dict.fromkeys(filter(None, (work.spec.workdir, top)))
        self._places = [command_path(work, place) for folder in folders for place in (folder, f"{folder}/src")]
        self._session = threading.Lock()
        """Held while a process of the work serves its modules."""
        isolated = command_path(work, "/") == "/"  # sandbox `none` has no other users
        self._user = (user or USER) if isolated else None
        self._deadline = time.monotonic() + seconds
        self._broken: InfraError | None = None
        self._closed = False
        self._connections: set[socket.socket] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Unix sockets have paths of at most 107 bytes (unix(7)), and scratch directories are short.
            self._sockets = stack.enter_context(scratch("work"))
            self._programs = stack.enter_context(scratch("client"))
            for folder in (self._sockets, self._programs):
                folder.chmod(0o755)  # tests may run as any user
            for name, source in PROGRAMS.items():
                shutil.copyfile(source, self._programs / name)
                (self._programs / name).chmod(0o755)
            if self._user is not None:
                chown(self._work, self._user, (self._work.spec.workdir,))
            self._serve(stack, "socket", self._answer_order)
            self._serve(stack, "objects", self._serve_objects)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for connection in tuple(self._connections):  # a session waits for its tests, which are gone
            connection.shutdown(socket.SHUT_RDWR)
        self._work.end_processes()
        self._stack.close()

    def _serve(self, stack: ExitStack, name: str, answer: Callable[[socket.socket], None]) -> None:
        """Have a thread `answer` one connection after another at the socket `name`, until `stack` unwinds."""
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(self._sockets / name))
        (self._sockets / name).chmod(0o666)
        listener.listen(64)
        thread = threading.Thread(target=self._accept, args=(listener, answer), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)  # ends `accept`

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
            "BAKEOFF_WORK_OBJECTS": command_path(tests, imported_work.SOCKET),
            **({"BAKEOFF_WORK_MODULES": ",".join(self._modules)} if self._modules else {}),
        }

    def check(self) -> None:
        """Raise InfraError if the work's sandbox broke, which is not the fault of the work."""
        if self._broken is not None:
            raise self._broken

    def _accept(self, listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL):
                    return  # closed, or shut down
                time.sleep(_PAUSE)
                continue
            with connection:
                try:
                    answer(connection)
                except Exception:
                    continue  # the tests hung up, or sent something that is not an order

    def _answer_order(self, connection: socket.socket) -> None:
        """Carry out the one order that a connection brings."""
        connection.settimeout(30)
        answer = self._answer(_received(connection))
        connection.settimeout(None)
        connection.sendall(json.dumps(answer).encode())

    def _serve_objects(self, connection: socket.socket) -> None:
        """Carry questions of the tests to a process of the work, and its answers back, until one of them ends."""
        self._connections.add(connection)
        try:
            with self._session, _Objects(self._work, self._user, self._places, self._left()) as objects:
                reader = connection.makefile("rb")
                while not self._closed and (line := reader.readline(LONGEST_ORDER)).endswith(b"\n"):
                    answer = objects.ask(line, min(self._left(), CALL_SECONDS))
                    if answer is None:
                        return
                    connection.sendall(answer)
        except InfraError as error:
            self._broken = error
        finally:
            self._connections.discard(connection)

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.1)

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
        if self._session.locked():
            raise UsageError(
                "a process of the work serves the modules that tests import; run programs in other scripts"
            )
        wanted = order.get("timeout")
        env = {str(name): str(value) for name, value in order["env"].items() if _NAME.fullmatch(str(name))}
        with scratch("output") as here:
            out, err = here / "out", here / "err"
            ended = self._work.run(
                [str(word) for word in order["argv"]],
                env={"HOME": "/tmp", **env},
                cwd=order.get("cwd"),
                timeout=min(self._left(), CALL_SECONDS if wanted is None else float(wanted)),
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


class _Objects:
    """One process of the work that serves its modules (`object_server.py`)."""

    def __init__(self, work: Box, user: str | None, places: list[str], seconds: float) -> None:
        self._work = work
        self._argv = ["python3", "-c", Path(object_server.__file__).read_text(encoding="utf-8"), *places]
        self._user = user
        self._seconds = seconds
        self._rest = b""
        self._error: InfraError | None = None

    def __enter__(self) -> Self:
        theirs_in, self._stdin = os.pipe()
        self._stdout, theirs_out = os.pipe()
        os.set_blocking(self._stdin, False)  # work that does not read must not hold us
        self._thread = threading.Thread(target=self._run, args=((theirs_in, theirs_out),), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._stdin)
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._work.end_processes()
            self._thread.join()
        os.close(self._stdout)
        if self._error is not None:
            raise self._error

    def _run(self, pipes: tuple[int, int]) -> None:
        try:
            env = {"HOME": "/tmp"}
            self._work.run(self._argv, env=env, timeout=self._seconds, user=self._user, pipes=pipes)
        except InfraError as error:
            self._error = error
        finally:
            for end in pipes:
                os.close(end)

    def ask(self, line: bytes, seconds: float) -> bytes | None:
        """The answer to a line, which is one line; None if there is none in time, or if it is too long."""
        deadline = time.monotonic() + seconds
        while line:
            if not select.select([], [self._stdin], [], max(deadline - time.monotonic(), 0))[1]:
                return None
            try:
                line = line[os.write(self._stdin, line) :]
            except BrokenPipeError:
                return None
        chunks = [self._rest]
        size = len(self._rest)
        while b"\n" not in chunks[-1]:
            ready = select.select([self._stdout], [], [], max(deadline - time.monotonic(), 0))[0]
            chunk = os.read(self._stdout, 1 << 16) if ready else b""
            size += len(chunk)
            if not chunk or size > LONGEST_OUTPUT:
                return None
            chunks.append(chunk)
        answer, _, self._rest = b"".join(chunks).partition(b"\n")
        return answer + b"\n"


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
