"""The viewer in a real browser, beside runs that end while somebody looks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from bakeoff.records.looks import read_looks
from support.experiments import TROUBLE, TROUBLE_CODE
from support.processes import LONG, Lab, eventually

pytestmark = pytest.mark.browser
expect.set_options(timeout=LONG * 1000)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
GATED = """
name = "gated"
workload = "python"
seeds = 12
params.function = "gated_work:play"
analysis = { metric = "score", control = "plain", bounds = [-9.0, 12.0] }
arms = [{ name = "plain", params = { skill = 0 } }, { name = "clever", params = { skill = 3 } }]
tasks = [{ name = "x" }]
"""
GATED_CODE = """
import time
from pathlib import Path


def play(ctx, skill):
    # Runs end when the test has opened the gate for their seed, so they end out of order.
    while not Path(f"gate-{ctx.seed}").exists() and not Path("gate").exists():
        time.sleep(0.01)
    if ctx.seed == 5:
        raise ValueError("no luck")
    return {"score": skill + ctx.rng("world").normal()}
"""
HOSTILE_CODE = r"""
def play(ctx, arm):
    print("x" * 10_000_000)
    print("\x1b[31mred\x1b[0m \x1b]0;owned\x07 <script>window.owned = 1</script> <img src=x onerror='window.owned = 1'>")
    print("\u202egnp.exe")
    (ctx.directory / "artifacts").mkdir(exist_ok=True)
    (ctx.directory / "artifacts" / "<img src=x onerror=alert(1)>.html").write_text("<script>window.owned = 1</script>")
    if ctx.seed == 1:
        raise ValueError("</pre><script>window.owned = 1</script>\x1b[2J\u202e")
    return {"score": 1.0 + ctx.seed, "<script>window.owned=1</script>": 2.0}
"""
HOSTILE = """
name = "hostile"
workload = "python"
seeds = 4
params.function = "hostile_work:play"
analysis = { metric = "score" }
arms = [{ name = "<script>window.owned = 1</script>", params = { arm = 1 } }, { name = "<b>b</b>", params = { arm = 2 } }]
tasks = [{ name = "\\"><img src=x onerror=alert(1)>" }]
"""


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
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("live")) as lab:
        lab.experiment(TROUBLE, "trouble", trouble_work=TROUBLE_CODE)
        lab.run("trouble")
        lab.experiment(HOSTILE, "hostile", hostile_work=HOSTILE_CODE)
        lab.run("hostile")
        lab.experiment(GATED, "gated", gated_work=GATED_CODE)
        yield lab


@pytest.fixture(scope="module")
def place(lab: Lab) -> Iterator[str]:
    """The address of a viewer of all experiments."""
    with serving(lab) as (_, place):
        yield place


@contextmanager
def serving(lab: Lab) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The verb in a process of its own, and the address that it prints."""
    process = lab.start("view", "--port", "0", stderr=None)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving: "), line
    yield process, line.removeprefix("serving: ").strip()
    process.terminate()
    assert process.wait(timeout=LONG) in (0, -signal.SIGTERM, -signal.SIGKILL)


class Visit:
    """A page without any complaint in its console, and without a request to anybody else."""

    def __init__(self, browser: Browser, place: str, **context: object) -> None:
        self.context = browser.new_context(**context)  # type: ignore[arg-type]
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG * 1000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on(
            "request",
            lambda request: (
                self.complaints.append(request.url) if not request.url.startswith((place, "data:")) else None
            ),
        )

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: object, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert self.complaints == []


def edition(lab: Lab, place: str, name: str) -> str:
    return f"{place}e/{name}/{lab.directory(name).name}"


def counts(page: Page) -> dict[str, int]:
    shown = {tile.get_attribute("data-status"): int(tile.inner_text()) for tile in page.locator("[data-status]").all()}
    return {str(status): count for status, count in shown.items() if count}


def open_gates(lab: Lab, *seeds: int) -> None:
    for seed in seeds:
        (lab.place / f"gate-{seed}").touch()


def test_a_page_follows_its_runs_through_a_kill_of_the_scheduler_without_a_reload(
    browser: Browser, lab: Lab, place: str
) -> None:
    lab.measured = False
    scheduler = lab.start("run", "gated.toml", "--jobs", "3", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: lab.statuses("gated")["running"], "runs are running")
    with Visit(browser, place) as page:
        page.goto(place)
        page.get_by_role("link", name="gated").click()
        page.evaluate("window.loaded = true")
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".line .badge")).to_have_text("running")
        open_gates(lab, 3, 1, 0)
        eventually(lambda: lab.statuses("gated")["succeeded"], "a run has ended")
        expect(page.locator("#ended")).not_to_have_text("0")
        expect(page.get_by_text("not final")).to_be_visible()
        text = page.locator("main").inner_text()
        assert not re.search(r"better|worse|equivalent|undecided|interval|p[- ]value| p =", text, re.I), text
        os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.wait()
        expect(page.locator(".line .badge")).to_have_text("unfinished")
        open_gates(lab, 5, 11, 4)
        (lab.place / "gate").touch()
        lab.cli("run", "gated.toml", "--jobs", "3", code=1)  # one seed fails
        expect(page.locator("#ended")).to_have_text("24")
        expect(page.locator(".line .badge")).to_have_text("complete")
        assert counts(page) == {"succeeded": 22, "failed": 2} == lab.statuses("gated")
        expect(page.get_by_role("heading", name="Verdicts")).to_be_visible()
        assert "not final" not in page.locator("main").inner_text()
        expect(page.locator(".ranked .badge.better")).to_have_count(1)
        assert page.evaluate("window.loaded"), "the page was not loaded again"
    with closing(lab.edition("gated")) as recorded:
        kinds = [look.kind for look in read_looks(recorded) if look.verb == "view"]
    assert kinds[-1] == "verdict" and "verdict" not in kinds[:-1]


