from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.tasks.proxy.upstream import EventReader

ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(
    payloads=st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8)), max_size=6),
    end=ENDS,
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_events_do_not_depend_on_where_the_stream_is_cut(
    payloads: list[dict[str, object]], end: str, cuts: list[int]
) -> None:
    import json

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


def test_data_of_several_lines_is_one_text_and_done_is_no_object() -> None:
    first, second, comment = EventReader().feed(b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\n: ping\n\n')
    assert (first.data, second.data, comment.data) == ({"a": 1}, None, None)
