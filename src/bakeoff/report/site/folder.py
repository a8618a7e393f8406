"""All of it becomes a folder: `index.html`, `plots.html`, `run.html`, pages of the workload, and `assets/`.

The same results give the same bytes: no file says when it was written. HTML and data stay below `MOST_BYTES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.errors import StorageError
from bakeoff.records.edition import Edition
from bakeoff.report import interactive
from bakeoff.report.figure import Figure, Panel
from bakeoff.report.site import answers, chunks, inline, policies, summary
from bakeoff.report.site.contents import Contents
from bakeoff.report.site.details import Details
from bakeoff.report.site.page import Page, pages_of
from bakeoff.report.site.pictures import Picture, pictures
from bakeoff.report.static import image
from bakeoff.text import duration, figure, number, printable
from bakeoff.verdicts.wording import format_level, format_p
from bakeoff.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
ASSETS = "assets"
LIBRARY = f"{ASSETS}/plotly.min.js"
MOST_BYTES = 2_900_000


@dataclass(frozen=True, slots=True)
class Written:
    """Where it is, and how large: the plot library and pictures for paper are not in `bytes`."""

    index: Path
    bytes: int
    files: int
    runs: int
    problems: tuple[str, ...]


def write(edition: Edition, directory: Path, label: str | None = None) -> Written:
    """The whole report of an edition."""
    contents = Contents(edition, label or f"{edition.paths.experiment}/{edition.paths.name}")
    found = answers.answer(contents)
    ablations = answers.ablations(contents)
    drawn = pictures(contents, found, ablations)
    extra, problems = pages_of(contents.experiment.workload, edition)
    shared = {
        "contents": contents,
        "links": [(f"{page.slug}.html", page.title) for page in extra if page.listed],
        "interactive": any(picture.figure for picture in drawn),
        "version": __version__,
    }
    table = {f"{ASSETS}/runs-{n}.js": text for n, text in enumerate(chunks.table(contents))}
    files = {
        **_static(),
        "index.html": _index(contents, found, ablations, drawn, {**shared, "problems": problems, "scripts": [*table]}),
        "run.html": _render("run.html", title="Run", scripts=[*table], **shared),
        **table,
    }
    if shared["interactive"]:
        files["plots.html"] = _render("plots.html", title="Plots", plots=_plots(drawn), **shared)
    used = sum(len(text.encode()) for text in (*files.values(), chunks.names(contents, {})))
    files |= {f"{page.slug}.html": _render("page.html", title=page.title, page=page, **shared) for page in extra}
    details = Details(contents, MOST_BYTES - used, directory.resolve())
    files[f"{ASSETS}/names.js"] = chunks.names(contents, details.shared())
    files |= {f"{ASSETS}/details-{n}.js": text for n, text in enumerate(details.scripts())}
    encoded = {name: text.encode() for name, text in files.items()}
    size = sum(map(len, encoded.values()))
    encoded |= _beside(contents, drawn)
    encoded |= {name: text.encode() for page in extra for name, text in page.files.items()}
    _save(directory, encoded)
    return Written(directory / "index.html", size, len(encoded), len(contents.runs), tuple(problems))


def write_pages(pages: Sequence[Page], directory: Path, label: str) -> None:
    """Pages alone, in the look of a report, for results that no experiment holds; one of them should be `index`."""
    shared = {
        "contents": {"label": label, "facts": {"experiment": label}},
        "links": [(f"{page.slug}.html", page.title) for page in pages if page.listed and page.slug != "index"],
        "interactive": False,
        "version": __version__,
    }
    files = {f"{ASSETS}/report.css": _static()[f"{ASSETS}/report.css"]}
    for page in pages:
        files |= {f"{page.slug}.html": _render("page.html", title=page.title, page=page, **shared), **page.files}
    _save(directory, {name: text.encode() for name, text in files.items()})


def _static() -> dict[str, str]:
    return {f"{ASSETS}/{path.name}": path.read_text("utf-8") for path in sorted((HERE / "static").iterdir())}


def _index(
    contents: Contents,
    found: answers.Answers,
    ablations: list[answers.Ablations],
    drawn: list[Picture],
    shared: Mapping[str, Any],
) -> str:
    metrics, arms = summary.arm_lines(contents)
    return _render(
        "index.html",
        title=contents.facts["experiment"],
        about=summary.about(contents),
        sessions=summary.provenance(contents),
        failures=summary.failures(contents),
        arm_metrics=metrics,
        arm_lines=arms,
        answers=found,
        settings=summary.settings(contents),
        ablations=ablations,
        pictures={
            section: [_shown(picture, n) for n, picture in enumerate(drawn) if picture.section == section]
            for section in ("verdicts", "values", "cost", "ablations", "policies")
        },
        statuses=[status for status in chunks.STATUSES if contents.edition.counts().get(status)],
        **shared,
    )


def _shown(picture: Picture, number: int) -> dict[str, Any]:
    figure = picture.figure
    if figure is None:
        return {"slug": picture.slug, "reason": picture.reason}
    png = f"{ASSETS}/{picture.slug}.png" if picture.section == "policies" else None
    return {
        "slug": picture.slug,
        "figure": figure,
        "legend": inline.legend(figure),
        "drawings": inline.drawings(figure, f"d{number}"),
        "png": png,
    }


def _plots(drawn: list[Picture]) -> list[dict[str, Any]]:
    """Traces and layouts; names of arms at the side need the whole width."""
    found = []
    for picture in drawn:
        if picture.figure is None:
            continue
        figure = replace(picture.figure, columns=1) if _has_names(picture.figure) else picture.figure
        data, layout = interactive.content(figure)
        for trace in data:
            trace |= {axis: _rounded(trace[axis]) for axis in ("x", "y") if axis in trace}
        script = interactive.script_json({"data": data, "layout": layout})
        found.append({"slug": picture.slug, "figure": figure, "height": interactive.height(figure), "script": script})
    return found


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]


def _has_names(figure: Figure) -> bool:
    return any(isinstance(panel, Panel) and panel.y_ticks and not panel.y_label for panel in figure.panels)


def _beside(contents: Contents, drawn: list[Picture]) -> dict[str, bytes]:
    """What is not HTML or data: the plot library, once for all pages, and pictures for paper."""
    found: dict[str, bytes] = {}
    if any(picture.figure for picture in drawn):
        found[LIBRARY] = interactive.library().encode()
    if policies.applies(contents):
        for picture in drawn:
            if picture.section == "policies" and picture.figure is not None:
                found[f"{ASSETS}/{picture.slug}.png"] = image(picture.figure, "png")
    return found


def _save(directory: Path, files: Mapping[str, bytes]) -> None:
    """Data of an earlier report that had more runs must not stay beside this one's."""
    try:
        (directory / ASSETS).mkdir(parents=True, exist_ok=True)
        for pattern in ("runs-*.js", "details-*.js"):
            for stale in (directory / ASSETS).glob(pattern):
                if f"{ASSETS}/{stale.name}" not in files:
                    stale.unlink()
        for name, content in files.items():
            (directory / name).write_bytes(content)
    except OSError as error:
        raise StorageError(f"{directory}: the report cannot be written: {error.strerror or error}") from error


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )
    found.filters |= {
        "number": number,
        "figure": figure,
        "signed": lambda value: figure(value, signed=True),
        "share": lambda value: "-" if value is None else f"{100 * value + 0.0:+.3g} %",
        "duration": duration,
        "interval": lambda one: "-" if one is None else f"{figure(one.low)} to {figure(one.high)}",
        "level": lambda one: "" if one is None else format_level(one.level),
        "p": format_p,
    }
    return found


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.j2").render(**values)
