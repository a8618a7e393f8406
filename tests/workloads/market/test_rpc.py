"""What is a JSON-RPC request and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.market import rpc
from bakeoff.workloads.market.rpc import CODES, RpcError

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def refused(message: Any) -> str:
    with pytest.raises(RpcError) as caught:
        rpc.read_request(message)
    return caught.value.type


def test_a_request_has_a_method_parameters_by_name_and_an_id() -> None:
    request = rpc.read_request({"jsonrpc": "2.0", "id": 7, "method": "a2a.observe", "params": {"a": 1}})
    assert request == rpc.Request("a2a.observe", {"a": 1}, 7)


@pytest.mark.parametrize("id", ["", "é", 0, -1, 1.0, 1.5, 2**63 - 1, None])
def test_an_id_is_any_text_or_number_and_is_given_back(id: Any) -> None:
    request = rpc.read_request({"jsonrpc": "2.0", "id": id, "method": "m"})
    assert rpc.decode(rpc.encode(rpc.success(request.id, {})))["id"] == id


def test_a_request_without_an_id_is_a_notification_and_one_with_a_null_id_is_not() -> None:
    assert rpc.read_request({"jsonrpc": "2.0", "method": "m"}).notification
    assert not rpc.read_request({"jsonrpc": "2.0", "method": "m", "id": None}).notification


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "a2a.observe",
        {},
        {"method": "m", "id": 1},
        {"jsonrpc": "1.0", "method": "m", "id": 1},
        {"jsonrpc": "2.0", "method": 5, "id": 1},
        {"jsonrpc": "2.0", "method": "m", "id": True},
        {"jsonrpc": "2.0", "method": "m", "id": {}},
        {"jsonrpc": "2.0", "method": "m", "id": [1]},
        {"jsonrpc": "2.0", "method": "m", "id": 1e300},
        {"jsonrpc": "2.0", "method": "m", "id": 2**70},
        {"jsonrpc": "2.0", "method": "m", "id": "x" * 257},
        {"jsonrpc": "2.0", "method": "m", "id": 1, "surplus": 1},
    ],
)
def test_what_is_no_request_is_refused(message: Any) -> None:
    assert refused(message) == "invalid_request"


def test_no_parameters_may_be_an_empty_list() -> None:
    assert rpc.read_request({"jsonrpc": "2.0", "method": "m", "id": 1, "params": []}).params == {}


@pytest.mark.parametrize("params", [None, [1, 2], "x", 5])
def test_parameters_must_be_named(params: Any) -> None:
    assert refused({"jsonrpc": "2.0", "method": "m", "id": 1, "params": params}) == "invalid_params"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"NaN", b'{"a": Infinity}', b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"{} {}", b"'a'"],
)
def test_what_is_not_strict_json_is_a_parse_error(content: bytes) -> None:
    with pytest.raises(RpcError) as caught:
        rpc.decode(content)
    assert caught.value.code == -32700


@given(message=ANY_JSON)
def test_no_json_value_makes_the_reader_fail(message: Any) -> None:
    try:
        rpc.read_request(message)
    except RpcError as error:
        assert error.code == CODES[error.type]
        rpc.encode(rpc.failure(rpc.id_of(message), error))


@given(content=st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail(content: bytes) -> None:
    try:
        rpc.decode(content)
    except RpcError as error:
        assert error.type == "parse_error"


def test_no_two_types_of_errors_share_a_code() -> None:
    assert len(set(CODES.values())) == len(CODES)
