"""What was run, when, by which code and on which machine, and what failed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bakeoff.records.overview import by_arm
from bakeoff.records.run import FAILED, RunRecord
from bakeoff.report.site.contents import Contents
from bakeoff.text import duration, figure, one_line, utc
from bakeoff.version import __version__

MOST_GROUPS = 40
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Failures:
    """Runs that ended with the same words."""

    status: str
    error: str
    arms: tuple[str, ...]
    runs: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ArmLine:
    arm: str
    ablation_of: str
    colour: int
    planned: int
    succeeded: int
    failed: int
    missing: int
    means: tuple[str, ...]


def about(contents: Contents) -> list[tuple[str, str]]:
    """What was run, in a few lines."""
    experiment, tally = contents.experiment, contents.tally
    started = [run.started_at for run in contents.runs if run.started_at is not None]
    ended = [run.ended_at for run in contents.runs if run.ended_at is not None]
    work = sum(run.wall_s or 0.0 for run in contents.runs)
    lines = [
        ("experiment", contents.label),
        ("workload", experiment.workload),
        ("arms", _several(contents.arms)),
        ("tasks", _several(contents.tasks)),
        ("seeds", _seeds(sorted({run.seed for run in contents.runs}))),
        ("rollouts", str(1 + max((run.rollout for run in contents.runs), default=0))),
        ("first run started", utc(min(started, default=None))),
        ("last run ended", utc(max(ended, default=None))),
        ("time in runs", duration(work) if started else "-"),
        ("runs", f"{tally.planned} planned, {tally.succeeded} succeeded, {tally.failed} failed, {tally.missing} missing"),
    ]  # fmt: skip
    return [(name, text) for name, text in lines if (name, text) != ("rollouts", "1")]


def _several(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)}: {', '.join(names[:most])}{more}"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{len(seeds)}: {seeds[0]} to {seeds[-1]}"
    return _several([str(seed) for seed in seeds], 12)


def provenance(contents: Contents) -> list[list[tuple[str, str]]]:
    """One list of facts for each session that ran anything; empty for results from elsewhere."""
    return [_session(session) for session in contents.edition.sessions()]


def _session(session: dict[str, Any]) -> list[tuple[str, str]]:
    origin = session["provenance"]
    git = origin.get("git") or {}
    code = "not in a repository"
    if git.get("commit"):
        dirty = "with uncommitted changes" if git.get("dirty") else "clean"
        code = f"{git['commit'][:12]} on {git.get('branch') or 'no branch'}, {dirty}"
    return [
        ("started", utc(session["started_at"])),
        ("ended", f"{utc(session['seen_at'])}, {session['ended'] or 'still running or lost'}"),
        ("code", code),
        ("host", f"{origin.get('host', '-')}, {origin.get('cores', '?')} cores, {origin.get('platform', '')}"),
        ("Python", f"{origin.get('python', '-')}, bakeoff {origin.get('packages', {}).get('bakeoff', '-')}"),
        ("command line", shlex.join(origin.get("argv", []))),
        ("directory", str(origin.get("cwd", "-"))),
    ]


def failures(contents: Contents) -> list[Failures]:
    """Runs that failed or were lost, by what they said, the most frequent first."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in contents.runs:
        if run.status in (*FAILED, "infra_error", "cancelled"):
            said = one_line(run.error, 300) or f"exit code {run.exit_code}"
            groups.setdefault((run.status, _without_digits(said)), []).append(run)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [_group(status, contents, runs) for (status, _), runs in ordered[:MOST_GROUPS]]


def _without_digits(text: str) -> str:
    """Errors that differ in a number alone are one kind of error."""
    return "".join("0" if letter.isdigit() else letter for letter in text)


def _group(status: str, contents: Contents, runs: list[RunRecord]) -> Failures:
    arms = tuple(dict.fromkeys(run.arm for run in runs))
    said = one_line(runs[0].error, 300) or f"exit code {runs[0].exit_code}"
    return Failures(status, said, arms, tuple(run.run_id for run in runs[:_SHOWN]), len(runs))


def arm_lines(contents: Contents) -> tuple[list[str], list[ArmLine]]:
    """Names of a few metrics, and every arm with its counts and plain means."""
    cost = [contents.cost_metric] if contents.cost_metric else []
    found = by_arm(contents.edition, [*contents.main[:4], *cost])
    names = list(dict.fromkeys(name for arm in found.values() for name in arm.means))
    lines = []
    for arm, means in found.items():
        tally = means.tally
        cells = tuple(figure(means.means[name][0]) if name in means.means else "-" for name in names)
        base = contents.base_of.get(arm, ("", ""))[0]
        lines.append(
            ArmLine(arm, base, contents.colour(arm), tally.planned, tally.succeeded, tally.failed, tally.missing, cells)
        )
    return names, lines


def settings(contents: Contents) -> list[tuple[str, str]]:
    """What the analysis rests on; every output carries it."""
    analysis = contents.analysis.model_dump(exclude_none=True, exclude_defaults=False)
    shown = {name: value for name, value in analysis.items() if value not in ([], None)}
    return [*((name, _plain(value)) for name, value in shown.items()), ("seed", "0"), ("bakeoff", __version__)]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list | tuple):
        return " to ".join(map(_plain, value)) if isinstance(value, tuple) else ", ".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
