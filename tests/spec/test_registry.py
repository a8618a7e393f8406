"""Workloads and dialects by name, and the defaults of a dialect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff import plugins
from bakeoff.errors import UsageError
from bakeoff.spec import registry
from bakeoff.spec.experiment import Analysis
from bakeoff.spec.registry import NATIVE, Dialect


class Shouting(Dialect):
    """Files with a key in capital letters."""

    name = "shouting"

    def recognises(self, tree: Any) -> bool:
        return any(key.isupper() for key in tree)


class Keyed(Dialect):
    """Files with a key that no other tool has."""

    name = "keyed"
    keys = frozenset({"unlocks"})


SHOUTING = Shouting()
KEYED = Keyed()
MODULE = __name__


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, str]]]:
    """Entry points by group, which a test fills in; nothing else is installed."""
    groups: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(plugins, "entry_points", lambda group: groups.get(group, {}))
    caches = (registry.workload, registry.dialect, registry.dialects)
    for cached in caches:
        cached.cache_clear()
    yield groups
    for cached in caches:
        cached.cache_clear()


def test_the_installed_dialects_are_found_and_recognise_their_files() -> None:
    assert {dialect.name for dialect in registry.dialects()} >= {"sweep", "tasks"}
    assert registry.dialect_of({"sim_binary": "x"}).name == "sweep"
    assert registry.dialect_of({"workload": "python"}) is NATIVE is registry.dialect("native")


def test_a_dialect_of_another_package_is_found_by_its_entry_point(installed: dict[str, dict[str, str]]) -> None:
    installed["bakeoff.dialects"] = {"shouting": f"{MODULE}:SHOUTING"}
    assert registry.dialect_of({"NAME": 1}) is SHOUTING is registry.dialect("shouting")
    assert registry.dialect_of({"name": 1}) is NATIVE
    installed["bakeoff.dialects"]["keyed"] = f"{MODULE}:KEYED"
    registry.dialects.cache_clear()
    assert registry.dialect_of({"unlocks": 1, "name": 1}) is KEYED
    assert registry.dialect_of({"NAME": 1}) is SHOUTING and registry.dialect_of({}) is NATIVE


@pytest.mark.parametrize(
    ("tree", "dialect"),
    [
        ({"name": "a", "workload": "python", "tasks": [{"name": "t"}]}, "native"),
        ({"name": "a", "parallel": 2, "seeds": 3}, "native"),
        ({"matrix": {"policy": ["full"]}, "out_root": "x"}, "sweep"),
        ({"name": "a", "parallel": 2, "tasks": []}, "tasks"),
        ({"tasks": [{"name": "t"}, {"prepared_dir": "p"}], "seeds": 2}, "tasks"),
    ],
)
def test_a_file_is_recognised_without_importing_the_models_of_other_dialects(tree: Any, dialect: str) -> None:
    code = f"""
import sys
from bakeoff.spec.registry import dialect_of
print(dialect_of({tree!r}).name)
print(*(name for name in sys.modules if name.startswith("bakeoff.workloads.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, modules = done.stdout.splitlines()
    assert name == dialect
    assert set(modules.split()) == {
        f"bakeoff.workloads.{module}" for module in ("schedsim", "schedsim.dialect", "tasks", "tasks.dialect")
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (f"{MODULE}:Shouting", "is not an instance of bakeoff.spec.registry.Dialect"),
        ("no_such_module:DIALECT", "dialect 'odd' .* cannot be imported: No module named"),
        (f"{MODULE}:NO_SUCH_NAME", "cannot be imported"),
    ],
)
def test_an_entry_point_that_is_no_dialect_is_reported(
    installed: dict[str, dict[str, str]], value: str, message: str
) -> None:
    installed["bakeoff.dialects"] = {"odd": value}
    with pytest.raises(UsageError, match=message):
        registry.dialects()


def test_an_unknown_dialect_or_workload_is_reported_with_what_there_is(installed: dict[str, dict[str, str]]) -> None:
    installed["bakeoff.dialects"] = {"shouting": f"{MODULE}:SHOUTING"}
    installed["bakeoff.workloads"] = {"coin": f"{MODULE}:Shouting"}
    with pytest.raises(UsageError, match="no dialect called 'shoutin'; did you mean 'shouting'"):
        registry.dialect("shoutin")
    with pytest.raises(UsageError, match="no workload called 'x'; known workloads: coin"):
        registry.workload("x")
    with pytest.raises(
        UsageError, match="is not a workload: it needs `kind`, `revision`, `Params` and `run` or `command`"
    ):
        registry.workload("coin")


def test_a_dialect_without_hooks_changes_nothing(tmp_path: Path) -> None:
    params = {"a": 1}
    assert SHOUTING.meta(params, None) is params  # type: ignore[arg-type]
    assert list(SHOUTING.observers(None)) == [] and SHOUTING.table(None) is None
    assert SHOUTING.importer() is None and SHOUTING.table_of_directory(tmp_path) is None
    assert (SHOUTING.live_files, SHOUTING.variables, SHOUTING.analysis) == (False, True, None)
    SHOUTING.after_begin(None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotImplementedError, match="'shouting' does not read files"):
        SHOUTING.plan({}, tmp_path)


@pytest.mark.parametrize("kind", ["gridworld", "language", "market", "schedsim", "tasks"])
def test_every_shipped_workload_says_how_its_runs_are_judged(kind: str) -> None:
    analysis = Analysis.model_validate(registry.workload(kind).analysis)
    assert analysis.metric is not None


def test_a_trader_that_fails_has_lost_its_stake() -> None:
    from bakeoff.workloads.market.world.layout import MICRO, STAKE

    assert registry.workload("market").analysis["failure_score"] == -STAKE / MICRO
