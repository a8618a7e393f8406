"""The market workload in an experiment: paired worlds, series, trajectories, files, failures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import bakeoff
from bakeoff.errors import SpecError, UsageError
from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import read_trajectory
from bakeoff.spec.load import load_plan
from bakeoff.workloads.market.workload import MarketParams, MarketWorkload

EXAMPLES = Path(__file__).parents[3] / "examples"
HEAD = """
name = "markets"
workload = "market"
seeds = 2
[params]
duration_minutes = 10
markets = 3
perpetuals = 2
agents = 4
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAKEOFF_ROOT", raising=False)


def experiment(text: str) -> bakeoff.Experiment:
    Path("markets.toml").write_text(HEAD + text)
    return bakeoff.load("markets.toml")


ARMS = """
save_trajectories = true
outputs = true
[[arms]]
name = "calm"
params.agent = "null"
[[arms]]
name = "busy"
params.agent = "random"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> bakeoff.Experiment:
    place = tmp_path_factory.mktemp("markets")
    (place / "markets.toml").write_text(HEAD + ARMS)
    found = bakeoff.load(place / "markets.toml", root=place / "runs")
    assert found.run(jobs=1).statuses == {"succeeded": 4}
    return found


@pytest.mark.slow
def test_a_run_leaves_series_trajectory_and_files_and_the_truth_apart(ran: bakeoff.Experiment) -> None:
    run = next(each for each in (ran.edition.directory / "runs").iterdir() if each.name.startswith("busy"))
    equity = list(csv.DictReader((run / "out" / "equity.csv").read_text().splitlines()))
    assert [int(row["tick"]) for row in equity] == list(range(11)) and float(equity[0]["equity"]) == 10_000
    metrics = json.loads((run / "out" / "metrics.json").read_text())
    assert metrics["money"]["total_pnl"] == pytest.approx(float(equity[-1]["equity"]) - 10_000)
    steps = list(read_trajectory(run / FILE))
    assert len(steps) == 10 and sum(step.reward or 0 for step in steps) == pytest.approx(metrics["money"]["total_pnl"])
    assert all(step.truth is None for step in steps[:-1]) and set(steps[-1].truth) >= {"prices", "stories", "questions"}
    hidden = json.loads((run / "out" / "truth.json").read_text())
    assert hidden == steps[-1].truth
    seen = "".join((run / "out" / name).read_text() for name in ("actions.csv", "prices.csv", "posts.csv"))
    assert "theta" not in seen and "theta" in json.dumps(hidden)


@pytest.mark.slow
def test_arms_meet_the_same_worlds_and_repeats_come_out_the_same(ran: bakeoff.Experiment) -> None:
    table = ran.table()
    for seed in (0, 1):
        reference = table.filter(table["seed"] == seed)["bayes_pnl"].to_list()
        assert reference[0] == reference[1]
    assert ran.run(jobs=1, fresh=True).statuses["succeeded"] == 4
    again = ran.table()
    assert again.sort("run_id")["total_pnl"].to_list() == table.sort("run_id")["total_pnl"].to_list()
    assert table.filter(table["arm"] == "busy")["total_pnl"].n_unique() == 2


@pytest.mark.slow
def test_agents_of_one_s_own_see_nothing_hidden_and_one_that_cannot_start_is_a_failed_run() -> None:
    Path("own.py").write_text(
        "class Nosy:\n"
        "    name, needs = 'nosy', 'truth'\n"
        "    def reset(self, brief): assert brief.truth is None and brief.model is None\n"
        "    def act(self, seat): seat.post('still here')\n"
        "class Broken(Nosy):\n"
        "    def reset(self, brief): raise ValueError('no idea')\n"
        "class Clumsy(Nosy):\n"
        "    def act(self, seat): raise ValueError('every time')\n"
        "class Hasty(Nosy):\n"
        "    def act(self, seat):\n"
        "        seat.post('first')\n"
        "        raise ValueError('and then it falls')\n"
    )
    arms = "".join(
        f'[[arms]]\nname = "{cls}"\nparams.agent = "own.py:{cls}"\n' for cls in ("Nosy", "Broken", "Clumsy", "Hasty")
    )
    ran = experiment(arms)
    assert ran.run(jobs=1).statuses == {"succeeded": 4, "failed": 4}
    table = ran.table()
    assert table.filter(table["arm"] == "Nosy")["posts"].to_list() == [10, 10]
    assert "no idea" in table.filter(table["arm"] == "Broken")["error"][0]
    assert "every time" in table.filter(table["arm"] == "Clumsy")["error"][0]
    assert table.filter(table["arm"] == "Hasty")["no_ops"].to_list() == [10, 10]


@pytest.mark.parametrize(
    ("agent", "told"),
    [("momentun", "did you mean 'momentum'"), ("policy:absent.json", "there is no file .*absent.json")],
)
def test_an_agent_that_is_not_there_is_told_before_anything_runs(agent: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        experiment(f'agent = "{agent}"\n').run()
    assert not Path("bakeoff-runs").exists()


def test_a_benchmark_file_that_is_not_there_is_told_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="benchmark: there is no file"):
        MarketWorkload().check(MarketParams(benchmark="gone.json"), Path.cwd())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("markets = 0\nperpetuals = 0", "nothing to trade"),
        ('regime = "sunny"', "regime"),
        ("response_timeout = 0", "response_timeout"),
        ('benchmark = "x.json"\nmarkets = 7', "brings its own scenario"),
        ("sharks = 3", "sharks"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_before_anything_runs(line: str, told: str) -> None:
    Path("bad.toml").write_text(f'workload = "market"\n[params]\n{line}\n')
    with pytest.raises(SpecError, match=told):
        load_plan(Path("bad.toml"))


def test_the_example_is_a_plan_with_every_baseline_in_every_regime() -> None:
    plan = load_plan(EXAMPLES / "market.toml")
    assert len(plan.arms) == 9 and len(plan.tasks) == 6
    assert len(plan) == 9 * 6 * 6


def test_defaults_are_the_ones_of_the_world() -> None:
    found = MarketParams()
    assert (found.duration_minutes, found.tick_interval, found.markets, found.perpetuals, found.agents) == (
        30,
        60,
        5,
        3,
        8,
    )
