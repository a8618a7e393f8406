"""Compares the page with the expected one, section by section, and parses its examples with a copy of the parser."""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def rows(section: str) -> list[list[str]]:
    """The table's cells, however wide its columns are written; the line below the header does not count."""
    lines = [line for line in section.splitlines() if line.lstrip().startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    return [row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


def plain(cell: str) -> str:
    """Off and a dash are the same with and without code marks."""
    return cell.replace("`", "") if cell.replace("`", "") in ("off", "—", "-", "–") else cell


def example(section: str) -> list[str]:
    found = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    return [line for block in found for line in block.splitlines() if line.strip()]


def parses(line: str, command: str) -> bool:
    try:
        words = shlex.split(line)
        if words[:2] != ["beacon", command]:
            return False
        parser().parse_args(words[1:])
    except (SystemExit, ValueError):
        return False
    return True


def parser() -> argparse.ArgumentParser:
    """As in beacon.py when the task was given out: the agent may have changed that one."""
    top = argparse.ArgumentParser(prog="beacon")
    commands = top.add_subparsers(required=True)
    probe, watch, export = (commands.add_parser(name) for name in ("probe", "watch", "export"))
    probe.add_argument("host")
    probe.add_argument("-n", "--count", type=int)
    probe.add_argument("-t", "--timeout", type=float)
    probe.add_argument("--quiet", action="store_true")
    watch.add_argument("hosts", nargs="+")
    watch.add_argument("-i", "--interval", type=float)
    watch.add_argument("--alert")
    watch.add_argument("--jitter", type=float)
    export.add_argument("-f", "--format", choices=["csv", "json"])
    export.add_argument("-o", "--output")
    export.add_argument("--since")
    return top


def main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8") if Path(sys.argv[1]).is_file() else ""
    found, wanted = sections(text), sections(EXPECTED)
    commands = [name for name in wanted if name]
    checks = {"the sections are the commands, in order": [name for name in found if name] == commands}
    for name in commands:
        section = found.get(name, "")
        sentence = wanted[name].strip().splitlines()[0]
        told = sentence in [line.strip() for line in section.splitlines()]
        table = [[plain(cell) for cell in row] for row in rows(section)]
        checks[f"{name}: sentence and table"] = told and table == [
            [plain(cell) for cell in row] for row in rows(wanted[name])
        ]
        lines = example(section)
        checks[f"{name}: example"] = bool(lines) and all(parses(line, name.split()[1]) for line in lines)
    for name, passed in checks.items():
        print(f"{'ok  ' if passed else 'FAIL'} {name}", file=sys.stderr)
    kept = found[""].strip() == wanted[""].strip()
    print(f"{'ok  ' if kept else 'FAIL'} the text at the top is kept", file=sys.stderr)
    print(json.dumps({"reward": round(sum(checks.values()) / len(checks), 6) if kept else 0.0}))


main()
