"""`bakeoff market generate`, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.workloads.market.cli import MARKET_VERBS


def called(*args: str) -> Result:
    return CliRunner().invoke(main, ["market", *args])


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAKEOFF_MARKET_SECRET", raising=False)


def test_without_any_option_the_files_lie_in_benchmarks(tmp_path: Path) -> None:
    done = called("generate")
    assert done.exit_code == 0, done.output
    (public,) = [file for file in (tmp_path / "benchmarks").iterdir() if "private" not in file.name]
    assert json.loads(public.read_text())["id"] in public.name and public.name in done.output
    assert public.with_name(public.name.replace(".json", ".private.json")).exists()


def test_both_spellings_of_options_mean_the_same_and_the_defaults_are_these() -> None:
    spaced = [
        "--duration",
        "30",
        "--interval",
        "60",
        "--markets",
        "5",
        "--perpetuals",
        "3",
        "--agents",
        "8",
        "--seed",
        "12345",
    ]
    equal = [f"{name}={value}" for name, value in zip(spaced[::2], spaced[1::2], strict=True)]
    ids = {json.loads(called("generate", *args, "--json").stdout)["id"] for args in (spaced, equal, [])}
    assert len(ids) == 1


def test_a_second_call_finds_the_files_there() -> None:
    assert json.loads(called("generate", "--json").stdout)["fresh"] is True
    assert json.loads(called("generate", "--json").stdout)["fresh"] is False


def test_a_secret_of_one_s_own_draws_another_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("our contest\n")
    published = json.loads(called("generate", "--json").stdout)["id"]
    own = json.loads(called("generate", "--json", "--secret-file", "secret").stdout)["id"]
    monkeypatch.setenv("BAKEOFF_MARKET_SECRET", "our contest")
    assert json.loads(called("generate", "--json").stdout)["id"] == own != published


def test_an_output_of_one_s_own_is_replaced_by_force_only() -> None:
    assert called("generate", "--output", "a.json").exit_code == 0
    refused = called("generate", "--output", "a.json", "--seed", "9")
    assert refused.exit_code == 2 and "--force" in refused.output
    assert called("generate", "--output", "a.json", "--seed", "9", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--markets", "0", "--perpetuals", "0"], "nothing to trade"),
        (["--duration", "1", "--interval", "90"], "no tick"),
        (["--duration", "-3"], "duration"),
        (["--markets", "1000"], "markets"),
        (["--agents", "many"], "many"),
        (["--seed", "-1"], "-1"),
        (["--regime", "boom"], "regime"),
        (["--tier", "brutal"], "tier"),
        (["--secret-file", "absent"], "absent"),
    ],
)
def test_a_wrong_call_is_told_and_ends_with_2(args: list[str], said: str) -> None:
    done = called("generate", *args)
    assert done.exit_code == 2
    assert said in done.output


def test_help_of_the_group_imports_no_verb() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom bakeoff.cli import main\n"
        "done = CliRunner().invoke(main, ['market', '--help'])\nassert done.exit_code == 0\n"
        "assert not {'numba', 'numpy', 'bakeoff.workloads.market.cli.run'} & set(sys.modules)\nprint(done.output)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(name in said for name in MARKET_VERBS)


def test_a_misspelt_verb_gets_a_suggestion() -> None:
    done = called("genrate")
    assert done.exit_code == 2 and "generate" in done.output
