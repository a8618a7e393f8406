"""Report pages of task rollouts: all tasks, each task, each rollout, and two rollouts side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from msgspec import structs

from bakeoff.records.edition import Edition
from bakeoff.records.rundir import TRAJECTORY as FILE
from bakeoff.records.series import read_trajectory
from bakeoff.report.site.page import Page
from bakeoff.spec.identity import slug
from bakeoff.text import NOTHING, duration, number, printable
from bakeoff.workloads.tasks.changes import marked, readable
from bakeoff.workloads.tasks.evaluation import DIFF, RESULTS

MOST_BYTES = 20_000_000
"""Of rollout pages in one report; later rollouts have none of their own then, and the task page says so."""
LONGEST = 200_000
"""Characters of a diff, a log or a transcript."""

Run = Mapping[str, Any]


def pages(edition: Edition) -> list[Page]:
    runs: list[Run] = [structs.asdict(run) for run in edition.runs()]
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    files = {task: _slug(f"task-{index}-{task}") for index, task in enumerate(tasks)}
    shown = _rollouts(edition, runs, files)
    by_task = [
        _task_page(task, files[task], [run for run in runs if run["task"] == task], edition, shown) for task in tasks
    ]
    return [_overview(tasks, files, runs), *by_task, *shown.values()]


def _slug(text: str) -> str:
    return slug(text.lower(), 80).replace("_", "-").replace(".", "-").replace("+", "-").replace("=", "-").strip("-")


def _overview(tasks: Sequence[str], files: Mapping[str, str], runs: Sequence[Run]) -> Page:
    arms = list(dict.fromkeys(run["arm"] for run in runs))
    head = "".join(f'<th scope="col" class="r">{_text(arm)}</th>' for arm in arms)
    rows = []
    for task in tasks:
        cells = "".join(
            f'<td class="r">{_mean([r for r in runs if (r["task"], r["arm"]) == (task, arm)])}</td>' for arm in arms
        )
        rows.append(f'<tr><th scope="row"><a href="{files[task]}.html">{_text(task)}</a></th>{cells}</tr>')
    caption = "Mean score of the tries that were scored, and how many of all tries passed."
    return Page("Tasks", "tasks", _table(caption, f'<th scope="col">task</th>{head}', rows))


def _mean(runs: Sequence[Run]) -> str:
    scores = [run["metrics"]["total_score"] for run in runs if "total_score" in run["metrics"]]
    if not scores:
        return NOTHING
    passed = sum(bool(run["metrics"].get("passed")) for run in runs)
    return f"{number(sum(scores) / len(scores))} <small>{passed} of {len(runs)}</small>"


def _task_page(task: str, name: str, runs: Sequence[Run], edition: Edition, shown: Mapping[int, Page]) -> Page:
    rows = []
    for run in runs:
        metrics = run["metrics"]
        page = shown.get(run["position"])
        label = _label(run)
        link = f'<a href="{page.slug}.html">{label}</a>' if page else label
        cells = [
            f'<span class="badge {run["status"]}">{run["status"]}</span>',
            number(metrics.get("total_score")),
            _text(metrics.get("agent_status") or NOTHING),
            number(metrics.get("tokens")),
            number(metrics.get("cost")),
            duration(metrics["seconds"]) if "seconds" in metrics else NOTHING,
        ]
        rows.append(f'<tr><th scope="row">{link}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ("try", "status", "score", "agent", "tokens", "cost", "time")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    without = len(runs) - sum(run["position"] in shown for run in runs)
    note = f'<p class="note">{without} tries have no page of their own: there are too many.</p>' if without else ""
    html = _instruction(runs, edition) + _table("Every try.", head, rows) + note + _side_by_side(runs, shown)
    return Page(task, name, html, listed=False)


def _instruction(runs: Sequence[Run], edition: Edition) -> str:
    for run in runs:
        told = _results(edition.paths.run(run["run_id"])).get("instruction")
        if told:
            return f"<section><h2>Instruction</h2><pre>{_text(told)}</pre></section>"
    return ""


def _side_by_side(runs: Sequence[Run], shown: Mapping[int, Page]) -> str:
    """Two frames, each with a list of tries: any two can be looked at together."""
    known = [run for run in runs if run["position"] in shown]
    if len(known) < 2:
        return ""
    first, second = known[0], next((run for run in known if run["arm"] != known[0]["arm"]), known[1])
    panes = "".join(_pane(name, known, chosen, shown) for name, chosen in (("left", first), ("right", second)))
    return f'<section><h2>Side by side</h2><div class="beside">{panes}</div></section>'


def _label(run: Run) -> str:
    return _text(f"{run['arm']}, rollout {run['rollout']}")


def _pane(name: str, runs: Sequence[Run], chosen: Run, shown: Mapping[int, Page]) -> str:
    options = "".join(
        f'<option value="{shown[run["position"]].slug}.html"{" selected" if run is chosen else ""}>'
        f"{_label(run)}</option>"
        for run in runs
    )
    change = f"document.getElementById('{name}').src = this.value"
    address = f"{shown[chosen['position']].slug}.html"
    return (
        f'<div><label>{name} <select onchange="{change}">{options}</select></label>'
        f'<iframe id="{name}" title="the {name} try" src="{address}" loading="lazy"></iframe></div>'
    )


def _rollouts(edition: Edition, runs: Sequence[Run], files: Mapping[str, str]) -> dict[int, Page]:
    pages: dict[int, Page] = {}
    left = MOST_BYTES
    for run in runs:
        directory = edition.paths.run(run["run_id"])
        if not directory.is_dir():
            continue
        html = _rollout(run, directory, files[run["task"]])
        left -= len(html)
        if left < 0:
            break
        title = f"{run['arm']} on {run['task']}, rollout {run['rollout']}"
        pages[run["position"]] = Page(title, f"rollout-{run['position']}", html, listed=False)
    return pages


def _rollout(run: Run, directory: Path, task: str) -> str:
    results = _results(directory)
    parts = [
        _facts(run, results, f'<a href="{task}.html">{_text(run["task"])}</a>'),
        _section("What was changed", _diff(directory / DIFF, results)),
        _section("Scores", scores_html(results)),
        _section("Tests", verified_html(results)),
        _section("The judge", _judge(results)),
        _section("Transcript", _transcript(directory / FILE)),
        _section("What the agent printed", _log(directory / "logs" / "agent.txt")),
    ]
    return "".join(parts)


def _facts(run: Run, results: Mapping[str, Any], task: str) -> str:
    metrics = run["metrics"]
    told = {
        "status": run["status"],
        "score": number(metrics.get("total_score")),
        "agent": " ".join(str(results.get(name) or "") for name in ("agent", "agent_version")),
        "model": results.get("model") or NOTHING,
        "sandbox": results.get("sandbox") or NOTHING,
        "how the agent ended": metrics.get("agent_status") or NOTHING,
        "tokens": number(metrics.get("tokens")),
        "cost": number(metrics.get("cost")),
        "time": duration(metrics["seconds"]) if "seconds" in metrics else NOTHING,
        "error": run["error"] or NOTHING,
        "run": run["run_id"],
    }
    shown = {"task": task, **{name: _text(value) for name, value in told.items()}}
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown.items())
    return f'<dl class="facts">{rows}</dl>'


def _section(title: str, html: str) -> str:
    return f"<section><h2>{title}</h2>{html}</section>" if html else ""


def diff_html(diff: bytes) -> str:
    """A diff with its lines marked; of binary files only their size."""
    if not diff.strip():
        return "<p>Nothing was changed.</p>"
    lines = "".join(f'<span class="{kind}">{_text(line)}</span>' for kind, line in marked(_cut(readable(diff))))
    return f'<pre class="diff">{lines}</pre>'


def scores_html(results: Mapping[str, Any]) -> str:
    """Rubrics, and metrics of one's own."""
    rubrics = (results.get("evaluation") or {}).get("rubrics") or {}
    rows = [
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(one["criterion"])}</td><td>{number(one["weight"])}</td>'
        f"<td>{'untested' if one['score'] is None else number(one['score'])}</td></tr>"
        for name, one in rubrics.items()
    ]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("rubric", "criterion", "weight", "score by tests"))
    own = results.get("custom_metrics") or {}
    values = {name: number(value) for name, value in (own.get("values") or {}).items()}
    missing = {name: f"missing: {why}" for name, why in (own.get("missing") or {}).items()}
    listed = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(said)}</dd></div>" for name, said in (values | missing).items()
    )
    return (_table("", head, rows) if rows else "") + (f'<dl class="facts">{listed}</dl>' if listed else "")


