"""Measure the overhead of a task rollout: the reference solution on a trivial Harbor task, against Harbor with podman.

Harbor's program is found at $HARBOR or in .peers/harbor, which these commands create:
python3.12 -m venv .peers/harbor && .peers/harbor/bin/pip install harbor==0.24.0 podman-compose
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import (
    BAKEOFF,
    REPOSITORY,
    Options,
    check,
    environment,
    first_line,
    in_turns,
    machine,
    options,
    publish,
    say,
    versions,
    workspace,
)

sys.path.insert(0, str(REPOSITORY / "tests"))
IMAGE = "localhost/bakeoff-trivial:1"
AT_ONCE = 2
METHOD = (
    "One trivial Harbor task (write a word, look for it) from one image: busybox and bash. Whole processes from start to end, "
    "divided by the number of trials, each side with two trials at a time. The image is in every side's store, and each side "
    "ran one trial before. Harbor with podman, runc and overlay storage; its price list is not fetched. Correctness: two "
    "tasks x oracle and nop, four at a time in bubblewrap, once in one go and once killed with SIGKILL in the middle and "
    "resumed; a leftover is a process, mount, cgroup or directory that mentions the workspace or an ended maker."
)
TASK = {
    "task.toml": f'schema_version = "1.1"\n[task]\nname = "bench/trivial"\n[environment]\ndocker_image = "{IMAGE}"\n',
    "instruction.md": "Write done into /app/answer.\n",
    "environment/Dockerfile": f"FROM {IMAGE}\n",
    "tests/test.sh": '#!/bin/bash\n[ "$(cat /app/answer)" = done ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "#!/bin/bash\necho done > /app/answer\n",
}
EXPERIMENT = """
name = "{name}"
workload = "tasks"
rollouts = {rollouts}
matrix.agent = {agents}
[analysis]
metric = "total_score"
bounds = [0, 1]
"""


def harbor() -> Path:
    """Harbor's program, with podman-compose beside it or on PATH."""
    found = Path(os.environ.get("HARBOR") or REPOSITORY / ".peers/harbor/bin/harbor")
    if not found.is_file():
        raise SystemExit(f"{found}: no Harbor here\n{__doc__}")
    return found.absolute()


def write_task(place: Path) -> None:
    for name, text in TASK.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if name.endswith(".sh") else 0o644)


def write_root(root: Path) -> None:
    """Build the image: bash with its libraries, and busybox for everything else."""
    for name in ("bin", "etc", "tmp", "root", "proc", "dev", "sys", "app", "usr/bin"):
        (root / name).mkdir(parents=True)
    shutil.copy2("/usr/bin/busybox", root / "bin/busybox")
    for name in subprocess.check_output(["busybox", "--list"], text=True).split():
        if name not in ("busybox", "bash", "sh"):
            (root / "bin" / name).symlink_to("busybox")
    shutil.copy2("/bin/bash", root / "bin/bash")
    (root / "bin/sh").symlink_to("bash")
    for word in subprocess.check_output(["ldd", "/bin/bash"], text=True).split():
        if word.startswith("/"):
            (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(word).resolve(), root / word[1:])
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\n")


def timed(argv: list[str], cwd: Path, env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv[:4])} ... failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return time.perf_counter() - began


def experiment(place: Path, name: str, agents: list[str], rollouts: int, tasks: list[str]) -> Path:
    file = place / f"{name}.toml"
    text = EXPERIMENT.format(name=name, agents=json.dumps(agents), rollouts=rollouts)
    file.write_text(text + "".join(f'[[tasks]]\nname = "{task}"\npath = "{task}"\n' for task in tasks))
    return file


def ours(place: Path, backend: str, env: Mapping[str, str]) -> Callable[[int], float]:
    def trials(number: int) -> float:
        name = f"{backend}-{number}"
        file = experiment(place, name, ["oracle"], number, ["trivial"])
        took = timed([*BAKEOFF, "run", str(file), f"-j{AT_ONCE}", "--sandbox", backend], place, env)
        table = subprocess.check_output([*BAKEOFF, "summarize", name, "--json"], cwd=place, env=env)
        (row,) = json.loads(table)["by_task"]
        if (row["tries"], row["mean"]) != (number, 1.0):
            raise SystemExit(f"{backend}: not all of {number} trials passed: {row}")
        return took

    return trials


