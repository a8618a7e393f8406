"""Run a campaign of 30 seeds on the language workload, each condition at the best rate of the same small sweep.

    python benchmarks/language_campaign.py            about 10 minutes on two cores; the same command resumes
    python benchmarks/language_campaign.py --quick    four seeds and two rates, to see that it works

Advantages differ in scale, so one learning rate for all would favour one of them. The sweep uses seeds of its own. Results
stay in build/language-campaign, where `bakeoff compare --root` can ask them more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import BAKEOFF, REPOSITORY, Options, check, environment, machine, options, publish, say, versions

import bakeoff

CONDITIONS: dict[str, dict[str, Any]] = {
    "dr_grpo+none": {"advantage": "dr_grpo"},
    "maxrl+none": {"advantage": "maxrl"},
    "maxrl+gtpo": {"advantage": "maxrl", "transform": "gtpo"},
    "maxrl+gtpo_hicra": {"advantage": "maxrl", "transform": "gtpo_hicra"},
    "maxrl+gtpo_sepa": {"advantage": "maxrl", "transform": "gtpo_sepa"},
}
SHARED = {"task": "countdown", "steps": 60, "sepa_delay": 5, "sepa_steps": 50}
RATES = (2e-4, 5e-4, 1e-3, 2e-3)
SWEEP_SEEDS, SEEDS = 4, 30
METRICS = ("heldout_accuracy", "heldout_pass_at_4", "heldout_greedy", "correct_rate")
METHOD = (
    "examples/language.toml with 30 seeds. Each condition trains at the learning rate that had the best mean held-out accuracy "
    "on 4 other seeds, of 2e-4, 5e-4, 1e-3 and 2e-3. Verdicts are those of `bakeoff compare`: Holm over the arms of a question."
)


def run(place: Path, name: str, arms: dict[str, dict[str, Any]], seeds: dict[str, int]) -> Path:
    """Run or resume an experiment with these arms; its file."""
    file = place / f"{name}.json"
    listed = [{"name": arm, "params": params} for arm, params in arms.items()]
    content = {"name": name, "workload": "language", "seeds": seeds, "params": SHARED, "arms": listed}
    file.write_text(json.dumps(content, indent=1))
    command = [*BAKEOFF, "run", str(file), "--root", str(place / "runs"), "--allow-code-change"]
    subprocess.run(command, env=environment(), stdout=sys.stderr, check=True)
    return file


def compared(file: Path, place: Path, control: str, metric: str, arms: Sequence[str] | None = None) -> dict[str, Any]:
    """What `bakeoff compare` says of each arm against the control, on the metric at the end of the training."""
    question = {"control": control, "metric": [metric], "arms": arms, "summary": "final", "last": 1}
    verdicts = bakeoff.compare(file.stem, root=place / "runs", **{k: v for k, v in question.items() if v is not None})
    return {
        each.candidate: {
            "mean": each.candidate_mean,
            "effect": each.effect,
            "interval": [each.interval.low, each.interval.high] if each.interval else [None, None],
            "p": each.p_adjusted,
            "verdict": each.verdict,
            "control": each.control_mean,
        }
        for each in verdicts
    }


def best_rates(place: Path, given: Options) -> dict[str, Any]:
    rates = RATES[1:3] if given.quick else RATES
    arms = {
        f"{condition} at {rate:g}": {**params, "learning_rate": rate}
        for condition, params in CONDITIONS.items()
        for rate in rates
    }
    file = run(place, "rates", arms, {"count": 2 if given.quick else SWEEP_SEEDS, "base": 1000})
    first, *_ = arms
    answers = compared(file, place, first, "heldout_accuracy")
    means = {arm: answers[arm]["mean"] if arm in answers else next(iter(answers.values()))["control"] for arm in arms}
    return {
        condition: {
            "best": max(rates, key=lambda rate: means[f"{condition} at {rate:g}"]),
            "accuracy": {f"{rate:g}": means[f"{condition} at {rate:g}"] for rate in rates},
        }
        for condition in CONDITIONS
    }


def main() -> None:
    given = options(__doc__ or "")
    place = REPOSITORY / "build" / ("language-campaign-quick" if given.quick else "language-campaign")
    place.mkdir(parents=True, exist_ok=True)
    swept = best_rates(place, given)
    say(json.dumps(swept, indent=1))
    arms: dict[str, dict[str, Any]] = {"start": {"steps": 0}}
    for condition, params in CONDITIONS.items():
        arms[condition] = {**params, "learning_rate": swept[condition]["best"]}
    arms["control-again"] = {**arms["dr_grpo+none"], "own_sampling": True}
    file = run(place, "campaign", arms, {"count": 4 if given.quick else SEEDS})
    conditions = list(arms)[2:]
    answers = {
        metric: {
            "against start": compared(file, place, "start", metric),
            "against dr_grpo+none": compared(file, place, "dr_grpo+none", metric, conditions),
            "against maxrl+none": compared(file, place, "maxrl+none", metric, list(CONDITIONS)[2:]),
        }
        for metric in METRICS
    }
    for metric, questions in answers.items():
        for question, arms_of in questions.items():
            for arm, each in arms_of.items():
                low, high = each["interval"]
                say(
                    f"{metric:18s} {question:21s} {arm:17s} {each['mean']:.4f} {each['effect']:+.4f} [{low:+.4f} to {high:+.4f}] p = {each['p']:.2g} {each['verdict']}"
                )
    rose = answers["heldout_accuracy"]["against start"]
    trained = answers["correct_rate"]["against start"]
    lines = [
        check(f"language campaign: {name}, {condition}", f"{table[condition]['effect']:+.3f}", "start", table[condition]["effect"], bar)
        for name, table, bar in (("held-out accuracy", rose, 0.03), ("correct rate on training prompts", trained, 0.12))
        for condition in ("dr_grpo+none", "maxrl+none")
    ]  # fmt: skip
    measured = {"seeds": SEEDS, "rates": swept, "verdicts": answers}
    publish(
        "language_campaign",
        given,
        lines,
        measured,
        method=METHOD,
        facts=machine(place),
        programs=versions("torch", "numpy"),
    )


if __name__ == "__main__":
    main()
