"""No verdict, advice or exit code depends on what a message says: all of them stay if each message is its length."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BLANKING = '''
import ast, importlib.abc, importlib.machinery, re, sys

PACKAGES = ("verdicts", "stats", "results", "cli", "engine", "errors", "text", "api")
WORDS = re.compile("[A-Za-z]{2,}")


def is_message(text, least):
    """Whether people read it: several words in one line. Names, keys, patterns and files are not touched."""
    return len(WORDS.findall(text)) >= least and " " in text and "\\n" not in text


class Blank(ast.NodeTransformer):
    """Replaces each message by its length; docstrings and the values of `Literal` stay."""

    def __init__(self, names):
        self.names = names
        self.count = 0

    def visit_JoinedStr(self, node):
        written = " ".join(part.value for part in node.values if isinstance(part, ast.Constant))
        self.generic_visit(node)
        if not is_message(written, 2):
            return node
        self.count += 1
        length = ast.Call(ast.Name("len", ast.Load()), [node], [])
        return ast.copy_location(ast.Call(ast.Name("str", ast.Load()), [length], []), node)

    def visit_FormattedValue(self, node):
        node.value = self.visit(node.value)
        return node

    def visit_Constant(self, node):
        if isinstance(node.value, str) and node.value not in self.names and is_message(node.value, 4):
            self.count += 1
            return ast.copy_location(ast.Constant(str(len(node.value))), node)
        return node

    def visit_Call(self, node):
        pattern = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        return node if pattern else self.generic_visit(node)

    def visit_Expr(self, node):
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Subscript(self, node):
        return node if isinstance(node.value, ast.Name) and node.value.id == "Literal" else self.generic_visit(node)


def literals(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
        if isinstance(node, ast.match_case):
            yield from (each.value for each in ast.walk(node.pattern) if isinstance(each, ast.Constant))


class Loader(importlib.machinery.SourceFileLoader):
    replaced = 0

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = ast.parse(data)
        blank = Blank(set(literals(tree)))
        tree = ast.fix_missing_locations(blank.visit(tree))
        Loader.replaced += blank.count
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        parts = name.split(".")
        if parts[0] != "bakeoff" or len(parts) < 2 or parts[1] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            spec.loader = Loader(name, spec.origin)
        return spec


if sys.argv[1] == "lengths":
    sys.meta_path.insert(0, Finder())
'''
ASKING = """
import json, sys
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from bakeoff.cli import main
from bakeoff.errors import BakeoffError
from bakeoff.results.sources import open_results
from bakeoff.verdicts.answer import answer
from bakeoff.verdicts.question import Compare

told, root = {}, Path("bakeoff-runs")
for name, flags in json.loads(sys.argv[2]).items():
    runner = CliRunner().invoke(main, flags)
    if runner.exception is not None and not isinstance(runner.exception, SystemExit):
        raise runner.exception
    told[name] = {"exit code": runner.exit_code, "output": runner.output}
for source, fields in json.loads(sys.argv[3]):
    try:
        with closing(open_results([source], root)) as results:
            verdict = answer(results, Compare.ask(**fields))
    except BakeoffError as error:
        told[f"{source} {fields}"] = {"exit code": error.exit_code}
        continue
    advice = verdict.advice
    told[f"{source} {fields}"] = {
        "exit code": verdict.exit_code,
        "verdicts": [[each.metric, each.candidate, each.verdict, each.reason, each.p] for each in verdict.comparisons],
        "others": [[each.other and each.other.decided, each.these_seeds and each.these_seeds.decided] for each in verdict.comparisons],
        "advice": advice and [advice.kind, advice.comparison.candidate, advice.number, advice.of, advice.target],
        "warnings": len(verdict.warnings),
        "remarks": sorted(verdict.remarks),
    }
told["replaced"] = getattr(globals().get("Loader"), "replaced", 0)
print(json.dumps(told))
"""

WORK = """
def play(ctx, lift=0.0, broken=False):
    if broken:
        raise ValueError("no")
    return {"score": lift + float(ctx.rng("noise", own=True).normal())}
