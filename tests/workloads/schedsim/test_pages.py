"""The report of a scheduling sweep: its pictures, from our own edition, another tool's files, or a table."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.errors import UsageError
from bakeoff.results.importing import identified
from bakeoff.results.sources import open_results
from bakeoff.results.table import Results
from bakeoff.text import number
from bakeoff.web.contents import Contents
from bakeoff.web.figure import Dots, Figure, Panel, Rule
from bakeoff.workloads.schedsim import pages as policies
from bakeoff.workloads.schedsim.sweep_files import read_runs_csv
from support.processes import Lab
from support.reports import parts_of_runs, table_of

SMOKE = Path(__file__).parents[3] / "examples/sweep/smoke.json"
PICTURES = (
    "flow_time_by_policy",
    "makespan_by_policy",
    "cost_by_policy",
    "ablation_deltas_full_flow_time_ratio",
    "ablation_deltas_full_p95_ratio",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The smoke sweep with three seeds, run by the built-in simulator."""
    with Lab(tmp_path_factory.mktemp("sweep")) as lab:
        config = json.loads(SMOKE.read_text())
        config["matrix"]["seeds"] = [1, 2, 3]
        lab.write("smoke.json", json.dumps(config))
        lab.cli("run", "smoke.json", "--out_root", lab.root)
        yield lab


@pytest.fixture(scope="module")
def foreign(lab: Lab) -> Path:
    """The same runs as files alone, one of them failed and one of them without its last seed."""
    home = lab.place / "bench_runs" / "smoke"
    shutil.copytree(lab.directory("smoke") / "runs", home / "runs")
    failed = next((home / "runs").glob("full__wf5__seed2__baseline__*"))
    meta = json.loads((failed / "meta.json").read_text())
    kept = ("run_id", "params", "ablation_name", "ablation_flags", "cmd", "start_time_unix_s", "end_time_unix_s")
    for run in (home / "runs").iterdir():
        told = json.loads((run / "meta.json").read_text())
        (run / "meta.json").write_text(json.dumps({**{name: told[name] for name in kept}, "exit_code": 0}))
    (failed / "meta.json").write_text(json.dumps({**{name: meta[name] for name in kept}, "exit_code": 3}))
    shutil.rmtree(failed / "out")
    return home


@pytest.mark.slow
def test_a_sweep_gets_its_pictures_where_its_users_look_for_them(lab: Lab) -> None:
    lab.look("report", "--exp_dir", lab.root / "smoke")
    report = lab.root / "smoke" / "report"
    for name in PICTURES:
        assert (report / "assets" / f"{name}.svg").read_bytes().startswith(b"<?xml"), name
        assert f'href="assets/{name}.svg"' in (report / "policies.html").read_text()
    front, page = (report / "index.html").read_text(), (report / "policies.html").read_text()
    assert "flow_time_mean_ms, lower is better: every arm minus fifo_cheapest" in front
    assert page.index("Flow time by policy") < page.index("Makespan by policy")
    assert "2 policies (fifo_cheapest, full); 1 scale (workflows=5); 1 ablation (no_hedge)" in page


@pytest.mark.slow
def test_files_of_another_tool_are_enough_and_links_lead_to_them(lab: Lab, foreign: Path) -> None:
    before = sorted(foreign.rglob("*"))
    told = lab.look("report", "--exp_dir", foreign, "--out_dir", lab.place / "report").stdout
    assert "runs=12" in told and sorted(foreign.rglob("*")) == before
    for run, parts in parts_of_runs(lab.place / "report").items():
        if "Files" in parts:
            link = re.search(r'href="([^"]+)/meta.json"', parts["Files"])
            assert link is not None and (lab.place / "report" / link[1]).resolve() == (foreign / "runs" / run).resolve()
    text = (lab.place / "report/index.html").read_text()
    assert "full (1 failed)" in text and "exit code 3" in text and "nothing is known of the code" in text


def read_directory(directory: Path) -> Results:
    return identified(open_results([str(directory)], directory))


@pytest.mark.slow
def test_a_table_of_runs_is_enough_too(lab: Lab, foreign: Path) -> None:
    table = lab.place / "runs.csv"
    lab.look("collect", "--exp_dir", foreign, "--out_csv", table)
    lab.look("report", "--exp_dir", foreign, "--runs_csv", table, "--out_dir", lab.place / "csv")
    recorded = {
        run.run_id: (run.status, number(run.metrics["makespan_p95_ms"]) if "makespan_p95_ms" in run.metrics else "")
        for run in read_directory(foreign).rows
    }
    table = table_of(lab.place / "csv/assets/runs.js")
    assert dict(zip(table["run"], zip(table["status"], table["makespan_p95_ms"], strict=True), strict=True)) == recorded
    (lab.place / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="not a table of a sweep: it has no run_id"):
        read_runs_csv(lab.place / "other.csv", foreign)


@pytest.fixture
def contents(foreign: Path) -> Contents:
    return Contents(replace(read_directory(foreign), label="smoke"))


@pytest.mark.slow
def test_a_failed_run_is_in_no_mean_and_its_seed_in_nobodys(contents: Contents) -> None:
    values = {
        (run.metrics["makespan_p50_ms"], run.arm)
        for run in contents.runs
        if run.seed in (1, 3) and run.status == "succeeded"
    }
    figure = policies.by_policy(contents, "makespan", policies.MAKESPANS)
    panel = _panels(figure)[0]
    labels = [label for _, label in panel.y_ticks or ()]
    assert labels == ["fifo_cheapest", "full (1 failed)"]
    means = [dots.x[0] for dots in panel.marks if isinstance(dots, Dots) and not dots.faint]
    for arm, mean in zip(("fifo_cheapest", "full"), means, strict=True):
        of_arm = [value / 1000 for value, name in values if name == arm]
        assert len(of_arm) == 2 and mean == pytest.approx(sum(of_arm) / 2)
    assert [rule.at for rule in panel.marks if isinstance(rule, Rule)] == [means[0]]
    assert "a seed that some policy lost is left out for all" in figure.caption


def test_an_ablation_is_compared_seed_by_seed_with_full(contents: Contents) -> None:
    p95 = {(run.arm, run.seed): run.metrics["makespan_p95_ms"] for run in contents.runs if run.status == "succeeded"}
    figure = policies.ablations(contents, "p95 makespan", policies.MAKESPANS["p95"])
    assert figure is not None
    (dot,) = [mark for mark in _panels(figure)[0].marks if isinstance(mark, Dots)]
    ratios = [p95["full+no_hedge", seed] / p95["full", seed] for seed in (1, 3)]  # type: ignore[operator]
    assert dot.x[0] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)


def _panels(figure: Figure) -> list[Panel]:
    return [panel for panel in figure.panels if isinstance(panel, Panel)]
