"""Large and hostile files that a run leaves do not keep the scheduler from the other runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from bakeoff.engine import processes
from support.processes import Lab

MILLION = """
import os
with open(os.path.join(os.environ["BAKEOFF_RUN_DIR"], "metrics.jsonl"), "w") as file:
    for step in range(1_000_000):
        file.write('{"step": %d, "loss": %d.5, "rate": 0.25}\\n' % (step, step % 7))
"""


class Gaps:
    """The longest time between two ticks."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.longest = 0.0

    def tick(self, running: Sequence[Any]) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - (self._last or now))
        self._last = now

    def finished(self, attempt: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_million_lines_of_metrics_do_not_stop_the_scheduler(lab: Lab) -> None:
    lab.write("million.py", MILLION)
    lab.experiment("params = { command = ': {dir}; python3 million.py' }")
    gaps = Gaps()
    lab.run(observers=[gaps])
    (row,) = lab.rows()
    series = lab.series(row["run_id"])
    assert {name: (len(values), values[6]) for name, values in series.items()} == {
        "loss": (1_000_000, (6, 6.5)),
        "rate": (1_000_000, (6, 0.25)),
    }
    assert gaps.longest < 0.75, f"nothing was looked at for {gaps.longest:.2f} s"


STRANGE = {
    "mkfifo {dir}/metrics.jsonl": "metrics.jsonl cannot be read: ",
    "ln -s /dev/zero {dir}/metrics.jsonl": "metrics.jsonl cannot be read: ",
    "mkdir {dir}/metrics.jsonl": "metrics.jsonl cannot be read: ",
    "truncate -s 1T {dir}/metrics.jsonl": "metrics.jsonl cannot be read: ValueError: it has 1,099,511,627,776 bytes",
    "truncate -s 9M {dir}/metrics.jsonl": "",
}


ODD = {
    "mkfifo {dir}/metrics.json": "metrics.json: cannot be read: it is not a regular file",
    "ln -s /dev/zero {dir}/metrics.json": "metrics.json: cannot be read: it is not a regular file",
    "mkdir {dir}/out; mkfifo {dir}/out/summary.csv": "out/summary.csv: cannot be read: it is not a regular file",
    "truncate -s 1T {dir}/metrics.json": "metrics.json: cannot be read: it has 1,099,511,627,776 bytes",
}


def test_metrics_that_are_no_file_or_endless_fail_their_run_at_once(lab: Lab) -> None:
    arms = "\n".join(
        f"[[arms]]\nname = 'a{number}'\nparams = {{ command = '{command}' }}" for number, command in enumerate(ODD)
    )
    lab.experiment(f"limits = {{ time = 60 }}\n{arms}")
    lab.run()
    for row, error in zip(lab.rows(), ODD.values(), strict=True):
        assert row["status"] == "failed" and row["error"].startswith(error)


@pytest.mark.slow
def test_a_series_that_is_no_file_or_endless_is_noted_and_waited_for_by_nobody(lab: Lab) -> None:
    arms = "\n".join(
        f"[[arms]]\nname = 'a{number}'\nparams = {{ command = '''{command}; echo '{{{{\"x\": 1}}}}' ''' }}"
        for number, command in enumerate(STRANGE)
    )
    lab.experiment(f"limits = {{ time = 60 }}\n{arms}")
    lab.cli("run", "trial.toml")
    rows = lab.rows()
    assert [(row["status"], row["x"]) for row in rows] == [("succeeded", 1)] * len(STRANGE)
    for row, note in zip(rows, STRANGE.values(), strict=True):
        assert (row["error"] or "").startswith(note)


def test_a_process_that_reads_a_series_is_not_taken_for_one_that_a_run_left(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "mark_of", lambda pid: None)  # as when a process is about to begin or to end
    command = "truncate -s 9M {dir}/metrics.jsonl; sleep 0.{seed}; echo '{{\"x\": 1}}'"
    lab.experiment(f"seeds = 3\njobs = 3\nparams = {{ command = '''{command}''' }}")
    lab.run()
    assert [row["error"] for row in lab.rows()] == ["metrics.jsonl: 9 lines could not be read"] * 3