def test_runs_are_found_by_keyboard_and_the_address_holds_the_view(browser: Browser, lab: Lab, place: str) -> None:
    with Visit(browser, place) as page:
        page.goto(f"{edition(lab, place, 'trouble')}/runs.html")
        count = page.locator("#count")
        expect(count).to_have_text("72 runs")
        page.keyboard.press("f")
        page.keyboard.type("failed")
        expect(count).to_have_text("6 of 72 runs")
        assert "status=failed" in page.url
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("S7__ wild")
        expect(count).to_have_text("3 of 72 runs")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("wild")
        expect(page.locator("#run")).to_contain_text("said no on seed 7")
        page.go_back()
        expect(count).to_have_text("3 of 72 runs")
        page.get_by_role("button", name="Clear").focus()
        page.keyboard.press("Enter")
        expect(count).to_have_text("72 runs")
        page.locator("button[data-sort='score']").focus()
        page.keyboard.press("Enter")
        expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
        page.keyboard.press("Enter")
        expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
        scores = [
            float(text) for text in page.locator("#table tbody tr td:nth-child(7)").all_inner_texts() if text != "-"
        ]
        assert len(scores) > 50 and scores == sorted(scores, reverse=True)
        assert "sort=-score" in page.url
        page.locator("summary", has_text="Columns").focus()
        page.keyboard.press("Enter")
        page.get_by_label("tokens").uncheck()
        expect(page.locator("#table thead")).not_to_contain_text("tokens")
        page.reload()
        expect(page.locator("#table thead")).not_to_contain_text("tokens")
        expect(page.locator("th[aria-sort=descending]")).to_have_count(1)


def test_a_run_is_fetched_when_it_is_opened_and_keys_lead_to_its_neighbours(
    browser: Browser, lab: Lab, place: str
) -> None:
    with Visit(browser, place) as page:
        page.goto(f"{edition(lab, place, 'trouble')}/runs.html#status=failed")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.locator("#table tbody a").first.click()
        expect(page.locator("#run")).to_contain_text("said no on seed")
        assert [url for url in asked if "parts/run?" in url]
        for heading in ("Error", "Attempts", "Provenance"):
            expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        name = page.locator("h1").inner_text()
        page.keyboard.press("j")
        expect(page.locator("h1")).not_to_have_text(name)
        page.keyboard.press("k")
        expect(page.locator("h1")).to_have_text(name)
        page.goto(f"{edition(lab, place, 'trouble')}/run.html#nobody")
        expect(page.locator("#run")).to_contain_text("There is no run called nobody")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 400)])
def test_what_runs_wrote_is_inert_and_readable(browser: Browser, lab: Lab, place: str, scheme: str, width: int) -> None:
    with Visit(browser, place, color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
        base = edition(lab, place, "hostile")
        with closing(lab.edition("hostile")) as recorded:
            run_id = next(recorded.runs(("succeeded",))).run_id
        for name in ("index.html", "runs.html", f"run.html#{run_id}"):
            page.goto(f"{base}/{name}")
            expect(page.locator("#live")).to_have_text("Live")
            expect(page.locator("[aria-busy=true]")).to_have_count(0)
            expect(page.locator("main")).to_contain_text("<script>window.owned")
            assert page.evaluate("window.owned") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        log = page.locator("pre", has_text="gnp.exe")
        assert len(log.inner_text()) < 300_000 and "\u202e" not in log.inner_text() and "\x1b" not in log.inner_text()
        link = page.get_by_role("link", name=re.compile("onerror"))
        link.click()
        assert page.locator("body").inner_text() == "<script>window.owned = 1</script>", "a file is shown as text"
        assert page.evaluate("window.owned") is None


def test_a_viewer_with_an_open_page_ends_without_a_complaint(lab: Lab) -> None:
    import urllib.request

    process = lab.start("view", "--port", "0")
    assert process.stdout is not None and process.stderr is not None
    place = process.stdout.readline().removeprefix("serving: ").strip()
    with urllib.request.urlopen(f"{place}events") as stream:
        assert stream.readline() == b"event: changed\n"
        process.terminate()
        while stream.readline():
            pass
    process.wait(timeout=LONG)
    assert process.stderr.read() == ""


def test_a_killed_viewer_leaves_nothing(lab: Lab) -> None:
    before = set(lab.processes())
    with serving(lab) as (process, place):
        import urllib.request

        urllib.request.urlopen(f"{edition(lab, place, 'trouble')}/parts/standing").read()
        assert len(set(lab.processes()) - before) == 2, "the server, and what makes verdicts"
        process.kill()
        eventually(lambda: not set(lab.processes()) - before, "both have ended")
