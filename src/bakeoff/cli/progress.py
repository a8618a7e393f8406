"""How a run looks while it goes on: a live display on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from bakeoff.cli.display import duration, number, one_line, printable
from bakeoff.engine.scheduler import Observer
from bakeoff.engine.session import Session
from bakeoff.records.run import FAILED, OPEN, Attempt
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.spec.workload import FINISHED

if TYPE_CHECKING:
    from bakeoff.verdicts.until_decided import UntilDecided

_PLAIN_INTERVAL = 2.0
_LONGEST_LINE = 1 << 16
LOGS = "logs/*.txt"
"""What a run's own commands write, such as an agent in its box."""
_WORDS = {"succeeded": "ok", "failed": "FAILED", "timeout": "TIMEOUT", "infra_error": "INFRA", "cancelled": "stopped"}


def observers(session: Session, verbosity: int, source: UntilDecided | None = None) -> list[Observer]:
    state = Progress(session)
    shown: list[Observer] = [state]
    if source is not None:
        shown.append(Looks(state, source, spoken=verbosity > 0 or not sys.stderr.isatty()))
    if verbosity > 1:
        shown.append(Stream(session.paths.runs))
    if verbosity > 0:
        shown.append(Lines(state))
    elif sys.stderr.isatty():
        shown.append(Live(state))
    else:
        shown.append(Plain(state))
    return shown


def _say(text: str) -> None:
    """Runs go on when nobody can be told of them any more: the log's disk is full, or its terminal is gone."""
    with suppress(OSError):
        click.echo(text, err=True)


class Progress:
    """Counts that the displays share: of the runs that were asked for, those that --only left out excepted."""

    def __init__(self, session: Session) -> None:
        self.name = f"{session.paths.experiment}/{session.paths.name}"
        self.by_arm = _by_arm(session)
        self._again = FAILED if session.options.retry_failed else ()
        self.total = sum(sum(counts.values()) for counts in self.by_arm.values())
        self.before = sum(counts[status] for counts in self.by_arm.values() for status in FINISHED - {*self._again})
        self.statuses: Counter[str] = Counter()
        self.failures: deque[tuple[str, str]] = deque(maxlen=3)
        self.running: Sequence[Attempt] = ()
        self.began = time.monotonic()
        self.note = ""
        """Where the sequential test is, when there is one."""

    def finished(self, attempt: Attempt) -> None:
        if attempt.final:
            self.statuses[attempt.status] += 1
            arm = self.by_arm.setdefault(attempt.arm, Counter())
            arm[next((status for status in (*OPEN, *self._again) if arm[status]), "planned")] -= 1
            arm[attempt.status] += 1
        if attempt.status not in ("succeeded", "cancelled"):
            word = _WORDS[attempt.status] if attempt.final else "again"
            self.failures.append((attempt.run_id, f"{word}: {one_line(attempt.error)}"))

    def tick(self, running: Sequence[Attempt]) -> None:
        self.running = running

    def close(self) -> None:
        return

    @property
    def done(self) -> int:
        return self.before + sum(self.statuses[status] for status in FINISHED)

    @property
    def bad(self) -> int:
        return sum(self.statuses[status] for status in (*FAILED, "infra_error"))

    def rate(self) -> float:
        return sum(self.statuses.values()) / max(1e-9, time.monotonic() - self.began)

    def line(self) -> str:
        rate, left = self.rate(), self.total - self.done
        text = f"{self.done}/{self.total} done"
        if self.bad:
            text += f", {self.bad} failed"
        if rate > 0:
            speed = f"{rate:.1f} runs/s" if rate >= 1 else f"{duration(1 / rate)} a run"
            text += f", {speed}" + (f", {duration(left / rate)} left" if left else "")
        return text


def _by_arm(session: Session) -> dict[str, Counter[str]]:
    """Statuses of each arm's runs, as far as they were asked for."""
    only = session.selected()
    if only is None:
        return {arm: Counter(counts) for arm, counts in session.edition.counts_by_arm().items()}
    counts: dict[str, Counter[str]] = {}
    for run in session.edition.runs():
        if only(run):
            counts.setdefault(run.arm, Counter())[run.status] += 1
    return counts


class Looks:
    """What the sequential test saw, each time it has looked; and the runs that it planned."""

    def __init__(self, state: Progress, source: UntilDecided, spoken: bool) -> None:
        self._state, self._source, self._spoken = state, source, spoken
        self._looks = 0
        state.note = source.line

    def finished(self, attempt: Attempt) -> None:
        self._update()

    def tick(self, running: Sequence[Attempt]) -> None:
        self._update()

    def close(self) -> None:
        self._update()

    def _update(self) -> None:
        if self._looks == self._source.looks:
            return
        self._looks = self._source.looks
        self._state.note = self._source.line
        for arm, runs in self._source.take_added().items():
            self._state.total += runs
            self._state.by_arm.setdefault(arm, Counter())["planned"] += runs
        if self._spoken:
            _say(self._state.note)


