"""One look for every plot: colours that colour-blind readers can tell apart, dark ink on white, fit for print."""

from __future__ import annotations

from bakeoff.report.figure import INK, Dash

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A")
"""Okabe and Ito's colours without yellow (too light on white), and a violet."""
INK_COLOUR = "#3a3f47"
MUTED = "#6b7280"
GRID = "#e3e6ea"
FONT = "DejaVu Sans"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
BAND_OPACITY = 0.18
FAINT_OPACITY = 0.28
_DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted")


def colour(number: int) -> str:
    return INK_COLOUR if number == INK else PALETTE[number % len(PALETTE)]


def dash(number: int) -> Dash:
    """Arms beyond the palette take its colours again, with another kind of line."""
    return _DASHES[(number // len(PALETTE)) % len(_DASHES)]
