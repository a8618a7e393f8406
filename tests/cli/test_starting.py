"""What cannot start is one error before the first run, the same from `run`, `run --dry-run` and `validate`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from bakeoff.records.layout import Lease
from bakeoff.workloads.functions import Call, flaws
from support.processes import Lab, eventually, process_exists

Bakeoff = Callable[..., Result]


@pytest.fixture
def refused(bakeoff: Bakeoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function from the text of an experiment file to what all three verbs say about it."""
    monkeypatch.chdir(tmp_path)

    def ask(text: str) -> str:
        file = tmp_path / "trial.toml"
        file.write_text(text)
        before = sorted(tmp_path.rglob("*"))
        told = {bakeoff(*verb, file).stderr for verb in (["run"], ["run", "--dry-run"], ["validate"])}
        assert sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts) == before
        assert len(told) == 1, "they agree"
        (text,) = told
        assert text.startswith("error: ") and "Traceback" not in text
        return text.removeprefix("error: ").replace(f"{tmp_path}/", "")

    return ask


@pytest.fixture
def accepted(bakeoff: Bakeoff, tmp_path: Path) -> Callable[[str], bool]:
    def ask(text: str) -> bool:
        file = tmp_path / "trial.toml"
        file.write_text(text)
        return bakeoff("validate", file).exit_code == 0

    return ask


