"""What a launched job runs and what it needs; `make_job` checks it before anything is written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bakeoff.errors import BakeoffError, UsageError, did_you_mean
from bakeoff.records import layout
from bakeoff.spec.plan import Plan
from bakeoff.version import __version__

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LONGEST_NAME = 40
"""Kubernetes and clouds allow 63 characters, and add some of their own."""


@dataclass(frozen=True, slots=True)
class Job:
    """One experiment on other machines."""

    experiment: str
    file: str
    """The experiment file, relative to `base`."""
    base: Path
    """The experiment file's directory, which goes with the job."""
    root: Path
    """Where results come home to."""
    nodes: int
    jobs: int
    """Runs at a time on each node."""
    cpus: int
    """Of each node."""
    gpus: int
    memory: int | None
    """Bytes of each node; None leaves it to the target."""
    seconds: float | None
    """How long the job may take; None leaves it to the target."""
    image: str | None
    setup: tuple[str, ...]
    """Shell lines before anything else on every node."""
    overrides: tuple[str, ...]
    secrets: tuple[str, ...]
    """Names of variables that runs need. Their values are in no file."""
    options: Mapping[str, str]
    """Keys of the target's own format, by dotted name."""

    @property
    def name(self) -> str:
        """A name that every target accepts: lower case letters, digits and hyphens."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.experiment.lower()).strip("-")
        return f"bakeoff-{plain or 'experiment'}"[:_LONGEST_NAME].rstrip("-")

    @property
    def home(self) -> Path:
        """Where the experiment's editions come home to; it has the same name below every root."""
        return layout.experiment_directory(self.root, self.experiment)

    @property
    def place(self) -> Path:
        """The directory of job files and logs."""
        return self.home / ".launch"

    def command(self, root: str) -> str:
        """The command line that runs the experiment, with results below `root` (which the shell may expand)."""
        words = ["bakeoff", "run", self.file, *(word for each in self.overrides for word in ("--set", each))]
        words += ["--jobs", str(self.nodes * self.jobs), "--executor", "ray" if self.nodes > 1 else "local"]
        return f"{shlex.join(words)} --root {root}"

    def secret_values(self) -> dict[str, str]:
        return {name: os.environ[name] for name in self.secrets}


class Target(Protocol):
    """A system that jobs are launched on."""

    file: str
    """The name of the file that is written."""

    def write(self, job: Job) -> str:
        """The job's file. Raises UsageError for what this system cannot do."""

    def commands(self, job: Job, path: Path) -> list[str]:
        """What `start` calls, for people to read."""

    def start(self, job: Job, path: Path, say: Callable[[str], None], *, detach: bool) -> int:
        """Start the job; without `detach`, wait for its end and bring the results home. Returns its exit code."""


def make_job(
    plan: Plan,
    file: Path,
    root: Path,
    *,
    nodes: int,
    cpus: int | None = None,
    gpus: int | None = None,
    memory: int | None = None,
    seconds: float | None = None,
    image: str | None = None,
    setup: Sequence[str] = (),
    overrides: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Job:
    """A job for the plan. What is not said about nodes follows from `[resources]` and `jobs`. Raises UsageError."""
    experiment = plan.experiment
    needs, at_once = experiment.resources, experiment.jobs or 8
    extra = getattr(experiment.executor, "secrets", [])
    named = {name for text in experiment.env.values() for name in _VARIABLE.findall(text)}
    secrets = tuple(sorted({*named, *extra}))
    absent = [name for name in secrets if name not in os.environ]
    if absent:
        raise UsageError(f"{', '.join(absent)} is not set, and runs need it: export it before the launch")
    chosen: dict[str, str] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--option {option!r}: write KEY=VALUE, such as --option partition=gpu")
        chosen[key.strip()] = value
    return Job(
        experiment=experiment.name,
        file=file.resolve().relative_to(plan.base.resolve()).as_posix(),
        base=plan.base.resolve(),
        root=root.absolute(),
        nodes=nodes,
        jobs=at_once,
        cpus=cpus or max(1, round(at_once * (needs.cpus or 1))),
        gpus=gpus if gpus is not None else -(-int(1000 * at_once * (needs.gpus or 0)) // 1000),
        memory=memory or (at_once * needs.memory if needs.memory else None),
        seconds=seconds,
        image=image,
        setup=tuple(setup),
        overrides=tuple(overrides),
        secrets=secrets,
        options=chosen,
    )


def install_line(job: Job) -> str:
    """How a fresh machine gets bakeoff."""
    extra = "[ray]" if job.nodes > 1 else ""
    return f"pip install --quiet 'bakeoff{extra}=={__version__}'"


def set_options(tree: dict[str, Any], options: Mapping[str, str], known: Sequence[str]) -> None:
    """Set dotted keys in a tree; values are read as YAML. The first part has to be one of `known`."""
    import yaml

    for key, text in options.items():
        parts = key.split(".")
        if parts[0] not in known:
            there_are = f"there are {', '.join(known)}"
            raise UsageError(f"--option {key}: no such key; {did_you_mean(parts[0], known, there_are)}")
        place: Any = tree
        for number, part in enumerate(parts[:-1], 1):
            if isinstance(place, list):
                place = place[_position(place, part, key)]
            else:
                place = place.setdefault(part, {})
            if not isinstance(place, dict | list):
                raise UsageError(f"--option {key}: {'.'.join(parts[:number])} is a value, not a table")
        value = yaml.safe_load(text)
        if isinstance(place, list):
            place[_position(place, parts[-1], key)] = value
        else:
            place[parts[-1]] = value


def _position(place: list[Any], part: str, key: str) -> int:
    if not part.isdigit() or int(part) >= len(place):
        raise UsageError(f"--option {key}: {part!r} is not a position in a list of {len(place)}")
    return int(part)


def as_yaml(*documents: Mapping[str, Any]) -> str:
    """YAML for people: scripts as blocks of lines, keys in the order of the tables."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=120)


def require(programs: Sequence[str], hint: str) -> None:
    """Raise BakeoffError when a program is not on PATH."""
    for program in programs:
        if shutil.which(program) is None:
            raise BakeoffError(f"{program} is not on PATH. {hint} `--dry-run` works without it")


def call(*argv: str, content: str | None = None) -> str:
    """Standard output of a program. Raises BakeoffError with what it printed when it fails."""
    done = subprocess.run(argv, input=content, text=True, capture_output=True, check=False)
    if done.returncode:
        raise BakeoffError(f"{shlex.join(argv[:4])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
