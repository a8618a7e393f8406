"""Runs that trainers left below a directory: event files of TensorBoard, Stable-Baselines3, and Hugging Face's Trainer and TRL.

RUNS/ppo_s3/events.out.tfevents.*         arm ppo, seed 3
RUNS/CartPole-v1/ppo/seed=3/monitor.csv   arm ppo, task CartPole-v1, seed 3; `env_id` in the file names the task, too
RUNS/sft_s3/checkpoint-500/trainer_state.json

A run is a directory with any of these files. What lies below one is a part of it, unless a name there has another seed: the
`train` and `validation` of Keras, the files of `add_scalars`, the `runs/` of the Trainer, checkpoints. Directories with hyperparameters
(`hp`, or what `add_hparams` writes) are no runs. Names that are numbers, times or `version_3` tell repeats apart and not arms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.results.importers.foreign import DIRECTORY, ForeignRun, Item, Measure, Reading, Source
from bakeoff.results.importers.training_readers import Log, add_evaluations, add_events, add_monitors, add_states
from bakeoff.trees import walk

EVENTS, STATE, EVALUATIONS = "*tfevents*", "trainer_state.json", "evaluations.npz"
TOOLS = {
    "TensorBoard": (EVENTS,),
    "Stable-Baselines3": ("monitor.csv", "*.monitor.csv", EVALUATIONS),
    "Hugging Face Trainer": (STATE,),
}
"""Patterns of the files of each tool."""
FILES = tuple(pattern for patterns in TOOLS.values() for pattern in patterns)
MEASURES: Mapping[str, Measure] = {
    "eval/mean_reward": Measure("maximize"),
    "rollout/ep_rew_mean": Measure("maximize"),
    "charts/episodic_return": Measure("maximize"),
    "episode_reward": Measure("maximize"),
    "eval_reward": Measure("maximize"),
    "reward": Measure("maximize"),
    "eval_accuracy": Measure("maximize"),
    "eval_loss": Measure("minimize"),
    "loss": Measure("minimize"),
}
"""What these trainers call the result of a training, the most telling first."""
MAX_FILES = 100_000
SHORT = 0.9
"""Share of the longest run's steps below which a note says that a run is shorter."""
_SEED = re.compile(r"(?:^|[_.,\-\s])(?:seed|s)[_=\-\s]?(?P<seed>\d+)(?=$|[_.,\-\s])", re.IGNORECASE)
_CLEANRL = re.compile(r"(?P<task>.+)__(?P<arm>.+)__(?P<seed>\d+)__\d{9,}")
_ENVIRONMENT = re.compile(r".*-v\d+")
_REPEAT = re.compile(r"\d[\d_\-T:.]*|version_\d+")
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_WRITERS = ("train", "validation", "val", "valid", "test", "eval")
_SETTINGS = ("hp", "hparams")
_PLAIN = re.compile(
    r"tb|tensorboard|(?:tb_)?logs?|runs|events|[A-Za-z0-9]+_\d+|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.*|" + _REPEAT.pattern
)
"""Names of directories that say nothing about the metrics in them."""


@dataclass(slots=True)
class Run:
    """A run's directory and its files."""

    directory: Path
    files: list[Path] = field(default_factory=list)

    def read(self) -> Log:
        """Read all files. Raises UsageError for one that cannot be read."""
        log = Log()
        states = [path for path in self.files if path.name == STATE]
        if states:
            add_states(log, states)
        else:  # the Trainer's event files have the same values once more
            events = [path for path in self.files if fnmatch(path.name, EVENTS)]
            own = [path for path in self.files if path.parent == self.directory]
            add_events(log, {path: self._prefix(path) for path in events}, {*events} - {*own} if own else ())
        if monitors := [path for path in self.files if path.name.endswith("monitor.csv")]:
            add_monitors(log, monitors)
        for path in self.files:
            if path.name == EVALUATIONS:
                add_evaluations(log, path)
        return log

    def has(self, patterns: Sequence[str]) -> bool:
        return any(fnmatch(path.name, pattern) for path in self.files for pattern in patterns)

    def _prefix(self, path: Path) -> str:
        parts = path.parent.relative_to(self.directory).parts
        return "".join(f"{part}/" for part in parts if not _PLAIN.fullmatch(part))


class TrainingLogs:
    """A directory with runs of trainers at any depth."""

    name = "training logs"

    def claims(self, path: Path) -> list[Path]:
        return [path] if path.is_dir() and next(_files(path), None) is not None else []

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        runs = [(path, run) for path in paths for run in _find(path)]
        lengths: dict[Path, float] = {}
        counts = {"torn": 0, "overlaps": 0, "missing": 0, "empty": 0}
        for root, run in runs:
            try:
                log = run.read()
            except UsageError as error:
                yield Reading(problems=[str(error)])
                continue
            if not (log.curves or log.metrics or log.outcome):
                log.outcome, log.error = "missing", "logged nothing"
                counts["empty"] += 1
            else:
                lengths[run.directory] = max((max(points) for points in log.curves.values()), default=0.0)
            counts["torn"] += log.torn
            counts["overlaps"] += log.overlaps
            counts["missing"] += log.outcome == "missing" and log.error != "logged nothing"
            yield _foreign(root, run, log, several=len({path for path, _ in runs}) > 1)
        notes = _notes(counts, len(runs), lengths)
        tools = [tool for tool, patterns in TOOLS.items() if any(run.has(patterns) for _, run in runs)]
        yield Reading(" and ".join(tools), "", MEASURES, notes=notes, labels={"arm": "directory without its seed"})


