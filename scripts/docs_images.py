"""Draw the pictures of the README, docs/plots.md and docs/sequential.md anew, from example experiments run for it.

.venv/bin/python scripts/docs_images.py [DIRECTORY]      # docs/images when left out
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import bakeoff
from bakeoff.records.edition import Edition
from bakeoff.report.figure import Figure
from bakeoff.report.from_edition import KINDS, Request, draw
from bakeoff.report.write import write

HOME = Path(__file__).parent.parent
OF_SEEDS = Request(tasks=("maze",))
PLOTS = {
    "curves": ("learners", Request()),
    "differences": ("learners", OF_SEEDS),
    "bootstrap": ("learners", OF_SEEDS),
    "variance": ("learners", Request()),
    "power": ("learners", OF_SEEDS),
    "profiles": ("learners", Request()),
    "radial": ("learners", Request()),
    "e-process": ("until-decided", Request()),
}
assert set(PLOTS) == set(KINDS)
README = ("quickstart", "curves")
"""The picture of the README, saved under the experiment's name."""


def figures(root: Path) -> dict[str, Figure]:
    """Every kind of plot, from the real engine."""
    drawn = {}
    for name in ("learners", "until-decided"):
        experiment = bakeoff.load(HOME / "examples" / f"{name}.toml", root=root)
        experiment.run()
        edition = Edition.open(experiment.edition)
        try:
            drawn |= {
                kind: _undated(draw(kind, edition, asked), edition) for kind, (of, asked) in PLOTS.items() if of == name
            }
        finally:
            edition.close()
    return drawn


def readme_figure(root: Path) -> Figure:
    experiment = bakeoff.load(HOME / "examples" / f"{README[0]}.toml", root=root)
    experiment.run()
    edition = Edition.open(experiment.edition)
    try:
        return _undated(draw(README[1], edition, Request()), edition)
    finally:
        edition.close()


def _undated(figure: Figure, edition: Edition) -> Figure:
    """An edition's name is a time; a picture in the documentation should not change with it."""
    return replace(figure, caption=figure.caption.replace(f"/{edition.paths.name}", ""))


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        drawn = figures(Path(place)) | {README[0]: readme_figure(Path(place))}
        for name, figure in drawn.items():
            print(write(figure, directory / f"{name}.svg"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs/images")