"""
FILE = """
name = "{name}"
workload = "python"
jobs = 1
order_seed = 1
params = {{ function = "work:play" }}
[[arms]]
name = "old"
[[arms]]
name = "new"
params = {{ {params} }}
[analysis]
metric = "score"
{rest}
"""


def tables(place: Path) -> None:
    """Tables that get different verdicts, reasons and advice."""
    rng = np.random.default_rng(1)

    def write(name: str, header: str, rows: list[str]) -> None:
        (place / name).write_text("\n".join([header, *rows]) + "\n")

    def values(arms: dict[str, float], seeds: int, noise: float = 1.0) -> list[str]:
        return [
            f"{arm},{seed},{lift + noise * rng.normal():.6f}" for arm, lift in arms.items() for seed in range(seeds)
        ]

    write("better.csv", "arm,seed,score", values({"a": 0.0, "b": 3.0}, 10))
    write("open.csv", "arm,seed,score", values({"a": 0.0, "b": 0.3, "c": -0.2}, 10))
    write("few.csv", "arm,seed,score", values({"a": 0.0, "b": 3.0}, 2))
    write(
        "three.csv",
        "arm,seed,score",
        [f"{arm},{seed},{1.1 * seed + (arm == 'b')}" for arm in "ab" for seed in range(3)],
    )
    write("missing.csv", "arm,seed,score", values({"a": 0.0, "b": 3.0}, 8)[:-3])
    write(
        "constant.csv",
        "arm,seed,score",
        [f"{arm},{seed},{0.5 if arm == 'a' else 0.7}" for arm in "ab" for seed in range(5)],
    )
    write("same.csv", "arm,seed,score", [f"{arm},{seed},{seed}.5" for arm in "ab" for seed in range(9)])
    grid = [
        f"{arm},t{task},{seed},{lift + task + 0.1 * rng.normal():.6f}"
        for arm, lift in (("a", 0.0), ("b", 1.0), ("c", 0.0)) for task in range(2) for seed in range(6)
    ]  # fmt: skip
    write("grid.csv", "arm,task,seed,score", grid)
    two = [
        f"{arm},t{task},{seed},{lift + 0.05 * task + 0.3 * rng.normal():.6f}"
        for arm, lift in (("a", 0.0), ("b", 1.0)) for task in range(12) for seed in range(2)
    ]  # fmt: skip
    write("two_seeds.csv", "arm,task,seed,score", two)
    repos = rng.normal(size=8)
    write("groups.csv", "arm,task,repo,score", [
        f"{arm},t{task},r{task // 4},{(arm == 'b') * (0.4 + repos[task // 4]) + 0.05 * rng.normal():.6f}"
        for arm in "ab" for task in range(32)
    ])  # fmt: skip
    write("latency.csv", "arm,seed,latency", values({"a": 0.0, "b": 3.0}, 10))


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    *((f"{name}.csv", {}) for name in ("better", "open", "few", "three", "missing", "constant", "same", "groups", "latency")),
    ("latency.csv", {"direction": "minimize"}),
    ("open.csv", {"margin": 0.5}),
    ("better.csv", {"metric": "nothing"}),
    ("grid.csv", {"seeds": "nested"}),
    ("grid.csv", {"seeds": "nested", "tasks": "fixed"}),
    ("two_seeds.csv", {"seeds": "crossed"}),
    ("grown", {}),
    ("early", {}),
]  # fmt: skip
COMMANDS = {
    "grown": ["run", "grown.toml", "--until-decided", "--max-seeds", "24", "--block", "12"],
    "stopped": ["run", "early.toml", "--until-decided", "--max-seeds", "24", "--fail-fast"],
    "gate": ["gate", "better.csv", "--max-regression", "score=0.1"],
    "broken gate": ["gate", "better.csv", "--control", "b", "--max-regression", "score=0.1"],
    "open gate": ["gate", "open.csv", "--must-improve", "score"],
    "rank": ["rank", "grid.csv", "--resamples", "200"],
    "calibrate": ["calibrate", "better.csv", "--replicates", "100"],
    "power": ["power", "--sd", "1", "--effect", "0.5"],
    "variance": ["variance", "better.csv"],
}


def asked(place: Path, how: str) -> dict[str, Any]:
    """What everything says in a process of its own, with messages as they are or with their lengths."""
    place.mkdir()
    tables(place)
    (place / "work.py").write_text(WORK)
    (place / "grown.toml").write_text(FILE.format(name="grown", params="lift = 4.0", rest=""))
    (place / "early.toml").write_text(FILE.format(name="early", params="broken = true", rest="failure_score = -9.0"))
    arguments = [how, json.dumps(COMMANDS), json.dumps(QUESTIONS)]
    done = subprocess.run(
        [sys.executable, "-c", BLANKING + ASKING, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
def test_verdicts_advice_and_exit_codes_do_not_depend_on_what_messages_say(tmp_path: Path) -> None:
    plain, lengths = asked(tmp_path / "plain", "words"), asked(tmp_path / "lengths", "lengths")
    assert lengths.pop("replaced") > 1000 and plain.pop("replaced") == 0
    for name in COMMANDS:
        assert plain[name].pop("output") != lengths[name].pop("output"), f"{name}: words are gone"
    assert lengths == plain
    advice = {each["advice"][0] for each in plain.values() if each.get("advice")}
    assert len(advice) >= 5, f"a spread of cases: {advice}"
    assert {each["exit code"] for each in plain.values()} >= {0, 1, 2, 3}
