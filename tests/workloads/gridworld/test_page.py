"""The page about the gridworld: its code runs as it stands, and its table of levels is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bakeoff.workloads.gridworld.levels import LEVELS, Level

PAGE = (Path(__file__).parents[3] / "docs" / "gridworld.md").read_text(encoding="utf-8")


def test_its_code_runs() -> None:
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/gridworld.md", "exec"), found)
    assert found["worlds"].hearts.any() and found["rewards"].shape == (64,)


def test_its_table_has_every_level_as_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)
    table = {name: tuple(cells) for name, *cells in rows if name in LEVELS}
    assert table == {name: described(level) for name, level in LEVELS.items()}


def described(level: Level) -> tuple[str, ...]:
    sides = f"{min(low for low, _ in level.sizes)} to {level.side}"
    return span(level.chain_lengths), span(level.sinks), sides, "none" if len(level.terrains) == 1 else "all"


def span(values: tuple[int, ...]) -> str:
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else str(values[0])
