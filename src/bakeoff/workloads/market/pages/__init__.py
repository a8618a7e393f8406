"""Report pages of the market: summary, equity, prices, timeline, action log and the feed.

What runs reported is always there; actions, prices and posts need the files of `outputs = true`. `runs` has the runs as
pages read them, `charts` the figures, `content` each page, and `templates/` the HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.web.contents import Contents
from bakeoff.web.folder import write_pages
from bakeoff.web.page import Page, WorkloadPages
from bakeoff.workloads.market.outputs import Run
from bakeoff.workloads.market.pages import content
from bakeoff.workloads.market.pages.runs import Curve, Played, played


def report_pages(contents: Contents) -> list[Page]:
    """Return the pages of a report."""
    return _pages(played(contents.runs), f"{contents.label}.")


def _pages(runs: Sequence[Played], source: str = "") -> list[Page]:
    return [
        content.summary_page(runs),
        content.equity_page(runs, source),
        content.prices_page(runs),
        content.timeline_page(runs),
        content.detailed_page(runs),
        content.social_page(runs),
    ]


def write_campaign(campaign: Sequence[tuple[str, Run, Path]], comparison: Mapping[str, Any], directory: Path) -> None:
    """Write the pages of `bakeoff market run`, which has no experiment: the same ones, and a front page.

    `campaign` has the agent's name, its run and the run's directory; `comparison` is what comparison.json has.
    """
    runs = []
    for name, run, files in campaign:
        equity = np.array(run.rollout.result.equity)
        shown = Played(
            arm=name,
            agent=run.agent,
            task="",
            unit=run.seed,
            label=f"run {run.number}",
            status="failed" if run.rollout.never_acted else "succeeded",
            metrics={metric: value for metric, value in run.rollout.metrics.items() if value is not None},
            files=files,
            equity=Curve(np.arange(equity.size), equity),
        )
        runs.append(shown)
    # The command writes metrics.csv, and a single run has its own tables in this very directory.
    own = {"metrics.csv"} | ({"actions.csv", "equity.csv"} if len(runs) == 1 else set())
    made = [content.front_page(runs, comparison, directory), *_pages(runs)]
    slim = [replace(page, files={name: page.files[name] for name in page.files if name not in own}) for page in made]
    write_pages(slim, directory, comparison["benchmarkId"])


pages = WorkloadPages(report_pages)
