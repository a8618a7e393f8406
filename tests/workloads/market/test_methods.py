"""The table of methods says what exists, and why the rest does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bakeoff.workloads.market import methods
from bakeoff.workloads.market.methods import ABSENT, METHODS
from bakeoff.workloads.market.rpc import CODES, RpcError

DOCS = Path(__file__).parents[3] / "docs" / "market-agents.md"


def test_every_method_of_the_protocol_either_exists_or_has_a_reason() -> None:
    assert not METHODS.keys() & {methods.PREFIX + name for name in ABSENT}
    assert len(METHODS) + len(ABSENT) >= 60


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_a_method_that_does_not_exist_says_why(name: str) -> None:
    with pytest.raises(RpcError) as caught:
        methods.find(f"a2a.{name}")
    assert (caught.value.code, caught.value.data["reason"]) == (-32601, ABSENT[name])


def test_a_misspelled_method_is_told_the_right_one() -> None:
    with pytest.raises(RpcError, match=r"did you mean a2a\.buyShares") as caught:
        methods.find("a2a.buyShare")
    assert caught.value.code == -32601


def test_a_method_is_found_with_and_without_its_prefix() -> None:
    assert methods.find("buyShares") is methods.find("a2a.buyShares")


def test_tools_have_names_that_chat_models_allow() -> None:
    for method in METHODS.values():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", methods.tool(method)["function"]["name"])


def test_the_documentation_names_every_method_and_every_error() -> None:
    text = DOCS.read_text()
    assert [name for name in METHODS if f"`{name}`" not in text] == []
    assert [name for name in ABSENT if f"`{name}`" not in text] == []
    assert [kind for kind, code in CODES.items() if f"`{kind}`" not in text or str(code) not in text] == []
