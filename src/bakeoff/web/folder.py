"""The report: a folder with `index.html`, `run.html`, pages of the workload, and `assets/`.

The same results give the same bytes: no file says when it was written. HTML and data stay below `MOST_BYTES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import BakeoffError, StorageError
from bakeoff.records.files import make_inside
from bakeoff.records.run import by_arm
from bakeoff.results.table import Results
from bakeoff.text import duration, format_ends, format_level, format_p, number, percent
from bakeoff.verdicts import answer as answers
from bakeoff.verdicts.answer import answer, as_html
from bakeoff.verdicts.question import Calibrate, Compare
from bakeoff.verdicts.ranking_table import ranked_table
from bakeoff.web import contents as front
from bakeoff.web.contents import Contents
from bakeoff.web.pictures import pictures
from bakeoff.web.runs import Details, table

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
ASSETS = "assets"
MOST_BYTES = 2_900_000
MOST_LINES = 300
"""Arms in the table of verdicts."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report is, and how large; pictures for paper and downloads are not in `bytes`."""

    index: Path
    bytes: int
    files: int
    runs: int
    problems: tuple[str, ...]


def write(results: Results, directory: Path, question: Compare | None = None, calibrate: bool = False) -> Written:
    """Write the whole report, with `calibrate` a page of the analysis' error rates. Raises StorageError."""
    contents = Contents(results, question)
    pages, problems = pages_of((contents.workload, contents.dialect), contents)
    if calibrate:
        asked = contents.question.model_dump(include=contents.question.model_fields_set & set(Calibrate.model_fields))
        try:
            error_rates = answer(results, Calibrate.model_validate(asked))
            pages.append(Page("Calibration", CALIBRATION, as_html(error_rates)))
        except BakeoffError as error:
            problems.append(f"there is no calibration: {error}")
    rows = {f"{ASSETS}/runs-{n}.js": text for n, text in enumerate(table(contents))}
    shared = {"contents": contents, "pages": pages, "scripts": [*rows]}
    files = {
        **{f"{ASSETS}/{path.name}": path.read_text("utf-8") for path in sorted((HERE / "static").iterdir())},
        "index.html": _index(contents, {**shared, "problems": [*results.problems, *problems]}),
        "run.html": render("run.html", title="Run", **shared),
        **rows,
    }
    # Pages of the workload take nothing from what the details of runs may use.
    details = Details(contents, MOST_BYTES - sum(len(text.encode()) for text in files.values()), directory.resolve())
    files |= {f"{page.slug}.html": render("page.html", title=page.title, page=page, **shared) for page in pages}
    files |= {f"{ASSETS}/{name}": text for name, text in details.scripts().items()}
    size = sum(len(text.encode()) for text in files.values())
    everything = {**files, **{name: content for page in pages for name, content in page.files.items()}}
    _save(directory, everything)
    return Written(directory / "index.html", size, len(everything), len(contents.runs), tuple(problems))


def _index(contents: Contents, shared: Mapping[str, Any]) -> str:
    """The front page."""
    verdict = contents.verdict
    ablations = front.ablations(contents)
    cost = [contents.cost_metric] if contents.cost_metric else []
    arms = by_arm(contents.runs, [*contents.main[:4], *cost])
    return render(
        "index.html",
        title=contents.title,
        about=front.about(contents),
        sessions=front.provenance(contents),
        failures=front.failures(contents),
        arms=arms,
        arm_metrics=list(dict.fromkeys(name for arm in arms.values() for name in arm.means)),
        verdict=verdict,
        ranked=[] if isinstance(verdict, str) else [ranked_table(each, MOST_LINES) for each in verdict.standings],
        most_lines=MOST_LINES,
        details=[] if isinstance(verdict, str) else verdict.details(),
        settings=front.settings(contents),
        retries=front.retries(contents),
        ablations=ablations,
        pictures=pictures(contents, ablations),
        **shared,
    )


