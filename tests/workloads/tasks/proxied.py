"""A real proxy in front of a scripted model, and a plain client for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bakeoff.workloads.tasks.proxy.providers import Budget, Provider, Providers
from bakeoff.workloads.tasks.proxy.records import Call, read_calls
from bakeoff.workloads.tasks.proxy.server import GatewayLimits, ModelProxy, ProxiedRun
from support.processes import eventually
from workloads.tasks.scripted import Failure, ScriptedModel, Turn

KEY = "sk-the-real-key-0123456789"
MODEL = "test-model"
PRICES = {MODEL: {"input": 1.0, "cached": 0.1, "output": 2.0}}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
WIRES = list(PATHS)
Json = dict[str, Any]
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def request(wire: str, text: str, *, stream: bool = False, tools: bool = False, **more: Any) -> dict[str, Any]:
    """One question in this API."""
    body: dict[str, Any] = {"model": MODEL, "stream": stream, **more}
    if wire == "responses":
        body.setdefault("input", [{"role": "user", "content": [{"type": "input_text", "text": text}]}])
        body |= {"tools": [{"type": "function", "name": "bash", "parameters": SHELL}]} if tools else {}
    else:
        body.setdefault("messages", [{"role": "user", "content": text}])
        if tools and wire == "chat":
            body["tools"] = [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}]
        elif tools:
            body["tools"] = [{"name": "bash", "input_schema": SHELL}]
    return ({"max_tokens": 1000} if wire == "messages" else {}) | body


def wait_for_looks(rates: Path, number: int) -> None:
    """Wait until calls have looked for room in this file of rates so many times: each look writes it again."""
    for _ in range(number):
        before = rates.stat().st_mtime_ns
        eventually(lambda before=before: rates.stat().st_mtime_ns != before, "a call looks for room")


@dataclass(frozen=True)
class Lab:
    model: ScriptedModel
    proxy: ModelProxy
    providers: Providers
    run: ProxiedRun
    client: httpx.Client

    def ask(self, wire: str = "chat", text: str = "hi", **more: Any) -> httpx.Response:
        return self.client.post(PATHS[wire], json=request(wire, text, **more))

    def calls(self) -> list[Call]:
        return [record for record in read_calls(self.run.record) if isinstance(record, Call)]


def headers(run: ProxiedRun) -> dict[str, str]:
    return {"authorization": f"Bearer {run.token}"}


@contextmanager
def lab(
    folder: Path,
    turns: Sequence[Turn],
    *,
    budget: Budget | None = None,
    failures: Sequence[Failure] = (),
    provider: Mapping[str, Any] | None = None,
    limits: GatewayLimits | None = None,
    others: Mapping[str, str] | None = None,
    side: Turn | None = None,
    patience: float = 900.0,
    allowed: Sequence[str] = (),
    share_cache: bool = True,
) -> Iterator[Lab]:
    with (
        ScriptedModel(turns, failures=failures, side=side) as model,
        ModelProxy(loopback=True, limits=limits) as proxy,
    ):
        table = {"base_url": f"{model.url}/v1", "env_key": "TEST_KEY", "prices": PRICES, **(provider or {})}
        providers = Providers.read({"test": Provider.model_validate(table)}, {"TEST_KEY": KEY})
        record = folder / "calls.jsonl"
        run = proxy.open(
            providers,
            f"test/{MODEL}",
            record=record,
            budget=budget,
            others=others,
            patience=patience,
            allowed=allowed,
            share_cache=share_cache,
        )
        with httpx.Client(base_url=proxy.url, headers=headers(run), timeout=20, trust_env=False) as client:
            yield Lab(model, proxy, providers, run, client)


def events(text: str) -> list[dict[str, Any]]:
    """The JSON data of a stream's events."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(data) for data in found]


def error_of(answer: httpx.Response) -> dict[str, str]:
    """The error in an answer of any API."""
    error: dict[str, str] = answer.json()["error"]
    return error


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def said(text: str, *ids: str) -> Json:
    calls = [{"id": id, "type": "function", "function": {"name": "bash", "arguments": '{"a": 1}'}} for id in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def result(id: str, text: str = "ok") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}
