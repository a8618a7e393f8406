"""The first screen of `compare`: one ranked table, what to do next, and the same lines in the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import bakeoff as package
from bakeoff.cli import main
from bakeoff.records.edition import Edition
from bakeoff.results.editions import edition_results
from bakeoff.web.contents import Contents

Bakeoff = Callable[..., Result]


def table(
    lifts: Sequence[float], *, names: Sequence[str] = (), metric: str = "score", seeds: int = 10, noise: float = 0.1
) -> Path:
    """A table of runs: every arm on the same seeds, the first without a lift."""
    rng = np.random.default_rng(5)
    lines = [f"arm,seed,{metric}"]
    for number, lift in enumerate(lifts):
        arm = names[number] if names else f"arm{number:02d}"
        worlds = np.random.default_rng(3).normal(size=seeds)
        lines += [f"{arm},{seed},{10 + worlds[seed] + lift + noise * rng.normal()}" for seed in range(seeds)]
    path = Path("t.csv")
    path.write_text("\n".join(lines) + "\n")
    return path


def screen(*arguments: str, width: int, **env: str) -> str:
    """What a terminal of this width shows, colours included."""
    environment = {"COLUMNS": str(width), **env}
    result = CliRunner(env=environment).invoke(main, ["compare", *arguments], prog_name="bakeoff", color=True)
    assert result.exit_code in (0, 3), result.output
    return result.stdout


def cells(text: str) -> list[list[str]]:
    """Lines of the ranked table, by cell; the table follows the title and ends before the first line without columns."""
    rows = []
    for line in text.splitlines()[1:]:
        if "  " not in line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


class TestTheRankedTable:
    def test_two_arms_take_twelve_lines_at_most_and_the_best_is_first(self, bakeoff: Bakeoff) -> None:
        table([0.0, 1.0])
        piped = bakeoff("compare", "t.csv").stdout
        for text in (piped, click.unstyle(screen("t.csv", width=80)), click.unstyle(screen("t.csv", width=160))):
            assert len(text.splitlines()) <= 12
            assert text.startswith("score, higher is better: arm01 minus arm00\narm ")
        headers, first, second = cells(piped)
        assert headers == ["arm", "mean", "effect", "95 % interval", "verdict", "p"]
        assert first[0] == "arm01" and re.fullmatch(r"[\d.]+ higher", first[2]) and first[4] == "better"
        assert second[0] == "arm00" and second[-1] == "control"

    def test_thirty_arms_take_45_lines_and_a_wide_terminal_has_a_forest_plot(self) -> None:
        table(list(np.linspace(-1.0, 1.0, 30)))
        narrow, wide = (click.unstyle(screen("t.csv", width=width)) for width in (80, 160))
        for text, width in ((narrow, 80), (wide, 160)):
            assert len(text.splitlines()) <= 45
            assert max(map(len, text.splitlines())) <= width
        assert "●" not in narrow and wide.count("●") == 29
        assert "p adjusted" in narrow and "adjusted for 29 comparisons (Holm)" in narrow.replace("\n", " ")
        means = [float(mean) for mean in re.findall(r"^arm\d\d +([\d.]+) ", narrow, re.MULTILINE)]
        assert len(means) == 30 and means == sorted(means, reverse=True)

    def test_of_many_arms_the_best_and_the_control_are_shown_and_the_rest_is_counted(self, bakeoff: Bakeoff) -> None:
        table([0.0, *np.linspace(0.1, 1.0, 60)], seeds=4)
        text = bakeoff("compare", "t.csv").stdout
        assert len(text.splitlines()) <= 45
        assert "arm60" in text and re.search(r"^arm00 .* control", text, re.MULTILINE)
        assert re.search(r"\.\.\. and 28 more arms \(.*\); --verbose, --json and --csv FILE have all of them", text)
        assert bakeoff("compare", "t.csv", "--verbose").stdout.count("arm33") > 0
        assert len(json.loads(bakeoff("compare", "t.csv", "--json").stdout)["comparisons"]) == 60

    @pytest.mark.parametrize(("metric", "direction", "better", "worse"), [
        ("score", "maximize", "higher", "lower"),
        ("errors", "minimize", "lower", "higher"),
        ("latency_ms", "minimize", "ms faster", "ms slower"),
        ("uptime_s", "maximize", "s higher", "s lower"),
        ("tokens_per_s", "maximize", "higher", "lower"),
    ])  # fmt: skip
    def test_the_good_direction_is_spelled_out(
        self, bakeoff: Bakeoff, metric: str, direction: str, better: str, worse: str
    ) -> None:
        sign = 1.0 if direction == "maximize" else -1.0
        table([0.0, sign, -sign], metric=metric)
        text = bakeoff("compare", "t.csv", "--direction", direction).stdout
        assert text.startswith(f"{metric}, {'higher' if sign > 0 else 'lower'} is better: every arm minus arm00")
        rows = {row[0]: row for row in cells(text)[1:]}
        assert list(rows) == ["arm01", "arm00", "arm02"]
        assert re.fullmatch(rf"[\d.]+ {better}", rows["arm01"][2]) and rows["arm01"][4] == "better"
        assert re.fullmatch(rf"[\d.]+ {worse}", rows["arm02"][2]) and rows["arm02"][4] == "worse"

    def test_names_are_cut_to_fit_and_stay_apart(self) -> None:
        names = [f"{'model-with-a-long-name-' * 3}{word}{'-and-a-long-end' * 3}" for word in ("one", "two", "six")]
        table([0.0, 1.0, 2.0], names=names)
        text = click.unstyle(screen("t.csv", width=80))
        rows = cells("\n".join(text.splitlines()[text.splitlines().index(next(
            line for line in text.splitlines() if line.startswith("arm  "))) - 1 :]))  # fmt: skip
        assert max(map(len, text.splitlines())) <= 80
        assert [word for row in rows[1:] for word in ("one", "two", "six") if word in row[0]] == ["six", "two", "one"]

    def test_no_color_means_none(self) -> None:
        table([0.0, 1.0])
        assert "\x1b[" in screen("t.csv", width=100)
        assert "\x1b[" not in screen("t.csv", width=100, NO_COLOR="1")

    def test_each_metric_has_its_own_table_with_its_name(self, bakeoff: Bakeoff) -> None:
        rows = [f"{arm},{seed},{seed + lift},{seed - lift}" for arm, lift in (("a", 0), ("b", 3)) for seed in range(8)]
        Path("t.csv").write_text("\n".join(["arm,seed,score,cost", *rows]) + "\n")
        text = bakeoff(
            "compare", "t.csv", "--metric", "score", "--metric", "cost", "--direction", "cost=minimize"
        ).stdout
        assert "score, higher is better: b minus a" in text and "cost, lower is better: b minus a" in text
        assert len(text.splitlines()) <= 16


class TestWhatUndecidedMeans:
    def test_three_units_that_differ_alike_cannot_decide_whatever_they_show(self, bakeoff: Bakeoff) -> None:
        rows = [f"{arm},{seed},{1.1 * seed + (arm == 'B')}" for arm in "AB" for seed in range(3)]
        Path("t.csv").write_text("\n".join(["arm,seed,score", *rows]) + "\n")
        text = bakeoff("compare", "t.csv").stdout
        assert (
            "3 units cannot decide at alpha 0.05, whatever they show: the smallest p that they can give is 0.250"
            in text
        )
        assert "Next: at least 3 more seeds would be needed." in text
        assert "can detect" not in text

    def test_nothing_smaller_than_what_was_seen_is_promised_and_nobody_reads_equal(self) -> None:
        promised = 0
        for seed in range(40):
            rng = np.random.default_rng(seed)
            rows = [
                {"arm": arm, "seed": n, "score": rng.normal() + 0.9 * (arm == "b")} for arm in "ab" for n in range(7)
            ]
            (verdict,) = package.compare(rows, metric="score")
            if verdict.verdict == "undecided":
                assert "it is open which is better: any difference in" in verdict.sentence
                if detects := re.search(r"can detect effects of ([\d.]+) or more", verdict.sentence):
                    promised += 1
                    assert verdict.effect is not None and float(detects[1]) >= abs(verdict.effect) * 0.999
        assert promised

    def test_the_next_step_names_the_units_that_are_needed(self, bakeoff: Bakeoff) -> None:
        table([0.0, 0.5], noise=1.0)
        result = bakeoff("compare", "t.csv", "--json")
        told = json.loads(result.stdout)
        assert re.match(r"about \d+ more seeds would detect effects of [\d.]+ or more with 80 % power", told["next"])
        assert f"Next: {told['next']}." in bakeoff("compare", "t.csv").stdout

    def test_the_next_step_does_not_depend_on_the_effect_that_was_seen(self, bakeoff: Bakeoff) -> None:
        noise = np.random.default_rng(3).normal(size=(2, 12))
        planned = set()
        for lift in (0.0, 0.2, -0.2):
            rows = [
                f"{arm},{n},{noise[place, n] - noise[place].mean() + lift * place}"
                for place, arm in enumerate("ab") for n in range(12)
            ]  # fmt: skip
            Path("t.csv").write_text("\n".join(["arm,seed,score", *rows]) + "\n")
            planned.add(json.loads(bakeoff("compare", "t.csv", "--json").stdout)["next"])
        assert len(planned) == 1 and "about 36 more seeds" in str(planned)

    def test_tasks_that_are_a_sample_point_to_these_tasks_only(self, bakeoff: Bakeoff) -> None:
        rng = np.random.default_rng(0)
        rows = [
            f"{arm},{task},{seed},{task + lift + 0.1 * rng.normal()}"
            for arm, lift in (("a", 0.0), ("b", 1.0)) for task in range(2) for seed in range(6)
        ]  # fmt: skip
        Path("t.csv").write_text("\n".join(["arm,task,seed,score", *rows]) + "\n")
        text = bakeoff("compare", "t.csv", "--seeds", "nested").stdout
        assert "undecided (too few)" in text
        assert re.search(r"Next: add --tasks fixed for an answer on these 2 tasks only \(.*\): better\.", text)
        assert "p = " not in text, "the p of another question is not on the first screen"
        assert re.search(r"better, p = ", bakeoff("compare", "t.csv", "--seeds", "nested", "--verbose").stdout)


FILE = """\
name = "served"
seeds = "1..8"
[params]
command = ["true"]
[[arms]]
name = "base"
[[arms]]
name = "quick"
[[arms]]
name = "slow"
[analysis]
metric = "latency"
direction = "minimize"
units = { latency = "ms" }
"""


def outcome(arm: str, seed: int) -> dict[str, object]:
    rng = np.random.default_rng([seed, *arm.encode()])
    lift = {"base": 0.0, "quick": -50.0, "slow": 30.0}[arm]
    return {"status": "succeeded", "metrics": {"latency": 300.0 + 10 * seed + lift + 3 * float(rng.normal())}}


@pytest.mark.slow
def test_the_report_shows_the_lines_of_compare_in_the_same_order(
    bakeoff: Bakeoff, make_edition: Callable[..., Edition]
) -> None:
    make_edition("served", outcome, text=FILE, files=False)
    text = bakeoff("compare", "served").stdout
    told = cells(text)
    assert text.startswith(
        "latency (ms), lower is better: every arm minus base, for seeds like these (unit: seed, N = 8)"
    )
    assert [row[0] for row in told] == ["arm", "quick", "base", "slow"]
    assert re.fullmatch(r"\d+(\.\d+)? ms faster", told[1][2])
    assert bakeoff("report", "served", "--out_dir", "report").exit_code == 0
    page = Path("report/index.html").read_text()
    ranked = page[page.index('<table class="numbers ranked">') :]
    ranked = ranked[: ranked.index("</table>")]
    shown = [
        [unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", ranked, re.DOTALL)
    ]
    assert [[cell for cell in row if cell] for row in shown] == told
    forest, folded = page.index('id="figure-effects-latency"'), page.index("<details>")
    assert (
        page.index('<table class="numbers ranked">') < forest < folded < page.index('id="figure-differences-latency"')
    )


@pytest.mark.slow
def test_a_sequential_edition_has_the_same_screen_and_report(
    bakeoff: Bakeoff, make_edition: Callable[..., Edition]
) -> None:
    make_edition("served", outcome, text=f"{FILE}[sequential]\nmax_seeds = 8\n", files=False)
    text = bakeoff("compare", "served").stdout
    assert "confidence sequence" in text.splitlines()[1] and "p (any time)" in text.splitlines()[1]
    assert re.search(r"^quick +\d+(\.\d+)? ms faster", text, re.MULTILINE)
    assert bakeoff("report", "served", "--out_dir", "report").exit_code == 0
    page = Path("report/index.html").read_text()
    assert (
        page.index('<table class="numbers ranked">')
        < page.index('id="figure-effects-latency"')
        < page.index("<details>")
    )


def test_the_cost_plot_uses_the_declared_cost(make_edition: Callable[..., Edition]) -> None:
    def costs(arm: str, seed: int) -> dict[str, object]:
        metrics = {"cost_of_setup": 1.0 + seed, "latency": 300.0 + seed, "cost_usd": 2.0 + seed}
        return {"status": "succeeded", "metrics": metrics}

    text = FILE.replace('metric = "latency"', 'metric = "latency"\nprimary = ["cost_usd"]')
    contents = Contents(edition_results(make_edition("served", costs, text=text, files=False)))
    assert contents.cost_metric == "cost_usd"
