"""What the viewer answers and what it refuses, without a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bakeoff.records.edition import Edition
from bakeoff.records.looks import read_looks
from bakeoff.web.live.places import Catalogue
from bakeoff.web.live.server import Viewer
from support.experiments import TROUBLE, TROUBLE_CODE
from support.processes import Lab

WORDS = ("better", "worse", "equivalent", "undecided", "interval]", "p =", "p-value")
TOKEN = "a-secret-of-enough-letters"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("view")) as lab:
        lab.experiment(TROUBLE, "trouble", trouble_work=TROUBLE_CODE)
        lab.run("trouble")
        yield lab


@pytest.fixture
def viewer(lab: Lab) -> Iterator[Viewer]:
    viewer = Viewer(Catalogue(lab.root))
    yield viewer
    viewer.close()


def client(viewer: Viewer, host: str = "127.0.0.1", token: str = "", asked: str = "127.0.0.1:8765") -> TestClient:
    return TestClient(viewer.app(host, token), base_url=f"http://{asked}", follow_redirects=False)


def address(lab: Lab) -> str:
    return f"/e/trouble/{lab.directory('trouble').name}"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_foreign_host_gets_403_and_nothing_else(viewer: Viewer, host: str) -> None:
    answer = client(viewer).get("/", headers={"host": host})
    assert answer.status_code == 403 and "trouble" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765", "127.0.0.2"])
def test_every_name_of_loopback_is_answered(viewer: Viewer, host: str) -> None:
    assert client(viewer).get("/", headers={"host": host}).status_code == 200


def test_other_sites_and_other_methods_are_refused(viewer: Viewer, lab: Lab) -> None:
    site = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client(viewer).get(f"{address(lab)}/parts/standing", headers=site).status_code == 403
    assert client(viewer).get("/", headers={**site, "sec-fetch-mode": "navigate"}).status_code == 200
    assert client(viewer).post("/").status_code == 405


def test_outside_of_loopback_every_address_needs_the_token(viewer: Viewer, lab: Lab) -> None:
    asked = client(viewer, "0.0.0.0", TOKEN, "192.168.1.7:8765")
    for path in ("/", f"{address(lab)}/index.html", "/assets/live.js", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "/\u00e9/"):
        assert asked.get(path).status_code == 403, path
    home = asked.get(f"/{TOKEN}/")
    assert home.status_code == 200 and TOKEN not in home.text, "links are relative, so no page carries it"
    assert asked.get(f"/{TOKEN}{address(lab)}/index.html").status_code == 200
    assert asked.get(f"/{TOKEN}/", headers={"host": "evil.example"}).status_code == 403


def test_no_script_and_no_style_stands_in_a_page_and_nothing_may_come_from_elsewhere(viewer: Viewer, lab: Lab) -> None:
    asked = client(viewer)
    with closing(lab.edition("trouble")) as edition:
        run_id = next(edition.runs(("failed",))).run_id
    parts = ["progress", "standing", "rows?count=60", f"run?id={run_id}"]
    for path in ("/", *(f"{address(lab)}/{name}.html" for name in ("index", "runs", "run")), *(f"{address(lab)}/parts/{part}" for part in parts)):  # fmt: skip
        answer = asked.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert (
            answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
        )
        assert "<style" not in answer.text and " style=" not in answer.text and " onclick" not in answer.text, path
        assert answer.text.count("<script") == answer.text.count('<script type="module" src="assets/'), path
        for said in ("<b>model", "<script>alert", "clever <v2>", "<i>failures", "\x1b"):
            assert said not in answer.text, path
        assert "http" not in answer.text.replace("http://www.w3.org/", ""), path


def test_a_finished_design_shows_its_verdict_and_records_the_look(viewer: Viewer, lab: Lab) -> None:
    standing = client(viewer).get(f"{address(lab)}/parts/standing").text
    assert "Better: clever &lt;v2&gt; against plain &amp; simple on score" in standing
    with closing(lab.edition("trouble")) as edition:
        looks = [look for look in read_looks(edition) if look.verb == "view"]
    assert [look.kind for look in looks] == ["verdict"] and "better" in looks[0].verdicts.values()
    client(viewer).get(f"{address(lab)}/parts/standing")
    with closing(lab.edition("trouble")) as edition:
        assert len([look for look in read_looks(edition) if look.verb == "view"]) == 1, "the same look counts once"
    assert "better" in client(viewer).get("/").text


def test_a_design_that_is_not_complete_shows_counts_and_means_only(lab: Lab, tmp_path: Path) -> None:
    shutil.copytree(lab.root, tmp_path / "root", symlinks=True)
    viewer = Viewer(Catalogue(tmp_path / "root"))
    watch = viewer.catalogue.edition("trouble", lab.directory("trouble").name)
    assert watch is not None
    with closing(Edition.open(watch.paths, readonly=False)) as edition:
        edition.discard([(edition.edition_id, 0)])
    try:
        asked = client(viewer)
        for path in ("/", f"{address(lab)}/index.html", f"{address(lab)}/parts/standing", f"{address(lab)}/runs.html"):
            text = asked.get(path).text.lower()
            assert not [word for word in WORDS if word in text], path
        standing = asked.get(f"{address(lab)}/parts/standing").text
        assert "not final" in standing
        assert standing.index("plain &amp; simple") < standing.index("clever &lt;v2&gt;") < standing.index(">wild<")
        for name in ("curves", "matrix", "disagreements", "anything"):
            assert "too early" in asked.get(f"{address(lab)}/{name}.html").text
        assert asked.get(f"{address(lab)}/assets/forest-score.svg").status_code == 404
        assert asked.get(f"{address(lab)}/parts/verdicts").status_code == 404
        with closing(Edition.open(watch.paths)) as edition:
            kinds = {look.kind for look in read_looks(edition) if look.verb == "view"}
        assert "early" in kinds, "means were shown"
    finally:
        viewer.close()


SEQUENTIAL = """
name = "until"
workload = "python"
seeds = 40
params.function = "until_work:play"
sequential = {}
analysis = { metric = "score", control = "plain" }
arms = [{ name = "plain", params = { skill = 0.0 } }, { name = "clever", params = { skill = 2.0 } }]
"""
SEQUENTIAL_CODE = """
def play(ctx, skill):
    return {"score": skill + ctx.rng("world").normal() + 0.1 * ctx.rng("own", own=True).normal()}
