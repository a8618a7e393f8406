"""Boxes opened in a worker that runs many runs: what is kept between runs is no leftover of one."""

from __future__ import annotations

import os
import subprocess
import sys

from bakeoff.sandbox import leftovers
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.sandbox.spec import BoxSpec

WORKER = """
from bakeoff.engine import processes
from bakeoff.engine.node.world import World
from bakeoff.sandbox.face import choose
from bakeoff.sandbox.spec import BoxSpec

world = World()
for _ in range(2):
    with choose("bubblewrap").open(BoxSpec()) as box:
        assert box.run(["/bin/true"]).ok
        assert not processes.SPARED, "an open box would be a leftover"
    assert world.restore()
    assert processes.SPARED == set(processes.children())
forgotten = choose("bubblewrap").open(BoxSpec())
assert not world.restore(), "a box that was not closed is ended with its launcher"
"""


def test_a_run_that_closes_its_boxes_leaves_its_worker_clean() -> None:
    subprocess.run([sys.executable, "-c", WORKER], check=True)
    assert leftovers.remove().boxes == 1


def test_a_forked_process_opens_boxes_of_its_own(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        child = os.fork()
        if child == 0:
            with sandbox.open(BoxSpec()) as own:
                code = own.run(["/bin/sh", "-c", "exit 7"]).code
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert box.run(["/bin/true"]).ok
