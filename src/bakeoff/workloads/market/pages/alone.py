"""The pages of `bakeoff market run`, which plays without an experiment: the same ones, and a front page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.text import figure as shown
from bakeoff.web.arms import learning_curves
from bakeoff.web.folder import Page, write_pages
from bakeoff.workloads.market.campaign import Run
from bakeoff.workloads.market.pages.detailed import detailed_page
from bakeoff.workloads.market.pages.equity import Curve, drawn, framed
from bakeoff.workloads.market.pages.parts import note, section, table, text
from bakeoff.workloads.market.pages.played import Played, arms_of
from bakeoff.workloads.market.pages.prices import prices_page
from bakeoff.workloads.market.pages.social import social_page
from bakeoff.workloads.market.pages.summary import summary_page
from bakeoff.workloads.market.pages.tables import equity_csv
from bakeoff.workloads.market.pages.timeline import timeline_page

Kept = Sequence[tuple[str, Run, Path]]
"""The agent's name, its run, and where the run's files are."""


def write(kept: Kept, told: Mapping[str, Any], directory: Path) -> None:
    """`told` is what comparison.json says."""
    played = [_played(*one) for one in kept]
    found = [
        _index(played, told, directory),
        summary_page(played),
        _equity(played, kept),
        prices_page(played),
        timeline_page(played),
        detailed_page(played),
        social_page(played),
    ]
    # The command writes metrics.csv, and a single run has its own tables in this very directory.
    own = {"metrics.csv"} | ({"actions.csv", "equity.csv"} if len(kept) == 1 else set())
    pages = [replace(page, files={name: page.files[name] for name in page.files if name not in own}) for page in found]
    write_pages(pages, directory, told["benchmarkId"])


def _played(name: str, run: Run, files: Path) -> Played:
    return Played(
        arm=name,
        agent=run.agent,
        task="",
        unit=run.seed,
        label=f"run {run.number}",
        status="failed" if run.rollout.never_acted else "succeeded",
        metrics={metric: value for metric, value in run.rollout.metrics.items() if value is not None},
        files=files,
    )


def _equity(played: Sequence[Played], kept: Kept) -> Page:
    curves: dict[str, list[Curve]] = {}
    for name, run, _ in kept:
        values = np.array(run.rollout.result.equity)
        curves.setdefault(name, []).append((np.arange(values.size), values))
    every = [curve for each in curves.values() for curve in each]
    exported, count = equity_csv(
        (run, ticks.tolist(), values.tolist()) for run, (ticks, values) in zip(played, every, strict=True)
    )
    floats = {arm: [(ticks.astype(float), values) for ticks, values in each] for arm, each in curves.items()}
    return drawn(framed(learning_curves({"": floats}, "equity"), [every]), exported, count, len(every))


def _index(played: Sequence[Played], told: Mapping[str, Any], directory: Path) -> Page:
    rows = list(_agents(told["agents"]))
    heads = ("agent", "runs", "mean P&L", "95 % interval", "best run", "worst run")
    sentences = "".join(
        f'<li class="{text(one["verdict"])}">{text(one["sentence"])}</li>' for one in told.get("verdicts", ())
    )
    verdicts = section("Verdicts", f'<ul class="sentences">{sentences}</ul>') if sentences else ""
    html = (
        verdicts
        + section("Agents", table("Dollars, in this one world.", heads, rows), *_notes(told["agents"]))
        + section("Runs", table("", ("run", "P&L", "files"), (_run(run, directory) for run in played)))
        + note('Also here: <a href="comparison.json">comparison.json</a>, <a href="metrics.csv">metrics.csv</a>.')
    )
    return Page(f"{' against '.join(arms_of(played)[:3])} on one world", "index", html)


def _agents(agents: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, one in agents.items():
        pnl = one["metrics"]["total_pnl"]
        interval = "-" if pnl["low"] is None else f"{shown(pnl['low'])} to {shown(pnl['high'])}"
        cells = (one["runs"], shown(pnl["mean"], signed=True), interval, one["bestRun"], one["worstRun"])
        yield f'<tr><th scope="row">{text(name)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>'


def _notes(agents: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, one in agents.items():
        yield f'<p class="hint">{text(name)}: {text(one["note"])}</p>'


def _run(run: Played, directory: Path) -> str:
    place = run.files.relative_to(directory).as_posix()
    links = " ".join(
        f'<a href="{text(name if place == "." else f"{place}/{name}")}">{name}</a>'
        for name in ("result.json", "metrics.json", "actions.csv", "trades.csv", "equity.csv", "trajectory.json")
        if (run.files / name).is_file()
    )
    pnl = shown(run.number("total_pnl"), signed=True)
    return f'<tr><th scope="row">{text(run.name)}</th><td>{pnl}</td><td>{links}</td></tr>'
