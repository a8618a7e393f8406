"""A run as the proxy knows it: its token, what it may use, and the record of what it asked."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bakeoff.workloads.tasks.proxy.budget import Budget, Limit, Spending
from bakeoff.workloads.tasks.proxy.calls import Call, CallLog, ToolSet
from bakeoff.workloads.tasks.proxy.conversations import Conversations
from bakeoff.workloads.tasks.proxy.providers import Providers, Route
from bakeoff.workloads.tasks.proxy.wire.face import Asked

TOKEN = "sk-bakeoff-"
"""How tokens begin: some clients look whether a key looks like one."""


class Run:
    """`others` are models that it may use beside its own; any other name that its client asks for means its own."""

    def __init__(
        self, providers: Providers, model: str, record: Path, budget: Budget, others: Mapping[str, str]
    ) -> None:
        self.token = TOKEN + secrets.token_urlsafe(24)
        self.providers = providers
        self.model = model
        self.record_path = record
        self.began = time.monotonic()
        self.spending = Spending(budget)
        self.limit: Limit | None = None
        """The budget that a call has met, if any."""
        self.refused = 0
        """Calls that were refused for it."""
        self.unrecorded: OSError | None = None
        """Why a call could not be written down."""
        self.active: set[asyncio.Task[None]] = set()
        self._own = providers.route(model)
        self._others = {name: providers.route(target) for name, target in others.items()}
        for route in (self._own, *self._others.values()):
            route.key(providers.environment)  # a missing key is told now and not to the agent
            budget.check(route)
        self._log: CallLog | None = None
        self._conversations = Conversations()
        self._tool_sets: set[str] = set()
        self._number = 0

    def route(self, asked: str) -> Route:
        return self._others.get(asked, self._own)

    @property
    def models(self) -> list[str]:
        return [self.model, *self._others]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def record(self, call: Call, question: Asked | None, route: Route | None, reply_id: str | None) -> None:
        """Write the call down together with what is new in its question."""
        try:
            self._write(call, question, route, reply_id)
        except OSError as error:
            self.unrecorded = error
            raise

    def _write(self, call: Call, question: Asked | None, route: Route | None, reply_id: str | None) -> None:
        if self._log is None:
            self._log = CallLog(self.record_path)
        if question is not None and route is not None:
            said = call.reply if call.end == "answered" else None
            place = self._conversations.add(call.number, question.messages, question.previous, said, reply_id)
            call = msgspec.structs.replace(
                call,
                provider=route.provider_name,
                model=route.model,
                asked_model=None if question.model in (self.model, route.model) else question.model,
                stream=question.stream,
                conversation=place.conversation,
                parent=place.parent,
                branch=place.branch,
                kept=place.kept,
                messages=question.messages if place.branch else question.messages[place.kept :],
                tools=self._tools(question),
                parameters=question.parameters,
            )
        self._log.add(call)

    def _tools(self, question: Asked) -> str | None:
        if not question.tools:
            return None
        digest = hashlib.blake2b(msgspec.json.encode(question.tools), digest_size=8).hexdigest()
        if digest not in self._tool_sets:
            assert self._log is not None
            self._log.add(ToolSet(digest, question.tools))
            self._tool_sets.add(digest)
        return digest

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
