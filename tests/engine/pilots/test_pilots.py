"""Pilots as plain processes over a spool: results as local ones, losses, fencing, adoption."""

from __future__ import annotations

import pytest

from lab import Lab
from process_pilots import install

COMMAND = """
seeds = 12
[params]
command = '''mkdir -p {out}; echo {seed} > {out}/seed.txt; echo said {seed}; echo "{{\\"score\\": $(( {seed} * 2 ))}}"'''
[executor]
kind = "processes"
pilots = 2
slots = 2
expiry = 3
"""


@pytest.fixture(autouse=True)
def _with_pilots(lab: Lab) -> None:
    lab.measured = False
    install(lab)


@pytest.mark.slow
def test_runs_on_pilots_leave_what_local_runs_leave(lab: Lab) -> None:
    lab.experiment(COMMAND)
    lab.cli("run", "trial.toml", "-v")
    rows = lab.rows()
    assert [(row["status"], row["score"], row["attempts"]) for row in rows] == [
        ("succeeded", 2 * seed, 1) for seed in range(12)
    ]
