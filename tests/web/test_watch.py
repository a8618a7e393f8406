"""What a viewer knows of an edition is what is on record, however the runs change, and it reads only what changed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.records import layout
from bakeoff.records.edition import Edition
from bakeoff.records.run import by_arm, failure_groups
from bakeoff.records.store import URL_VARIABLE
from bakeoff.spec.workload import FINISHED
from bakeoff.web.live.rows import Query, RunTable, View
from bakeoff.web.live.watch import LOST, Watch
from support.editions import SETTINGS, make_plan

QUERIES = [
    Query(), Query(status="failed"), Query(sort="score"), Query(sort="-score", status="succeeded"),
    Query(sort="-status"), Query(text="s1 ran", sort="error"), Query(sort="-time"), Query(sort="arm", text="lr"),
]  # fmt: skip
OUTCOMES = ("succeeded", "failed", "timeout", "infra_error", "cancelled")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.apt)])
def edition(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edition]:
    """Planned, with a session that has begun."""
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    if request.param == "postgres":
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url")())
    plan = make_plan(seeds=6)
    paths = layout.new_edition(layout.experiment_directory(tmp_path / "root", plan.experiment.name))
    paths.lease.touch()
    edition = Edition.create(plan, paths)
    edition.add_cells(plan.cells, SETTINGS)
    edition.add_runs(plan)
    edition.begin_session({"host": "here"}, edition.planned())
    yield edition
    edition.close()


def change(edition: Edition, chance: random.Random) -> None:
    """One of the things that a scheduler does, to some runs."""
    runs = list(edition.runs())
    some = chance.sample(runs, min(3, len(runs)))
    began, ended = (
        100.0 + chance.random(),
        chance.choice([200.0, time.time() + 100.0]),
    )  # in an earlier session, or in this
    match chance.randrange(5):
        case 0:
            edition.beat(1, [run.next_attempt(started_at=began) for run in some])
        case 1:
            edition.discard([(edition.edition_id, run.position) for run in some])
        case 2:
            edition.withdraw_runs([runs[-1].position])
        case 3:
            plan = make_plan(seeds=6 + edition.end_of_plan() // 2)
            edition.add_runs(plan)
        case _:
            edition.finish(
                [
                    run.next_attempt(
                        status=(status := chance.choice(OUTCOMES)), started_at=began, ended_at=ended,
                        error=None if status == "succeeded" else f"ran out of {chance.choice('ab')} at {run.position}",
                        metrics={"score": chance.choice([1.5, -2.0, 7.25])} if status == "succeeded" else {},
                    )
                    for run in some
                ],
                1,
            )  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_counts_means_failures_and_every_view_are_those_of_the_records(edition: Edition, seed: int) -> None:
    chance = random.Random(seed)
    with Watch(edition.paths) as watch:
        for query in QUERIES:
            watch.table.view(query)
        for _ in range(40):
            change(edition, chance)
            edition.beat(1, [])
            assert watch.refresh(0.0)
            runs = list(edition.runs())
            assert watch.table.rows == runs
            assert +watch.counts == Counter(edition.counts())
            assert set(watch.running) == {run.position for run in runs if run.status == "running"}
            known = {arm: facts for arm, facts in watch.means().items() if facts.tally.planned}
            for arm, facts in by_arm(runs, []).items():
                assert known[arm].tally == facts.tally
                assert known[arm].means == facts.means
            assert watch.session is not None
            now = watch.progress(watch.session[2] + 10.0)
            here = [run for run in runs if run.status in FINISHED and (run.ended_at or 0.0) > 1000.0]
            assert (now.per_second or 0.0) * (now.elapsed or 0.0) == pytest.approx(len(here))
            groups = {(group.status, len(group.runs)) for group in watch.list_failures(99)}
            assert groups == {(group.status, len(group.runs)) for group in failure_groups(runs, LOST)}
            for query in QUERIES:
                view = watch.table.view(query)
                assert view.window(0, 200) == View(RunTable(runs), query).window(0, 200), query
        assert not watch.refresh(0.0), "nothing was written since"


def test_an_update_reads_the_runs_that_changed_and_no_others(edition: Edition, monkeypatch: pytest.MonkeyPatch) -> None:
    with Watch(edition.paths) as watch:
        read: list[int] = []
        take = watch._take
        monkeypatch.setattr(watch, "_take", lambda run: (read.append(run.position), take(run)))
        edition.finish([edition.run(5).next_attempt(status="succeeded", started_at=1.0, ended_at=2.0)], 1)
        edition.beat(1, [edition.run(2).next_attempt(started_at=1.0)])
        watch.refresh(0.0)
        assert sorted(read) == [2, 5]


def test_the_time_left_follows_the_pace_of_this_session(edition: Edition) -> None:
    with Watch(edition.paths) as watch:
        assert watch.session is not None
        began = watch.session[1]
        assert watch.progress(began + 10.0).left is None, "nothing has ended"
        times = {"started_at": began + 1.0, "ended_at": began + 2.0}
        edition.finish([edition.run(at).next_attempt(status="succeeded", **times) for at in range(3)], 1)
        watch.refresh(began + 6.0)
        with closing(layout.Lease(edition.paths.lease)):
            now = watch.progress(began + 60.0)
        assert (now.state, now.ended, now.per_second) == ("running", 3, pytest.approx(3 / 60))
        assert now.left == pytest.approx((edition.planned() - 3) * 20.0)
        edition.end_session(1, "interrupted")
        watch.refresh(began + 120.0)
        now = watch.progress(began + 120.0)
        assert now.state == "unfinished" and now.left is None, "nobody works on it"


def test_numbers_stand_before_text_and_runs_without_a_value_are_last_whichever_way() -> None:
    from bakeoff.results.table import Row

    values = [2.0, None, 10, "ab", float("nan"), "abc", -1.5]
    rows = [Row("a", run_id=str(at), metrics={} if v is None else {"x": v}) for at, v in enumerate(values)]
    table = RunTable(rows)
    ascending = [row.run_id for row in table.view(Query(sort="x")).window(0, 9)]
    descending = [row.run_id for row in table.view(Query(sort="-x")).window(0, 9)]
    assert ascending == ["6", "0", "2", "3", "5", "1", "4"]
    assert descending == ["2", "0", "6", "5", "3", "1", "4"]
