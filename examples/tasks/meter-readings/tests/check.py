"""Compares usage.json with what the given readings come to, and runs usage.py on other readings."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_readings import make

WORK = os.environ.get("BAKEOFF_WORK")
"""A program that calls the agent's sandbox. Without it (in Harbor) the agent's files are here."""

GIVEN = 1
OTHERS = (2, 3, 4, 5)


def same(found: object, expected: dict[str, dict[str, float]]) -> bool:
    if not isinstance(found, dict) or found.keys() != expected.keys():
        return False
    for meter, months in expected.items():
        row = found[meter]
        if not isinstance(row, dict) or row.keys() != months.keys():
            return False
        if not all(isinstance(row[m], int | float) and abs(row[m] - value) < 0.0015 for m, value in months.items()):
            return False
    return True


def table() -> float:
    with tempfile.TemporaryDirectory() as folder:
        expected = make(GIVEN, Path(folder))
    try:
        path = "/app/usage.json"
        text = subprocess.check_output([WORK, "read", path]) if WORK else Path(path).read_bytes()
        return float(same(json.loads(text), expected))
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0.0


def program(seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        expected = make(seed, Path(folder))
        for file in Path(folder).iterdir() if WORK else ():
            subprocess.run([WORK, "write", str(file)], input=file.read_bytes(), check=True)
        before = [WORK, "run", "--timeout", "10", "--"] if WORK else []
        try:
            done = subprocess.run(
                [*before, "python3", "/app/usage.py", folder],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
                check=True,
            )
            return same(json.loads(done.stdout), expected)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"seed {seed}: {error}", file=sys.stderr)
            return False


def main() -> None:
    rewards = {"table": table(), "program": sum(map(program, OTHERS)) / len(OTHERS)}
    print(json.dumps({"reward": (rewards["table"] + rewards["program"]) / 2, **rewards}))


main()
