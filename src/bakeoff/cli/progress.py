"""Progress of `bakeoff run`: a live display on a terminal, plain lines elsewhere. All of it goes to standard error.

`observers` chooses the displays. `Progress` counts for all of them; it is the first observer, so its counts are up to
date when the displays are called. Each class implements `bakeoff.engine.scheduler.Observer`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from bakeoff.engine.executors import Situation
from bakeoff.engine.scheduler import Observer
from bakeoff.engine.session import Session
from bakeoff.records.run import FAILED, OPEN, Attempt, why_unscored
from bakeoff.records.rundir import STDERR, STDOUT
from bakeoff.records.secrets import hide
from bakeoff.spec.workload import FINISHED
from bakeoff.text import duration, flat, number, one_line, printable

if TYPE_CHECKING:
    from bakeoff.verdicts.sequential.until_decided import UntilDecided

_FIRST_LINE, _PLAIN_INTERVAL = 5.0, 60.0  # seconds
_LONGEST_ERROR, _NARROWEST_BAR = 200, 4  # characters
_LONGEST_LINE = 1 << 16  # bytes
LOGS = "logs/*.txt"
"""What commands inside a run write, such as an agent in its sandbox."""
_MOST_TOLD = 1000
_WORDS = {"succeeded": "ok", "failed": "FAILED", "timeout": "TIMEOUT", "infra_error": "INFRA", "cancelled": "stopped"}


def observers(session: Session, verbosity: int, source: UntilDecided | None = None) -> list[Observer]:
    """What shows the session's progress on standard error. `source` is the sequential test, when there is one."""
    state = Progress(session, source, announce=verbosity > 0 or not sys.stderr.isatty())
    shown: list[Observer] = [state]
    if verbosity > 1:
        shown.append(Stream(session.edition.paths.runs))
    live = verbosity == 0 and sys.stderr.isatty()
    shown.append(Live(state) if live else Lines(state, every_run=verbosity > 0))
    return shown


def _say(text: str) -> None:
    """Print to standard error. Runs continue when that fails: the disk of the log is full, or the terminal is gone."""
    with suppress(OSError):
        click.echo(text, err=True)


_LONG_SERIES = 100_000
"""Bytes of a compressed series that takes milliseconds to read."""


class Progress:
    """The counts that the displays share. They cover the runs that were asked for, not those that --only left out."""

    def __init__(self, session: Session, source: UntilDecided | None, announce: bool) -> None:
        self.name = f"{session.edition.paths.experiment}/{session.edition.paths.name}"
        only = session.selected()
        self.by_arm: dict[str, Counter[str]] = {}
        if only is None:
            self.by_arm = {arm: Counter(counts) for arm, counts in session.edition.counts_by_arm().items()}
        else:
            for run in session.edition.runs():
                if only(run):
                    self.by_arm.setdefault(run.arm, Counter())[run.status] += 1
        self._again = FAILED if session.options.retry_failed else ()
        self.total = sum(sum(counts.values()) for counts in self.by_arm.values())
        self.before = sum(counts[status] for counts in self.by_arm.values() for status in FINISHED - {*self._again})
        self.statuses: Counter[str] = Counter()
        self.failures: deque[tuple[str, str]] = deque(maxlen=3)
        """Run id and error of the last failures."""
        self.running: Sequence[Attempt] = ()
        self.started = time.monotonic()
        self._source, self._announce, self._looks = source, announce, 0
        self.note = source.line if source else ""
        """The state of the sequential test, when there is one."""
        analysis = session.edition.facts()["spec"]["analysis"]
        self._metric: str | None = analysis["metric"]
        """The declared metric, until a run came without it."""
        self._summarised, self._found = analysis["summary"] is not None, False
        self.warning = ""
        """About the first run that came without the declared metric."""
        self._session = session
        self.situation = Situation()

    def finished(self, attempt: Attempt) -> None:
        if attempt.final:
            self.statuses[attempt.status] += 1
            arm = self.by_arm.setdefault(attempt.arm, Counter())
            arm[next((status for status in (*OPEN, *self._again) if arm[status]), "planned")] -= 1
            arm[attempt.status] += 1
        if attempt.status not in ("succeeded", "cancelled"):
            word = _WORDS[attempt.status] if attempt.final else "again"
            self.failures.append((attempt.run_id, f"{word}: {flat(hide(attempt.error or ''))}"))
        if self._metric is not None and attempt.status == "succeeded":
            self._look_for_metric(attempt)
        self._follow_test()

    def tick(self, running: Sequence[Attempt]) -> None:
        self.running = running
        known, self.situation = self.situation.warnings, self._session.situation
        if self._announce:
            for warning in self.situation.warnings:
                if warning not in known:
                    _say(f"warning: {warning}")
        self._follow_test()

    def close(self) -> None:
        self._follow_test()

    def _look_for_metric(self, attempt: Attempt) -> None:
        """Warn once of a run without the declared metric. A long series is only looked into until one run is all right."""
        assert self._metric is not None
        if self._summarised and self._found and len(attempt.series or b"") > _LONG_SERIES:
            return
        reason = why_unscored(self._metric, self._summarised, attempt.metrics, attempt.series)
        if reason is None:
            self._found = True
            return
        fix = (
            "The runs are whole: `bakeoff compare --summary final` makes one number of each series"
            if reason.by_step
            else "`compare` scores such runs as failed; stop, correct [analysis] or what runs report, and start again "
            "with --fresh"
        )
        self.warning = f"warning: {attempt.run_id} has no score: {reason.why}. {fix}"
        self._metric = None
        if self._announce:
            _say(self.warning)

    def _follow_test(self) -> None:
        """Take over what the sequential test found and the runs that it added, once after each look."""
        if self._source is None or self._looks == self._source.looks:
            return
        self._looks = self._source.looks
        self.note = self._source.line
        for arm, runs in self._source.take_added().items():
            self.total += runs
            self.by_arm.setdefault(arm, Counter())["planned"] += runs
        if self._announce:
            _say(self.note)

    @property
    def done(self) -> int:
        """Runs with an outcome, from earlier sessions and this one."""
        return self.before + sum(self.statuses[status] for status in FINISHED)

    def line(self) -> str:
        """`3/12 done, 1 failed, 2.0 runs/s, 4.5 s left`."""
        rate = sum(self.statuses.values()) / max(1e-9, time.monotonic() - self.started)
        left = self.total - self.done
        failed = sum(self.statuses[status] for status in (*FAILED, "infra_error"))
        text = f"{self.done}/{self.total} done" + (f", {failed} failed" if failed else "")
        if rate > 0:
            speed = f"{rate:.1f} runs/s" if rate >= 1 else f"{duration(1 / rate)} a run"
            text += f", {speed}" + (f", {duration(left / rate)} left" if left else "")
        waits_for = "" if self.running else self.situation.waits_for
        return text + (f"; waiting for {waits_for}" if waits_for else "")


