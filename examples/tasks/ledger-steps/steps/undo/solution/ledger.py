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
    entries = load()
    for entry in entries:
        if entry.get("undone"):
            entry["final"] = True  # what was taken back before a new entry cannot be brought back
    save([*entries, {"name": name, "cents": cents}])
    return 0


def undo() -> int:
    entries = load()
    standing = [entry for entry in entries if not entry.get("undone")]
    if not standing:
        return 1
    standing[-1]["undone"] = True
    save(entries)
    print("took back", standing[-1]["name"], shown(standing[-1]["cents"]))
    return 0


def redo() -> int:
    """Entries are taken back from the newest on, so the one that was taken back last is the oldest."""
    entries = load()
    undone = [entry for entry in entries if entry.get("undone") and not entry.get("final")]
    if not undone:
        return 1
    del undone[0]["undone"]
    save(entries)
    print("brought back", undone[0]["name"], shown(undone[0]["cents"]))
    return 0


def balance(name: str | None = None) -> int:
    sums: dict[str, int] = {}
    for entry in (one for one in load() if not one.get("undone")):
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
        case ["undo"]:
            return undo()
        case ["redo"]:
            return redo()
        case _:
            return refuse("usage: ledger.py add NAME AMOUNT | balance [NAME] | undo | redo")


sys.exit(main())
