"""Evals of promptfoo: what `promptfoo eval -o` writes as JSON or JSONL, and its database `promptfoo.db`.

The arm is the provider, and the prompt where prompts differ. `testIdx` counts tests times repeats, so a test is known by
its description, its variables and its assertions, and the repeats of it are its rows in order of `testIdx`.

A failed assertion (`failureReason` 1) is a score, although promptfoo writes a text into `error` for it as well. Only
`failureReason` 2 is an error. It is missing where its text names a cause outside of the arm (`NOT_THE_ARM`), and failed
otherwise, because a provider that is an agent can raise whatever it likes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakeoff.errors import UsageError
from bakeoff.results.importers.files import first_bytes, read_whole_json, read_whole_lines, seconds
from bakeoff.results.importers.foreign import (
    BY_FILE,
    DIRECTORY,
    ForeignRun,
    Item,
    Log,
    Mean,
    Measure,
    Message,
    Outcome,
    Reading,
    Source,
)
from bakeoff.results.importers.transcripts import conversation, latest
from bakeoff.spec.workload import Scalar

DATABASE = "promptfoo.db"
TABLES = ("evals", "eval_results")
MEASURES = {
    "success": Measure("maximize", (0, 1)),
    "score": Measure("maximize"),
    "latency_ms": Measure("minimize"),
    "cost": Measure("minimize"),
    "tokens": Measure("minimize"),
}
ERROR = 2
"""`ResultFailureReason.ERROR`; 0 is none, 1 a failed assertion."""
NOT_THE_ARM = re.compile(
    r"\b(?:api|http|status|code)\b.{0,40}\b(?:401|403|408|429|5\d\d)\b|rate.?limit|too many requests|quota"
    r"|ECONN(?:REFUSED|RESET|ABORTED)|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|EHOSTUNREACH|socket hang up|fetch failed"
    r"|service unavailable|bad gateway|gateway time-?out|overloaded|api key (?:is )?(?:not|missing)|invalid api key"
    r"|^aborted: |exceeded max duration",
    re.IGNORECASE,
)
"""First lines of errors of the network, of a model's server, and of an eval that was stopped."""
MAX_NAME = 80
"""Characters of a name that is made of a text; a digest follows a longer one."""
_JSON = re.compile(rb'"results"\s*:\s*\{\s*"version"\s*:\s*\d')
_JSONL = (b'"testIdx"', b'"promptIdx"')


class Promptfoo:
    """JSON and JSONL of `promptfoo eval -o`, its database, or a directory with any of these."""

    name = "promptfoo"

    def claims(self, path: Path) -> list[Path]:
        if path.is_file():
            return [path] if _is_eval(path) else []
        if (path / DATABASE).is_file():
            return self.claims(path / DATABASE)
        evals = [file for file in sorted((*path.glob("*.json"), *path.glob("*.jsonl"))) if _is_eval(file)]
        # `-o out.json -o out.jsonl` writes one eval twice.
        return [file for file in evals if file.suffix == ".json" or file.with_suffix(".json") not in evals]

    def read(self, paths: Sequence[Path]) -> Iterator[Item]:
        known: dict[str, Path] = {}
        counts: Counter[str] = Counter()
        for path in paths:
            log = read_eval(path)
            for row in log.rows:
                if (other := known.setdefault(str(row.get("id") or id(row)), path)) != path:
                    raise UsageError(f"{path}: has the eval of {other}; the same results cannot count twice")
            yield from _runs(log, counts)
            yield Reading("promptfoo", log.version, _measures(log), _means(log), _notes(log), labels=BY_FILE)
        if errors := counts["failed"] + counts["missing"]:
            yield Reading(
                notes=[
                    f"{errors} of {counts['results']} results are errors (failureReason 2): {counts['failed']} failed, "
                    f"{counts['missing']} missing because of the network, the model's server or a stopped eval"
                ]
            )


def _is_eval(path: Path) -> bool:
    if path.suffix in (".json", ".jsonl"):
        start = first_bytes(path, 1 << 12 if path.suffix == ".json" else 1 << 18)
        line = start.partition(b"\n")[0]
        return bool(_JSON.search(start)) if path.suffix == ".json" else all(key in line for key in _JSONL)
    if path.suffix not in (".db", ".sqlite", ".sqlite3"):
        return False
    from bakeoff.records.foreign_database import is_database

    return is_database(path, *TABLES)


# -- files


