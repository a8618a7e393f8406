"""What the checks of both steps share: a ledger in a directory of its own, and a count of what holds."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


class Ledger:
    def __init__(self):
        self.file = Path(tempfile.mkdtemp()) / "entries.json"

    def __call__(self, *args):
        env = {**os.environ, "LEDGER": str(self.file)}
        command = [sys.executable, "-BS", "/app/ledger.py", *args]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20)
        return done.returncode, done.stdout

    def entries(self):
        return json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else []


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
