"""What was said in runs of other tools, after `bakeoff import`: `show`, `logs`, the report and `export` have it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from bakeoff.results.sources import open_results
from support.reports import parts_of_runs

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def imported(bakeoff: Bakeoff, source: str, name: str) -> Path:
    """Import a fixture, and return the directory of its runs."""
    result = bakeoff("import", str(FIXTURES / source), "--name", name)
    assert result.exit_code == 0, result.stderr
    return Path("bakeoff-runs") / name / "latest" / "runs"


def test_an_imported_sample_is_shown_with_its_messages(bakeoff: Bakeoff) -> None:
    runs = imported(bakeoff, "inspect/skill", "sums")
    assert len(list(runs.glob("*/trajectory.jsonl.zst"))) == 24
    run = next(runs.glob("*44-00-00*__10_epoch_1")).name
    shown = bakeoff("show", f"sums/{run}").stdout
    assert "Transcript\n  user       10+1\n  assistant  11\n" in shown
    assert json.loads(bakeoff("show", f"sums/{run}", "--json").stdout)["transcript"] == [
        {"role": "user", "content": "10+1"},
        {"role": "assistant", "content": "11"},
    ]
    assert bakeoff("logs", f"sums/{run}").stdout == "[user]\n10+1\n\n[assistant]\n11\n\n"


def test_calls_of_tools_and_reasoning_are_kept(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "harbor/models", "jobs")
    messages = json.loads(bakeoff("show", "jobs/task-1__0", "--json").stdout)["transcript"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["reasoning_content"] == "It may exist."
    assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]
    assert '-> bash_command {"keystrokes": "cat sum.txt\\n"}' in bakeoff("logs", "jobs/task-1__0").stdout


def test_a_run_without_messages_has_none(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "harbor/models", "jobs")
    assert json.loads(bakeoff("show", "jobs/task-2__0", "--json").stdout)["transcript"] == []
    logs = bakeoff("logs", "jobs/task-2__0")
    assert logs.exit_code == 1 and not logs.stdout


def test_importing_twice_keeps_one_edition_and_the_verdict_is_the_source_s(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "inspect/skill", "sums")
    again = bakeoff("import", str(FIXTURES / "inspect/skill"), "--name", "sums")
    assert "runs were imported already" in again.stdout
    assert len(list(Path("bakeoff-runs/sums").glob("2*"))) == 1
    source, edition = (
        json.loads(bakeoff("compare", name, "--json").stdout) for name in (str(FIXTURES / "inspect/skill"), "sums")
    )
    assert edition["comparisons"] == source["comparisons"]


def test_rows_of_an_imported_edition_say_what_the_source_says(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "inspect/skill", "sums")
    edition = open_results(["sums"], Path("bakeoff-runs"))
    source = open_results([str(FIXTURES / "inspect/skill")], Path("bakeoff-runs"))
    assert [row.messages() for row in edition.rows] == [row.messages() for row in source.rows]
    edition.close()


def test_the_report_shows_messages_of_a_source_and_of_its_import(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "inspect/skill", "sums")
    for number, source in enumerate(("sums", str(FIXTURES / "inspect/skill"))):
        done = bakeoff("report", source, "--out-dir", f"report{number}")
        assert done.exit_code == 0, done.stderr
        transcripts = [parts["Transcript"] for parts in parts_of_runs(Path(f"report{number}")).values()]
        assert any(re.findall(r"<pre[^>]*>(.*?)</pre>", said) == ["10+1", "11"] for said in transcripts)


def test_two_arms_of_an_import_are_never_one_group(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "inspect/skill", "sums")
    done = bakeoff("export", "sums", "--format", "trl-sft", "--output", "sums.jsonl")
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in Path("sums.jsonl").read_text().splitlines()]
    assert lines and {len({line["arm"] for line in lines if line["group"] == each["group"]}) for each in lines} == {1}
    ten = next(line for line in lines if line["task"] == "sums/10")
    assert (ten["prompt"], ten["completion"]) == (
        [{"role": "user", "content": "10+1"}],
        [{"role": "assistant", "content": "11"}],
    )


def test_an_import_exports_a_log_of_inspect_with_the_same_messages(bakeoff: Bakeoff) -> None:
    imported(bakeoff, "inspect/skill", "sums")
    assert bakeoff("export", "sums", "--format", "inspect", "--output", "logs").exit_code == 0
    written, source = (
        {(row.arm, row.task): row.messages() for row in open_results([name], Path("bakeoff-runs")).rows}
        for name in ("logs", str(FIXTURES / "inspect/skill"))
    )
    assert written == source


def test_a_transcript_that_was_deleted_or_damaged_does_not_pass_for_none(bakeoff: Bakeoff) -> None:
    runs = imported(bakeoff, "inspect/skill", "sums")
    run = next(runs.glob("*44-00-00*__10_epoch_1"))
    (run / "trajectory.jsonl.zst").write_bytes(b"nonsense")
    shown = bakeoff("show", f"sums/{run.name}")
    assert shown.exit_code != 0 and "trajectory.jsonl.zst: is damaged" in shown.stderr
    shutil.rmtree(run)
    assert bakeoff("logs", f"sums/{run.name}").exit_code == 1
