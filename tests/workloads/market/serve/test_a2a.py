"""Standard A2A, through the SDK's own client, its 0.3 transport, and raw requests."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory, create_client
from a2a.client.errors import A2AClientError
from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors

from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.serve import a2a
from bakeoff.workloads.market.serve.game import Place, Seats
from bakeoff.workloads.market.session import Session
from workloads.market.games import assert_same_state, fresh_world, play_here, play_there, served, table

ONE = {"Authorization": "Bearer token-of-one"}
TWO = {"Authorization": "Bearer token-of-two"}


@pytest.fixture
def alone() -> Iterator[tuple[Seats, str]]:
    with table() as seats, served(lambda _: a2a.a2a_routes(seats)) as url:
        yield seats, url


@pytest.fixture
def shared() -> Iterator[tuple[Seats, str]]:
    with table(seats=2) as seats, served(lambda _: a2a.a2a_routes(seats)) as url:
        yield seats, url


def asked(operation: str, params: dict[str, Any], key: str = "operation", **place: str) -> pb.SendMessageRequest:
    part = new_data_part({key: operation, "params": params})
    return pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[part], **place))


async def sent(client: Client, request: pb.SendMessageRequest) -> pb.StreamResponse:
    (answer,) = [event async for event in client.send_message(request)]
    return answer


async def called(client: Client, operation: str, params: dict[str, Any], **more: str) -> dict[str, Any]:
    answer = await sent(client, asked(operation, params, **more))
    (data,) = get_data_parts(answer.message.parts)
    result: dict[str, Any] = data["result"]
    return result


async def called_or_refused(client: Client, operation: str, params: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return await called(client, operation, params)
    except errors.A2AError:
        return None


def reference() -> Session:
    session = Session(fresh_world())
    play_here(session)
    return session


@pytest.mark.slow
def test_an_episode_over_protocol_1_0_ends_in_the_same_world_as_in_process(alone: tuple[Seats, str]) -> None:
    seats, url = alone

    async def play() -> int:
        async with (
            httpx.AsyncClient(headers=ONE) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as one,
        ):
            return await play_there(lambda operation, params: called_or_refused(one, operation, params))

    assert asyncio.run(play()) >= 6  # the script tries a market that is not there in every tick
    assert_same_state(seats.games[0].world, reference().world)


@pytest.mark.slow
def test_an_episode_over_the_0_3_transport_ends_in_the_same_world_as_in_process(alone: tuple[Seats, str]) -> None:
    seats, url = alone
    card = a2a.agent_card(url)
    del card.supported_interfaces[0]  # an agent that knows 0.3 only

    async def play() -> None:
        async with httpx.AsyncClient(headers=ONE) as http:
            client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
            assert isinstance(client._transport, CompatJsonRpcTransport)
            await play_there(lambda operation, params: called_or_refused(client, operation, params))

    asyncio.run(play())
    assert_same_state(seats.games[0].world, reference().world)


@pytest.mark.slow
def test_an_episode_of_raw_0_3_requests_ends_in_the_same_world_as_in_process(alone: tuple[Seats, str]) -> None:
    seats, url = alone

    async def play() -> None:
        async with httpx.AsyncClient(headers=ONE) as http:

            async def call(action: str, params: dict[str, Any]) -> dict[str, Any] | None:
                answer = (
                    await http.post(url + a2a.PATH, json=old_request({"action": action, "params": params}))
                ).json()
                if "error" in answer:
                    return None
                (part,) = answer["result"]["parts"]
                assert (answer["result"]["kind"], part["kind"]) == ("message", "data")
                result: dict[str, Any] = part["data"]["result"]
                return result

            await play_there(call)

    asyncio.run(play())
    assert_same_state(seats.games[0].world, reference().world)


def old_request(data: dict[str, Any], **message: Any) -> dict[str, Any]:
    parts = [{"kind": "data", "data": data}]
    body = {"kind": "message", "messageId": "m", "role": "user", "parts": parts, **message}
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": body}}


def test_json_text_is_answered_with_json_text(alone: tuple[Seats, str]) -> None:
    _, url = alone

    async def ask() -> str:
        async with (
            httpx.AsyncClient(headers=ONE) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as one,
        ):
            part = new_text_part('{"method": "a2a.getBalance"}')
            message = pb.Message(message_id="m", role=pb.Role.ROLE_USER, parts=[part])
            answer = await sent(one, pb.SendMessageRequest(message=message))
            (part,) = answer.message.parts
            return str(part.text)

    assert json.loads(asyncio.run(ask()))["result"]["balance"] == 10_000


def test_the_card_names_both_versions_one_url_and_a_skill_for_every_method(alone: tuple[Seats, str]) -> None:
    _, url = alone
    card = httpx.get(url + "/.well-known/agent-card.json").json()
    versions = [(one["protocolBinding"], one["protocolVersion"], one["url"]) for one in card["supportedInterfaces"]]
    assert versions == [("JSONRPC", version, url + a2a.PATH) for version in ("1.0", "0.3")]
    assert (card["url"], card["preferredTransport"], card["protocolVersion"]) == (url + a2a.PATH, "JSONRPC", "0.3")
    told = ", ".join(skill["description"].removeprefix("Operations: ") for skill in card["skills"]).split(", ")
    assert sorted(told) == sorted(method.short for method in METHODS.values())


@pytest.mark.parametrize(
    ("operation", "params", "error", "kind"),
    [
        ("buyShares", {"marketId": "market-99999", "outcome": "YES", "amount": 5}, errors.InvalidParamsError, "market_not_found"),
        ("buyShares", {"marketId": "market-1"}, errors.InvalidParamsError, "invalid_params"),
        ("flyToTheMoon", {}, errors.MethodNotFoundError, "method_not_found"),
        ("openPosition", {"ticker": "BTCX", "side": "LONG", "size": 9e8}, errors.UnsupportedOperationError, "insufficient_funds"),
    ],
)  # fmt: skip
def test_refusals_are_the_protocols_own_errors_with_our_type(
    alone: tuple[Seats, str], operation: str, params: dict[str, Any], error: type[errors.A2AError], kind: str
) -> None:
    _, url = alone

    async def ask() -> None:
        async with (
            httpx.AsyncClient(headers=ONE) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as one,
        ):
            await called(one, operation, params)

    with pytest.raises(error) as raised:
        asyncio.run(ask())
    assert raised.value.data["type"] == kind
    old = httpx.post(url + a2a.PATH, json=old_request({"operation": operation, "params": params}), headers=ONE).json()
    assert old["error"]["data"]["type"] == kind


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"operation": 5},
        {"operation": "observe", "action": "observe"},
        {"operation": "observe", "limit": 5},
        {"operation": "observe", "params": [1]},
        {"operation": "buyShares", "params": {"marketId": "market-0", "outcome": "YES", "amount": math.inf}},
    ],
)
def test_a_message_that_says_no_operation_is_refused(alone: tuple[Seats, str], data: dict[str, Any]) -> None:
    _, url = alone
    content = json.dumps(old_request(data))  # which, unlike the client, takes infinity
    answer = httpx.post(url + a2a.PATH, content=content, headers={**ONE, "Content-Type": "application/json"}).json()
    assert answer["error"]["data"]["type"] in ("invalid_request", "invalid_params")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic token-of-one"}])
def test_without_a_right_token_nothing_is_told(alone: tuple[Seats, str], headers: dict[str, str]) -> None:
    _, url = alone
    answer = httpx.post(url + a2a.PATH, json=old_request({"operation": "observe"}), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"

    async def ask() -> None:
        async with (
            httpx.AsyncClient(headers=headers) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as one,
        ):
            await called(one, "observe", {})

    with pytest.raises(A2AClientError, match="401"):
        asyncio.run(ask())


@pytest.mark.slow
def test_a_token_never_reaches_another_seat(shared: tuple[Seats, str]) -> None:
    seats, url = shared
    of_one = {"context": a2a.context_of(seats.places[0]), "task": a2a.task_of(seats.places[0])}
    foreign = (
        old_request({"operation": "observe"}, contextId=of_one["context"]),
        old_request({"operation": "observe"}, taskId=of_one["task"]),
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": of_one["task"]}},
        old_request({"operation": "getUserWallet", "params": {"userId": seats.places[0].session.agent_id}}),
    )
    for request in foreign:
        answer = httpx.post(url + a2a.PATH, json=request, headers=TWO).json()
        assert "error" in answer and "result" not in answer
    seen = httpx.post(url + a2a.PATH, json=old_request({"operation": "observe"}), headers=TWO).json()
    assert seen["result"]["parts"][0]["data"]["result"]["agentId"] == seats.places[1].session.agent_id
    wrong = httpx.post(url + a2a.PATH, json=foreign[0], headers={**TWO, "x-agent-id": "player-1"})
    assert wrong.status_code == 401


def test_the_episode_is_a_task_that_waits_for_input_and_completes(alone: tuple[Seats, str]) -> None:
    seats, url = alone
    task_id, context_id = a2a.task_of(seats.places[0]), a2a.context_of(seats.places[0])

    async def play() -> None:
        async with (
            httpx.AsyncClient(headers=ONE) as http,
            await create_client(url, ClientConfig(httpx_client=http)) as one,
        ):
            first = await sent(one, asked("observe", {}))
            assert first.message.context_id == context_id
            (task,) = (await one.list_tasks(pb.ListTasksRequest(context_id=context_id))).tasks
            assert (task.id, task.status.state) == (task_id, pb.TaskState.TASK_STATE_INPUT_REQUIRED)
            for tick in range(1, seats.games[0].world.ticks + 1):
                task = (await sent(one, asked("endTurn", {}, context_id=context_id, task_id=task_id))).task
                (answer,) = get_data_parts(task.status.message.parts)
                assert answer["result"]["tick"] == tick
            assert task.status.state == pb.TaskState.TASK_STATE_COMPLETED
            assert await one.get_task(pb.GetTaskRequest(id=task_id)) == await one.get_task(
                pb.GetTaskRequest(id=task_id)
            )
            (final,) = get_data_parts(task.artifacts[0].parts)
            assert final["result"]["equity"] == seats.places[0].session.call("getPortfolio")["equity"]
            with pytest.raises(errors.UnsupportedOperationError, match="over"):
                await called(one, "openPosition", {"ticker": "BTCX", "side": "LONG", "size": 50})

    asyncio.run(play())


def test_a_deadline_that_has_passed_is_told_as_turn_over() -> None:
    now = [0.0]
    with (
        table(seats=2, tick_timeout=5.0, clock=lambda: now[0]) as seats,
        served(lambda _: a2a.a2a_routes(seats)) as url,
    ):
        seats.games[0].open()
        now[0] = 5.5
        order = {"operation": "openPosition", "params": {"ticker": "BTCX", "side": "LONG", "size": 50}}
        answer = httpx.post(url + a2a.PATH, json=old_request(order), headers=ONE).json()
        assert answer["error"]["data"]["type"] == "turn_over"
        seats.games[0].expire(0)
        answer = httpx.post(url + a2a.PATH, json=old_request(order), headers=ONE).json()
        assert "error" not in answer


def test_what_is_not_offered_is_refused_in_the_protocols_words(alone: tuple[Seats, str]) -> None:
    _, url = alone
    new = {**ONE, "A2A-Version": "1.0"}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"operation": "observe"}}]}
    for method, params, code in (
        ("SendStreamingMessage", {"message": {**message, "parts": [{"text": "hello"}]}}, -32600),
        ("CancelTask", {"id": "play-player-1"}, -32002),
        ("GetTask", {"id": "nobody"}, -32001),
        ("SubscribeToTask", {"id": "nobody"}, -32001),
        ("ListTaskPushNotificationConfigs", {"taskId": "play-player-1"}, -32003),
        ("GetExtendedAgentCard", {}, -32007),
    ):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(url + a2a.PATH, json=body, headers=new)
        text = answer.text.removeprefix("event: error\r\n").removeprefix("data: ")
        assert json.loads(text)["error"]["code"] == code, method


@pytest.mark.parametrize("streaming", [True, False])
def test_a_stream_is_one_answer(alone: tuple[Seats, str], streaming: bool) -> None:
    _, url = alone

    async def ask() -> tuple[float, list[Any]]:
        config = ClientConfig(streaming=streaming)
        async with httpx.AsyncClient(headers=ONE) as config.httpx_client, await create_client(url, config) as one:
            balance = (await called(one, "getBalance", {}))["balance"]
            seen = one.subscribe(pb.SubscribeToTaskRequest(id="play-player-1")) if streaming else None
            return balance, [event.task.id async for event in seen] if seen else []

    assert asyncio.run(ask()) == (10_000, ["play-player-1"] if streaming else [])
    old = {**old_request({"operation": "getBalance"}), "method": "message/stream"}
    answer = httpx.post(url + a2a.PATH, json=old, headers=ONE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    (event,) = answer.text.strip().removeprefix("data: ").split("data: ")
    assert json.loads(event)["result"]["parts"][0]["data"]["result"]["balance"] == 10_000


def test_a_fault_of_the_server_is_told_without_its_text() -> None:
    async def broken(place: Place, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("the key is 42")

    with table() as seats, served(lambda _: a2a.a2a_routes(seats, broken)) as url:
        answer = httpx.post(url + a2a.PATH, json=old_request({"operation": "observe"}), headers=ONE)
    assert answer.json()["error"]["code"] == -32603
    assert "42" not in answer.text


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_not_read(alone: tuple[Seats, str], chunked: bool) -> None:
    _, url = alone
    content = b'{"jsonrpc": "2.0", "x": "' + b"y" * 2_000_000
    body = iter([content[:1_500_000], content[1_500_000:]]) if chunked else content
    answer = httpx.post(url + a2a.PATH, content=body, headers={**ONE, "Content-Type": "application/json"})
    assert answer.status_code == 413
    assert httpx.post(url + a2a.PATH, json=old_request({"operation": "observe"}), headers=ONE).json()["result"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1}', b"\xff\xfe"]
)
def test_what_is_no_request_is_answered_with_an_error(alone: tuple[Seats, str], content: bytes) -> None:
    _, url = alone
    answer = httpx.post(url + a2a.PATH, content=content, headers={**ONE, "Content-Type": "application/json"})
    assert answer.status_code == 200 and answer.json()["error"]["code"] < 0
