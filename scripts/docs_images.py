"""Run example experiments and redraw the pictures of the README, docs/plots.md, docs/sequential.md, docs/view.md and
docs/report.md.

.venv/bin/python scripts/docs_images.py [DIRECTORY]      # default: docs/images

Screenshots need Chromium (scripts/install-chromium.sh), playwright and, for the animated one, pillow.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import bakeoff
from bakeoff.results.sources import open_results
from bakeoff.results.table import Results
from bakeoff.verdicts.question import Plot
from bakeoff.web.drawing import write
from bakeoff.web.figure import Figure
from bakeoff.web.pictures import KINDS, draw

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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
    """Run the experiments with the real engine and return one figure for each kind of plot."""
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
    """Run the quickstart and return its learning curves."""
    experiment = bakeoff.load(HOME / "examples" / f"{README[0]}.toml", root=root)
    experiment.run()
    results = open_results([str(experiment.edition.directory)], root)
    try:
        return _undated(draw(README[1], results, Plot()), results)
    finally:
        results.close()


def _undated(figure: Figure, results: Results) -> Figure:
    """Remove the edition's name, a time stamp, from the caption, so that pictures do not change with every run."""
    return replace(figure, caption=figure.caption.replace(f"/{results.label.partition('/')[2]}", ""))


# -- screenshots of `bakeoff view`

AGENTS = """
import time


def solve(ctx, skill):
    time.sleep(1.2 + 2.0 * ctx.rng("how long", own=True).random())
    luck = ctx.rng("luck").normal() + 0.5 * ctx.rng("own luck", own=True).normal()
    if luck < -1.6:
        raise TimeoutError(f"no answer to call {ctx.seed} of the model")
    for step in range(40):
        ctx.log(step, reward=(skill + luck) * (1 - 0.93**step))
    print("\\x1b[32msolved\\x1b[0m in", ctx.seed + 3, "steps")
    return {"score": skill + luck, "cost_usd": 0.02 + skill / 50}
"""
RUNNING = """
name = "agents"
description = "Three agents on two tasks, with shared seeds"
workload = "python"
seeds = 24
jobs = 8
params.function = "agents:solve"
analysis = { metric = "score", control = "baseline", bounds = [-6.0, 8.0], seeds = "nested", tasks = "fixed" }
arms = [
  { name = "baseline", params = { skill = 0.0 } },
  { name = "with memory", params = { skill = 0.6 } },
  { name = "with tools", params = { skill = 1.2 } },
]
tasks = [{ name = "maze" }, { name = "puzzle" }]
"""
SCREENS = (
    ("running", 1400, "light"), ("running", 400, "dark"), ("runs", 1400, "dark"), ("run", 400, "light"), ("verdict", 1400, "light"),
)  # fmt: skip
"""Which pages of the viewer are taken, how wide, and in which colours."""
FRAMES, FRAME_S, WIDE = 24, 0.5, 900


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        yield browser
        browser.close()


def screenshots(place: Path, directory: Path, screens: tuple[tuple[str, int, str], ...] = SCREENS) -> None:
    """Start an experiment and a viewer, and take pages while it runs and after."""
    from bakeoff.records.layout import find_edition

    (place / "agents.py").write_text(AGENTS)
    (place / "agents.toml").write_text(RUNNING)
    root = place / "root"
    program = [sys.executable, "-m", "bakeoff"]
    viewer = subprocess.Popen(
        [*program, "view", "--port", "0", "--root", str(root)], cwd=place, stdout=subprocess.PIPE, text=True
    )
    assert viewer.stdout is not None
    address = viewer.stdout.readline().removeprefix("serving: ").strip()
    run = subprocess.Popen([*program, "run", "agents.toml", "--root", str(root)], cwd=place, stderr=subprocess.DEVNULL)
    try:
        with chromium() as browser:
            page = browser.new_page(viewport={"width": WIDE, "height": 620})
            page.goto(address)
            page.get_by_role("link", name="agents").click()
            animate(page, directory / "view.gif")
            edition = find_edition("agents", root).directory
            base = f"{address}e/agents/{edition.name}"
            for name, width, scheme in [screen for screen in screens if screen[0] == "running"]:
                take(browser, f"{base}/index.html", width, scheme, directory / f"view-{name}-{width}-{scheme}.png")
            run.wait()
            runs = sorted(entry.name for entry in (edition / "runs").iterdir() if "tools" in entry.name)
            pages = {"runs": "runs.html#sort=-score", "run": f"run.html#{runs[0]}", "verdict": "index.html"}
            for name, width, scheme in [screen for screen in screens if screen[0] in pages]:
                take(browser, f"{base}/{pages[name]}", width, scheme, directory / f"view-{name}-{width}-{scheme}.png")
    finally:
        for process in (run, viewer):
            process.terminate()
            process.wait()


