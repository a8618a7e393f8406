"""The viewer beside large and busy editions: first rows, filters, scrolling, an update's cost, and what it takes from the runs."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from measure import BAKEOFF, check, environment, machine, options, publish, say, versions, wait_for_calm, workspace
from playwright.sync_api import CDPSession, Page, expect, sync_playwright

from bakeoff.records import layout
from bakeoff.records.edition import Edition
from bakeoff.records.run import RunRecord
from bakeoff.spec.load import load_plan
from bakeoff.text import number
from bakeoff.web.live import views
from bakeoff.web.live.places import EditionPlace
from bakeoff.web.live.rows import Query

EXPERIMENT = """
name = "{name}"
workload = "python"
seeds = {seeds}
params.function = "nothing:play"
analysis = {{ metric = "score" }}
arms = [{arms}]
tasks = [{tasks}]
"""
ARMS, TASKS = 10, 10
NOTHING = "def play(ctx):\n    return {'score': 1.0}\n"
LISTEN = """
import sys, urllib.request
place = sys.argv[1]
with urllib.request.urlopen(place + "/events") as stream:
    for line in stream:
        if line.startswith(b"data: "):
            for name in line[6:].split():
                part = {b"progress": "progress", b"runs": "rows?count=60"}.get(name)
                if part:
                    urllib.request.urlopen(place + "/parts/" + part).read()
"""
METHOD = (
    "Editions of 10,000 and 100,000 runs are made through the records, half of their runs ended. First rows: from the request "
    "until a row is in Chromium's page, with the viewer already serving; a filter: from the choice of a status until its rows are "
    "there. Work of a scroll step: processor time of the page's thread (ThreadTime of the Chrome DevTools protocol), 60 steps of ten rows. An update: processor "
    "time of `Watch.refresh`, the progress and a window of rows after 20 runs ended. Commit to screen: from the return of "
    "`Edition.finish` until the count on the page has changed. Throughput: processor time of `bakeoff run` with its workers, of runs that do nothing (wall time is among the figures), in turns without a viewer "
    "and with a viewer of two clients that hold the event stream and fetch what changes."
)


def make(directory: Path, runs: int, name: str = "large") -> layout.EditionPaths:
    """Plan an edition and let the first half of its runs end."""
    entries = [", ".join(f'{{ name = "{word}{n}" }}' for n in range(count)) for word, count in (("arm", ARMS), ("task", TASKS))]  # fmt: skip
    directory.mkdir(exist_ok=True)
    file = directory / f"{name}.toml"
    (directory / "nothing.py").write_text(NOTHING)
    file.write_text(EXPERIMENT.format(name=name, seeds=runs // (ARMS * TASKS), arms=entries[0], tasks=entries[1]))
    plan = load_plan(file)
    paths = layout.new_edition(layout.experiment_directory(directory / "root", name))
    paths.lease.touch()
    with closing(Edition.create(plan, paths)) as edition:
        edition.add_cells(plan.cells, frozenset())
        edition.add_runs(plan)
        edition.begin_session({"host": "here"}, edition.planned())
        records = list(edition.runs(limit=runs // 2))
        for start in range(0, len(records), 2000):
            finish(edition, records[start : start + 2000])
    return paths


def finish(edition: Edition, records: list[RunRecord]) -> None:
    edition.finish(
        [
            run.next_attempt(
                status="failed" if run.position % 97 == 0 else "succeeded", started_at=1e9 + run.position,
                ended_at=1e9 + run.position + 0.5, error=f"no luck at {run.position}" if run.position % 97 == 0 else None,
                metrics={f"metric{k}": run.position / (k + 1) for k in range(8)} | {"score": 1.0},
            )
            for run in records
        ],
        1,
    )  # fmt: skip


@contextmanager
def serving(root: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [*BAKEOFF, "view", "--port", "0", "--root", str(root)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("serving: ").strip()
    finally:
        process.terminate()
        process.wait()


def edition_address(place: str, paths: layout.EditionPaths) -> str:
    return f"{place}{EditionPlace(paths).address}"


# -- in the browser


def in_browser(directory: Path, runs: int, commits: int) -> dict[str, float]:
    paths = make(directory, runs)
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: scripts/install-chromium.sh"
    with serving(directory / "root") as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(120_000)
        base = edition_address(place, paths)
        # The first page opens the edition: that is not what a page of it takes.
        page.goto(f"{base}/index.html")
        page.goto("about:blank")
        began = time.perf_counter()
        page.goto(f"{base}/runs.html", wait_until="commit")
        page.wait_for_selector("#table tbody tr")
        first = time.perf_counter() - began
        began = time.perf_counter()
        page.select_option("select[name=status]", "failed")
        expect(page.locator("#count")).to_contain_text(" of ", timeout=60_000)
        filtered = time.perf_counter() - began
        page.select_option("select[name=status]", "")
        expect(page.locator("#count")).not_to_contain_text(" of ", timeout=60_000)
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable")
        steps = scroll(page, tools, 60)
        nodes = page.evaluate(
            "(() => { let n = 0; const w = document.createTreeWalker(document); while (w.nextNode()) n++; return n; })()"
        )
        tools.send("HeapProfiler.collectGarbage")
        heap = metric(tools, "JSHeapUsedSize") / 1e6
        page.goto(f"{base}/index.html")
        page.wait_for_selector("#live.good")
        delays = commit_to_screen(page, paths, commits)
        size = sum(
            len(urllib.request.urlopen(f"{base}/{name}").read())
            for name in ("index.html", "assets/report.css", "assets/live.css", "assets/live.js")
        )
        browser.close()
    return {
        "first_rows_s": first, "filter_s": filtered, "scroll_ms": 1000 * statistics.median(steps), "slowest_scroll_ms": 1000 * max(steps), "nodes": nodes, "heap_mb": heap,
        "commit_to_screen_ms": statistics.median(delays), "first_paint_kb": size / 1000,
    }  # fmt: skip


def metric(tools: CDPSession, name: str) -> float:
    metrics = tools.send("Performance.getMetrics")["metrics"]
    return float(next(entry["value"] for entry in metrics if entry["name"] == name))


def scroll(page: Page, tools: CDPSession, steps: int) -> list[float]:
    """Seconds of processor time of the page's thread for each step of ten rows."""
    taken = []
    for _ in range(steps):
        before = metric(tools, "ThreadTime")
        page.evaluate(
            "new Promise((done) => { const port = document.getElementById('port'); port.scrollTop += 310; setTimeout(done, 150); })"
        )
        taken.append(metric(tools, "ThreadTime") - before)
    return taken


