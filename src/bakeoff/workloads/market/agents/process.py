"""Agents in separate processes: `cmd:python my_agent.py`, and `process:my_agent.py:MyAgent`.

Both speak JSON-RPC, one message per line, on the program's standard input and output. The program gets notifications:
`reset` once, `tick` at the beginning of each turn (with an observation), and `end` after the last turn. It sends
requests (any `a2a.*` method) and gets responses. `a2a.endTurn` ends its turn; so does the notification `failed` with a
`message`, which is recorded as a crash. A program that does not end its turn in time is late: until it has ended that
turn it cannot change anything, and no new turn begins for it.

`LinesAgent` is our end of the pipe; `program` starts the program in a sandbox. The second half of the module is the other
end for a Python class: `main` runs in the child and gives the agent a `Seat` whose calls travel over the pipe. Such an
agent can neither hang the episode nor look into it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import select
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
from pydantic.alias_generators import to_camel

from bakeoff.errors import BakeoffError, InfraError, UsageError
from bakeoff.workloads.market import methods, rpc
from bakeoff.workloads.market.agents.base import Brief, Seat, load
from bakeoff.workloads.market.agents.program import Access, Program, box_spec, files_of, usable_sandbox
from bakeoff.workloads.market.rpc import RpcError, refusal
from bakeoff.workloads.market.world import views

V = TypeVar("V")

READY = "ready"
FAILED = "failed"
MAX_LINE = 1 << 20
"""Bytes of one line; a longer one counts as a crash."""
MAX_UNREAD = 1 << 22
"""Bytes of answers that the program has not read. Above this, no further requests are read."""
STDERR_TAIL = 300
"""Characters of standard error that an error message quotes."""
READY_TIMEOUT = 300.0
GRACE = 1.0
"""Seconds for the program to exit after `end`."""
POLL = 0.2
"""Seconds between two checks whether the program still runs."""


_BRIEF = {
    to_camel(name): name for name in ("agent_id", "seat", "ticks", "scenario", "action_budget", "response_timeout")
}
"""Parameters of `reset` that are fields of a brief, and these fields; `seed` and `rules` follow them."""


class ProgramEnded(Exception):
    """The program exited, or closed its streams, before the episode was over."""


class ProgramFailed(Exception):
    """The program reported that it could not play this turn."""


class LinesAgent:
    """An agent that is a program: `LinesAgent("python my_agent.py")`."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        name: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stderr: Path | str | None = None,
        says_ready: bool = False,
        files: Sequence[Path] = (),
        access: Access | None = None,
    ) -> None:
        """`stderr` is a file to which the program's standard error is added at the end; by default it is printed to ours.

        With `says_ready`, the first turn waits until the program has sent the notification `ready`. `files` are those of
        the program that its command does not name. `access` is what else it may see.
        """
        self.argv = shlex.split(command) if isinstance(command, str) else list(command)
        if not self.argv:
            raise UsageError("cmd: names no program; write for example cmd:python my_agent.py")
        self.name = name or "cmd:" + shlex.join(self.argv)
        self._cwd, self._stderr_path = cwd or Path.cwd(), Path(stderr) if stderr else None
        self._says_ready = says_ready
        self._files = list(files)
        access = access or Access()
        hidden = (*access.hidden, self._stderr_path) if self._stderr_path else access.hidden
        named = tuple(f"{name}={value}" for name, value in (env or {}).items())
        self._access = replace(access, env=(*access.env, *named), hidden=hidden)
        self._program: Program | None = None
        self._using = threading.Lock()
        """Held while the pipes are used: the episode closes an agent that is still in a turn from another thread, and a
        number that is free again may be any file or socket of this process."""
        self.broken: InfraError | None = None
        """Why there is no box for the program. It has not run then, so the episode says nothing about the agent."""
        usable_sandbox()  # a UsageError now, not a lost episode later

    # -- start and end

    def reset(self, brief: Brief) -> None:
        """Start the program and send it the brief."""
        self.close()
        self._read, self._write = b"", bytearray()
        self._owes_end = False
        """Whether it has not ended a turn whose deadline has passed."""
        self._end_reason = ""
        """Why it ended, once it has."""
        self._start()
        params = {key: getattr(brief, name) for key, name in _BRIEF.items()}
        # The seed stands for the generator, which cannot be sent.
        self._send("reset", {**params, "seed": int(brief.rng.integers(2**53)), "rules": brief.rules})
        if self._says_ready:
            deadline = time.monotonic() + READY_TIMEOUT
            while (line := self._next_line()) is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not ready after {READY_TIMEOUT:g} s")
                self._wait(deadline - time.monotonic())
            answer = rpc.read_request(rpc.decode(line))
            if answer.method != READY:
                raise ProgramFailed(str(answer.params.get("message", answer.method))[:500])

    def _start(self) -> None:
        """Start the program in a box of its own. Raises UsageError, and InfraError when the box cannot be made."""
        files = [*files_of(self.argv, self._cwd), *self._files]
        try:
            self._program = Program(self.argv, box_spec(self.argv, files, self._cwd, self._access))
        except InfraError as error:
            self.broken = error
            raise
        except BakeoffError as error:
            raise UsageError(f"{self.name}: cannot be started: {error}") from error

    def close(self) -> None:
        """Send `end`, wait a moment, then kill the program and everything it started."""
        with self._using:
            program, self._program = self._program, None
        if program is None:
            return
        try:
            os.write(program.stdin, rpc.notification("end", {}) + b"\n")
        except OSError:
            pass  # it does not read, or is gone
        program.close_stdin()
        program.wait(GRACE)
        program.close()
        if self._stderr_path:
            with self._stderr_path.open("ab") as file:
                file.write(program.stderr)
        elif text := program.stderr.decode(errors="replace").strip():
            print(text, file=sys.stderr, flush=True)

    # -- turns

    def act(self, seat: Seat) -> None:
        """Send `tick` and answer requests until the program ends its turn or the deadline passes.

        Raises ProgramEnded when it is gone and ProgramFailed when it reports a failure; both count as a crash.
        """
        if self._end_reason:
            raise ProgramEnded(self._end_reason)
        left = seat.seconds_left
        deadline = None if left is None else time.monotonic() + left
        if self._owes_end:
            # The program is still in an earlier turn: answer it until it has ended that, without letting it change
            # anything, and only then send this tick.
            try:
                caught_up = self._serve(seat, deadline, open_turn=False)
            except ProgramFailed:
                caught_up = True  # in a turn that is over and was recorded as missed
            if not caught_up:
                return
        self._send(
            "tick",
            {"tick": seat.tick, "ticks": seat.ticks, "responseTimeout": left, "observation": seat.observe()},
        )
        self._owes_end = True
        try:
            self._owes_end = not self._serve(seat, deadline, open_turn=True)
        except ProgramFailed:
            self._owes_end = False
            raise

    def _serve(self, seat: Seat, deadline: float | None, *, open_turn: bool) -> bool:
        """Answer requests until the turn is ended and return True, or False when time is up before."""
        while True:
            while (line := self._next_line()) is not None:
                if self._answer(seat, line, open_turn):
                    self._flush()
                    return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._wait(left)

    def _answer(self, seat: Seat, line: bytes, open_turn: bool) -> bool:
        """Queue the answers to one line and return whether the line ended the turn. Empty lines are ignored.

        Raises ProgramFailed when the program reports a failure.
        """
        if not line.strip():
            return False
        try:
            message = rpc.decode(line)
        except RpcError as error:
            self._write += rpc.encode(rpc.failure(None, error)) + b"\n"
            return False
        is_batch = isinstance(message, list) and 0 < len(message) <= rpc.LARGEST_BATCH
        answers, ended = [], False
        for item in message if is_batch else [message]:
            notification, may_change = False, open_turn and not ended
            try:
                request = rpc.read_request(item)
                notification = request.notification
                if request.method == FAILED:
                    raise ProgramFailed(str(request.params.get("message", ""))[:500])
                method = methods.find(request.method)
                if method.name == methods.END_TURN:
                    ends = rpc.read(rpc.EndTurn, request.params).ends(seat.tick) or not may_change
                    ended, result = ended or ends, seat.clock_facts()
                elif method.mutates and not may_change:
                    raise refusal("turn_over", "the deadline of the turn you are in has passed; end it")
                else:
                    result = seat.call(method.name, request.params)
                answer = rpc.success(request.id, result)
            except RpcError as error:
                answer = rpc.failure(rpc.id_of(item), error)
            if not notification:
                answers.append(answer)
        if answers:
            self._write += rpc.encode(answers if is_batch else answers[0]) + b"\n"
        return ended

    # -- lines

    def _send(self, method: str, params: Any) -> None:
        """Queue a notification and send what the pipe takes."""
        self._write += rpc.notification(method, params) + b"\n"
        self._flush()

    def _next_line(self) -> bytes | None:
        """Return a whole line that was read, or None. Raises ProgramEnded for a line that is too long."""
        line, newline, rest = self._read.partition(b"\n")
        if newline:
            self._read = rest
            return line
        if len(line) > MAX_LINE:
            raise ProgramEnded(f"a line is longer than {MAX_LINE} bytes")
        return None

    def _wait(self, timeout: float | None) -> None:
        """Wait until there is something to read or room to write, at most `timeout` or `POLL` seconds."""
        with self._using:
            program = self._running_program()
            reads = [program.stdout] if len(self._write) < MAX_UNREAD else []
            writes = [program.stdin] if self._write else []
            # Looked at before the select: what the program wrote before it exited is still read.
            gone = program.gone
            readable, writable, _ = select.select(reads, writes, [], POLL if timeout is None else min(timeout, POLL))
            content = os.read(program.stdout, 1 << 16) if readable else b""
        if writable:
            self._flush()
        if readable:
            if not content:
                raise self._ended(program, "it closed its output")
            self._read += content
        elif gone:  # a child that inherited the pipes keeps them open, so there is no end of file
            raise self._ended(program, "it is gone")

    def _flush(self) -> None:
        """Write as much of the queue as the pipe takes without blocking."""
        with self._using:
            program = self._running_program()
            try:
                while self._write:
                    del self._write[: os.write(program.stdin, self._write)]
                return
            except BlockingIOError:
                return  # the rest follows when the program has read
            except BrokenPipeError:
                pass
        raise self._ended(program, "it closed its input")

    def _running_program(self) -> Program:
        """Return the program while it is open. Raises ProgramEnded when the agent was closed."""
        if self._program is None:
            raise ProgramEnded("the program has ended")
        return self._program

    def _ended(self, program: Program, symptom: str) -> ProgramEnded:
        """Note why the program ended (by its exit code, if it exits within `GRACE`) and return the error to raise."""
        if program.wait(GRACE):
            symptom = program.error or f"exit code {program.result.code if program.result else 1}"
        said = program.stderr.decode(errors="replace").strip()
        self._end_reason = f"{symptom}: {said[-STDERR_TAIL:]}".rstrip(": ")
        return ProgramEnded(self._end_reason)