@dataclass(frozen=True, slots=True)
class Eval:
    """One eval: its results as `promptfoo eval -o` writes them, in the order of tests and prompts."""

    path: Path
    rows: Sequence[Mapping[str, Any]]
    prompts: Sequence[Mapping[str, Any]] = ()
    """One for each column of the eval, a prompt with a provider, with the totals that promptfoo shows."""
    version: str = ""
    id: str = ""
    created: float | None = None
    notes: list[str] = field(default_factory=list)


def read_eval(path: Path) -> Eval:
    """Read one eval. Raises UsageError where the file is torn, or a database has several evals."""
    if path.suffix == ".json":
        tree = read_whole_json(path, "promptfoo")
        results = tree["results"]
        version = str((tree.get("metadata") or {}).get("promptfooVersion", ""))
        prompts = results.get("prompts") or (results.get("table") or {}).get("head", {}).get("prompts") or ()
        log = Eval(
            path,
            _ordered(results.get("results") or ()),
            prompts,
            version,
            str(tree.get("evalId") or ""),
            seconds(results.get("timestamp")),
        )
    elif path.suffix == ".jsonl":
        rows, torn = read_whole_lines(path)
        notes = [f"{path}: the last line is not whole and was left out; is the eval still running?"] if torn else []
        log = Eval(path, _ordered(rows), notes=notes)
    else:
        log = _read_database(path)
    if not log.rows:
        raise UsageError(f"{path}: the eval has no results")
    return log