def commit_to_screen(page: Page, paths: layout.EditionPaths, commits: int) -> list[float]:
    """Milliseconds from a commit until the count that a reader sees has changed."""
    page.evaluate(
        """() => {
            window.seen = {};
            new MutationObserver(() => {
                const text = document.getElementById("ended")?.textContent.replaceAll(",", "");
                if (text && !(text in window.seen)) window.seen[text] = Date.now();
            }).observe(document.querySelector("[data-part=progress]"), {childList: true, subtree: true, characterData: true});
        }"""
    )
    committed = {}
    with closing(Edition.open(paths, readonly=False)) as edition:
        ended = edition.planned() - edition.counts()["planned"]
        for run in list(edition.runs(("planned",), limit=commits)):
            finish(edition, [run])
            ended += 1
            committed[str(ended)] = time.time() * 1000
            time.sleep(0.3)
    expect(page.locator("#ended")).to_have_text(number(ended), timeout=60_000)
    seen = page.evaluate("window.seen")
    return [seen[text] - at for text, at in committed.items() if text in seen]


# -- in this process


def update_ms(directory: Path, runs: int, rounds: int) -> float:
    """Processor time of an update, as the server makes it."""
    paths = make(directory, runs, f"of{runs}")
    place, taken = EditionPlace(paths), []
    queries = (Query(), Query(status="failed"), Query(sort="-metric3"))
    watch = place.watch()
    for query in queries:
        views.rows(place, query, 0, 60)
    with closing(Edition.open(paths, readonly=False)) as edition:
        waiting = list(edition.runs(("planned",), limit=20 * rounds))
        for start in range(0, len(waiting), 20):
            finish(edition, waiting[start : start + 20])
            began = time.thread_time()
            watch.refresh(time.time())
            views.progress(place, time.time())
            for query in queries:
                views.rows(place, query, 0, 60)
            taken.append(time.thread_time() - began)
    place.close()
    return 1000 * statistics.median(taken)


# -- beside a scheduler


