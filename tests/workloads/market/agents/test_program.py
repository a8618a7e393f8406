"""What a program of an agent may see: its files, an environment, what the owner names, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bakeoff.cli import main
from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox import bubblewrap
from bakeoff.workloads.market.agents import process, program
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.agents.program import Access, box_spec, environment, files_of
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.workload import MarketParams, MarketWorkload
from workloads.market.games import fresh_world

AGENT = """
import json, os, sys
import helper
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "reset":
        facts = {"env": dict(os.environ), "data": [os.path.exists(name) for name in sys.argv[1:]]}
        print("FACTS" + json.dumps(facts), file=sys.stderr, flush=True)
    if message["method"] == "tick":
        print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "a2a.endTurn"}), flush=True)
        sys.stdin.readline()
"""
SMALL = ["--duration", "3", "--markets", "2", "--perpetuals", "1", "--agents", "2", "--output", "out"]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an experiment, which is the working directory: an agent, a module that it imports, and data."""
    place = tmp_path / "experiment"
    place.mkdir()
    (place / "agent.py").write_text(AGENT)
    (place / "helper.py").write_text("")
    (place / "data.txt").write_text("data")
    (place / "secret.txt").write_text("a secret that is long enough")
    monkeypatch.chdir(place)
    for name in ("BAKEOFF_MARKET_SECRET", "SANDBOX_BACKEND", "BAKEOFF_UNSANDBOXED"):
        monkeypatch.delenv(name, raising=False)
    return place


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["market", "run", *SMALL, *words], prog_name="bakeoff")


def facts(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stderr.partition("FACTS")[2].splitlines()[0])
    return found


def shown(base: Path, *words: str, access: Access | None = None) -> set[str]:
    """What of `base` a command sees."""
    spec = box_spec(["python", *words], files_of(words, base), base, access or Access())
    return {
        str(Path(mount.target).relative_to(base)) for mount in spec.mounts if Path(mount.target).is_relative_to(base)
    }


def test_an_agent_beside_the_experiment_imports_its_modules_and_sees_no_other_file(base: Path) -> None:
    assert facts(run("--agent", "cmd:python agent.py data secret.txt out"))["data"] == [False, True, False]
    # The command names secret.txt, so it is shown; what it does not name is not.
    assert shown(base, "agent.py") == {"agent.py", "helper.py"}


