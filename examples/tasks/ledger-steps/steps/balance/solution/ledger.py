"""Amounts of money for people, in a file."""

import json
import os
import re
import sys
from pathlib import Path

FILE = Path(os.environ["LEDGER"])


def load() -> list[dict]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def save(entries: list[dict]) -> None:
    FILE.write_text(json.dumps(entries), encoding="utf-8")


def parsed(text: str) -> int:
    """Cents."""
    match = re.fullmatch(r"([+-]?)(\d+)(?:\.(\d{1,2}))?", text)
    if match is None:
        sys.exit(refuse(f"{text!r} is no amount"))
    cents = int(match[2]) * 100 + int((match[3] or "").ljust(2, "0"))
    return -cents if match[1] == "-" else cents


def refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def shown(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def add(name: str, amount: str) -> int:
    cents = parsed(amount)
    save([*load(), {"name": name, "cents": cents}])
    return 0


def balance(name: str | None = None) -> int:
    sums: dict[str, int] = {}
    for entry in load():
        sums[entry["name"]] = sums.get(entry["name"], 0) + entry["cents"]
    if name is not None:
        print(shown(sums.get(name, 0)))
    else:
        for one, cents in sorted(sums.items()):
            print(one, shown(cents))
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["add", name, amount]:
            return add(name, amount)
        case ["balance"]:
            return balance()
        case ["balance", name]:
            return balance(name)
        case _:
            return refuse("usage: ledger.py add NAME AMOUNT | balance [NAME]")


sys.exit(main())
