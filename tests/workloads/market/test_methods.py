"""The table of methods: names, descriptions, tools, and what the documentation says about them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bakeoff.workloads.market import methods
from bakeoff.workloads.market.methods import METHODS
from bakeoff.workloads.market.rpc import CODES, RpcError

DOCS = Path(__file__).parents[3] / "docs" / "market-agents.md"


def test_a_misspelled_method_is_told_the_right_one() -> None:
    with pytest.raises(RpcError, match=r"did you mean a2a\.buyShares") as caught:
        methods.find("a2a.buyShare")
    assert caught.value.code == -32601


def test_a_method_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(RpcError, match=r"there is no method 'a2a\.likePost'") as caught:
        methods.find("a2a.likePost")
    assert caught.value.type == "method_not_found"


def test_every_method_has_a_description_and_only_those_that_change_something_count_as_actions() -> None:
    assert all(method.description.endswith(".") for method in METHODS.values())
    assert {method.short for method in METHODS.values() if method.mutates} == {
        "endTurn", "buyShares", "sellShares", "openPosition", "closePosition", "createPost", "sendMessage",
        "acceptGroupInvite", "declineGroupInvite", "joinGroup", "leaveChat",
    }  # fmt: skip


def test_a_method_is_found_with_and_without_its_prefix() -> None:
    assert methods.find("buyShares") is methods.find("a2a.buyShares")


def test_short_names_are_allowed_as_tools_of_chat_models() -> None:
    for method in METHODS.values():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", method.short)


def test_the_documentation_names_every_method_and_every_error() -> None:
    text = DOCS.read_text()
    assert [name for name in METHODS if f"`{name}`" not in text] == []
    assert [kind for kind, code in CODES.items() if f"`{kind}`" not in text or str(code) not in text] == []
