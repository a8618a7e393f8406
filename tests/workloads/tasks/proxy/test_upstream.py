"""The way to a provider: retries, and streams cut into events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.tasks.proxy import upstream
from bakeoff.workloads.tasks.proxy.upstream import EndlessEvent, EventReader
from workloads.tasks.proxied import (
    lab,
)
from workloads.tasks.scripted import Failure, say

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
NOW = {"retry-after": "0"}


def test_a_busy_provider_is_asked_again_and_that_is_recorded(tmp_path: Path) -> None:
    failures = [Failure(503, headers=NOW), Failure(429, headers=NOW)]
    with lab(tmp_path, [say("at last")], failures=failures) as here:
        answer = here.ask()
        totals = here.run.close()
        [call] = here.calls()
    assert answer.status_code == 200
    assert [retry.status for retry in call.retries] == [503, 429]
    assert (totals.calls, totals.broken) == (1, None)


def test_a_proxy_of_the_network_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with lab(tmp_path, [say("hi")]) as here:
        assert here.ask().status_code == 200


@given(
    payloads=st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8)), max_size=6),
    end=ENDS,
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_events_do_not_depend_on_where_the_stream_is_cut(
    payloads: list[dict[str, object]], end: str, cuts: list[int]
) -> None:

    texts = [f"event: e{n}{end}data: {json.dumps(payload)}{end}{end}" for n, payload in enumerate(payloads)]
    stream, reader, events = "".join([*texts, "data: rest"]).encode(), EventReader(), []
    position, turn = 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        events += reader.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    assert [event.data for event in events] == payloads
    assert [event.name for event in events] == [f"e{n}" for n in range(len(payloads))]
    assert b"".join(event.raw for event in events) + reader.rest == stream


def test_lines_may_end_in_different_ways_and_only_keys_are_changed() -> None:
    stream = b'\xef\xbf\xbd: ping\r\n\r\nevent: a\ndata: {"key": "s3cret"}\r\r\nid: 7\rdata: \xff\n\n\r\nretry: 1\n\n'
    reader = EventReader(["s3cret"])
    pieces = [reader.feed(stream[at : at + 1]) for at in range(len(stream))]
    events = [event for piece in pieces for event in piece]
    assert b"".join(event.raw for event in events) + reader.rest == stream.replace(b"s3cret", b"[key]")
    assert [event.data for event in events if event.data] == [{"key": "[key]"}]


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "LARGEST_EVENT", 1000)
    for chunk in (b"x" * 100, b"data: x\n"):
        reader = EventReader()
        with pytest.raises(EndlessEvent):
            for _ in range(1000):
                reader.feed(chunk)


def test_data_of_several_lines_is_one_text_and_done_is_not_an_object() -> None:
    first, second, comment = EventReader().feed(b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\n: ping\n\n')
    assert (first.data, second.data, comment.data) == ({"a": 1}, None, None)
