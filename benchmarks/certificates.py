"""Verify certificates of random tables, and of tampered ones: `python benchmarks/certificates.py [--tables N] [--tampered N]`.

Every design that `compare` knows is among the tables. Prints how many certificates `scripts/verify.py` agrees with, how
many it cannot verify, and how many false ones it accepts; exits with 1 where a decision differs or a false one is accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "simulations"))

from certified import certify, outcome, tampered
from random_tables import random_table

WORDS = {0: "agree", 1: "differ", 2: "unreadable", 3: "not verified"}


def judge(number: int, tamperings: int) -> tuple[str, Counter[str], list[str]]:
    """Verify the certificate of one table, and tampered versions of it."""
    table = random_table(number)
    facts = certify(table)
    false: Counter[str] = Counter()
    if facts is None:
        return "refused by compare", false, []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "v.json"
        code, text = outcome(facts, path)
        problems = [f"table {number} ({table.design}): {text}"] if code in (1, 2) else []
        for attempt in range(tamperings if code == 0 else 0):
            wrong = tampered(facts, 7919 * number + attempt)
            if wrong is None:
                continue
            code_of_false, text = outcome(wrong, path)
            false[WORDS[code_of_false]] += 1
            if code_of_false == 0:
                problems.append(f"table {number}, tampering {7919 * number + attempt}, was accepted: {text}")
    return WORDS[code], false, problems


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--tampered", type=int, default=1000, help="at least so many false certificates")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.tables)
    # Half of all tamperings leave a certificate true, or are of tables that are refused.
    each = [
        2 if number % max(1, options.tables * 8 // (10 * max(1, options.tampered))) == 0 else 0 for number in numbers
    ]
    started, verdicts, false = time.perf_counter(), Counter[str](), Counter[str]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for verdict, accepted, problems in pool.map(judge, numbers, each, chunksize=20):
            verdicts[verdict] += 1
            if sum(verdicts.values()) % 100 == 0:
                print(f"{sum(verdicts.values())} tables, {sum(false.values())} false ones", file=sys.stderr, flush=True)
            false += accepted
            for problem in problems:
                print(problem, file=sys.stderr, flush=True)
    facts = {"tables": dict(verdicts), "tampered": dict(false), "seconds": round(time.perf_counter() - started)}
    print(json.dumps(facts, indent=2))
    return 1 if verdicts["differ"] + verdicts["unreadable"] + false["agree"] else 0


if __name__ == "__main__":
    sys.exit(main())
