"""Report pages of the market: what they show, what they leave out, and what they must never let through."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import bakeoff
from bakeoff.cli import main
from bakeoff.records.edition import Edition
from bakeoff.records.layout import EditionPaths
from bakeoff.results.editions import edition_results
from bakeoff.web.contents import Contents
from bakeoff.web.figure import Rule
from bakeoff.web.folder import write
from bakeoff.web.page import Page
from bakeoff.workloads.market import pages as made
from bakeoff.workloads.market.outputs import ACTIONS
from bakeoff.workloads.market.pages import charts, content
from bakeoff.workloads.market.pages import runs as tables
from bakeoff.workloads.market.pages.runs import Mean, Played, chosen, mean_over_tasks

NASTY = "<script>alert(1)</script>"
AGENT = f"""
class Loud:
    name = "loud"
    def reset(self, brief): pass
    def act(self, seat):
        seat.post("{NASTY}")
        if seat.observe()["tick"] == 1:
            seat.buy("market-none", "YES", 10)
"""
SPEC = """
name = "markets"
workload = "market"
seeds = 2
task_keys = ["regime"]
[params]
duration_minutes = 6
markets = 2
perpetuals = 1
agents = 3
outputs = true
[matrix]
regime = ["calm", "trend"]
[[arms]]
name = "quiet"
params.agent = "null"
[[arms]]
name = "follow"
params.agent = "random"
[[arms]]
name = "loud & <b>"
params.agent = "loud.py:Loud"
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bakeoff.Experiment:
    place = tmp_path_factory.mktemp("lab")
    (place / "loud.py").write_text(AGENT)
    (place / "markets.toml").write_text(SPEC)
    ran = bakeoff.load(place / "markets.toml", root=place / "runs")
    ran.run(jobs=1)
    return ran


@pytest.fixture(scope="module")
def pages(kept: bakeoff.Experiment) -> dict[str, Page]:
    with closing(Edition.open(kept.edition)) as edition:
        return {page.slug: page for page in made.report_pages(Contents(edition_results(edition)))}


