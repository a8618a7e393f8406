"""Who serves which model (base URL, key, prices), and what a run may spend on it.

Keys stay in this process and are looked up by name.

```toml
[providers.local]
base_url = "http://127.0.0.1:8000/v1"
env_key = "LOCAL_KEY"                      # the variable that holds the key; leave it out for a server without one
wire_api = ["chat", "responses"]           # default: all
headers = { "x-team" = "${TEAM}" }
models = { small = "SmolLM2-135M" }        # your names -> the provider's names
request = { logprobs = true }              # added to every request
prices."SmolLM2-135M" = { input = 0.1, output = 0.4 }        # dollars per million tokens
```

`Providers.read(tables).route("local/small")` is a `Route`: one model at one provider, with its key and price.

The proxy holds every budget (`Budget`; spending.py), so one limit means the same for every client.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from bakeoff.errors import UsageError, install
from bakeoff.spec.formats import MissingVariable, expand, variables
from bakeoff.workloads.tasks.proxy.prices import PriceList
from bakeoff.workloads.tasks.proxy.shared import Rates
from bakeoff.workloads.tasks.proxy.wire import Json, Price, Wire, WireName

_VARIABLE = re.compile(r"\$\{(\w+)")
ALL: tuple[WireName, ...] = get_args(WireName)

WELL_KNOWN: dict[str, tuple[str, tuple[WireName, ...]]] = {
    "openai": ("https://api.openai.com/v1", ("chat", "responses")),
    "anthropic": ("https://api.anthropic.com", ("messages", "chat")),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta", ("gemini",)),
}
"""Providers that need no table: base URL and APIs. `<NAME>_API_KEY` has the key, `<NAME>_BASE_URL` replaces the URL."""
OVERRIDE = "override"
OVERRIDE_KEY = "bakeoff.override.key"

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses of a provider that is busy or broken for the moment. 520 to 524 are Cloudflare's, 529 is Anthropic's."""
NOT_THE_AGENT = RETRYABLE | {401, 402, 403, 404}
"""Statuses that say nothing about the agent: overload, a wrong key, an unknown model."""
LONGEST_WAIT = 20.0
"""Seconds between two tries, whatever the provider asks for."""
PROVIDER_PATIENCE = 900.0
"""Seconds for which a call is repeated while its provider fails, unless the experiment says otherwise."""
_KEY_LIKE = re.compile(r"\b(sk|pk|key)-[\w*.-]{6,}")

Limit = Literal["tokens", "cost", "calls", "deadline", "record", "experiment"]
LETTERS_PER_TOKEN = 4
"""The usual rule of thumb for English text and code; used where the provider does not count."""

LIBRARIES = ("httpx", "httpx_sse", "starlette", "uvicorn")
"""What the proxy needs beyond the core install: the extra `tasks`."""


