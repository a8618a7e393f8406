"""The report is whole, says what happened, escapes what it is given, and is the same bytes every time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from html.parser import HTMLParser
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from bakeoff.engine.session import Options, open_session
from bakeoff.errors import StorageError
from bakeoff.results.editions import edition_results
from bakeoff.spec.load import load_plan
from bakeoff.text import number, printable
from bakeoff.web import page, site
from bakeoff.web.contents import Contents
from bakeoff.web.folder import write
from bakeoff.web.page import Page, WorkloadPages
from support.experiments import TROUBLE, TROUBLE_CODE
from support.processes import Lab

PLAIN = """
name = "plain"
seeds = 3
[params]
command = ["true"]
[[arms]]
name = "only"
"""


NOT_BEGUN = """
name = "idle"
workload = "python"
seeds = 2
params.function = "idle_work:play"
analysis = { metric = "score", tasks = "fixed", seeds = "nested" }
arms = [{ name = "a" }, { name = "b" }]
tasks = [{ name = "x" }, { name = "y" }]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One experiment with everything in it: failures, retries, ablations, costs, series, files and nasty names."""
    with Lab(tmp_path_factory.mktemp("site")) as lab:
        lab.experiment(TROUBLE, "trouble", trouble_work=TROUBLE_CODE)
        lab.run("trouble")
        lab.experiment(PLAIN, "plain")
        lab.run("plain")
        yield lab


@pytest.fixture(scope="module")
def report(lab: Lab) -> Path:
    with closing(lab.edition("trouble")) as edition:
        return write(edition_results(edition), lab.place / "report").index.parent


class Reader(HTMLParser):
    """Text outside scripts, links, ids, and elements that were opened and not closed."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self._open.append(tag)
        self.links += [value for name in ("href", "src") if (value := found.get(name))]
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" not in self._open[-1:]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.mark.slow
def test_the_front_page_says_what_was_run_what_failed_and_who_won(report: Path) -> None:
    text = Reader(report / "index.html").text
    assert "Better: clever <v2> against plain & simple on score" in text
    assert "failed runs" not in text and "Failures" in text
    assert "ValueError: the <b>model</b> said no on seed 3" in text
    assert "score by step" in Reader(report / "curves.html").text
    for word in ("Distribution of score", "score against cost_usd", "changes nothing", "command line"):
        assert word in text, word


@pytest.mark.slow
def test_every_link_on_every_page_leads_somewhere(report: Path) -> None:
    pages = {name: Reader(report / name) for name in ("index.html", "run.html")}
    for name, reader in pages.items():
        assert reader.links
        for link in reader.links:
            address, _, place = link.partition("#")
            if link.startswith("data:"):
                continue
            assert "//" not in link, f"{name} would go to the network: {link}"
            assert (report / (address or name)).exists(), f"{name} links to {link}"
            if place and address in ("", "index.html"):
                assert place in pages[address or name].ids, f"{name} links to {link}"


def test_no_id_stands_twice_on_a_page(report: Path) -> None:
    for name in ("index.html", "run.html"):
        ids = Reader(report / name).ids
        assert len(ids) == len(set(ids))


def test_nothing_that_a_run_said_becomes_markup_or_a_terminal_escape(report: Path) -> None:
    for file in [*report.glob("*.html"), *(report / "assets").glob("[!p]*.js")]:
        content = file.read_text()
        assert "\x1b" not in content
        assert "<b>model" not in content and "<script>alert" not in content and "clever <v2>" not in content
    assert not {"b", "i"} & Reader(report / "index.html").tags


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes_and_an_earlier_report_leaves_nothing_behind(
    lab: Lab, report: Path
) -> None:
    before = {str(file.relative_to(report)): file.read_bytes() for file in report.rglob("*.*")}
    (report / "assets" / "details-99.js").write_text("of a report that had more runs")
    with closing(lab.edition("trouble")) as edition:
        write(edition_results(edition), report)
    assert {str(file.relative_to(report)): file.read_bytes() for file in report.rglob("*.*")} == before