class Tags(HTMLParser):
    """Every tag that is opened must be closed in order, and addresses must stay here."""

    VOID = frozenset({"br", "input", "use", "path"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.slow
def test_pages_have_their_names_and_are_sound_html_without_addresses_outside(pages: dict[str, Page]) -> None:
    assert list(pages) == ["summary", "equity", "prices", "timeline", "detailed", "social"]
    exported = {name for page in pages.values() for name in page.files if not name.startswith("assets/")}
    assert exported == {"metrics.csv", "actions.csv", "equity.csv"}
    known = {"index.html", *exported, *(f"{slug}.html" for slug in pages)}
    for page in pages.values():
        tags = Tags(page.html)
        assert not tags.open
        for picture in page.body().pictures:
            known |= {f"assets/{picture.slug}.svg", f"assets/{picture.slug}.csv", f"table-{picture.slug}.html"}
        assert all(link.partition("#")[0] in known or link.startswith("#") for link in tags.links)


@pytest.mark.slow
def test_what_agents_say_and_how_arms_are_called_is_never_markup(pages: dict[str, Page]) -> None:
    for page in pages.values():
        assert NASTY not in page.html and "<b>" not in page.html
    assert "&lt;script&gt;alert(1)" in pages["social"].html and "&lt;script&gt;alert(1)" in pages["detailed"].html


def test_summary_shows_means_over_tasks_with_their_n(pages: dict[str, Page], kept: bakeoff.Experiment) -> None:
    table = kept.table()
    mean = table.filter(table["arm"] == "follow")["total_pnl"].mean()
    assert f"{mean:.4g}" in pages["summary"].html and "n = 4" in pages["summary"].html
    assert len(rows(pages["summary"].files["metrics.csv"])) == 12


def test_the_log_has_every_action_with_what_came_of_it(pages: dict[str, Page]) -> None:
    exported = rows(pages["detailed"].files["actions.csv"])
    loud = [row for row in exported if row["arm"] == "loud & <b>"]
    assert len(loud) == 4 * 7  # a post in each of six ticks and one bad order, on two tasks with two seeds
    (refused,) = {row["error"] for row in loud if row["success"] == "False"}
    assert "market-none" in refused and "market-none" in pages["detailed"].html
    assert pages["detailed"].html.count("<tr data-action=") == len(exported)
    assert pages["detailed"].html.count('data-good="0"') == sum(row["success"] == "False" for row in exported)


def test_equity_has_every_tick_of_every_run_and_a_panel_for_each_task(pages: dict[str, Page]) -> None:
    exported = rows(pages["equity"].files["equity.csv"])
    assert len(exported) == 12 * 7 and {row["tick"] for row in exported} == {str(tick) for tick in range(7)}
    assert pages["equity"].html.count("<svg viewBox") == 2


def test_prices_show_the_agent_that_earned_most_with_its_trades_and_the_outcomes(pages: dict[str, Page]) -> None:
    html = pages["prices"].html
    assert "follow · regime=calm · seed 0" in html and "quiet · regime" not in html
    assert "price of YES" in html and "mark price" in html and "outcome" in html


@pytest.mark.slow
def test_the_same_results_give_the_same_pages_in_a_report_of_the_usual_kind(
    kept: bakeoff.Experiment, pages: dict[str, Page], tmp_path: Path
) -> None:
    with closing(Edition.open(kept.edition)) as edition:
        again = made.report_pages(Contents(edition_results(edition)))
        assert {page.slug: page.html for page in again} == {slug: page.html for slug, page in pages.items()}
        written = write(edition_results(edition), tmp_path / "report")
    assert not written.problems
    for name in ("summary.html", "detailed.html", "timeline.html", "actions.csv", "metrics.csv", "equity.csv"):
        assert (tmp_path / "report" / name).is_file()


def test_runs_without_files_still_have_summary_and_equity_and_pages_say_how_to_keep_them(
    kept: bakeoff.Experiment, tmp_path: Path
) -> None:
    bare = shutil.copytree(kept.edition.directory, tmp_path / "markets" / "bare")
    for files in (bare / "runs").glob("*/out"):
        shutil.rmtree(files)
    with closing(Edition.open(EditionPaths(bare))) as edition:
        found = {page.slug: page for page in made.report_pages(Contents(edition_results(edition)))}
    assert "<svg" in found["equity"].html and "P&amp;L" in found["summary"].html
    for slug in ("prices", "timeline", "detailed", "social"):
        assert "outputs = true" in found[slug].html and not found[slug].files


def played(place: Path, arms: int, seeds: int) -> Iterator[Played]:
    for arm in range(arms):
        for seed in range(seeds):
            files = place / f"{arm}-{seed}"
            files.mkdir()
            (files / "actions.csv").write_text(f"{','.join(ACTIONS)}\n0,a2a.createPost,{{}},True,,0.1,acted,{{}}\n")
            metrics = {"total_pnl": float(seed)}
            yield Played(f"arm-{arm}", "agent", "t", seed, f"seed {seed}", "succeeded", metrics, files)


def test_many_runs_are_shown_by_one_of_each_agent_and_what_does_not_fit_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list(played(tmp_path, arms=4, seeds=20))
    assert [run.label for run in chosen(runs)] == ["seed 0"] * 4
    whole = content.detailed_page(runs)
    assert whole.html.count("<details") == 4 and len(rows(whole.files["actions.csv"])) == 80
    monkeypatch.setattr(content, "MAX_LOG_BYTES", 1_000)
    short = content.detailed_page(runs)
    shown = short.html.count("<details")
    assert 1 <= shown < 4 and f"{4 - shown} more do not fit" in short.html


def test_a_refused_action_does_not_cover_one_of_its_kind_that_succeeded_in_the_same_tick(tmp_path: Path) -> None:
    (run,) = played(tmp_path, arms=1, seeds=1)
    with (run.files / "actions.csv").open("a") as log:
        log.write("0,a2a.createPost,{},False,refused,0.1,acted,\n")
    assert "did not succeed" not in content.timeline_page([run]).html
    with (run.files / "actions.csv").open("a") as log:
        log.write("1,a2a.createPost,{},False,refused,0.1,acted,\n")
    assert "did not succeed" in content.timeline_page([run]).html


def test_dots_of_a_long_world_do_not_lie_on_each_other(tmp_path: Path) -> None:
    (run,) = played(tmp_path, arms=1, seeds=1)
    with (run.files / "actions.csv").open("a") as log:
        log.writelines(f"{tick},a2a.createPost,{{}},True,,0.1,acted,{{}}\n" for tick in range(1, 2000))
    html = content.timeline_page([replace(run, metrics={"ticks": 2000})]).html
    assert "A dot stands for 34 ticks." in html
    assert html.count("<use") < 2 * charts.MAX_DOTS
    assert "2000</td>" in html


def test_tables_stop_between_runs_and_say_how_many_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_LINES", 3)
    download = tables.actions_csv(list(played(tmp_path, arms=1, seeds=5)))
    assert download.runs == 3 == len(rows(download.text))


def test_without_a_trade_there_are_no_prices_to_show(tmp_path: Path) -> None:
    assert "No agent has traded" in content.prices_page(list(played(tmp_path, arms=2, seeds=1))).html


def test_a_task_weighs_the_same_however_many_runs_it_has() -> None:
    values = [("a", 0.0), ("a", 0.0), ("a", 0.0), ("b", 8.0)]
    runs = [Played("x", "x", task, 0, "", "succeeded", {"total_pnl": value}, Path()) for task, value in values]
    assert mean_over_tasks(runs, "x", "total_pnl") == Mean(4.0, 4)
    assert mean_over_tasks(runs, "x", "sharpe") == Mean(None, 0)


@pytest.mark.slow
def test_market_run_links_only_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = ["--duration", "5", "--markets", "2", "--perpetuals", "1", "--agents", "2"]
    for number, more in enumerate((["--agent", "random"], ["--agent", "random", "--agent", "null", "--runs", "2"])):
        result = CliRunner().invoke(main, ["market", "run", *world, *more, "--output", f"out-{number}"])
        assert result.exit_code == 0, result.output
        for page in Path(f"out-{number}").glob("*.html"):
            links = set(re.findall(r'(?:href|src)="([^"#:]+)"', page.read_text()))
            assert "index.html" in links
            assert all((page.parent / link).is_file() for link in links), page
    single = rows(Path("out-0/actions.csv").read_text())
    assert "arm" not in (single[0] if single else {})  # the run's own table, not replaced by the pages'
    assert {row["arm"] for row in rows(Path("out-1/actions.csv").read_text())} == {"random"}


@pytest.mark.parametrize(("announcements", "lines", "words"), [(3, 3, 3), (10, 10, 0), (40, 0, 0)])
def test_announcements_are_drawn_as_far_as_there_is_room(announcements: int, lines: int, words: int) -> None:
    rows = [{"tick": str(tick), "target": "BTCX", "price": "10", "index_price": "10"} for tick in range(60)]
    stories = [{"ticker": "BTCX", "event_tick": tick + 1, "theta": 1} for tick in range(announcements)]
    rules = [mark for mark in charts.perp_panel("BTCX", rows, [], {"stories": stories}).marks if isinstance(mark, Rule)]
    assert (len(rules), sum(bool(rule.label) for rule in rules)) == (lines, words)


@pytest.mark.slow
def test_an_agent_that_did_nothing_has_pages_without_empty_pictures(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["market", "run", "--agent", "null", "--duration", "6", "--markets", "2", "--output", str(tmp_path)]
    )
    assert result.exit_code == 0
    assert "No agent did anything" in (tmp_path / "timeline.html").read_text()
    assert "+1e4" not in (tmp_path / "equity.html").read_text()
