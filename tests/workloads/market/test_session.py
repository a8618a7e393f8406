"""A seat in JSON: what it may see and do, how often, until when, and never somebody else's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import CODES, RpcError, decode, encode
from bakeoff.workloads.market.session import Session
from workloads.market.games import assert_same_state, fresh_world
from workloads.market.test_rpc import ANY_JSON


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(session: Session, method: str, /, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        session.call(method, params)
    assert caught.value.code == CODES[caught.value.type]
    return caught.value


def first_market(session: Session) -> str:
    found = session.call("a2a.getPredictions")["predictions"][0]["id"]
    assert isinstance(found, str)
    return found


def buy(session: Session, amount: float = 10.0, **more: Any) -> dict[str, Any]:
    return session.call(
        "a2a.buyShares", {"marketId": first_market(session), "outcome": "YES", "amount": amount, **more}
    )


READS = {
    "a2a.getMarketData": lambda session: {"marketId": first_market(session)},
    "a2a.getMarketPrices": lambda session: {"marketId": first_market(session)},
    "a2a.getPost": lambda session: {"postId": session.call("a2a.getFeed")["posts"][0]["id"]},
    "a2a.getUserProfile": lambda session: {"userId": session.call("a2a.getLeaderboard")["leaderboard"][0]["id"]},
    "a2a.getInfo": lambda session: {"agentId": session.agent_id},
}


@pytest.mark.parametrize("method", sorted(name for name, method in METHODS.items() if not method.mutates))
def test_every_look_gives_plain_json_and_changes_nothing(method: str) -> None:
    world, untouched = fresh_world(), fresh_world()
    session = Session(world)
    session.call("a2a.createPost", {"content": "Good morning."})
    untouched.post(0, "Good morning.")
    for _ in range(3):
        session.end_turn()
        untouched.advance()
    if method == "a2a.getChatMessages":
        assert refused(session, method, chatId="nowhere").type == "chat_not_found"
    else:
        result = session.call(method, READS.get(method, lambda _: {})(session))
        assert encode(decode(encode(result))) == encode(result)
    assert_same_state(world, untouched)


def test_calls_do_not_advance_time_and_the_end_of_a_turn_does() -> None:
    session = Session(fresh_world())
    buy(session)
    session.observe()
    assert session.observe()["tick"] == 0
    assert session.call("a2a.endTurn")["tick"] == 1


def test_a_bought_position_is_seen_and_can_be_sold_both_ways() -> None:
    session = Session(fresh_world())
    bought = buy(session, 100)
    held = session.call("a2a.getPositions")["marketPositions"]
    assert [one["id"] for one in held] == [bought["positionId"]]
    assert held[0]["shares"] == bought["shares"]
    half = round(bought["shares"] / 2, 6)
    session.call("a2a.sellShares", {"positionId": bought["positionId"], "shares": half})
    rest = session.call("a2a.getPositions")["marketPositions"][0]["shares"]
    sold = session.call("a2a.sellShares", {"marketId": held[0]["marketId"], "outcome": "yes", "shares": rest})
    assert sold["proceeds"] > 0
    assert session.call("a2a.getPositions")["marketPositions"] == []


def test_a_perpetual_is_opened_and_closed_by_its_position() -> None:
    session = Session(fresh_world())
    ticker = session.call("a2a.getPerpetuals")["perpetuals"][0]["ticker"]
    opened = session.call("a2a.openPosition", {"ticker": ticker, "side": "short", "amount": 200, "leverage": 2})
    held = session.call("a2a.getPositions")["perpPositions"]
    assert [(one["id"], one["side"]) for one in held] == [(opened["positionId"], "SHORT")]
    assert "pnl" in session.call("a2a.closePosition", {"positionId": opened["positionId"]})
    assert refused(session, "a2a.closePosition", positionId=opened["positionId"]).type == "position_not_found"


def test_the_world_s_reasons_become_typed_errors() -> None:
    session = Session(fresh_world())
    market = first_market(session)
    ticker = session.call("a2a.getPerpetuals")["perpetuals"][0]["ticker"]
    order = {"marketId": market, "outcome": "YES"}
    assert refused(session, "a2a.buyShares", **order, amount=1e6).type == "insufficient_funds"
    assert (
        refused(session, "a2a.buyShares", marketId="market-99999", outcome="YES", amount=1).type == "market_not_found"
    )
    assert refused(session, "a2a.sellShares", **order, shares=5).type == "insufficient_funds"
    assert refused(session, "a2a.sellShares", marketId=market, shares=5).type == "position_not_found"
    assert refused(session, "a2a.openPosition", ticker="NOPE", side="LONG", size=50).type == "market_not_found"
    assert (
        refused(session, "a2a.openPosition", ticker=ticker, side="LONG", size=50, leverage=100).type == "order_rejected"
    )
    assert refused(session, "a2a.joinGroup", groupId="nowhere").type == "chat_not_found"


def test_accounts_of_others_are_private() -> None:
    world = fresh_world(seats=2)
    one, other = Session(world, 0), Session(world, 1)
    for method in ("a2a.getPositions", "a2a.getTradeHistory", "a2a.getUserWallet"):
        assert refused(one, method, userId=other.agent_id).type == "not_permitted"
        one.call(method, {"userId": one.agent_id})
    found = {person["id"]: person["totalPnl"] for person in one.call("a2a.getLeaderboard")["leaderboard"]}
    assert found[one.agent_id] is not None
    assert found[other.agent_id] is None


# -- budgets


def test_the_action_budget_counts_attempts_and_comes_back_with_the_next_tick() -> None:
    session = Session(fresh_world(), action_budget=2)
    buy(session)
    assert (
        refused(session, "a2a.buyShares", marketId="market-99999", outcome="YES", amount=1).type == "market_not_found"
    )
    error = refused(session, "a2a.createPost", content="hello")
    assert (error.code, error.data["actionBudget"]) == (-32006, 2)
    assert session.observe()["actionsLeft"] == 0
    session.end_turn()
    buy(session)


def test_calls_that_are_not_understood_cost_nothing() -> None:
    session = Session(fresh_world(), action_budget=1)
    for _ in range(5):
        assert refused(session, "a2a.buyShares", amount=-1).type == "invalid_params"
    buy(session)


# -- idempotency


def test_the_same_key_gives_the_same_answer_and_acts_once() -> None:
    session = Session(fresh_world())
    first = buy(session, 50, idempotencyKey="k")
    cash = session.call("a2a.getBalance")["balance"]
    assert buy(session, 50, idempotencyKey="k") == first
    session.end_turn()
    again = session.call(
        "a2a.buyShares", {"marketId": first["target"], "outcome": "yes", "amount": 50.0}, idempotency_key="k"
    )
    assert again == first
    assert session.call("a2a.getBalance")["balance"] == cash
    assert session.actions_taken == 1


def test_a_key_belongs_to_one_call() -> None:
    session = Session(fresh_world())
    buy(session, 50, idempotencyKey="k")
    market = first_market(session)
    other = {"marketId": market, "outcome": "YES", "amount": 51, "idempotencyKey": "k"}
    assert refused(session, "a2a.buyShares", **other).code == -32014
    assert refused(session, "a2a.createPost", content="x", idempotencyKey="k").code == -32014


def test_a_refusal_by_the_market_is_kept_under_its_key_and_a_refusal_by_the_rules_is_not() -> None:
    session = Session(fresh_world(), action_budget=1)
    order = {"marketId": "market-99999", "outcome": "YES", "amount": 1, "idempotencyKey": "a"}
    assert refused(session, "a2a.buyShares", **order).type == "market_not_found"
    assert refused(session, "a2a.buyShares", **order).type == "market_not_found"
    post = {"content": "hello", "idempotencyKey": "b"}
    assert refused(session, "a2a.createPost", **post).type == "budget_exhausted"
    session.end_turn()
    assert session.call("a2a.createPost", post)["postId"]


# -- turns and deadlines


def test_an_order_for_another_tick_is_refused() -> None:
    session = Session(fresh_world())
    session.end_turn()
    assert refused(session, "a2a.createPost", content="late", tick=0).type == "turn_over"
    assert session.call("a2a.createPost", {"content": "now", "tick": 1})["postId"]


def test_ending_a_past_turn_does_nothing_and_a_future_one_is_refused() -> None:
    session = Session(fresh_world())
    assert session.call("a2a.endTurn", {"tick": 0})["tick"] == 1
    assert session.call("a2a.endTurn", {"tick": 0})["tick"] == 1
    assert refused(session, "a2a.endTurn", tick=5).type == "turn_over"


def test_after_the_deadline_only_looking_is_allowed() -> None:
    clock = Clock()
    session = Session(fresh_world(), response_timeout=5, clock=clock)
    buy(session)
    clock.now = 5.1
    assert refused(session, "a2a.createPost", content="late").code == -32008
    assert session.observe()["tick"] == 0
    session.end_turn()
    buy(session)


def test_with_several_seats_a_turn_that_is_ended_stays_ended_until_all_have() -> None:
    world = fresh_world(seats=2)
    one, other = Session(world, 0), Session(world, 1)
    assert one.end_turn()["tick"] == 0
    assert refused(one, "a2a.createPost", content="x").type == "turn_over"
    assert other.end_turn()["tick"] == 1
    assert one.call("a2a.createPost", {"content": "x"})["postId"]


def test_after_the_last_tick_nothing_changes_and_everything_can_be_seen() -> None:
    session = Session(fresh_world())
    while not session.end_turn()["done"]:
        pass
    assert refused(session, "a2a.createPost", content="x").type == "episode_over"
    assert session.observe()["done"]
    assert session.end_turn()["done"]


# -- hostile calls

CALLS = st.tuples(
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(
        st.sampled_from(["marketId", "outcome", "amount", "shares", "ticker", "side", "size", "leverage", "positionId",
                         "content", "chatId", "groupId", "inviteId", "userId", "limit", "probability", "postId"]),
        st.sampled_from(["market-0", "market-1", "YES", "no", "LONG", "short", "", "player-2", 1, 10.0, 1e-9, 1e9, 10**30,
                         -1, 0, None, True]) | ANY_JSON,
        max_size=5,
    ),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(calls=st.lists(CALLS, max_size=25))
def test_no_calls_make_a_session_fail_or_touch_another_seat(calls: list[tuple[str, dict[str, Any]]]) -> None:
    world = fresh_world(seats=2)
    session, other = Session(world, 0, action_budget=1000), Session(world, 1)
    before = other.call("a2a.getUserWallet"), other.call("a2a.getPositions")
    for method, params in calls:
        try:
            encode(session.call(method, params))
        except RpcError as error:
            encode(error.as_json())
    assert (other.call("a2a.getUserWallet"), other.call("a2a.getPositions")) == before
