"""What looking at a world shows: news since the last look, one name for a seat, a tape without names, honest numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bakeoff.workloads.market.envs.pettingzoo_env import MarketParallelEnv
from bakeoff.workloads.market.play import roll_out
from bakeoff.workloads.market.rpc import encode
from bakeoff.workloads.market.scenario import Scenario, world_key
from bakeoff.workloads.market.serve.game import Game, Seats
from bakeoff.workloads.market.session import Session
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World

HOUR = Scenario(duration_minutes=60)
SECRET = "observation sizes"


def played(looks: set[int] | None = None, scenario: Scenario = HOUR) -> list[dict[str, Any]]:
    """The observations of one seat that looks in these ticks (default: all), and joins every chat."""
    session = Session(World.create(scenario, 12345, secret=SECRET))
    session.world.state.books[0, 0, at.MEMBER : at.MEMBER + at.CHATS] = at.INVITED
    seen = []
    while not session.world.done:
        if looks is None or session.world.tick in looks:
            seen.append(session.observe())
            for chat in seen[-1]["groupChats"]:
                if chat["invited"]:
                    session.call("joinGroup", {"groupId": chat["id"]})
        session.end_turn()
    return seen


# -- news


def test_an_observation_has_what_is_new_since_the_last_look_and_nothing_twice() -> None:
    seen = played()
    posts = [post["id"] for observation in seen for post in observation["posts"]]
    messages = [message["id"] for each in seen for chat in each["groupChats"] for message in chat["messages"]]
    assert len(posts) == len(set(posts)) > 50
    assert len(messages) == len(set(messages)) > 10
    whole = Session(World.create(HOUR, 12345, secret=SECRET))
    for _ in range(59):
        whole.end_turn()
    made = {post["id"] for post in whole.call("getFeed", {"limit": 100})["posts"]}
    assert made <= set(posts), "nothing is left out"


def test_observations_stay_small() -> None:
    sizes = [len(encode(observation)) for observation in played()]
    assert max(sizes[1:]) < 1.5 * sizes[0], sizes


def test_looking_twice_in_a_tick_shows_the_same_and_who_skips_ticks_misses_nothing() -> None:
    session = Session(World.create(HOUR, 12345, secret=SECRET))
    for _ in range(5):
        session.end_turn()
    assert session.observe()["posts"] == session.observe()["posts"] != []
    session.call("createPost", {"content": "mine"})
    mine = session.observe()["posts"][0]
    assert mine["content"] == "mine"
    session.end_turn()
    assert mine["id"] in {post["id"] for post in session.observe()["posts"]}, "its likes come in the next tick"
    every, third = played(), played(set(range(0, 60, 3)))
    assert {post["id"] for each in third for post in each["posts"]} >= {
        post["id"] for each in every[:58] for post in each["posts"]
    }


def test_a_chat_that_is_joined_shows_what_was_said_before() -> None:
    session = Session(World.create(HOUR, 12345, secret=SECRET))
    for _ in range(30):
        session.observe()
        session.end_turn()
    session.world.state.books[0, 0, at.MEMBER : at.MEMBER + at.CHATS] = at.INVITED
    session.observe()
    session.call("joinGroup", {"groupId": "chat-0"})
    chat = next(each for each in session.observe()["groupChats"] if each["id"] == "chat-0")
    assert len(chat["messages"]) == min(chat["messageCount"], at.MESSAGES_KEPT) > 0


def test_a_recorder_does_not_take_the_news_from_an_agent() -> None:
    class Looker:
        name = "looker"

        def __init__(self) -> None:
            self.ids: list[str] = []

        def reset(self, brief: Any) -> None: ...

        def act(self, seat: Any) -> None:
            if seat.tick % 2:
                self.ids += [post["id"] for post in seat.observe()["posts"]]

    agent, scenario = Looker(), Scenario(duration_minutes=20)
    rollout = roll_out(scenario, world_key(scenario, 1, SECRET), agent)
    recorded = [post["id"] for turn in rollout.player.turns for post in turn.observation["posts"]]
    assert len(recorded) == len(set(recorded))
    assert agent.ids and set(agent.ids) <= set(recorded)
    assert set(recorded) - set(agent.ids) <= set(), "it looked in the last tick"


# -- names


def test_a_seat_has_one_name_everywhere() -> None:
    world = World.create(Scenario(duration_minutes=5, tape="named"), 3, seats=2, secret=SECRET)
    game = Game(world)
    table = Seats([game])
    first, second = (place.session for place in table.places)
    assert [place.name for place in table.places] == [first.agent_id, second.agent_id] == ["player-1", "player-2"]
    first.call("createPost", {"content": "hello"})
    first.call("openPosition", {"ticker": "BTCX", "side": "LONG", "size": 100})
    first.end_turn(), second.end_turn()
    seen = second.observe()
    assert {post["authorId"] for post in seen["posts"] if post["kind"] == "seat"} == {"player-1"}
    traders = {trade["traderId"] for trade in second.call("getTrades")["trades"]}
    assert "player-1" in traders
    assert {row["id"] for row in second.call("discover")["agents"] if row["kind"] == "agent"} == {
        "player-1",
        "player-2",
    }
    assert MarketParallelEnv(2, Scenario()).possible_agents == ["player-1", "player-2"]
    assert "seat-" not in encode([seen, second.call("discover"), second.call("getTrades")]).decode()


def test_the_only_seat_of_a_copy_is_named_as_its_place_at_the_table() -> None:
    scenario = Scenario(duration_minutes=5)
    worlds = [World.create(scenario, 3, secret=SECRET, first_player=number) for number in (1, 2)]
    table = Seats([Game(world) for world in worlds])
    assert [place.session.observe()["agentId"] for place in table.places] == [place.name for place in table.places]


# -- the tape


def test_the_tape_does_not_say_who_traded_unless_the_scenario_says_so() -> None:
    for tape, named in (("anonymous", False), ("named", True)):
        session = Session(World.create(Scenario(duration_minutes=20, tape=tape), 3, secret=SECRET))  # type: ignore[arg-type]
        session.call("openPosition", {"ticker": "BTCX", "side": "LONG", "size": 100})
        for _ in range(10):
            session.end_turn()
        trades = session.call("getTrades")["trades"]
        assert trades and all((trade["traderId"] is not None) == named for trade in trades)
        assert {trade["traderId"] for trade in session.call("getTradeHistory")["trades"]} == {"player-1"}


def test_the_tape_changes_no_number_of_the_world() -> None:
    anonymous, named = Scenario(), Scenario(tape="named")
    assert world_key(anonymous, 1, SECRET) == world_key(named, 1, SECRET)
    assert anonymous.digest != named.digest


# -- numbers


def test_comments_are_drawn_apart_from_likes() -> None:
    session = Session(World.create(Scenario(duration_minutes=300, agents=32), 5, secret=SECRET))
    pairs = {}
    while not session.world.done:
        for post in session.observe()["posts"]:
            pairs[post["id"]] = (post["likes"], post["comments"])
        session.end_turn()
    likes, comments = np.array(list(pairs.values())).T
    assert len(pairs) > 300
    assert abs(np.corrcoef(likes % 5, comments)[0, 1]) < 0.15
    assert set(comments) == {0, 1, 2, 3, 4}
    again = Session(World.create(Scenario(duration_minutes=300, agents=32), 5, secret=SECRET))
    again.end_turn(), again.end_turn()
    assert all(pairs[post["id"]] == (post["likes"], post["comments"]) for post in again.observe()["posts"])


@pytest.mark.parametrize("method", ["getBalance", "getPortfolio", "getDashboard", "getLeaderboard"])
def test_profit_is_rounded_as_other_money(method: str) -> None:
    session = Session(World.create(Scenario(duration_minutes=20), 3, secret=SECRET))
    for tick in range(12):
        session.call("openPosition", {"ticker": "BTCX", "side": "LONG", "size": 33.33 + tick})
        session.end_turn()
        answer = session.call(method)
        rows = answer.get("leaderboard", [answer])
        profits = [row[key] for row in rows for key in ("lifetimePnL", "pnl", "totalPnl") if row.get(key) is not None]
        assert profits and all(profit == round(profit, 6) for profit in profits)
