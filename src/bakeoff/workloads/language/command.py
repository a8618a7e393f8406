"""`bakeoff language`: train a warm start, let a model answer, run retrain's campaigns."""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.display import print_json
from bakeoff.cli.options import json_option
from bakeoff.errors import UsageError
from bakeoff.text import number
from bakeoff.workloads.language.params import LanguageParams
from bakeoff.workloads.language.tasks import TASKS, Codec, Task
from bakeoff.workloads.language.workload import need_torch

if TYPE_CHECKING:
    from bakeoff.workloads.language.model import Policy

_DEFAULTS = LanguageParams()
task_option = click.option("--task", type=click.Choice(TASKS), default=_DEFAULTS.task, show_default=True)


@click.group(name="language")
def command() -> None:
    """Reinforcement learning of small language models on tasks with a verifier."""
    need_torch()


@command.command()
@task_option
@click.option("--width", type=click.IntRange(8, 1024), default=_DEFAULTS.width, show_default=True)
@click.option("--layers", type=click.IntRange(1, 24), default=_DEFAULTS.layers, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=_DEFAULTS.heads, show_default=True)
@click.option("--steps", type=click.IntRange(1), help="(default: the task's, 700 for most)")
@click.option("--seed", type=int, default=_DEFAULTS.warm_seed, show_default=True)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Where to write it (default: the cache)."
)
@json_option
def pretrain(
    task: str, width: int, layers: int, heads: int, steps: int | None, seed: int, output: Path | None, as_json: bool
) -> None:
    """Train a warm start: a model that carries out any plan, and mostly does not know which plan fits.

    Experiments train and cache theirs by themselves. This shows what it can do, or writes it as a file for `warm_start`.
    """
    import torch

    from bakeoff.workloads.language import pretrain as warm

    if width % heads:
        raise UsageError(f"width {width} cannot be divided into {heads} heads")
    torch.set_num_threads(1)
    chosen = Task(task)
    start = warm.cached(chosen, warm.shape_of(chosen, width, layers, heads), steps or chosen.rules.warm_steps, seed)
    if output is not None:
        warm.save(start, chosen, output)
    facts = {"task": task, "digest": start.digest, **start.facts}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        click.echo(f"{name:28} {number(value)}")
    if start.facts["train_execution_surprisal"] > 0.15:
        click.echo(
            "note: execution surprisal is above 0.15: train it longer, or reinforcement learning may collapse", err=True
        )
    if output is not None:
        click.echo(f"wrote {output}")


