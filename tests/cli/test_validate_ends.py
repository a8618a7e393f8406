"""`validate` ends: a file that asks for too much is refused with the limit, however it asks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

pytestmark = pytest.mark.slow
HEAD = 'name = "x"\n'
PARAMS = '[params]\ncommand = ["echo", "{seed}"]\n'
LAUGHS = (
    "name: x\na0: &a0 [1, 1]\n"
    + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    + "params: {v: *a59}\n"
)
MATRIX = "[matrix]\n" + "".join(f"k{n} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n" for n in range(12))

TOO_MUCH: dict[str, tuple[str, str, str]] = {
    # what: (suffix, text, a part of the message)
    "rollouts with a rule": (".toml", f"{HEAD}rollouts = 9007199254740993\nexclude = [{{seed = 1}}]\n{PARAMS}", "10,000,000"),
    "rollouts alone": (".toml", f"{HEAD}rollouts = 9007199254740993\n{PARAMS}", "10,000,000"),
    "rollouts of a cell": (
        ".toml", f'{HEAD}{PARAMS}[[arms]]\nname = "a"\n[[tasks]]\nname = "t"\n[[cells]]\narm = "a"\ntask = "t"\nrollouts = 99999999999\n',
        "10,000,000",
    ),
    "seeds as text": (".toml", f'{HEAD}seeds = "1..99999999999999999999"\n{PARAMS}', "too many"),
    "seeds as a count": (".toml", f"{HEAD}seeds = 9223372036854775807\n{PARAMS}", "too many"),
    "seeds as a table": (".toml", f"{HEAD}seeds = {{start = 0, stop = 9000000000000000000, step = 1}}\n{PARAMS}", "too many"),
    "seeds with many digits": (".toml", f'{HEAD}seeds = "1..{"9" * 5000}"\n{PARAMS}', "seeds"),
    "seeds times rollouts": (".toml", f"{HEAD}seeds = 100000\nrollouts = 100000\n{PARAMS}", "10,000,000"),
    "seeds times rollouts with a rule": (
        ".toml", f'{HEAD}seeds = 3000\nrollouts = 3000\nexclude = ["seed == 1 and rollout == 2"]\n{PARAMS}', "1,000,000",
    ),
    "a product": (".toml", f"{HEAD}{PARAMS}{MATRIX}", "1,000,000"),
    "a product of arms and tasks": (
        ".toml", f"{HEAD}task_keys = [{', '.join(repr(f'k{n}') for n in range(3))}]\n{PARAMS}" + MATRIX.replace("k6", "#k6").replace("k7", "#k7").replace("k8", "#k8").replace("k9", "#k9").replace("k10", "#k10").replace("k11", "#k11").replace("k5", "z5") + "k4b = [1,2,3,4,5,6,7,8,9,10]\n",
        "1,000,000",
    ),
    "nested JSON": (".json", '{"name": "x", "params": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested"),
    "nested YAML": (".yaml", "name: x\nparams: {a: " + "[" * 500_000 + "]" * 500_000 + "}\n", "nested"),
    "nested TOML": (".toml", f"{HEAD}[params]\na = " + "[" * 5_000 + "]" * 5_000 + "\n", "nested"),
    "nested tables": (".toml", HEAD + "[params" + ".a" * 2_000 + "]\nb = 1\n", "nested"),
    "aliases of aliases": (".yaml", LAUGHS, "too large"),
    "a rule of a megabyte": (".toml", f'{HEAD}exclude = ["{"seed == 1 or " * 100_000}seed == 2"]\n{PARAMS}', "rule"),
    "a rule that is nested": (".toml", f'{HEAD}exclude = ["{"(" * 2_000}seed{")" * 2_000} == 1"]\n{PARAMS}', "nested"),
    "a long duration": (".toml", f'{HEAD}{PARAMS}[limits]\ntime = "{"1" * 300_000}x"\n', "limits.time"),
    "a number of many digits": (".toml", f"{HEAD}rollouts = {'9' * 20_000}\n{PARAMS}", ""),
    "a number of many digits in JSON": (".json", f'{{"name": "x", "rollouts": {"9" * 20_000}}}', ""),
    "a number of many digits in YAML": (".yaml", f"name: x\nrollouts: {'9' * 20_000}\n", ""),
}  # fmt: skip


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A test that takes longer than a slow machine needs has found a hang."""

    def too_long(_signal: int, _frame: object) -> None:
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 60)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_file_that_asks_for_too_much_is_refused(what: str, bakeoff: Callable[..., Result], tmp_path: Path) -> None:
    suffix, text, told = TOO_MUCH[what]
    file = tmp_path / f"x{suffix}"
    file.write_text(text)
    for verb in (["validate"], ["run", "--dry-run"]):
        result = bakeoff(*verb, file)
        assert result.exit_code == 2 and told in result.stderr, result.output
        assert len(result.stderr) < 2_000


def test_a_name_of_a_megabyte_ends_too(bakeoff: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'name = "{"x" * 1_000_000}"\n{PARAMS}[[arms]]\nname = "{"y" * 1_000_000}"\n')
    assert bakeoff("validate", file).exit_code in (0, 2)


def test_what_is_large_and_not_too_large_is_counted(bakeoff: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f"{HEAD}seeds = 1000\nrollouts = 10000\n{PARAMS}")
    assert "10000000" in bakeoff("validate", file).stdout