def test_the_owner_names_what_else_an_agent_reads_and_which_variables_it_gets(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "of the owner")
    told = facts(
        run("--agent", "cmd:python agent.py", "--mount", "data.txt", "--env", "MODEL_KEY", "--env", "MODE=fast")
    )
    variables = told["env"]
    assert isinstance(variables, dict)
    assert (variables["MODEL_KEY"], variables["MODE"]) == ("of the owner", "fast")
    assert shown(base, "agent.py", access=Access(mounts=("data.txt",))) == {"agent.py", "helper.py", "data.txt"}


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (Access(env=("BAKEOFF_MARKET_SECRET",)), "not for agents"),
        (Access(env=("BAKEOFF_MARKET_SECRET=x",)), "not for agents"),
        (Access(env=("NO_SUCH_VARIABLE",)), "is not set"),
        (Access(mounts=("nowhere",)), "there is no"),
        (Access(mounts=(".",), hidden=(Path("secret.txt"),)), "must not see"),
    ],
)
def test_what_an_agent_must_not_get_is_refused_by_name(base: Path, access: Access, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        box_spec(["python", "agent.py"], [], base, access)


def test_a_directory_of_the_agent_s_own_is_shown_whole_unless_it_holds_what_is_hidden(base: Path) -> None:
    own = base / "own"
    own.mkdir()
    for name in ("agent.py", "weights.bin", "helper.py"):
        (own / name).write_text("")
    assert shown(base, "own/agent.py") == {"own"}
    access = Access(hidden=(own / "results",))
    assert shown(base, "own/agent.py", access=access) == {"own/agent.py", "own/helper.py"}
    (own / "x.private.json").write_text("")
    assert shown(base, "own/agent.py") == {"own/agent.py", "own/helper.py"}


GREEDY = """
import os, sys
sys.stdin.readline()
if sys.argv[1] == "memory":
    kept = [bytearray(os.urandom(1 << 20)) for _ in range(600)]
else:
    for number in range(200):
        if os.fork() == 0:
            import time
            time.sleep(600)
print("nothing stopped it", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("what", ["memory", "processes"])
def test_an_agent_cannot_take_the_memory_and_processes_that_others_need(
    base: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert program.LIMITS.memory_mb and program.LIMITS.pids and program.LIMITS.disk_mb
    monkeypatch.setattr(program, "LIMITS", replace(program.LIMITS, memory_mb=300, pids=50))
    (base / "greedy.py").write_text(GREEDY)
    result = run("--agent", f"cmd:python greedy.py {what}")
    assert "nothing stopped it" not in result.output and result.exit_code in (0, 1), result.output


def test_a_package_that_holds_the_experiment_is_not_shown(base: Path) -> None:
    (base / "pkg").mkdir()
    (base / "pkg" / "__init__.py").write_text("")
    assert shown(base, "agent.py") == {"agent.py", "helper.py", "pkg"}
    hidden = Access(hidden=(base / "pkg" / "results",))
    assert shown(base, "agent.py", access=hidden) == {"agent.py", "helper.py"}


def test_links_to_hidden_places_are_not_followed(base: Path) -> None:
    (base / "results").mkdir()
    (base / "results" / "truth.py").write_text("")
    (base / "look.py").symlink_to(base / "results" / "truth.py")
    assert "secret.txt" not in shown(base, "agent.py", "secret.txt", access=Access(hidden=(base / "secret.txt",)))
    assert "look.py" not in shown(base, "agent.py", access=Access(hidden=(base / "results",)))


def test_an_agent_gets_listed_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD", "SSH_AUTH_SOCK", "BAKEOFF_MARKET_SECRET"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    names = set(environment(Access()))
    assert "LC_ALL" in names and {name for name in names if not name.startswith("LC_")} <= {
        "PATH", "LANG", "LANGUAGE", "TZ",
    }  # fmt: skip


@pytest.mark.parametrize("agent", ["cmd:python agent.py", "process:agent.py:Agent"])
def test_without_a_sandbox_such_agents_are_refused_with_the_fix(
    agent: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "_missing", lambda user: "the program bwrap is not installed; install it")
    (base / "agent.py").write_text(AGENT + "\nclass Agent: ...")
    refusals: list[Callable[[], object]] = [
        lambda: load(agent, base=base),
        lambda: MarketWorkload().check(MarketParams(agent=agent), base),
    ]
    for refusal in refusals:
        with pytest.raises(UsageError, match=r"bwrap is not installed.*--unsandboxed.*--sandbox none"):
            refusal()
    assert MarketWorkload().check(MarketParams(agent="momentum"), base), "others need no sandbox"


def test_the_user_may_accept_agents_without_a_sandbox(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_missing", lambda user: "the program bwrap is not installed")
    monkeypatch.setenv("BAKEOFF_MARKET_SECRET", "a secret that is long enough")
    told = facts(run("--agent", "cmd:python agent.py", "--unsandboxed"))
    variables = told["env"]
    assert isinstance(variables, dict)
    assert "BAKEOFF_MARKET_SECRET" not in variables and variables["HOME"] != str(Path.home())


def test_the_variable_that_chooses_no_sandbox_is_not_yet_consent(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_BACKEND", "none")
    assert "accept that" in run("--agent", "cmd:python agent.py").output


def test_an_experiment_without_a_sandbox_asks_for_consent(base: Path) -> None:
    (base / "e.toml").write_text('name = "e"\nworkload = "market"\nseeds = [0]\n[params]\nduration_minutes = 2\n')
    result = CliRunner().invoke(main, ["run", "e.toml", "--sandbox", "none", "--root", "results"])
    assert result.exit_code == 2 and "--yes accepts that" in result.output


def test_a_class_beside_the_world_is_warned_about_in_a_contest(base: Path) -> None:
    (base / "mine.py").write_text("class Mine:\n    def reset(self, b): ...\n    def act(self, s): ...\n")
    contest = MarketParams(agent="mine.py:Mine", secret_file="secret.txt")
    (note,) = MarketWorkload().check(contest, base)
    assert "process:mine.py:Mine" in note
    assert MarketWorkload().check(MarketParams(agent="momentum", secret_file="secret.txt"), base) == []
    result = run("--agent", "mine.py:Mine", "--secret-file", "secret.txt")
    assert "process:mine.py:Mine" in result.stdout.splitlines()[0]


def test_the_interpreter_of_another_environment_is_shown(base: Path) -> None:
    spec = box_spec([sys.executable, "agent.py"], [], base, Access())
    assert sys.prefix in {mount.target for mount in spec.mounts}


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_box_that_cannot_be_made_is_no_failure_of_the_agent(
    timeout: float | None, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise InfraError("no space left on this machine")

    monkeypatch.setattr(process, "Program", broken)
    with pytest.raises(InfraError, match="no space left"):
        Episode(fresh_world(), [load("cmd:python agent.py", base=base)], response_timeout=timeout).run()


def test_an_agent_that_raises_an_infra_error_does_not_make_its_episode_void() -> None:
    class Void:
        name = "void"
        broken = InfraError("not counted, please")

        def reset(self, brief: object) -> None:
            raise self.broken

        def act(self, seat: object) -> None: ...

    player = Episode(fresh_world(), [Void()], record=True).run().players[0]
    assert player.absent == len(player.turns) > 0
