"""The report in a real browser, opened from the file system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from bakeoff.results.editions import edition_results
from bakeoff.results.table import Results, Row
from bakeoff.web.folder import write
from support.experiments import TROUBLE, TROUBLE_CODE
from support.processes import Lab

pytestmark = pytest.mark.browser
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
    return page.locator(f"#table tbody tr > :nth-child({column})").all_inner_texts()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_pages_load_without_a_complaint_and_fit_the_screen(
    browser: Browser, report: Path, scheme: str, width: int
) -> None:
    with Visit(browser, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        for name in ("index.html", "run.html"):
            page.goto((report / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_headings_sort_by_keyboard_and_say_so(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "index.html").as_uri())
        heading = page.locator("#table th", has_text="score")
        heading.locator("button").focus()
        page.keyboard.press("Enter")
        expect(heading).to_have_attribute("aria-sort", "ascending")
        ascending = [float(text) for text in shown(page, 7) if text != "-"]
        assert len(ascending) > 50 and ascending == sorted(ascending)
        page.keyboard.press("Enter")
        expect(heading).to_have_attribute("aria-sort", "descending")
        descending = [float(text) for text in shown(page, 7) if text != "-"]
        assert descending == ascending[::-1]
        assert shown(page, 7)[-1] == "-", "runs without a value are last, whichever way"


def test_filters_narrow_the_table_together(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "index.html").as_uri())
        expect(page.locator("#count")).to_have_text("72 runs")
        page.locator("select[name=status]").select_option("failed")
        expect(page.locator("#count")).to_have_text("6 of 72 runs")
        page.locator("select[name=arm]").select_option("wild")
        assert set(shown(page, 2)) == {"wild"} and len(shown(page, 2)) == 2
        page.get_by_label("Search").fill("S7")
        assert shown(page, 4) == ["7"]
        page.get_by_label("Search").fill("nothing like it")
        expect(page.locator("#place")).to_have_text("no run matches")
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#count")).to_have_text("72 runs")


def test_a_line_leads_to_the_page_of_its_run(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto((report / "index.html").as_uri())
        page.locator("select[name=status]").select_option("failed")
        run_id = page.locator("#table tbody a").first.get_attribute("title")
        page.locator("#table tbody a").first.click()
        expect(page.locator("h1")).to_have_text(run_id or "")
        expect(page.locator("#run")).to_contain_text("In a terminal")
        told = page.locator("#run").inner_text()
        assert (
            "the <b>model</b> said no" in told and "<script>alert(1)</script>" in told and "red <b>not bold</b>" in told
        )
        assert page.locator("#run section", has_text="Attempts").locator("tbody tr").count() == 2
        page.get_by_role("link", name="Previous run").click()
        expect(page.locator("h1")).not_to_have_text(run_id or "")
        expect(page.locator(".chart svg")).to_have_count(1)
        files = [
            link.get_attribute("href") for link in page.locator("#run section", has_text="Files").locator("a").all()
        ]
        assert any(quote("model & notes.txt") in (link or "") for link in files)
        page.locator("a", has_text="model & notes.txt").click()
        assert page.inner_text("body") == "weights"


def test_a_run_that_is_not_there_is_said_to_be_missing(browser: Browser, report: Path) -> None:
    with Visit(browser) as page:
        page.goto(f"{(report / 'run.html').as_uri()}#nobody")
        expect(page.locator("#run")).to_contain_text("There is no run called nobody")


def test_ten_thousand_runs_stay_small_and_quick(browser: Browser, large: tuple[Path, int]) -> None:
    index, size = large
    on_disk = sum(file.stat().st_size for file in index.parent.rglob("*.*"))
    assert size == on_disk < 3_000_000
    with Visit(browser) as page:
        page.goto(index.as_uri())
        expect(page.locator("#count")).to_have_text("10,000 runs")
        assert len(shown(page, 1)) == 100
        taken = page.evaluate(
            """() => {
                const form = document.getElementById("filters"), times = [];
                const timed = (act) => { const start = performance.now(); act(); document.body.offsetHeight; times.push(performance.now() - start); };
                for (const button of document.querySelectorAll("#table th button")) timed(() => button.click());
                timed(() => { form.elements.text.value = "s19 arm"; form.elements.text.dispatchEvent(new Event("input", {bubbles: true})); });
                return Math.max(...times);
            }"""
        )
        assert taken < 4000, f"one click took {taken:.0f} ms"
        expect(page.locator("#count")).to_have_text("550 of 10,000 runs")
        page.get_by_role("button", name="Next").click()
        expect(page.locator("#place")).to_have_text("101 to 200 of 550")
        page.locator("#table tbody a").last.click()
        expect(page.locator("#run")).to_contain_text("metric9")
