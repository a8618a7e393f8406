"""Data that scripts on the pages work with: every text that they show was written here, by the functions of `text.py`.

Data is in script files, since a page that was opened from the file system may load scripts and nothing else. A file calls
`bakeoff.give(NAME, TEXT)`; the text is JSON, deflated (raw, RFC 1951) and in base64.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from bakeoff.text import number, printable


def script(name: str, value: Any) -> str:
    """Return a script that gives a value to the page. The same value gives the same bytes with the same zlib."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    deflate = zlib.compressobj(9, wbits=-15)
    packed = base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()
    return f'bakeoff.give("{name}", "{packed}");\n'


def column(name: str, values: Sequence[Any], show: Callable[[Any], str] = number, **more: Any) -> dict[str, Any]:
    """Return one column of a table: its distinct values as texts in their order, and for each row the number of its text.

    So a page sorts and filters without knowing how numbers are written. Numbers stand before words; a row without a
    value has -1.
    """
    distinct = sorted({value for value in values if value is not None}, key=_rank)
    places = {value: place for place, value in enumerate(distinct)}
    return {
        "name": printable(name),
        "texts": [printable(show(value)) for value in distinct],
        "at": [-1 if value is None else places[value] for value in values],
        "number": any(not isinstance(value, str) for value in distinct),
        **more,
    }


def _rank(value: Any) -> tuple[int, float, str]:
    if isinstance(value, str):
        return 2, 0.0, value
    return (1, 0.0, "") if math.isnan(value) else (0, float(value), "")
