"""What served pages show: values are collected here, and the templates beside this module make HTML of them.

Pages of a finished edition are those of a report (`web/site.py`); here are the ones that change while runs end, and the
table of runs in windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from starlette.requests import Request

from bakeoff.results.editions import edition_row
from bakeoff.results.table import Row
from bakeoff.spec.identity import run_id_in
from bakeoff.spec.workload import FINISHED
from bakeoff.text import number, printable, short, utc
from bakeoff.version import __version__
from bakeoff.web.front import SECTIONS
from bakeoff.web.live.places import Catalogue, EditionPlace, Place
from bakeoff.web.live.rows import FACTS, FILTERS, Query, RunTable, cell
from bakeoff.web.page import environment
from bakeoff.web.run import run_parts

TEMPLATES = Path(__file__).parent / "templates"
MAX_EDITIONS = 300
MAX_RUNNING = 20
MAX_FAILURES = 20
MAX_ARMS = 200
MAX_COLUMNS = 60
"""Columns that can be chosen with a tick."""
STATUSES = ("succeeded", "failed", "timeout", "infra_error", "cancelled", "running", "planned")
"""In the order in which they are counted on a page."""
NUMBERS = ("seed", "rollout", "time")
"""Columns that are aligned at their right, as metrics are."""
REPORT = (("disagreements", "Disagreements"), ("matrix", "Tasks and arms"))
"""Pages of a report that a finished edition has here too."""


_PAGE: Mapping[str, Any] = {"label": "", "home": "", "lead": "", "pages": (), "slug": "", "version": __version__}
"""What stands around a page where nothing else is said."""


@cache
def _environment() -> Environment:
    """Jinja with the templates beside this module. Every text in them is printable, whoever wrote it."""
    made = environment(TEMPLATES)
    made.filters["short"] = lambda name: short(printable(name), 60)
    made.finalize = lambda value: printable(value) if type(value) is str else value  # Markup is ours
    return made


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.html.j2").render({**_PAGE, **values})


# -- the first page


def home(catalogue: Catalogue) -> str:
    """Every experiment and edition."""
    return _render(
        "home", title="Experiments", label="", script="live.js", most=MAX_EDITIONS, listings=catalogue.listings(),
        root=catalogue.root, ago=_ago,
    )  # fmt: skip


def home_part(catalogue: Catalogue) -> str:
    """The table alone."""
    return _render("home-part", most=MAX_EDITIONS, listings=catalogue.listings(), root=catalogue.root, ago=_ago)


def _ago(stamp: float) -> str:
    # A time that does not change: a page that nobody loads again would show an old age.
    return utc(stamp)


# -- one edition


def _around(place: Place, slug: str, title: str, script: str) -> dict[str, Any]:
    """What every page about one place has."""
    if isinstance(place, EditionPlace):
        label, home = f"{place.paths.experiment}/{place.paths.name}", "../../../"
    else:
        label, home = place.results.label, ""
    report = REPORT if _has_report(place) else ()
    pages = (("index", "Overview"), *report, ("runs", "Runs"))
    return {"title": title, "label": label, "home": home, "slug": slug, "pages": pages, "script": script}


def _has_report(place: Place) -> bool:
    if not isinstance(place, EditionPlace):
        return True
    watch = place.watch()
    with watch.lock:
        return watch.complete


def index(place: Place, request: Request, now: float) -> str:
    """Progress, and who leads as far as that may be said."""
    is_edition = isinstance(place, EditionPlace)
    title = place.paths.experiment if isinstance(place, EditionPlace) else place.results.label
    lead = str(place.watch().spec.get("description") or "") if isinstance(place, EditionPlace) else ""
    part = progress(place, now) if isinstance(place, EditionPlace) else ""
    return _render(
        "index", lead=lead, progress=part, is_edition=is_edition, **_around(place, "index", title, "live.js")
    )


def progress(place: EditionPlace, now: float) -> str:
    """Counts, time left, what is running and what failed."""
    watch = place.watch()
    with watch.lock:
        state = watch.progress(now)
        return _render(
            "progress",
            now=state,
            counts=[(status, state.counts.get(status, 0)) for status in STATUSES],
            running=watch.list_running(now, MAX_RUNNING),
            more_running=max(0, len(watch.running) - MAX_RUNNING),
            failures=watch.list_failures(MAX_FAILURES),
            names=_names,
            first=lambda runs: list(islice(runs.values(), 3)),
        )


def _names(arms: Mapping[str, int]) -> str:
    known = [arm for arm, runs in arms.items() if runs]
    return ", ".join(known[:4]) + (f" and {len(known) - 4} more" if len(known) > 4 else "")


def means(place: EditionPlace) -> str:
    """Counts and means of a design that is not final. Call it with the watch's lock held."""
    arms = place.watch().means()
    shown = list(islice(arms.items(), MAX_ARMS))
    return _render(
        "means",
        arms=shown,
        all=len(arms),
        metrics=list(dict.fromkeys(name for _, arm in shown for name in arm.means)),
        self_reported=any(arm.self_reported for _, arm in shown),
    )


