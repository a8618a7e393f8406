"""A figure becomes a file; the ending says what kind. The same figure gives the same bytes every time."""

from __future__ import annotations

from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.report.figure import Figure

ENDINGS = (".png", ".svg", ".html")


def write(figure: Figure, path: Path) -> Path:
    """PNG and SVG for paper, HTML for looking closer: it holds all it needs and opens without a network."""
    kind = check(path)
    if kind == ".html":
        from bakeoff.report.interactive import page

        content = page(figure).encode()
    else:
        from bakeoff.report.static import image

        content = image(figure, "png" if kind == ".png" else "svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def check(path: Path) -> str:
    """The ending, when a plot can have it."""
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise UsageError(f"{path}: a plot ends in {', '.join(ENDINGS)}")
    return kind
