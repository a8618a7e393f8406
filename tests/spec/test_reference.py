"""docs/experiment-file.md names every key of every section with its default, and its examples work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bakeoff.spec.experiment import (
    AblationEntry,
    Analysis,
    ArmEntry,
    Budget,
    CellEntry,
    Concurrency,
    ExecutorEntry,
    ExperimentFile,
    Limits,
    Resources,
    Resume,
    Retries,
    Section,
    Sequential,
    Summary,
    TaskEntry,
    parse_size,
)
from bakeoff.spec.formats import read
from bakeoff.spec.load import validate
from bakeoff.spec.select import expression
from bakeoff.workloads.command import CONTEXT, CommandParams
from bakeoff.workloads.metrics import Source
from bakeoff.workloads.python import PythonParams
from bakeoff.workloads.schedsim import sweep_plan as sweep
from bakeoff.workloads.tasks import benchmark
from bakeoff.workloads.tasks.proxy.server import GatewayLimits

PAGE = (Path(__file__).parents[2] / "docs" / "experiment-file.md").read_text(encoding="utf-8")
HEADINGS: dict[type[BaseModel], str] = {
    ExperimentFile: "Top level",
    ArmEntry: "Arms",
    AblationEntry: "Ablations",
    TaskEntry: "Tasks",
    CellEntry: "Cells",
    ExecutorEntry: "Executor",
    Limits: "Limits",
    Resources: "Resources",
    Retries: "Retries",
    Resume: "Resume",
    Concurrency: "Concurrency",
    Budget: "Budget",
    Analysis: "Analysis",
    Summary: "Summary",
    Sequential: "Sequential",
    CommandParams: "The command workload",
    Source: "The command workload",
    PythonParams: "The python workload",
    sweep.Sweep: "The sweep runner",
    sweep.Ablation: "The sweep runner",
    benchmark.Benchmark: "The task benchmark",
    benchmark.Entry: "The task benchmark",
}


def section(heading: str) -> str:
    found = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def shown(default: Any) -> str:
    if default is None:
        return "—"
    if isinstance(default, Section):
        return "`{}`"
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{json.dumps(default)}`"


@pytest.mark.parametrize("model", HEADINGS, ids=lambda model: model.__name__)
def test_every_key_of_every_section_is_in_the_reference_with_its_default(model: type[BaseModel]) -> None:
    text = section(HEADINGS[model])
    for name, field in model.model_fields.items():
        rows = re.findall(rf"^\| `{name}` \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
        assert rows, f"{model.__name__}.{name} is not in the section {HEADINGS[model]!r}"
        wanted = {"needed", "the file's name"} if field.is_required() else {shown(field.default)}
        assert wanted & set(rows), f"{model.__name__}.{name}: {rows} instead of {wanted}"


def test_the_reference_covers_every_section_there_is() -> None:
    assert {model for model in Section.__subclasses__() if model.__module__.startswith("bakeoff.spec.")} <= set(
        HEADINGS
    )


def test_the_reference_names_no_key_that_does_not_exist() -> None:
    known: dict[str, set[str]] = {}
    for model, heading in HEADINGS.items():
        known.setdefault(heading, set()).update(model.model_fields)
    for heading, names in known.items():
        listed = set(re.findall(r"^\| `(\w+)` \|(?:[^|]*\|){3}$", section(heading), re.MULTILINE))
        assert listed <= names


def test_every_limit_of_the_gateway_is_on_its_page_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    table = page.partition("## Limits of the gateway")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    assert {name: parse_size(text.replace(",", "")) for name, text in listed} == GatewayLimits().model_dump()


def test_every_placeholder_and_variable_is_in_the_reference() -> None:
    text = section("The command workload")
    for name, variable in CONTEXT.items():
        assert f"{{{name}}}" in text and variable in text


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_are_valid(block: str) -> None:
    assert validate(read(block, ".toml"), Path("example.toml")).name


@pytest.mark.parametrize("text", re.findall(r"`([^`\n]+)`", section("Rules")))
def test_the_examples_of_expressions_are_valid(text: str) -> None:
    if re.search(r"[=<>]| in ", text) and not text.startswith("=="):
        expression(text, known={"arm", "seed", "lr", "policy", "workflows", "name"})


def test_links_inside_the_page_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
