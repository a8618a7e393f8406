"""Draw the pictures of the README, docs/plots.md and docs/sequential.md anew, from example experiments run for it.

.venv/bin/python scripts/docs_images.py [DIRECTORY]      # docs/images when left out
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import bakeoff
from bakeoff.results.sources import open_results
from bakeoff.results.table import Results
from bakeoff.verdicts.question import Plot
from bakeoff.web.drawing import write
from bakeoff.web.figure import Figure
from bakeoff.web.pictures import KINDS, draw

HOME = Path(__file__).parent.parent
OF_SEEDS = Plot(only_tasks=("maze",))
PLOTS = {
    "curves": ("learners", Plot()),
    "differences": ("learners", OF_SEEDS),
    "bootstrap": ("learners", OF_SEEDS),
    "variance": ("learners", Plot()),
    "power": ("learners", OF_SEEDS),
    "profiles": ("learners", Plot()),
    "radial": ("learners", Plot()),
    "e-process": ("until-decided", Plot()),
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
        results = open_results([str(experiment.edition.directory)], root)
        try:
            drawn |= {
                kind: _undated(draw(kind, results, asked), results) for kind, (of, asked) in PLOTS.items() if of == name
            }
        finally:
            results.close()
    return drawn


def readme_figure(root: Path) -> Figure:
    experiment = bakeoff.load(HOME / "examples" / f"{README[0]}.toml", root=root)
    experiment.run()
    results = open_results([str(experiment.edition.directory)], root)
    try:
        return _undated(draw(README[1], results, Plot()), results)
    finally:
        results.close()


def _undated(figure: Figure, results: Results) -> Figure:
    """An edition's name is a time; a picture in the documentation should not change with it."""
    return replace(figure, caption=figure.caption.replace(f"/{results.label.partition('/')[2]}", ""))


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        drawn = figures(Path(place)) | {README[0]: readme_figure(Path(place))}
        for name, figure in drawn.items():
            print(write(figure, directory / f"{name}.svg"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs/images")
