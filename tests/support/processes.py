"""A place for experiments that are really run, and for looking at what they leave: records, files and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from click.testing import CliRunner, Result

import bakeoff
from bakeoff.cli import main
from bakeoff.engine.scheduler import SessionSummary
from bakeoff.records.edition import Edition
from bakeoff.records.layout import find_edition
from bakeoff.records.series import read_block
from bakeoff.results.frame import read_table

TAG = "BAKEOFF_LAB"
LONG = 150.0
"""A busy machine is slow; nothing waits this long unless something is wrong."""


def eventually(condition: Callable[[], Any], what: str = "", patience: float = LONG) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never happened: {what or condition}"
        time.sleep(0.02)
    return value


def process_exists(pid: int) -> bool:
    """Zombies are gone as far as anybody cares."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Lab:
    """Everything it starts carries a tag, so that what is left over can be found, whoever lost it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = place / "results"
        self.tag = uuid.uuid4().hex
        self.environment: dict[str, str] = {}
        self.measured = True
        """Whether processes collect coverage. One that is killed while it writes its own down leaves a broken file."""
        self._started: list[subprocess.Popen[str]] = []

    # -- writing and running

    def write(self, name: str, text: str) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def experiment(self, text: str, name: str = "trial", **modules: str) -> Path:
        """An experiment file, and modules beside it."""
        for module, code in modules.items():
            self.write(f"{module}.py", code)
        return self.write(f"{name}.toml", text)

    def env(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if self.measured or not k.startswith("COVERAGE_")}
        return {**inherited, TAG: self.tag, "BAKEOFF_ROOT": str(self.root), **self.environment}

    def start(
        self, *arguments: str | Path, program: Sequence[str] = ("-m", "bakeoff"), **popen: Any
    ) -> subprocess.Popen[str]:
        """The command line in a process of its own, which leads a process group."""
        process = subprocess.Popen(
            [sys.executable, "-P", *program, *map(str, arguments)],
            **{
                "cwd": self.place,
                "env": self.env(),
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "errors": "replace",
                "start_new_session": True,
                **popen,
            },
        )
        self._started.append(process)
        return process

    def cli(self, *arguments: str | Path, code: int | None = 0, **popen: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **popen)
        stdout, stderr = process.communicate(timeout=LONG)
        if code is not None:
            assert process.returncode == code, f"exit code {process.returncode}\n{stdout}\n{stderr}"
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def look(self, *arguments: str | Path, code: int | None = 0) -> Result:
        """The command line in this process, for verbs that only read: no start, no imports."""
        with self._as_environment(), chdir(self.place):
            result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bakeoff")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    def run(self, name: str = "trial", overrides: tuple[str, ...] = (), **how: Any) -> SessionSummary:
        """Through the Python door, in this process."""
        with self._as_environment():
            return bakeoff.load(self.place / f"{name}.toml", root=self.root, overrides=overrides).run(**how)

    @contextmanager
    def _as_environment(self) -> Iterator[None]:
        before, during = dict(os.environ), self.env()
        os.environ.clear()
        os.environ.update(during)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    # -- looking

    def edition(self, name: str = "trial") -> Edition:
        with self._as_environment():
            return Edition.open(find_edition(name, self.root))

    def directory(self, name: str = "trial") -> Path:
        return find_edition(name, self.root).directory

    def rows(self, name: str = "trial") -> list[dict[str, Any]]:
        """The table, one dictionary for each run."""
        with closing(self.edition(name)) as edition:
            return read_table(edition).frame.to_dicts()

    def statuses(self, name: str = "trial") -> Counter[str]:
        """How many runs have which status; empty when there is nothing to read yet."""
        try:
            with closing(self.edition(name)) as edition:
                return Counter(edition.counts())
        except bakeoff.BakeoffError:
            return Counter()

    def of_arm(self, arm: str, name: str = "trial") -> list[dict[str, Any]]:
        return [row for row in self.rows(name) if row["arm"] == arm]

    def attempts(self, run_id: str, name: str = "trial") -> list[dict[str, Any]]:
        with closing(self.edition(name)) as edition:
            return edition.attempts(edition.positions(run_id)[0][0])

    def series(self, run_id: str, name: str = "trial") -> dict[str, list[tuple[int, float]]]:
        with closing(self.edition(name)) as edition:
            block = edition.series(edition.positions(run_id)[0][0])
        found = read_block(block) if block else {}
        return {metric: list(zip(s.tolist(), v.tolist(), strict=True)) for metric, (s, v) in found.items()}

    def run_directory(self, run_id: str, name: str = "trial") -> Path:
        return self.directory(name) / "runs" / run_id

    def processes(self) -> list[int]:
        """What carries the tag and lives, this process excepted."""
        needle, found = f"{TAG}={self.tag}".encode(), []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid() and process_exists(int(entry)):
                try:
                    content = Path(f"/proc/{entry}/environ").read_bytes()
                except OSError:
                    continue
                if needle in content.split(b"\0"):
                    found.append(int(entry))
        return found

    def processes_of(self, module: str) -> list[int]:
        """Tagged processes that run `python -m module`, or a file of this name."""
        found = []
        for pid in self.processes():
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.rpartition(b"/")[2] == module.encode() for word in argv):
                found.append(pid)
        return found

    # -- leaving

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=LONG)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        try:
            if kind is None:
                eventually(lambda: not self.processes(), "everything that was started has ended")
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)


def reported(stderr: str) -> dict[str, str]:
    """Run ids that `-v` reported as done, and the metrics it showed."""
    found = {}
    for line in stderr.splitlines():
        words = line.split()
        if len(words) > 2 and words[0].startswith("[") and words[1] == "ok":
            found[words[2]] = " ".join(word for word in words[3:] if "=" in word)
    return found
