"""Plots are written, are what their ending says, hold the same bytes every time, and open without a network."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bakeoff
from bakeoff.cli.plot import KINDS as NAMED
from bakeoff.errors import UsageError
from bakeoff.results.importers.tables import frame_results
from bakeoff.results.sources import open_results
from bakeoff.results.table import Results
from bakeoff.verdicts.question import Plot
from bakeoff.web.arms import Axis, learning_curves, radial
from bakeoff.web.drawing import image, write
from bakeoff.web.figure import Band, Dots, Figure, Line, Panel, Radial, Rule, Span
from bakeoff.web.pictures import KINDS, draw
from bakeoff.web.svg import draw_panel

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ONE_TASK = Plot(only_tasks=("maze",))


@pytest.fixture(scope="module")
def editions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Results]]:
    """Both example experiments, run by the real engine."""
    root = tmp_path_factory.mktemp("root")
    opened = {}
    for name in ("learners", "until-decided"):
        experiment = bakeoff.load(EXAMPLES / f"{name}.toml", root=root)
        experiment.run()
        opened[name] = open_results([str(experiment.edition.directory)], root)
    yield opened
    for edition in opened.values():
        edition.close()


@pytest.fixture(scope="module")
def figures(editions: dict[str, Results]) -> dict[str, Figure]:
    """Every kind of plot."""
    return {
        kind: draw(
            kind,
            editions["until-decided" if kind == "e-process" else "learners"],
            ONE_TASK if kind in ("bootstrap", "power") else Plot(),
        )
        for kind in KINDS
    }


def test_the_command_knows_every_kind() -> None:
    assert tuple(KINDS) == NAMED


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_plot_says_what_is_compared_how_many_and_what_its_bands_are(
    figures: dict[str, Figure], kind: str
) -> None:
    figure = figures[kind]
    assert "reward" in figure.title or kind == "power"
    assert len(figure.caption) > 60
    assert re.search(r"N =|resamples|spread|at hand", figure.caption)
    for panel in figure.panels:
        if isinstance(panel, Panel):
            assert panel.x_label and panel.y_label
    has_band = any(isinstance(m, Band) for p in figure.panels if isinstance(p, Panel) for m in p.marks)
    assert not has_band or ("and" in figure.caption.lower() and re.search(r"[Bb]ands", figure.caption))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["curves", "radial", "e-process"])
def test_png_and_svg_are_valid_and_the_same_bytes_again(figures: dict[str, Figure], kind: str) -> None:
    png, svg = image(figures[kind], "png"), image(figures[kind], "svg")
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND\xaeB`\x82")
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert image(figures[kind], "png") == png
    assert image(figures[kind], "svg") == svg


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_html_holds_its_drawing_and_asks_for_nothing_from_elsewhere(
    figures: dict[str, Figure], kind: str, tmp_path: Path
) -> None:
    written = write(figures[kind], tmp_path / "a.html").read_text()
    assert "<svg viewBox=" in written and figures[kind].title in html.unescape(written)
    assert not re.search(r"<script|<link rel=.stylesheet|(src|href)=.https?:", written)
    if kind == "curves":  # the drawing is the SVG whose bytes are compared above
        assert write(figures[kind], tmp_path / "b.html").read_text() == written


def test_names_from_results_cannot_become_markup(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0])
    nasty = "</script><script>alert(1)</script>"
    figure = Figure(nasty, nasty, [Panel("x", nasty, (Line(x, x, 0, nasty), Dots(x, x, 1, nasty, (nasty, nasty))))])
    written = write(figure, tmp_path / "nasty.html").read_text()
    assert "<script>alert" not in written


def test_gaps_and_rules_are_drawn_without_a_warning() -> None:
    x = np.array([1.0, 2.0, 3.0])
    y = np.array([1.0, np.nan, 2.0])
    marks = (Line(x, y, 0, "a"), Band(x, y - 1, y + 1), Rule("x", 2.0, "here"), Span("y", 0.0, 1.0, "strip"))
    figure = Figure("gaps", "none", [Panel("x", "y", marks)])
    assert image(figure, "svg")
    assert "nan" not in image(figure, "svg").decode().lower()


def test_runs_that_share_no_steps_are_drawn_without_a_mean() -> None:
    """By processor seconds a slow run may begin after a quick one has ended."""
    apart = [(np.array([0.1, 0.2]), np.array([1.0, 2.0])), (np.array([0.5, 0.9]), np.array([1.0, 3.0]))]
    figure = learning_curves({"": {"apart": apart, "together": [apart[0], apart[0]]}}, "reward", points=3)
    [panel] = figure.panels
    assert isinstance(panel, Panel)
    lines = [mark for mark in panel.marks if isinstance(mark, Line)]
    assert [(line.label, *line.x) for line in lines[:2]] == [("apart", 0.1, 0.2), ("", 0.5, 0.9)]
    assert sum(isinstance(mark, Band) for mark in panel.marks) == 1
    assert "Runs of apart share no steps, so each is drawn by itself" in figure.caption


def test_the_band_of_learning_curves_is_the_t_interval_over_seeds() -> None:
    steps = np.arange(5.0)
    runs = [(steps, np.full(5, value)) for value in (1.0, 2.0, 3.0, 4.0)]
    figure = learning_curves({"": {"arm": runs}}, "reward", points=3)
    (panel,) = figure.panels
    assert isinstance(panel, Panel)
    (band,) = [mark for mark in panel.marks if isinstance(mark, Band)]
    half = 3.182446305284263 * np.std([1, 2, 3, 4], ddof=1) / 2
    assert band.low == pytest.approx(np.full(3, 2.5 - half))
    assert "N = 4 seeds" in figure.caption


@pytest.mark.slow
def test_the_e_process_crosses_its_threshold_where_it_decided(figures: dict[str, Figure]) -> None:
    (panel,) = figures["e-process"].panels
    assert isinstance(panel, Panel)
    better = next(mark for mark in panel.marks if isinstance(mark, Line) and mark.label == "e for better")
    (stop,) = [mark for mark in panel.marks if isinstance(mark, Dots)]
    (bar,) = [mark for mark in panel.marks if isinstance(mark, Rule) and mark.label.startswith("decided")]
    at = int(stop.x[0])
    assert better.y[at] == pytest.approx(stop.y[0])
    assert better.y[at] >= bar.at > better.y[at - 1]


def test_the_radial_plot_has_the_numbers_in_its_table(figures: dict[str, Figure]) -> None:
    figure = figures["radial"]
    (panel,) = figure.panels
    assert isinstance(panel, Radial) and figure.table is not None
    assert figure.table.headers == ("", "baseline", "fast", "tall")
    assert [row[0] for row in figure.table.rows] == list(panel.axes)
    for spoke in panel.spokes:
        assert ((spoke.low <= spoke.values) & (spoke.values <= spoke.high)).all()


def test_paired_differences_of_a_sequential_edition_carry_the_confidence_sequence(editions: dict[str, Results]) -> None:
    figure = draw("differences", editions["until-decided"], Plot())
    assert "confidence sequence" in figure.caption
    with pytest.raises(UsageError, match="fixed number of runs"):
        draw("bootstrap", editions["until-decided"], Plot())


@pytest.mark.parametrize(
    ("kind", "asked", "message"),
    [
        ("curves", Plot(metric="nothing"), "no series called 'nothing'; there are reward"),
        ("radial", ONE_TASK, "three axes"),
        ("e-process", Plot(), "fixed number of runs"),
        ("differences", Plot(arms=("nobody",)), "no arm called 'nobody'"),
        ("bootstrap", Plot(), "one unit is one pair"),
        ("variance", Plot(only_tasks=("nowhere",)), "no task called 'nowhere'"),
    ],
)
def test_what_cannot_be_drawn_is_said(editions: dict[str, Results], kind: str, asked: Plot, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(kind, editions["learners"], asked)


def test_a_table_has_no_evidence_of_a_sequential_test_to_draw() -> None:
    table = frame_results([{"arm": arm, "seed": seed, "score": seed} for arm in "ab" for seed in range(4)])
    with pytest.raises(UsageError, match="fixed number of runs"):
        draw("e-process", table, Plot())


@pytest.mark.parametrize(("arms", "named"), [("ab", "b"), ("abcd", "b and c and d"), ("abcdef", "b, c and 3 others")])
def test_a_title_does_not_leave_arms_out_in_silence(arms: str, named: str) -> None:
    rng = np.random.default_rng(0)
    rows = [{"arm": arm, "seed": seed, "score": float(rng.normal())} for arm in arms for seed in range(6)]
    figure = draw("differences", frame_results(rows), Plot())
    assert figure.title.startswith(f"score: {named} against a") and len(figure.panels) == len(arms) - 1


def test_the_ending_decides_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.html"):
        write(Figure("t", "c", []), tmp_path / "plot.pdf")


@pytest.mark.slow
def test_the_verb_writes_the_file_and_says_what_it_is(editions: dict[str, Results], tmp_path: Path) -> None:
    from click.testing import CliRunner

    from bakeoff.cli import main

    root = editions["learners"].edition.paths.directory.parent.parent
    target = tmp_path / "deep" / "curves.svg"
    done = CliRunner().invoke(main, ["plot", "curves", "learners", "-o", str(target), "--root", str(root), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["plot"] == str(target) and facts["source"].startswith("learners/")
    assert target.read_bytes().startswith(b"<?xml")


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["curves", "radial"])
def test_a_browser_draws_the_page_without_a_complaint(figures: dict[str, Figure], kind: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.fail("chromium is not installed: run `make test`, or scripts/install-chromium.sh", pytrace=False)
    file = write(figures[kind], tmp_path / f"{kind}.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]
    done = subprocess.run([browser, *flags, f"file://{file}"], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    assert "<svg" in done.stdout, "nothing was drawn"
    for arm in ("baseline", "fast", "tall"):
        assert arm in done.stdout


def test_a_long_title_wraps_inside_its_panel_and_rings_carry_values() -> None:
    task = "regime=pump-and-dump, volatility=very-high, horizon=long-term, seed-set=second"
    names = tuple((float(n), f"an arm with a rather long name {n}") for n in range(3))
    panel = Panel("x", "", (Dots(np.zeros(3), np.arange(3.0), names=("a", "b", "c")),), task, y_ticks=names)
    svg = draw_panel(panel, narrow=True)
    words = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    assert task not in words and "regime=pump-and-dump, volatility=very-high," in words
    axes = [
        Axis(name, (np.array([0.0, high]), np.array([high, 0.0])))
        for name, high in (("a", 3.0), ("b", 60.0), ("c", 9.0))
    ]
    svg = draw_panel(radial(["one", "two"], axes, title="t").panels[0])
    words = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"1", "2", "3", "20", "40", "60", "6", "9"} <= set(words)
