"""Metrics that a command leaves behind, from every source."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bakeoff.workloads.metrics import TAIL, Source, as_number, read_metrics, read_printed

TIERS = "provider,tier_id,utilization,queue_wait_p95_ms\nopenai,0,0.5,50\nopenai,1,,70\n"
NAME = "{provider}_tier{tier_id}_{column}"


def write(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_automatic_takes_whatever_is_there_and_the_output_goes_last(tmp_path: Path) -> None:
    assert read_metrics("auto", tmp_path / "nowhere", None) == ({}, None)
    assert read_metrics("auto", tmp_path, None) == ({}, None)
    write(tmp_path, "metrics.json", '{"a": 1, "b": 1, "c": 1}')
    write(tmp_path, "out/metrics.json", '{"b": 2, "c": 2}')
    write(tmp_path, "out/summary.csv", "c,d\n3,3\n")
    stdout = write(tmp_path, "stdout.txt", 'hello\n{"d": 4, "e": 4}\n')
    assert read_metrics("auto", tmp_path, stdout) == ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 4}, None)
    assert read_metrics("auto", tmp_path / "nowhere", stdout) == ({"d": 4, "e": 4}, None)


def test_json_is_a_table_and_tables_in_it_become_dotted_names(tmp_path: Path) -> None:
    text = (
        '\ufeff{"a": 1.5, "b": {"c": true, "d": {"e": "x"}}, "list": [1, 2], "n": null, "nan": NaN, "inf": -Infinity}'
    )
    write(tmp_path, "m.json", text)
    metrics, problem = read_metrics("m.json", tmp_path, None)
    assert problem is None and math.isnan(metrics.pop("nan"))  # type: ignore[arg-type]
    assert metrics == {"a": 1.5, "b.c": True, "b.d.e": "x", "n": None, "inf": -math.inf}


def test_csv_gives_its_last_row(tmp_path: Path) -> None:
    write(tmp_path, "s.csv", '\ufeffstep, loss,note,empty\r\n1,0.5,"a\nb",\r\n2,nan,"x,y",\r\n')
    metrics, problem = read_metrics(["s.csv"], tmp_path, None)
    assert problem is None and math.isnan(metrics.pop("loss"))  # type: ignore[arg-type]
    assert metrics == {"step": 2, "note": "x,y", "empty": None}


def test_csv_rows_that_are_too_long_or_too_short_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    write(tmp_path, "s.csv", "a,b\n1,2,3\n")
    assert read_metrics("s.csv", tmp_path, None) == ({"a": 1, "b": 2}, None)
    write(tmp_path, "s.csv", "a,b\n1\n")
    assert read_metrics("s.csv", tmp_path, None) == ({"a": 1, "b": None}, None)


def test_csv_with_several_rows_names_each_value(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", TIERS)
    assert read_metrics([Source(file="t.csv", name=NAME)], tmp_path, None) == (
        {
            "openai_tier0_utilization": 0.5, "openai_tier0_queue_wait_p95_ms": 50,
            "openai_tier1_utilization": None, "openai_tier1_queue_wait_p95_ms": 70,
        },
        None,
    )  # fmt: skip


def test_two_values_with_one_name_are_a_problem(tmp_path: Path) -> None:
    write(tmp_path, "t.csv", TIERS)
    _, problem = read_metrics([Source(file="t.csv", name="{column}")], tmp_path, None)
    assert problem is not None and "two values are called 'provider'" in problem


def test_json_lines_give_their_last_line(tmp_path: Path) -> None:
    write(tmp_path, "m.jsonl", '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n\n')
    assert read_metrics("m.jsonl", tmp_path, None) == ({"step": 2, "loss": 1}, None)


def test_the_last_json_line_is_found_in_noise(tmp_path: Path) -> None:
    noise = b'{"old": 1}\n\xff\xfe{"x"\r 10%\r 20%\r{"score": 0.5, "name": "\xe2\x80\xa8"}\r\n{not json}\n[1]\n"text"\nbye \xff\n'
    assert read_metrics("stdout", tmp_path, write(tmp_path, "o", noise)) == ({"score": 0.5, "name": "\u2028"}, None)


def test_a_huge_output_is_only_read_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        file.truncate(500_000_000)  # sparse: no disk is used
        file.seek(0, 2)
        file.write(b'\n{"score": 3}\n' + b"." * (TAIL // 2))
    assert read_metrics("stdout", tmp_path, path) == ({"score": 3}, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.json", None, "gone.json: the command wrote no such file"),
        ("sub/gone.csv", None, "sub/gone.csv: the command wrote no such file"),
        ("m.json", "{", "m.json: cannot be read"),
        ("m.json", "[1]", "m.json: cannot be read: a table of metrics was expected"),
        ("m.json", "[" * 100_000, "m.json: cannot be read"),
        ("m.jsonl", '{"a": 1}\n{"a"', "m.jsonl: cannot be read"),
        ("m.jsonl", "", "m.jsonl: no metrics in it"),
        ("m.csv", "a,b\n", "m.csv: no metrics in it"),
        ("m.csv", "", "m.csv: no metrics in it"),
        ("stdout", None, "stdout: no metrics in it"),
    ],
)
def test_a_source_that_was_asked_for_must_be_there_and_readable(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        write(tmp_path, name, content)
    metrics, problem = read_metrics([name], tmp_path, None)
    assert metrics == {} and problem is not None and problem.startswith(message)


def test_what_was_read_before_a_problem_is_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.json", '{"a": 1}')
    assert read_metrics(["a.json", "gone.json"], tmp_path, None)[0] == {"a": 1}


def test_a_file_may_be_optional(tmp_path: Path) -> None:
    assert read_metrics([Source(file="t.csv", name=NAME, optional=True)], tmp_path, None) == ({}, None)


def test_a_broken_file_is_a_problem_in_automatic_mode_too(tmp_path: Path) -> None:
    write(tmp_path, "metrics.json", "{")
    assert (read_metrics("auto", tmp_path, None)[1] or "").startswith("metrics.json: cannot be read")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("-2", -2), ("1.5", 1.5), ("1e3", 1000.0), ("inf", math.inf), ("", None), (" ", None), (None, None),
     ("abc", "abc"), ("1_000", "1_000"), ("true", "true"), (str(2**70), 2**70)],
)  # fmt: skip
def test_numbers_in_text(text: str | None, value: object) -> None:
    assert as_number(text) == value


@pytest.mark.parametrize(
    ("output", "metrics"),
    [
        ("score: 1\nscore: 2\n", {"score": 2}),
        ("loss=0.5 acc=.9\nloss=0.25, acc=1e-1\n", {"loss": 0.25, "acc": 0.1}),
        ("Final score : -3.5\neval/reward(mean) = 7\n", {"Final score": -3.5, "eval/reward(mean)": 7}),
        ("10 %\rscore: 3\r\n", {"score": 3}),
        ("accuracy: 91%\ntook: 3 s\n12:30: 4\nINFO:root:loss: 1\nnote: 1 of 2\nlr=0.1 fast=yes\n", {}),
        ("score: 7\n{\"reward\": 1}\n", {"reward": 1}),
    ],
)  # fmt: skip
def test_lines_of_names_and_numbers_are_metrics_where_nothing_else_is(
    tmp_path: Path, output: str, metrics: dict[str, float]
) -> None:
    read = read_printed(tmp_path, write(tmp_path, "stdout.txt", output))
    assert (read.metrics, read.problem) == (metrics, None)
    assert read.source == ("JSON" if "{" in output else "lines" if metrics else "")


def test_a_number_that_is_printed_as_nan_is_kept(tmp_path: Path) -> None:
    metrics = read_printed(tmp_path, write(tmp_path, "stdout.txt", "score: nan\n")).metrics
    assert math.isnan(metrics["score"])  # type: ignore[arg-type]