def standing(place: Place, complete: bool, section: Callable[[str], str], others: list[tuple[str, str]]) -> str:
    """The sections of a report's front page, without what stands above them here.

    Of a sequential test that is still running, only its verdicts are shown: other intervals do not allow for many looks. `others`
    are slugs and titles of pages that the workload adds.
    """
    own: tuple[str, ...] = ()
    if isinstance(place, EditionPlace):
        own = (
            ("summary", "failures")
            if place.watch().complete
            else tuple(name for name in SECTIONS if name != "verdicts")
        )
    sections = [(name, title, section(name)) for name, (title, _) in SECTIONS.items() if name not in own]
    return _render("standing", sections=[each for each in sections if each[2].strip()], others=others)


def not_yet(place: Place, slug: str) -> str:
    """In the place of a page that would show intervals or verdicts too early."""
    text = "This page is shown when all runs have ended: until then it would show intervals or verdicts too early."
    return _render("notice", text=text, **_around(place, slug, "Not yet", "live.js"))


def problem(text: str) -> str:
    """A part that cannot be made."""
    return _render("problem", text=text)


def problem_page(text: str) -> str:
    """A page that cannot be made."""
    return _render("notice", text=text, title="This cannot be shown", label="", home="", script="live.js")


# -- the table of runs


def _table(place: Place) -> RunTable[Any]:
    return place.watch().table if isinstance(place, EditionPlace) else place.table


def runs(place: Place, request: Request, now: float) -> str:
    """The page around the table; the rows are fetched."""
    table = _table(place)
    columns = [name for name in table.known_columns()[:MAX_COLUMNS] if name != "run"]
    choices = [(name, table.values(name)) for name in FILTERS]
    return _render("runs", choices=choices, columns=columns, **_around(place, "runs", "Runs", "runs.js"))


def rows(place: Place, query: Query, start: int, count: int) -> str:
    """A window of the table, with its heading."""
    if isinstance(place, EditionPlace):
        watch = place.watch()
        with watch.lock:
            return _rows(watch.table, query, start, count)
    return _rows(place.table, query, start, count)


def _rows(table: RunTable[Any], query: Query, start: int, count: int) -> str:
    view, names = table.view(query), table.columns(query)
    total, every = len(view), len(table.rows)
    lines = [
        (start + at, run.run_id, [cell(run, name) for name in names])
        for at, run in enumerate(view.window(start, count))
    ]
    said = f"{number(every)} runs" if total == every else f"{number(total)} of {number(every)} runs"
    columns = [(name, name in NUMBERS or name not in FACTS) for name in names]
    return _render("rows", rows=lines, total=total, count=said, columns=columns, sort=query.sort)


# -- one run


def run_page(place: Place, request: Request, now: float) -> str:
    """The page around a run, which is fetched when it is opened."""
    return _render("run", **_around(place, "run", "Run", "run.js"))


def run(place: Place, run_id: str) -> str:
    """Everything about one run."""
    table = _table(place)
    if run_id not in table.by_id:
        return _render("problem", text=f"There is no run called {printable(run_id)} here.")
    at = table.by_id[run_id]
    near = [table.rows[other].run_id if 0 <= other < len(table.rows) else "" for other in (at - 1, at + 1)]
    if not isinstance(place, EditionPlace):
        row: Row = table.rows[at]
        return _run(row, near, run_parts(row), [])
    watch = place.watch()
    with watch.lock:
        row = edition_row(watch.edition, table.rows[at].position)
        return _run(row, near, run_parts(row, f"runs/{quote(row.run_id)}"), _provenance(place, row))


def _run(row: Row, near: Iterable[str], parts: Iterable[Any], code: list[tuple[str, str]]) -> str:
    before, after = near
    return _render(
        "run-part", run=row, parts=parts, before=before, after=after, code=code, is_open=row.status not in FINISHED
    )


def _provenance(place: EditionPlace, row: Row) -> list[tuple[str, str]]:
    """Code, host and Python of the session in which the last attempt ended."""
    edition = place.watch().edition
    attempts = edition.attempts(row.position)
    sessions = {session["session"]: session for session in edition.sessions()}
    session = sessions.get(attempts[-1]["session"]) if attempts else None
    if session is None:
        return []
    from bakeoff.web.contents import session_facts

    return session_facts(session)


def run_directory(place: Place, run_id: str) -> Path | None:
    """Where a run's files are, if that run exists here."""
    table = _table(place)
    if run_id not in table.by_id:
        return None
    if isinstance(place, EditionPlace):
        return place.paths.run(run_id_in(place.paths.directory, run_id))
    files: Path | None = table.rows[table.by_id[run_id]].files
    return files


PAGES: Mapping[str, Callable[[Place, Request, float], str]] = {"index": index, "runs": runs, "run": run_page}
"""Pages that are made here."""