def take(browser: Browser, address: str, width: int, scheme: str, path: Path) -> None:
    """Save what a reader sees first of a page, once everything on it is there."""
    context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#live.good")
    page.wait_for_selector("#table tbody tr" if "runs.html" in address else "main:not(:has([aria-busy=true]))")
    page.screenshot(path=path)
    context.close()
    print(path)


# -- screenshots of `bakeoff report`

SUMS = """
from bakeoff import Step


def add(ctx, skill, difficulty):
    left, right = (int(n) for n in ctx.rng("question").integers(100, 999, 2))
    noise = ctx.rng("noise", own=True)
    right_answer = noise.random() < skill - difficulty
    answer = left + right if right_answer else left + right - 10
    ask = [{"role": "user", "content": f"What is {left} + {right}? Use the tool, then answer with the number alone."}]
    call = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"left": %d, "right": %d}' % (left, right)}}]}
    ctx.trajectory(Step(time_s=0.0, messages=[*ask, call], info={"total_s": 0.8 + noise.random(), "usage": {"input_tokens": 61, "output_tokens": 24}}))
    result = {"role": "tool", "tool_call_id": "c1", "content": str(left + right) if skill > 0.7 else "error: no such tool"}
    said = {"role": "assistant", "content": str(answer)}
    ctx.trajectory(Step(time_s=2.1, done=True, messages=[result, said], info={"total_s": 0.4 + noise.random(), "usage": {"input_tokens": 97, "output_tokens": 5}}))
    print(f"\\x1b[{32 if right_answer else 31}m{'right' if right_answer else 'wrong'}\\x1b[0m: {answer}")
    return {"solved": int(right_answer), "output_tokens": 29}
"""
SUM_AGENTS = """
name = "sums"
description = "Two agents and a calculator"
workload = "python"
seeds = 3
rollouts = 4
params.function = "sums:add"
analysis = { metric = "solved", control = "without tools", bounds = [0.0, 1.0] }
arms = [{ name = "without tools", params = { skill = 0.65 } }, { name = "with tools", params = { skill = 1.0 } }]
tasks = [TASKS]
"""
TASKS = ", ".join(f'{{ name = "sum-{n:02}", params = {{ difficulty = {0.04 * n:.2f} }} }}' for n in range(16))
REPORT_SCREENS = (
    ("disagreements", 1400, "light"),
    ("matrix", 1400, "dark"),
    ("curves", 1400, "light"),
    ("runs", 400, "dark"),
)
"""Which pages of a report are taken, how wide, and in which colours."""


def report_screenshots(place: Path, directory: Path) -> None:
    """Write reports of two experiments and take pages of them, opened from the file system."""
    (place / "sums.py").write_text(SUMS)
    (place / "sums.toml").write_text(SUM_AGENTS.replace("TASKS", TASKS))
    for name, file in (("sums", place / "sums.toml"), ("learners", HOME / "examples" / "learners.toml")):
        subprocess.run(
            [sys.executable, "-m", "bakeoff", "run", file, "--root", place / "reports"],
            cwd=place,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        subprocess.run(
            [sys.executable, "-m", "bakeoff", "report", name, "--root", place / "reports", "--out_dir", place / name],
            check=True,
        )
    with chromium() as browser:
        for name, width, scheme in REPORT_SCREENS:
            context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto((place / ("learners" if name == "curves" else "sums") / f"{name}.html").as_uri())
            page.wait_for_selector(
                {"disagreements": "#beside[aria-busy=false]", "curves": "#drawing svg"}.get(name, "#table tbody th")
            )
            path = directory / f"report-{name}-{width}-{scheme}.png"
            page.screenshot(path=path)
            context.close()
            print(path)


def animate(page: Page, path: Path) -> None:
    """Save a live page as an animated picture."""
    from PIL import Image

    frames = []
    for _ in range(FRAMES):
        page.wait_for_timeout(1000 * FRAME_S)
        image = Image.open(io.BytesIO(page.screenshot()))
        frames.append(image.convert("RGB").quantize(48, dither=Image.Dither.NONE))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=int(1000 * FRAME_S), loop=0, optimize=True)
    print(path)


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        drawn = figures(Path(place)) | {README[0]: readme_figure(Path(place))}
        for name, figure in drawn.items():
            print(write(figure, directory / f"{name}.svg"))
        screenshots(Path(place), directory)
        report_screenshots(Path(place), directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs/images")
