"""Numbers, durations and words from outside as people read them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTHING = "-"
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|$)"  # OSC, DCS and the like: titles, clipboard, links
    r"|\x1b[ -/]*[0-~]?"  # any other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]",  # control characters but tab and newline
    re.DOTALL,
)


def printable(text: str) -> str:
    """Text from outside without terminal escapes and control characters."""
    return _ESCAPES.sub("", text)


def one_line(text: str | None, limit: int = 100) -> str:
    """The last line that says something (where Python puts the error), shortened."""
    lines = [line.strip() for line in printable(text or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if len(lines[-1]) <= limit else lines[-1][: limit - 3] + "..."


def number(value: Any) -> str:
    """A metric for people: four significant digits or a whole number."""
    if value is None:
        return NOTHING
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e6):
        return str(int(value))
    return f"{value:.4g}"


def figure(value: float | None, *, signed: bool = False) -> str:
    """An effect or a mean in a table: four digits, and no powers of ten where a reader would count zeros."""
    if value is None:
        return NOTHING
    value += 0.0  # minus nothing is nothing
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "nan"
    sign = "+" if signed and value else ""
    return f"{value:{sign},.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:{sign}.4g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def utc(stamp: float | None) -> str:
    """The same on every machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stamp)) if stamp is not None else NOTHING


def standard(value: Any) -> Any:
    """What standard JSON can hold: what is no number (NaN, infinities) is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): standard(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [standard(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