def _ordered(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Results in order of tests; the order in which they ended is that of JSONL."""
    return sorted(rows, key=lambda row: (row.get("testIdx") or 0, row.get("promptIdx") or 0))


def _read_database(path: Path) -> Eval:
    from bakeoff.records.foreign_database import ForeignDatabase

    with ForeignDatabase(path) as database:
        evals = list(database.rows("evals", ("id", "description", "prompts"), order="created_at"))
        ids = [each["id"] for each in evals]
        if len(ids) > 1:
            listed = ", ".join(f"{each['id']} ({each['description'] or 'no description'})" for each in evals[-5:])
            raise UsageError(
                f"{path}: has {len(ids)} evals, the newest are {listed}; write the ones to read as files: "
                f"promptfoo export eval {ids[-1]} -o {ids[-1]}.json"
            )
        columns = {
            "id": "id", "test_idx": "testIdx", "prompt_idx": "promptIdx", "latency_ms": "latencyMs", "cost": "cost",
            "error": "error", "success": "success", "score": "score", "failure_reason": "failureReason",
        }  # fmt: skip
        trees = {
            "test_case": "testCase", "prompt": "prompt", "provider": "provider", "response": "response",
            "grading_result": "gradingResult", "named_scores": "namedScores",
        }  # fmt: skip
        known = database.tables["eval_results"]
        present = [column for column in (*columns, *trees) if column in known]
        rows = [
            {columns[name]: row[name] for name in present if name in columns}
            | {trees[name]: json.loads(row[name] or "null") for name in present if name in trees}
            for row in database.rows("eval_results", present, order="test_idx")
        ]
        return Eval(path, _ordered(rows), json.loads(evals[0]["prompts"] or "[]") if evals else ())


# -- runs


def _runs(log: Eval, counts: Counter[str]) -> Iterator[ForeignRun]:
    tasks = _task_names(log.rows)
    own = Log(log.path, log.created, log.id)
    columns: dict[tuple[str, str], set[Any]] = {}
    for row in log.rows:
        columns.setdefault(_arm(row), set()).add(row.get("promptIdx"))
    for number, (row, task) in enumerate(zip(log.rows, tasks, strict=True)):
        provider, prompt = _arm(row)
        labels: dict[str, Any] = {"provider": provider, "prompt": prompt}
        if len(columns[provider, prompt]) > 1:  # two settings of one provider that have no label
            labels["column"] = row["promptIdx"]
        outcome = outcome_of(row)
        counts.update(("results", outcome))
        text = str(row.get("error") or "").partition("\n")[0]
        yield ForeignRun(
            labels=labels | {DIRECTORY: log.path.name},
            header=row,
            source=Source(log.path, member=str(row.get("id") or number)),
            log=own,
            task=task,
            run=str(row["id"]) if row.get("id") else None,
            outcome=outcome,
            error=None if outcome == "scored" else text,
            metrics=_metrics(row, outcome),
            transcript=transcript,
        )


def transcript(source: Source) -> Sequence[Message]:
    """Read the prompt of one result, with its variables filled in, and the answer if there is one."""
    row = _results(source.path)[source.member or ""]
    response = row.get("response")
    output = response.get("output") if isinstance(response, Mapping) else response
    return [*conversation((row.get("prompt") or {}).get("raw"), "user"), *conversation(output, "assistant")]


@latest
def _results(path: Path) -> dict[str, Mapping[str, Any]]:
    return {str(row.get("id") or number): row for number, row in enumerate(read_eval(path).rows)}


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """Tell scores and errors apart. Versions before `failureReason` grade nothing where there was an error."""
    reason = row.get("failureReason")
    error = reason == ERROR if reason is not None else bool(row.get("error")) and not row.get("gradingResult")
    if not error:
        return "scored"
    return "missing" if NOT_THE_ARM.search(str(row.get("error") or "").partition("\n")[0]) else "failed"


def _arm(row: Mapping[str, Any]) -> tuple[str, str]:
    provider, prompt = row.get("provider") or "", row.get("prompt") or {}
    if isinstance(provider, Mapping):
        provider = provider.get("label") or provider.get("id") or ""
    return str(provider), _short(str(prompt.get("label") or prompt.get("display") or prompt.get("raw") or ""))


def _metrics(row: Mapping[str, Any], outcome: Outcome) -> dict[str, Scalar]:
    response = row.get("response") or {}
    usage = row.get("tokenUsage") or (response.get("tokenUsage") if isinstance(response, Mapping) else None) or {}
    metrics: dict[str, Scalar] = {}
    if outcome == "scored":
        metrics = {"success": int(bool(row.get("success"))), "score": row.get("score")}
        metrics |= {f"named/{name}": value for name, value in (row.get("namedScores") or {}).items()}
    elif outcome == "failed":
        metrics = {"success": 0}
    metrics |= {"latency_ms": row.get("latencyMs"), "cost": row.get("cost"), "tokens": usage.get("total")}
    return {name: value for name, value in metrics.items() if value is not None}


def _task_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the test of each result by its description; by its variables, too, where tests share a description."""
    tests: list[tuple[str, str, str]] = []
    for row in rows:
        case = row.get("testCase") or {}
        settings = case.get("vars") or row.get("vars") or {}
        named = ", ".join(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()
        )
        tests.append((str(case.get("description") or ""), named, json.dumps(case.get("assert"), sort_keys=True)))
    distinct = set(tests)
    descriptions = Counter(description for description, _, _ in distinct)
    variables = Counter((description, named) for description, named, _ in distinct)
    names = []
    for description, named, assertions in tests:
        name = (
            description
            if description and descriptions[description] == 1
            else ", ".join(filter(None, (description, named)))
        )
        name = _short(name) or "default"
        if descriptions[description] > 1 and variables[description, named] > 1:  # only the assertions differ
            name += f" #{_digest(assertions)}"
        names.append(name)
    return names


def _short(text: str) -> str:
    text = text.strip()
    if len(text) <= MAX_NAME and "\n" not in text:
        return text
    return f"{' '.join(text.split())[:MAX_NAME]}… #{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


# -- what the eval says as a whole


def _measures(log: Eval) -> dict[str, Measure]:
    named = {f"named/{name}": Measure("maximize") for row in log.rows for name in row.get("namedScores") or {}}
    return MEASURES | named


def _means(log: Eval) -> list[Mean]:
    """Return the share of passed tests that promptfoo shows for each column, where columns have names of their own."""
    names = Counter((str(prompt.get("provider", "")), _short(str(prompt.get("label") or ""))) for prompt in log.prompts)
    means = []
    for prompt in log.prompts:
        arm = (str(prompt.get("provider", "")), _short(str(prompt.get("label") or "")))
        totals = prompt.get("metrics") or {}
        tests = sum(totals.get(f"test{kind}Count") or 0 for kind in ("Pass", "Fail", "Error"))
        if tests and names[arm] == 1:
            labels = {"provider": arm[0], "prompt": arm[1]}
            means.append(Mean("success", totals["testPassCount"] / tests, labels, log=log.path))
    return means


def _notes(log: Eval) -> list[str]:
    notes = list(log.notes)
    answers = [row for row in log.rows if outcome_of(row) == "scored"]
    unchecked = sum(not (row.get("testCase") or {}).get("assert") for row in answers)
    if unchecked:
        notes.append(f"{log.path}: {unchecked} of {len(answers)} answers have no assertion and count as successes")
    cached = sum(bool((row.get("response") or {}).get("cached")) for row in answers)
    if cached:
        notes.append(
            f"{log.path}: {cached} of {len(answers)} answers come from promptfoo's cache, which makes repeats copies"
        )
    return notes
