"""Record what the examples produce: run ids, numbers, JSON keys and exit codes.

Refactoring must not change any of these. `test_golden.py` records them again and compares with the files in `fixtures/`.
After an intended change, write the fixtures anew and read the diff before committing it:

    python tests/golden/make.py                 # all cases
    python tests/golden/make.py quickstart      # one case
    python tests/golden/make.py --editions      # the zipped editions that an old version wrote; normally never

Sentences, notes and messages are not recorded, so that wording can change freely.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bakeoff.cli import main

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
EXAMPLES = HERE.parents[1] / "examples"

PLANS = (
    "quickstart.toml",
    "learners.toml",
    "market.toml",
    "market-llm.toml",
    "policies.toml",
    "until-decided.toml",
    "rollouts.toml",
    "smollm2.toml",
    "sweep/default.json",
    "sweep/default.toml",
    "sweep/smoke.json",
)

# Values under these keys depend on the machine, the clock or the version. Their names and types are still recorded.
VOLATILE = re.compile(
    r"(^|_)(at|s|dir|path|directory|database|edition|source|version|bakeoff|csv|parquet|command|host|files|output)$|^(order_seed|code)$"
)
VOLATILE_COLUMNS = re.compile(
    r"^(edition|error|started_at|ended_at|wall_s|run_dir|exp_dir|.*_path|wall_time_s|.*_time_unix_s|host|think_ms_.*)$"
)
WORD = re.compile(r"[A-Za-z0-9_+=.@^-]*")
LITMUS_RULES = """
name = "golden"
[evidence]
min_runs = 5
min_steps = 10
[[rules]]
metric = "reward"
summary = { type = "mean", window = "last 50%" }
min_lift = 0.01
verdict = "better"
[[rules]]
metric = "seconds"
direction = "minimize"
at_most = 40.0
"""


def bakeoff(*arguments: str | Path) -> Result:
    """Call the command line in this process. Raises what the command raised, unless it was an exit."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bakeoff")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def json_of(*arguments: str | Path) -> dict[str, Any]:
    """Call a verb with --json: its exit code, the types under each key, and the values that must not change.

    Every call is the first look at its results, so that no answer here depends on the ones before it.
    """
    for place in Path().rglob("experiment.db"):
        with closing(sqlite3.connect(place)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'looks'").fetchone():  # since version 4
                database.execute("DELETE FROM looks")
                database.commit()
    result = bakeoff(*arguments, "--json")
    if not result.stdout:
        raise AssertionError(f"{arguments} printed no JSON: {result.stderr}")
    tree = json.loads(result.stdout)
    return {"exit": result.exit_code, "keys": key_types(tree), "values": stable_values(tree)}


def key_types(tree: object) -> dict[str, str]:
    """`{"a": [{"b": 1}, {"b": null}]}` becomes `{"a[].b": "null|number"}`."""
    types: dict[str, set[str]] = {}

    def visit(node: object, path: str) -> None:
        if isinstance(node, dict) and node:
            for key, value in node.items():
                visit(value, f"{path}.{key}" if path else str(key))
        elif isinstance(node, list) and node:
            for value in node:
                visit(value, f"{path}[]")
        else:
            kinds = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
            types.setdefault(path, set()).add(kinds.get(type(node), "null"))

    visit(tree, "")
    return {path: "|".join(sorted(kinds)) for path, kinds in types.items()}


def stable_values(tree: object) -> dict[str, Any]:
    """Numbers, booleans and single words by path. Of a list longer than 30 only its length, first 5 and last 2 items."""
    values: dict[str, Any] = {}

    def visit(node: object, path: str) -> None:
        if VOLATILE.search(path.rpartition(".")[2]):
            return
        if isinstance(node, dict):
            for key, value in node.items():
                visit(value, f"{path}.{key}" if path else str(key))
        elif isinstance(node, list):
            values[f"{path}.length"] = len(node)
            for index, value in enumerate(node):
                if len(node) <= 30 or index < 5 or index >= len(node) - 2:
                    visit(value, f"{path}[{index}]")
        elif isinstance(node, bool):
            values[path] = node
        elif isinstance(node, int | float):
            values[path] = rounded(node)
        elif isinstance(node, str) and WORD.fullmatch(node):
            values[path] = node

    visit(tree, "")
    return values


def rounded(number: float) -> float:
    """Nine significant digits: more would differ between processors."""
    return float(f"{number:.9g}") if math.isfinite(number) else number


def plan_of(example: str, *options: str) -> dict[str, Any]:
    """Run ids of an example's plan, and the keys of `run --dry-run --json`."""
    result = bakeoff("run", EXAMPLES / example, "--dry-run", "--json", *options)
    plan = json.loads(result.stdout)
    ids = [run["run_id"] for run in plan["runs"]]
    return {
        "exit": result.exit_code,
        "count": len(ids),
        "first": ids[:5],
        "sha256": hashlib.sha256("\n".join(ids).encode()).hexdigest(),
        "arms": plan["arms"],
        "tasks": plan["tasks"],
        "keys": key_types(plan),
    }


def table_of(experiment: str, *options: str) -> dict[str, Any]:
    """Columns of `collect`, the first 8 rows in order of run id, and each numeric column's sum over all rows."""
    collected = json.loads(bakeoff("collect", experiment, "--json", *options).stdout)
    with open(collected["csv"], newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["run_id"])
    columns = collected["columns"]
    stable = [name for name in columns if not VOLATILE_COLUMNS.fullmatch(name)]
    sums = {}
    for name in stable:
        cells = [cell for row in rows if (cell := number_in(row[name])) is not None]
        if cells:
            sums[name] = {"count": len(cells), "sum": rounded(math.fsum(cells))}
    first = [{name: cell_value(row[name]) for name in stable} for row in rows[:8]]
    return {"columns": columns, "rows": len(rows), "first": first, "sums": sums}


def files_of(experiment: str) -> list[str]:
    """Names of the files in run directories. A series (metrics.jsonl) is a file only for runs that take a while."""
    paths = Path(experiment, "latest/runs").rglob("*")
    return sorted({path.name for path in paths if path.is_file()} - {"metrics.jsonl"})


def number_in(text: str) -> float | None:
    """The cell as a number, or None when it is empty, infinite or a word."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def cell_value(text: str) -> float | str:
    """The cell as a rounded number where it is one, else its text."""
    number = number_in(text)
    return text if number is None else rounded(number)


def quickstart() -> dict[str, Any]:
    bakeoff("run", EXAMPLES / "quickstart.toml")
    return {
        "table": table_of("quickstart"),
        "compare": json_of("compare", "quickstart"),
        "compare simultaneous": json_of("compare", "quickstart", "--simultaneous", "--relative-margin", "0.1"),
        "compare sample": json_of("compare", "quickstart", "--tasks", "sample"),
        "variance": json_of("variance", "quickstart"),
        "power": json_of("power", "quickstart", "--effect", "0.05"),
        "rank": json_of("rank", "quickstart", "--resamples", "200"),
        "summarize": json_of("summarize", "quickstart"),
        "status": json_of("status", "quickstart"),
        "show": json_of("show", "quickstart/bold__easy__s0"),
        "gate": json_of("gate", "quickstart", "--must-improve", "reward"),
        "run again": json_of("run", EXAMPLES / "quickstart.toml"),
        "ls": json_of("ls"),
    }


def learners() -> dict[str, Any]:
    bakeoff("run", EXAMPLES / "learners.toml")
    Path("rules.toml").write_text(LITMUS_RULES)
    arms = ("--baseline", "baseline", "--candidate", "tall")
    return {
        "table": table_of("learners"),
        "compare": json_of("compare", "learners"),
        "compare explore": json_of("compare", "learners", "--explore", "--metric", "reward", "--margin", "0.02"),
        "compare unpaired": json_of("compare", "learners", "--unpaired"),
        "compare curve": json_of("compare", "learners", "--summary", "auc", "--window", "last 50%"),
        "compare crossed": json_of("compare", "learners", "--seeds", "crossed", "--tasks", "sample"),
        "variance": json_of("variance", "learners", "--arm", "tall"),
        "power": json_of("power", "learners", "--candidate", "tall", "--budget", "200", "--cost-task", "3"),
        "power rate": json_of("power", "--rate", "0.5", "--effect", "0.2"),
        "rank": json_of("rank", "learners", "--resamples", "200", "--success", "0.9", "-k", "2"),
        "gate": json_of("gate", "learners", "--max-regression", "reward=0.05", "--max-regression", "stability=10%"),
        "litmus": json_of("litmus", "rules.toml", "learners", *arms),
    }


def until_decided() -> dict[str, Any]:
    return {
        "run": json_of("run", EXAMPLES / "until-decided.toml"),
        "table": table_of("until-decided"),
        "compare": json_of("compare", "until-decided"),
    }


def tables() -> dict[str, Any]:
    """Verdicts on three tables: one task, successes and failures, and 8 tasks by 3 seeds by 2 rollouts."""

    def write(name: str, score: Callable[[int, int], float], repeats: int) -> str:
        rows = ["arm,task,seed,rollout,score"]
        for arm in range(2):
            for unit in range(18 * repeats):
                task, seed, rollout = (0, unit, 0) if repeats == 1 else (unit // 6, unit // 2 % 3, unit % 2)
                rows.append(f"{'ab'[arm]},t{task},{seed},{rollout},{score(arm, unit)!r}")
        Path(name).write_text("\n".join(rows) + "\n")
        return name

    def methods(*names: str) -> list[str]:
        return [f"--method={name}" for name in names]

    single = write(
        "single.csv", lambda arm, unit: math.sin(7.3 * unit) + 0.3 * math.cos((5.1 + arm) * unit) + 0.4 * arm, 1
    )
    binary = write("binary.csv", lambda arm, unit: float(math.sin(7.3 * unit) + 0.8 * arm > 0.2), 1)
    nested = write(
        "nested.csv", lambda arm, unit: math.sin(unit // 6) + 0.3 * math.cos((5.1 + arm) * unit) + 0.2 * arm, 3
    )
    fixed, sample = ("--tasks", "fixed"), ("--tasks", "sample")
    paired = methods("t", "signflip", "bootstrap", "studentized", "percentile", "bca", "wilcoxon", "tost")
    unpaired = methods("welch", "permutation", "mannwhitney", "bootstrap", "percentile", "bca")
    return {
        "single": json_of("compare", single, "--margin", "0.5", *fixed, *paired),
        "single unpaired": json_of("compare", single, "--unpaired", *fixed, *unpaired),
        "binary": json_of("compare", binary, *fixed, *methods("mcnemar")),
        "binary unpaired": json_of("compare", binary, "--unpaired", *fixed, *methods("fisher")),
        "nested sample": json_of("compare", nested, *sample, *methods("cluster", "hierarchical")),
        "nested fixed": json_of("compare", nested, *fixed),
        "nested crossed": json_of("compare", nested, *sample, "--seeds", "crossed"),
        "nested power": json_of("power", nested, "--effect", "0.2", "--budget", "100", "--cost-seed", "2"),
        "nested rank": json_of("rank", nested, "--resamples", "200", "--success", "0.5"),
        "nested variance": json_of("variance", nested, "--metric", "score"),
    }


def sweep() -> dict[str, Any]:
    bakeoff("run", EXAMPLES / "sweep/smoke.json")
    root = ("--root", "bench_runs")
    metrics = ("--metric", "makespan_p95_ms", "--direction", "minimize", "--tasks", "fixed")
    return {
        "table": table_of("smoke", *root),
        "files": files_of("bench_runs/smoke"),
        "compare": json_of("compare", "smoke", *metrics, *root),
        "status": json_of("status", "smoke", *root),
        "show": json_of("show", "smoke/full__wf5__seed1__baseline", *root),
    }


def policies() -> dict[str, Any]:
    bakeoff("run", EXAMPLES / "policies.toml", "--set", "matrix.workflows=[10]", "--set", "seeds=1..8")
    return {"table": table_of("policies"), "compare": json_of("compare", "policies")}


def market() -> dict[str, Any]:
    small = ("--set", "seeds=1..2", "--set", "params.duration_minutes=5", "--set", 'matrix.regime=["calm","crash"]')
    bakeoff("run", EXAMPLES / "market.toml", *small)
    return {
        "table": table_of("market"),
        "files": files_of("bakeoff-runs/market"),
        "compare": json_of("compare", "market"),
    }


def exit_codes() -> dict[str, Any]:
    """Exit codes of right and wrong calls, in a directory where quickstart was run with two failed and two missing runs."""
    few = ("--set", "seeds=3", "--only", "task=hard")
    Path("broken.toml").write_text('name = "broken"\nworkload = "python"\nseed = 3\n')
    Path("empty.csv").write_text("arm,seed,score\n")
    Path("scores.csv").write_text(
        "arm,seed,score\n" + "".join(f"{arm},{s},{s + (arm == 'b')}\n" for arm in "ab" for s in range(9))
    )
    failing = 'name = "failing"\nworkload = "command"\nseeds = 2\n[params]\ncommand = "exit 3"\n'
    Path("failing.toml").write_text(failing)
    calls: tuple[tuple[str | Path, ...], ...] = (
        ("--version",),
        ("nonsense",),
        ("validate", EXAMPLES / "quickstart.toml"),
        ("validate", "broken.toml"),
        ("validate", "absent.toml"),
        ("run", EXAMPLES / "quickstart.toml", *few),
        ("run", EXAMPLES / "quickstart.toml", "--dry-run"),
        ("run", EXAMPLES / "quickstart.toml", "--set", "nothing=1"),
        ("run", EXAMPLES / "quickstart.toml", "--only", "arm=nobody"),
        ("run", "failing.toml"),
        ("status", "quickstart"),
        ("status", "absent"),
        ("show", "quickstart/bold__hard__s0"),
        ("show", "quickstart/zzz"),
        ("compare", "quickstart"),
        ("compare", "quickstart", "--metric", "absent"),
        ("compare", "quickstart", "--alpha", "0.9"),
        ("compare", "quickstart", "--control", "nobody"),
        ("compare", "scores.csv"),
        ("compare", "scores.csv", "--expect", "better"),
        ("compare", "scores.csv", "--expect", "worse"),
        ("compare", "empty.csv"),
        ("gate", "scores.csv", "--must-improve", "score"),
        ("gate", "scores.csv", "--must-improve", "score=5"),
        ("gate", "scores.csv"),
        ("rank", "scores.csv"),
        ("variance", "scores.csv", "--metric", "score"),
        ("power", "--sd", "1", "--effect", "0.5"),
        ("power",),
        ("litmus", "--print-profile"),
        ("litmus", "absent.toml"),
        ("collect", "absent"),
        ("query", "select count(*) from runs", "quickstart"),
        ("query", "select nonsense", "quickstart"),
        ("logs", "quickstart/zzz"),
        ("rm", "absent", "--yes"),
    )
    named = {EXAMPLES: "examples"}
    return {
        " ".join(str(part).replace(str(EXAMPLES), named[EXAMPLES]) for part in call): bakeoff(*call).exit_code
        for call in calls
    }


def old_editions() -> dict[str, Any]:
    """What the verbs read in editions that an older version wrote, and that such an edition can be continued."""
    for name in ("quickstart", "smoke"):
        with zipfile.ZipFile(HERE / f"{name}.zip") as archive:
            archive.extractall(".")
    shutil.copy(EXAMPLES / "bandit.py", ".")
    metrics = ("--metric", "makespan_p95_ms", "--direction", "minimize", "--tasks", "fixed")
    return {
        "quickstart table": table_of("quickstart"),
        "quickstart compare": json_of("compare", "quickstart", "--intersect"),
        "quickstart show": json_of("show", "quickstart/bold__easy__s0"),
        "quickstart status": json_of("status", "quickstart"),
        "quickstart continued": json_of("run", "quickstart.toml", "--allow-code-change"),
        "quickstart table after": table_of("quickstart"),
        "smoke table": table_of("smoke", "--root", "bench_runs"),
        "smoke compare": json_of("compare", "smoke", *metrics, "--root", "bench_runs"),
        "smoke show": json_of("show", "smoke/full__wf5__seed1__baseline", "--root", "bench_runs"),
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"plan {example}": partial(plan_of, example) for example in PLANS},
    "quickstart": quickstart,
    "learners": learners,
    "until-decided": until_decided,
    "tables": tables,
    "sweep": sweep,
    "policies": policies,
    "market": market,
    "exit codes": exit_codes,
    "old editions": old_editions,
}


def fixture_path(case: str) -> Path:
    return FIXTURES / (re.sub(r"[ /.]", "-", case) + ".json")


def record(case: str) -> dict[str, Any]:
    """Run one case in an empty directory; the result went through JSON, so it compares with what a fixture holds."""
    with empty_directory():
        return json.loads(json.dumps(CASES[case]()))  # type: ignore[no-any-return]


@contextmanager
def empty_directory() -> Iterator[Path]:
    """Work in a new directory without any setting of bakeoff in the environment."""
    before, kept = Path.cwd(), {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("BAKEOFF_")}
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)
            os.environ.update(kept)


def differences(expected: object, actual: object, path: str = "") -> Iterator[str]:
    """One line for every value that changed or went away. Values that are new do not count: they break nobody."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            place = f"{path} > {key}" if path else key
            if key in actual:
                yield from differences(value, actual[key], place)
            else:
                yield f"{place}: was {value!r}, is missing"
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (before, now) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(before, now, f"{path}[{index}]")
    elif isinstance(expected, float | int) and isinstance(actual, float | int):
        if not math.isclose(expected, actual, rel_tol=1e-7, abs_tol=1e-12):
            yield f"{path}: was {expected!r}, is {actual!r}"
    elif expected != actual:
        yield f"{path}: was {expected!r}, is {actual!r}"


def write_editions() -> None:
    """Zip an edition of quickstart with half of its runs done, and one of the smoke sweep. Clear the environment first."""
    for name in ("quickstart", "smoke"):
        with empty_directory() as directory:
            if name == "quickstart":
                text = (EXAMPLES / "quickstart.toml").read_text().replace("seeds = 8", "seeds = 4")
                Path("quickstart.toml").write_text(text)
                shutil.copy(EXAMPLES / "bandit.py", ".")
                bakeoff("run", "quickstart.toml", "--only", "seed < 2")
            else:
                shutil.copy(EXAMPLES / "sweep/smoke.json", ".")
                bakeoff("run", "smoke.json", "--only", "seed < 2")
            with zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                skipped = {"bandit.py", ".lease"}
                for path in sorted(directory.rglob("*")):
                    place = path.relative_to(directory)
                    linked = any(parent.is_symlink() for parent in [path, *path.parents])
                    if path.is_file() and not linked and "__pycache__" not in place.parts and path.name not in skipped:
                        archive.write(path, place)


if __name__ == "__main__":
    if sys.argv[1:] == ["--editions"]:
        write_editions()
    else:
        FIXTURES.mkdir(exist_ok=True)
        for name in sys.argv[1:] or CASES:
            fixture_path(name).write_text(json.dumps(record(name), indent=1) + "\n")
            print(fixture_path(name).relative_to(HERE))
