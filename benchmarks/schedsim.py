"""How fast the scheduling simulator is: events per second against the same model in SimPy, and how its cost grows."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

from measure import Options, check, in_turns, machine, options, publish, say, versions, workspace

sys.path.insert(0, str(Path(__file__).parent / "peers"))
SEED = 1
METHOD = (
    "Same world, same draws, same event count on both sides, and the two must end every workflow at the same microsecond, or "
    "nothing is reported. Policy fifo_cheapest with routing, the default 100 workflows. Events: a node became ready, an attempt "
    "started, an attempt ended. Processor time of run() alone, best of the rounds, in turns, garbage of the round before "
    "collected. Growth: processor time per workflow, one seed each, over three orders of magnitude; `full` is the dearest of "
    "the original policies to decide."
)


def model(workflows: int) -> Any:
    from bakeoff.workloads.schedsim.draws import load_tables
    from bakeoff.workloads.schedsim.engine import Model
    from bakeoff.workloads.schedsim.world import shape

    return Model(shape(10, 4), load_tables(), workflows=workflows, seed=SEED)


def simulated(workflows: int, policy: str = "fifo_cheapest") -> tuple[float, Any]:
    """Seconds of processor time, and the finished simulation."""
    import gc

    from bakeoff.workloads.schedsim.engine import Engine
    from bakeoff.workloads.schedsim.policies import Options as Choices
    from bakeoff.workloads.schedsim.policies import policy_class

    sim = Engine(model(workflows), policy_class(policy)(Choices()))
    gc.collect()
    began = time.process_time()
    sim.run()
    return time.process_time() - began, sim


def in_simpy(workflows: int) -> tuple[float, Any]:
    import gc

    from simpy_schedsim import SimpyModel

    sim = SimpyModel(model(workflows))
    gc.collect()
    began = time.process_time()
    sim.run()
    return time.process_time() - began, sim


def against_simpy(given: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    workflows, rounds, patience = (20, 2, 0.0) if given.quick else (100, 20, 3.0)
    made: dict[str, Any] = {}

    def ours() -> float:
        took, made["ours"] = simulated(workflows)
        return took

    def theirs() -> float:
        took, made["theirs"] = in_simpy(workflows)
        return took

    times = in_turns({"bakeoff": ours, "SimPy": theirs}, rounds, patience)
    best = {name: turns.best for name, turns in times.items()}
    same = made["theirs"].finished == {workflow.number: workflow.finished for workflow in made["ours"].done}
    if not same or made["theirs"].events != made["ours"].happened:
        raise SystemExit("the two sides simulated different things")
    events = made["ours"].happened
    rates = {name: events / seconds for name, seconds in best.items()}
    line = check(
        f"scheduling simulator, {workflows} workflows: events/s against the same model in SimPy",
        f"{rates['bakeoff']:,.0f}/s", f"{rates['SimPy']:,.0f}/s", rates["bakeoff"] / rates["SimPy"], 7,
    )  # fmt: skip
    return line, {"events": events, "events_per_s": rates, "times": times}


def growth(given: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    sizes = (10, 100) if given.quick else (10, 100, 1_000, 10_000)
    each: dict[str, dict[int, float]] = {}
    for policy in ("fifo_cheapest", "full", "restart_stragglers"):
        each[policy] = {}
        for size in sizes:
            took = min(simulated(size, policy)[0] for _ in range(3 if size <= 100 else 1))
            each[policy][size] = 1000 * took / size
            say(f"  {policy}, {size} workflows: {each[policy][size]:.3g} ms each")
    worst = max(figures[sizes[-1]] / figures[sizes[0]] for figures in each.values())
    line = check(
        f"scheduling simulator: time per workflow at {sizes[-1]:,} over that at {sizes[0]}, worst of three policies",
        f"{each['full'][sizes[-1]]:.3g} ms (full)", f"{each['full'][sizes[0]]:.3g} ms (full)", worst, 2, "under",
    )  # fmt: skip
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return line, {"ms_per_workflow": each, "peak_memory_mb": memory}


def main() -> None:
    given = options(__doc__ or "")
    with workspace() as directory:
        facts = machine(directory)
    speed, rates = against_simpy(given)
    near_linear, costs = growth(given)
    publish(
        "schedsim", given, [speed, near_linear], {**rates, **costs},
        method=METHOD, facts=facts, programs=versions("simpy", "numpy"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
