"""Every command on the page for users of other systems runs, section by section, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/coming-from.md"
COMMAND = re.compile(r"`bakeoff ([^`]+)`")
ANSWERS = {
    "compare": (0, 3),
    "power": (0, 3),
    "variance": (0, 3),
    "litmus": (0, 1, 3),
    "logs": (0, 1),
    "diff": (0, 1),
    "gate": (0, 1, 3),
    "market train": (0, 1, 3),
}
"""Exit codes with which a verb has given an answer."""


def nothing(place: Path) -> None:
    pass


def write_benchmark(place: Path) -> None:
    """A task benchmark whose agents need no model, on the tasks that `bakeoff init` ships."""
    starter = ROOT / "src/bakeoff/workloads/tasks/starter/tasks"
    shutil.copytree(starter, place / "data/tasks/prepared")
    (place / "configs").mkdir()
    entries = "".join(
        f'[[tasks]]\nprepared_dir = "data/tasks/prepared/{task.name}"\nagent = "{agent}"\nrollouts = 1\n'
        for task in sorted(starter.iterdir())
        for agent in ("oracle", "nop")
    )
    (place / "configs/my_benchmark.toml").write_text(f'name = "my_benchmark"\nparallel = 2\n{entries}')


def write_base(place: Path) -> None:
    """Settings with which a campaign takes seconds."""
    (place / "base.toml").write_text(
        "[language]\nwarm_steps = 10\neval_prompts = 8\n[training]\nbatch_size = 2\ngroup_size = 2\n"
    )


def first(place: Path, pattern: str) -> str:
    return next(str(path.relative_to(place)) for path in sorted(place.glob(pattern)) if "private" not in path.name)


@dataclass(frozen=True)
class Section:
    prepare: Callable[[Path], None] = nothing
    smaller: Mapping[str, str] = field(default_factory=dict)
    """What is added to commands, or changed in them, so that they take seconds: pattern to replacement."""
    names: Mapping[str, Callable[[Path], str]] = field(default_factory=dict)
    """Words of the page that stand for something that earlier commands made."""


def stamp(place: Path) -> str:
    """The newest edition as the task benchmark writes it."""
    name = os.readlink(place / "bakeoff-runs/my_benchmark/latest")
    return re.sub(r"(\d{8})-(\d\d)(\d\d)(\d\d)", r"\1__\2-\3-\4", name)


GRIDWORLD = "--set params.steps=2048 --set params.envs=8 --set params.held_out=4 --set params.width=40 --set params.eval_every=2 --set seeds=[1,2,3]"
SECTIONS = {
    "The paired-seed benchmark of RL architectures": Section(
        smaller={r"^(run examples/gridworld.toml)": rf"\1 {GRIDWORLD}"},
    ),
    "The task benchmark for coding agents": Section(
        write_benchmark,
        names={
            "STAMP": stamp,
            "RUN": lambda place: Path(first(place, "bakeoff-runs/my_benchmark/latest/runs/oracle*")).name,
            "TASK": lambda place: "data/tasks/prepared/slug-words",
        },
    ),
    "The sweep runner and its scheduling simulator": Section(),
    "Campaigns of retrain, and textpolicy's tests": Section(
        write_base,
        smaller={
            r"^run (.*)params.steps=20": r"run \1params.steps=2 --set params.warm_steps=10 --set params.eval_prompts=8",
            r"--max-steps 500 --seeds \S+": "--config base.toml --max-steps 2 --seeds 42,101,202",
        },
    ),
    "The market benchmark with its A2A interface": Section(
        smaller={
            r"--duration=30": "--duration=4",
            r"^run examples/market.toml": "run examples/market.toml --set seeds=[1,2] --set params.duration_minutes=4",
            r"^market train.*": "market train --min-agents 2 --iterations 1 --windows-per-iteration 2 --held-out 7 --duration 4",
        },
        names={"BENCHMARK": lambda place: first(place, "benchmarks/*.json")},
    ),
}


def commands(title: str) -> list[str]:
    """The commands in the second column of a section's table."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split(" | ", 1)[1] for line in section.splitlines() if line.startswith("| ")][2:]
    return [command for row in rows for command in COMMAND.findall(row) if " " in command]


def test_the_page_has_a_section_for_each_system() -> None:
    assert re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(SECTIONS)
    assert all(len(commands(title)) > 6 for title in SECTIONS)


@pytest.mark.slow
@pytest.mark.apt
@pytest.mark.parametrize("title", list(SECTIONS), ids=lambda title: "-".join(title.split()[1:3]))
def test_every_command_for_users_of_another_system_runs(title: str, tmp_path: Path) -> None:
    section = SECTIONS[title]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    section.prepare(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")} | {"PATH": path}
    for command in commands(title):
        for pattern, replacement in section.smaller.items():
            command = re.sub(pattern, replacement, command)
        for word, meaning in section.names.items():
            if re.search(rf"\b{word}\b", command):
                command = re.sub(rf"\b{word}\b", meaning(tmp_path), command)
        arguments = shlex.split(command)
        done = subprocess.run(
            [sys.executable, "-m", "bakeoff", *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        codes = ANSWERS.get(arguments[0], ANSWERS.get(" ".join(arguments[:2]), (0,)))
        assert done.returncode in codes, f"bakeoff {command}: {done.returncode}\n{done.stdout}{done.stderr}"
