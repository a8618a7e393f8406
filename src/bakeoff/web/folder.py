"""The report as a folder that opens from the file system: every page and every file of `web/site.py`.

The same results give the same bytes: no file says when it was written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bakeoff.errors import StorageError
from bakeoff.records.files import make_inside
from bakeoff.results.table import Results
from bakeoff.verdicts.question import Compare
from bakeoff.web.contents import Contents
from bakeoff.web.page import ASSETS, File, Page
from bakeoff.web.site import TABLE, Site, site_of


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report is, and how large."""

    index: Path
    bytes: int
    files: int
    runs: int
    problems: tuple[str, ...]


def write(results: Results, directory: Path, question: Compare | None = None, calibrate: bool = False) -> Written:
    """Write the whole report, with `calibrate` a page of the analysis' error rates. Raises StorageError."""
    contents = Contents(results, question)
    site = site_of(contents, base=directory.resolve(), calibrate=calibrate)
    files, size = _save(directory, site)
    return Written(directory / "index.html", size, files, len(contents.runs), site.problems)


def write_pages(pages: Sequence[Page], directory: Path, label: str) -> None:
    """Pages alone, in the look of a report, for results that no experiment holds; one of them should be `index`."""
    _save(directory, Site(label, label, pages))


def _save(directory: Path, site: Site) -> tuple[int, int]:
    """Write everything and return how many files and bytes. Files of an earlier report must not stay beside this one's."""
    files: dict[str, File] = {f"{slug}.html": site.html(slug) for slug in site.pages}
    files |= {f"{slug}.html": site.html(slug) for slug in site.tables}
    files |= site.files()
    size = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        make_inside(directory, ASSETS)
        for stale in (*(directory / ASSETS).glob("details-*.js"), *directory.glob(f"{TABLE}*.html")):
            if str(stale.relative_to(directory)).replace(os.sep, "/") not in files:
                stale.unlink()
        for name, content in files.items():
            path = directory / name
            path.unlink(missing_ok=True)  # in an edition from elsewhere, a link to what is not ours to write, or a pipe
            content = content() if callable(content) else content
            content = content.encode() if isinstance(content, str) else content
            size += len(content)
            path.write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"{error.filename or directory}: the report cannot be written: {error.strerror or error}"
        ) from error
    return len(files), size
