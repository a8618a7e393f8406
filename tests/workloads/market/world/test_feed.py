"""The feed, chats and reputation: what is said has readers and consequences."""

from __future__ import annotations

import re

import pytest

from bakeoff.workloads.market.scenario import Scenario
from bakeoff.workloads.market.world import layout as at
from bakeoff.workloads.market.world.world import World

SCENARIO = Scenario(duration_minutes=300, markets=4, perpetuals=3, agents=8, regime="pump-and-dump")


def test_the_feed_has_sources_announcements_and_rumours_in_words() -> None:
    world = World.create(SCENARIO, 2)
    seen = {}
    while not world.done:
        world.advance()
        for post in world.posts(limit=10):
            seen[post.id] = post
    kinds = {kind: [post for post in seen.values() if post.kind == kind] for kind in ("source", "wire", "trader")}
    for kind, posts in kinds.items():
        assert len(posts) > 15, kind
        assert len({re.sub(r"[A-Z]{4}\d*|\d+", "", post.content) for post in posts}) > 5
        assert all(post.ticker and post.ticker in post.content for post in posts)
    tickers = {perp.ticker for perp in world.perpetuals()}
    assert {post.ticker for post in kinds["source"]} == tickers


def test_announcements_are_always_true_and_sources_keep_a_public_record() -> None:
    world = World.create(SCENARIO, 3)
    truth = {(story.ticker, story.event_tick): story.theta for story in world.truth().stories}
    told: dict[str, list[int]] = {}
    last: dict[tuple[str, str], int] = {}
    while not world.done:
        world.advance()
        for post in sorted((p for p in world.posts(limit=20) if p.tick == world.tick), key=lambda p: p.kind == "wire"):
            assert post.ticker is not None and post.claim is not None
            if post.kind == "source":
                last[post.author_id, post.ticker] = post.claim
            if post.kind == "wire":
                assert post.claim == truth[post.ticker, world.tick]
                for (source, ticker), claim in list(last.items()):
                    if ticker == post.ticker:
                        told.setdefault(source, []).append(claim == post.claim)
                        del last[source, ticker]
    for source in world.sources():
        assert (source.right, source.claims) == (sum(told[source.id]), len(told[source.id]))


def test_only_the_first_stated_probability_is_scored_and_honesty_pays_best() -> None:
    gains = {}
    for stated in (0.5, 0.9, 0.1):
        world = World.create(SCENARIO, 4)
        market = min(world.markets(), key=lambda view: view.resolve_tick)
        world.post(0, "my view", market.id, probability=stated)
        world.post(0, "I changed my mind", market.id, probability=1.0 - stated)
        while world.tick < market.resolve_tick:
            world.advance()
        outcome = next(view.outcome for view in world.resolved_markets() if view.id == market.id)
        gains[stated] = world.account(0).reputation - 50.0
        assert gains[stated] == pytest.approx(24.0 * (0.25 - (stated - (outcome is True)) ** 2), abs=1e-5)
    assert gains[0.5] == 0.0


def test_a_stance_moves_the_mood_in_proportion_to_reputation() -> None:
    moved = []
    for reputation in (0, 50, 100):
        world = World.create(SCENARIO, 5)
        world.state.books[0, 0, at.REPUTATION] = reputation * at.MICRO
        market = world.markets()[0]
        a = world.asset(market.ticker)
        before = world.state.indices[0, a, at.SENTIMENT]
        world.post(0, "up!", market.id, side="YES")
        moved.append(world.state.indices[0, a, at.SENTIMENT] - before)
    assert moved[0] == 0.0 and moved[2] == pytest.approx(2 * moved[1]) and moved[1] > 0


def test_chats_invite_by_reputation_and_show_their_tips_to_members_only() -> None:
    world, outcast = World.create(SCENARIO, 6), World.create(SCENARIO, 6)
    for seat_world, reputation in ((world, 90), (outcast, 10)):
        seat_world.state.books[0, 0, at.REPUTATION] = reputation * at.MICRO
        for _ in range(60):
            seat_world.advance()
    assert all(chat.invited and not chat.messages for chat in world.chats(0))
    assert not any(chat.invited for chat in outcast.chats(0))
    world.join(0, "chat-1")
    chat = world.chats(0)[1]
    assert chat.joined and chat.messages and chat.member_ids == ("player-1",)
    assert all(message.claim in (-1, 0, 1) and message.ticker for message in chat.messages)
    world.message(0, "chat-1", "thanks")
    assert world.chats(0)[1].messages[-1].content == "thanks"


@pytest.mark.slow
def test_rumours_say_nothing_about_the_truth() -> None:
    right = total = 0
    for seed in range(30):
        world = World.create(SCENARIO, seed)
        thetas = {(s.ticker, t): s.theta for s in world.truth().stories for t in range(s.start_tick, s.event_tick)}
        while not world.done:
            world.advance()
            for post in world.posts(limit=5):
                if (
                    post.kind == "trader"
                    and post.tick == world.tick - 1
                    and (theta := thetas[post.ticker or "", post.tick])
                ):
                    right += post.claim == theta
                    total += 1
    assert total > 100
    assert abs(right / total - 0.5) < 4 * 0.5 / total**0.5 * 2  # rumours of one scheme repeat, so the error is wider