def write_pages(pages: Sequence[Page], directory: Path, label: str) -> None:
    """Pages alone, in the look of a report, for results that no experiment holds; one of them should be `index`."""
    shared = {"contents": {"label": label, "title": label}, "pages": pages}
    files: dict[str, str | bytes] = {f"{ASSETS}/report.css": (HERE / "static" / "report.css").read_text("utf-8")}
    for page in pages:
        files |= {f"{page.slug}.html": render("page.html", title=page.title, page=page, **shared), **page.files}
    _save(directory, files)


def _save(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Data of an earlier report that had more runs must not stay beside this one's."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        make_inside(directory, ASSETS)
        for pattern in ("runs-*.js", "details-*.js"):
            for stale in (directory / ASSETS).glob(pattern):
                if f"{ASSETS}/{stale.name}" not in files:
                    stale.unlink()
        for name, content in files.items():
            path = directory / name
            path.unlink(missing_ok=True)  # in an edition from elsewhere, a link to what is not ours to write, or a pipe
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise StorageError(
            f"{error.filename or directory}: the report cannot be written: {error.strerror or error}"
        ) from error


@cache
def environment(*directories: Path) -> Environment:
    """Jinja with the report's templates and filters; those of answers (`verdicts/templates`) can be imported too.

    `directories` hold further templates, such as those of a workload.
    """
    made = answers.environment(*directories, HERE / "templates", HERE / "static")
    made.filters |= {
        "number": number,
        "signed": lambda value: number(value, sign=True),
        "share": lambda value: percent(value, sign=True),
        "duration": duration,
        "interval": format_ends,
        "level": lambda interval: "" if interval is None else format_level(interval.level),
        "p": format_p,
    }
    return made


def render(template: str, **values: Any) -> str:
    """One of the report's templates, by its name without `.j2`."""
    return environment().get_template(f"{template}.j2").render(**values)


# -- pages that a workload or a dialect adds

GROUP = "bakeoff.pages"
CALIBRATION = "calibration"
TAKEN = ("index", "run", CALIBRATION)
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_FILE = re.compile(r"[a-z0-9][a-z0-9-]*\.(csv|json|txt)|assets/[a-z0-9_]+\.svg")


@dataclass(frozen=True, slots=True)
class Page:
    """`html` stands between the header and the footer as it is: what comes from runs must be escaped in it."""

    title: str
    slug: str
    """The file's name without its ending: small letters, digits and dashes."""
    html: str
    headline: str = ""
    """A sentence that the front page shows before its verdicts, as text."""
    listed: bool = True
    """False: only the workload's other pages lead to it."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Files that the page links to, by name: `.csv`, `.json` or `.txt`, or pictures as `assets/NAME.svg`."""


def pages_of(names: Iterable[str], contents: Contents) -> tuple[list[Page], list[str]]:
    """Pages of the workload and of the dialect, and what went wrong: a page that fails must not cost the report.

    The entry-point group `bakeoff.pages` maps their names to functions from the contents of a report to its pages.
    """
    pages: list[Page] = []
    problems: list[str] = []
    entries = {entry.value: entry for name in names for entry in entry_points(group=GROUP, name=name)}
    for entry in entries.values():
        try:
            make: Callable[[Contents], Sequence[Page]] = entry.load()
            for page in make(contents):
                if not _SLUG.fullmatch(page.slug) or page.slug in (*TAKEN, *(other.slug for other in pages)):
                    raise ValueError(f"{page.slug!r} cannot be the name of a page, or is taken")
                for name in page.files:
                    if not _FILE.fullmatch(name) or any(name in other.files for other in pages):
                        raise ValueError(f"{name!r} cannot be the name of a file beside a page, or is taken")
                pages.append(page)
        except Exception as error:
            problems.append(f"pages of {entry.value} could not be made: {type(error).__name__}: {error}")
    return pages, problems
