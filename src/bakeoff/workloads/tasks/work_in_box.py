#!/usr/bin/env python3
"""Calls the work from tests that run in another sandbox. bakeoff puts this file there as `/opt/bakeoff/work` and as
`/opt/bakeoff/bakeoff_work.py`, for tasks with `isolation = "launcher"`.

    /opt/bakeoff/work run [--env NAME=VALUE] [--cwd DIR] [--timeout SECONDS] -- PROGRAM ARG...
    /opt/bakeoff/work read PATH          # to standard output
    /opt/bakeoff/work write PATH         # from standard input

    from bakeoff_work import call, read, run, send, write
    run(["python3", "ledger.py", "add"], input=b"").stdout
    call("rooms:assign", [[0, 1], [1, 2]])      # a function of the work: JSON values in and out

Paths that are not absolute start at the work's directory. Only what is passed here reaches the work: arguments, input,
variables that are named, files that are written. Written for any Python from 3.8 on.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from typing import Any

SOCKET = "/run/bakeoff-work/socket"
DRIVER = """
import importlib, json, os, sys
out = os.dup(1)
os.dup2(2, 1)
sys.path.insert(0, os.getcwd())
order = json.load(sys.stdin)
try:
    target = importlib.import_module(order["module"])
    for part in order["function"].split("."):
        target = getattr(target, part)
    answer = {"value": target(*order["arguments"], **order["options"])}
    text = json.dumps(answer)
except Exception as error:
    names = [kind.__name__ for kind in type(error).__mro__]
    text = json.dumps({"raised": names, "message": str(error)})
sys.stdout.flush()
os.write(out, text.encode())
os._exit(0)
"""
SCRIPT = """
import json, os, sys
out = os.dup(1)
os.dup2(2, 1)
sys.path.insert(0, os.getcwd())
order = json.load(sys.stdin)
names = {"__name__": "driver", **order["given"]}
exec(compile(order["code"], "<driver>", "exec"), names)
data = json.dumps(names.get("result")).encode()
sys.stdout.flush()
while data:
    data = data[os.write(out, data):]
os._exit(0)
"""


class WorkFailed(Exception):
    """The work could not be called, or did not answer as it should."""


class Raised(Exception):
    """A function of the work raised. `names` are the names of the exception's class and of those above it."""

    def __init__(self, names: list[str], message: str) -> None:
        super().__init__(f"{names[0]}: {message}")
        self.names = names
        self.message = message


def run(
    argv: list[str],
    *,
    input: bytes = b"",
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program of the work. subprocess.TimeoutExpired if it takes longer than `timeout` seconds."""
    order = {"op": "run", "argv": argv, "env": env or {}, "cwd": cwd, "timeout": timeout}
    answer = ask({**order, "input": base64.b64encode(input).decode()})
    if answer["timed_out"]:
        raise subprocess.TimeoutExpired(argv, timeout or answer["seconds"])
    out, err = base64.b64decode(answer["stdout"]), base64.b64decode(answer["stderr"])
    return subprocess.CompletedProcess(argv, answer["code"], out, err)


def read(path: str) -> bytes:
    """The content of a file of the work. FileNotFoundError if there is none."""
    answer = ask({"op": "read", "path": path})
    if answer["data"] is None:
        raise FileNotFoundError(path)
    return base64.b64decode(answer["data"])


def write(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file that the work is to read."""
    ask({"op": "write", "path": path, "data": base64.b64encode(data).decode(), "mode": mode})


def send(local: str, path: str) -> None:
    """Copy a file or a directory of the tests to where the work can read it."""
    if os.path.isfile(local):
        with open(local, "rb") as file:
            write(path, file.read())
    for folder, _, names in os.walk(local):
        for name in names:
            place = os.path.join(folder, name)
            with open(place, "rb") as file:
                write(os.path.join(path, os.path.relpath(place, local)), file.read())


def call(function: str, *arguments: Any, timeout: float | None = None, **options: Any) -> Any:
    """The value of `module:function` of the work for JSON values. Raised if it raises, WorkFailed if it ends otherwise."""
    module, _, name = function.partition(":")
    order = {"module": module, "function": name, "arguments": arguments, "options": options}
    answer = _json(["python3", "-c", DRIVER], order, timeout)
    if isinstance(answer, dict) and "value" in answer:
        return answer["value"]
    if isinstance(answer, dict) and isinstance(answer.get("raised"), list) and answer["raised"]:
        raise Raised([str(part) for part in answer["raised"]], str(answer.get("message")))
    raise WorkFailed(f"{function} gave no answer")


def script(code: str, timeout: float | None = None, **given: Any) -> Any:
    """Run Python `code` in a process of the work, with the names `given`, and return what it leaves in `result`.

    The work can read the code: keep what is expected out of it.
    """
    return _json(["python3", "-c", SCRIPT], {"code": code, "given": given}, timeout)


def _json(argv: list[str], order: dict[str, Any], timeout: float | None) -> Any:
    done = run(argv, input=json.dumps(order).encode(), timeout=timeout)
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError):
        said = done.stderr.decode(errors="replace")[-2000:]
        raise WorkFailed(f"the work ended with code {done.returncode} and no answer\n{said}") from None


def ask(order: dict[str, Any]) -> dict[str, Any]:
    """Send one order to bakeoff and wait for the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ.get("BAKEOFF_WORK_SOCKET", SOCKET))
        connection.sendall(json.dumps(order).encode())
        connection.shutdown(socket.SHUT_WR)
        chunks = []
        while True:
            chunk = connection.recv(1 << 16)
            if not chunk:
                break
            chunks.append(chunk)
    answer: dict[str, Any] = json.loads(b"".join(chunks) or b'{"error": "bakeoff closed the connection"}')
    if "error" in answer:
        raise WorkFailed(answer["error"])
    return answer


def main(words: list[str]) -> int:
    """The program `work`."""
    if not words or words[0] not in ("run", "read", "write"):
        print(__doc__, file=sys.stderr)
        return 2
    if words[0] == "read":
        sys.stdout.buffer.write(read(words[1]))
        return 0
    if words[0] == "write":
        write(words[1], sys.stdin.buffer.read())
        return 0
    env: dict[str, str] = {}
    cwd = timeout = None
    rest = words[1:]
    while rest and rest[0] in ("--env", "--cwd", "--timeout"):
        if rest[0] == "--env":
            name, _, value = rest[1].partition("=")
            env[name] = value
        elif rest[0] == "--cwd":
            cwd = rest[1]
        else:
            timeout = float(rest[1])
        rest = rest[2:]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    source = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    try:
        done = run(rest, input=source, env=env, cwd=cwd, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        print(error, file=sys.stderr)
        return 124
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(done.stderr)
    return int(done.returncode)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (WorkFailed, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        sys.exit(125)
