"""Random tables of every design, with the question that belongs to each, for tests that compare two ways to an answer.

table = random_table(number)
answer(table.results(), table.question(Compare))
"""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bakeoff.results.table import Results, Row
from bakeoff.verdicts.question import Question

DESIGNS: dict[str, dict[str, Any]] = {
    "seeds": {"tasks": (1, 1), "seeds": (3, 13)},
    "many seeds": {"tasks": (1, 1), "seeds": (21, 24), "slow": True},
    "rollouts": {"tasks": (1, 1), "rollouts": (3, 10)},
    "unpaired seeds": {"tasks": (1, 1), "seeds": (3, 10), "unpaired": True},
    "tasks": {"tasks": (3, 12), "rollouts": (1, 3)},
    "tasks with nested seeds": {"tasks": (3, 10), "seeds": (2, 3)},
    "tasks with fixed seeds": {"tasks": (3, 9), "seeds": (2, 3), "kind": "fixed"},
    "unpaired tasks": {"tasks": (3, 9), "rollouts": (1, 2), "unpaired": True},
    "groups": {"tasks": (8, 14), "rollouts": (1, 2), "groups": (6, 9)},
    "clusters": {"tasks": (5, 14), "rollouts": (1, 2), "groups": (3, 9), "cluster": "repo"},
    "crossed": {"tasks": (3, 7), "seeds": (3, 7), "kind": "crossed"},
    "crossed with holes": {"tasks": (4, 9), "seeds": (3, 7), "kind": "crossed", "holes": (0.1, 0.6)},
    "crossed in groups": {"tasks": (8, 12), "seeds": (2, 6), "kind": "crossed", "groups": (6, 7)},
    "two crossed seeds": {"tasks": (3, 12), "seeds": (2, 2), "kind": "crossed"},
    "runs": {"tasks": (2, 8), "seeds": (2, 5), "kind": "crossed", "unpaired": True},
    "fixed tasks, nested seeds": {"tasks": (2, 4), "seeds": (2, 4), "population": "fixed"},
    "fixed tasks, rollouts": {"tasks": (2, 4), "rollouts": (2, 4), "population": "fixed"},
    "fixed tasks, unpaired seeds": {"tasks": (2, 3), "seeds": (2, 4), "population": "fixed", "unpaired": True},
    "fixed tasks, crossed seeds": {"tasks": (2, 3), "seeds": (3, 9), "population": "fixed", "kind": "crossed"},
    "fixed tasks, crossed seeds with holes": {
        "tasks": (2, 5), "seeds": (3, 9), "population": "fixed", "kind": "crossed", "holes": (0.1, 0.4)
    },
    "strict seeds": {"tasks": (1, 1), "seeds": (3, 11), "strict": True},
    "strict rollouts": {"tasks": (1, 1), "rollouts": (3, 5), "strict": True},
    "strict clusters": {"tasks": (5, 12), "rollouts": (1, 1), "groups": (3, 9), "cluster": "repo", "strict": True},
    "strict fixed tasks": {"tasks": (2, 3), "seeds": (2, 4), "population": "fixed", "strict": True},
    "strict fixed rollouts": {"tasks": (2, 2), "rollouts": (2, 4), "population": "fixed", "strict": True},
}  # fmt: skip
Q = TypeVar("Q", bound=Question)
KINDS = ("smooth", "lumpy", "outcomes", "equal", "skewed")
PLACE = ("arm", "task", "seed", "rollout")


@dataclass(frozen=True)
class RandomTable:
    """Rows as a CSV file would have them, and how they are to be judged."""

    design: str
    rows: list[dict[str, Any]]
    asked: dict[str, Any]
    groups: dict[str, str]
    """The group of each task; empty where there are none."""

    @property
    def metrics(self) -> list[str]:
        return [name for name in self.rows[0] if name not in (*PLACE, "status", "repo")]

    def question(self, model: type[Q], **more: Any) -> Q:
        return model.ask(**{**self.asked, **more})

    def results(self) -> Results:
        rows = [
            Row(
                row["arm"], row["task"], row.get("seed"), row["rollout"], row["status"],
                {name: row[name] for name in self.metrics if row[name] is not None},
            )
            for row in self.rows
        ]  # fmt: skip
        return Results(rows, "random table", groups={"repo": self.groups} if self.groups else {})

    def write(self, path: Path) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]))
        writer.writeheader()
        writer.writerows(self.rows)
        path.write_text(text.getvalue())