def theirs(place: Path, program: Path, env: Mapping[str, str]) -> Callable[[int], float]:
    mine = {**env, "PATH": f"{program.parent}:{env['PATH']}", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def trials(number: int) -> float:
        out = place / "harbor"
        shutil.rmtree(out, ignore_errors=True)
        words = [str(program), "run", "-p", "trivial", "-a", "oracle", "-e", "podman", "-k", str(number)]
        # Containers are removed anyway; with --delete Harbor also removes the image, and the next trial has none.
        took = timed([*words, "-n", str(AT_ONCE), "--no-delete", "-y", "-o", str(out)], place, mine)
        rewards = Counter(file.read_text().strip() for file in out.glob("*/*/verifier/reward.txt"))
        if rewards != {"1": number}:
            raise SystemExit(f"Harbor: not all of {number} trials passed: {dict(rewards)}")
        return took

    return trials


def against_harbor(given: Options, directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    from support.containers import started

    program, number = harbor(), 2 if given.quick else 20
    write_task(directory / "trivial")
    write_root(directory / "root")
    archive = directory / "root.tar"
    subprocess.run(["tar", "-C", str(directory / "root"), "-cf", str(archive), "."], check=True)
    cache = {"BAKEOFF_CACHE": str(directory / "cache"), "BAKEOFF_ROOT": str(directory / "results")}
    with started("podman"):
        at_podman = {name: value for name, value in environment().items() if name != "CONTAINER_HOST"}
        _quietly(["podman", "import", str(archive), IMAGE], at_podman)
        with started("docker"):
            at_docker = {**environment(), **cache}
            _quietly(["docker", "import", str(archive), IMAGE], at_docker)
            _quietly([*BAKEOFF, "sandbox", "image", "add", IMAGE, str(directory / "root")], at_docker)
            sides = {
                "bubblewrap": ours(directory, "bubblewrap", at_docker),
                "docker": ours(directory, "docker", at_docker),
                "Harbor": theirs(directory, program, at_podman),
            }
            for side in sides.values():
                side(1)
            turns = in_turns({name: (lambda side=side: side(number)) for name, side in sides.items()}, 1, 0.0)  # type: ignore[misc]
    each = {name: taken.best / number for name, taken in turns.items()}
    lines = [
        check(
            f"{number} trials of oracle on a trivial Harbor task in {name}: time per trial against Harbor with podman",
            f"{each[name]:.3g} s", f"{each['Harbor']:.3g} s", each["Harbor"] / each[name], bar,
        )
        for name, bar in (("bubblewrap", 10), ("docker", 2))
    ]  # fmt: skip
    return lines, {"trials": number, "at_once": AT_ONCE, "seconds_per_trial": each, "times": turns}


def _quietly(argv: list[str], env: Mapping[str, str]) -> None:
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)


def many(given: Options, directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Check that all scores are right, nothing is left behind, and a killed and resumed run gives the same table."""
    from support.processes import Lab, eventually
    from workloads.tasks.small import write_task as write_small

    rollouts = 3 if given.quick else 50
    earlier = set(leftovers(directory))  # from other processes on this machine
    write_small(directory / "sums")
    lab = Lab(directory)
    lab.environment["BAKEOFF_CACHE"] = str(directory / "cache")
    took: dict[str, float] = {}
    for name in ("whole", "killed"):
        file = experiment(directory, name, ["oracle", "nop"], rollouts, ["trivial", "sums"])
        began = time.perf_counter()
        if name == "killed":
            process = lab.start("run", file, "-j4")
            eventually(lambda: lab.statuses("killed")["succeeded"] >= 2 * rollouts, "half of it done", 600)
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        process = lab.start("run", file, "-j4")
        said = "".join(process.communicate())
        took[name] = time.perf_counter() - began
        say(f"  {name}: exit code {process.returncode} after {took[name]:.1f} s")
        if process.returncode:
            raise SystemExit(said[-3000:])
    tables = {name: Counter((row["arm"], row["task"], row["total_score"]) for row in lab.rows(name)) for name in took}
    right = {(arm, task, float(arm == "oracle")): rollouts for arm in ("oracle", "nop") for task in ("trivial", "sums")}
    wrong = sum((Counter(right) - tables["whole"]).values())
    other = sum(((tables["whole"] - tables["killed"]) + (tables["killed"] - tables["whole"])).values())
    left = [thing for thing in leftovers(directory) if thing not in earlier]
    total = 4 * rollouts
    lines = [
        check(f"{total} rollouts of oracle and nop, four at a time: wrong scores", f"{wrong}", "0", wrong, 1, "under", "runs"),
        check(f"{total} rollouts killed in the middle and resumed: rows that differ", f"{other}", "0", other, 1, "under", "rows"),
        check("after both: processes, mounts, cgroups and directories left", f"{len(left)}", "0", len(left), 1, "under", "things"),
    ]  # fmt: skip
    return lines, {"rollouts": total, "seconds": took, "left": left}


def leftovers(directory: Path) -> list[str]:
    from bakeoff.sandbox import cache, cgroups

    found = [f"directory {path.name}" for path in (directory / "cache/boxes").iterdir() if path.is_dir()]
    for parent in set(cgroups.parents().values()):
        groups = [path for path in parent.glob(f"{cache.PREFIX}*") if path.is_dir()]
        found += [f"cgroup {path}" for path in groups if cache.owner_gone(path.name.removeprefix(cache.PREFIX))]
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            told = b"".join((process / name).read_bytes() for name in ("cmdline", "environ"))
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue  # the process has ended meanwhile
        if str(directory).encode() in told:
            found.append(f"process {process.name}: {told[:120]!r}")
        if str(directory) in mounts:
            found.append(f"mount seen by process {process.name}")
    return found


def main() -> None:
    given = options(__doc__ or "")
    program = harbor()
    with workspace() as directory:
        facts = machine(directory)
        speed, costs = against_harbor(given, directory)
        sound, counts = many(given, directory)
    programs = versions("docker") | {
        "harbor": first_line(str(program), "--version"),
        "podman": first_line("podman", "--version"),
        "docker": first_line("dockerd", "--version"),
        "bubblewrap": first_line("bwrap", "--version"),
    }
    publish("rollouts", given, [*speed, *sound], {**costs, **counts}, method=METHOD, facts=facts, programs=programs)


if __name__ == "__main__":
    main()
