"""Measure the overhead of a run: durable no-op runs per second, against Inspect AI, xargs and GNU parallel."""

from __future__ import annotations

import functools
import itertools
import shutil
import sys
from pathlib import Path
from typing import Any

from measure import (
    BAKEOFF,
    Options,
    check,
    first_line,
    in_turns,
    machine,
    options,
    publish,
    say,
    seconds,
    steady,
    versions,
    workspace,
)

INSPECT = Path(__file__).parent / "peers" / "inspect_noop.py"
METHOD = (
    "Rates are runs over the wall time of the whole process, start-up included on both sides, best of the rounds, in turns. "
    "bakeoff: `run -j2 --fresh`, every result in a synced SQLite transaction before it counts. "
    "Inspect AI: eval() of one task, mock model with token usage supplied, scorer exact(), log to disk as by default, "
    "no display, the best of several max_samples settings. Steady rates leave start-up out on both sides: "
    "(N - N/5) / (time of N - time of N/5). xargs captures nothing and records nothing; GNU parallel captures output."
)
COMMANDS = 'workload = "command"\n[params]\ncommand = ["/bin/true"]\n'
IN_PROCESS = 'workload = "python"\n[params]\nfunction = "noop:noop"\n'
NOOP = 'def noop(seed):\n    return {"score": seed}\n'
_names = itertools.count()


def bakeoff(directory: Path, text: str, runs: int) -> float:
    """Seconds for `runs` runs. Each call runs a new experiment, so that no run is done already."""
    name = f"noop-{next(_names)}"
    file = directory / f"{name}.toml"
    file.write_text(f"seeds = {runs}\n{text}")
    (directory / "noop.py").write_text(NOOP)
    took = seconds(
        [*BAKEOFF, "run", str(file), "-j2", "--fresh", "--yes", "--root", str(directory / "runs")], directory
    )
    shutil.rmtree(directory / "runs" / name)
    return took


def inspect(directory: Path, samples: int, concurrency: int) -> float:
    return seconds(
        [sys.executable, str(INSPECT), str(samples), str(concurrency), str(directory / "inspect")], directory
    )


def items(directory: Path, count: int) -> str:
    path = directory / f"items-{count}"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    return str(path)


def in_process(given: Options, directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    ours, theirs, rounds = (2_000, 100, 1) if given.quick else (40_000, 1_500, 4)
    settings = (10, 50) if given.quick else (2, 10, 50, 200)
    say(f"in-process: {ours} runs of ours, {theirs} samples of Inspect AI")
    trials = {number: inspect(directory, theirs // 5, number) for number in settings}
    best = min(trials, key=lambda number: trials[number])
    for number, took in trials.items():
        say(f"  Inspect AI, {number} at a time: {theirs // 5 / took:.3g} samples/s")
    times = in_turns(
        {
            "bakeoff, small": lambda: bakeoff(directory, IN_PROCESS, ours // 5),
            "bakeoff": lambda: bakeoff(directory, IN_PROCESS, ours),
            "Inspect AI, small": lambda: inspect(directory, theirs // 5, best),
            "Inspect AI": lambda: inspect(directory, theirs, best),
        },
        rounds,
        0 if given.quick else 30,
    )
    fastest = {name: turns.best for name, turns in times.items()}
    rate, peer = ours / fastest["bakeoff"], theirs / fastest["Inspect AI"]
    figures = {
        "bakeoff_runs": ours,
        "bakeoff_runs_per_s": rate,
        "bakeoff_runs_per_s_steady": steady((ours // 5, fastest["bakeoff, small"]), (ours, fastest["bakeoff"])),
        "inspect_samples": theirs,
        "inspect_samples_per_s": peer,
        "inspect_samples_per_s_steady": steady(
            (theirs // 5, fastest["Inspect AI, small"]), (theirs, fastest["Inspect AI"])
        ),
        "inspect_max_samples": best,
        "inspect_trials_s": {str(number): took for number, took in trials.items()},
        "turns": times,
    }
    figures["ratio_steady"] = figures["bakeoff_runs_per_s_steady"] / figures["inspect_samples_per_s_steady"]
    line = check(
        "no-op in-process runs, durable, against Inspect AI with its mock model",
        f"{rate:,.0f} runs/s", f"{peer:,.1f} samples/s", rate / peer, 25,
    )  # fmt: skip
    return [line], figures


def commands(given: Options, directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    count, rounds = (300, 1) if given.quick else (3_000, 5)
    say(f"commands: {count} times /bin/true, two at a time")
    listed = items(directory, count)
    parallel = shutil.which("parallel")
    sides = {
        "bakeoff": functools.partial(bakeoff, directory, COMMANDS, count),
        "xargs": functools.partial(seconds, ["xargs", "-a", listed, "-n1", "-P2", "/bin/true"]),
    }
    if parallel is not None:
        sides["parallel"] = functools.partial(seconds, [parallel, "--will-cite", "-j2", "-a", listed, "/bin/true"])
    else:
        say("  GNU parallel is not installed (scripts/apt-install.sh parallel): its line is left out")
    times = in_turns(sides, rounds, 0 if given.quick else 30)
    rates = {name: count / turns.best for name, turns in times.items()}
    ours = f"{rates['bakeoff']:,.0f} runs/s"
    lines = [
        check(
            "no-op commands, output captured, durable, against `xargs -n1 -P2 /bin/true`",
            ours, f"{rates['xargs']:,.0f} commands/s", rates["bakeoff"] / rates["xargs"], 0.5,
        )
    ]  # fmt: skip
    if parallel is not None:
        lines.append(
            check(
                "no-op commands, output captured, durable, against GNU parallel -j2",
                ours, f"{rates['parallel']:,.0f} commands/s", rates["bakeoff"] / rates["parallel"], 2,
            )
        )  # fmt: skip
    return lines, {"commands": count, "commands_per_s": rates, "turns": times}


def main() -> None:
    given = options(__doc__ or "")
    with workspace() as directory:
        facts = machine(directory)
        some, spawned = commands(given, directory)
        more, warm = in_process(given, directory)
    programs = versions("inspect-ai") | {
        "xargs": first_line("xargs", "--version"),
        "parallel": first_line("parallel", "--version"),
    }
    publish(
        "overhead", given, [*more, *some], {"in_process": warm, "commands": spawned},
        method=METHOD, facts=facts, programs=programs,
    )  # fmt: skip


if __name__ == "__main__":
    main()
