"""Durations and sizes as people write them: `90`, `"90s"`, `"1h30m"`, `"2GB"`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_duration(value: Any) -> float:
    """Seconds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number or (isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value.strip())):
        seconds = float(value)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])", str(value))
        if not parts or re.sub(r"[\s]", "", "".join(n + u for n, u in parts)) != re.sub(r"\s", "", str(value)):
            raise ValueError(f"{value!r} is not a duration; write seconds (90) or text such as '90s', '5m' or '1h30m'")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"a duration must be above zero, not {value!r}")
    return seconds


def parse_pause(value: Any) -> float:
    """Seconds, of which there may be none."""
    return 0.0 if value in (0, "0") and not isinstance(value, bool) else parse_duration(value)


def parse_size(value: Any) -> int:
    """Bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
        if match is None or match[2].lower() not in _BYTES:
            raise ValueError(f"{value!r} is not a size; write bytes or text such as '512MB' or '2GiB'")
        size = int(float(match[1]) * _BYTES[match[2].lower()])
    if size <= 0:
        raise ValueError(f"a size must be above zero, not {value!r}")
    return size


Duration = Annotated[float, BeforeValidator(parse_duration)]
Pause = Annotated[float, BeforeValidator(parse_pause)]
Size = Annotated[int, BeforeValidator(parse_size)]
