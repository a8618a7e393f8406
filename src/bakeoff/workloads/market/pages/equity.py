"""`equity.html`: what each agent was worth, tick by tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bakeoff.records.edition import Edition
from bakeoff.records.series import read_block
from bakeoff.results.editions import edition_results
from bakeoff.verdicts.question import Plot
from bakeoff.web.figure import Figure, Panel
from bakeoff.web.folder import Page
from bakeoff.web.kinds import MOST_PANELS, draw
from bakeoff.workloads.market.pages.parts import count, note, picture
from bakeoff.workloads.market.pages.played import Played, tasks_of
from bakeoff.workloads.market.pages.tables import equity_csv

TITLE = "Equity"
Curve = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


def equity_page(played: Sequence[Played], edition: Edition) -> Page:
    """From the series `equity`, which every run logs."""
    columns = {position: read_block(block).get("equity") for position, block in edition.all_series()}
    positions = [run.position for run in edition.runs()]
    curves = [(run, found) for run, at in zip(played, positions, strict=True) if (found := columns.get(at)) is not None]
    if not curves:
        return Page(TITLE, "equity", note("No run has logged its equity yet."))
    exported, exported_runs = equity_csv((run, steps.tolist(), values.tolist()) for run, (steps, values) in curves)
    tasks = tasks_of([run for run, _ in curves])
    figure = draw("curves", edition_results(edition), Plot(metric="equity", only_tasks=tuple(tasks[:MOST_PANELS])))
    figure = framed(figure, [[found for run, found in curves if run.task == task] for task in tasks[:MOST_PANELS]])
    return drawn(figure, exported, exported_runs, len(curves), len(tasks) - MOST_PANELS)


def framed(figure: Figure, curves: Iterable[Sequence[Curve]]) -> Figure:
    """Panels show what single runs reached: the interval of two or three seeds is so wide that it would hide them."""
    panels = [
        replace(panel, x_label="tick", y_label="equity, dollars", y_range=_range(own))
        if isinstance(panel, Panel)
        else panel
        for panel, own in zip(figure.panels, curves, strict=True)
    ]
    caption = f"{figure.caption} Panels end at the highest and the lowest equity of any run."
    return replace(figure, title="Equity by tick", caption=caption, panels=panels)


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    low = min(float(values.min()) for _, values in curves)
    high = max(float(values.max()) for _, values in curves)
    room = max(0.04 * (high - low), 10.0)  # ticks of a flat line would else need more digits than fit
    return low - room, high + room


def drawn(figure: Figure, exported: str, exported_runs: int, runs: int, left_out: int = 0) -> Page:
    """`exported_runs` of all `runs` are in the table to download."""
    told = [
        "Equity is cash and what everything held would bring if it were sold now, so pushing a price does not raise it.",
        f"{left_out} more tasks are not drawn." if left_out > 0 else "",
        f'<a href="equity.csv" download>equity.csv</a> has every tick of {exported_runs} of {count(runs, "run")}.',
    ]
    return Page(TITLE, "equity", note(*told) + picture(figure, "equity"), files={"equity.csv": exported})