def throughput(directory: Path, runs: int, rounds: int) -> dict[str, Any]:
    """Wall and processor seconds of `bakeoff run`, in turns without and with a viewer of two clients."""
    directory.mkdir()
    (directory / "nothing.py").write_text(NOTHING)
    file = directory / "busy.toml"
    file.write_text(EXPERIMENT.format(name="busy", seeds=runs, arms='{ name = "a" }', tasks='{ name = "x" }'))
    root = directory / "busy"
    argv = [*BAKEOFF, "run", str(file), "--fresh", "--root", str(root)]

    def measured() -> tuple[float, float]:
        began = time.perf_counter()
        run = subprocess.Popen(
            argv, cwd=directory, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(run.pid, 0)  # with its workers, which it waits for
        run.returncode = os.waitstatus_to_exitcode(status)
        assert run.returncode == 0
        return time.perf_counter() - began, used.ru_utime + used.ru_stime

    def watched() -> tuple[float, float]:
        known = {paths.name for paths in layout.editions(root / "busy")}
        clients: list[subprocess.Popen[bytes]] = []

        def attend() -> None:
            while not (
                fresh := [p for p in layout.editions(root / "busy") if p.name not in known and p.database.exists()]
            ):
                time.sleep(0.01)
            for _ in range(2):
                clients.append(
                    subprocess.Popen(
                        [sys.executable, "-c", LISTEN, edition_address(place, fresh[0])], stderr=subprocess.DEVNULL
                    )
                )

        with serving(root) as place:
            thread = threading.Thread(target=attend)
            thread.start()
            took = measured()
            thread.join()
        for client in clients:
            client.kill()
            client.wait()
        return took

    taken: dict[str, list[tuple[float, float]]] = {"alone": [], "watched": []}
    for _ in range(rounds):
        for name, side in (("alone", measured), ("watched", watched)):
            wait_for_calm(5.0)
            taken[name].append(side())
            say(f"  {name}: {taken[name][-1][0]:.2f} s, {taken[name][-1][1]:.2f} s of processor time")
    return {
        name: {
            "wall_s": min(wall for wall, _ in times),
            "processor_s": statistics.median(used for _, used in times),
            "times": times,
        }
        for name, times in taken.items()
    }


def main() -> None:
    given = options(__doc__ or "")
    runs, rounds = (10_000, 2) if given.quick else (100_000, 5)
    with workspace() as directory:
        say(f"a browser on {runs:,} runs")
        seen = in_browser(directory / "browser", runs, 10 if given.quick else 40)
        say("an update")
        small, large = (update_ms(directory / "update", n, 30) for n in (runs // 10, runs))
        say("beside a scheduler")
        busy = throughput(directory / "throughput", 2_000 if given.quick else 20_000, rounds)
        facts = machine(directory)
    alone, watched = (busy[name]["processor_s"] for name in ("alone", "watched"))
    of = f"{runs:,} runs"
    publish(
        "view", given,
        [
            check(f"first rows of {of}", f"{seen['first_rows_s']:.2f} s", "no peer", seen["first_rows_s"], 2, "under", "s"),
            check(f"a filter over {of}", f"{seen['filter_s']:.2f} s", "no peer", seen["filter_s"], 2, "under", "s"),
            check(f"nodes of the page, {of}", f"{seen['nodes']}", "no peer", seen["nodes"], 2_501, "under", "nodes"),
            check(f"heap of the page, {of}", f"{seen['heap_mb']:.1f} MB", "no peer", seen["heap_mb"], 50, "under", "MB"),
            check("median work of a scroll step", f"{seen['scroll_ms']:.1f} ms", "no peer", seen["scroll_ms"], 33, "under", "ms"),
            check(f"an update at {of} over {runs // 10:,}", f"{large:.2f} ms", f"{small:.2f} ms", large / small, 2, "under"),
            check("median from commit to screen", f"{seen['commit_to_screen_ms']:.0f} ms", "no peer", seen["commit_to_screen_ms"], 200, "under", "ms"),
            check("processor time of a run with two clients over none", f"{watched:.2f} s", f"{alone:.2f} s", watched / alone, 1.05, "under"),
            check("bytes until the first paint", f"{seen['first_paint_kb']:.0f} kB", "no peer", seen["first_paint_kb"], 100, "under", "kB"),
        ],
        {**seen, "update_ms": {"small": small, "large": large}, "throughput": busy},
        method=METHOD, facts=facts, programs=versions("starlette", "uvicorn", "playwright"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
