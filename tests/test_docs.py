"""Commands on the pages: all of them are valid, and those that are quick run in the order in which a page shows them."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from bakeoff.cli import main

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted(ROOT.glob("docs/*.md")))]
GENERATED = "docs/cli.md"
"""Written from `--help`, which test_project.py checks."""
BLOCK = re.compile(r"^```(console|bash|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(bakeoff [^`\n]+)`")
ANSWERS = {"compare": (0, 3), "power": (0, 3), "run": (0, 3), "variance": (0, 3), "litmus": (0, 1, 3)}
"""Exit codes of a verb that has given an answer."""
OPERATORS = {"&&", "||", "|", ">", ">>", "<", ";"}


@dataclass(frozen=True)
class Call:
    """One `bakeoff ...` command on a page."""

    page: str
    line: int
    arguments: tuple[str, ...]
    """Without the word `bakeoff`."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: bakeoff {shlex.join(self.arguments)}"


def split(text: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each `bakeoff` command in a line of shell. What it is piped or redirected to is left out."""
    words: list[str] = []
    tokens = shlex.split(text, comments=True)
    for token in [*tokens, ";"]:
        if token not in OPERATORS:
            words.append(token)
            continue
        if words[:1] == ["bakeoff"]:
            yield tuple(words[1:])
        words = []


def calls_in_blocks(page: str) -> list[Call]:
    """The commands of a page's shell blocks. In a console block only lines that begin with `$` are commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    calls = []
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        lines = block[2].replace("\\\n", "\\ ").splitlines()  # a continued line is one command
        for number, line in enumerate(lines, first):
            if block[1] == "console" and not line.startswith("$ "):
                continue
            command = line.removeprefix("$ ").replace("\\ ", " ")
            calls += [Call(page, number, arguments) for arguments in split(command)]
    return calls


def calls_in_prose(page: str) -> list[Call]:
    """The commands in `code` of a page, without the brackets and bars of a synopsis such as `[--latest | --rollout N]`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    calls = []
    for match in INLINE.finditer(text):
        command = re.sub(r"[\[\]]|(?<= )\|(?= )", "", match[1])
        calls += [Call(page, text.count("\n", 0, match.start()) + 1, arguments) for arguments in split(command)]
    return calls


def problem(call: Call) -> str | None:
    """Why the command line would refuse this call's words; None if it would not. Values are not looked at."""
    command: click.Command = main
    context = click.Context(main, info_name="bakeoff")
    arguments = list(call.arguments)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        inner = command.get_command(context, name)
        if inner is None:
            return f"{call}: there is no verb {name!r}"
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    if not arguments:
        return None  # a verb that the text talks about
    try:
        _, superfluous, _ = command.make_parser(context).parse_args(arguments)
    except click.UsageError as error:
        return f"{call}: {error.format_message()}"
    return f"{call}: {superfluous} is too much" if superfluous and not command.allow_extra_args else None


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED])
def test_every_command_on_a_page_has_a_valid_verb_and_valid_options(page: str) -> None:
    calls = calls_in_blocks(page) + calls_in_prose(page)
    assert [message for call in calls if (message := problem(call))] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("comparre",), "there is no verb 'comparre'"),
        (("run", "x.toml", "--no-such-option"), "No such option"),
        (("market", "run", "--agnet", "null"), "No such option"),
        (("rm", "a", "b", "c"), "is too much"),
    ],
)
def test_a_wrong_command_on_a_page_would_be_found(words: tuple[str, ...], message: str) -> None:
    reason = problem(Call("page.md", 1, words))
    assert reason is not None and message.lower() in reason.lower()


def test_commands_are_found_in_blocks_and_prose() -> None:
    assert ("run", "examples/quickstart.toml") in [call.arguments for call in calls_in_blocks("README.md")]
    assert ("status", "NAME", "--runs") in [call.arguments for call in calls_in_prose("docs/getting-started.md")]