# -- the other end of the pipe: a Python class in a child process


def hosted(spec: str, options: Mapping[str, Any], base: Path, access: Access) -> LinesAgent:
    """Return the agent `process:spec` as a program. Raises UsageError when there is no such file, class or module.

    The agent's code is read but never run here: that happens in the child, which has nothing to steal.
    """
    where, _, name = spec.rpartition(":")
    if not where or not name.isidentifier():
        raise UsageError(f"agent 'process:{spec}': write process:file.py:Class or process:module:Class")
    if where.endswith(".py"):
        file = base / where
        if not file.is_file():
            raise UsageError(f"agent 'process:{spec}': there is no file {file}")
        _check_class(file, name, spec)
        files = [file]
    else:
        top = where.partition(".")[0]
        files = [path for path in (base / top, base / f"{top}.py") if path.exists()]
        # Of the first name only: to find a submodule, importlib would import the package.
        if not files and importlib.util.find_spec(top) is None:
            raise UsageError(f"agent 'process:{spec}': {where} cannot be imported: there is no module {top!r}")
    argv = [sys.executable, "-m", __spec__.name, spec, json.dumps(dict(options)), str(base.absolute())]
    return LinesAgent(argv, name=f"process:{spec}", cwd=base, says_ready=True, files=files, access=access)