@command.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--task", type=click.Choice(TASKS), help="(default: the model's)")
@click.option("--prompt", help="The words of a prompt, such as '9 1 8 :' (default: held-out prompts).")
@click.option(
    "-n", "--answers", type=click.IntRange(1, 1000), default=4, show_default=True, help="Answers to a prompt."
)
@click.option("--prompts", type=click.IntRange(1, 1000), default=4, show_default=True, help="Held-out prompts.")
@click.option("--greedy", is_flag=True, help="The most likely answer instead of sampled ones.")
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def play(
    model: Path,
    task: str | None,
    prompt: str | None,
    answers: int,
    prompts: int,
    greedy: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Let MODEL answer: a file of `pretrain`, a run's directory, or a Hugging Face model's. Plans stand in [brackets]."""
    import numpy as np
    import torch

    from bakeoff.workloads.language.model import sample
    from bakeoff.workloads.language.tasks import Prompt

    torch.set_num_threads(1)
    policy, codec, chosen = _opened(model, task)
    rng = np.random.default_rng(seed)
    known = {own.id: own for split in ("train", "heldout") for own in chosen.prompts(split)}
    picked: list[Prompt]
    if prompt is not None:
        text = " ".join(prompt.split())
        if text not in known:
            raise UsageError(f"{text!r} is not a prompt of {chosen.name}; one is {next(iter(known))!r}")
        picked = [known[text]]
    else:
        heldout = chosen.prompts("heldout")
        picked = [heldout[number] for number in rng.choice(len(heldout), min(prompts, len(heldout)), replace=False)]
    group = 1 if greedy else answers
    draws = None if greedy else rng.random((codec.longest_answer, group * len(picked)), dtype=np.float32)
    questions = torch.tensor(codec.questions(picked))
    drawn = sample(policy, questions, group, codec.longest_answer, draws)
    rows: list[dict[str, Any]] = [
        {
            "prompt": picked[row // group].id,
            "answer": codec.decode(ids),
            "plan": " ".join(word for word in codec.decode(ids).split() if word in chosen.planning_words),
            "reward": codec.reward(picked[row // group], ids),
        }
        for row, ids in enumerate(drawn.ids.tolist())
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        parts = itertools.groupby(row["answer"].split(), lambda word: word in chosen.planning_words)
        marked = " ".join(f"[{' '.join(words)}]" if plan else " ".join(words) for plan, words in parts)
        click.echo(f"{row['reward']:.0f}  {row['prompt']} {marked}")
    likeliest = drawn if greedy else sample(policy, questions, 1, codec.longest_answer, None)
    best = [codec.reward(asked, ids) for asked, ids in zip(picked, likeliest.ids.tolist(), strict=True)]
    sampled = "" if greedy else f"{np.mean([row['reward'] for row in rows]):.1%} of {len(rows)} sampled answers and "
    click.echo(f"{sampled}{np.mean(best):.1%} of {len(best)} greedy answers are right")


def _opened(model: Path, task: str | None) -> tuple[Policy, Codec, Task]:
    """The model at a path, how it reads and writes, and its task. Raises UsageError."""
    from bakeoff.workloads.language import pretrain as warm
    from bakeoff.workloads.language.outputs import DIRECTORY
    from bakeoff.workloads.training.files import MODEL

    for place in (model / DIRECTORY, model):
        if (place / "config.json").is_file():
            from bakeoff.workloads.language import pretrained

            notes = pretrained.notes(place)
            name = task or notes.get("task")
            if name is None:
                raise UsageError(f"{place}: which task? Add --task, one of {', '.join(TASKS)}")
            chosen = Task(name)
            policy, codec, _ = pretrained.load(place, chosen, notes.get("shots", _DEFAULTS.shots))
            return policy, codec, chosen
    path = model / MODEL if model.is_dir() else model
    chosen = Task(task or warm.task_of(path))
    return warm.load(path, chosen).model, chosen, chosen


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="Settings of the runs, in a file without [campaign].")
@click.option("--max-steps", type=click.IntRange(1), help="Steps of each run (default: the file's).")
@click.option("--seeds", help="Such as 42,101,202 (default: the file's).")
@click.option("--wandb-project", help="Log every run to this W&B project, grouped by condition.")
@click.option("--output", type=click.Path(path_type=Path), help="(default: logs/campaign_TIME)")
@click.option("--jobs", type=click.IntRange(1), help="Runs at a time (default: the number of cores).")
@click.option("--execute", is_flag=True, help="Run it. Without this, only the plan is written.")
def campaign(
    file: Path | None,
    config: Path | None,
    max_steps: int | None,
    seeds: str | None,
    wandb_project: str | None,
    output: Path | None,
    jobs: int | None,
    execute: bool,
) -> None:
    """Turn a campaign FILE of retrain (conditions times seeds) into an experiment, and run it with --execute.

    Without FILE: retrain's five conditions and eight seeds.
    Writes experiment.json and manifest.json; with --execute also runs/CONDITION_sSEED, where the campaign's own scripts,
    `bakeoff compare --baseline ... --candidate ...` and `bakeoff litmus` find the runs. Exits with 1 if a run failed.
    """
    from bakeoff.api import load
    from bakeoff.workloads.language.campaign import read

    if file is not None and config is not None:
        raise UsageError("give a campaign FILE or --config, not both")
    plan = read(file or config, max_steps=max_steps, seeds=seeds, project=wandb_project, base=config is not None)
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    now = datetime.now(UTC)
    directory = output or Path("logs") / f"campaign_{now:%Y%m%d_%H%M%S}"
    directory.mkdir(parents=True, exist_ok=True)
    spec = directory / "experiment.json"
    spec.write_text(json.dumps(plan.experiment, indent=2) + "\n")
    experiment = load(spec, root=directory / "results")
    runs = [
        {
            "condition": condition,
            "seed": seed,
            "run_name": f"{condition}_s{seed}",
            "log_dir": str(directory / "runs" / f"{condition}_s{seed}"),
            "status": "planned",
        }
        for condition, seed in plan.runs
    ]
    manifest: dict[str, Any] = {
        "timestamp": f"{now:%Y%m%d_%H%M%S}",
        "campaign_toml": str(file or config or ""),
        "conditions": [arm["name"] for arm in plan.experiment["arms"]],
        "seeds": plan.experiment["seeds"],
        "wandb_project": plan.experiment["params"].get("wandb_project", ""),
        "max_steps": plan.experiment["params"]["steps"],
        "num_runs": len(runs),
        "runs": runs,
    }

    def write() -> None:
        (directory / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")

    write()
    click.echo(f"{len(runs)} runs: {len(manifest['conditions'])} conditions, {len(manifest['seeds'])} seeds")
    click.echo(f"wrote {directory / 'manifest.json'}")
    if not execute:
        click.echo(f"nothing was run; repeat with --execute --output {directory}, or `bakeoff run {spec}`")
        return
    experiment.run(jobs=jobs)
    (directory / "runs").mkdir(exist_ok=True)
    table = experiment.table()
    done = {(row["arm"], row["seed"]): row for row in table.to_dicts()}
    results = experiment.edition.directory / "runs"
    for run in runs:
        row = done[(run["condition"], run["seed"])]
        run["status"] = row["status"]
        link = directory / "runs" / str(run["run_name"])
        if link.is_symlink():
            link.unlink()
        link.symlink_to(os.path.relpath(results / row["run_id"], link.parent))
    write()
    failed = sum(run["status"] != "succeeded" for run in runs)
    click.echo(f"{len(runs) - failed} succeeded, {failed} failed; runs: {directory / 'runs'}")
    if failed:
        click.get_current_context().exit(1)
