"""Examples of `bakeoff init` that belong to no single workload's package: commands, Python functions, and a table."""

from pathlib import Path

from bakeoff.spec.starters import Starter

_HERE = Path(__file__).parent

COMMAND = Starter("your own commands: three settings of a script, on the same seeds", _HERE / "command", "command.toml")
PYTHON = Starter(
    "a Python function: two step sizes of a learner, with learning curves", _HERE / "python", "python.toml"
)
CSV = Starter("results that you have already: a table of scores", _HERE / "csv", "results.csv", verbs=("compare {file}", "rank {file}", "report {file}"))  # fmt: skip
