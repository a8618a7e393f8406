from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bakeoff.errors import UsageError
from bakeoff.workloads.tasks.proxy.http import WIRES
from bakeoff.workloads.tasks.proxy.providers import Provider, Providers
from bakeoff.workloads.tasks.workload import TasksParams

LOCAL = {
    "base_url": "http://127.0.0.1:8000/v1",
    "models": {"small": "SmolLM2"},
    "prices": {"priced": {"input": 1, "output": 2}},
}
OTHER = {"base_url": "https://api.example/v1?api-version=3", "env_key": "OTHER_KEY", "headers": {"X-Team": "${TEAM}"}}


def providers(environment: dict[str, str] | None = None, **tables: Any) -> Providers:
    return Providers.read({name: Provider.model_validate(table) for name, table in tables.items()}, environment or {})


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("local/anything", "local/anything"),
        ("local/small", "local/SmolLM2"),
        ("small", "local/SmolLM2"),
        ("SmolLM2", "local/SmolLM2"),
        ("priced", "local/priced"),
        ("other/org/model", "other/org/model"),
        ("claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("gpt-5-mini", "openai/gpt-5-mini"),
    ],
)
def test_a_model_finds_its_provider(model: str, label: str) -> None:
    assert providers(local=LOCAL, other=OTHER).route(model).label == label


def test_the_only_provider_of_a_file_gets_every_model() -> None:
    assert providers(local=LOCAL).route("gpt-5-mini").label == "local/gpt-5-mini"
    assert providers(local=LOCAL).route("claude-x").label == "local/claude-x"
    assert providers(local=LOCAL).route("org/model").label == "local/org/model"


def test_an_ambiguous_or_unknown_model_names_the_choices() -> None:
    with pytest.raises(UsageError, match="one/small or two/small"):
        providers(one=LOCAL, two=LOCAL).route("small")
    with pytest.raises(UsageError, match="local/mystery, other/mystery"):
        providers(local=LOCAL, other=OTHER).route("mystery")


def test_urls_fit_their_api() -> None:
    route = providers(other=OTHER).route("m")
    assert route.provider.url(WIRES["chat"], {}) == "https://api.example/v1/chat/completions?api-version=3"
    anthropic = providers().route("claude-x").provider
    assert anthropic.url(WIRES["messages"], {}) == "https://api.anthropic.com/v1/messages"


def test_headers_and_keys_come_from_the_environment() -> None:
    route = providers(other=OTHER).route("m")
    environment = {"OTHER_KEY": "k", "TEAM": "blue"}
    assert route.headers(WIRES["chat"], environment) == {"authorization": "Bearer k", "x-team": "blue"}
    assert route.headers(WIRES["messages"], environment) == {"x-api-key": "k", "x-team": "blue"}
    assert set(route.secrets(environment)) == {"k", "blue"}
    with pytest.raises(UsageError, match="export OTHER_KEY="):
        route.headers(WIRES["chat"], {"TEAM": "blue"})
    with pytest.raises(UsageError, match="header X-Team: TEAM is not set"):
        route.headers(WIRES["chat"], {"OTHER_KEY": "k"})


def test_the_usual_variables_choose_the_usual_providers() -> None:
    local = providers({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}).route("gpt-5-mini")
    assert (local.provider.base_url, local.provider.env_key) == ("http://127.0.0.1:1/v1", None)
    assert providers().route("gpt-5-mini").provider.env_key == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("environment", "label"),
    [
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "openai/claude-x"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_API_KEY": "k"}, "anthropic/claude-x"),
        ({}, "anthropic/claude-x"),
    ],
)
def test_an_endpoint_that_is_the_only_one_serves_every_model(environment: dict[str, str], label: str) -> None:
    assert providers(environment).route("claude-x").label == label


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "providers.bad.base_url"),
        ({"base_url": "ftp://x"}, "must start with http"),
        ({"base_url": "http://x", "wire_api": "smoke"}, "providers.bad.wire_api"),
        ({"base_url": "http://x", "api_key": "sk-1"}, "providers.bad.api_key"),
        ({"base_url": "http://x", "prices": {"m": {"input": -1, "output": 1}}}, "providers.bad.prices.m.input"),
    ],
)
def test_the_error_for_a_wrong_table_names_its_key(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TasksParams.model_validate({"path": "task", "providers": {"bad": table}})


def test_a_tasks_own_endpoint_takes_every_model() -> None:
    added = providers(local=LOCAL).with_endpoint("http://127.0.0.1:9/v1", "sk-task")
    for model in ("gpt-5-mini", "claude-x", "local/small"):
        assert added.route(model).headers(WIRES["chat"], added.environment) == {"authorization": "Bearer sk-task"}
    assert providers().with_endpoint("http://127.0.0.1:9/v1", None).route("m").key({}) is None
