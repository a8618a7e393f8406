"""What must hold for any table, whatever the design: p, interval and verdict agree, and names and order do not matter.

The whole path is taken: rows become a table, the table observations, these a verdict.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.results.importers.tables import frame_results
from bakeoff.stats.evidence import Interval
from bakeoff.text import format_p
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.comparison import Comparison
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.compare import CompareAnswer

QUICK = settings(max_examples=40, deadline=None)
MIRRORED = {"better": "worse", "worse": "better", "equivalent": "equivalent", "undecided": "undecided"}
DESIGNS: dict[str, dict[str, Any]] = {
    "seeds": {"tasks": 1, "seeds": (3, 12)},
    "rollouts": {"tasks": 1, "rollouts": (3, 10)},
    "tasks": {"tasks": (3, 10), "rollouts": (1, 3)},
    "fixed rollouts": {"tasks": (2, 4), "rollouts": (2, 4), "population": "fixed"},
    "fixed seeds": {"tasks": (2, 4), "seeds": (2, 4), "population": "fixed", "kind": "nested"},
    "crossed": {"tasks": (3, 5), "seeds": (3, 5), "kind": "crossed"},
    "seeds over tasks": {"tasks": (2, 3), "seeds": (3, 9), "population": "fixed", "kind": "crossed"},
    "two crossed seeds": {"tasks": (3, 12), "seeds": 2, "kind": "crossed"},
    "fixed crossed seeds": {"tasks": (3, 9), "seeds": (2, 4), "kind": "fixed"},
    "few strata": {"tasks": (2, 4), "seeds": 2, "population": "fixed", "kind": "nested"},
    "wide crossed": {"tasks": (8, 9), "seeds": (8, 9), "kind": "crossed"},
    "strict seeds": {"tasks": 1, "seeds": (3, 10), "kind": "nested", "ties": "full"},
    "strict rollouts": {"tasks": 1, "rollouts": (3, 6), "ties": "full"},
    "strict fixed rollouts": {"tasks": 2, "rollouts": (2, 4), "population": "fixed", "ties": "full"},
    "strict fixed seeds": {"tasks": (2, 3), "seeds": (2, 4), "population": "fixed", "kind": "nested", "ties": "full"},
}
Rows = list[dict[str, Any]]


@st.composite
def tables(draw: st.DrawFn, binary: bool = False, missing: bool = False) -> tuple[Rows, dict[str, Any]]:
    """Rows of three arms, and the declarations that go with them. Values are lumpy, smooth or outcomes."""
    design = DESIGNS[draw(st.sampled_from(sorted(DESIGNS)))]

    def number(name: str) -> int:
        given = design.get(name, 1)
        return int(given) if isinstance(given, int) else draw(st.integers(*given))

    tasks, seeds, rollouts = number("tasks"), number("seeds"), number("rollouts")
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    kind = "outcomes" if binary else draw(st.sampled_from(["lumpy", "smooth", "equal"]))
    shift = draw(st.sampled_from([0.0, 0.5, 2.0]))
    world = rng.normal(size=(tasks, seeds))
    rows = []
    for arm, lift in (("A", 0.0), ("B", shift), ("C", -shift / 2)):
        for t in range(tasks):
            for s in range(seeds):
                for k in range(rollouts):
                    value = world[t, s] + lift + (0.0 if kind == "equal" and arm != "C" else rng.normal(0, 0.5))
                    value = (
                        round(4 * value) / 4 if kind == "lumpy" else float(value > 0) if kind == "outcomes" else value
                    )
                    row = {"arm": arm, "task": f"t{t}", "rollout": k, "score": float(value)}
                    rows.append({**row, "seed": s} if "seeds" in design else row)
    if missing:
        gone = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=3, unique=True))
        for i in gone:
            rows[i]["score"] = None
        if draw(st.booleans()):  # rows that are not there at all
            rows = [row for i, row in enumerate(rows) if i not in gone or row["rollout"] > 0]
            # Arms without a common task and seed are refused.
            places = [{(row["task"], row.get("seed")) for row in rows if row["arm"] == arm} for arm in "ABC"]
            assume(places[0] & places[1] and places[0] & places[2])
    changes = {"tasks": design.get("population"), "seeds": design.get("kind"), "ties": design.get("ties")}
    return rows, {key: value for key, value in changes.items() if value}


def ask(rows: Rows, control: str = "A", arms: tuple[str, ...] = (), **changes: Any) -> CompareAnswer:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return answer(frame_results(frame), Compare.ask(metric="score", control=control, arms=arms, **changes))


def one(rows: Rows, control: str, arm: str, **changes: Any) -> Comparison:
    return ask(rows, control, (arm,), **changes).comparisons[0]


def ends(interval: Interval | None) -> list[float]:
    return [] if interval is None else [interval.low, interval.high]


def close(a: float | None, b: float | None, scale: float = 1.0) -> bool:
    return a is b or (a is not None and b is not None and (a == b or abs(a - b) <= 1e-9 * max(scale, abs(a), abs(b))))


@pytest.mark.slow
@QUICK
@given(st.one_of(tables(), tables(binary=True), tables(missing=True)), st.sampled_from([None, 0.3, 5.0]))
def test_p_interval_and_verdict_cannot_contradict_one_another(
    table: tuple[Rows, dict[str, Any]], margin: float | None
) -> None:
    rows, changes = table
    for found in ask(rows, margin=margin, **changes).comparisons:
        decision, alpha = found.decision, 0.05
        if decision.p is None:
            assert found.verdict == "undecided"
            continue
        assert decision.decision_interval is not None and decision.p_adjusted is not None
        assert (decision.p_adjusted <= alpha) == decision.decision_interval.excludes(0.0)
        if margin is not None and decision.equivalence_interval is not None:
            assert decision.p_eq_adjusted is not None
            assert (decision.p_eq_adjusted <= alpha) == decision.equivalence_interval.lies_inside(margin)
        if found.verdict in ("better", "worse"):
            assert decision.p_adjusted <= alpha
        if found.verdict == "undecided" and decision.reason == "inconclusive":
            assert decision.p_adjusted > alpha
        assert 0.0 < decision.p <= decision.p_adjusted <= 1.0
        assert not set(format_p(decision.p).split()[0]) <= set("0.")
        assert decision.floor is None or decision.p >= decision.floor * (1 - 1e-12)


@pytest.mark.slow
@QUICK
@given(st.one_of(tables(), tables(binary=True), tables(missing=True)), st.sampled_from([None, 0.3]))
def test_swapping_the_arms_swaps_better_and_worse(table: tuple[Rows, dict[str, Any]], margin: float | None) -> None:
    rows, changes = table
    rows = [row for row in rows if row["arm"] != "C"]  # a third arm is in the family of both, with another comparison
    there, back = one(rows, "A", "B", margin=margin, **changes), one(rows, "B", "A", margin=margin, **changes)
    assert back.verdict == MIRRORED[there.verdict]
    assert close(there.p, back.p)
    assert close(there.effect, None if back.effect is None else -back.effect)
    mirrored = None if back.interval is None else back.interval.negated()
    assert all(close(x, y) for x, y in zip(ends(there.interval), ends(mirrored), strict=True))


@pytest.mark.slow
@QUICK
@given(st.one_of(tables(), tables(missing=True)), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(drawn: tuple[Rows, dict[str, Any]], random: Any) -> None:
    rows, changes = drawn
    shuffled = list(rows)
    random.shuffle(shuffled)
    try:
        before = ask(rows, "A", ("B", "C"), **changes).comparisons
    except UsageError as refusal:  # repeats that look like runs, by chance
        with pytest.raises(UsageError, match=re.escape(str(refusal))):
            ask(shuffled, "A", ("B", "C"), **changes)
        return
    after = ask(shuffled, "A", ("B", "C"), **changes).comparisons
    for a, b in zip(before, after, strict=True):
        assert replace(a, design=None) == replace(b, design=None)


@pytest.mark.parametrize("offset", [1.7e9, 1e12])
@pytest.mark.parametrize("design", sorted(DESIGNS))
def test_noise_around_a_large_number_is_judged_as_the_noise_alone(design: str, offset: float) -> None:
    rng = np.random.default_rng(7)
    shape, rows = DESIGNS[design], []
    for arm, lift in (("A", 0.0), ("B", 1.5)):
        for task, seed, rollout in np.ndindex(6, 8 if "seeds" in shape else 1, 3):
            # In 1/64ths, so that the sum with the offset is exact.
            value = round(64 * (lift + rng.normal(0, 0.5))) / 64
            row = {"arm": arm, "task": f"t{task}", "rollout": rollout, "score": value}
            rows.append({**row, "seed": seed} if "seeds" in shape else row)
    changes = {"tasks": shape.get("population"), "seeds": shape.get("kind"), "ties": shape.get("ties")}
    changes = {key: value for key, value in changes.items() if value}
    there, moved = (
        one([{**row, "score": row["score"] + shift} for row in rows], "A", "B", **changes) for shift in (0.0, offset)
    )
    assert there.verdict == moved.verdict == "better"
    assert there.p is not None and moved.p is not None
    assert moved.p == pytest.approx(there.p, rel=1e-3)


@pytest.mark.slow
@QUICK
@given(tables(), st.sampled_from([-3.0, 0.0, 16.0]), st.sampled_from([0.25, 1.0, 8.0]), st.sampled_from([None, 0.5]))
def test_a_common_offset_and_a_positive_scale_change_no_verdict(
    table: tuple[Rows, dict[str, Any]], offset: float, scale: float, margin: float | None
) -> None:
    rows, changes = table
    moved = [{**row, "score": scale * row["score"] + offset} for row in rows]
    before = ask(rows, margin=margin, **changes).comparisons
    after = ask(moved, margin=None if margin is None else scale * margin, **changes).comparisons
    for a, b in zip(before, after, strict=True):
        assert (a.verdict, a.decision.reason) == (b.verdict, b.decision.reason)
        assert a.p == b.p or a.p == pytest.approx(b.p, rel=1e-6)
        for x, y in zip(ends(a.interval), ends(b.interval), strict=True):
            assert (math.isinf(x) and x == y) or y == pytest.approx(scale * x, rel=1e-6, abs=1e-7 * scale)


@pytest.mark.slow
@QUICK
@given(tables(), st.sampled_from([None, 0.4]))
def test_minimising_is_maximising_the_negative(table: tuple[Rows, dict[str, Any]], margin: float | None) -> None:
    rows, changes = table
    negative = [{**row, "score": -row["score"]} for row in rows]
    up = one(rows, "A", "B", margin=margin, **changes)
    down = one(negative, "A", "B", margin=margin, direction="minimize", **changes)
    assert (up.verdict, up.p) == (down.verdict, down.p)
    assert up.effect is None or down.effect == pytest.approx(-up.effect, abs=1e-12)
    assert ends(up.interval) == ends(None if down.interval is None else down.interval.negated())


@pytest.mark.parametrize("p", [1e-300, 2.2250738585072014e-308, 4.99e-4, 0.00099999, 0.0004])
def test_a_p_value_is_never_printed_as_0(p: float) -> None:
    assert float(format_p(p)) > 0.0


def test_the_smallest_possible_p_says_so() -> None:
    rows = [{"arm": arm, "seed": s, "score": s + lift} for arm, lift in (("A", 0.0), ("B", 5.0)) for s in range(8)]
    rows = [{**row, "score": row["score"] + 0.01 * (row["seed"] % 3) * (row["arm"] == "B")} for row in rows]
    found = one(rows, "A", "B")
    assert found.decision.floor == pytest.approx(2 / 2**8)
    assert format_p(found.p, found.decision.floor) == "0.008 (the smallest possible)"
