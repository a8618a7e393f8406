"""Select rollouts, write them in one format, and say what was written, what was left out, and why."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.export import conversations, inspect_logs, traces
from bakeoff.export.dialogue import Dialogue, NotAConversation, read_dialogue, to_json
from bakeoff.export.rollouts import Filters, Rollout, read_rollouts, select
from bakeoff.records.recorded import Recorded
from bakeoff.results.table import Results
from bakeoff.version import __version__

DIRECTORY = "export"
SUMMARY = "export.json"


@dataclass(slots=True)
class Job:
    """One export in progress: what to write and where, and what has been written so far. Formats take it."""

    experiment: str
    edition: str
    results: Results
    filters: Filters
    groups: Sequence[Sequence[Rollout]]
    """Empty for a format of whole editions."""
    place: Path
    """A file, or an empty directory that exists."""
    render: bool
    with_truth: bool
    dropped: Counter[str]
    rows: int = 0
    rollouts: int = 0
    kept: set[str] = field(default_factory=set)
    """Names of the groups of which something was written."""

    @property
    def source(self) -> Recorded:
        """Return the edition of ours that a format of whole editions reads."""
        assert self.results.edition is not None
        return self.results.edition

    def dialogues(self, group: Sequence[Rollout] | None = None) -> Iterator[tuple[Rollout, Dialogue]]:
        """The rollouts (of one group) that can be written as conversations, one in memory at a time."""
        for rollout in chain.from_iterable(self.groups) if group is None else group:
            try:
                dialogue = read_dialogue(rollout.steps(), render=self.render)
            except NotAConversation as reason:
                self.dropped[str(reason)] += 1
                continue
            self.count(rollout)
            yield rollout, dialogue

    def count(self, rollout: Rollout) -> None:
        """Note that something of this rollout is written."""
        self.rollouts += 1
        self.kept.add(rollout.group)


Row = dict[str, Any]


def write_lines(job: Job, rows: Iterable[Row]) -> None:
    """One row is one line of JSON, in a file or in `traces.jsonl` of a directory."""
    path = job.place / "traces.jsonl" if job.place.is_dir() else job.place
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(to_json(row) + "\n")
            job.rows += 1


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its rows, how they are written, and what it needs."""

    rows: Callable[[Job], Iterator[Row]]
    file: str
    """Its name below `export/`; without a suffix it is a directory."""
    write: Callable[[Job, Iterator[Row]], None] = write_lines
    needs_reward: bool = False
    grouped: bool = False
    """It is for group-relative updates: groups stay whole, and a single rollout is not a group."""
    holds_truth: bool = False
    renders: bool = False
    """A policy without a language model is always written as observations and actions."""
    whole: bool = False
    """It holds every run, with a trajectory or without, and reads them from the edition itself."""

    @property
    def is_directory(self) -> bool:
        return not Path(self.file).suffix


