"""Ask about random tables in every way that there is: `python benchmarks/agreement.py [--tables N] [--commands N]`.

Text, JSON, Markdown, CSV, HTML, Python, `gate`, `rank` and `litmus` must agree with `compare`, and so must the command line
on some of the tables. Prints how many do, and exits with 1 where one does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "simulations"))

from agreement import disagreements, on_the_command_line
from random_tables import random_table


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--commands", type=int, default=50)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(options.tables):
        table = random_table(number)
        asked = {"in process": disagreements(table)}
        if number < options.commands:
            with tempfile.TemporaryDirectory() as directory:
                asked["command line"] = on_the_command_line(table, Path(directory) / "runs.csv")
        for way, found in asked.items():
            problems = None if found is None else list(found)
            counts[f"{way}: {'refused' if problems is None else 'disagree' if problems else 'agree'}"] += 1
            for problem in problems or ():
                print(f"table {number} ({table.design}): {problem}", file=sys.stderr, flush=True)
    print(json.dumps(dict(counts), indent=2))
    return 1 if any("disagree" in name for name in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