class Provider(BaseModel):
    """`[providers.NAME]` of an experiment file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    base_url: str
    name: str = ""
    """A title for people. Models are addressed by the name of the table."""
    env_key: str | None = None
    wire_api: Annotated[
        tuple[WireName, ...],
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        Field(min_length=1),
    ] = ALL
    headers: dict[str, str] = {}
    models: dict[str, str] = {}
    request: dict[str, Any] = {}
    prices: dict[str, Price] = {}
    retries: Annotated[int, Field(ge=0)] | None = None
    """Most tries of a call after its first one (default: as many as fit into the run's `provider_patience`)."""
    requests_per_minute: Annotated[float, Field(ge=1)] | None = None
    tokens_per_minute: Annotated[float, Field(ge=1)] | None = None
    """Rates over all runs on this machine. Calls wait until there is room."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """The longest silence of the provider."""

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value

    def url(self, wire: Wire, sent: Json) -> str:
        """Where a request of this API goes. A query in the base URL (Azure's `api-version`) is kept."""
        base, _, query = self.base_url.partition("?")
        base = base.rstrip("/")
        if wire.name == "gemini" and not re.search(r"/v1(alpha|beta)?$", base):
            base += "/v1beta"
        if wire.name == "messages" and not base.endswith("/v1"):
            base += "/v1"  # ANTHROPIC_BASE_URL has no /v1, unlike OPENAI_BASE_URL; Anthropic's clients add it
        path, _, more = wire.address(sent).partition("?")
        both = "&".join(part for part in (query, more) if part)
        return f"{base}/{path}" + (f"?{both}" if both else "")


@dataclass(frozen=True, slots=True)
class Route:
    """One model at one provider."""

    provider_name: str
    provider: Provider
    model: str
    """The provider's name for the model."""
    listed: Price | None = None
    """The price in the price list."""

    @property
    def price(self) -> Price | None:
        return self.provider.prices.get(self.model, self.listed)

    @property
    def rates(self) -> Rates | None:
        """The provider's rates, which all runs share; None when it has none."""
        provider = self.provider
        return Rates.of(provider.base_url, provider.env_key, provider.requests_per_minute, provider.tokens_per_minute)

    @property
    def label(self) -> str:
        return f"{self.provider_name}/{self.model}"

    def key(self, environment: Mapping[str, str]) -> str | None:
        """The provider's key; None for a provider without one. Raises UsageError when the variable is not set."""
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
        """The headers that are added to every request: the key, and those of the table. Raises UsageError."""
        key = self.key(environment)
        headers = wire.authorization(key) if key else {}
        for name, value in self.provider.headers.items():
            try:
                headers[name.lower()] = expand(value, environment)
            except MissingVariable as error:
                variable = error.args[0]
                raise UsageError(f"header {name}: {variable} is not set\n  fix: export {variable}=...") from error
        return headers

    def secrets(self, environment: Mapping[str, str]) -> list[str]:
        """Values that no client and no record may contain: the key, and variables in headers."""
        names = [name for value in self.provider.headers.values() for name in _VARIABLE.findall(value)]
        names += [self.provider.env_key] if self.provider.env_key else []
        return [environment[name] for name in names if environment.get(name)]

    def check(self, wire: WireName, who: str) -> None:
        """Raise UsageError unless `who`, an agent that speaks this API, can use the route on this installation."""
        if wire not in self.provider.wire_api:
            raise UsageError(
                f"{who} speaks the {wire} API, but providers.{self.provider_name}.wire_api has only "
                f"{', '.join(self.provider.wire_api)}\n"
                f"  fix: choose another agent for {self.model}, or another provider: provider/{self.model}"
            )
        check_installed()


def check_installed() -> None:
    """Raise UsageError when the libraries of the proxy are missing. Looks for them without importing them."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"an agent that calls a model needs the Python packages {', '.join(missing)}\n  fix: {install('tasks')}"
        )


@dataclass(frozen=True)
class Providers:
    """All providers by name, and the environment that holds their keys."""

    table: Mapping[str, Provider]
    environment: Mapping[str, str]
    prices: PriceList

    @classmethod
    def read(
        cls,
        tables: Mapping[str, Provider],
        environment: Mapping[str, str] | None = None,
        prices: Path | None = None,
    ) -> Providers:
        """The `[providers.*]` tables of a file on top of OpenAI, Anthropic and Gemini.

        `environment` is by default the process environment with the nearest `.env` file, `prices` the list that ships.
        """
        environment = variables() if environment is None else environment
        table = {}
        for vendor, (url, apis) in WELL_KNOWN.items():
            key, base_url = f"{vendor.upper()}_API_KEY", environment.get(f"{vendor.upper()}_BASE_URL")
            table[vendor] = Provider(
                base_url=base_url or url,
                # A local server in the vendor's place usually needs no key, and then none is set.
                env_key=None if base_url and not environment.get(key) else key,
                wire_api=ALL if vendor == "openai" and "OPENAI_BASE_URL" in environment else apis,
            )
        return cls({**table, **tables}, environment, PriceList.read(prices))

    def with_endpoint(self, base_url: str, key: str | None) -> Providers:
        """One endpoint for every model, as a task's overrides name it by URL and key."""
        provider = Provider(base_url=base_url, env_key=OVERRIDE_KEY if key else None)
        environment = {**self.environment, OVERRIDE_KEY: key} if key else self.environment
        return Providers({OVERRIDE: provider}, environment, self.prices)

    def route(self, model: str) -> Route:
        """The provider of a model.

        In this order: `provider/model`, the provider that lists the model, the file's only provider, the vendor whose
        names look like this one. Raises UsageError, with the choices, when there is more than one.
        """
        prefix, slash, rest = model.partition("/")
        if slash and rest and prefix in self.table:
            name, model = prefix, rest
        else:
            name = self._provider_of(model)
        provider = self.table[name]
        model = provider.models.get(model, model)
        return Route(name, provider, model, self.prices.price(name, provider.base_url, model))

    def _provider_of(self, model: str) -> str:
        listing = [
            name
            for name, provider in self.table.items()
            if model in provider.models or model in provider.models.values() or model in provider.prices
        ]
        if len(listing) > 1:
            choices = " or ".join(f"{name}/{model}" for name in listing)
            raise UsageError(f"model {model!r} is served by {len(listing)} providers; write {choices}")
        own = [name for name in self.table if name not in WELL_KNOWN]
        if listing or len(own) == 1:
            return (listing or own)[0]
        # Where only OPENAI_BASE_URL is set, a gateway or a local server there serves every model.
        anthropic = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} & set(self.environment)
        if model.startswith("claude") and (anthropic or "OPENAI_BASE_URL" not in self.environment):
            return "anthropic"
        gemini = {"GEMINI_API_KEY", "GEMINI_BASE_URL"} & set(self.environment)
        if model.startswith("gemini") and (gemini or "OPENAI_BASE_URL" not in self.environment):
            return "gemini"
        if own and not re.match(r"(gpt|o\d|codex|chatgpt)", model):
            names = ", ".join(f"{name}/{model}" for name in own)
            raise UsageError(f"no provider lists the model {model!r}; write one of {names}, or add it to its `models`")
        return "openai"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run; None means no limit. Tokens are input and output together, as the provider counts them."""

    tokens: int | None = None
    cost: float | None = None
    """Dollars."""
    calls: int | None = None
    deadline: float | None = None
    """The `time.monotonic()` value after which no call is answered."""

    def check(self, route: Route) -> None:
        """Raise UsageError for a cost budget on a model without a price: it could not be enforced."""
        if self.cost is not None and route.price is None:
            raise UsageError(f"a cost budget {needs_price(route)}")


def needs_price(route: Route) -> str:
    """The end of a sentence about something that cannot be done without a model's price, with the fix."""
    return (
        f"needs the price of {route.label}\n"
        f'  fix: [providers.{route.provider_name}.prices."{route.model}"] input = ..., output = ... '
        "(dollars per million tokens)"
    )


@dataclass(slots=True)
class Patience:
    """How long a failing provider is asked again within one call, and how long calls of this run have waited for it.

    The wait is not the agent's: `waited` is added to its time limit. Calls that wait at the same time count once. The
    proxy's thread calls `begin` and `end`, any thread `waited`.
    """

    seconds: float = PROVIDER_PATIENCE
    _calls: int = 0
    """Calls that wait now."""
    _since: float = 0.0
    _until: float = 0.0
    """The end of the last wait."""
    _total: float = 0.0

    def begin(self, since: float) -> None:
        """A call waits, and has done so since `since`, a value of `time.monotonic()`."""
        since = max(since, self._until)
        self._since = min(self._since, since) if self._calls else since
        self._calls += 1

    def end(self) -> None:
        """A call that waited is sent again, or given up."""
        self._calls -= 1
        if not self._calls:
            self._until = time.monotonic()
            self._total += self._until - self._since

    def waited(self) -> float:
        """Seconds that were waited so far, at most `seconds`: an agent that makes a provider fail gains no more."""
        return min(self.seconds, self._total + (time.monotonic() - self._since if self._calls else 0.0))


def retry_delay(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait after a failed try: what `retry-after` says, else 0.5 s that double with each try, with jitter.

    The header may also be a date (RFC 9110, 10.2.3), which is not worth parsing here: it counts as one second.
    """
    try:
        seconds = float(retry_after) if retry_after else 0.5 * 2 ** min(attempt, 8) * random.uniform(0.75, 1.25)
    except ValueError:
        seconds = 1.0
    # "0" would mean a thousand tries a second for as long as the provider is down.
    least = 1.0 if attempt > 2 else 0.0
    return min(max(least, seconds), LONGEST_WAIT)


def redact(text: str, secrets: list[str]) -> str:
    """A provider's error message without keys: providers repeat the key that they did not accept, whole or in part."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return _KEY_LIKE.sub("[key]", text)
