"""Who serves which model: base URL, key, prices. Keys stay in this process and are looked up by name.

```toml
[providers.local]
base_url = "http://127.0.0.1:8000/v1"
env_key = "LOCAL_KEY"                      # the variable that holds the key; none for a server without
wire_api = ["chat", "responses"]           # default: all
headers = { "x-team" = "${TEAM}" }
models = { small = "SmolLM2-135M" }        # names of yours -> names there
request = { logprobs = true }              # added to every request
prices."SmolLM2-135M" = { input = 0.1, output = 0.4 }        # dollars per million tokens
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from bakeoff.errors import UsageError
from bakeoff.spec.variables import MissingVariable, expand, variables
from bakeoff.workloads.tasks.proxy.usage import Price
from bakeoff.workloads.tasks.proxy.wire import WIRES
from bakeoff.workloads.tasks.proxy.wire.face import Wire, WireName

_VARIABLE = re.compile(r"\$\{(\w+)")
ALL: tuple[WireName, ...] = tuple(WIRES)


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Provider(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    base_url: str
    name: str = ""
    """For people; the table's own name is what models are addressed by."""
    env_key: str | None = None
    wire_api: Annotated[tuple[WireName, ...], BeforeValidator(_several), Field(min_length=1)] = ALL
    headers: dict[str, str] = {}
    models: dict[str, str] = {}
    request: dict[str, Any] = {}
    prices: dict[str, Price] = {}
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest silence of the provider."""

    @field_validator("base_url")
    @classmethod
    def _a_url(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value

    def url(self, wire: Wire) -> str:
        """Where this API is; a query in the base URL (an API version) stays."""
        base, mark, query = self.base_url.partition("?")
        base = base.rstrip("/")
        if wire.name == "messages" and not base.endswith("/v1"):
            base += "/v1"  # clients of this API leave it out
        return f"{base}/{wire.path}{mark}{query}"


@dataclass(frozen=True, slots=True)
class Route:
    """One model at one provider."""

    provider_name: str
    provider: Provider
    model: str
    """The provider's name for it."""

    @property
    def price(self) -> Price | None:
        return self.provider.prices.get(self.model)

    @property
    def label(self) -> str:
        return f"{self.provider_name}/{self.model}"

    def key(self, environment: Mapping[str, str]) -> str | None:
        if self.provider.env_key is None:
            return None
        key = environment.get(self.provider.env_key)
        if not key:
            raise UsageError(
                f"providers.{self.provider_name}.env_key: {self.provider.env_key} is not set\n"
                f"  fix: export {self.provider.env_key}=..., or remove env_key if {self.provider.base_url} needs no key"
            )
        return key

    def headers(self, wire: Wire, environment: Mapping[str, str]) -> dict[str, str]:
        key = self.key(environment)
        given = {name.lower(): _filled(value, environment, name) for name, value in self.provider.headers.items()}
        return {**(wire.authorization(key) if key else {}), **given}

    def secrets(self, environment: Mapping[str, str]) -> list[str]:
        """What must not be seen by a client or in a record."""
        names = [name for value in self.provider.headers.values() for name in _VARIABLE.findall(value)]
        names += [self.provider.env_key] if self.provider.env_key else []
        return [environment[name] for name in names if environment.get(name)]

    def check(self, wire: WireName, who: str) -> None:
        """That the provider speaks what the agent speaks."""
        if wire not in self.provider.wire_api:
            raise UsageError(
                f"{who} speaks the {wire} API, and providers.{self.provider_name}.wire_api has only "
                f"{', '.join(self.provider.wire_api)}\n  fix: choose another agent for {self.model}, or another provider: provider/{self.model}"
            )


def _filled(value: str, environment: Mapping[str, str], header: str) -> str:
    try:
        return expand(value, environment)
    except MissingVariable as error:
        raise UsageError(f"header {header}: {error.args[0]} is not set\n  fix: export {error.args[0]}=...") from error


@dataclass(frozen=True)
class Providers:
    """All providers by name, and the way from a model's name to one of them."""

    table: Mapping[str, Provider]
    environment: Mapping[str, str]

    @classmethod
    def read(cls, tables: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Providers:
        """`[providers.*]` of a file beside the two that everybody knows; a table of the same name replaces it."""
        environment = variables() if environment is None else environment
        table = _well_known(environment)
        for name, given in tables.items():
            try:
                table[name] = Provider.model_validate(given)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(str(part) for part in first["loc"])
                raise UsageError(f"providers.{name}.{key}: {first['msg']}") from error
        return cls(table, environment)

    def route(self, model: str) -> Route:
        """`provider/model`, else the provider that lists the model, else the file's only one, else by the name."""
        prefix, slash, rest = model.partition("/")
        if slash and rest and prefix in self.table:
            return self._at(prefix, rest)
        listing = [
            n for n, p in self.table.items() if model in p.models or model in p.models.values() or model in p.prices
        ]
        if len(listing) == 1:
            return self._at(listing[0], model)
        if len(listing) > 1:
            choices = " or ".join(f"{name}/{model}" for name in listing)
            raise UsageError(f"model {model!r} is served by {len(listing)} providers; write {choices}")
        return self._at(self._guess(model), model)

    def with_endpoint(self, base_url: str, key: str | None) -> Providers:
        """One endpoint for every model, as a task's overrides name it by URL and key."""
        provider = Provider(base_url=base_url, env_key=OVERRIDE_KEY if key else None)
        environment = {**self.environment, OVERRIDE_KEY: key} if key else self.environment
        return Providers({OVERRIDE: provider}, environment)

    def _at(self, name: str, model: str) -> Route:
        provider = self.table[name]
        return Route(name, provider, provider.models.get(model, model))

    def _guess(self, model: str) -> str:
        own = [name for name in self.table if name not in WELL_KNOWN]
        if len(own) == 1:
            return own[0]
        if model.startswith("claude") and not self._one_endpoint():
            return "anthropic"
        if own and not re.match(r"(gpt|o\d|codex|chatgpt)", model):
            names = ", ".join(f"{name}/{model}" for name in own)
            raise UsageError(f"no provider lists the model {model!r}; write one of {names}, or add it to its `models`")
        return "openai"

    def _one_endpoint(self) -> bool:
        """Only OPENAI_BASE_URL is set: what stands there, a gateway say, serves every model."""
        return "OPENAI_BASE_URL" in self.environment and not {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} & {
            *self.environment
        }


WELL_KNOWN = ("openai", "anthropic")
OVERRIDE = "override"
OVERRIDE_KEY = "bakeoff.override.key"


def _well_known(environment: Mapping[str, str]) -> dict[str, Provider]:
    """OpenAI and Anthropic, or what stands at the base URL that their own clients would take."""
    openai = environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    anthropic = environment.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    # A local server in their place usually wants no key, and then none is set.
    return {
        "openai": Provider(
            base_url=openai,
            env_key=_needed("OPENAI_API_KEY", "OPENAI_BASE_URL", environment),
            wire_api=ALL if "OPENAI_BASE_URL" in environment else ("chat", "responses"),
        ),
        "anthropic": Provider(
            base_url=anthropic,
            env_key=_needed("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", environment),
            wire_api=("messages", "chat"),
        ),
    }


def _needed(key: str, base_url: str, environment: Mapping[str, str]) -> str | None:
    return None if environment.get(base_url) and not environment.get(key) else key
