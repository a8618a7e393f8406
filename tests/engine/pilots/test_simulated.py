"""Whatever happens to nodes and to the scheduler, every run is recorded once: a simulated cluster in virtual time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.engine.session import Options, open_session
from bakeoff.spec.load import load_plan
from support.simulated_cluster import Clock, Cluster, Fault, Killed, executor_of, scheduler_of, virtual_time

HOSTS, PILOTS, RUNS = 6, 5, 60

FAULTS = st.builds(
    Fault,
    at=st.floats(2, 60),
    kind=st.sampled_from(["crash", "cut", "stall", "leave", "drop"]),
    host=st.integers(0, HOSTS - 1),
    seconds=st.sampled_from([5.0, 15.0, 25.0, 45.0]),
)


def simulated(place: Path, cluster: Cluster, clock: Clock) -> None:
    """Do all runs, with another scheduler for each one that is killed, and check what is recorded."""
    file = place / "trial.toml"
    file.write_text(
        f'workload = "command"\nseeds = {RUNS}\nparams = {{ command = "true" }}\nretries = {{ lost = 100 }}\n'
    )
    with virtual_time(clock):
        while True:
            with closing(open_session(load_plan(file), Options(place / "results"))) as session:
                executor = executor_of(session, cluster, PILOTS)
                try:
                    summary = scheduler_of(session, executor).run()
                except Killed:
                    clock.sleep(3.0)
                    continue
                cluster.kills.clear()
                executor.close()
                assert summary.stopped is None
                cluster.check(session.edition, sorted(executor._fleet.left_out))
                return


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    faults=st.lists(FAULTS, max_size=8),
    bad=st.sampled_from([(), (HOSTS - 1,)]),
    kills=st.lists(st.floats(1, 70), max_size=2),
    seed=st.integers(0, 1000),
)
def test_every_run_is_recorded_once_and_only_what_was_lost_is_tried_again(
    faults: list[Fault], bad: tuple[int, ...], kills: list[float], seed: int
) -> None:
    clock = Clock()
    cluster = Cluster(
        clock, hosts=HOSTS, slots=2, mean=6.0, faults=faults, bad=bad, slow=3, twice=4, startup=5.0, seed=seed, keeps=True
    )  # fmt: skip
    cluster.kills = sorted(kills, reverse=True)
    with TemporaryDirectory() as place:
        simulated(Path(place), cluster, clock)
    assert not faults or cluster.executed >= RUNS


@pytest.mark.slow
def test_the_model_does_what_it_is_asked_to(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    faults = [Fault(15.0, "crash", 0), Fault(15.0, "stall", 1, 45.0), Fault(16.0, "leave", 2), Fault(17.0, "drop", 3)]
    clock = Clock()
    cluster = Cluster(
        clock, hosts=HOSTS, slots=2, mean=20.0, faults=faults, twice=4, startup=5.0, keeps=True
    )  # fmt: skip
    cluster.kills = [12.0]
    simulated(tmp_path, cluster, clock)
    assert cluster.happened == {"crash": 1, "stall": 1, "leave": 1, "drop": 1} and cluster.kills == []
    assert cluster.losses >= 4 and cluster.returned > 0
    assert cluster.executed > RUNS, "what stood still was done once more, and its late reports were dropped"
