"""The report in a real browser, opened from the file system."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from bakeoff.results.editions import edition_results
from bakeoff.results.table import Results, Row
from bakeoff.web.folder import write
from support.experiments import TROUBLE, TROUBLE_CODE
from support.processes import LONG, Lab

pytestmark = pytest.mark.browser
expect.set_options(timeout=LONG * 1000)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
MANY = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is not installed: run `make test`, or scripts/install-chromium.sh", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Beside its edition, as the command writes it."""
    with Lab(tmp_path_factory.mktemp("site")) as lab:
        lab.experiment(TROUBLE, "trouble", trouble_work=TROUBLE_CODE)
        lab.run("trouble")
        with closing(lab.edition("trouble")) as edition:
            yield write(edition_results(edition), edition.paths.directory / "report").index.parent


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Ten thousand runs of ten arms on five tasks, some of them failed."""
    place = tmp_path_factory.mktemp("large")
    noise = np.random.default_rng(7).normal(size=(MANY, 10))
    runs = []
    for number in range(MANY):
        arm, task, seed = f"arm {number % 10}", f"task {number // 10 % 5}", number // 50
        failed = number % 97 == 0
        runs.append(
            Row(
                arm, task, seed, run_id=f"arm-{number % 10}__{task[-1]}__s{seed}__{number:012x}", base=arm, params={"skill": number % 10}, status="failed" if failed else "succeeded",
                error=f"ran out of luck at {number}" if failed else None, started_at=1e9 + number, ended_at=1e9 + number + 0.5,
                metrics={} if failed else {f"metric{k}": float(noise[number, k]) for k in range(10)},
            )
        )  # fmt: skip
    written = write(Results(runs, "large"), place / "report")
    return written.index, written.bytes


class Visit:
    """A page without any complaint in its console, and without a request that leaves the file system."""

    def __init__(self, browser: Browser, **context: object) -> None:
        self.context = browser.new_context(**context)  # type: ignore[arg-type]
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("request", self._request)

    def _request(self, request: object) -> None:
        if not request.url.startswith(("file:", "data:")):  # type: ignore[attr-defined]
            self.complaints.append(f"left the file system: {request.url}")  # type: ignore[attr-defined]

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.complaints == []


def shown(page: Page, column: int) -> list[str]:
    return page.locator(f"#table tbody tr:not(.gap) > :nth-child({column})").all_inner_texts()


PAGES = ("index", "disagreements", "matrix", "curves", "runs", "run", "table-effects-score")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
def test_pages_load_without_a_complaint_and_fit_the_screen(
    browser: Browser, report: Path, scheme: str, width: int
) -> None:
    with Visit(browser, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        for name in PAGES:
            page.goto((report / f"{name}.html").as_uri())
            page.wait_for_load_state()
            if name in ("runs", "disagreements"):
                page.wait_for_selector("#table tbody th")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_headings_sort_by_keyboard_and_the_address_says_so(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "runs.html").as_uri())
        heading = page.locator("#table thead th", has_text="score")
        heading.locator("button").press("Enter")
        expect(page.locator("#table thead th", has_text="score")).to_have_attribute("aria-sort", "ascending")
        ascending = [float(text) for text in shown(page, 7) if text]
        assert len(ascending) > 20 and ascending == sorted(ascending)
        page.locator("#table thead th", has_text="score").locator("button").press("Enter")
        expect(page.locator("#table thead th", has_text="score")).to_have_attribute("aria-sort", "descending")
        descending = [float(text) for text in shown(page, 7) if text]
        assert descending == sorted(descending, reverse=True) and descending[0] > ascending[-1]
        assert page.url.endswith("#sort=-score")
        page.goto("about:blank")
        page.goto(f"{(report / 'runs.html').as_uri()}#sort=-score")
        page.wait_for_selector("#table tbody th")
        assert [float(text) for text in shown(page, 7) if text] == descending


def test_filters_are_in_the_address_and_survive_sharing(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "runs.html").as_uri())
        expect(page.locator("#count")).to_have_text("72 runs")
        page.locator("select[name=status]").select_option("failed")
        expect(page.locator("#count")).to_have_text("6 of 72 runs")
        page.locator("select[name=arm]").select_option("wild")
        assert set(shown(page, 2)) == {"wild"} and len(shown(page, 2)) == 2
        page.get_by_label("Search").fill("S7")
        expect(page.locator("#count")).to_have_text("1 of 72 runs")
        shared = page.url
        page.goto("about:blank")
        page.goto(shared)
        expect(page.locator("#count")).to_have_text("1 of 72 runs")
        assert page.locator("select[name=arm]").input_value() == "wild" and shown(page, 4) == ["7"]
        page.get_by_label("Search").fill("nothing like it")
        expect(page.locator("#count")).to_have_text("nothing matches; 72 runs in all")
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#count")).to_have_text("72 runs")


def test_columns_are_chosen_and_in_the_address(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "runs.html").as_uri())
        page.get_by_text("Columns", exact=True).click()
        page.locator("#columns").get_by_label("param skill").check()
        expect(page.locator("#table thead th", has_text="param skill")).to_have_count(1)
        shared = page.url
        page.goto("about:blank")
        page.goto(shared)
        expect(page.locator("#table thead th", has_text="param skill")).to_have_count(1)


def test_keys_move_through_the_runs_open_one_and_go_on_from_there(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "runs.html").as_uri())
        page.wait_for_selector("#table tbody th")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "q"
        page.keyboard.type("clever")
        page.keyboard.press("Escape")
        page.keyboard.press("f")
        assert page.evaluate("document.activeElement.name") == "arm"
        page.keyboard.press("Escape")
        for key in "jjk":
            page.keyboard.press(key)
        expect(page.locator("#table tr[aria-current]")).to_have_attribute("aria-rowindex", "2")
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"/run\.html#clever"))
        expect(page.locator("#run section")).not_to_have_count(0)
        first = page.url
        page.keyboard.press("n")
        expect(page).not_to_have_url(first)
        page.keyboard.press("p")
        expect(page).to_have_url(first)


def test_a_run_shows_its_attempts_logs_curves_and_files_and_none_of_it_is_markup(
    browser: Browser, report: Path
) -> None:
    with Visit(browser) as page:
        page.goto(f"{(report / 'runs.html').as_uri()}#status=failed")
        run_id = page.locator("#table tbody a").first.get_attribute("title")
        page.locator("#table tbody a").first.click()
        expect(page.locator("h1")).to_have_text(run_id or "")
        expect(page.locator("[data-part=Attempts] tbody tr")).to_have_count(2)
        told = page.locator("#run").inner_text()
        assert (
            "the <b>model</b> said no" in told and "<script>alert(1)</script>" in told and "red <b>not bold</b>" in told
        )
        assert page.locator("pre .a1").first.inner_text() == "red"
        page.get_by_role("link", name="Previous run").click()
        expect(page.locator("h1")).not_to_have_text(run_id or "")
        expect(page.locator("[data-part=Curves] svg[role=img]")).to_have_count(1)
        page.locator("a", has_text="model & notes.txt").click()
        assert page.inner_text("body") == "weights"


def test_a_run_that_is_not_there_is_said_to_be_missing(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto(f"{(report / 'run.html').as_uri()}#nobody")
        expect(page.locator("#run")).to_contain_text("There is no run called nobody")


def test_disagreements_are_walked_by_keyboard_and_a_link_to_one_survives_sharing(
    browser: Browser, report: Path
) -> None:
    with Visit(browser) as page:
        page.goto((report / "disagreements.html").as_uri())
        expect(page.locator("#which")).to_have_text("default, seed 3")  # an arm failed there
        expect(page.locator(".panes.heads .pane")).to_have_count(3)
        expect(page.locator("[data-part=Error] .pane", has_text="said no")).not_to_have_count(0)
        page.keyboard.press("n")
        expect(page.locator("#which")).to_have_text("default, seed 7")
        page.keyboard.press("p")
        expect(page.locator("#which")).to_have_text("default, seed 3")
        page.keyboard.press("n")
        expect(page.locator("#beside")).to_have_attribute("aria-busy", "false")
        page.locator(".panes.heads select").first.select_option(index=1)
        chosen = page.locator(".panes.heads select").first.input_value()
        shared = page.url
        assert "seed=7" in shared and "runs=" in shared
        page.goto("about:blank")
        page.goto(shared)
        expect(page.locator("#which")).to_have_text("default, seed 7")
        assert page.locator(".panes.heads select").first.input_value() == chosen
        page.goto("about:blank")
        page.goto(f"{(report / 'disagreements.html').as_uri()}#at=elsewhere&seed=1")
        expect(page.locator("#which")).to_contain_text("do not disagree here")


def test_curves_change_their_axes_and_zoom_and_the_address_keeps_it(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "curves.html").as_uri())
        ticks = page.locator("#drawing .ticks-x text")
        expect(ticks.last).to_have_text("25")
        page.locator("#choices [name=log]").select_option("y")
        expect(page.locator("#drawing figcaption")).to_contain_text("what is not above 0 is left out")
        assert page.url.endswith("#log=y")
        panel = page.locator("#drawing .panel > svg > svg").bounding_box()
        assert panel is not None
        page.mouse.move(panel["x"] + 0.5 * panel["width"], panel["y"] + 5)
        page.mouse.down()
        page.mouse.move(panel["x"] + 0.7 * panel["width"], panel["y"] + 40)
        page.mouse.up()
        expect(page).to_have_url(re.compile("zoom="))
        zoomed = ticks.all_text_contents()
        assert zoomed and all(12 < float(text) < 23 for text in zoomed)
        shared = page.url
        page.goto("about:blank")
        page.goto(shared)
        expect(ticks).to_have_text(zoomed)
        page.get_by_role("button", name="Whole curve").click()
        expect(ticks.last).to_have_text("25")
        page.keyboard.press("Escape")
        page.locator("h1").click()
        page.keyboard.press("+")
        expect(page).to_have_url(re.compile("zoom="))


def test_ten_thousand_runs_stay_small_and_quick(browser: Browser, large: tuple[Path, int]) -> None:
    index, size = large
    on_disk = sum(file.stat().st_size for file in index.parent.rglob("*.*"))
    assert size == on_disk < 4_000_000
    with Visit(browser) as page:
        page.goto((index.parent / "runs.html").as_uri())
        expect(page.locator("#count")).to_have_text("10,000 runs")
        page.get_by_label("Search").fill("s19 arm")
        expect(page.locator("#count")).to_have_text("550 of 10,000 runs")
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#count")).to_have_text("10,000 runs")
        page.locator("#region").evaluate("region => region.scrollTop = region.scrollHeight")
        expect(page.locator("#table tr[aria-rowindex='10001']")).to_be_visible()
        every = "document.createNodeIterator(document).nextNode() && (() => { let n = 0; for (const i = document.createNodeIterator(document); i.nextNode();) n++; return n; })()"
        assert page.evaluate(every) <= 2500
        page.locator("#table tbody a").last.click()
        expect(page.locator("#run")).to_contain_text("metric9")
