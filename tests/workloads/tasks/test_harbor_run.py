"""Harbor tasks are played in one box: somebody acts, the tests run, and the reward is what they left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakeoff.errors import InfraError
from bakeoff.sandbox.base import Box
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.check import nothing, reference
from bakeoff.workloads.tasks.harbor_run import combined, limit_artifacts, run_steps
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.model import Step
from bakeoff.workloads.tasks.rescore import verify_again
from bakeoff.workloads.tasks.results import StepResult, Verification
from workloads.tasks.tasked import HARBOR, harbor_task, write_files

pytestmark = pytest.mark.apt  # bubblewrap


def played(folder: Path, command: str, sandbox: Bubblewrap) -> Verification:
    """The task with an agent that runs one shell command in each step."""

    def act(box: Box, step: Step) -> None:
        box.run(["sh", "-c", command], user=step.agent.user)

    return run_steps(load_task(folder), sandbox, act, logs=folder.parent / "logs")


def test_the_reference_has_the_reward_and_doing_nothing_has_not(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(harbor_task(tmp_path / "t"))
    good, bad = reference(task, bubblewrap, tmp_path / "logs"), nothing(task, bubblewrap, tmp_path / "logs")
    assert (good.status, good.score, good.rewards) == ("scored", 1.0, {"reward": 1.0})
    assert (bad.status, bad.score) == ("scored", 0.0)


@pytest.mark.parametrize(
    ("script", "status", "rewards"),
    [
        ("echo 0.5 > /logs/verifier/reward.txt; exit 3", "scored", {"reward": 0.5}),
        ('echo 0 > /logs/verifier/reward.txt; echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json', "scored", {"a": 1, "b": 0}),
        ("true", "error", {}),
        ("touch /logs/verifier/reward.txt", "error", {}),
        ("echo good > /logs/verifier/reward.txt", "error", {}),
        ("sleep 60", "timeout", {}),
    ],
)  # fmt: skip
def test_the_reward_file_counts_and_the_exit_code_does_not(
    tmp_path: Path, bubblewrap: Bubblewrap, script: str, status: str, rewards: dict[str, float]
) -> None:
    files = {"tests/test.sh": f"#!/bin/sh\n{script}\n"}
    seconds = 0.2 if "sleep" in script else 60
    toml = HARBOR + f"[verifier]\ntimeout_sec = {seconds}\n"
    found = played(harbor_task(tmp_path / "t", files, toml), "true", bubblewrap)
    assert (found.status, dict(found.rewards)) == (status, rewards)
    assert (found.score is None) == (status != "scored")


PRE_WRITTEN = (
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
)
HOSTILE = {
    "a reward of its own": PRE_WRITTEN,
    "a link": "rm -rf /logs/verifier; ln -s /tmp /logs/verifier; echo 1 > /tmp/reward.txt",
    "a process that waits": "(sleep 1; while true; do echo 1 > /logs/verifier/reward.json; sleep 0.05; done) > /dev/null 2>&1 &",
    "tests of its own": "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod +x /tests/test.sh",
    "a directory in place of the file": "mkdir -p /logs/verifier/reward.txt/x",
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_agent_gets_no_reward(tmp_path: Path, bubblewrap: Bubblewrap, attack: str) -> None:
    files = {"tests/test.sh": "#!/bin/sh\nsleep 1.2\necho 0 > /logs/verifier/reward.txt\n"} if "waits" in attack else {}
    found = played(harbor_task(tmp_path / "t", files), HOSTILE[attack], bubblewrap)
    assert found.score == 0.0, found


@pytest.mark.parametrize(
    ("command", "script", "status", "score"),
    [
        ("touch broken", "[ ! -e broken ]", "scored", 0.0),
        ("true", "false", "error", None),
        ("touch broken", "[ -e twice ] || [ ! -e broken ] || { touch twice; false; }", "scored", 0.5),
    ],
    ids=["by the agent", "by themselves", "only once"],
)
def test_tests_that_leave_no_reward_are_a_0_for_who_broke_them(
    tmp_path: Path, bubblewrap: Bubblewrap, command: str, script: str, status: str, score: float | None
) -> None:
    files = {"tests/test.sh": f"#!/bin/sh\n{script} && echo 0.5 > /logs/verifier/reward.txt\n"}
    found = played(harbor_task(tmp_path / "t", files), command, bubblewrap)
    assert (found.status, found.score) == (status, score), found
    assert ("broke the tests" in found.error) == (score == 0.0)


def test_an_agent_sees_neither_tests_nor_solution(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    look = "ls -A /tests /solution > /app/seen; mkdir -p /tests /solution; touch /tests/x /solution/x; find /app /logs /tmp /opt /root /srv -name test.sh >> /app/seen; true"  # fmt: skip
    files = {"tests/test.sh": '#!/bin/sh\n[ ! -s /app/seen ] && [ ! -e /tests/x ] && r=1 || r=0\ncat /app/seen\necho $r > /logs/verifier/reward.txt\n'}  # fmt: skip
    found = played(harbor_task(tmp_path / "t", files), look, bubblewrap)
    assert found.score == 1.0, found.steps[0].output


def test_tests_run_in_the_workdir_as_their_user_with_their_variables(
    tmp_path: Path, bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "7")
    toml = HARBOR + '[verifier]\nuser = "nobody"\nenv = { A = "${GIVEN}" }\n'
    files = {"tests/test.sh": '#!/bin/sh\necho "$(pwd) $(id -un) $A"\n[ "$(pwd) $(id -un) $A" = "/app nobody 7" ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'}  # fmt: skip
    found = played(harbor_task(tmp_path / "t", files, toml), "true", bubblewrap)
    assert found.score == 1.0, found.steps[0].output


STEPS = HARBOR + '[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\n'
STEP_FILES = {
    "steps/one/instruction.md": "first",
    "steps/one/tests/test.sh": "#!/bin/sh\n. /tests/shared.sh\ngive $(cat /app/n)\n",
    "steps/two/instruction.md": "second",
    "steps/two/tests/test.sh": "#!/bin/sh\n. /tests/shared.sh\ngive $(cat /app/ready)\n",
    "steps/two/workdir/setup.sh": "#!/bin/sh\necho 1 > ready\n",
    "tests/shared.sh": "give() { echo $1 > /logs/verifier/reward.txt; }\n",
}


@pytest.mark.parametrize(
    ("first", "strategy", "score", "reward", "reached"),
    [
        ("1", "mean", 1.0, 1.0, 2),
        ("0.5", "mean", 0.75, 0.75, 2),
        ("0.25", "mean", 0.125, 0.25, 1),
        ("0.25", "final", 0.0, 0.25, 1),
        ("0.5", "final", 1.0, 1.0, 2),
    ],
)  # fmt: skip
def test_a_step_below_its_gate_is_the_last_one(
    tmp_path: Path, bubblewrap: Bubblewrap, first: str, strategy: str, score: float, reward: float, reached: int
) -> None:
    toml = f'multi_step_reward_strategy = "{strategy}"\n{STEPS}'
    found = played(harbor_task(tmp_path / "t", STEP_FILES, toml), f"echo {first} > /app/n; rm -f setup.sh", bubblewrap)
    assert (found.score, found.rewards["reward"], len(found.steps)) == (score, reward, reached)


def test_a_separate_verifier_gets_the_artifacts_and_nothing_else(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    toml = 'artifacts = ["/app/out"]\n' + HARBOR + '[verifier]\nenvironment_mode = "separate"\n[[verifier.collect]]\ncommand = "echo c > /logs/artifacts/c"\n'  # fmt: skip
    test = '#!/bin/sh\n[ "$(cat /app/out/answer)$(cat /logs/artifacts/c)" = donec ] && [ ! -e /app/secret ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n'
    files = {"tests/test.sh": test, "tests/Dockerfile": "FROM host\nCOPY test.sh /tests/test.sh\n"}
    folder = harbor_task(tmp_path / "t", files, toml)
    (folder / "tests/test.sh").chmod(0o644)  # as most authors leave it: whoever runs it makes it a program
    command = "mkdir -p out; echo done > out/answer; echo x > secret; mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.json"
    assert played(folder, command, bubblewrap).score == 1.0
    assert played(folder, "true", bubblewrap).score == 0.0


def test_artifacts_are_kept_and_a_hook_that_an_agent_broke_stops_nothing(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    artifacts = (
        'artifacts = ["out", "/app/none", { source = "/app/out/a", destination = "x/y", exclude = ["*.tmp"] }]\n'
    )
    toml = artifacts + HARBOR + '[[verifier.collect]]\ncommand = "test -e /app/hook"\n'
    folder = harbor_task(tmp_path / "t", toml=toml)
    found = played(folder, "mkdir -p out/a; echo 1 > out/a/b; echo 2 > out/a/c.tmp; echo done > answer", bubblewrap)
    kept = tmp_path / "logs" / "main" / "artifacts"
    assert sorted(str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file()) == [
        "app/out/a/b",
        "app/out/a/c.tmp",
        "x/y/b",
    ]
    assert (found.score, found.error) == (1.0, "verifier.collect: 'test -e /app/hook' exited with code 1")


def test_more_artifacts_than_a_disk_can_take_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/large").write_bytes(bytes(2 << 20))
    assert limit_artifacts(tmp_path / "kept") == "" and limit_artifacts(tmp_path / "none") == ""
    monkeypatch.setattr("bakeoff.workloads.tasks.harbor_run.LARGEST_ARTIFACTS_MB", 1)
    assert limit_artifacts(tmp_path / "kept") == "2 MB of artifacts were not kept; the limit is 1 MB"
    assert not (tmp_path / "kept").exists()


def test_a_missing_verifier_image_is_reported_before_an_agent_works(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(harbor_task(tmp_path / "t", toml=HARBOR + '[verifier.environment]\ndocker_image = "none:1"\n'))
    with pytest.raises(InfraError, match="'none:1' is not in the store"):
        run_steps(task, bubblewrap, lambda box, step: pytest.fail("worked"), logs=tmp_path / "logs")


def test_a_verifiers_image_without_tests_is_given_the_tasks(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    toml = 'artifacts = ["answer"]\n' + HARBOR + '[verifier.environment]\ndocker_image = "host"\nworkdir = "/app"\n'
    assert played(harbor_task(tmp_path / "t", toml=toml), "echo done > answer", bubblewrap).score == 1.0


def test_a_separate_verifier_on_a_named_image_has_the_tasks_files_too(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    toml = '[environment]\ndocker_image = "host"\nworkdir = "/app"\n[verifier]\nenvironment_mode = "separate"\n'
    files = {
        "environment/data.txt": "given",
        "tests/test.sh": "#!/bin/sh\ngrep -c given data.txt > /logs/verifier/reward.txt\n",
    }
    folder = harbor_task(tmp_path / "t", files, toml)
    (folder / "environment/Dockerfile").unlink()
    assert played(folder, "rm data.txt", bubblewrap).score == 1.0


def test_a_step_is_set_up_by_bash_as_the_agents_user(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    toml = HARBOR + '[agent]\nuser = "nobody"\n[[steps]]\nname = "one"\n'
    files = {
        "environment/Dockerfile": "FROM debian:stable-slim\nWORKDIR /app\nRUN chmod 777 /app\n",
        "steps/one/instruction.md": "first",
        "steps/one/workdir/setup.sh": 'who=($(id -un))\necho "${who[0]}" > who\nrm -- "$0"\n',
        "steps/one/tests/test.sh": "#!/bin/sh\ngrep -c nobody who > /logs/verifier/reward.txt\n",
    }
    assert played(harbor_task(tmp_path / "t", files, toml), "test ! -e setup.sh", bubblewrap).score == 1.0


def test_what_an_agent_does_to_the_next_steps_start_does_not_pay(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {**STEP_FILES, "steps/two/workdir/setup.sh": "test ! -e /app/trap\n"}
    folder = harbor_task(tmp_path / "t", files, STEPS)
    found = played(folder, "echo 1 > n; touch trap", bubblewrap)
    assert (found.status, found.score, [dict(step.rewards) for step in found.steps]) == ("scored", 0.5, [{"reward": 1.0}, {"reward": 0.0}])  # fmt: skip
    assert "broke what this step starts from" in found.error
    (folder / "steps/two/workdir/setup.sh").write_text("false\n")
    with pytest.raises(InfraError, match=r"steps/two/workdir/setup.sh: bash exited with code 1"):
        played(folder, "echo 1 > n", bubblewrap)


def test_work_that_is_verified_again_belongs_to_the_agents_user(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {"tests/test.sh": "#!/bin/sh\nstat -c %U answer | grep -c nobody > /logs/verifier/reward.txt\n"}
    task = load_task(harbor_task(tmp_path / "t", files, HARBOR + '[agent]\nuser = "nobody"\n'))
    diff = b"diff --git a/answer b/answer\nnew file mode 100644\n--- /dev/null\n+++ b/answer\n@@ -0,0 +1 @@\n+done\n"
    assert verify_again(task, [diff], bubblewrap, tmp_path / "logs").score == 1.0


def test_several_steps_are_verified_again_with_the_work_of_each(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {**STEP_FILES, "steps/two/tests/test.sh": "#!/bin/sh\n. /tests/shared.sh\ngive $(cat /app/late)\n"}
    task = load_task(harbor_task(tmp_path / "t", files, STEPS))
    new = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+1\n"
    first, second = new.format("n").encode(), new.format("late").encode()

    def scores(*diffs: bytes) -> list[float]:
        return [
            step.rewards.get("reward", 0.0) for step in verify_again(task, diffs, bubblewrap, tmp_path / "logs").steps
        ]

    assert scores(first, second) == [1.0, 1.0]
    assert scores(second, first) == [0.0]  # below the minimum of the first step
    assert scores(first) == [1.0, 0.0]  # the agent did not reach the second


def test_a_reward_that_a_gate_names_and_the_tests_did_not_give_is_below_every_gate(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    toml = STEPS.replace("min_reward = 0.5", "min_reward = { style = 0.0 }")
    assert len(played(harbor_task(tmp_path / "t", STEP_FILES, toml), "echo 1 > n", bubblewrap).steps) == 1


def test_tests_may_write_where_they_lie_and_a_script_without_a_first_line_is_bashs(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    test = (
        'cd /tests && cp answer mine && mkdir .cache && words=(1 0) && echo "${words[0]}" > /logs/verifier/reward.txt'
    )
    files = {
        "tests/test.sh": f"# no first line\n{test}\n",
        "tests/answer": "42",
        "solution/solve.sh": "touch /solution/x",
    }
    found = reference(load_task(harbor_task(tmp_path / "t", files)), bubblewrap, tmp_path / "logs")
    assert found.score == 1.0, found.steps[0].output


@pytest.mark.parametrize(("reward", "status"), [("echo 0 > /logs/verifier/reward.txt", "scored"), ("true", "error")])
def test_tests_that_look_for_a_missing_network_are_reported(
    tmp_path: Path, bubblewrap: Bubblewrap, reward: str, status: str
) -> None:
    files = {"tests/test.sh": f"#!/bin/sh\necho 'curl: (6) Could not resolve host: astral.sh'\n{reward}\n"}
    found = played(harbor_task(tmp_path / "t", files), "true", bubblewrap)
    assert found.status == status
    assert "Could not resolve host: astral.sh" in found.error and "--network" in found.error


def test_a_terminal_bench_task_is_scored_by_what_its_tests_print(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    files = {
        "task.yaml": "instruction: Make it.\n",
        "Dockerfile": "FROM host\nWORKDIR /app\nCOPY . /app\n",
        "run-tests.sh": "#!/bin/bash\necho '== short test summary info =='\nsource $TEST_DIR/look.sh\n",
        "tests/look.sh": "[ -f made ] && [ ! -e solution.sh ] && [ ! -e tests ] && echo PASSED || echo FAILED\n",
        "solution.sh": "# a comment before\n#! /bin/bash\nnames=(made)\ntouch ${names[0]}\n",
    }
    task = load_task(write_files(tmp_path / "old", files))
    assert reference(task, bubblewrap, tmp_path / "logs").score == 1.0
    assert nothing(task, bubblewrap, tmp_path / "logs").score == 0.0


def test_a_dockerfile_that_does_not_build_is_named_where_its_author_finds_it(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    files = {"task.yaml": "instruction: x\n", "Dockerfile": "FROM host\nRUN exit 3\n", "run-tests.sh": "true\n"}
    task = load_task(write_files(tmp_path / "old", files))
    assert f"{tmp_path}/old/Dockerfile:2: RUN ended with code 3" in nothing(task, bubblewrap, tmp_path / "logs").error


def test_a_missing_image_and_an_unhealthy_sandbox_are_infrastructure_errors(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    missing = harbor_task(tmp_path / "a", toml=HARBOR.replace("host_base = true", ""))
    with pytest.raises(InfraError, match="debian:stable-slim"):
        played(missing, "true", bubblewrap)
    sick = HARBOR + '[environment.healthcheck]\ncommand = "false"\nretries = 2\ninterval_sec = 0\n'
    with pytest.raises(InfraError, match="healthy"):
        played(harbor_task(tmp_path / "b", toml=sick), "true", bubblewrap)
    assert reference(load_task(missing), bubblewrap, tmp_path / "logs").status == "error"


def test_a_broken_verifier_in_one_step_leaves_no_score(tmp_path: Path) -> None:
    task = load_task(harbor_task(tmp_path / "t", STEP_FILES, STEPS))
    steps = [StepResult("one", "scored", {"reward": 1.0}), StepResult("two", "error", error="no reward")]
    found = combined(task, steps, 0.0)
    assert (found.status, found.score, found.error) == ("error", None, "two: no reward")
