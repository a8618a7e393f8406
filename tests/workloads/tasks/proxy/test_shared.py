"""Rates and budgets that several processes share, also when one of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakeoff.workloads.tasks.proxy.prices import PriceList
from bakeoff.workloads.tasks.proxy.providers import Provider, Providers
from bakeoff.workloads.tasks.proxy.shared import ExperimentBudget, Rates
from support.processes import eventually
from workloads.tasks.proxied import MODEL, PATHS, headers, lab, request, wait_for_looks
from workloads.tasks.scripted import say

CALLER = """
import asyncio, sys, time
from pathlib import Path
from bakeoff.workloads.tasks.proxy.shared import Rates

async def main():
    rates = Rates(Path(sys.argv[1]), float(sys.argv[2]), None)
    while True:
        await rates.enter(1.0)
        print(time.monotonic(), flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_share_a_rate_and_a_killed_one_takes_nothing_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CALLER, str(tmp_path / "rate"), "20"]
    callers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        file = tmp_path / "rate"
        eventually(lambda: file.exists() and file.stat().st_size > 0, "the first call is counted")
        os.kill(callers[0].pid, signal.SIGKILL)
        eventually(lambda: file.stat().st_size >= 20 * 24, "the minute is full")
        wait_for_looks(file, 10)
    finally:
        for caller in callers:
            caller.kill()
    outputs = [caller.communicate()[0].split() for caller in callers]
    assert 19 <= sum(map(len, outputs)) <= 20  # the killed one may have had no time to print


def test_a_minute_has_room_for_as_many_tokens_as_it_says_and_for_one_large_call(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rate", None, 1000.0)

    async def calls() -> None:
        first = await rates.enter(5000.0)  # more than a minute allows: alone it is let through
        await rates.correct(first, 400.0)
        await rates.enter(600.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await rates.enter(1.0)

    asyncio.run(calls())


def test_the_minute_is_over_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakeoff.workloads.tasks.proxy.shared.MINUTE", 0.5)
    rates = Rates(tmp_path / "rate", 2.0, None)

    async def calls() -> float:
        began = time.monotonic()
        for _ in range(5):
            await rates.enter(1.0)
        return time.monotonic() - began

    assert asyncio.run(calls()) >= 1.0


def test_a_torn_or_foreign_file_of_rates_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "rate").write_bytes(b"\xff" * 100)
    assert asyncio.run(asyncio.wait_for(Rates(tmp_path / "rate", 1.0, 1.0).enter(1.0), 30))


def test_a_budget_of_an_experiment_counts_running_calls_and_earlier_sessions(tmp_path: Path) -> None:
    def budget(session: int, spent: float) -> ExperimentBudget:
        return ExperimentBudget(tmp_path / "budget.spent", session, 1.0, None, (spent, 0.0))

    async def calls() -> None:
        now, call = budget(1, 0.0), ((0.1, 10.0), (0.4, 40.0))
        first, second = await now.hold(*call), await now.hold(*call)
        assert first is not None and second is not None
        with pytest.raises(TimeoutError):  # it would fit alone, so it waits
            async with asyncio.timeout(0.2):
                await now.hold(*call)
        waiting = asyncio.create_task(now.hold(*call))
        await now.settle(first, 0.0, 0)  # one of them cost nothing
        third = await waiting
        assert third is not None
        await now.settle(second, 0.3, 30)
        await now.settle(third, 0.4, 40)
        alone = await now.hold(*call)
        assert alone is not None and alone.cost == pytest.approx(0.3)  # what is left
        await now.settle(alone, 0.25, 25)
        assert await now.hold(*call) is None
        assert await budget(2, 0.95).hold(*call) is None

    asyncio.run(calls())


def test_what_a_killed_process_held_counts_as_used_and_nobody_waits_for_it(tmp_path: Path) -> None:
    budget = ExperimentBudget(tmp_path / "budget.spent", 1, 1.0, None, (0.0, 0.0))
    code = f"""
import asyncio
from pathlib import Path
from bakeoff.workloads.tasks.proxy.shared import ExperimentBudget
budget = ExperimentBudget(Path({str(budget.path)!r}), 1, 1.0, None, (0.0, 0.0))
assert asyncio.run(budget.hold((0.1, 1.0), (0.7, 1.0)))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    left = asyncio.run(asyncio.wait_for(budget.hold((0.1, 1.0), (0.7, 1.0)), 20))
    assert left is not None and left.cost == pytest.approx(0.3)


def test_a_call_that_cannot_be_recorded_keeps_nothing_from_the_calls_of_other_runs(tmp_path: Path) -> None:
    budget = ExperimentBudget(tmp_path / "budget.spent", 1, 1.0, None, (0.0, 0.0))
    with lab(tmp_path, [say("hi")]) as here:
        (tmp_path / "file").write_text("")
        record = tmp_path / "file" / "calls.jsonl"
        run = here.proxy.open(here.providers, f"test/{MODEL}", record=record, together=budget)
        answer = here.client.post(PATHS["chat"], json=request("chat", "hi"), headers=headers(run))
        assert answer.status_code == 500
    left = asyncio.run(asyncio.wait_for(budget.hold((0.1, 1.0), (2.0, 1.0)), 20))
    assert left is not None and 0.99 < left.cost < 1.0


def test_prices_of_vendors_hold_only_at_their_own_address() -> None:
    here = Providers.read({"mine": Provider(base_url="http://127.0.0.1:1/v1")}, {})
    assert here.route("openai/gpt-5-mini-2025-08-07").price == here.route("openai/gpt-5-mini").price is not None
    assert here.route("anthropic/claude-sonnet-4-5-20250929").price is not None
    assert here.route("mine/gpt-5-mini").price is None
    local = Providers.read({}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert local.route("gpt-5-mini").price is None
    assert PriceList.read().date