def script(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    path.chmod(mode)


# -- commands


@pytest.mark.parametrize(
    ("command", "told", "fix"),
    [
        ('["pyhton3", "x"]', "no program called 'pyhton3' on the PATH", "did you mean 'python3'?"),
        ('"pyhton3 x | tee log"', "no program called 'pyhton3' on the PATH", "did you mean 'python3'?"),
        ('"exec pyhton3 x"', "no program called 'pyhton3' on the PATH", "did you mean 'python3'?"),
        ('["zqxj-frobnicate"]', "no program called 'zqxj-frobnicate' on the PATH", "install it, or write where it is"),
        ('["train.sh"]', "no program called 'train.sh' on the PATH", "did you mean './train.sh'?"),
        ('["./trian.sh"]', "trian.sh: no such file", "did you mean 'train.sh'?"),
        ('"./trian.sh && true"', "trian.sh: no such file", "did you mean 'train.sh'?"),
        ('["./far/away.sh"]', "far/away.sh: no such file", "there is no directory far either"),
        ('["./plain.sh"]', "plain.sh is not executable", "chmod +x plain.sh, or put its interpreter first"),
        ('["./folder"]', "folder is a directory, not a program", "name a file in it"),
        ('["./windows.sh"]', "windows.sh has Windows line endings", "convert it to Unix line endings"),
        ('["./odd.sh"]', "odd.sh: its first line names /opt/no/pyhton, which does not exist", "correct its first line"),
        (
            '["./bare.sh"]',
            "bare.sh is a script without a first line that names its interpreter",
            "begin it with a line",
        ),
        ('["./dangling"]', "dangling is a link to nothing, which does not exist", "correct the link"),
        ('["python3", "-u", "trian.py"]', "trian.py: no such file", "did you mean 'train.py'?"),
        ('"python3 trian.py --lr 3"', "trian.py: no such file", "did you mean 'train.py'?"),
        ('["sh", "{arm}.sh"]', "default.sh: no such file", "relative paths start at"),
    ],
)
def test_a_program_that_cannot_be_started_is_one_error(
    refused: Callable[..., str], tmp_path: Path, command: str, told: str, fix: str
) -> None:
    script(tmp_path / "train.sh")
    script(tmp_path / "train.py")
    script(tmp_path / "plain.sh", mode=0o644)
    script(tmp_path / "windows.sh", "#!/bin/sh\r\ntrue\r\n")
    script(tmp_path / "odd.sh", "#!/opt/no/pyhton -u\n")
    script(tmp_path / "bare.sh", "echo hello\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nothing")
    text = refused(f"seeds = 9\n[params]\ncommand = {command}\n")
    assert text.startswith(f"trial.toml:3: params.command: {told}") and f"\n  fix: {fix}" in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize(
    "command",
    [
        '["true", "{seed}"]',
        '"if true; then echo {seed}; fi"',
        '"for n in 1 2; do echo $n; done"',
        '"{{ echo 1; }}"',
        '"# a comment\\n\\n  echo 1"',
        '"NAME=value no-idea"',
        '"work() {{ echo 1; }}; work"',
        '"$HOME/no-idea || true"',
        '"cd elsewhere && ./made-there.sh"',
        '"./bare.sh"',
        '["./tool-{arm}.sh"]',
        '["./tool-{task}.sh"]',
        '["{dir}/made-by-the-run"]',
        '["sh", "{out}/made.sh"]',
        '["python3", "-m", "no.idea"]',
        '["python3", "-c", "print(1)"]',
        '["env", "no-idea.py"]',
    ],
)
def test_what_may_start_is_not_refused(accepted: Callable[[str], bool], tmp_path: Path, command: str) -> None:
    script(tmp_path / "bare.sh", "echo hello\n")
    script(tmp_path / "tool-default.sh")
    assert accepted(f"seeds = 2\n[params]\ncommand = {command}\n")


def test_programs_are_looked_for_on_the_path_of_the_run_and_in_its_directory(
    refused: Callable[..., str], accepted: Callable[[str], bool], tmp_path: Path
) -> None:
    script(tmp_path / "bin" / "only-here")
    text = f'env = {{ PATH = "{tmp_path}/bin" }}\nparams = {{ command = ["%s"] }}\n'
    assert accepted(text % "only-here")
    assert "no program called 'sort'" in refused(text % "sort")
    assert "did you mean 'only-here'?" in refused(text % "only-heer")
    work = 'params = { command = ["./only-here"], cwd = "%s" }\n'
    assert accepted(work % "bin")
    assert "only-here: no such file" in refused(work % ".")
    assert refused(work % "bni").startswith("trial.toml:1: params.cwd: bni: no such directory")


def test_every_arm_task_and_seed_is_looked_at_and_each_problem_is_told_once(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    arms = "".join(f'[[arms]]\nname = "{name}"\nparams = {{ command = ["{name}-tool"] }}\n' for name in "ab")
    text = refused(f"seeds = 50\n{arms}")
    assert [line for line in text.splitlines() if "fix" not in line] == [
        "trial.toml:4: arms.0.params.command: no program called 'a-tool' on the PATH",
        "trial.toml:7: arms.1.params.command: no program called 'b-tool' on the PATH",
    ]
    tasks = "".join(f'[[tasks]]\nname = "{name}"\nparams = {{ command = ["./{name}.sh"] }}\n' for name in "xy")
    script(tmp_path / "x.sh")
    assert refused(f"seeds = 50\n{tasks}").startswith("trial.toml:7: tasks.1.params.command: y.sh: no such file")
    script(tmp_path / "run-0.sh")
    script(tmp_path / "run-1.sh")
    text = 'seeds = 9\n%s\n[params]\ncommand = ["./run-{seed}.sh"]\n'
    assert refused(text % "").count("no such file") == 5 and "... and 2 more" in refused(text % "")
    assert "run-1.sh: no" not in refused(text % "")
    matrix = 'params = { command = ["./{tool}.sh"] }\nmatrix = { tool = ["x", "z"] }'
    assert "z.sh: no such file" in refused(matrix) and "x.sh" not in refused(matrix).splitlines()[0]


@pytest.mark.slow
def test_only_the_chosen_arms_have_to_be_there(lab: Lab) -> None:
    lab.experiment(
        'params = { command = ["{tool}"] }\n[[arms]]\nname = "here"\nparams = { tool = "true" }\n'
        '[[arms]]\nname = "elsewhere"\nparams = { tool = "no-such-tool" }\n'
    )
    assert "no-such-tool" in lab.cli("run", "trial.toml", code=2).stderr
    assert not lab.root.exists()
    assert "1 succeeded" in lab.cli("run", "trial.toml", "--only", "arm=here").stdout


# -- functions

MODULE = """
import functools
RATE = 0.5
def play(ctx, step_size, *, steps=10): return {"reward": 1.0}
def anything(**everything): return 1
def first(a, /): return a
async def later(): return 1
def many(): yield 1
def decorated(function):
    @functools.wraps(function)
    def inner(*args, **named): return function(*args, **named)
    return inner
@decorated
def wrapped(lr): return lr
class Trainer:
    def __call__(self, lr): return lr
    @staticmethod
    def train(seed, lr): return lr
trainer = Trainer()
if __name__ == "__main__":
    play(None, 1)
"""


def experiment(function: str, **params: object) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"function": function, **params}.items()]
    return "\n".join(('workload = "python"', "seeds = 20", "[params]", *lines, ""))


