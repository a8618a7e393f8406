"""Episodes go as fast as agents answer, wait for nobody longer than the deadline, and record what happened."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bakeoff.workloads.market import play
from bakeoff.workloads.market.agents.base import Brief, LlmCall, Seat, load
from bakeoff.workloads.market.journal import steps
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.rpc import RpcError
from workloads.market.games import SHORT, assert_same_state, fresh_world

TICKS = SHORT.ticks


class Scripted:
    """Does in each tick what the function says."""

    name = "scripted"

    def __init__(self, act: Callable[[Seat], object], reset: Callable[[Brief], object] = lambda brief: None) -> None:
        self._act, self._reset = act, reset
        self.brief: Any = None

    def reset(self, brief: Brief) -> None:
        self.brief = brief
        self._reset(brief)

    def act(self, seat: Seat) -> None:
        self._act(seat)


def nothing(seat: Seat) -> None: ...


def buy(seat: Seat) -> None:
    for market in seat.markets()[:1]:
        seat.buy(market.id, "YES", 10)


def conducts(episode: Episode, player: int = 0) -> list[str]:
    return [turn.conduct for turn in episode.players[player].turns]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Blocks agents until the test is over, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def test_an_episode_plays_every_tick_once() -> None:
    seen: list[int] = []
    episode = Episode(fresh_world(), [Scripted(lambda seat: seen.append(seat.tick))]).run()
    assert seen == list(range(TICKS))
    assert episode.world.done


def test_rewards_add_up_to_the_change_of_equity() -> None:
    world = fresh_world()
    turns = Episode(world, [load("random")], record=True, seed=5).run().players[0].turns
    account = world.account(0)
    assert account.trades
    assert sum(turn.reward for turn in turns) == pytest.approx(account.equity - account.initial, abs=1e-6)


def test_a_record_has_the_observation_from_before_the_action_and_the_calls_with_their_answers() -> None:
    turns = Episode(fresh_world(), [Scripted(buy)], record=True).run().players[0].turns
    first = turns[0]
    assert first.observation["account"]["cash"] == 10_000
    (call,) = first.actions
    assert (call.method, call.params["amount"], call.error) == ("a2a.buyShares", 10, None)
    assert turns[1].observation["positions"]["marketPositions"][0]["shares"] == call.result["shares"]


def test_what_is_recorded_does_not_change_what_happens() -> None:
    plain, recorded = fresh_world(), fresh_world()
    Episode(plain, [load("random")], seed=3).run()
    Episode(recorded, [load("random")], seed=3, record=True, response_timeout=60).run()
    assert_same_state(plain, recorded)


def test_the_agent_s_own_chance_repeats_with_its_seed() -> None:
    def drawn(seed: int) -> float:
        agent = Scripted(nothing)
        Episode(fresh_world(), [agent], seed=seed).run()
        return float(agent.brief.rng.random())

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_crash_is_recorded_and_what_was_done_before_stands() -> None:
    def act(seat: Seat) -> None:
        buy(seat)
        if seat.tick == 1:
            raise KeyError("oops")

    world = fresh_world()
    player = Episode(world, [Scripted(act)], record=True).run().players[0]
    assert [turn.conduct for turn in player.turns] == ["acted", "crashed"] + ["acted"] * (TICKS - 2)
    assert (player.crashed, player.errors) == (1, ["tick 1: KeyError: 'oops'"])
    assert world.account(0).trades == TICKS


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_agent_that_exits_or_is_cancelled_does_not_end_the_episode(
    timeout: float | None, error: BaseException
) -> None:
    def act(seat: Seat) -> None:
        raise error

    episode = Episode(fresh_world(), [Scripted(act)], record=True, response_timeout=timeout).run()
    assert conducts(episode) == ["crashed"] * TICKS


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_error_without_words_is_a_crash_like_any_other(timeout: float | None) -> None:
    def act(seat: Seat) -> None:
        raise Mute

    episode = Episode(fresh_world(), [Scripted(act)], record=True, response_timeout=timeout).run()
    assert conducts(episode) == ["crashed"] * TICKS
    assert episode.players[0].errors[0] == "tick 0: Mute: (its message cannot be shown)"


def test_an_agent_that_cannot_start_is_absent_all_the_time() -> None:
    def fail(brief: Brief) -> None:
        raise OSError("no such model")

    player = Episode(fresh_world(), [Scripted(buy, fail)], record=True).run().players[0]
    assert player.absent == TICKS
    assert player.errors == ["reset: OSError: no such model"]


@pytest.mark.slow
def test_an_agent_that_blocks_for_ever_is_left_behind(release: threading.Event) -> None:
    def act(seat: Seat) -> None:
        if seat.tick == 1:
            release.wait()

    episode = Episode(fresh_world(), [Scripted(act)], record=True, response_timeout=0.7).run()
    assert conducts(episode) == ["acted", "late", "late", "late"] + ["absent"] * (TICKS - 4)


def test_an_agent_that_does_not_close_is_left_behind(release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "CLOSE_TIMEOUT", 0.1)
    agent: Any = Scripted(nothing)
    agent.close = release.wait
    player = Episode(fresh_world(), [agent], response_timeout=5).run().players[0]
    assert player.errors == ["close: TimeoutError: not done after 0.1 s"]


@pytest.mark.slow
def test_a_late_agent_changes_nothing_any_more_and_is_asked_again_when_it_is_back() -> None:
    refused: list[str] = []
    closed = threading.Event()

    def act(seat: Seat) -> None:
        buy(seat)
        if seat.tick == 1:
            while seat.actions_left:  # until the episode has closed the turn
                time.sleep(0.001)
            try:
                seat.post("too late")
            except RpcError as error:
                refused.append(error.type)
            closed.set()

    world = fresh_world()
    episode = Episode(world, [Scripted(act)], record=True, response_timeout=1.0).run()
    assert closed.is_set()
    assert refused == ["turn_over"]
    assert conducts(episode) == ["acted", "late"] + ["acted"] * (TICKS - 2)
    assert world.account(0).trades == TICKS


@pytest.mark.slow
def test_one_late_agent_does_not_hurt_the_others(release: threading.Event) -> None:
    world = fresh_world(seats=3)
    stuck = Scripted(lambda seat: release.wait())
    episode = Episode(world, [Scripted(buy), stuck, load("null")], record=True, response_timeout=0.7).run()
    assert conducts(episode, 0) == conducts(episode, 2) == ["acted"] * TICKS
    assert conducts(episode, 1)[:3] == ["late"] * 3
    assert world.account(0).trades


@pytest.mark.slow
def test_an_agent_that_is_back_has_a_whole_turn_however_long_others_think() -> None:
    def slow(seat: Seat) -> None:
        time.sleep(0.6)

    def late_once(seat: Seat) -> None:
        if seat.tick == 0:
            while seat.actions_left:
                time.sleep(0.001)
        time.sleep(0.2)

    world = fresh_world(seats=2)
    episode = Episode(world, [Scripted(slow), Scripted(late_once)], record=True, response_timeout=1.8).run()
    assert conducts(episode, 1) == ["late"] + ["acted"] * (TICKS - 1)


def test_agents_on_threads_of_their_own_think_at_the_same_time() -> None:
    together = threading.Barrier(3)
    world = fresh_world(seats=3)
    agents = [Scripted(lambda seat: together.wait(30)) for _ in range(3)]
    episode = Episode(world, agents, record=True, response_timeout=60).run()
    assert [player.late + player.crashed for player in episode.players] == [0, 0, 0]


def test_threads_and_deadlines_do_not_change_the_outcome() -> None:
    here, apart = fresh_world(seats=2), fresh_world(seats=2)
    Episode(here, [Scripted(buy), Scripted(buy)]).run()
    Episode(apart, [Scripted(buy), Scripted(buy)], response_timeout=60).run()
    assert_same_state(here, apart)


def test_an_agent_that_ends_its_turn_can_do_nothing_more_in_it() -> None:
    refused: list[str] = []

    def act(seat: Seat) -> None:
        seat.end_turn()
        try:
            seat.post("one more thing")
        except RpcError as error:
            refused.append(error.type)

    Episode(fresh_world(), [Scripted(act)]).run()
    assert refused == ["turn_over"] * TICKS


def test_only_shipped_agents_get_what_is_hidden() -> None:
    agent = Scripted(nothing)
    agent.needs = "truth"  # type: ignore[attr-defined]
    Episode(fresh_world(), [agent]).run()
    assert agent.brief.truth is None
    assert agent.brief.model is None


def test_an_episode_can_be_stopped() -> None:
    world = fresh_world()
    Episode(world, [load("null")], stop=lambda: world.tick >= 2).run()
    assert world.tick == 2


def test_steps_are_ready_for_training() -> None:
    def act(seat: Seat) -> None:
        buy(seat)
        first = LlmCall([{"role": "user", "content": "hi"}], "m", prompt_tokens=3, completion_tokens=2)
        seat.record_llm(first)
        seat.record_llm(LlmCall([{"role": "user", "content": "again"}], "m", completion_ids=[7], logprobs=[-0.5]))

    player = Episode(fresh_world(), [Scripted(act)], record=True).run().players[0]
    found = list(steps(player.turns, agent="me", policy_version="v1"))
    assert len(found) == TICKS
    first = found[0]
    assert first.action == [
        {"type": "a2a.buyShares", "params": dict(player.turns[0].actions[0].params), "success": True}
    ]
    assert (first.agent, first.policy_version, first.time_s) == ("me", "v1", 0)
    assert first.messages == [{"role": "user", "content": "again"}]
    assert first.tokens is not None
    assert (first.tokens.completion_ids, first.tokens.logprobs) == ([7], [-0.5])
    assert [call["prompt_tokens"] for call in first.info["llm_calls"]] == [3, 0]
    assert [step.done for step in found] == [False] * (TICKS - 1) + [True]
    assert found[1].time_s == SHORT.tick_interval
