"""`detailed.html`: everything that chosen runs did, tick by tick, with what came of it. Filters run in the page."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bakeoff.text import figure
from bakeoff.web.folder import Page
from bakeoff.workloads.market.pages.parts import count, note, table, text
from bakeoff.workloads.market.pages.played import HOW_TO_KEEP, Played, arms_of, chosen, tasks_of
from bakeoff.workloads.market.pages.tables import actions_csv

MOST_RUNS = 60
"""All of them are on the page up to here, and one of each agent on each task beyond."""
MOST_BYTES = 1_500_000
"""Of action logs on the page."""
LONGEST = 300
"""Characters of an argument or a result."""
HEADS = ("tick", "action", "arguments", "result")
BRIEF = ("shares", "avgPrice", "fee", "realizedPnl", "cost", "proceeds", "postId")


def detailed_page(played: Sequence[Played]) -> Page:
    kept = [run for run in played if run.kept]
    runs = kept if len(kept) <= MOST_RUNS else chosen(played)
    if not runs:
        return Page("Action log", "detailed", note("No run kept its actions.", HOW_TO_KEEP))
    logs: list[str] = []
    left = MOST_BYTES
    for run in runs:
        log = _log(run)
        left -= len(log)
        if left < 0 and logs:
            break
        logs.append(log)
    exported, exported_runs = actions_csv(kept)
    told = [
        f"{count(len(logs), 'run')}{_which(len(runs), len(kept))}. {len(kept)} of {count(len(played), 'run')} kept the files for it.",
        f"{len(runs) - len(logs)} more do not fit on this page." if len(logs) < len(runs) else "",
        f'<a href="actions.csv" download>actions.csv</a> has the actions of {count(exported_runs, "run")}; each run’s own files are in its '
        "directory.",
    ]
    html = note(*told) + _filters(runs[: len(logs)]) + "".join(logs) + f"<script>{SCRIPT}</script>"
    return Page("Action log", "detailed", html, files={"actions.csv": exported})


def _which(shown: int, kept: int) -> str:
    return ": of every agent on every task the first that kept its files" if shown < kept else ""


def _log(run: Played) -> str:
    rows = run.rows("actions.csv")
    failed = sum(row["success"] != "True" for row in rows)
    refused = f", {failed} without success" if failed else ""
    earned = run.number("total_pnl")
    pnl = f", P&amp;L {figure(earned, signed=True)}" if earned is not None else ""
    body = table("", HEADS, map(_row, rows)) if rows else "<p>It did nothing.</p>"
    return (
        f'<details class="log" data-arm="{text(run.arm)}" data-task="{text(run.task)}">'
        f"<summary><strong>{text(run.name)}</strong>: {count(len(rows), 'action')}{refused}{pnl}</summary>{body}</details>"
    )


def _row(row: dict[str, str]) -> str:
    action = row["type"].removeprefix("a2a.") or row["conduct"]
    good = row["success"] == "True"
    outcome = _result(row.get("result") or "") if good else f'<span class="error">{text(_cut(row["error"]))}</span>'
    return (
        f'<tr data-action="{text(action)}" data-good="{int(good)}"><td class="r">{text(row["tick"])}</td>'
        f"<td>{text(action)}</td><td>{_arguments(row['params'])}</td><td>{outcome or 'done'}</td></tr>"
    )


def _arguments(given: str) -> str:
    return text(_cut(_plain(_table(given))))


def _result(given: str) -> str:
    """What a reader looks for; the whole answer is in actions.csv."""
    found = _table(given)
    brief = {name: found[name] for name in BRIEF if found.get(name)}
    return text(_cut(_plain(brief or found)))


def _table(given: str) -> dict[str, object]:
    try:
        found = json.loads(given) if given else {}
    except ValueError:
        return {"": given}
    return found if isinstance(found, dict) else {"": found}


def _plain(found: dict[str, object]) -> str:
    """`marketId market-3, outcome YES` reads more easily than JSON."""
    return ", ".join(f"{name} {_value(value)}".strip() for name, value in found.items() if value is not None)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(told: str) -> str:
    return told if len(told) <= LONGEST else f"{told[:LONGEST]} …"


def _filters(runs: Sequence[Played]) -> str:
    actions = sorted({row["type"].removeprefix("a2a.") for run in runs for row in run.rows("actions.csv")} - {""})
    return (
        '<form class="filters" id="filters"><label>Search <input type="search" name="words" '
        'placeholder="market-3, BTCX, LONG …"></label>'
        + _select("arm", "Agent", arms_of(runs))
        + _select("task", "Task", tasks_of(runs))
        + _select("action", "Action", actions)
        + '<label>Outcome <select name="good"><option value="">any</option><option value="1">done</option>'
        '<option value="0">refused or failed</option></select></label></form><p class="hint" id="found" role="status"></p>'
    )


def _select(name: str, label: str, values: Sequence[str]) -> str:
    options = "".join(f'<option value="{text(value)}">{text(value or "(none)")}</option>' for value in values if value)
    if not options:
        return ""
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


SCRIPT = """
"use strict";
const form = document.getElementById("filters"), found = document.getElementById("found");
const logs = [...document.querySelectorAll("details.log")];
function apply() {
  const asked = Object.fromEntries(new FormData(form)), words = asked.words.toLowerCase();
  const rowwise = words || asked.action || asked.good;
  let shown = 0, runs = 0;
  for (const log of logs) {
    const own = (!asked.arm || log.dataset.arm === asked.arm) && (!asked.task || log.dataset.task === asked.task);
    let hits = 0;
    if (own) for (const row of log.querySelectorAll("tbody tr")) {
      const fits = (!asked.action || row.dataset.action === asked.action) && (!asked.good || row.dataset.good === asked.good)
        && (!words || row.textContent.toLowerCase().includes(words));
      row.hidden = !fits;
      hits += fits;
    }
    log.hidden = !own || (rowwise && !hits);
    if (rowwise && hits) log.open = true;
    if (!log.hidden) { shown += hits; runs += 1; }
  }
  found.textContent = `actions: ${shown}, runs: ${runs}`;
}
form.addEventListener("input", apply);
const first = logs.find(log => log.querySelector("tbody"));
if (first) first.open = true;
form.addEventListener("submit", event => event.preventDefault());
apply();
"""
