"""Metrics that a command wrote in an odd way are read where that is sensible, and told about by name where not."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

FILE = """\
name = "odd"
seeds = [1]
[params]
command = ["sh", "-c", "cp metrics.json {dir}/metrics.json; if [ -f metrics.jsonl ]; then cp metrics.jsonl {dir}/metrics.jsonl; fi"]
[[arms]]
name = "a"
params = { x = 1 }
[[arms]]
name = "b"
params = { x = 2 }
[analysis]
metric = "score"
"""
PLAIN = '{"score": 0.5, "steps": 3}'


@pytest.fixture
def run(bakeoff: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    (tmp_path / "odd.toml").write_text(FILE)

    def run_with(metrics: bytes, series: bytes | None = None) -> Result:
        (tmp_path / "metrics.json").write_bytes(metrics)
        if series is not None:
            (tmp_path / "metrics.jsonl").write_bytes(series)
        return bakeoff("run", "odd.toml")

    return run_with


@pytest.mark.slow
@pytest.mark.parametrize(
    "metrics",
    [
        codecs.BOM_UTF8 + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        PLAIN.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be"),
        PLAIN.encode("utf-32"),
    ],
    ids=["BOM", "UTF-16", "UTF-16 without a mark", "UTF-16 big end", "UTF-32"],
)
def test_a_byte_order_mark_or_wide_characters_lose_nothing(
    metrics: bytes, run: Callable[..., Result], bakeoff: Callable[..., Result]
) -> None:
    lines = "".join(json.dumps({"step": step, "loss": 1.0 / step}) + "\n" for step in range(1, 4))
    encoding = "utf-16" if b"\0" in metrics else "utf-8-sig"
    assert run(metrics, lines.encode(encoding)).exit_code == 0
    shown = json.loads(bakeoff("show", "odd/latest", "--json").stdout)
    assert shown["metrics"] == {"score": 0.5, "steps": 3} and shown["error"] is None
    assert shown["series"]["loss"]["points"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ('{"score": 0.5, "score": 0.7}', "metrics.json: 'score' stands twice"),
        ('{"score": 0.5, "seen": 123456789012345678901234567890}', "metrics.json: 'seen' is a whole number"),
        ('{"score": 0.5, "seen": ' + "9" * 5000 + "}", "metrics.json: 'seen' is a whole number"),
        ('{"score": 0.5, "curve": [1, 2, 3]}', None),
    ],
    ids=["twice", "huge", "more digits than Python reads", "a list"],
)
def test_metrics_that_are_not_kept_as_written_are_told_by_name(
    metrics: str, told: str | None, run: Callable[..., Result], bakeoff: Callable[..., Result]
) -> None:
    result = run(metrics.encode())
    assert result.exit_code == 0, result.stderr
    if told is None:
        assert "note" not in bakeoff("status", "odd").stdout
        return
    assert told in result.stderr
    for verb in ("status", "summarize"):
        shown = bakeoff(verb, "odd").stdout
        assert told in shown and "2 runs" in shown, shown
        notes = json.loads(bakeoff(verb, "odd", "--json").stdout)["notes"]
        assert len(notes) == 1 and told in notes[0]
    assert bakeoff("report", "odd").exit_code == 0
    assert "score" in bakeoff("collect", "odd", "--json").stdout


@pytest.mark.slow
def test_lines_that_cannot_be_read_are_told(run: Callable[..., Result], bakeoff: Callable[..., Result]) -> None:
    series = (
        b'{"step": 1, "loss": 1}\nnonsense\n{"step": 2, "loss": 1e999}\n{"step": 99999999999999999999, "loss": 2}\n'
    )
    assert run(PLAIN.encode(), series).exit_code == 0
    assert "metrics.jsonl: 2 lines could not be read" in bakeoff("status", "odd").stdout