def verified_html(results: Mapping[str, Any]) -> str:
    scripts = results.get("test_results") or {}
    steps = results.get("steps") or ()
    html = "".join(_script(path, script) for path, script in scripts.items())
    for step in steps:
        rewards = ", ".join(f"{name} {number(value)}" for name, value in step["rewards"].items())
        html += f"<h3>{_text(step['name'])}: {_text(step['status'])} {_text(rewards)}</h3><pre>{_text(step['output'])}</pre>"
    discounted = results.get("discounted") or ()
    if discounted:
        html += f'<p class="note">Put back to the start state before the tests ran: {_text(", ".join(discounted))}</p>'
    return html


def _script(path: str, script: Mapping[str, Any]) -> str:
    badge = "succeeded" if script["success"] else "failed"
    rows = [
        f"<tr><td>{_text(name)}</td><td>{_text(case['outcome'])}</td><td class='error'>{_text(_first_line(case['message']))}</td></tr>"
        for name, case in script["cases"].items()
    ]
    head = '<th scope="col">test</th><th scope="col">outcome</th><th scope="col">message</th>'
    cases = _table("", head, rows) if rows else f"<p>{_ending(script)}</p>"
    output = f"<details><summary>output</summary><pre>{_text(script['output'])}</pre></details>"
    return f'<h3>{_text(path)} <span class="badge {badge}">{badge}</span></h3>{cases}{output}'


