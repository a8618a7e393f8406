"""`bakeoff init`: write a starter experiment that runs."""

from __future__ import annotations

from pathlib import Path

import click

from bakeoff.errors import UsageError

STARTER = '''\
#:schema ./bakeoff.schema.json
# Editors complete and check keys after: bakeoff validate --schema > bakeoff.schema.json
#
# An experiment: which arms are compared, on what, how often, and how they will be judged.
#   bakeoff validate {file}
#   bakeoff run {file}
#   bakeoff status latest
name = "{name}"
description = "How well three sample sizes estimate the mean of a noisy signal"
workload = "command"

# Every arm meets the same seeds, so their runs pair up.
seeds = "1..5"

[params]
noise = 1.0
# An argv, without a shell. {{seed}}, {{arm}} and every parameter can be used in it, and reach the command as environment
# variables too (BAKEOFF_SEED, BAKEOFF_PARAM_NOISE). Its last line of JSON on standard output is the run's metrics.
command = ["python3", "-c", """
import json, random, sys
seed, samples, noise = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
random.seed(seed)
mean = sum(random.gauss(0, noise) for _ in range(samples)) / samples
print(json.dumps({{"error": abs(mean), "cost": samples}}))
""", "{{seed}}", "{{samples}}", "{{noise}}"]

[[arms]]
name = "few"
params = {{ samples = 10 }}

[[arms]]
name = "some"
params = {{ samples = 100 }}

[[arms]]
name = "many"
params = {{ samples = 1000 }}

[limits]
time = "1m"

[analysis]
metric = "error"
direction = "minimize"
control = "few"
'''


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default="experiment.toml")
def command(file: Path) -> None:
    """Write a small, commented experiment to FILE (default: experiment.toml). An existing file is never replaced."""
    if file.suffix != ".toml":
        raise UsageError(f"{file}: the starter is TOML; choose a name that ends in .toml")
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(STARTER.format(file=file, name=file.stem))
    except FileExistsError:
        raise UsageError(f"{file} exists already; name another file") from None
    click.echo(f"wrote {file}; run it with: bakeoff run {file}")