FORMATS = {
    "verifiers": Format(traces.verifiers, "verifiers"),
    "trl-sft": Format(conversations.trl_turns, "trl-sft.jsonl"),
    "trl-kto": Format(partial(conversations.trl_turns, labelled=True), "trl-kto.jsonl"),
    "trl-grpo": Format(conversations.trl_grpo, "trl-grpo.jsonl", needs_reward=True, grouped=True),
    "art": Format(conversations.art, "art.jsonl", needs_reward=True, grouped=True),
    "atif": Format(traces.atif, "atif", traces.write_trajectories, renders=True),
    "sharegpt": Format(conversations.sharegpt, "sharegpt.jsonl"),
    "jsonl": Format(traces.steps, "steps.jsonl", holds_truth=True),
    "parquet": Format(traces.steps, "steps.parquet", traces.write_parquet, holds_truth=True),
    "inspect": Format(inspect_logs.logs, "inspect", inspect_logs.write_logs, renders=True, whole=True),
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What `--json` prints, and what is written beside the data as `export.json`."""

    experiment: str
    edition: str
    format: str
    output: Path
    rows: int
    rollouts: int
    groups: int
    equal_groups: int
    """Groups of two or more whose rewards are all equal: a group-relative update learns nothing from them."""
    dropped: dict[str, int]
    """Runs that were left out, by reason."""
    filters: dict[str, Any]
    bakeoff: str = __version__


class NothingLeft(Exception):
    """No rollout passed the filters. Nothing was written, and an earlier export is unchanged."""

    def __init__(self, summary: Exported) -> None:
        super().__init__(summary)
        self.summary = summary


def export(
    results: Results,
    name: str,
    filters: Filters,
    *,
    min_group: int | None = None,
    render: bool = False,
    with_truth: bool = False,
    output: Path | None = None,
) -> Exported:
    """Write trajectories in the format `name`, a key of FORMATS, to `output` (default: `export/` in the edition, or here).

    `min_group` is by default 2 for formats of group-relative updates and 1 for the others. An earlier export at
    `output` is replaced. Raises NothingLeft, and UsageError for names, options and places that do not fit.
    """
    form = FORMATS[name]
    if with_truth and not form.holds_truth:
        able = " and ".join(key for key, other in FORMATS.items() if other.holds_truth)
        raise UsageError(f"--with-truth: {name} has no place for what the agent could not see; {able} have one")
    least = min_group if min_group is not None else 2 if form.grouped else 1
    filters = replace(filters, min_group=least, needs_reward=form.needs_reward, whole_groups=form.grouped)
    filters.check_names(results.arms, results.tasks)
    dropped: Counter[str] = Counter()
    edition = results.edition
    if form.whole and edition is None:
        raise UsageError(
            f"--format {name} writes runs of an edition of ours; `bakeoff import` makes one of {results.label}"
        )
    groups = [] if form.whole else select(read_rollouts(results, dropped), filters, dropped)
    place = output or (Path() if edition is None else edition.paths.directory) / DIRECTORY / form.file
    experiment = results.label if results.experiment is None else results.experiment.name
    stamp = "" if edition is None else edition.facts()["edition"]
    with _replacing(place, form) as fresh:
        job = Job(
            experiment, stamp, results, filters, groups, fresh, render or form.renders, with_truth, dropped,
        )  # fmt: skip
        form.write(job, form.rows(job))
        written = [group for group in groups if group[0].group in job.kept]
        summary = Exported(
            experiment=experiment,
            edition=stamp,
            format=name,
            output=place,
            rows=job.rows,
            rollouts=job.rollouts,
            groups=len(job.kept),
            equal_groups=sum(len(group) > 1 and len({one.reward for one in group}) == 1 for group in written),
            dropped=dict(sorted(dropped.items())),
            filters={**asdict(filters), "render": render, "with_truth": with_truth},
        )
        if not job.rows:
            raise NothingLeft(summary)
        text = to_json({**asdict(summary), "output": place.name})
        _summary_path(fresh, form).write_text(text + "\n", encoding="utf-8")
    return summary


def _summary_path(place: Path, form: Format) -> Path:
    return place / SUMMARY if form.is_directory else place.with_name(f"{place.name}.{SUMMARY}")


@contextmanager
def _replacing(place: Path, form: Format) -> Iterator[Path]:
    """A path to write to, which replaces `place` when all went well: an export is whole or not there at all.

    Only an export of ours or an empty directory is replaced; anything else is a UsageError.
    """
    if not form.is_directory and place.is_dir():
        raise UsageError(f"--output {place}: is a directory; name a file in it")
    if form.is_directory and place.exists():
        ours = place.is_dir() and ((place / SUMMARY).exists() or not any(place.iterdir()))
        if not ours:
            raise UsageError(f"--output {place}: exists and is not an export of bakeoff; name another directory")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
        fresh = Path(scratch) / place.name
        if form.is_directory:
            fresh.mkdir()
        yield fresh
        # rename(2) replaces a file atomically, but not a directory that has something in it.
        if form.is_directory and place.exists():
            shutil.rmtree(place)
        os.replace(fresh, place)
        if not form.is_directory:
            os.replace(_summary_path(fresh, form), _summary_path(place, form))
