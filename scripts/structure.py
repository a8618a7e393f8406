"""Print how the source is structured: for each package of src/bakeoff, and for the path of one verdict.

    scripts/structure.py            two tables
    scripts/structure.py --json     the same as one JSON object

A line of code is a line that is not blank, a comment or a docstring. A private function has one caller if its name
occurs twice in its file: where it is defined, and once more. Core is everything except `workloads` and `sandbox`.

The path of one verdict: `run`, `compare` and `report` of examples/quickstart.toml run under a profiler that notes
every function of bakeoff called in that process. Worker processes, lambdas, comprehensions and module bodies are
not counted.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "bakeoff"
QUICKSTART = ROOT / "examples" / "quickstart.toml"
VERBS = (["run", str(QUICKSTART)], ["compare", "quickstart"], ["report", "quickstart"])
TRACE_VARIABLE = "BAKEOFF_STRUCTURE_TRACE"
"""Set in the traced processes: the file to write the called functions to."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Figures:
    """Counts for one package or several."""

    files: int = 0
    lines: int = 0
    code: int = 0
    functions: int = 0
    private: int = 0
    private_with_one_caller: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))

    @property
    def functions_per_1000_lines(self) -> float:
        return round(1000 * self.functions / self.lines, 1) if self.lines else 0.0

    @property
    def one_caller_percent(self) -> float:
        return round(100 * self.private_with_one_caller / self.private, 1) if self.private else 0.0

    def as_json(self) -> dict[str, float]:
        return {
            **asdict(self),
            "functions_per_1000_lines": self.functions_per_1000_lines,
            "one_caller_percent": self.one_caller_percent,
        }


def _values(figures: Figures) -> tuple[int, ...]:
    return tuple(asdict(figures).values())


def measure(text: str) -> Figures:
    """The figures of one file's text. Raises SyntaxError if it is not Python."""
    tree = ast.parse(text)
    docstrings: set[int] = set()
    functions = private = one_caller = 0
    for node in ast.walk(tree):
        # Includes strings below attributes, which Sphinx and pydantic read as documentation.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions += 1
            if node.name.startswith("_") and not node.name.startswith("__"):
                private += 1
                one_caller += text.count(node.name) == 2
    occupied: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            occupied.update(range(token.start[0], token.end[0] + 1))
    return Figures(1, text.count("\n"), len(occupied - docstrings), functions, private, one_caller)


def measure_packages(source: Path) -> dict[str, Figures]:
    """Figures by package directly below `source`; modules beside them are together in `(modules)`."""
    packages: dict[str, Figures] = {}
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).parts
        package = parts[0] if len(parts) > 1 else "(modules)"
        packages[package] = packages.get(package, Figures()) + measure(file.read_text(encoding="utf-8"))
    return packages


def total(figures: Iterable[Figures]) -> Figures:
    return sum(figures, Figures())


def trace(arguments: list[str], output: Path) -> None:
    """Run the command line with `arguments` in this process; write the (file, function) pairs it called to `output`."""
    import bakeoff
    from bakeoff.cli import main

    base = str(Path(bakeoff.__file__).parent) + os.sep
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        # CO_OPTIMIZED is set for functions and not for module and class bodies; "<lambda>" and "<listcomp>" are skipped.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and "<" not in code.co_name
        if event == "call" and is_function and code.co_filename.startswith(base):
            called.add((code.co_filename[len(base) :], code.co_name))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        main(arguments, prog_name="bakeoff")
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    output.write_text(json.dumps(sorted(called)), encoding="utf-8")


def path_of_a_verdict() -> dict[str, dict[str, int]]:
    """Count the files and functions that each command of the quickstart passes through, and all of them together.

    Raises CalledProcessError if a command ends with a traceback.
    """
    paths: dict[str, set[tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for arguments in VERBS:
            output = Path(directory, "trace.json")
            variables = {TRACE_VARIABLE: str(output), "BAKEOFF_ROOT": str(Path(directory, "runs"))}
            command = [sys.executable, __file__, *arguments]
            subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=subprocess.DEVNULL)
            pairs = json.loads(output.read_text(encoding="utf-8"))
            paths[arguments[0]] = {(file, function) for file, function in pairs}
    paths["one verdict"] = set().union(*paths.values())
    return {name: {"files": len({file for file, _ in pairs}), "functions": len(pairs)} for name, pairs in paths.items()}


def print_tables(packages: dict[str, Figures], paths: dict[str, dict[str, int]]) -> None:
    print(f"{'package':<14}{'files':>7}{'lines':>8}{'code':>8}{'functions/1k':>14}{'private, one caller':>21}")
    for name, figures in packages.items():
        print(
            f"{name:<14}{figures.files:>7}{figures.lines:>8}{figures.code:>8}"
            f"{figures.functions_per_1000_lines:>14.0f}{figures.one_caller_percent:>19.0f} %"
        )
    print(f"\n{'passes through':<14}{'files':>7}{'functions':>11}")
    for name, counts in paths.items():
        print(f"{name:<14}{counts['files']:>7}{counts['functions']:>11}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how the source is structured.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    packages = measure_packages(SOURCE)
    core = total(figures for name, figures in packages.items() if name not in ("workloads", "sandbox"))
    packages |= {"core": core, "total": total(packages.values())}
    paths = path_of_a_verdict()
    if options.json:
        print(json.dumps({"packages": {name: f.as_json() for name, f in packages.items()}, "paths": paths}, indent=2))
    else:
        print_tables(packages, paths)


if __name__ == "__main__":
    if target := os.environ.get(TRACE_VARIABLE):
        trace(sys.argv[1:], Path(target))
    else:
        main()