def write_lr(place: Path) -> None:
    """The file that getting-started.md shows, and scripts for its commands."""
    text = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n(# lr\.toml\n.*?)```", text, re.DOTALL)
    assert block is not None
    (place / "lr.toml").write_text(block[1])
    script = (
        "import json, sys\nlr, seed = float(sys.argv[2]), int(sys.argv[4])\nreward = lr + seed / 100\n"
        "print(json.dumps({'reward': reward, 'final/reward': reward}))\n"
    )
    (place / "train.py").write_text(script)
    for name, better in (("old", 0), ("new", 1)):
        (place / f"{name}.py").write_text(f"import sys\nprint('score:', {better} + int(sys.argv[2]) % 3)\n")


def write_starter(place: Path) -> None:
    """The file that `bakeoff init` writes, with the metric declared, which a registration needs."""
    assert bakeoff(place, ("init",)).returncode == 0
    with open(place / "experiment.toml", "a") as file:
        file.write('[analysis]\nmetric = "score"\n')


FUNCTION = """
def work(ctx, level):
    score = 50 + 10 * level + ctx.rng("noise").normal()
    for step in range(20):
        ctx.log(step, reward=score * step)
    return {"score": score, "solved": score > 55}
"""
EXPERIMENT = """
workload = "python"
seeds = 6
params = {{ function = "work:work" }}
[[arms]]
name = "{0}"
params = {{ level = 0 }}
[[arms]]
name = "{1}"
params = {{ level = 1 }}
[[arms]]
name = "{2}"
params = {{ level = 2 }}
"""
TASKS = "".join(f'[[tasks]]\nname = "{name}"\n' for name in ("first", "second", "third", "fourth", "fifth"))
ANALYSIS = {
    "lr": '[analysis]\nmetric = "reward"\nsummary = { type = "auc" }\n',
    "bench": f'[analysis]\nmetric = "score"\n{TASKS}',
}


def write_laboratory(place: Path) -> None:
    """The experiments, tables and run directories that pages use in their examples, with invented results."""
    (place / "work.py").write_text(FUNCTION)
    arms = {"lr": ("small", "large", "other"), "bench": ("weak", "mid", "strong"), "sorting": ("a", "b", "c")}
    arms |= {"nightly": ("old", "x", "y"), "tonight": ("new", "x", "y")}
    for name, names in arms.items():
        analysis = ANALYSIS.get(name, '[analysis]\nmetric = "score"\n')
        (place / f"{name}.toml").write_text(EXPERIMENT.format(*names) + analysis)
        done = bakeoff(place, ("run", f"{name}.toml"))
        assert done.returncode == 0, done.stderr
    for arm, shift in (("old", 0.0), ("new", 1.0), ("a", 0.0), ("b", 1.0)):
        for seed in range(1, 8):
            directory = place / "runs" / f"{arm}_s{seed}"
            directory.mkdir(parents=True)
            steps = [
                {"step": step, "mean_reward": shift + seed / 9 + step / 200, "correct_rate": 0.5, "total_count": 64,
                 "reward": shift + seed / 9, "overview/reward": 5 + shift + seed / 9}
                for step in range(200)
            ]  # fmt: skip
            (directory / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    rows = [(arm, seed, level + seed / 10) for level, arm in enumerate(("old", "new")) for seed in range(8)]
    (place / "results.csv").write_text("\n".join(["model,seed,score", *(f"{a},{s},{v}" for a, s, v in rows)]))
    games = [(who, game, run) for who in ("old", "newer") for game in ("pong", "chess") for run in range(5)]
    scores = [f"{who},{game},{run},{len(who) * 10 + run},5,90" for who, game, run in games]
    (place / "scores.csv").write_text("\n".join(["agent,game,seed,score,random,human", *scores]))
    (place / "rules.toml").write_text('[evidence]\nmin_runs = 3\n[[rules]]\nmetric = "reward"\nmin_lift = 0.01\n')


def write_logs(place: Path) -> None:
    """Logs of other tools under the names that other-tools.md uses."""
    fixtures = ROOT / "tests" / "fixtures"
    for name, source in zip("ab", sorted((fixtures / "inspect" / "skill").glob("*.eval")), strict=True):
        (place / "logs" / name).mkdir(parents=True)
        shutil.copy(source, place / "logs" / name / "log.eval")
    shutil.copytree(fixtures / "harbor" / "models", place / "jobs")
    copies = {
        "lm-eval/models": "results", "promptfoo/eval.json": "eval.json", "verifiers": "outputs", "nemo": "eval_results",
        "tensorboard": "RUNS", "wandb": "wandb", "lerobot": "outputs/eval", "hyperfine/sleeps.json": "times.json",
        "pytest_benchmark/first.json": "first.json", "pytest_benchmark/second.json": "second.json", "optuna/studies.log": "studies.log",
    }  # fmt: skip
    for source, target in copies.items():
        copy = shutil.copytree if (fixtures / source).is_dir() else shutil.copy
        copy(fixtures / source, place / target)
    (place / "trackio").mkdir()
    for source, target in (("mlflow/mlflow.db.gz", "mlflow.db"), ("trackio/mazes.db.gz", "trackio/mazes.db")):
        (place / target).write_bytes(gzip.decompress((fixtures / source).read_bytes()))


def write_two_logs(place: Path) -> None:
    """The logs that the README compares."""
    shutil.copytree(ROOT / "examples" / "inspect", place, dirs_exist_ok=True)


def write_nothing(place: Path) -> None:
    pass


def bakeoff(place: Path, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `python` is this one
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")} | {"PATH": path}
    command = [sys.executable, "-m", "bakeoff", *arguments]
    return subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pages", "prepare", "leave_out"),
    [
        ("README.md", write_two_logs, "market"),
        ("docs/getting-started.md", write_lr, None),
        ("docs/planning.md docs/compare.md docs/litmus.md docs/ranking.md", write_laboratory, "prereg"),
        ("docs/other-tools.md", write_logs, None),
        ("docs/market.md", write_nothing, "--benchmark FILE"),
        (
            "docs/sequential.md",
            write_starter,
            "until-decided|--editions",
        ),  # a plan is registered before its first result
        ("docs/schedsim.md", write_nothing, None),
    ],
)
def test_the_commands_of_pages_run_in_their_order(
    pages: str, prepare: Callable[[Path], None], leave_out: str | None, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    prepare(tmp_path)
    for page in pages.split():
        calls = [call for call in calls_in_blocks(page) if not (leave_out and re.search(leave_out, str(call)))]
        assert calls
        for call in calls:
            done = bakeoff(tmp_path, call.arguments)
            answers = ANSWERS.get(call.arguments[0], (0,))
            assert done.returncode in answers, f"{call} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
