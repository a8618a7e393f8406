"""The README: its output is what the commands print, and each of its claims has a test."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COLUMNS = "110"
"""Width of the terminal that the README shows."""
STAMP = re.compile(r"\d{8}-\d{6}|(?<=try-)[0-9a-f]{8}")
"""What differs between two days, and between two directories."""

CLAIMS = {
    "Run any command": "workloads/test_command.py::test_the_exit_code_decides_and_metrics_are_kept_in_any_case",
    "or Python function": "workloads/test_python.py::test_a_function_gets_the_parameters_and_what_it_asks_for",
    "coding agents in sandboxes": "workloads/tasks/test_rollouts.py::test_the_agent_sees_its_variables_and_neither_tests_nor_reference",
    "trading agents in a market world": "golden/test_golden.py",
    "trainings of small language models": "workloads/language/test_trainer.py",
    "gridworld agents": "workloads/gridworld/test_workload.py",
    "in parallel": "engine/test_limits.py::test_jobs_is_how_many_run_at_once",
    "with limits": "engine/test_commands.py::test_a_timeout_ends_children_and_grandchildren_that_do_not_listen",
    "and retries": "engine/test_retries.py::test_infrastructure_failures_are_tried_again_with_growing_pauses",
    "on a Slurm": "cluster/test_slurm.py",
    "or Ray cluster": "cluster/test_ray.py",
    "`kill -9` loses only the runs in flight": "engine/test_killed.py::test_kill_9_at_random_moments_loses_nothing_and_repeats_nothing",
    "it does exactly the missing runs, once each": "engine/test_killed.py::test_kill_9_at_random_moments_loses_nothing_and_repeats_nothing",
    "One test gives the p-value, the interval and the verdict": "verdicts/test_invariants.py::test_p_interval_and_verdict_cannot_contradict_one_another",
    "Failed and lost runs are counted, never dropped": "verdicts/test_design.py",
    "Where the data cannot carry a verdict, you get": "cli/test_refusals.py",
    "Give it two commands": "cli/test_try.py::test_two_scripts_get_a_verdict_and_a_file_that_run_and_compare_read",
    "the results of another tool": "test_readme.py::test_compare_of_two_logs_prints_what_the_readme_shows",
    "Errored samples count": "results/importers/test_inspect_logs.py",
    "says what it would take to decide": "cli/test_next_step.py",
    "pip install .": "test_first_minutes.py::test_a_stranger_gets_verdicts_in_an_empty_directory",
    "I have results": "cli/test_compare.py",
    "I have scripts": "test_readme.py::test_try_prints_what_the_readme_shows_and_draws_its_picture",
    "runs the whole path from table to verdict on data with no effect": "calibration/test_error_rates.py::test_arms_that_do_not_differ_are_rarely_told_apart",
    "Results are in SQLite": "records/test_database.py",
    "in a directory that you can mail": "cli/test_hostile_editions.py",
    "Nothing phones home": "test_readme.py::test_nothing_is_sent_to_other_machines",
    "you need no server and no account": "test_readme.py::test_nothing_is_sent_to_other_machines",
    "If a command needs an extra that is missing, the error names it": "cli/test_extras.py::test_a_verb_without_its_extra_names_it",
    "`bakeoff[all]` (everything without torch and Ray)": "test_readme.py::test_the_extra_all_has_neither_torch_nor_ray",
    "`make check` is the quick subset of `make test`": "test_readme.py::test_check_leaves_out_what_needs_root_packages_or_a_browser",
    "From Python": "test_api.py::test_three_lines_run_an_experiment_and_give_its_table",
    "nine traders play the same 36 worlds": "test_readme.py::test_the_market_table_has_the_means_of_its_traders",
}
"""What the README says, and where it is tested, below tests/."""


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_stands_in_the_readme_and_its_test_exists(claim: str) -> None:
    assert claim in plain(README)
    file, _, name = CLAIMS[claim].partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\b" if name else r"def test_", text)


def test_every_sentence_about_what_bakeoff_does_has_a_claim() -> None:
    bullets = README[README.index("bakeoff both runs experiments and decides them:") : README.index("Where to start:")]
    sentences = re.split(r"(?<=[.:])\s+(?=[A-Z*`])", plain(bullets.partition(":")[2]))
    told = [sentence for sentence in sentences if len(sentence.split()) > 4]
    assert len(told) >= 8
    assert [sentence for sentence in told if not any(claim in sentence for claim in CLAIMS)] == []


def bakeoff(place: Path, *arguments: str, **variables: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")}
    done = subprocess.run(
        [sys.executable, "-m", "bakeoff", *arguments],
        cwd=place, env={**inherited, "COLUMNS": COLUMNS, **variables}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    return done.stdout if arguments[0] != "run" else done.stdout + done.stderr


def shown(command: str) -> str:
    """What the README shows below a command, stamps left out."""
    block = README[README.index(f"$ {command}\n") + len(command) + 3 :]
    return STAMP.sub("STAMP", re.split(r"^(?:\$ |```)", block, maxsplit=1, flags=re.MULTILINE)[0].strip())


@pytest.mark.slow
def test_try_prints_what_the_readme_shows_and_draws_its_picture(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    call = re.search(r"^\$ bakeoff (try .*)$", README, re.MULTILINE)
    assert call is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `python` is this one
    told = STAMP.sub("STAMP", bakeoff(tmp_path, *shlex.split(call[1]), PATH=path))
    assert told.strip() == shown(f"bakeoff {call[1]}")
    bakeoff(tmp_path, "plot", "differences", "latest", "-o", "try.svg")
    here, there = (file.read_text() for file in (tmp_path / "try.svg", ROOT / "docs/images/try.svg"))
    assert ">one seed</text>" in here and STAMP.sub("STAMP", here) == STAMP.sub("STAMP", there)


def test_compare_of_two_logs_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/inspect", tmp_path, dirs_exist_ok=True)
    assert bakeoff(tmp_path, "compare", "a.eval", "b.eval").strip() == shown("bakeoff compare a.eval b.eval")


def test_the_first_screen_has_a_picture_three_bullets_and_six_ways_in() -> None:
    first = README[: README.index("## Two commands")]
    assert first.count("![") == 1 and first.count("pip install .") == 1
    bullets = re.findall(r"^\* \*\*(.*?)\*\*", first, re.MULTILINE)
    assert len(bullets) == 9 and [each.partition(" ")[0] for each in bullets[3:]] == ["I"] * 6


@pytest.mark.slow
def test_the_example_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    ran = STAMP.sub("STAMP", bakeoff(tmp_path, "run", "examples/quickstart.toml"))
    first, second, *_ = shown("bakeoff run examples/quickstart.toml").splitlines()
    assert first in ran and second in ran
    told = STAMP.sub("STAMP", bakeoff(tmp_path, "compare", "quickstart"))
    assert told.strip() == shown("bakeoff compare quickstart")
    toml = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert toml is not None and plain(toml[1]) in plain((ROOT / "examples/quickstart.toml").read_text())


@pytest.mark.slow
def test_the_market_table_has_the_means_of_its_traders(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    table = {line.split()[0]: line.split()[1] for line in shown("bakeoff compare market").splitlines()[2:11]}
    assert len(table) == 9
    arms = ("momentum", "random")
    bakeoff(tmp_path, "run", "examples/market.toml", "--only", " or ".join(f"arm={arm}" for arm in arms))
    status = json.loads(bakeoff(tmp_path, "status", "market", "--json"))
    assert sum(status["counts"].values()) == 9 * 36
    for arm in arms:
        mean = status["arms"][arm]["means"]["total_pnl"]["mean"]
        assert float(f"{mean:.4g}") == float(table[arm])


@pytest.mark.slow
def test_nothing_is_sent_to_other_machines(tmp_path: Path) -> None:
    """Every process of a run, a comparison and a report writes down whom it connects to."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    log = tmp_path / "connections"
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def hook(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        address = arguments[1] if event != 'socket.getaddrinfo' else arguments[0]\n"
        "        if not isinstance(address, (str, bytes)) or event == 'socket.getaddrinfo':\n"
        f"            with open({str(log)!r}, 'a') as file:\n"
        "                file.write(f'{event} {address}\\n')\n"
        "sys.addaudithook(hook)\n"
        f"open({str(log)!r}, 'a').close()\n"
    )
    path = os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")])
    bakeoff(tmp_path, "run", "examples/quickstart.toml", PYTHONPATH=path)
    bakeoff(tmp_path, "compare", "quickstart", PYTHONPATH=path)
    bakeoff(tmp_path, "report", "quickstart", PYTHONPATH=path)
    assert log.read_text() == ""


def test_the_extra_all_has_neither_torch_nor_ray() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [every] = extras["all"]
    assert set(re.search(r"\[(.*)\]", every)[1].split(",")).isdisjoint({"train", "gridworld", "ray"})  # type: ignore[index]


def test_check_leaves_out_what_needs_root_packages_or_a_browser() -> None:
    makefile = (ROOT / "Makefile").read_text()
    anywhere = re.search(r"^ANYWHERE := not \((.*)\)$", makefile, re.MULTILINE)
    assert anywhere is not None and {"root", "apt", "browser", "slow"} <= set(anywhere[1].split(" or "))
