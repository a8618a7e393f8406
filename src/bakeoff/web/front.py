"""The front page, section by section: each is a template and the function that collects what it shows.

The folder has all sections on one page; the live server renders the one that changed by itself (`section`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bakeoff.records.run import by_arm
from bakeoff.verdicts.ranking_table import ranked_table
from bakeoff.web.contents import Contents, about, failures, provenance, retries, settings
from bakeoff.web.page import TEMPLATES, Body, Page
from bakeoff.web.pictures import pictures

MAX_LINES = 300
"""Arms in the table of verdicts."""


def _verdicts(contents: Contents) -> dict[str, Any]:
    if contents.is_open:
        return {"verdict": None}
    verdict = contents.verdict
    if isinstance(verdict, str):
        return {"verdict": verdict}
    return {
        "verdict": verdict,
        "ranked": [ranked_table(each, MAX_LINES) for each in verdict.standings],
        "max_lines": MAX_LINES,
        "details": verdict.details(),
        "settings": settings(contents),
        "forest": pictures(contents, "forest"),
        "pairs": pictures(contents, "pairs"),
    }


def _arms(contents: Contents) -> dict[str, Any]:
    cost = [contents.cost_metric] if contents.cost_metric else []
    arms = by_arm(contents.runs, [*contents.main[:4], *cost])
    return {
        "contents": contents,
        "arms": arms,
        "arm_metrics": list(dict.fromkeys(name for arm in arms.values() for name in arm.means)),
        "retries": retries(contents),
        "pictures": [] if contents.is_open else pictures(contents, "values"),
    }


SECTIONS: Mapping[str, tuple[str, Callable[[Contents], dict[str, Any]]]] = {
    "summary": ("Summary", lambda contents: {"contents": contents}),
    "verdicts": ("Verdicts", _verdicts),
    "arms": ("Arms", _arms),
    "ablations": ("Ablations", lambda contents: {"ablations": contents.ablations, "pictures": pictures(contents, "ablations")}),
    "cost": ("Cost against quality", lambda contents: {"pictures": pictures(contents, "cost")}),
    "failures": ("Failures", lambda contents: {"failures": failures(contents)}),
    "provenance": ("Provenance", lambda contents: {"about": about(contents), "sessions": provenance(contents)}),
}  # fmt: skip
"""Sections in reading order: title, and what the template section-NAME.html shows."""


def section(contents: Contents, name: str) -> Body:
    """Render one section of the front page; its HTML is empty where there is nothing to show."""
    if contents.is_open and name in ("ablations", "cost"):
        return Body("", ())
    return Page(
        SECTIONS[name][0], name, TEMPLATES / f"section-{name}.html.j2", lambda: SECTIONS[name][1](contents)
    ).body()


def front_page(contents: Contents, pages: Sequence[Page], problems: Sequence[str]) -> Page:
    """Return the front page; `pages` are the others."""

    def data() -> dict[str, Any]:
        bodies = {name: section(contents, name) for name in SECTIONS}
        shown = {name: body.html for name, body in bodies.items() if body.html.strip()}
        return {
            "contents": contents,
            "sections": [(name, SECTIONS[name][0], html) for name, html in shown.items()],
            "pages": pages,
            "problems": problems,
            "pictures": [picture for body in bodies.values() for picture in body.pictures],
        }

    return Page(contents.title, "index", TEMPLATES / "index.html.j2", data)