def random_table(number: int, design: str | None = None) -> RandomTable:
    """Return the table of this number: the same one on every machine."""
    rng = random.Random(number)
    design = design or list(DESIGNS)[number % len(DESIGNS)]
    given = DESIGNS[design]
    kind = rng.choice(KINDS)
    slow = "slow" in given
    arms = ["A", *"BCD"[: 1 if slow else rng.choice((1, 1, 2, 3))]]
    tasks, seeds, rollouts = (rng.randint(*given.get(name, (1, 1))) for name in ("tasks", "seeds", "rollouts"))
    metrics = ["score", "reward"][: 1 if slow else rng.choice((1, 1, 1, 2))]
    shift = rng.choice((0.0, 0.0, 0.6, 1.5, 3.0)) * rng.choice((-1, 1))
    places = [(f"t{t:02}", s, k) for t in range(tasks) for s in range(seeds) for k in range(rollouts)]
    if "holes" in given:
        share = rng.uniform(*given["holes"])
        places = [place for place in places if place[1] == int(place[0][1:]) % seeds or rng.random() > share]
    world = {(task, seed): rng.gauss(0, 1) for task, seed, _ in places}
    hard = {task: rng.gauss(0, 1) for task, _, _ in places}
    groups = {}
    if "groups" in given:
        count = rng.randint(*given["groups"])
        groups = {f"t{t:02}": f"g{t % count}" for t in range(tasks)}
    rows = []
    for number_of_arm, arm in enumerate(arms):
        for task, seed, rollout in places:
            row: dict[str, Any] = {"arm": arm, "task": task, "seed": seed, "rollout": rollout, "status": "succeeded"}
            for metric in metrics:
                value = world[task, seed] + hard[task] + (shift if number_of_arm == 1 else 0.0)
                value += 0.0 if kind == "equal" and number_of_arm < 2 else noise(kind, rng)
                if kind == "lumpy":
                    value = round(4 * value) / 4
                row[metric] = float(value > 0) if kind == "outcomes" else round(value, 6)
            rows.append(row)
    if "seeds" not in given:
        for row in rows:
            del row["seed"]
    asked = _question(given, kind, metrics, rng)
    lose_runs(rows, metrics, rng, bool(asked.get("failure_score") is not None))
    for row in rows:
        row |= {"repo": groups[row["task"]]} if groups else {}
    return RandomTable(design, rows, asked, groups)


def noise(kind: str, rng: random.Random) -> float:
    return rng.expovariate(1.0) ** 2 - 1.0 if kind == "skewed" else rng.gauss(0, 0.7)


def _question(given: dict[str, Any], kind: str, metrics: list[str], rng: random.Random) -> dict[str, Any]:
    """Return the declarations of the design, and others at random."""
    asked: dict[str, Any] = {"metric": metrics, "control": "A", "alpha": rng.choice((0.05, 0.05, 0.1, 0.01))}
    direction = rng.choice(("maximize", "minimize"))
    asked |= {"direction": [f"{metric}={direction}" for metric in metrics]}
    asked |= {"seeds": given.get("kind", "nested")} if "seeds" in given else {}
    asked |= {"tasks": given["population"]} if "population" in given else {}
    asked |= {name: given[name] for name in ("cluster", "unpaired", "strict") if name in given}
    margin = rng.choice((None, None, 0.25, 0.5, 1.0, 4.0))
    asked |= {"margin": margin} if margin is not None else {"relative_margin": 0.3} if rng.random() < 0.15 else {}
    if rng.random() < 0.3:
        asked["bounds"] = (0.0, 1.0) if kind == "outcomes" else (-100.0, 100.0)
    if rng.random() < 0.5:
        asked["failure_score"] = 0.0 if kind == "outcomes" else rng.choice((-3.0, 0.5))
    if rng.random() < 0.1 and "seeds" in given:
        asked["intersect"] = not given.get("unpaired", False)
    return asked


def lose_runs(rows: list[dict[str, Any]], metrics: list[str], rng: random.Random, failures: bool) -> None:
    """Make some runs missing, take some rows away, and let some fail, in four tables of ten."""
    if rng.random() < 0.6:
        return
    for row in rng.sample(rows, min(len(rows) // 4, rng.randint(1, 3))):
        what = rng.choice(("missing", "absent", "failed" if failures else "missing"))
        if what == "absent":
            rows.remove(row)
            continue
        row["status"] = "infra_error" if what == "missing" else "failed"
        row |= dict.fromkeys(metrics)