def _check_class(file: Path, name: str, spec: str) -> None:
    """Raise UsageError when the file is not Python, or binds no such name at its top level."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError) as error:
        raise UsageError(f"agent 'process:{spec}': {file.name} cannot be imported: {error}") from error
    for node in ast.walk(tree):  # anywhere: the definition may be inside an `if` or a `try`
        if isinstance(node, ast.ClassDef | ast.alias | ast.Name):
            bound = node.id if isinstance(node, ast.Name) else getattr(node, "asname", None) or node.name
            if bound in (name, "*"):
                return
    raise UsageError(f"agent 'process:{spec}': {file.name} has no class {name!r}")


def main(spec: str, options: str, base: str) -> None:
    """Run in the child: load the agent and play until the episode ends."""
    import numpy as np

    # The protocol gets a private copy of standard output, and prints of the agent go to standard error.
    writer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    agent = load(spec, json.loads(options), base=Path(base))
    session = _RemoteSession(sys.stdin.buffer, writer)
    for message in session.messages():
        method, params = message.get("method"), message.get("params", {})
        try:
            if method == "reset":
                session.seat, session.ticks = params["seat"], params["ticks"]
                known = {name: params[key] for key, name in _BRIEF.items()}
                agent.reset(Brief(**known, rng=np.random.default_rng(params["seed"]), rules=params["rules"]))
                session.send(READY, {})
            elif method == "tick":
                session.tick, session.ended, left = params["tick"], False, params["responseTimeout"]
                session.deadline = None if left is None else time.monotonic() + left
                agent.act(Seat(cast("Any", session)))
                session.send(methods.END_TURN, {})
            elif method == "end":
                return
        except Exception as error:
            traceback.print_exc()
            session.send(FAILED, {"message": f"{type(error).__name__}: {error}"})


class _RemoteSession:
    """What `Seat` needs of a session and of its world, over the pipe to the episode. Every read costs a message."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0
        # NumPy's numbers become plain ones; everything else that is not JSON raises in the agent's call.
        self._encode = msgspec.json.Encoder(enc_hook=_plain_number).encode
        self.world = self  # a seat reads the world through its session
        self.lock = nullcontext()  # the episode's own session has the lock
        self.seat = self.tick = self.ticks = 0
        self.ended = False
        self.deadline: float | None = None

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield decoded lines until the pipe is closed."""
        yield from map(rpc.decode, self._reader)

    def send(self, method: str, params: Mapping[str, Any], **more: Any) -> None:
        """Send a notification, or with `id=...` a request."""
        self._writer.write(self._encode({"jsonrpc": "2.0", "method": method, "params": params, **more}) + b"\n")
        self._writer.flush()

    def call(self, method: str, params: Any = None, *, idempotency_key: str | None = None) -> Any:
        """Return the result of a method. Raises RpcError when it is refused, SystemExit when the episode is over."""
        arguments = dict(params or {})
        target = methods.find(method)
        if target.name == methods.END_TURN:
            # Not sent: the episode would end the turn and answer nothing more. The return from `act` sends it.
            self.ended = rpc.read(rpc.EndTurn, arguments).ends(self.tick) or self.ended
            return self.clock_facts()
        if target.mutates and self.ended:
            raise refusal("turn_over", f"your turn in tick {self.tick} is over", tick=self.tick)
        if idempotency_key is not None:
            arguments["idempotencyKey"] = idempotency_key
        self._number += 1
        self.send(target.name, arguments, id=self._number)
        for message in self.messages():
            if message.get("id") == self._number:
                if "error" in message:
                    raise RpcError(**message["error"])
                return message["result"]
        raise SystemExit  # the pipe is closed: the episode is over

    def clock_facts(self) -> dict[str, Any]:
        """`{tick, ticks, timestamp, done}`."""
        stats = self.call("a2a.getSystemStats")
        return {name: stats[name] for name in ("tick", "ticks", "timestamp", "done")}

    def observe(self) -> Any:
        return self.call("a2a.observe")

    @property
    def actions_left(self) -> int:
        return 0 if self.ended else int(self.observe()["actionsLeft"])

    @property
    def seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def end_turn(self) -> None:
        self.ended = True

    def _views(self, view: type[V], method: str, key: str, **params: Any) -> list[V]:
        """Call a method and return the rows below `key` of its result as views."""
        return [views.revived(view, row) for row in self.call(method, params)[key]]

    def markets(self) -> list[views.MarketView]:
        return self._views(views.MarketView, "a2a.getPredictions", "predictions")

    def perpetuals(self) -> list[views.PerpView]:
        return self._views(views.PerpView, "a2a.getPerpetuals", "perpetuals")

    def account(self, seat: int) -> views.Account:
        return views.revived(views.Account, self.call("a2a.getUserWallet"))

    def positions(self, seat: int) -> views.PositionsView:
        return views.revived(views.PositionsView, self.call("a2a.getPositions"))

    def posts(self, seat: int, limit: int) -> list[views.PostView]:
        return self._views(views.PostView, "a2a.getFeed", "posts", limit=limit)

    def chats(self) -> list[views.ChatView]:
        return self._views(views.ChatView, "a2a.getChats", "chats")

    def trades(self, limit: int) -> list[views.TradeView]:
        return self._views(views.TradeView, "a2a.getTrades", "trades", limit=limit)


def _plain_number(value: Any) -> Any:
    """Encode NumPy's numbers and arrays; msgspec turns NotImplementedError into a TypeError that names the type."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError


if __name__ == "__main__":
    main(*sys.argv[1:])
