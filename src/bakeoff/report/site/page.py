"""Pages that a workload adds to the report of its experiments.

The entry-point group `bakeoff.pages` maps a workload's kind to a function from the edition to its pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from bakeoff.records.edition import Edition

GROUP = "bakeoff.pages"
TAKEN = ("index", "plots", "run")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_FILE = re.compile(r"[a-z0-9][a-z0-9-]*\.(csv|json|txt)")


@dataclass(frozen=True, slots=True)
class Page:
    """`html` stands between the header and the footer as it is: what comes from runs must be escaped in it."""

    title: str
    slug: str
    """The file's name without its ending: small letters, digits and dashes."""
    html: str
    listed: bool = True
    """False: only the workload's other pages lead to it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts to download that the page links to, by their file names: `.csv`, `.json` or `.txt`."""


def pages_of(kind: str, edition: Edition) -> tuple[list[Page], list[str]]:
    """The workload's pages, and what went wrong with them: a page that cannot be made must not cost the report."""
    found: list[Page] = []
    problems: list[str] = []
    for entry in entry_points(group=GROUP, name=kind):
        try:
            make: Callable[[Edition], Sequence[Page]] = entry.load()
            for page in make(edition):
                found.append(_checked(page, found))
        except Exception as error:
            problems.append(f"pages of {entry.value} could not be made: {type(error).__name__}: {error}")
    return found, problems


def _checked(page: Page, others: Sequence[Page]) -> Page:
    if not _SLUG.fullmatch(page.slug) or page.slug in (*TAKEN, *(other.slug for other in others)):
        raise ValueError(f"{page.slug!r} cannot be the name of a page, or is taken")
    for name in page.files:
        if not _FILE.fullmatch(name) or any(name in other.files for other in others):
            raise ValueError(f"{name!r} cannot be the name of a file beside a page, or is taken")
    return page