class Lines:
    """Plain lines: with `every_run` (-v) one for each run, otherwise one for each failure and a summary every minute."""

    def __init__(self, state: Progress, every_run: bool) -> None:
        self._state, self._every_run = state, every_run
        self._told: set[str] = set()
        self._next = time.monotonic() + _FIRST_LINE
        if not every_run:
            _say(f"{state.name}: {state.total} runs, {state.before} done already")

    def finished(self, attempt: Attempt) -> None:
        status = attempt.status
        new = bool(attempt.error) and attempt.error not in self._told  # each note is shown once, whichever run has it
        if not self._every_run and (status == "cancelled" or (status == "succeeded" and not new)):
            return
        if status == "succeeded" and attempt.error and len(self._told) < _MOST_TOLD:
            self._told.add(attempt.error)
        word = _WORDS.get(status, status) if attempt.final else f"{_WORDS.get(status)}, trying again"
        took = (attempt.ended_at or 0.0) - (attempt.started_at or 0.0)
        metrics = [f"{name}={one_line(number(value), 40)}" for name, value in list(attempt.metrics.items())[:3]]
        detail = flat(hide(attempt.error), _LONGEST_ERROR) if attempt.error else " ".join(metrics)
        counts = f"[{self._state.done}/{self._state.total}]"
        _say(f"{counts} {word:7} {attempt.run_id}  {duration(took)}  {detail}".rstrip())

    def tick(self, running: Sequence[Attempt]) -> None:
        now = time.monotonic()
        if not self._every_run and now >= self._next:
            self._next = now + _PLAIN_INTERVAL
            _say(self._state.line())

    def close(self) -> None:
        """The last line, so that a log shows how far it came."""
        if not self._every_run:
            _say(self._state.line())


class Live:
    """A few lines that are redrawn in place: a bar, the arms, what is running, the last failures."""

    def __init__(self, state: Progress) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._state, self._console = state, Console(stderr=True)
        self._live = RichLive(console=self._console, get_renderable=self._draw, auto_refresh=False, transient=True)
        self._live.start()

    def finished(self, attempt: Attempt) -> None:
        """Drawn with the next tick."""

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

        state, line = self._state, self._state.line()
        name = Text(state.name, "bold", no_wrap=True, overflow="ellipsis")
        top = Table.grid(padding=(0, 1))
        width = min(40, self._console.width - len(line) - 1)
        bar = ProgressBar(total=max(1, state.total), completed=state.done, width=width)
        top.add_row(*([bar] if width >= _NARROWEST_BAR else []), Text(line))
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
        note += [Text(f"  {state.warning}", "yellow")] if state.warning else []
        note += [Text(f"  warning: {warning}", "yellow") for warning in state.situation.warnings[:4]]
        return Group(name, top, *note, arms, *going, *failures)


class Stream:
    """-vv: what running runs write, line by line, with the run's id in front.

    Files stay open between ticks, and what follows the last newline waits in `_rest` for the end of its line.
    """

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
                if len(rest) >= _LONGEST_LINE:  # a line without an end is shown in pieces, not kept in memory
                    lines, rest = [*lines, rest], b""
                self._rest[key] = rest
                for line in lines:
                    self._print(run_id, line)

    @staticmethod
    def _print(run_id: str, line: bytes) -> None:
        if line:
            _say(f"{run_id} | {printable(line.decode(errors='replace'))}")