SOURCES = {
    "bandit": MODULE,
    "broken": "def run(:\n",
    "needy": "import zqxj_missing\ndef run(): ...\n",
    "raising": "def run(): ...\nraise ValueError('no data')\nrun = decorated(run)\n",
    "leaving": "import sys\nsys.exit(3)\nrun = 1\n",
    "queue": "def run(): ...\n",
    "tempfile": "def run(): ...\n",
    "inner/__init__": "",
    "inner/deep": "def run(): ...\n",
    "lib/far_away_zqxj": "def run(): ...\n",
    "elsewhere": "import sys\nsys.path.insert(0, 'lib')\nfrom far_away_zqxj import run\n",
    "built": "exec('def run(depth): ...')\n",
}
WRONG: list[tuple[str, tuple[str, ...], str, str, str]] = [
    # function, names of parameters, the key to change, a part of the message, a part of the fix
    ("bandti:play", ("step_size",), "function", "no module called 'bandti'", "did you mean 'bandit'?"),
    ("bandit.deep:play", (), "function", "no module called 'bandit.deep'", "did you mean 'bandit'?"),
    ("far.away:play", (), "function", "no module called 'far'", "modules beside the experiment file: bandit, broken"),
    ("bandit:paly", (), "function", "there is no 'paly' in", "did you mean 'play'?"),
    ("bandit:Trainer.trian", (), "function", "there is no 'Trainer.trian' in", "did you mean 'train'?"),
    ("bandit:RATE", (), "function", "bandit:RATE is not a function but of type float", "name a function"),
    ("bandit:later", (), "function", "bandit:later is async", "name a plain function"),
    ("bandit:many", (), "function", "bandit:many is a generator", "name a plain function"),
    ("bandit:play", (), "function", "bandit:play needs the argument 'step_size'", "add step_size = ..."),
    ("bandit:play", ("step_sise",), "step_sise", "takes no argument 'step_sise'", "did you mean 'step_size'?"),
    ("bandit:play", ("step_size", "depth"), "depth", "takes no argument 'depth'", "it takes ctx, step_size, steps"),
    ("bandit:first", ("a",), "function", "takes 'a' by position only", "remove the /"),
    ("bandit:wrapped", ("lrr",), "lrr", "takes no argument 'lrr'", "did you mean 'lr'?"),
    ("bandit:Trainer.train", (), "function", "needs the argument 'lr'", "add lr = ..."),
    ("broken:run", (), "function", "importing broken fails: SyntaxError: ", "correct the module"),
    ("needy:run", (), "function", "No module named 'zqxj_missing'", "pip install it for"),
    ("raising:run", (), "function", "importing raising fails: ValueError: no data (", "correct the module"),
    ("leaving:run", (), "function", "importing leaving fails: SystemExit: 3", "correct the module"),
]
RIGHT: list[tuple[str, tuple[str, ...]]] = [
    ("bandit:play", ("step_size",)),
    ("bandit:play", ("step_size", "ctx", "steps")),
    ("bandit:anything", ("depth", "table")),
    ("bandit:wrapped", ("lr",)),
    ("bandit:trainer", ("lr",)),
    ("bandit:Trainer.train", ("lr",)),
    ("inner.deep:run", ()),
    ("elsewhere:run", ()),
    ("built:run", ("depth",)),
    ("math:hypot", ()),
    ("queue:run", ()),
    ("tempfile:run", ()),
]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.slow
def test_what_is_wrong_with_functions_is_found_and_nothing_else(sources: Path) -> None:
    calls = [Call(function, names) for function, names, *_ in (*WRONG, *RIGHT)]
    answers = flaws(calls, sources, {})
    for (function, _, key, message, fix), answer in zip(WRONG, answers, strict=False):
        assert len(answer) == 1, function
        assert answer[0].key == key and message in answer[0].message and fix in answer[0].fix, answer
    assert not any(answers[len(WRONG) :])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\nrun = 1\n", "(killed by SIGSEGV)"),
        ("import os\nos.write(2, b'noise\\nlast words\\n')\nos._exit(7)\nrun = 1\n", "(exit code 7): last words"),
    ],
)
def test_a_module_that_ends_its_process_is_told(tmp_path: Path, code: str, told: str) -> None:
    (tmp_path / "ending.py").write_text(code)
    ((flaw,),) = flaws([Call("ending:run", ())], tmp_path, {})
    assert flaw.message == f"ending:run: importing its module ends the process {told}"


