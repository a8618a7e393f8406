"""Whatever a command in a box tries, it stays in the box, and the result says what stopped it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff

ATTACKS = Path(__file__).with_name("attacks.py")
SOURCES = str(Path(bakeoff.__file__).parent.parent)
AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
Outcomes = dict[str, dict[str, Any]]

pytestmark = [pytest.mark.apt, pytest.mark.slow]


def python_for_anybody() -> str:
    """Ours may lie in a home directory that others cannot enter."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        program = "import subprocess, sys; from typing import Self; subprocess.run([sys.executable, '-V'], check=True)"
        started = subprocess.run([*AS_NOBODY, candidate, "-c", program], capture_output=True, cwd="/")
        if started.returncode == 0:
            return candidate
    pytest.skip("no Python 3.11 that every user may start")


@pytest.fixture(scope="module", params=["root", "root as nobody inside", "nobody"])
def outcomes(request: pytest.FixtureRequest, own_cache: Path) -> Iterator[Outcomes]:
    """How every attack ended, made by root, by root for a box whose user is not root, and by an ordinary user."""
    words = []
    python = sys.executable
    if request.param == "nobody":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        python = python_for_anybody()
        words = AS_NOBODY
    elif os.geteuid() != 0 and request.param == "root":
        request.applymarker(pytest.mark.skip("not root"))
    with tempfile.TemporaryDirectory(prefix="bakeoff-attack-") as scratch, socket.socket() as tcp:
        if request.param == "nobody":
            shutil.chown(scratch, "nobody")
        secret = Path(scratch, "secret.txt")
        secret.write_text("the key")
        secret.chmod(0o644)
        tcp.bind(("0.0.0.0", 0))
        tcp.listen()
        stamp = f"98765.{os.getpid()}{int(time.time() * 1000) % 100000}"
        targets = {
            "secret": str(secret),
            "project": SOURCES,
            "port": tcp.getsockname()[1],
            "host": socket.gethostname() or "localhost",
            "abstract": f"bakeoff-attack-{os.getpid()}",
            "path": f"{scratch}/door",
            "scratch": scratch,
            "stamp": stamp,
        }
        if request.param == "root as nobody inside":
            targets["user"] = "nobody"
        with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as door:
            abstract.bind(f"\0{targets['abstract']}")
            abstract.listen()
            door.bind(targets["path"])
            door.listen()
            os.chmod(targets["path"], 0o777)
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": SOURCES,
                "BAKEOFF_CACHE": f"{scratch}/cache",
                "A_SECRET": "the key",
            }
            done = subprocess.run(
                [*words, python, "-P", str(ATTACKS), json.dumps(targets)],
                env=environment,
                capture_output=True,
                text=True,
                cwd="/",
            )
        assert done.returncode == 0, done.stderr
        results: Outcomes = json.loads(done.stdout)
        results["who"] = {"name": request.param}
        results["afterwards"] = {"running": running(stamp), "left": os.listdir(f"{scratch}/cache/boxes")}
        yield results


def running(words: str) -> list[str]:
    """Command lines on this machine that hold these words."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in text and "attacks.py" not in text:
            lines.append(text)
    return lines


def test_no_file_of_the_machine_and_nobodys_home_is_in_sight(outcomes: Outcomes) -> None:
    assert outcomes["read"]["stdout"] == ""


def test_no_server_outside_can_be_reached(outcomes: Outcomes) -> None:
    output = outcomes["connect"]["stdout"]
    assert "REACHED" not in output
    assert output.count("refused ") == 6
    assert "interfaces ['lo']" in output


def test_a_fork_bomb_stops_at_the_limit_and_is_on_record(outcomes: Outcomes) -> None:
    assert outcomes["forks"]["seconds"] < 15
    assert "still here" in outcomes["forks"]["stdout"]
    assert outcomes["forks"]["pids_refused"] > 0 or outcomes["who"]["name"] == "nobody", "only cgroups count refusals"


def test_taking_too_much_memory_is_ended_and_reported(outcomes: Outcomes) -> None:
    result = outcomes["memory"]
    assert result["memory_killed"]
    assert result["code"] == 137
    assert result["peak_memory_mb"] < 600
    assert int(outcomes["shared_memory"]["stdout"].split("WROTE")[1]) <= 64


def test_a_full_disk_is_only_the_boxs_and_is_reported(outcomes: Outcomes) -> None:
    result = outcomes["disk"]
    assert result["disk_full"]
    assert "No space left" in result["stdout"]
    assert 25 <= int(result["stdout"].split("WROTE")[1]) <= 34


def test_printing_without_end_does_not_fill_our_disk(outcomes: Outcomes) -> None:
    assert outcomes["flood"]["stdout_size"] < 40 << 20


def test_nothing_outlives_its_command(outcomes: Outcomes) -> None:
    assert outcomes["outlive"]["code"] == 0
    assert outcomes["afterwards"]["running"] == []


def test_a_command_that_ignores_signals_ends_at_its_timeout(outcomes: Outcomes) -> None:
    result = outcomes["stubborn"]
    assert result["timed_out"]
    assert result["code"] == 137
    assert 0.8 <= result["seconds"] < 15


def test_processes_outside_cannot_be_seen_signalled_or_traced(outcomes: Outcomes) -> None:
    lines = outcomes["processes"]["stdout"].splitlines()
    assert [line for line in lines if line.startswith("SEEN") and line != "SEEN 1"] == []
    assert int(lines[-1].removeprefix("processes ")) < 10
    assert outcomes["trace"]["stdout"] == ""


def test_nothing_can_be_mounted_unshared_or_set_in_the_kernel(outcomes: Outcomes) -> None:
    assert "DONE" not in outcomes["mounts"]["stdout"]


def test_keyrings_unnamespaced_sockets_and_other_doors_into_the_kernel_are_shut(outcomes: Outcomes) -> None:
    assert outcomes["kernel"]["stdout"] == "tried\n"


def test_the_machines_own_device_nodes_keep_their_owner_and_mode(outcomes: Outcomes) -> None:
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        facts = os.stat(f"/dev/{name}")
        assert (facts.st_mode & 0o777, facts.st_uid) == (0o666, 0)


def test_a_log_is_ours_and_no_program_whatever_was_done_to_it(outcomes: Outcomes) -> None:
    assert outcomes["log"]["log"] == outcomes["log"]["ours"]
    assert outcomes["log"]["stdout_size"] > 0


def test_only_harmless_devices_are_there(outcomes: Outcomes) -> None:
    devices = set(outcomes["mounts"]["stdout"].split())
    harmless = {"console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "tty", "urandom", "zero"}
    assert devices <= harmless | {"stderr", "stdin", "stdout"}


def test_leaving_a_chroot_leads_nowhere(outcomes: Outcomes) -> None:
    assert "SEEN" not in outcomes["chroot"]["stdout"]


def test_no_descriptor_of_ours_is_open_inside(outcomes: Outcomes) -> None:
    numbers = {line.split()[0] for line in outcomes["descriptors"]["stdout"].splitlines()}
    assert numbers <= {"0", "1", "2"}


def test_nothing_is_left_of_the_boxes(outcomes: Outcomes) -> None:
    assert [name for name in outcomes["afterwards"]["left"] if not name.endswith(".ext4")] == []
