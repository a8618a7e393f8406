"""The page about environments: its code runs as it stands, and its policy learns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world.advance import feature_names

PAGE = Path(__file__).parents[4] / "docs" / "market-environments.md"


@pytest.mark.slow
def test_its_code_runs_and_the_policy_earns_more_in_worlds_it_has_not_seen() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), found)
    after = found["after"]
    assert found["before"].mean() == 0
    assert after.mean() > 4 * after.std() / len(after) ** 0.5
    assert found["world"].agents == [] and found["ended"]


def test_it_names_every_feature() -> None:
    told = set(re.findall(r"`([a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    names = {name.rpartition(".")[2] for name in feature_names(Scenario())}
    assert names <= told
