"""What every benchmark needs: arguments, timing of whole processes, fair turns, machine facts, and the one JSON object.

Both sides of a ratio are measured in the same run, in turns, and the best of several counts for both: on a machine that
others use too, the minimum is the figure that the program is responsible for.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parents[2]
BAKEOFF = [sys.executable, str(Path(sys.executable).with_name("bakeoff"))]


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool
    out: Path | None


def options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="a small version, to see that it works; its figures mean little"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    given = parser.parse_args()
    # As in an installed wheel: with PYTHONDONTWRITEBYTECODE set, every start would compile the package again.
    compileall.compile_dir(REPOSITORY / "src", quiet=2)
    return Options(given.quick, given.out)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory on a real disk (`/tmp` may be memory, where durable means nothing), gone afterwards."""
    parent = REPOSITORY / "build" / "benchmarks"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def environment() -> dict[str, str]:
    """This one, without settings that would lead bakeoff elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")}


def seconds(argv: Sequence[str], cwd: Path | None = None, allowed: Sequence[int] = (0,)) -> float:
    """Wall time of a whole process that must end with an allowed exit code."""
    began = time.perf_counter()
    done = subprocess.run(argv, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, capture_output=True)
    took = time.perf_counter() - began
    if done.returncode not in allowed:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-15:]
        raise SystemExit("\n".join([f"{' '.join(argv[:6])} ... failed with exit code {done.returncode}:", *tail]))
    return took


@dataclass(frozen=True, slots=True)
class Turns:
    """What one side took, round by round, and which share of the machine other processes used meanwhile."""

    seconds: list[float]
    others: list[float]

    @property
    def best(self) -> float:
        return min(self.seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "best_s": self.best,
            "others_in_best": self.others[self.seconds.index(self.best)],
            "seconds": self.seconds,
            "others": self.others,
        }


def in_turns(sides: Mapping[str, Callable[[], float]], rounds: int, patience: float = 30.0) -> dict[str, Turns]:
    """Every side once, then every side again, each begun in a calm moment if one comes within `patience` seconds."""
    taken = {name: Turns([], []) for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            wait_for_calm(patience)
            busy, own, began = _busy(), _own(), time.perf_counter()
            seconds = side()
            available = (time.perf_counter() - began) * (os.cpu_count() or 1)
            others = max(0.0, (_busy() - busy) - (_own() - own)) / available
            taken[name].seconds.append(seconds)
            taken[name].others.append(others)
            say(f"  round {number + 1}/{rounds} {name}: {seconds:.4g} s (others used {others:.0%} of the machine)")
    return taken


def wait_for_calm(patience: float) -> None:
    """Until other processes leave nine tenths of the machine idle for half a second, or patience ends."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = _busy()
        time.sleep(0.5)
        if _busy() - before < 0.1 * 0.5 * (os.cpu_count() or 1):
            return


def _busy() -> float:
    """CPU seconds that all processes have used since the machine started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """CPU seconds of this process and of everything that it started and that has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def steady(small: tuple[int, float], large: tuple[int, float]) -> float:
    """Runs per second once started: what the further runs of the larger experiment cost."""
    return (large[0] - small[0]) / max(large[1] - small[1], 1e-9)


def rounded(value: Any) -> Any:
    """Four significant digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Turns):
        return rounded(value.as_json())
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def check(
    what: str,
    ours: str,
    theirs: str,
    value: float,
    bar: float,
    sense: Literal["at least", "under"] = "at least",
    unit: str = "x",
) -> dict[str, Any]:
    """One line of the table: a measured value and the bar it is held against."""
    holds = value >= bar if sense == "at least" else value < bar
    say(
        f"{'holds' if holds else 'FAILS'}: {what}: {value:.3g} {unit} (bar: {sense} {bar:g} {unit}); ours {ours}, theirs {theirs}"
    )
    return {
        "what": what, "ours": ours, "theirs": theirs, "value": rounded(value), "unit": unit, "sense": sense, "bar": bar,
        "holds": holds,
    }  # fmt: skip


def machine(directory: Path) -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(directory),
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(directory: Path) -> str:
    """Type of the file system that holds `directory`: the longest mount point above it."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    place = directory.resolve()
    above = [mount for mount in mounts if place.is_relative_to(mount[1])]
    return max(above, key=lambda mount: len(mount[1]))[2] if above else "unknown"


def versions(*packages: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("bakeoff", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def first_line(*argv: str) -> str:
    """The version that a program tells."""
    return subprocess.run(argv, capture_output=True, text=True).stdout.partition("\n")[0]


def publish(
    name: str, given: Options, checks: Sequence[dict[str, Any]], figures: Mapping[str, Any], *, method: str,
    facts: Mapping[str, Any], programs: Mapping[str, str],
) -> None:  # fmt: skip
    """The one JSON object on standard output. A bar that fails is told, not raised: the figures are the result."""
    result = {
        "benchmark": name,
        "quick": given.quick,
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "holds": all(entry["holds"] for entry in checks),
        "checks": list(checks),
        "figures": rounded(dict(figures)),
        "method": method,
        "machine": dict(facts),
        "versions": dict(programs),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n")
