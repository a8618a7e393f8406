"""Compare the speed of this version with an earlier one: whole commands of both checkouts, in turns, on the same files.

git worktree add ../before COMMIT && (cd ../before && scripts/install.sh bench)
.venv/bin/python benchmarks/versions.py ../before
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import REPOSITORY, Options, check, in_turns, machine, publish, say, seconds, versions, workspace

METHOD = (
    "Wall time of whole processes, best of the rounds, in turns; each checkout has its own .venv and its own results. "
    "The ratio is the time of the version before over the time of this one. A bar of 0.9 allows for what two "
    "measurements of the same program differ by."
)
NOOP = 'workload = "python"\nseeds = {runs}\n[params]\nfunction = "noop:noop"\n[analysis]\nmetric = "score"\n'
COMMAND = 'workload = "command"\nseeds = {runs}\n[params]\ncommand = ["/bin/true"]\n'
ARMS = 'seeds = {runs}\nworkload = "python"\n[params]\nfunction = "noop:noop"\n[matrix]\nx = [1, 2, 3, 4]\n[analysis]\nmetric = "score"\n'
ALLOWED = (0, 3)
"""Exit codes of a command that worked; 3 means that something is undecided."""


def commands(quick: bool) -> dict[str, tuple[list[str], int]]:
    """Arguments and rounds of each measured command, in the order in which they must run."""
    rounds = 1 if quick else 3
    return {
        "--help": (["--help"], 10 * rounds),
        "run of Python no-ops": (["run", "noop.toml", "-j2", "--fresh", "--yes"], rounds),
        "run of commands": (["run", "command.toml", "-j2", "--fresh", "--yes"], rounds),
        "validate of a large plan": (["validate", "large.toml"], rounds),
        "run of four arms": (["run", "arms.toml", "-j2", "--yes"], 1),
        "compare": (["compare", "arms"], 2 * rounds),
        "collect": (["collect", "arms"], rounds),
        "report": (["report", "arms"], rounds),
        "the scheduling simulator's sweep": (["run", "--config", "sweep.json", "--jobs", "2", "--fresh"], rounds),
        "an episode of the market world": (["market", "run", "--agent", "kelly-bayes", "--duration", "600", "--output", "played"], rounds),
    }  # fmt: skip


def prepare(directory: Path, quick: bool) -> None:
    scale = 1 if quick else 10
    (directory / "noop.py").write_text('def noop(seed, x=0):\n    return {"score": seed * 7919 % 100_003 + x}\n')
    (directory / "noop.toml").write_text(NOOP.format(runs=1_000 * scale))
    (directory / "command.toml").write_text(COMMAND.format(runs=200 * scale))
    (directory / "large.toml").write_text(ARMS.format(runs=2_500 * scale))
    (directory / "arms.toml").write_text(ARMS.format(runs=250 * scale))
    shutil.copy(REPOSITORY / "examples" / "sweep" / "default.json", directory / "sweep.json")


def side(checkout: Path, directory: Path, arguments: list[str]) -> Callable[[], float]:
    argv = [str(checkout / ".venv" / "bin" / "bakeoff"), *arguments]
    return lambda: seconds(argv, directory, allowed=ALLOWED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the version before, with its .venv")
    parser.add_argument("--after", type=Path, default=REPOSITORY, help="the checkout to compare it with")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object into this file")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    checks = []
    with workspace() as directory:
        places = {"before": given.before.resolve(), "now": given.after.resolve()}
        for name in places:
            (directory / name).mkdir()
            prepare(directory / name, given.quick)
            # The first use on a machine compiles the market world's kernels.
            warm_up = ["market", "run", "--agent", "null", "--duration", "10", "--output", "first"]
            side(places[name], directory / name, warm_up)()
        for what, (arguments, rounds) in commands(given.quick).items():
            say(what)
            sides = {name: side(checkout, directory / name, arguments) for name, checkout in places.items()}
            taken = in_turns(sides, rounds, 0.0 if given.quick else 5.0)
            figures[what] = taken
            before, now = taken["before"].best, taken["now"].best
            checks.append(check(what, f"{now:.3g} s", f"{before:.3g} s", before / now, 0.9))
        facts = machine(directory)
    publish(
        "versions", Options(given.quick, given.out), checks, figures, method=METHOD, facts=facts, programs=versions()
    )


if __name__ == "__main__":
    main()
