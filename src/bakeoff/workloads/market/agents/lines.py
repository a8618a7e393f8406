"""An agent that is a program of its own: `cmd:python my_agent.py`. It speaks JSON-RPC in lines on its standard streams.

The program gets notifications: `reset` once, `tick` at the beginning of each turn (with an observation), `end` after
the last one. It sends requests (any `a2a.*` method) and gets responses; `a2a.endTurn` ends its turn, and so does the
notification `failed` with a `message`, which is recorded as a crash. A program that does not end its turn in time is
late: until it has, it cannot change anything and no new turn begins for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bakeoff.engine import processes
from bakeoff.errors import UsageError
from bakeoff.workloads.market import methods, requests, rpc
from bakeoff.workloads.market.agents.face import Brief, Seat
from bakeoff.workloads.market.rpc import RpcError, refusal

READY = "ready"
FAILED = "failed"
LONGEST_LINE = 1 << 20
WAITING_OUTPUT = 1 << 22
"""Answers that the program has not read; while there are more, no further requests are read."""
LAST_WORDS = 300
"""Bytes of its standard error that are told when it ends."""
KEPT_WORDS = 1 << 20
READY_TIMEOUT = 300.0
GRACE = 1.0
"""Seconds for the program to leave after `end`."""
LOOK = 0.2
"""Seconds between two looks whether it still runs."""


class ProgramEnded(Exception):
    """The program is gone before the episode was over."""


class ProgramFailed(Exception):
    """The program says that it could not play this turn."""


class LinesAgent:
    def __init__(
        self,
        command: str | Sequence[str],
        *,
        name: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stderr: Path | str | None = None,
        says_ready: bool = False,
    ) -> None:
        """`stderr` is the file that gets what the program says about itself; by default it goes to our own at the end.

        A program that `says_ready` (a notification `ready`) is not asked before it has.
        """
        self.argv = shlex.split(command) if isinstance(command, str) else list(command)
        if not self.argv:
            raise UsageError("cmd: names no program; write for example cmd:python my_agent.py")
        self.name = name or "cmd:" + shlex.join(self.argv)
        self._cwd, self._env, self._stderr_path = cwd, dict(env or {}), Path(stderr) if stderr else None
        self._says_ready = says_ready
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: BinaryIO | None = None

    # -- life

    def reset(self, brief: Brief) -> None:
        self.close()
        self._read, self._write = b"", bytearray()
        self._owes_end = False
        """It has not ended a turn whose deadline has passed."""
        self._over = ""
        """How it ended, once it has."""
        self._start()
        self._send("reset", _told(brief))
        if self._says_ready:
            self._await_ready(time.monotonic() + READY_TIMEOUT)

    def _await_ready(self, deadline: float) -> None:
        while (line := self._next_line()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready after {READY_TIMEOUT:g} s")
            self._wait(deadline - time.monotonic())
        said = rpc.read_request(rpc.decode(line))
        if said.method != READY:
            raise ProgramFailed(str(said.params.get("message", said.method))[:500])

    def _start(self) -> None:
        self._stderr = self._stderr_path.open("ab") if self._stderr_path else tempfile.TemporaryFile()  # noqa: SIM115
        # The mark finds its children at the end, also those that left its session; it extends a scheduler's own mark.
        self._mark = f"{os.environ.get(processes.MARK, 'bakeoff')}.agent-{uuid.uuid4().hex}"
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=self._cwd,
                env={**os.environ, **self._env, processes.MARK: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise UsageError(f"{self.name}: cannot be started: {error.strerror or error}") from error
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            os.set_blocking(pipe.fileno(), False)

    def close(self) -> None:
        """Tell it that the episode is over, and end it and everything it started."""
        process, self._process = self._process, None
        if process is None:
            return
        self._say_goodbye(process)
        processes.end_marked(self._mark)
        process.wait()
        if not self._stderr_path and (said := self.last_words(KEPT_WORDS)):
            print(said, file=sys.stderr, flush=True)
        for pipe in (process.stdin, process.stdout, self._stderr):
            if pipe:
                pipe.close()

    def _say_goodbye(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        try:
            os.write(process.stdin.fileno(), _notification("end", {}))
            process.stdin.close()
            process.wait(GRACE)
        except (OSError, subprocess.TimeoutExpired):
            pass

    def last_words(self, size: int = LAST_WORDS) -> str:
        """The end of what it wrote to standard error."""
        if not self._stderr:
            return ""
        with open(f"/proc/self/fd/{self._stderr.fileno()}", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode(errors="replace").strip()

    # -- turns

    def act(self, seat: Seat) -> None:
        if self._over:
            raise ProgramEnded(self._over)
        left = seat.seconds_left
        deadline = None if left is None else time.monotonic() + left
        if self._owes_end and not self._caught_up(seat, deadline):
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

    def _caught_up(self, seat: Seat, deadline: float | None) -> bool:
        try:
            return self._serve(seat, deadline, open_turn=False)
        except ProgramFailed:
            return True  # in a turn that is over, and recorded as missed

    def _serve(self, seat: Seat, deadline: float | None, *, open_turn: bool) -> bool:
        """Answer requests until the turn is ended; False when time is up before."""
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
        """Whether this line ended the turn. Empty lines mean nothing."""
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
            answer, ends = _answered(seat, item, open_turn and not ended)
            ended = ended or ends
            if answer is not None:
                answers.append(answer)
        if answers:
            self._write += rpc.encode(answers if is_batch else answers[0]) + b"\n"
        return ended

    # -- lines

    def _send(self, method: str, params: Any) -> None:
        self._write += _notification(method, params)
        self._flush()

    def _next_line(self) -> bytes | None:
        line, found, rest = self._read.partition(b"\n")
        if found:
            self._read = rest
            return line
        if len(line) > LONGEST_LINE:
            raise ProgramEnded(f"a line is longer than {LONGEST_LINE} bytes")
        return None

    def _wait(self, timeout: float | None) -> None:
        """Until there is something to read, or room to write."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ProgramEnded("the program has ended")
        reads = [process.stdout] if len(self._write) < WAITING_OUTPUT else []
        writes = [process.stdin] if self._write else []
        gone = process.poll() is not None  # asked first: what it said before is still read
        readable, writable, _ = select.select(reads, writes, [], LOOK if timeout is None else min(timeout, LOOK))
        if writable:
            self._flush()
        if readable:
            content = os.read(process.stdout.fileno(), 1 << 16)
            if not content:
                raise self._ended("it closed its output")
            self._read += content
        elif gone:  # and a child of it holds the pipes
            raise self._ended("it is gone")

    def _ended(self, seen: str) -> ProgramEnded:
        assert self._process
        with contextlib.suppress(subprocess.TimeoutExpired):
            seen = f"exit code {self._process.wait(GRACE)}"
        self._over = f"{seen}: {self.last_words()}".rstrip(": ")
        return ProgramEnded(self._over)

    def _flush(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise ProgramEnded("the program has ended")
        try:
            while self._write:
                del self._write[: os.write(process.stdin.fileno(), self._write)]
        except BlockingIOError:
            pass  # the rest goes when it has read
        except BrokenPipeError:
            raise self._ended("it closed its input") from None


def _answered(seat: Seat, message: Any, open_turn: bool) -> tuple[dict[str, Any] | None, bool]:
    """The response to one request (None for a notification), and whether it ended the turn."""
    notification = ends = False
    try:
        request = rpc.read_request(message)
        notification = request.notification
        if request.method == FAILED:
            raise ProgramFailed(str(request.params.get("message", ""))[:500])
        method = methods.find(request.method)
        if method.name == methods.END_TURN:
            ends = requests.read(requests.EndTurn, request.params).ends(seat.tick) or not open_turn
            result: Any = seat.clock_facts()
        elif method.mutates and not open_turn:
            raise refusal("turn_over", "the deadline of the turn you are in has passed; end it")
        else:
            result = seat.call(method.name, request.params)
    except RpcError as error:
        return None if notification else rpc.failure(rpc.id_of(message), error), False
    return None if notification else rpc.success(request.id, result), ends


def _notification(method: str, params: Any) -> bytes:
    return rpc.encode({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def _told(brief: Brief) -> dict[str, Any]:
    """A brief as JSON; the agent's own chance as a seed."""
    return {
        "agentId": brief.agent_id,
        "seat": brief.seat,
        "ticks": brief.ticks,
        "scenario": brief.scenario,
        "actionBudget": brief.action_budget,
        "responseTimeout": brief.response_timeout,
        "seed": int(brief.rng.integers(2**53)),
        "rules": brief.rules,
    }
