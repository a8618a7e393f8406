"""The files of a run: names, columns, numbers, traces; and the same bytes every time."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bakeoff.workloads.schedsim import outputs
from bakeoff.workloads.schedsim.policies import POLICIES
from workloads.schedsim.simulated import HARSH, run


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_columns_begin_with_the_known_ones_and_every_one_is_filled(tmp_path: Path) -> None:
    sim = run(policy="full", workflows=30, pdfs=10, subqueries=4)
    made = outputs.write(sim, tmp_path, "both")
    first = {
        "summary": "makespan_mean_ms,makespan_p50_ms,makespan_p95_ms,makespan_p99_ms,cost_mean,cost_p50",
        "workflows": "workflow_id,makespan_ms,cost,retries,cancellations,hedges_launched,wasted_ms",
        "tiers": "provider,tier_id,utilization,queue_wait_p95_ms,in_flight_avg",
    }
    for name, columns in first.items():
        header = made[name].read_text().splitlines()[0]
        assert header.startswith(f"{columns},")
        assert all(value != "" for row in table(made[name]) for value in row.values())
    workflows = table(made["workflows"])
    for column in ("retries", "cancellations", "hedges_launched", "wasted_ms"):
        assert any(float(row[column]) > 0 for row in workflows), column
    tiers = table(made["tiers"])
    assert [(row["provider"], row["tier_id"]) for row in tiers] == [
        ("embed_provider", "0"), ("embed_provider", "1"), ("llm_provider", "0"), ("llm_provider", "1"),
    ]  # fmt: skip
    for row in tiers:
        assert 0 < float(row["utilization"]) <= 1 and float(row["in_flight_avg"]) > 0
    assert float(tiers[2]["queue_wait_p95_ms"]) != 50


def test_the_summary_is_what_the_workflows_say(tmp_path: Path) -> None:
    made = outputs.write(run(policy="full", workflows=25), tmp_path, "none")
    (row,) = table(made["summary"])
    workflows = table(made["workflows"])
    for column, of in (("makespan", "makespan_ms"), ("flow_time", "flow_time_ms")):
        values = [float(workflow[of]) for workflow in workflows]
        assert float(row[f"{column}_mean_ms"]) == pytest.approx(np.mean(values), abs=1e-3)
        for share in (50, 95, 99):
            assert float(row[f"{column}_p{share}_ms"]) == pytest.approx(np.percentile(values, share), abs=1.1e-3)
    assert float(row["cost_mean"]) == pytest.approx(np.mean([float(w["cost"]) for w in workflows]), abs=1e-6)
    ends = [float(workflow["flow_time_ms"]) for workflow in workflows]
    assert ends == sorted(ends) and float(row["total_time_ms"]) == ends[-1]
    assert "trace" not in made


def test_failed_workflows_have_a_status_and_are_counted_apart(tmp_path: Path) -> None:
    made = outputs.write(run(tiers=str(HARSH), workflows=30, seed=5), tmp_path, "none")
    statuses = Counter(row["status"] for row in table(made["workflows"]))
    (row,) = table(made["summary"])
    assert statuses["failed"] == int(row["workflows_failed"]) > 0
    assert statuses["succeeded"] == int(row["workflows_succeeded"]) > 0


def test_a_trace_is_json_with_virtual_time_attempt_tier_type_and_duration(tmp_path: Path) -> None:
    sim = run(policy="full", workflows=20, pdfs=10, subqueries=4)
    events = json.loads(outputs.write(sim, tmp_path, "json")["trace"].read_text())
    assert {event["ev"] for event in events} == {
        "NodeRunnable", "AttemptStart", "AttemptFinish", "AttemptFail", "AttemptCancel", "HedgeLaunched", "WorkflowDone",
    }  # fmt: skip
    assert [event["t_ms"] for event in events] == sorted(event["t_ms"] for event in events)
    starts = {}
    for event in events:
        key = (event["wf"], event["node"], event.get("attempt"))
        if event["ev"] == "AttemptStart":
            starts[key] = event
        elif event["ev"] in ("AttemptFinish", "AttemptFail", "AttemptCancel"):
            began = starts.pop(key)
            assert event["tier"] == began["tier"] and event["type"] == began["type"]
            assert event["t_ms"] - event["dur_ms"] == pytest.approx(began["t_ms"], abs=2e-3)
    assert not starts
    assert {event["tier"] for event in events if "tier" in event} == {
        "cpu", "io", "embed_provider_0", "embed_provider_1", "llm_provider_0", "llm_provider_1",
    }  # fmt: skip


def test_the_timeline_is_a_chrome_trace_in_which_no_two_attempts_overlap(tmp_path: Path) -> None:
    sim = run(policy="restart_stragglers", workflows=10)
    made = outputs.write(sim, tmp_path, "chrome")
    assert "trace" not in made and made["perfetto"].name == "trace.perfetto.json"
    trace = json.loads(made["perfetto"].read_text())
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert "workflows" in names.values() and "llm_provider_1" in names.values()
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    capacity = {s.name if s.local else s.label: s.capacity for queue in sim.queues for s in queue.slots}
    for (group, slot), spans in tracks.items():
        assert slot <= capacity.get(names[group], 10)
        ordered = sorted(spans)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))
    starts = sum(slots.calls for queue in sim.queues for slots in queue.slots)
    assert sum(map(len, tracks.values())) == starts + 10


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_arguments_give_the_same_bytes(policy: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        outputs.write(run(policy=policy, workflows=6), tmp_path / name, "both")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["summary.csv", "tiers.csv", "trace.json", "trace.perfetto.json", "workflows.csv"]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)


PINNED = {
    ("fifo_cheapest", None): (485326.652, 21.771, 0.0, 17196),
    ("fifo_cheapest", HARSH): (371001.82, 19.1408, 65635.989, 16251),
    ("dag_cheapest", None): (485326.652, 21.771, 0.0, 17196),
    ("dag_cheapest", HARSH): (370999.846, 19.1408, 65635.989, 16251),
    ("dag_escalation", None): (149598.649, 79.5936, 0.0, 17190),
    ("dag_escalation", HARSH): (197913.237, 63.8792, 92151.214, 16749),
    ("full", None): (121833.402, 80.5313, 178252.888, 17257),
    ("full", HARSH): (197913.237, 63.8792, 92151.214, 16749),
    ("critical_path", None): (677692.343, 21.771, 0.0, 17196),
    ("critical_path", HARSH): (458017.373, 18.731, 14781.211, 16164),
    ("restart_stragglers", None): (116684.214, 80.4743, 531038.482, 17461),
    ("restart_stragglers", HARSH): (198172.756, 63.5934, 431457.85, 16922),
}
"""Mean flow time, cost, wasted time and events, by policy and tables."""


@pytest.mark.parametrize(("policy", "tiers"), PINNED)
def test_results_do_not_change_by_accident(policy: str, tiers: Path | None) -> None:
    """If this fails because the model was meant to change, raise the workload's revision together with the figures."""
    sim = run(policy=policy, tiers=tiers and str(tiers), workflows=50, pdfs=10, subqueries=4, trace=False)
    figures = outputs.summary(sim)
    names = ("flow_time_mean_ms", "cost_total", "wasted_ms", "events")
    assert tuple(figures[name] for name in names) == PINNED[policy, tiers]


@pytest.mark.parametrize("count", [1, 2, 5, 20, 101])
def test_quantiles_interpolate_between_order_statistics(count: int) -> None:
    values = sorted(np.random.default_rng(count).lognormal(size=count).tolist())
    for share in (0.0, 0.5, 0.95, 0.99, 1.0):
        assert outputs.quantile(values, share) == pytest.approx(np.quantile(values, share))
