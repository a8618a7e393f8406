"""Compares usage.json with what the given readings come to, and runs usage.py on other readings."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_readings import make

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
        return float(same(json.loads(Path("/app/usage.json").read_text(encoding="utf-8")), expected))
    except (OSError, ValueError):
        return 0.0


def program(seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        expected = make(seed, Path(folder))
        try:
            done = subprocess.run(
                [sys.executable, "/app/usage.py", folder], capture_output=True, timeout=10, check=True
            )
            return same(json.loads(done.stdout), expected)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"seed {seed}: {error}", file=sys.stderr)
            return False


def main() -> None:
    rewards = {"table": table(), "program": sum(map(program, OTHERS)) / len(OTHERS)}
    print(json.dumps({"reward": (rewards["table"] + rewards["program"]) / 2, **rewards}))


main()
