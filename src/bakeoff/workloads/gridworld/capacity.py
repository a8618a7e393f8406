"""How large the policies are. Their widths are chosen so that all built-in policies have the same number of parameters.

`width` is that of the encoder and of the recurrent cell. The other policies get a feed-forward layer of the size that
makes up for the cell. This module does not import torch: experiment files are checked without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bakeoff.workloads.gridworld.levels import APPEARANCES, RESOURCES

Trained = Literal["vit_reset", "trxl", "memoryless"]
TRAINED: tuple[str, ...] = get_args(Trained)
REFERENCES = ("random", "clairvoyant")
"""Policies that are not trained: the lower and the upper end of the scale."""

CELLS = 7 * 7
CELL_CODES = 2 * (2 + APPEARANCES)
"""What a cell of the view can show: floor, wall or a station of some appearance, each ready or cooling down."""
ACTIONS = 5
EXTRA_CODES = (*(2 for _ in range(RESOURCES)), ACTIONS + 1, 2)
"""Values of the columns behind the cells: resources carried, the last action plus one, whether it gave a heart."""
COLUMNS = CELLS + len(EXTRA_CODES)
DEPTH = 8
"""Numbers that stand for what a cell shows."""
HEADS = 4
WINDOW = 64
"""Steps that `trxl` looks at, the present one included."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of a policy."""

    feed_forward: int
    """Width of the feed-forward layer; 0 for none."""
    parameters: int
    flops: int
    """Of one step while acting: two for each multiplication, and one for each number that is looked up and added."""


def capacity(policy: str, width: int) -> Capacity:
    """The size of a built-in policy."""
    encoder = CELL_CODES * DEPTH + DEPTH * CELLS * width + sum(EXTRA_CODES) * width + width
    head = (ACTIONS + 1) * (width + 1)
    cell = 6 * width * width + 6 * width
    ends = COLUMNS * width + 2 * head
    if policy == "vit_reset":
        return Capacity(0, encoder + cell + head, ends + 2 * cell)
    attention = 4 * width * width + 4 * width + (width + HEADS) * WINDOW + 6 * width
    looked_at = 2 * 3 * width * WINDOW  # products with keys, places and values
    fixed, flops = (attention, 2 * (4 * width * width) + looked_at) if policy == "trxl" else (0, 0)
    feed_forward = max(1, round((cell - fixed - width) / (2 * width + 1)))
    layer = feed_forward * (2 * width + 1) + width
    return Capacity(feed_forward, encoder + fixed + layer + head, ends + flops + 2 * layer)
