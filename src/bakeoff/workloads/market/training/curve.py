"""The learning curve as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bakeoff.report.figure import Figure, Line, Panel, Rule

CURVES = {"greedy_reward": "likeliest choices", "reward": "drawn choices, as in training"}


def curve(log: Sequence[Mapping[str, float]], worlds: int) -> Figure:
    """Mean reward by iteration."""
    steps = np.array([facts["step"] for facts in log])
    lines = [
        Line(steps, np.array([facts[name] for facts in log]), at, label)
        for at, (name, label) in enumerate(CURVES.items())
    ]
    panel = Panel("iteration", "dollars a world", (*lines, Rule("y", 0.0)))
    return Figure(
        "Reward in training",
        f"Mean change of equity over the {worlds} worlds of each iteration. Drawn choices: before learning from them; "
        "likeliest choices: afterwards, in the same worlds. Held-out worlds decide, not this curve.",
        [panel],
    )
