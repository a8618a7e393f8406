"""Reward files as Harbor tasks leave them: `reward.json` (a flat table of numbers), else `reward.txt` (one number)."""

from __future__ import annotations

import json
import math
from pathlib import Path

LONGEST = 1 << 20


class NoReward(Exception):
    """Missing, empty or not readable. The verifier broke; the agent did not score 0."""


def read_rewards(folder: Path) -> dict[str, float]:
    """From the directory that was `/logs/verifier` in the box."""
    for name, read in (("reward.json", _table), ("reward.txt", _number)):
        file = folder / name
        if file.is_symlink() or not file.is_file():
            continue
        if file.stat().st_size > LONGEST:
            raise NoReward(f"{name} is longer than {LONGEST} bytes")
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        if not text:
            raise NoReward(f"{name} is empty")
        return read(text)
    raise NoReward("the tests left neither reward.json nor reward.txt in /logs/verifier")


def _table(text: str) -> dict[str, float]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoReward(f"reward.json is not valid JSON: {error}") from error
    if not isinstance(tree, dict) or not tree:
        raise NoReward('reward.json has to be a table of numbers, such as {"reward": 1.0}')
    return {str(name): _finite(value, f"reward.json: {name}") for name, value in tree.items()}


def _number(text: str) -> dict[str, float]:
    try:
        return {"reward": _finite(float(text), "reward.txt")}
    except ValueError as error:
        raise NoReward(f"reward.txt holds {text[:60]!r}, which is no number") from error


def _finite(value: object, where: str) -> float:
    try:
        number = float(value) if isinstance(value, bool | int | float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise NoReward(f"{where} is {str(value)[:60]!r}, which is no finite number")
    return number