@pytest.mark.slow
def test_a_function_that_cannot_be_called_is_one_error(refused: Callable[..., str], sources: Path) -> None:
    text = refused(experiment("bandit:play", step_sise=1))
    assert text == (
        "trial.toml:5: params.step_sise: bandit:play takes no argument 'step_sise'\n  fix: did you mean 'step_size'?\n"
    )
    arms = "".join(
        f'[[arms]]\nname = "{name}"\nparams = {{ function = "bandit:{name}" }}\n' for name in ("play", "paly")
    )
    text = refused(f'workload = "python"\nseeds = 20\nparams = {{ step_size = 1 }}\n{arms}')
    assert text.startswith("trial.toml:9: arms.1.params.function: there is no 'paly' in bandit.py\n")


@pytest.mark.slow
def test_a_plain_function_is_checked_without_importing_its_module(bakeoff: Bakeoff, tmp_path: Path) -> None:
    """Also one beside a module that is imported, takes long or is only there for a main program."""
    (tmp_path / "heavy.py").write_text(
        "import json, lighter\nfrom pathlib import Path\nPath('imported').touch()\ndef run(seed, lr): ...\n"
        "try:\n    import zqxj_optional\nexcept ImportError:\n    pass\nif __name__ == '__main__':\n    run(1, 2)\n"
    )
    (tmp_path / "lighter.py").write_text("")
    file = tmp_path / "trial.toml"
    file.write_text(experiment("heavy:run", lr=1))
    assert bakeoff("validate", file).exit_code == 0
    assert not (tmp_path / "imported").exists()
    file.write_text(experiment("heavy:run", lr=1, depth=2))
    assert bakeoff("validate", file).exit_code == 2
    assert (tmp_path / "imported").exists(), "a doubt is settled by importing it"


