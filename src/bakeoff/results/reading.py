"""The reading line: how runs of another tool were read, in one sentence under every answer.

`importers.assembly` counts, this module makes the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_FIELDS_SHOWN = 4


def reading_line(reading: Mapping[str, Any]) -> str:
    """`read 36 samples x 2 logs of Inspect 0.3.285; arm = task_args.skill; 13 of 72 samples errored (failed)`."""
    unit, total = reading["unit"], reading["runs"]
    logs = _number(reading["logs"], reading["source"])
    many = reading["each"] is not None and reading["logs"] > 1 and reading["each"] > 1
    tools = " and ".join(
        " ".join((tool, " and ".join(versions))).strip() for tool, versions in reading["tools"].items()
    )
    of_tool = f" of {tools}" if tools else ""
    parts = [
        f"read {_number(reading['each'], unit)} x {logs}{of_tool}"
        if many
        else f"read {_number(total, unit)} in {logs}{of_tool}"
    ]
    names = ", ".join(reading["arm_from"])
    parts.append(
        f"arm = {names}{_together(reading.get('together', ()))}"
        if names
        else f"one arm, {reading['arms'][0]!r}: nothing tells the {unit}s apart"
    )
    if errored := reading["failed"] - reading["unscored"]:
        parts.append(f"{errored} of {_number(total, unit)} errored (failed)")
    if reading["unscored"]:
        parts.append(f"{reading['unscored']} of {_number(total, unit)} without an error or a score (failed)")
    if reading["infrastructure"]:
        parts.append(f"{_number(reading['infrastructure'], unit)} matched --infra-error (missing)")
    if missing := reading["missing"] - reading["infrastructure"]:
        parts.append(f"{_number(missing, unit)} missing")
    if reading["scored_with_error"]:
        verb = "has" if reading["scored_with_error"] == 1 else "have"
        parts.append(f"{_number(reading['scored_with_error'], unit)} {verb} an error and a score (scored)")
    if reading["left_out"]:
        parts.append(f"{_number(reading['left_out'], unit)} of older logs left out (--reruns newest)")
    return "; ".join([*parts, *reading["remarks"], *_means_in_words(reading)])


def _together(fields: Sequence[str]) -> str:
    """Return ` (config.temperature differs with it)`: what else could be the reason for a difference between arms."""
    if not fields:
        return ""
    shown = [
        *fields[:MAX_FIELDS_SHOWN],
        *([f"{len(fields) - MAX_FIELDS_SHOWN} more"] * (len(fields) > MAX_FIELDS_SHOWN)),
    ]
    *most, last = shown
    names = f"{', '.join(most)} and {last}" if most else last
    return f" ({names} differ{'s' if len(fields) == 1 else ''} with it)"


def _means_in_words(reading: Mapping[str, Any]) -> list[str]:
    """Say of each metric what the tool's own means are, where ours are others."""
    metrics: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for mean in reading["means"]:
        metrics.setdefault((mean["tool"], mean["metric"]), []).append(mean)
    parts = []
    for (tool, metric), means in metrics.items():
        theirs = _range([mean["value"] for mean in means])
        if all(mean["without_failed"] for mean in means):
            parts.append(f"the {reading['source']}'s own {metric} ({theirs}) leaves them out")
            continue
        ours = [mean["ours"] for mean in means if mean["ours"] is not None]
        beside = f"ours is {_range(ours)}" if ours else "ours is not known"
        parts.append(
            f"{_possessive(tool or 'the tool')} own {metric}{_arm_of(means, reading.get('arm_labels', reading['arm_from']))} is {theirs}, {beside}"
        )
    return parts


def _possessive(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"


def _arm_of(means: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> str:
    """Return ` of careful`, where all means are those of one arm."""
    arms = {", ".join(mean["labels"].get(field, "") for field in fields) for mean in means}
    return f" of {arm}" if len(arms) == 1 and (arm := arms.pop()) else ""


def _range(values: Sequence[float]) -> str:
    texts = list(dict.fromkeys(f"{value:.3g}" for value in sorted(values)))
    return " and ".join(texts) if len(texts) < 3 else f"{texts[0]} to {texts[-1]}"


def _number(number: int, noun: str) -> str:
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"
