"""The language of `include`, `exclude` and `--only`."""

from __future__ import annotations

import builtins
import os
import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakeoff.errors import UsageError
from bakeoff.spec.select import expression, names, rule

FACTS: dict[str, Any] = {
    "arm": "full,lr=0.1", "task": "easy", "policy": "full", "seed": 3, "rollout": 0, "lr": 0.001, "routing": True,
    "optimizer": {"lr": 0.5, "name": "adam"}, "optimizer.lr": 0.5, "optimizer.name": "adam", "max-steps": 100,
    "layers": [1, 2], "nothing": None, "lambda": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "policy=full", "policy = full", "policy=f*", "policy=x,full", "policy=x, full", "seed=3", "seed=1,2,3", "lr=1e-3",
        "lr=0.001", "routing=true", "routing=True", "max-steps=100", "optimizer.lr=0.5", "arm=full*", "lambda=2",
        "nothing=none", "policy == 'full'", 'policy == "full"', "policy != 'x'", "seed < 4", "seed <= 3", "2 < seed < 5",
        "seed > 2", "seed >= 3", "seed in [1, 2, 3]", "seed in (3, 4)", "seed not in [1]", "policy in ['full', 'x']",
        "routing", "not routing == false", "routing == true", "nothing == none", "nothing == None", "optimizer.lr < 1",
        "policy == 'full' and seed < 4", "policy == 'x' or seed == 3", "not policy == 'x'", "seed == 3 and not (lr > 1)",
        "policy=full and seed<5", "policy=f* and not seed=1", "policy='full' and lr=1e-3", "(policy=x or seed=3)",
        "layers == [1, 2]", "-1 < seed", "'ul' in policy", "not nothing > 3", " seed<5 ",
    ],
)  # fmt: skip
def test_expressions_that_hold(text: str) -> None:
    assert expression(text)(FACTS) is True
    assert expression(text, known=FACTS)(FACTS) is True


@pytest.mark.parametrize(
    "text",
    ["policy=ful", "policy=x,y", "seed=30", "lr=1e-4", "routing=false", "policy == 'x'", "seed > 3", "seed in [1]",
     "policy=full and seed>5", "not routing", "nothing > 3", "nothing < 3", "arm=full", "policy == 'f*'"],
)  # fmt: skip
def test_expressions_that_do_not_hold(text: str) -> None:
    assert expression(text)(FACTS) is False


@pytest.mark.parametrize(
    ("table", "holds"),
    [
        ({"policy": "full"}, True), ({"policy": "f*", "seed": 3}, True), ({"policy": "full", "seed": 4}, False),
        ({"seed": [1, 3]}, True), ({"policy": ["x", "f*"]}, True), ({"routing": True}, True), ({"lr": 0.001}, True),
        ({"optimizer": {"lr": 0.5}}, True), ({"optimizer.lr": 0.5}, True), ({"optimizer": {"lr": 0.6}}, False),
        ({"layers": [1, 2]}, True), ({}, True), ({"arm": "full,lr=0.1"}, True),
    ],
)  # fmt: skip
def test_tables_match_value_by_value(table: dict[str, Any], holds: bool) -> None:
    assert rule(table)(FACTS) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "open('x')", "(lambda: 1)()", "lambda: 1", "policy[0]", "policy.__class__",
        "().__class__", "'x'.join", "[x for x in layers]", "{1: 2}", "{1, 2}", "seed + 1", "seed ** 9", "9 ** 9 ** 9",
        "policy if seed else lr", "(y := 3)", "f'{seed}'", "seed is 3", "*layers", "await seed", "yield", "seed; lr",
        "import os", "__builtins__", "-policy == 1", "~seed", "print", "x @ y", "seed @ 3",
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        expression(text)(FACTS)


@pytest.mark.parametrize("text", ["", "and", "seed <", "(", "policy == 'full", "\0", "(" * 500, "seed < < 3"])
def test_what_cannot_be_read_is_told_with_help(text: str) -> None:
    with pytest.raises(UsageError, match="write arm=full"):
        expression(text)


def test_an_unknown_name_is_told_with_what_was_probably_meant() -> None:
    with pytest.raises(UsageError, match="no run has 'polcy'; did you mean 'policy'"):
        expression("polcy=full")(FACTS)
    with pytest.raises(UsageError, match="no run has 'polcy'"):
        expression("seed == 3 or polcy == 'x'")(FACTS)  # even where it would not be looked at
    with pytest.raises(UsageError, match="no run has 'polcy'"):
        rule({"polcy": "full"})(FACTS)
    with pytest.raises(UsageError, match="known: "):
        expression("zzzzz=1", known={"arm", "seed"})


def test_a_run_may_lack_a_name_that_others_have() -> None:
    test = expression("dropout > 0.1 or arm=plain", known={"dropout", "arm"})
    assert test({"arm": "a", "dropout": 0.5}) and test({"arm": "plain"}) and not test({"arm": "a"})


def test_things_that_cannot_be_compared_are_told() -> None:
    with pytest.raises(UsageError, match="cannot compare in 'policy < 3'"):
        expression("policy < 3")(FACTS)


def test_a_rule_says_what_it_asks_for() -> None:
    assert names("policy=full and seed < 3 or optimizer.lr > 1 or routing == true") == {
        "policy", "seed", "optimizer.lr", "routing",
    }  # fmt: skip
    assert names(" seed<3") == {"seed"}
    assert names("arm=seed*") == {"arm"}
    assert names({"optimizer": {"lr": 1}, "seed": 2}) == {"optimizer.lr", "seed"}


words = st.sampled_from(
    ["policy", "seed", "os", "__import__", "('os')", ".system", "('touch x')", "open", "exec", "eval", "(", ")", "[", "]",
     "'", '"', "and", "or", "not", "in", "==", "<", "=", "@", "lambda", ":", "1", "3", ",", ".", "__class__", "*", "f'{", "}'",
     ":=", "for", "if", "else", " "]
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.lists(words, max_size=12).map(" ".join), st.lists(words, max_size=12).map("".join), st.text(max_size=40)
    )
)
def test_an_expression_never_runs_code(text: str) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{text!r} ran code")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "system"), (subprocess, "Popen"), (builtins, "eval"), (builtins, "exec")):
            patch.setattr(owner, name, forbidden)
        try:
            assert expression(text)(FACTS) in (True, False)
        except UsageError:
            pass