class TrainingFiles(TrainingLogs):
    """One file of a trainer. It has a place before tables, because `monitor.csv` is none."""

    name = "training files"

    def claims(self, path: Path) -> list[Path]:
        return [path] if path.is_file() and _is_log(path.name) else []


def _is_log(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in FILES)


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of trainers below a directory, without following links."""
    for folder, _, names in walk(root):
        for name in sorted(names):
            if _is_log(name) and (path := Path(folder, name)).is_file():
                yield path


def _find(root: Path) -> list[Run]:
    """Return the runs at a path, by name."""
    if root.is_file():
        return [Run(_owner(root), [root])]
    files = []
    for path in _files(root):
        if path.parent.name not in _SETTINGS:
            files.append(path)
        if len(files) > MAX_FILES:
            raise UsageError(f"{root}: has more than {MAX_FILES:,} files of trainers; name a directory further down")
    owners = {_owner(path) for path in files}
    runs: dict[Path, Run] = {}
    for path in files:
        owner = _owner(path)
        for parent in owner.parents:
            inside = owner.relative_to(parent).parts if parent in owners else ()
            if inside and not any(_SEED.search(part) or _CLEANRL.fullmatch(part) for part in inside):
                owner = parent
            if parent == root:
                break
        runs.setdefault(owner, Run(owner)).files.append(path)
    return [runs[directory] for directory in sorted(runs)]


def _owner(path: Path) -> Path:
    """Return the directory of the run that a file belongs to."""
    directory = path.parent
    if _CHECKPOINT.fullmatch(directory.name) or (fnmatch(path.name, EVENTS) and directory.name in _WRITERS):
        return directory.parent
    return directory


def _foreign(root: Path, run: Run, log: Log, *, several: bool) -> ForeignRun:
    base = root if root.is_dir() else run.directory
    arm, task, seed = names_of(run.directory.relative_to(base).parts, run.directory.resolve().parts)
    labels = {"arm": arm} | ({"root": base.resolve().name} if several else {})
    return ForeignRun(
        labels=labels | {DIRECTORY: str(base)},
        source=Source(run.directory) if root.is_dir() else Source(root),
        task=log.task or task or "default",
        seed=seed,
        run=str(run.directory if root.is_dir() else root),
        outcome=log.outcome,
        error=log.error,
        metrics=log.metrics,
        series=log.series(),
        started_at=log.started_at,
    )


def names_of(parts: Sequence[str], absolute: Sequence[str]) -> tuple[str, str | None, int | None]:
    """Find (arm, task, seed) in the names below the directory that a user named; in `absolute` where these have no arm."""
    if parts and (match := _CLEANRL.fullmatch(parts[-1])):
        return match["arm"], match["task"], int(match["seed"])
    names, seed = _without_seed(parts)
    tasks = [name for name in names if _ENVIRONMENT.fullmatch(name)]
    arms = [name for name in names if name not in tasks]
    if not arms:
        outer, outer_seed = _without_seed(absolute[: len(absolute) - len(parts)][-2:])
        arms, seed = outer[-1:] or ["runs"], seed if seed is not None else outer_seed
    *above, arm = arms
    return arm, "/".join(tasks or above) or None, seed


def _without_seed(parts: Sequence[str]) -> tuple[list[str], int | None]:
    """Return the names without seeds, numbers and times, and the last seed."""
    names, seed = [], None
    for part in parts:
        if match := _SEED.search(part):
            seed = int(match["seed"])
            part = (part[: match.start()] + part[match.end() :]).strip("_.,- ")
        if part and not _REPEAT.fullmatch(part):
            names.append(part)
    return names, seed


def _notes(counts: Mapping[str, int], runs: int, lengths: Mapping[Path, float]) -> list[str]:
    notes = []
    if counts["overlaps"]:
        notes.append(
            f"{counts['overlaps']} of {runs} runs were resumed; of steps that were written twice, the last written count"
        )
    if counts["torn"]:
        notes.append(f"{counts['torn']} of {runs} runs have a file that ends within a record; are they still running?")
    if counts["missing"]:
        notes.append(
            f"{counts['missing']} of {runs} runs ended before their last step (`max_steps`) and count as missing"
        )
    if counts["empty"]:
        notes.append(f"{counts['empty']} of {runs} runs logged nothing and count as missing")
    if lengths and min(lengths.values()) < SHORT * max(lengths.values()):
        shortest, longest = (find(lengths, key=lambda path: lengths[path]) for find in (min, max))
        notes.append(
            f"runs end at different steps, from {lengths[shortest]:.0f} ({shortest}) to {lengths[longest]:.0f} ({longest}): a mean over "
            "steps does not cover the same training in both"
        )
    return notes
