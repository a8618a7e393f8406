"""Write the result as JSON, as Markdown tables and as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.web.drawing import image
from bakeoff.web.figure import Dots, Figure, Line, Panel, Rule
from calibrate.cells import Bar, Cell
from calibrate.looking import PAIRS
from calibrate.table import Counts

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, PICTURE = DOCS / "calibration.md", DOCS / "images" / "pooled-vs-seeds.png"
BEGIN, END = "<!-- tables: written by benchmarks/calibration.py -->", "<!-- end of tables -->"
Row = dict[str, Any]
Result = dict[str, Any]


def row(cell: Cell, counts: Counts, seconds: float) -> Row:
    """One cell of the JSON object: shares of the replicates, and each bar with its limits."""
    found = {
        "key": cell.key,
        "part": cell.part,
        "row": cell.row,
        "column": cell.column,
        "shares": {name: round(float(values.mean()), 5) for name, values in counts.items() if name != "stop"},
        "bars": [_bar(bar, counts) for bar in cell.bars],
        "holds": all(bar.holds(counts) for bar in cell.bars),
        "replicates": next(iter(counts.values())).size,
        "seconds": round(seconds, 1),
    }
    return found | ({"stop": _stop(counts)} if "stop" in counts else {})


def _bar(bar: Bar, counts: Counts) -> Row:
    low, high = bar.limits(counts, counts[bar.outcome].size)
    return {
        "outcome": bar.outcome,
        "value": round(bar.value(counts), 5),
        "at_least": round(low, 5),
        "at_most": round(high, 5),
        "holds": bar.holds(counts),
    }


def _stop(counts: Counts) -> dict[str, float]:
    """Pairs until the stop; replicates that did not stop count with all pairs."""
    median, eighty = (float(np.quantile(counts["stop"], q, method="inverted_cdf")) for q in (0.5, 0.8))
    return {"median": median, "mean": round(float(np.minimum(counts["stop"], PAIRS).mean()), 2), "eighty": eighty}


def write(result: Result) -> None:
    """Write the tables into the page, and draw the figure."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(page, result), encoding="utf-8")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(image(figure(result), "png"))


def with_tables(page: str, result: Result) -> str:
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no place for the tables: put {BEGIN} and {END} into it")
    return f"{head}{BEGIN}\n{tables(result)}\n{END}{tail}"


HABITS = ("as if alone", "each at alpha", "task as unit", "epoch as unit")
"""What people do instead, counted in the cells of families, groups and steps."""


def tables(result: Result) -> str:
    """All tables of the page as Markdown, part by part."""
    rows: list[Row] = result["cells"]
    bars = [bar for one in rows for bar in one["bars"]]
    held = sum(bar["holds"] for bar in bars)
    counts = sorted({one["replicates"] for one in rows})
    per_cell = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    intro = (
        f"{per_cell} replicates per cell, alpha = {_percent(result['alpha'])}, {len(rows)} cells, "
        f"{held} of {len(bars)} bounds hold. {result['measured_at']}, "
        f"{result['processor_seconds']:,} s of CPU time, bakeoff {result['versions']['bakeoff']}, "
        f"numpy {result['versions']['numpy']}, scipy {result['versions']['scipy']}, seed {result['seed']}."
    )
    parts = {part: [one for one in rows if one["part"] == part] for part in dict.fromkeys(r["part"] for r in rows)}
    sections = [
        ("Arms that do not differ: `better` or `worse`, % of replicates", _no_effect(parts["no effect"])),
        ("Several questions at once: any wrong verdict", _several(parts["several at once"])),
        ("No average effect, but effects that differ by task", _tasks(parts["tasks differ"])),
        ("Few tasks, few seeds, and nothing but wins and losses", _tasks(parts["few units"])),
        ("Coverage, and power compared with the t-test", _power(parts["coverage and power"])),
        ("A true effect of exactly the margin: `equivalent`", _outcome(parts["at the margin"], "equivalent")),
        (
            "What the guard against skew costs: `equivalent` where there is no effect",
            _price(parts["price of the margin"]),
        ),
        ("A true regression of exactly what `gate` allows: passed", _outcome(parts["gate"], "passed")),
        ("Ranks and trimmed means (`analysis.statistic`)", _robust(parts["robust"])),
        ("A look after every pair", _looking(parts["sequential"])),
        (
            "Those who follow a plan that promises 80 %: earlier runs, effect planned for, verdict",
            _outcome(parts.get("plans", []), "decided"),
        ),
        ("Pooled steps and generations against one value per seed", _pools(parts["pooled"])),
        ("Shown without a bound", _shown(parts["without a bar"])),
        ("For reference: common practices on such data", _references(parts)),
    ]
    return "\n\n".join([intro, *(f"### {title}\n\n{body}" for title, body in sections)])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(share: float) -> str:
    return f"{100 * share:.1f}"


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def _limit(bar: Row) -> str:
    """The bound in words: `at most 5.5`, `93.0 to 97.0`, `at least 76.8`."""
    if bar["at_most"] >= 1.0:
        return f"at least {_number(bar['at_least'])}"
    if bar["at_least"] <= 0.0:
        return f"at most {_number(bar['at_most'])}"
    return f"{_number(bar['at_least'])} to {_number(bar['at_most'])}"


