"""The report page of the gridworld, from runs that really trained."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from support.processes import Lab
from workloads.gridworld.test_workload import toml

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two trained arms with a curriculum, on three levels; no reference arm."""
    with Lab(tmp_path_factory.mktemp("gridworld")) as lab:
        lab.experiment(f"""
workload = "gridworld"
seeds = 3
[params]
{toml(steps=256, eval_every=2, curriculum="staged")}
[[arms]]
name = "<vit>"
[[arms]]
name = "at 60FPS"
params = {{ policy = "memoryless" }}
[[tasks]]
name = "level_0"
[[tasks]]
name = "level_1"
params = {{ level = "level_1" }}
[[tasks]]
name = "level_2"
params = {{ level = "level_2", horizon = 60 }}
[analysis]
control = "<vit>"
""")
        lab.cli("run", "trial.toml")
        lab.cli("report", "trial")
        yield lab.directory() / "report"


def test_the_page_says_what_was_learnt_between_floor_and_ceiling(report: Path) -> None:
    front, page = (report / "index.html").read_text(), (report / "learning.html").read_text()
    headline = re.search(r"<strong>(.*?)</strong>", page)
    assert headline is not None and headline[1] in front
    assert "the random walker on held-out hearts" in headline[1] and "from random to clairvoyant" in headline[1]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", page)]
    arms = [row[:3] for row in rows if len(row) == 10]
    assert arms[:4] == [
        ["random (floor)", "level_0", "3"],
        ["&lt;vit&gt;", "level_0", "3"],
        ["at 60FPS", "level_0", "3"],
        ["clairvoyant (ceiling)", "level_0", "3"],
    ]
    assert len(arms) == 12 and "<vit>" not in page
    for heading in ("by step", "by processor time", "Progress of the curriculum", "score by level", "of the policy"):
        assert heading in page, heading


def test_pairing_is_reported_for_each_level(report: Path) -> None:
    page = (report / "learning.html").read_text()
    rows = re.findall(r"<td>at 60FPS against &lt;vit&gt;</td><td[^>]*>(\w+)</td>.*?<td[^>]*>(\d+)</td>", page)
    assert rows == [("level_0", "3"), ("level_1", "3"), ("level_2", "3")]


@pytest.mark.browser
def test_both_arms_are_replayed_in_the_same_room(report: Path) -> None:
    page = (report / "learning.html").read_text()
    data = json.loads(re.findall(r'application/json">(.*?)</script>', page, re.DOTALL)[0])
    first, second = data["episodes"]
    assert (first["agent"], second["agent"]) == ("<vit>", "at 60FPS")
    assert first["task"] == second["task"] and first["walls"] == second["walls"] and int(first["task"]) % 2 == 1

    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: run scripts/install-chromium.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for width in (1400, 400):
            view = browser.new_page(viewport={"width": width, "height": 900})
            errors: list[str] = []
            view.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            view.goto((report / "learning.html").as_uri())
            assert view.evaluate("document.documentElement.scrollWidth") == width, "nothing sticks out"
            assert view.locator(".gridworld-replay h3").all_inner_texts() == ["<vit>", "at 60FPS"]
            slider = view.locator(".gridworld-replay input")
            assert slider.input_value() == "0", "it waits for its button"
            slider.fill("5")
            assert "step 5 of" in view.locator(".gridworld-replay section p").nth(1).inner_text()
            assert not errors
        browser.close()
