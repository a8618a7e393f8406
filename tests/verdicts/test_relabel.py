"""Relabelled experiments are judged as `compare` judges a table with those labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.designs import Design, Rule, build_design
from bakeoff.verdicts.designs.crossed import Crossed
from bakeoff.verdicts.designs.fixed import FixedRollouts, FixedSeeds
from bakeoff.verdicts.designs.replicates import Level, Pairs, Samples
from bakeoff.verdicts.designs.rollouts import Rollouts
from bakeoff.verdicts.designs.seeds import Seeds
from bakeoff.verdicts.designs.tasks import Tasks
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.questions.relabel import DesignFamily, exchange

TASKS, SEEDS, SHOWN = 8, 4, 6
DESIGNS: list[tuple[type[Design], dict[str, str], int, bool]] = [
    (Seeds, {}, 1, True),
    (Tasks, {"tasks": "sample"}, TASKS, True),
    (Crossed, {"tasks": "sample", "seeds": "crossed"}, TASKS, True),
    (FixedSeeds, {"tasks": "fixed"}, TASKS, True),
    (Seeds, {"tasks": "fixed", "seeds": "crossed"}, TASKS, True),
    (FixedRollouts, {"tasks": "fixed"}, TASKS, False),
    (Rollouts, {}, 1, False),
]


def observations(declared: dict[str, str], tasks: int, shared: bool, values: np.ndarray | None = None) -> Observations:
    """Values by (arm, task, seed or rollout); seeds are shared or not."""
    rng = np.random.default_rng(7)
    each = values if values is not None else rng.normal(size=(2, tasks, SEEDS if tasks > 1 else 9)) * 1.5
    rows = [
        Observation(
            arm, f"t{t}" if tasks > 1 else "default", k if shared else None, 0 if shared else k, "scored", float(v)
        )
        for a, arm in enumerate("AB")
        for (t, k), v in np.ndenumerate(each[a])
    ]
    return Observations("score", rows, Analysis(**declared))


@pytest.mark.parametrize(("kind", "declared", "tasks", "shared"), DESIGNS)
def test_every_design_gets_the_verdict_of_its_relabelled_table(
    kind: type[Design], declared: dict[str, str], tasks: int, shared: bool
) -> None:
    table = observations(declared, tasks, shared)
    design = build_design(table, "A", "B")
    assert type(design) is kind
    family = DesignFamily([design], swept=False)
    for level in family.levels():
        labels = family.labels(level, 300, np.random.default_rng(1))
        labels = replace(labels, arms=labels.arms[:SHOWN], every=False)
        (((world,),)) = list(family.worlds(labels, np.random.default_rng(2)))
        many = world.many(Rule())
        above, below = many.rejects(0.0, 0.025)
        covers = many.covers(0.0, 0.95)
        for r in range(SHOWN):
            if isinstance(world, Pairs):
                d = world.d[r].reshape(tasks, -1)
                base = np.random.default_rng(3).normal(size=d.shape)
                values = np.stack((base, base + d))
            else:
                assert isinstance(world, Samples)
                values = np.stack([np.stack([part[r] for part in arm]) for arm in (world.control, world.candidate)])
            (verdict,) = compare([observations(declared, tasks, shared, values)], verdict_only=True)
            assert (verdict.verdict == "better", verdict.verdict == "worse") == (above[r], below[r]), (level, r)
            assert verdict.decision.interval is not None
            assert verdict.decision.interval.contains(0.0) == covers[r]


def test_labels_are_exchanged_for_whole_blocks() -> None:
    table = observations({"tasks": "sample"}, TASKS, True)
    family = DesignFamily([build_design(table, "A", "B")], swept=False)
    for block, axis in (("task", 1), ("seed", 0)):
        labels = family.labels(Level(block), 50, np.random.default_rng(1))  # type: ignore[arg-type]
        ((world,),) = list(family.worlds(labels, np.random.default_rng(2)))
        assert isinstance(world, Pairs)
        tables = world.d.reshape(-1, TASKS, SEEDS)
        own = np.abs(tables[0])
        signs = np.sign(tables)
        assert np.allclose(np.abs(tables), own), "values stay where they are"
        assert np.allclose(world.d[0].mean(), 0.0, atol=np.abs(own).max())
        # Relative to the first replicate, all runs of one block keep or change their sign together.
        changed = signs * signs[0]
        assert (changed.max(axis=axis + 1) == changed.min(axis=axis + 1)).all()


def test_swept_tasks_and_fixed_seeds_are_not_exchanged() -> None:
    table = observations({"tasks": "fixed"}, TASKS, True)
    design = build_design(table, "A", "B")
    assert [level.block for level in DesignFamily([design], swept=False).levels()] == ["task", "seed", "run"]
    assert [level.block for level in DesignFamily([design], swept=True).levels()] == ["seed", "run"]
    sample = build_design(observations({"tasks": "sample", "seeds": "fixed"}, TASKS, True), "A", "B")
    assert [level.block for level in DesignFamily([sample], swept=False).levels()] == ["task"]


def test_all_ways_are_used_where_they_are_few_and_three_arms_are_shuffled() -> None:
    rng = np.random.default_rng(0)
    every = exchange(Level("seed"), list(range(5)), 2, 2_000, rng)
    assert every.every and every.patterns == pytest.approx(16)
    assert len({row.tobytes() for row in every.arms[:, :, 0]}) == 32
    three = exchange(Level("seed"), list(range(5)), 3, 2_000, rng)
    assert not three.every and (np.sort(three.arms, axis=2) == np.arange(3)).all()


def test_seeds_that_belong_to_one_arm_each_are_dealt_whole() -> None:
    """A seed keeps its values on every task, and goes to the control or to the candidate."""
    values = np.random.default_rng(5).normal(size=(2, TASKS, SEEDS))
    rows = [
        Observation(arm, f"t{t}", 10 * a + s, 0, "scored", float(values[a, t, s]))
        for a, arm in enumerate("AB")
        for t in range(TASKS)
        for s in range(SEEDS)
    ]
    design = build_design(Observations("score", rows, Analysis(tasks="fixed", seeds="nested")), "A", "B", unpaired=True)
    family = DesignFamily([design], swept=False)
    assert [level.block for level in family.levels()] == ["task", "seed", "run"]
    labels = family.labels(Level("seed"), 20, np.random.default_rng(1))
    assert len(labels.number) == 2 * SEEDS
    ((world,),) = list(family.worlds(labels, np.random.default_rng(2)))
    assert isinstance(world, Samples)
    centred = np.concatenate([arm - arm.mean(axis=1, keepdims=True) for arm in values], axis=1)
    known = {column.round(9).tobytes() for column in centred.T}
    for r in range(20):
        dealt = np.stack([np.concatenate((a[r], b[r])) for a, b in zip(world.control, world.candidate, strict=True)])
        assert {column.round(9).tobytes() for column in dealt.T} == known
