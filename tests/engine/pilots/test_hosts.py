"""What engines start on nodes, without the engines: the script of a Slurm job, and the process that hosts a pilot on Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from io import FileIO
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import pytest

from bakeoff.engine.executors.ray.host import Envelope, Host, HostLink
from bakeoff.engine.executors.slurm import SlurmLauncher, SlurmSettings
from bakeoff.engine.pilots.attachments import Attachments
from bakeoff.records.claims import new_token
from bakeoff.records.layout import EditionPaths
from bakeoff.spec.experiment import Resources
from support.processes import LONG, eventually


@pytest.mark.parametrize(
    ("limit", "given", "left"),
    [
        (None, {}, None),
        ("90s", {}, 90),
        ("90s", {"SLURM_JOB_START_TIME": "5000", "SLURM_JOB_END_TIME": "5200"}, 200),
    ],
)
def test_an_allocation_ends_by_the_clock_of_the_node(
    limit: str | None, given: dict[str, str], left: int | None, tmp_path: Path
) -> None:
    """slurmctld says when it begins and ends by its own clock, which may be hours off."""
    settings = SlurmSettings.model_validate({"kind": "slurm", "time": limit})
    script = SlurmLauncher(settings, Resources(), tmp_path, "name").script(["1-1"])
    *lines, last = script.splitlines()
    assert last.startswith("exec ")
    shell = "\n".join([*lines, "echo $BAKEOFF_ALLOCATION_ENDS"])
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | given
    before = time.time()
    ends = subprocess.run(["bash", "-c", shell], env=env, text=True, capture_output=True, check=True).stdout.strip()
    if left is None:
        assert ends == ""
    else:
        assert before - 1 <= float(ends) - left <= time.time() + 1, "to the second"


@pytest.mark.slow
def test_the_host_of_a_pilot_that_cannot_start_says_why_and_makes_room() -> None:
    """An actor that stayed would keep the CPUs that the next pilot needs."""
    code = """
import time
from bakeoff.engine.executors.ray.host import Host, decode_envelopes
from bakeoff.engine.pilots import messages
host = Host("1-1")
host.begin(b"this is not a setup", {})
[(number, envelope)] = decode_envelopes(host.poll("scheduler", 0, [], 30.0))
bye = messages.decode_upward(envelope.content)
print(type(bye).__name__, bye.expected, bye.why, flush=True)
host.poll("scheduler", number, [], 0.1)
time.sleep(600)
print("it is still here")
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=LONG)
    assert done.returncode == 0 and "still here" not in done.stdout, done.stderr
    assert done.stdout.startswith("Bye False it ended with exit code 1 before it said anything"), done.stdout
    assert "DecodeError" in done.stdout or "ValidationError" in done.stdout, "the end of its log"


def test_a_host_without_room_for_a_thread_takes_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("1-1")
    listener = Listener(str(tmp_path / "socket"), "AF_UNIX", authkey=b"key")
    threading.Thread(target=host._accept, args=(listener,), daemon=True).start()
    start, refused = threading.Thread.start, []

    def refuse_once(thread: threading.Thread) -> None:
        if not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    link = HostLink(str(tmp_path / "socket"), "key", tmp_path)
    with pytest.raises(ConnectionError):
        link.exchange([])
    assert refused and link.exchange([]) == []
    listener.close()
    host.leave()


class Answers:
    """Stands for a host: what the scheduler asks of it, answered at once."""

    def __init__(self, archive: bytes) -> None:
        self._archive = archive
        self.refusals: list[str] = []
        self.read = self.taken = self

    def remote(self, archive: str, what: int | str) -> bytes:
        if isinstance(what, str):
            self.refusals.append(what)
            return b""
        return self._archive[what : what + 1024]


@pytest.mark.parametrize("fault", ["a full disk", "a torn archive"])
def test_a_pilot_is_told_that_its_archive_did_not_arrive(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the claim in its signs of life until it is told, so the claim would never expire."""
    pytest.importorskip("ray")
    from bakeoff.engine.executors.ray import transport as module

    class Transport(module.RayTransport):
        def _result(self, reference: Any) -> Any:
            return reference

    transport = Transport(EditionPaths(tmp_path), Attachments(tmp_path, []))
    if fault == "a full disk":
        monkeypatch.setattr(module, "TemporaryFile", lambda dir: FileIO("/dev/full", "r+"))
    actor = Answers(b"not a tar" * 1000)
    transport.actors["1-1"] = actor
    transport._transfers.put(("1-1", Envelope("deliver", token=new_token(1, 0, 1), archive="archive")))
    [refusal] = eventually(lambda: actor.refusals)
    assert ("No space left" if fault == "a full disk" else "torn") in refusal
    transport.pause()
