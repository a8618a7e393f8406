"""The price list: what a million tokens cost, by vendor and model. `prices.toml` ships, with the date that it is from.

PriceList.read(path).price("openai", "gpt-5-mini-2025-08-07")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from bakeoff.errors import SpecError
from bakeoff.spec.problems import problems
from bakeoff.workloads.tasks.proxy.wire import Price
from bakeoff.workloads.tasks.schema import read_tree

SHIPPED = Path(__file__).with_name("prices.toml")
HOSTS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
}
"""Whose prices hold at an address. A gateway or a server of one's own in a vendor's place has other prices."""
_DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")


class _File(BaseModel):
    """A price list as a file: a date, and a table of models for each vendor or provider."""

    model_config = ConfigDict(extra="forbid")
    date: str
    tables: dict[str, dict[str, Price]]

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        return {"date": str(tree.get("date", "")), "tables": {name: tree[name] for name in tree if name != "date"}}


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by vendor, or by the name of a provider's table, and model."""

    date: str
    tables: Mapping[str, Mapping[str, Price]]

    @classmethod
    def read(cls, path: Path | None = None) -> PriceList:
        """The list in a file (default: the one that ships). Raises SpecError that names the key."""
        return _read(path or SHIPPED)

    def price(self, provider: str, base_url: str, model: str) -> Price | None:
        """The price of a model at a provider, also of a version with a date in its name; None if it is not listed."""
        vendor = HOSTS.get(urlsplit(base_url).hostname or "")
        # A provider's own name counts in a list of the user's, where a gateway is listed by that name.
        table = self.tables.get(provider) if provider not in HOSTS.values() else None
        table = table if table is not None else self.tables.get(vendor or "", {})
        return table.get(model) or table.get(_DATED.sub("", model))


@cache
def _read(path: Path) -> PriceList:
    tree = read_tree(path)
    try:
        file = _File.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems(error, _File, given=tree), path) from error
    return PriceList(file.date, file.tables)