"""


def test_a_sequential_test_shows_its_confidence_sequence_while_it_runs_and_nothing_that_assumes_one_look(
    tmp_path: Path,
) -> None:
    with Lab(tmp_path) as lab:
        lab.experiment(SEQUENTIAL, "until", until_work=SEQUENTIAL_CODE)
        lab.cli("run", "until.toml")
        viewer = Viewer(Catalogue(lab.root))
        base = f"/e/until/{lab.directory('until').name}"
        with closing(Edition.open(lab.edition("until").paths, readonly=False)) as edition:
            edition.discard([(edition.edition_id, edition.end_of_plan() - 1)])
        asked = client(viewer)
        standing = asked.get(f"{base}/parts/standing").text
        assert "95 % confidence sequence" in standing and 'id="figure-narrowing"' in standing
        assert 'id="arms"' not in standing and "t interval" not in standing
        assert asked.get(f"{base}/assets/narrowing.svg").text.count("<svg ") > 0
        assert "too early" in asked.get(f"{base}/matrix.html").text
        viewer.close()


def test_nothing_outside_of_an_edition_can_be_read(viewer: Viewer, lab: Lab, tmp_path: Path) -> None:
    with closing(lab.edition("trouble")) as edition:
        run_id = next(run.run_id for run in edition.runs() if run.status == "succeeded")
    home = lab.run_directory(run_id, "trouble")
    (tmp_path / "secret").write_text("a secret")
    (home / "out-of-here").symlink_to(tmp_path)
    (home / "page.html").write_text("<script>alert(1)</script>")
    asked, runs = client(viewer), f"{address(lab)}/runs"
    inside = asked.get(f"{runs}/{run_id}/page.html")
    assert inside.headers["content-type"] == "text/plain; charset=utf-8"
    assert inside.headers["content-security-policy"].startswith("sandbox")
    for path in (
        f"{run_id}/out-of-here/secret", f"{run_id}/../../experiment.db", f"{run_id}/%2e%2e/%2e%2e/experiment.db",
        "..%2f..%2fexperiment.db/x", "nobody/stdout.txt", f"{run_id}/%2fetc%2fpasswd", f"{run_id}/artifacts",
    ):  # fmt: skip
        answer = asked.get(f"{runs}/{path}")
        assert answer.status_code in (400, 404) and "secret" not in answer.text, path
    for path in ("/assets/..%2fserver.py", f"{address(lab)}/assets/..%2f..%2fexperiment.db", "/e/..%2f..%2f/x/index.html", "/e/trouble/latest/index.html"):  # fmt: skip
        assert asked.get(path).status_code == 404, path


def test_one_edition_that_was_named_is_served_alone(lab: Lab) -> None:
    from bakeoff.cli.view import _catalogue

    viewer = Viewer(_catalogue((str(lab.directory("trouble")),), lab.root, {}))
    assert client(viewer).get("/").headers["location"] == f"{address(lab)[1:]}/index.html"
    assert client(viewer).get(f"{address(lab)}/index.html").status_code == 200
    assert client(viewer).get("/e/other/20260101-000000/index.html").status_code == 404
    viewer.close()


def test_results_of_another_tool_get_pages_too(tmp_path: Path) -> None:
    from bakeoff.cli.view import _catalogue

    lines = ["model,task,seed,score", *(f"{arm},t{task},{seed},{task + seed / 7 + (arm == 'b')}" for arm in "ab" for task in range(3) for seed in range(5))]  # fmt: skip
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    viewer = Viewer(_catalogue((str(tmp_path / "scores.csv"),), tmp_path, {}))
    asked = client(viewer)
    assert asked.get("/").headers["location"] == "source/index.html"
    assert asked.get("/source/index.html").status_code == 200
    assert "b against a on score" in asked.get("/source/parts/standing").text
    rows = asked.get("/source/parts/rows?count=60&arm=b&sort=-score").text
    assert 'data-count="15 of 30 runs"' in rows and rows.index(">3.571<") < rows.index(">1<")
    viewer.close()


def test_an_edition_that_cannot_be_read_is_named_with_its_reason(lab: Lab, tmp_path: Path) -> None:
    shutil.copytree(lab.root, tmp_path / "root", symlinks=True)
    database = tmp_path / "root" / "trouble" / lab.directory("trouble").name / "experiment.db"
    database.write_bytes(b"no database at all " * 100)
    viewer = Viewer(Catalogue(tmp_path / "root"))
    assert "not a database" in client(viewer).get("/").text
    page = client(viewer).get(f"{address(lab)}/index.html")
    assert page.status_code == 500 and "not a database" in page.text and "Traceback" not in page.text
    viewer.close()
