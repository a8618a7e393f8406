"""Files of other tools on the command line: the reading line, refusals and exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Bakeoff = Callable[..., Result]
FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("verb", [("compare",), ("rank",), ("variance",)])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("inspect/skill", "read 12 samples x 2 logs of Inspect 0.3.285; arm = task_args.skill; 3 of 24 samples errored (failed);"),
        ("harbor/models", "read 12 trials x 2 logs of Harbor; arm = agent"),
    ],
)  # fmt: skip
def test_the_reading_line_is_the_last_line_of_every_answer(
    bakeoff: Bakeoff, verb: tuple[str, ...], name: str, line: str
) -> None:
    answered = bakeoff(*verb, FIXTURES / name)
    assert answered.exit_code in (0, 1, 3), answered.stderr
    (read,) = [each for each in answered.stdout.splitlines() if each.startswith("read ")]
    assert read.startswith(line)
    assert answered.stdout.rstrip().endswith(read)


@pytest.mark.parametrize("verb", [("gate", "--max-regression", "match=0.1"), ("calibrate", "--replicates", "100")])
def test_settings_leave_what_the_reading_line_says_to_the_reading_line(bakeoff: Bakeoff, verb: tuple[str, ...]) -> None:
    name, *flags = verb
    answered = bakeoff(name, FIXTURES / "inspect" / "skill", *flags)
    assert answered.stdout.count("task_args.skill") == 1, answered.stdout
    assert answered.stdout.rstrip().splitlines()[-1].startswith("read 12 samples x 2 logs of Inspect")


def test_an_imported_log_is_judged_as_the_log_is(bakeoff: Bakeoff) -> None:
    source = FIXTURES / "inspect" / "skill"
    assert bakeoff("import", source, "--name", "skill").exit_code == 0
    first, second = (json.loads(bakeoff("compare", name, "--json").stdout) for name in (source, "skill"))
    assert first["comparisons"] == second["comparisons"]
    assert first["settings"]["reading"] == second["settings"]["reading"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.eval", b"", "x.eval: is empty"),
        (
            "x.eval.gz",
            b"\x1f\x8b\x08",
            "x.eval.gz: is compressed (.gz); unpack it first (tried market, editions, Inspect",
        ),
        (
            "notes.txt",
            b"hello",
            "notes.txt: is not a file of bakeoff, a table, or a file of another tool that is read (tried",
        ),
        ("x.eval", b"PK\x03\x04 cut", "x.eval: is not a whole Inspect log"),
        ("x.json", b'{"a": 1}', 'nearest is Inspect: a log in JSON begins with "version" and "status"'),
        (
            "results_2026-01-01T00-00-00.json",
            b'{"results": {}}',
            "(tried market, editions, Inspect, Harbor, lm-eval, promptfoo",
        ),
        (
            "results_2026-01-01T00-00-00.json",
            b'{"results": {}}',
            "nearest is lm-eval: there are no samples_*.jsonl of its time beside it; run lm_eval with --log_samples",
        ),
        ("result.json", b'{"n_total_trials": 1}', "nearest is Harbor: a job is a directory; name "),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(bakeoff: Bakeoff, name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    refused = bakeoff("compare", name)
    assert refused.exit_code == 2 and message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and "Traceback" not in refused.stderr


@pytest.mark.parametrize("name", ["x.eval", "x.json", "x.wandb", "x.csv"])
def test_a_pipe_is_not_waited_for(bakeoff: Bakeoff, name: str) -> None:
    Path("logs").mkdir()
    os.mkfifo(Path("logs", name))
    named = bakeoff("compare", Path("logs", name))
    assert named.exit_code == 2 and f"{name}: is a pipe or a device; write what it gives into a file" in named.stderr
    beside = bakeoff("compare", "logs")
    assert beside.exit_code == 2 and len(beside.stderr.splitlines()) == 1


def test_json_that_is_nested_beyond_what_can_be_read_is_one_line(bakeoff: Bakeoff) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    for name, text in (
        ("eval.json", '{"results": {"version": 3, "results": ' + deep + "}}"),
        ("log.json", '{"version": 2, "status": "success", "eval": {"a": ' + deep + "}}"),
    ):
        Path(name).write_text(text)
        refused = bakeoff("compare", name)
        assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1, refused.output
        assert name in refused.stderr


def test_a_directory_whose_name_is_not_utf8_is_read(bakeoff: Bakeoff) -> None:
    directory = os.fsdecode(b"logs-\xff")
    shutil.copytree(FIXTURES / "inspect" / "skill", directory)
    assert "read 12 samples x 2 logs of Inspect" in bakeoff("compare", directory).stdout


@pytest.mark.parametrize(("other", "entry", "tool"), [
    ("harbor/models", "models", "Harbor"), ("hyperfine/sleeps.json", "sleeps.json", "hyperfine"), ("tensorboard", "tensorboard", "training logs"),
])  # fmt: skip
def test_files_of_a_second_tool_in_a_directory_are_named_as_not_read(
    bakeoff: Bakeoff, other: str, entry: str, tool: str
) -> None:
    shutil.copytree(FIXTURES / "inspect" / "skill", "mixed")
    assert "is read of" not in bakeoff("compare", "mixed").stdout
    source = FIXTURES / other
    (shutil.copytree if source.is_dir() else shutil.copy)(source, Path("mixed", entry))
    shown = bakeoff("compare", "mixed").stdout
    assert f"only Inspect is read of mixed; mixed/{entry} is of {tool}: name it to read that" in shown
    assert "read 12 samples x 2 logs of Inspect" in shown


def test_renamed_logs_in_json_are_found_in_their_directory(bakeoff: Bakeoff) -> None:
    Path("renamed").mkdir()
    for number, path in enumerate((FIXTURES / "inspect" / "epochs").iterdir()):
        shutil.copy(path, Path("renamed", f"run{number}.json"))
    assert "read 16 samples x 2 logs of Inspect" in bakeoff("compare", "renamed").stdout


def test_a_directory_of_nothing_says_which_formats_were_tried(bakeoff: Bakeoff) -> None:
    Path("empty").mkdir()
    refused = bakeoff("compare", "empty")
    assert refused.exit_code == 2
    assert "tried market, editions, Inspect, Harbor, lm-eval, promptfoo" in refused.stderr
    assert "nearest is Inspect: there is no .eval file below it" in refused.stderr


def test_flags_of_columns_are_refused_for_logs_and_flags_of_logs_for_tables(bakeoff: Bakeoff) -> None:
    refused = bakeoff("compare", FIXTURES / "inspect" / "skill", "--rollout-from", "k")
    assert (
        refused.exit_code == 2 and "is not a table, so nothing in it is a column for --rollout-from" in refused.stderr
    )
    Path("x.csv").write_text("arm,score\na,1\nb,2\n")
    refused = bakeoff("compare", "x.csv", "--reruns", "newest")
    assert refused.exit_code == 2 and "--reruns is for logs of other tools; x.csv is a table" in refused.stderr


def test_the_path_of_a_table_can_be_its_arm(bakeoff: Bakeoff) -> None:
    for arm, lift in (("old", 0), ("new", 5)):
        rows = "".join(f"{seed},{lift + seed % 3}\n" for seed in range(8))
        Path(f"{arm}_run.csv").write_text(f"seed,score\n{rows}")
    answered = bakeoff("compare", "old_run.csv", "new_run.csv", "--arm-from", r"path:(\w+)_run", "--json")
    (one,) = json.loads(answered.stdout)["comparisons"]
    assert (one["control"], one["candidate"], one["verdict"]) == ("old", "new", "better")


def test_runs_that_report_other_metrics_are_left_out_and_not_failed(bakeoff: Bakeoff) -> None:
    both = (FIXTURES / "harbor" / "models", FIXTURES / "inspect" / "skill")
    together = json.loads(bakeoff("compare", *both, "--json").stdout)["comparisons"][0]
    alone = json.loads(bakeoff("compare", both[0], "--json").stdout)["comparisons"][0]
    assert together["failed"] == 0
    assert (together["effect"], together["p"]) == (alone["effect"], alone["p"])
    assert "24 runs of sums report other metrics than reward and are left out" in bakeoff("compare", *both).stdout


def test_two_logs_can_be_named_as_baseline_and_candidate(bakeoff: Bakeoff) -> None:
    none, calculator = sorted((FIXTURES / "inspect" / "skill").glob("*.eval"))
    answered = json.loads(bakeoff("compare", "--baseline", none, "--candidate", calculator, "--json").stdout)
    (one,) = answered["comparisons"]
    assert (one["metric"], one["control_mean"], one["candidate_mean"]) == ("match", 8 / 12, 9 / 12)


def test_an_error_about_runs_of_another_tool_has_the_reading_line(bakeoff: Bakeoff) -> None:
    one = sorted((FIXTURES / "inspect" / "skill").glob("*.eval"))[0]
    refused = bakeoff("compare", one)
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert "there is nothing to compare 'mockllm/model' with" in refused.stderr
    assert "(read 12 samples in 1 log of Inspect 0.3.285; one arm, 'mockllm/model'" in refused.stderr


def test_a_directory_of_compressed_files_says_that_they_are(bakeoff: Bakeoff) -> None:
    Path("logs").mkdir()
    Path("logs/a.eval.gz").write_bytes(b"\x1f\x8b")
    assert "a.eval.gz is compressed; unpack it first (tried" in bakeoff("compare", "logs").stderr


def test_a_pattern_of_errors_is_checked_also_where_no_run_has_an_error(bakeoff: Bakeoff) -> None:
    refused = bakeoff("compare", FIXTURES / "harbor" / "models", "--infra-error", "(")
    assert refused.exit_code == 2 and "--infra-error: '(' is not a regular expression" in refused.stderr


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        ("tensorboard", "of TensorBoard; arm = directory without its seed"),
        ("wandb", "; arm = "),
        ("pytest_benchmark", "; arm = "),
    ],
)
def test_the_reading_line_says_where_the_names_of_arms_come_from(bakeoff: Bakeoff, name: str, clause: str) -> None:
    answered = bakeoff("compare", FIXTURES / name, "--failure-score", "0")
    line = (answered.stdout + answered.stderr).partition("read ")[2]
    assert clause in line and "arm = arm" not in line, answered.stderr
