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
from lab import eventually

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
        time.sleep(1)  # in this time they would make thousands of calls
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

    assert 1.0 <= asyncio.run(calls()) < 30


def test_a_torn_or_foreign_file_of_rates_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "rate").write_bytes(b"\xff" * 100)
    assert asyncio.run(asyncio.wait_for(Rates(tmp_path / "rate", 1.0, 1.0).enter(1.0), 5))


def test_a_budget_of_an_experiment_counts_running_calls_and_earlier_sessions(tmp_path: Path) -> None:
    def budget(session: int, spent: float) -> ExperimentBudget:
        return ExperimentBudget(tmp_path / "budget.spent", session, 1.0, None, (spent, 0.0))

    async def calls() -> list[bool]:
        now = budget(1, 0.0)
        fits = [await now.reserve(0.4, 10), await now.reserve(0.4, 10), await now.reserve(0.4, 10)]
        await now.settle(-0.4, -10)  # one of them cost nothing
        return [*fits, await now.reserve(0.4, 10), await budget(2, 0.95).reserve(0.1, 10)]

    assert asyncio.run(calls()) == [True, True, False, True, False]


def test_prices_of_vendors_hold_only_at_their_own_address() -> None:
    here = Providers.read({"mine": Provider(base_url="http://127.0.0.1:1/v1")}, {})
    assert here.route("openai/gpt-5-mini-2025-08-07").price == here.route("openai/gpt-5-mini").price is not None
    assert here.route("anthropic/claude-sonnet-4-5-20250929").price is not None
    assert here.route("mine/gpt-5-mini").price is None
    local = Providers.read({}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert local.route("gpt-5-mini").price is None
    assert PriceList.read().date
