"""What the checks of both steps share: a ledger in a directory of its own, and a count of what holds."""

import json
import os
import subprocess
from pathlib import Path

WORK = [os.environ["BAKEOFF_WORK"], "run", "--timeout", "20"] if "BAKEOFF_WORK" in os.environ else None
"""Runs a program in the agent's sandbox. Without it (in Harbor) the agent's files are here."""


def run(*command, ledger=""):
    if WORK:
        argv, env = [*WORK, "--env", f"LEDGER={ledger}", "--", *command], None
    else:
        argv, env = list(command), {**os.environ, "LEDGER": ledger}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout


class Ledger:
    def __init__(self):
        self.file = f"{run('mktemp', '-d')[1].strip()}/entries.json"

    def __call__(self, *args):
        return run("python3", "-BS", "/app/ledger.py", *args, ledger=self.file)

    def entries(self):
        code, text = run("cat", self.file)
        return json.loads(text) if code == 0 else []


def score(*checks):
    """Leave the part of `checks` that hold as the reward; a check that raises does not hold."""
    held = 0
    for check in checks:
        try:
            good = bool(check(Ledger()))
        except Exception as error:
            print(f"{check.__name__}: {error!r}")
            good = False
        print(f"{'ok  ' if good else 'FAIL'} {check.__name__}")
        held += good
    Path("/logs/verifier/reward.txt").write_text(f"{held / len(checks)}\n")
