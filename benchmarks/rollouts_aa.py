"""How often does `compare` decide between two equal agents whose provider has a cache, whose machine is busy, and whose
runs follow one another in some order?

    rollouts_aa.py [TRIALS] [--quick]

400 trials of 5 seeds: one experiment of 4,000 rollouts in bubblewrap, cut into blocks of 5 seeds, each of them judged as
`bakeoff compare` judges it, by score, cost and time. At most 32 decisions of each are the bar: 20 are expected. That takes
about a quarter of an hour on two idle cores; with fewer TRIALS the bar is as strict.
"""

from __future__ import annotations

import json
import math
import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Mapping
from os.path import commonprefix
from pathlib import Path
from typing import Any

from measure import REPOSITORY, check, machine, options, publish, versions, workspace

import bakeoff

sys.path.insert(0, str(REPOSITORY / "tests"))
from workloads.tasks.scripted import Json, ScriptedModel, Turn, Use, say, shell
from workloads.tasks.small import write_task

SEEDS = 5
METRICS = {"total_score": "maximize", "cost": "minimize", "seconds": "minimize"}
FORGOTTEN = 0.2
"""The chance that the provider forgets its cache before a request."""
METHOD = (
    f"Two arms that differ in a setting without effect. Each block of {SEEDS} seeds is one comparison. A scripted provider "
    "charges a tenth for the prefix of a prompt that it has seen, forgets all prefixes now and then, answers more slowly the "
    "more requests it has, and solves the task half of the time."
)


class BusyModel(ScriptedModel):
    """A provider with a cache that all its clients share, and a queue."""

    def __init__(self) -> None:
        super().__init__([say("Done.")], side=None)
        self._random = random.Random(1)
        self._prompts: deque[str] = deque(maxlen=20)
        self._own = threading.Lock()

    def turn(self, body: Json, spoken: int, tools: Mapping[str, Json]) -> tuple[Turn, list[tuple[str, str, str]]]:
        prompt = json.dumps(body["messages"])
        with self._own:
            if self._random.random() < FORGOTTEN:
                self._prompts.clear()
            known = max((len(commonprefix([prompt, other])) for other in self._prompts), default=0)  # noqa: RUF071 - text
            self._prompts.append(prompt)
            solved, wait, length = (
                self._random.random() < 0.5,
                self._random.expovariate(50.0),
                self._random.randrange(10, 400),
            )
        use = Use(input=len(prompt), cached=known, output=length)
        made = shell("touch done" if solved else "true") if spoken == 0 else say("Done.")
        turn = Turn(made.text, made.commands, use=use, wait_s=wait * threading.active_count())
        arguments = json.dumps({"command": made.commands[0]}) if made.commands else ""
        return turn, [(self.id("call"), "bash", arguments)] if made.commands else []


def rollouts(directory: Path, trials: int) -> list[dict[str, Any]]:
    """The rows of one experiment with all blocks."""
    scripts = [{"path": "hidden/check.sh", "rubric_id": "done", "content": "#!/bin/sh\ntest -e done\n"}]
    rubrics = [{"id": "done", "criterion": "It is done.", "weight": 1.0}]
    write_task(directory / "task", evaluation={"rubrics": rubrics, "test_scripts": scripts})
    with BusyModel() as model:
        provider = {"base_url": f"{model.url}/v1", "prices": {"m": {"input": 1.0, "cached": 0.1, "output": 4.0}}}
        content = {
            "name": "aa", "workload": "tasks", "jobs": 3, "seeds": SEEDS * trials,
            "tasks": [{"name": "touch", "path": "task"}],
            "params": {"agent": "builtin", "model": "here/m", "providers": {"here": provider}},
            "arms": [{"name": "once"}, {"name": "again", "params": {"provider_patience": 899}}],
        }  # fmt: skip
        file = directory / "aa.json"
        file.write_text(json.dumps(content))
        experiment = bakeoff.load(file, root=directory / "results")
        experiment.run()
        rows: list[dict[str, Any]] = experiment.table().select("arm", "seed", *METRICS, "cost_uncached").to_dicts()
    return rows


def main() -> None:
    given_trials = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1].isdigit() else None
    given = options(__doc__ or "")
    trials = int(given_trials) if given_trials else 4 if given.quick else 400
    with workspace() as directory:
        facts = machine(directory)
        rows = rollouts(directory, trials)
    # Three standard deviations above what is expected, as 32 of 400 is.
    bar = math.floor(0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)) if trials != 400 else 32
    lines, figures = [], {}
    for metric, direction in METRICS.items():
        verdicts = Counter[str]()
        for number in range(trials):
            block = [row for row in rows if row["seed"] // SEEDS == number]
            (verdict,) = bakeoff.compare(block, metric=metric, control="once", direction=direction)
            verdicts[verdict.verdict] += 1
        decided = trials - verdicts["undecided"]
        what = f"A/A trials that were decided by {metric}"
        lines.append(check(what, f"{decided} of {trials}", "", decided, bar + 0.5, "under", "trials"))
        figures[metric] = dict(verdicts)
    saved = 1 - sum(row["cost"] for row in rows) / sum(row["cost_uncached"] or row["cost"] for row in rows)
    figures |= {"rollouts": len(rows), "trials": trials, "saved_by_the_cache": saved}
    publish("rollouts_aa", given, lines, figures, method=METHOD, facts=facts, programs=versions("numpy"))


if __name__ == "__main__":
    main()