class Plain:
    """A line every few seconds, ever more rarely so that a night is no thousand of them, and one for each failure."""

    def __init__(self, state: Progress) -> None:
        self._state = state
        self._next = time.monotonic() + _PLAIN_INTERVAL
        _say(f"{state.name}: {state.total} runs, {state.before} done already")

    def finished(self, attempt: Attempt) -> None:
        if attempt.status not in ("succeeded", "cancelled"):
            _say(_run_line(self._state, attempt))

    def tick(self, running: Sequence[Attempt]) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + max(_PLAIN_INTERVAL, 0.05 * (now - self._state.began))
            _say(self._state.line())

    def close(self) -> None:
        return


class Lines:
    """-v: a line for each run."""

    def __init__(self, state: Progress) -> None:
        self._state = state

    def finished(self, attempt: Attempt) -> None:
        _say(_run_line(self._state, attempt))

    def tick(self, running: Sequence[Attempt]) -> None:
        return

    def close(self) -> None:
        return


def _run_line(state: Progress, attempt: Attempt) -> str:
    status = attempt.status
    word = _WORDS.get(status, status) if attempt.final else f"{_WORDS.get(status)}, trying again"
    took = (attempt.ended_at or 0.0) - (attempt.started_at or 0.0)
    shown = [f"{name}={one_line(number(value), 40)}" for name, value in list(attempt.metrics.items())[:3]]
    detail = one_line(attempt.error) if attempt.error else " ".join(shown)
    return f"[{state.done}/{state.total}] {word:7} {attempt.run_id}  {duration(took)}  {detail}".rstrip()


class Live:
    """A few lines that stay in place: a bar, the arms, what is running, the last failures."""

    def __init__(self, state: Progress) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._state = state
        self._live = RichLive(
            console=Console(stderr=True), get_renderable=self._draw, auto_refresh=False, transient=True
        )
        self._live.start()

    def finished(self, attempt: Attempt) -> None:
        return

    def tick(self, running: Sequence[Attempt]) -> None:
        with suppress(OSError):
            self._live.refresh()

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = self._state
        top = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, state.total), completed=state.done, width=40)
        top.add_row(Text(state.name, "bold"), bar, Text(state.line()))
        arms = Table.grid(padding=(0, 2))
        for arm, counts in list(state.by_arm.items())[:12]:
            bad = counts["failed"] + counts["timeout"]
            arms.add_row(
                Text(f"  {arm}"),
                Text(f"{counts['succeeded']} ok", "green"),
                Text(f"{bad} failed" if bad else "", "red"),
                Text(f"{sum(counts[status] for status in OPEN)} to do", "dim"),
            )
        if len(state.by_arm) > 12:
            arms.add_row(Text(f"  ... {len(state.by_arm) - 12} more arms", "dim"))
        now = time.time()
        going = [
            Text(f"  running {attempt.run_id} {duration(now - attempt.started_at)}", "cyan")
            for attempt in state.running[:4]
            if attempt.started_at is not None and now - attempt.started_at > 1
        ]
        failures = [Text(f"  {run_id} {what}", "red") for run_id, what in state.failures]
        note = [Text(f"  {state.note}", "bold")] if state.note else []
        return Group(top, *note, arms, *going, *failures)


class Stream:
    """-vv: what running runs write, line by line, with the run's id in front."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._open: dict[tuple[str, str], IO[bytes]] = {}
        self._rest: dict[tuple[str, str], bytes] = {}

    def tick(self, running: Sequence[Attempt]) -> None:
        for attempt in running:
            self._pump(attempt.run_id)

    def finished(self, attempt: Attempt) -> None:
        self._pump(attempt.run_id)
        for key in [key for key in self._open if key[0] == attempt.run_id]:
            self._print(attempt.run_id, self._rest.pop(key, b""))
            self._open.pop(key).close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()

    def _pump(self, run_id: str) -> None:
        directory = self._runs / run_id
        for path in (directory / STDOUT, directory / STDERR, *sorted(directory.glob(LOGS))):
            key = (run_id, path.name)
            if key not in self._open:
                try:
                    self._open[key] = path.open("rb")
                except FileNotFoundError:
                    continue
            while chunk := self._open[key].read(_LONGEST_LINE):
                *lines, rest = (self._rest.get(key, b"") + chunk).split(b"\n")
                if len(rest) >= _LONGEST_LINE:  # no line at all: shown in pieces, not collected for ever
                    lines, rest = [*lines, rest], b""
                self._rest[key] = rest
                for line in lines:
                    self._print(run_id, line)

    @staticmethod
    def _print(run_id: str, line: bytes) -> None:
        if line:
            _say(f"{run_id} | {printable(line.decode(errors='replace'))}")
