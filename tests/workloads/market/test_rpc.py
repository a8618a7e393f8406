"""What is a JSON-RPC request and what is not. Parameters are taken in every usual spelling and refused in all others."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.workloads.market import rpc
from bakeoff.workloads.market.methods import METHODS
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


# -- parameters


BUY = {"marketId": "market-1", "outcome": "YES", "amount": 10}
OPEN = {"ticker": "BTCX", "side": "LONG", "size": 100, "leverage": 2}


def fault(method: str, params: Any) -> tuple[str, str]:
    with pytest.raises(RpcError) as caught:
        rpc.read(METHODS[method].params, params)
    assert caught.value.code == -32602
    return caught.value.data["path"], caught.value.message


@pytest.mark.parametrize("side", ["long", "Long", "LONG"])
@pytest.mark.parametrize("name", ["size", "amount"])
def test_a_position_is_opened_by_size_or_amount_and_a_side_in_any_case(side: str, name: str) -> None:
    params = {"ticker": "BTCX", "side": side, name: 100}
    read = rpc.read(rpc.OpenPosition, params)
    assert (read.side, read.notional, read.leverage) == ("LONG", 100, 1)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("getPredictions", {"userId": "player-1", "status": "resolved"}),
        ("openPosition", {"ticker": "BTCX", "side": "LONG", "amount": 10, "leverage": 100}),
        ("getTrades", {"limit": 50, "marketId": "market-0"}),
        ("getTradeHistory", {"userId": "player-1", "limit": 50}),
        ("getFeed", {"limit": 20, "offset": 0, "following": False, "type": "article"}),
        ("createPost", {"content": "x" * 5000, "type": "post", "marketId": "market-0"}),
        ("getChats", {"filter": "dms"}),
        ("getChatMessages", {"chatId": "chat-0", "limit": 50, "offset": 5}),
        ("getLeaderboard", {"page": 2, "pageSize": 100, "pointsType": "all", "minPoints": 50}),
        ("discover", {"filters": {"strategies": ["momentum"], "minReputation": 5, "markets": ["BTCX"]}, "limit": 3}),
        ("getTrendingTags", {"limit": 20}),
    ],
)
def test_every_parameter_that_agents_of_the_protocol_send_is_taken(method: str, params: dict[str, Any]) -> None:
    assert rpc.read(METHODS[f"a2a.{method}"].params, params)


def test_a_whole_number_may_be_written_with_a_point_as_in_json_schema() -> None:
    assert rpc.read(rpc.GetFeed, {"limit": 2.0, "offset": 0.0}).limit == 2


def test_shares_are_sold_by_position_or_by_market_and_outcome() -> None:
    assert rpc.read(rpc.SellShares, {"positionId": "p", "shares": 1}).position_id == "p"
    assert rpc.read(rpc.SellShares, {"marketId": "m", "outcome": "no", "shares": 1}).outcome == "NO"


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("a2a.buyShares", {**BUY, "surplus": 1}, "surplus"),
        ("a2a.buyShares", {**BUY, "amount": "10"}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": True}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": None}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": math.nan}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": math.inf}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": 0}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": -5}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": 1e10}, "amount"),
        ("a2a.buyShares", {**BUY, "amount": 10**400}, "amount"),
        ("a2a.buyShares", {**BUY, "outcome": "MAYBE"}, "outcome"),
        ("a2a.buyShares", {**BUY, "marketId": ""}, "marketId"),
        ("a2a.buyShares", {**BUY, "marketId": "x" * 129}, "marketId"),
        ("a2a.buyShares", {**BUY, "market_id": "market-1"}, "market_id"),
        ("a2a.openPosition", {**OPEN, "leverage": 101}, "leverage"),
        ("a2a.openPosition", {**OPEN, "leverage": 0.5}, "leverage"),
        ("a2a.openPosition", {**OPEN, "amount": 5}, ""),
        ("a2a.sellShares", {"shares": 1}, ""),
        ("a2a.sellShares", {"shares": 1, "positionId": "p", "marketId": "m"}, ""),
        ("a2a.createPost", {"content": ""}, "content"),
        ("a2a.createPost", {"content": "x" * 5001}, "content"),
        ("a2a.createPost", {"content": "x", "probability": 0.5}, ""),
        ("a2a.createPost", {"content": "x", "marketId": "m", "probability": 1.01}, "probability"),
        ("a2a.getFeed", {"limit": 0}, "limit"),
        ("a2a.getFeed", {"limit": 501}, "limit"),
        ("a2a.getFeed", {"offset": -1}, "offset"),
        ("a2a.getFeed", {"limit": 2.5}, "limit"),
        ("a2a.getFeed", {"limit": True}, "limit"),
        ("a2a.discover", {"filters": {"strategies": ["x", 5]}}, "filters.strategies.1"),
        ("a2a.observe", {"surplus": 1}, "surplus"),
    ],
)
def test_a_fault_is_told_with_its_place(method: str, params: dict[str, Any], path: str) -> None:
    found, message = fault(method, params)
    assert found == path
    assert message.startswith(f"{path}: " if path else "")


@pytest.mark.slow
@given(method=st.sampled_from(sorted(METHODS)), params=st.dictionaries(st.text(max_size=12), ANY_JSON, max_size=5))
def test_no_parameters_make_the_reader_fail(method: str, params: dict[str, Any]) -> None:
    try:
        rpc.read(METHODS[method].params, params)
    except RpcError as error:
        assert error.type == "invalid_params"


@pytest.mark.slow
@given(data=st.data(), method=st.sampled_from(sorted(METHODS)))
def test_what_fits_the_published_schema_of_single_values_is_taken(data: st.DataObject, method: str) -> None:
    """Rules over several parameters (either this or that) are not in the schemas; everything else is."""
    schema = METHODS[method].schema
    params = {name: data.draw(_fitting(value)) for name, value in schema.get("properties", {}).items()}
    jsonschema.validate(params, schema)
    try:
        rpc.read(METHODS[method].params, params)
    except RpcError as error:
        assert error.data["path"] == ""


def _fitting(value: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in value:
        return st.one_of([_fitting(option) for option in value["anyOf"]])
    if "const" in value:
        return st.just(value["const"])
    if "enum" in value:
        return st.sampled_from(value["enum"])
    match value.get("type"):
        case "string":
            return st.text("abc-1", min_size=value.get("minLength", 0), max_size=min(20, value.get("maxLength", 20)))
        case "integer":
            return st.integers(value.get("minimum"), value.get("maximum"))
        case "number":
            low = value.get("minimum", value.get("exclusiveMinimum"))
            return st.floats(low, value.get("maximum"), exclude_min="exclusiveMinimum" in value, allow_nan=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_fitting(value["items"]), max_size=3)
        case "null":
            return st.none()
        case "object":
            inner = {name: _fitting(item) for name, item in value.get("properties", {}).items()}
            return st.fixed_dictionaries({}, optional=inner)
    raise AssertionError(f"no strategy for {value}")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_schemas_are_json_schemas_that_refuse_unknown_keys(method: str) -> None:
    schema = METHODS[method].schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert "$ref" not in json.dumps(schema)