def _ending(script: Mapping[str, Any]) -> str:
    return "It ran out of time." if script["timed_out"] else f"It ended with exit code {script['exit_code']}."


def _first_line(text: str) -> str:
    """The rest, with the traceback, is in the output below."""
    return text.partition("\n")[0][:400]


def _judge(results: Mapping[str, Any]) -> str:
    html = ""
    for one in (results.get("lm_evaluation") or {}).get("rubric_scores", ()):
        agreement = "" if one["agreement"] is None else f", agreement {number(one['agreement'])}"
        html += f"<h3>{_text(one['rubric_id'])}: {number(one['score'])} by {one['votes']} votes{agreement}</h3><ul>"
        html += "".join(f"<li>{_text(vote['reasoning'] or vote['error'] or '')}</li>" for vote in one["each"]) + "</ul>"
    return html


def _transcript(path: Path) -> str:
    if not path.is_file():
        return ""
    html: list[str] = []
    size = 0
    for step in read_trajectory(path):
        for message in step.messages[step.info.get("copied", 0) :]:
            said = _message(message)
            size += len(said)
            if size > LONGEST * 2:
                return "".join(html) + '<p class="note">The rest is in the run’s trajectory file.</p>'
            html.append(said)
    return "".join(html)


def _message(message: Mapping[str, Any]) -> str:
    role = str(message.get("role") or "message")
    content = message.get("content")
    text = content if isinstance(content, str) else _joined(content)
    calls = "".join(
        f"<pre>{_text(str(call.get('function', call).get('name', '')))} {_text(_arguments(call))}</pre>"
        for call in message.get("tool_calls") or ()
    )
    body = f"<pre>{_text(text)}</pre>" if text else ""
    if role == "system":
        return f'<details class="said system"><summary>system</summary>{body}</details>'
    return f'<div class="said {escape(role)}"><strong>{_text(role)}</strong>{body}{calls}</div>'


def _arguments(call: Mapping[str, Any]) -> str:
    given = call.get("function", call).get("arguments")
    return given if isinstance(given, str) else json.dumps(given, indent=1)


def _joined(content: Any) -> str:
    """Content in parts: texts as they are, everything else as JSON."""
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    return "\n".join(
        str(part["text"]) if isinstance(part, dict) and "text" in part else json.dumps(part) for part in parts
    )


def _diff(path: Path, results: Mapping[str, Any]) -> str:
    left_out = results.get("left_out") or ()
    note = (
        f'<p class="note">Too large for the diff, so left out of it: {_text(", ".join(left_out))}</p>'
        if left_out
        else ""
    )
    return diff_html(path.read_bytes() if path.is_file() else b"") + note


def _log(path: Path) -> str:
    """Its beginning; agents may print more than fits into memory."""
    size = path.stat().st_size if path.is_file() else 0
    if not size:
        return ""
    with path.open("rb") as file:
        text = file.read(LONGEST).decode(errors="replace")
    if size > LONGEST:
        text += _more(f"{size - LONGEST:,} bytes")
    return f"<details><summary>{size:,} bytes</summary><pre>{_text(text)}</pre></details>"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + _more(f"{len(text) - LONGEST:,} characters")


def _more(what: str) -> str:
    return f"\n[cut: {what} more in the file]"


def _results(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / RESULTS).read_text())
    except (OSError, ValueError):
        return {}
    return found


def _table(caption: str, head: str, rows: Sequence[str]) -> str:
    named = f"<caption><span>{caption}</span></caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{named}<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _text(value: Any) -> str:
    """Escaped, and without characters that would act on the page."""
    return escape(printable(str(value)))