@pytest.mark.slow
def test_an_import_that_hangs_is_ended_and_not_held_against_the_function(
    bakeoff: Bakeoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bakeoff.workloads.functions.PATIENCE", 3.0)
    (tmp_path / "hanging.py").write_text(
        "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\ntime.sleep(600)\nrun = 1\n"
    )
    file = tmp_path / "trial.toml"
    file.write_text(experiment("hanging:run"))
    assert bakeoff("validate", file).exit_code == 0
    if (tmp_path / "pids").exists():  # a slow machine may not have come that far
        eventually(lambda: not any(process_exists(int(pid)) for pid in (tmp_path / "pids").read_text().split()))


def test_validate_has_the_problems_in_its_json(bakeoff: Bakeoff, tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('seeds = 2\n[params]\ncommand = ["pyhton3"]\n')
    told = json.loads(bakeoff("validate", file, "--json").stdout)
    assert not told["valid"] and told["problems"] == [
        {
            "key": "params.command",
            "line": 3,
            "message": "no program called 'pyhton3' on the PATH",
            "fix": "did you mean 'python3'?",
        }
    ]


# -- everything else that `run` refuses


@pytest.mark.slow
def test_a_dry_run_refuses_what_run_would_refuse(bakeoff: Bakeoff, tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"

    def both(text: str, *options: str) -> str:
        file.write_text(text)
        ends = [bakeoff("run", file, *more, *options) for more in ((), ("--dry-run",))]
        assert ends[0].exit_code == ends[1].exit_code != 0 and ends[0].stderr == ends[1].stderr
        return ends[0].stderr.replace(f"{tmp_path}/", "")

    runs = 'params = { command = "true" }\n'
    assert "trial.toml:2: env.KEY: ${ZQXJ} is not set" in both(runs + 'env = { KEY = "${ZQXJ}" }')
    assert "trial.toml: the plan is empty" in both(runs + 'exclude = ["seed == 0"]')
    assert "--sandbox is an option of" in both(runs, "--sandbox", "none")
    (tmp_path / "bakeoff-runs").mkdir()
    (tmp_path / "bakeoff-runs" / "trial").write_text("a file")
    assert "bakeoff-runs/trial: cannot make a directory for results: File exists" in both(runs)
    (tmp_path / "bakeoff-runs" / "trial").unlink()
    file.write_text(runs)
    assert bakeoff("run", file).exit_code == 0
    assert "the file now describes other runs" in both('params = { command = "false" }')
    file.write_text(runs)
    (lease,) = (tmp_path / "bakeoff-runs" / "trial").glob("2*/.lease")
    with closing(Lease(lease)):
        assert "is being run by" in bakeoff("run", file, "--dry-run").stderr


def test_a_dry_run_makes_no_directories_for_commands_that_name_theirs(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text('params = { command = ["echo", "{dir}", "{out}"] }')
    assert "<edition>" in bakeoff("run", "trial.toml", "--dry-run").stdout
    assert not (tmp_path / "bakeoff-runs").exists()


# -- no file named


def test_the_only_experiment_file_of_a_directory_is_taken(bakeoff: Bakeoff, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.x]\nparams = 1\n')
    (tmp_path / "package.json").write_text('{"name": "x", "description": "y", "version": "1", "scripts": {}}')
    (tmp_path / "ci.yml").write_text("name: x\non: push\nenv: {}\njobs: {}\n")
    (tmp_path / "broken.toml").write_text("seeds = [")
    for verb in (["run"], ["validate"]):
        told = bakeoff(*verb)
        assert told.exit_code == 2 and "there is none in this directory; `bakeoff init` writes one" in told.stderr
    (tmp_path / "mine.yaml").write_text('seeds: 2\nparams: {command: "true"}\n')
    told = bakeoff("run", "--dry-run")
    assert told.exit_code == 0 and "note: taking mine.yaml, the only experiment file" in told.stderr
    assert "2 planned" in told.stdout
    assert "mine.yaml is valid" in bakeoff("validate").stdout
    (tmp_path / "other.toml").write_text('sedes = 2\nworkload = "command"\nparams = { command = "true" }\n')
    told = bakeoff("run")
    assert told.exit_code == 2 and "there are 2 in this directory: mine.yaml, other.toml" in told.stderr


@pytest.mark.slow
def test_shells_complete_verbs_options_and_experiments(lab: Lab) -> None:
    def completed(*words: str) -> list[str]:
        asking = {
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "_BAKEOFF_COMPLETE": "bash_complete",
        }
        program = Path(sys.executable).with_name("bakeoff")
        done = subprocess.run([program], env={**lab.env(), **asking}, cwd=lab.place, capture_output=True, text=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert (
        {"run", "report", "rank"}
        <= set(completed("bakeoff", "r"))
        <= {verb for verb in completed("bakeoff", "") if verb.startswith("r")}
    )
    assert "train" in completed("bakeoff", "market", "")
    assert "--retry-failed" in completed("bakeoff", "run", "--re")
    (lab.root / "sorting").mkdir(parents=True)
    assert completed("bakeoff", "status", "so") == ["sorting"]
    for shell in ("bash", "zsh", "fish"):
        lab.environment["_BAKEOFF_COMPLETE"] = f"{shell}_source"
        program = Path(sys.executable).with_name("bakeoff")
        assert "bakeoff" in subprocess.run([program], env=lab.env(), capture_output=True, text=True).stdout
