"""Select rollouts, write them in one format, and say what was written and what was not, and why."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.interop.export.forms import FORMS, Form
from bakeoff.interop.export.job import Job, to_json
from bakeoff.interop.export.rollouts import Rollout, read_rollouts
from bakeoff.interop.export.selection import Filters, check_names, select
from bakeoff.records.edition import Edition
from bakeoff.version import __version__

DIRECTORY = "export"
SUMMARY = "export.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """What `--json` prints, and what lies beside the data as `export.json`."""

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


def export(
    edition: Edition,
    name: str,
    filters: Filters,
    *,
    min_group: int | None = None,
    render: bool = False,
    with_truth: bool = False,
    output: Path | None = None,
) -> Summary:
    """`min_group` is 2 where one rollout is no group, and 1 elsewhere. What was at `output` is replaced."""
    form = FORMS[name]
    if with_truth and not form.holds_truth:
        able = " and ".join(key for key, one in FORMS.items() if one.holds_truth)
        raise UsageError(f"--with-truth: {name} has no place for what the agent could not see; {able} have one")
    least = min_group if min_group is not None else 2 if form.grouped else 1
    filters = replace(filters, min_group=least, needs_reward=form.needs_reward, whole_groups=form.grouped)
    cells, facts = edition.cells(), edition.facts()
    check_names(filters, (cell.arm for cell in cells), (cell.task for cell in cells))
    dropped: Counter[str] = Counter()
    groups = select(read_rollouts(edition, dropped), filters, dropped)
    place = output or edition.paths.directory / DIRECTORY / form.file
    with _fresh(place, form) as fresh:
        job = Job(facts["experiment"], facts["edition"], groups, fresh, render, with_truth, dropped)
        form.write(job)
        summary = Summary(
            experiment=facts["experiment"],
            edition=facts["edition"],
            format=name,
            output=place,
            rows=job.rows,
            rollouts=job.rollouts,
            groups=len(job.kept),
            equal_groups=sum(_equal(group) for group in groups if group[0].group in job.kept),
            dropped=dict(sorted(dropped.items())),
            filters={**asdict(filters), "render": render, "with_truth": with_truth},
        )
        if not job.rows:
            raise NothingLeft(summary)
        _beside(fresh, form).write_text(to_json({**asdict(summary), "output": place.name}) + "\n", encoding="utf-8")
    return summary


class NothingLeft(Exception):
    """No rollout passed the filters; nothing was written, and an earlier export is left as it was."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(summary)
        self.summary = summary


def _equal(group: Sequence[Rollout]) -> bool:
    return len(group) > 1 and len({rollout.reward for rollout in group}) == 1


def _beside(place: Path, form: Form) -> Path:
    return place.with_name(f"{place.name}.{SUMMARY}") if Path(form.file).suffix else place / SUMMARY


@contextmanager
def _fresh(place: Path, form: Form) -> Iterator[Path]:
    """A path to write to that takes the place of `place` when all went well: whole or not at all."""
    directory = not Path(form.file).suffix
    _check(place, directory)
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{os.getpid()}-{place.name}")
    try:
        if directory:
            fresh.mkdir()
        yield fresh
        if directory and place.exists():
            shutil.rmtree(place)
        os.replace(fresh, place)
        if not directory:
            os.replace(_beside(fresh, form), _beside(place, form))
    finally:
        if directory:
            shutil.rmtree(fresh, ignore_errors=True)
        else:
            fresh.unlink(missing_ok=True)
            _beside(fresh, form).unlink(missing_ok=True)


def _check(place: Path, directory: bool) -> None:
    if not directory and place.is_dir():
        raise UsageError(f"--output {place}: is a directory; name a file in it")
    if directory and place.exists():
        ours = place.is_dir() and ((place / SUMMARY).exists() or not any(place.iterdir()))
        if not ours:
            raise UsageError(f"--output {place}: exists and holds no export of ours; name another directory")