@pytest.mark.slow
def test_the_command_says_where_the_report_is(lab: Lab) -> None:
    told = lab.cli("report", "plain").stdout
    index = lab.directory("plain") / "report" / "index.html"
    assert told.startswith(f"wrote: {index} ") and index.exists()
    facts = json.loads(lab.look("report", "plain", "--out_dir", lab.place / "elsewhere", "--json").stdout)
    assert Path(facts["index"]) == lab.place / "elsewhere" / "index.html"
    assert facts["runs"] == 3 and 10_000 < facts["bytes"] < 300_000
    assert "not both" in lab.look("report", "plain", "--exp_dir", lab.place, code=2).stderr
    assert "no experiment" in lab.look("report", "--exp_dir", lab.place / "nowhere", code=2).stderr


@pytest.mark.slow
def test_a_verdict_that_cannot_be_given_says_why_and_the_rest_is_there(lab: Lab) -> None:
    lab.experiment(TROUBLE.replace("bounds = [-5.0, 15.0]", "").replace('"trouble"', '"unscored"'), "unscored")
    lab.run("unscored", overrides=("seeds=4",))
    with closing(lab.edition("unscored")) as edition:
        text = Reader(write(edition_results(edition), lab.place / "unscored").index).text
    assert "No verdict. run wild__" in text and "analysis.failure_score" in text
    assert "Distribution of score" in text and "(1 failed)" in text


@pytest.mark.slow
def test_a_run_still_to_come_is_not_called_a_failure(lab: Lab) -> None:
    lab.experiment(TROUBLE.replace('"trouble"', '"begun"'), "begun")
    lab.run("begun", overrides=("seeds=3", "budget.runs=9"))
    with closing(lab.edition("begun")) as edition:
        text = Reader(write(edition_results(edition), lab.place / "begun").index).text
    assert "Not complete." in text and "not final" in text and "Failures" not in text
    assert not re.search(r"interval|\bp =|p-value|\b(better|worse|equivalent|undecided)\b", text), (
        "before the end of a fixed design"
    )


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(lab: Lab) -> None:
    (lab.place / "file").write_text("")
    with closing(lab.edition("trouble")) as edition, pytest.raises(StorageError, match="file"):
        write(edition_results(edition), lab.place / "file")


TIMELINES = Path(__file__).with_name("timelines.html.j2")


def own_pages(contents: Contents) -> Sequence[Page]:
    return [Page("Timelines", "timelines", TIMELINES, lambda: {"count": len(contents.runs)})]


def bad_pages(contents: Contents) -> Sequence[Page]:
    return [Page("Clash", "index", TIMELINES)]


@pytest.mark.parametrize("function", [own_pages, bad_pages])
def test_a_workload_adds_pages_and_a_bad_one_does_not_cost_the_report(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, function: object
) -> None:
    name = function.__name__  # type: ignore[attr-defined]
    entry = EntryPoint("command", f"{__name__}:{name}", page.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: WorkloadPages(globals()[self.attr]))
    monkeypatch.setattr(site, "entry_points", lambda **wanted: EntryPoints([entry]).select(**wanted))
    with closing(lab.edition("plain")) as edition:
        written = write(edition_results(edition), lab.place / name)
    index = Reader(written.index)
    if function is own_pages:
        assert "timelines.html" in index.links
        assert "3 timelines" in Reader(lab.place / name / "timelines.html").text
    else:
        assert "'index' cannot be the name of a page" in written.problems[0] and written.problems[0] in index.text


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.0, "0"), (12345.6, "+12,346"), (0.00012, "+0.00012"), (float("inf"), "∞"), (None, "-"), (-61446.0, "-61,446")],
)
def test_numbers_are_written_for_readers(value: float | None, text: str) -> None:
    assert number(value, sign=True) == text


def test_escapes_are_taken_out_and_words_stay() -> None:
    assert printable("\x1b[31mred\x1b[0m\x1b]0;title\x07 ok\x00\n") == "red ok\n"


@pytest.mark.slow
def test_an_experiment_of_which_nothing_has_ended_has_a_report(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(NOT_BEGUN, "idle", idle_work="def play(seed):\n    return {'score': seed}\n")
    open_session(load_plan(file), Options(lab.root)).close()
    with closing(lab.edition("idle")) as edition:
        assert write(edition_results(edition), tmp_path / "report").runs == 8