def _held(bar: Row) -> str:
    return "yes" if bar["holds"] else "**no**"


def _no_effect(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(one["column"] for one in rows))
    by_place = {(one["row"], one["column"]): one for one in rows}
    lines = []
    for law in dict.fromkeys(one["row"] for one in rows):
        cells = [by_place[law, column] for column in columns]
        marked = [f"{_number(c['shares']['decided'])}{'' if c['holds'] else ' (**fails**)'}" for c in cells]
        lines.append([law, *marked, _replicates(*cells)])
    limits = sorted({_limit(one["bars"][0]) for one in rows})
    looser = f", {limits[-1]} % for 5 pairs of data that are not normal" if len(limits) > 1 else ""
    return f"{_markdown(['', *columns, 'replicates'], lines)}\n\nBound: {limits[0]} %{looser}."


def _several(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        bar = one["bars"][0]
        word = {"equivalent": "`equivalent`", "kept": "copies not refused"}.get(bar["outcome"], "`better` or `worse`")
        lines.append(
            [one["row"], one["column"], word, _number(bar["value"]), _limit(bar), _held(bar), _replicates(one)]
        )
    return _markdown(["", "", "wrong verdict", "measured, %", "bound", "holds", "replicates"], lines)


def _tasks(rows: list[Row]) -> str:
    return _outcome(rows, "decided", "`better` or `worse`, %")


def _outcome(rows: list[Row], outcome: str, header: str = "measured, %") -> str:
    lines = []
    for one in rows:
        bound = [_limit(one["bars"][0]), _held(one["bars"][0])] if one["bars"] else ["none", ""]
        lines.append([one["row"], one["column"], _number(one["shares"][outcome]), *bound, _replicates(one)])
    return _markdown(["", "", header, "bound", "holds", "replicates"], lines)


def _robust(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        bar = one["bars"][0]
        word = "`equivalent`" if bar["outcome"] == "equivalent" else "`better` or `worse`"
        wilcoxon = _number(one["shares"]["Wilcoxon"]) if "Wilcoxon" in one["shares"] else ""
        lines.append(
            [
                one["row"],
                one["column"],
                word,
                _number(bar["value"]),
                wilcoxon,
                _limit(bar),
                _held(bar),
                _replicates(one),
            ]
        )
    return _markdown(["", "", "verdict", "measured, %", "Wilcoxon, %", "bound", "holds", "replicates"], lines)


def _price(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        bar, without = one["bars"][0], one["shares"]["without the guard"]
        lines.append(
            [
                one["row"],
                one["column"],
                _number(bar["value"]),
                _number(without),
                _limit(bar),
                _held(bar),
                _replicates(one),
            ]
        )
    return _markdown(["", "", "measured, %", "without the guard, %", "bound", "holds", "replicates"], lines)


def _replicates(*rows: Row) -> str:
    """How many replicates the rows have: the fewest, where they differ."""
    return f"{min(one['replicates'] for one in rows):,}"


def _power(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        covers, *power = one["bars"]
        line = [one["row"], one["column"], _number(covers["value"]), _limit(covers), _held(covers)]
        for bar in power:
            line += [_number(bar["value"]), _number(one["shares"]["t-test"]), _limit(bar), _held(bar)]
        lines.append([*line, *[""] * (9 - len(line)), _replicates(one)])
    header = ["", "", "interval covers, %", "bound", "holds", "decided, %", "t-test, %", "bound", "holds", "replicates"]
    return _markdown(header, lines)


def _looking(rows: list[Row]) -> str:
    quiet = [one for one in rows if one["row"] == "no effect"]
    first = []
    for one in quiet:
        bar, peeking = one["bars"][0], one["shares"]["t-test after every pair"]
        first.append(
            [one["column"], _number(bar["value"]), _limit(bar), _held(bar), _number(peeking), _replicates(one)]
        )
    second = []
    for one in rows:
        if one["row"] != "effect":
            continue
        stop, bars = one["stop"], one["bars"]
        bound = f"median at most {bars[0]['at_most']:g}: {_held(bars[0])}" if bars else ""
        numbers = [_pairs(stop["median"]), f"{stop['mean']:.1f}", _pairs(stop["eighty"])]
        second.append([one["column"], *numbers, _number(one["shares"]["decided"]), bound, _replicates(one)])
    peek = "a t-test after every pair from the 6th, %"
    header = ["no effect", "decided by pair 100, %", "bound", "holds", peek, "replicates"]
    effect = "effect, in sd of the differences"
    more = [effect, "median stop", "mean", "80th percentile", "decided by 100, %", "bound", "replicates"]
    return f"{_markdown(header, first)}\n\n{_markdown(more, second)}"


def _pairs(number: float) -> str:
    return f"{number:g}" if number <= PAIRS else f"over {PAIRS}"


def _pools(rows: list[Row]) -> str:
    header = [
        "seed sd, points",
        "steps",
        "pooled generations, %",
        "pooled steps, %",
        "one value a seed, %",
        "bound",
        "holds",
        "replicates",
    ]
    lines = []
    for one in rows:
        shares, bar = one["shares"], one["bars"][0]
        pooled = [_number(shares[name]) for name in ("pooled generations", "pooled steps")]
        lines.append(
            [one["row"], one["column"], *pooled, _number(bar["value"]), _limit(bar), _held(bar), _replicates(one)]
        )
    return _markdown(header, lines)


def _shown(rows: list[Row]) -> str:
    lines = []
    for one in rows:
        name = next(name for name in ("t-test", "Welch", "Wilcoxon", "Boschloo") if name in one["shares"])
        other = f"{name}: {_number(one['shares'][name])}"
        lines.append([one["row"], one["column"], _number(one["shares"]["decided"]), other, _replicates(one)])
    return _markdown(["", "", "`better` or `worse`, %", "another test, %", "replicates"], lines)


def _references(parts: dict[str, list[Row]]) -> str:
    lines = []
    for one in parts["reference"]:
        if one["row"] == "percentile":
            lines.append(
                ["percentile bootstrap: covers", one["column"], _number(one["shares"]["covered"]), _replicates(one)]
            )
        else:
            lines.append(
                ["the task as unit: wrong verdicts", one["column"], _number(one["shares"]["decided"]), _replicates(one)]
            )
    for one in parts["several at once"]:
        if "unadjusted" in one["shares"] and not one["key"].startswith("equivalence"):
            share = one["shares"]["unadjusted"]
            lines.append(
                [f"{one['row']} without Holm: any wrong verdict", one["column"], _number(share), _replicates(one)]
            )
    for one in [*parts["several at once"], *parts["tasks differ"]]:
        lines += [
            [
                f"{one['row']}, {habit}: any wrong verdict",
                one["column"],
                _number(one["shares"][habit]),
                _replicates(one),
            ]
            for habit in HABITS
            if habit in one["shares"]
        ]
    for one in parts["few units"]:
        if "t on tasks" in one["shares"]:
            about = f"{one['row']}: the task as unit"
            lines.append([about, one["column"], _number(one["shares"]["t on tasks"]), _replicates(one)])
    return f"{_markdown(['', '', 'measured, %', 'replicates'], lines)}\n\n{_clusters(parts['tasks differ'])}"


def _clusters(rows: list[Row]) -> str:
    """Wrong verdicts if effects differ by task."""
    names = ("z", "z, no small-sample factor", "t on tasks")
    lines = [
        [
            one["row"].partition(",")[0],
            one["column"],
            *(_number(one["shares"][name]) for name in names),
            _replicates(one),
        ]
        for one in rows
        if "z" in one["shares"]
    ]
    header = [
        "effects differ by task",
        "",
        "cluster-robust at 1.96, %",
        "the same without T/(T-1), %",
        "t on the tasks' means, %",
        "replicates",
    ]
    return _markdown(header, lines)


def figure(result: Result) -> Figure:
    """Draw the wrong verdicts of three analyses of the same runs, as seeds differ more and as runs get longer."""
    rows = [one for one in result["cells"] if one["part"] == "pooled"]
    by_seed = [one for one in rows if one["column"] == "60"]
    by_steps = sorted((one for one in rows if one["row"] == "1"), key=lambda one: int(one["column"]))
    steps = np.array([float(one["column"]) for one in by_steps])
    ticks = tuple((float(np.log2(n)), f"{n:g}") for n in steps)
    return Figure(
        title="Two arms that do not differ: how often each analysis says that they do",
        caption=(
            f"{_replicates(*rows)} simulated pairs of arms a point; 8 seeds x 128 generations a step, 47 % correct; "
            f"dashed: alpha. {result['measured_at']}."
        ),
        panels=(
            _panel("Seeds differ more (60 steps)", "sd of the seeds' rates, points", _floats(by_seed, "row"), by_seed),
            _panel("Runs get longer (seed sd 1 point)", "steps in a run", np.log2(steps), by_steps, ticks),
        ),
    )


def _floats(rows: list[Row], key: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([float(one[key]) for one in rows])


def _panel(title: str, label: str, x: Any, rows: list[Row], ticks: Any = None) -> Panel:
    names = (
        ("pooled generations", "generations pooled"),
        ("pooled steps", "steps pooled"),
        ("decided", "bakeoff: one value a seed"),
    )
    marks: list[Any] = [Rule("y", 5.0, "5 %")]
    for number, (name, words) in enumerate(names):
        y = np.array([100.0 * one["shares"][name] for one in rows])
        colour = (1, 4, 0)[number]
        marks += [Line(x, y, colour, words), Dots(x, y, colour)]
    return Panel(label, "wrong verdicts, %", tuple(marks), title, x_ticks=ticks, y_range=(0.0, 80.0))
