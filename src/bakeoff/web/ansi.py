"""Text of a terminal as text and styles: colours and bold stay, every other escape goes.

coloured("\\x1b[31mred\\x1b[0m plain")        # [("red", "a1"), (" plain", "")]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bakeoff.text import printable

_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_LEVELS = (0, 95, 135, 175, 215, 255)
MAX_SPANS = 5_000
"""Changes of style in one text; what comes after them has none."""


def coloured(text: str) -> list[tuple[str, str]]:
    """Return pieces of text with the classes of the style sheet that give them their look: `a1` to `a7`, `bold`."""
    return list(_pieces(text))


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    at, style = 0, ""
    for count, match in enumerate(_STYLE.finditer(text)):
        if count >= MAX_SPANS:
            break
        if piece := printable(text[at : match.start()]):
            yield piece, style
        at, style = match.end(), _changed(style, match[1])
    if piece := printable(text[at:]):
        yield piece, style


def _changed(style: str, codes: str) -> str:
    """Return the classes after a sequence of SGR codes (ECMA-48, 8.3.117)."""
    classes = set(style.split())
    numbers = [int(code) if code else 0 for code in re.split("[;:]", codes)] if len(codes) < 100 else [0]
    at = 0
    while at < len(numbers):
        code = numbers[at]
        if code == 0:
            classes.clear()
        elif code == 1:
            classes.add("bold")
        elif code == 22:
            classes.discard("bold")
        elif code == 39 or 30 <= code <= 38 or 90 <= code <= 97:
            classes = {each for each in classes if each == "bold"}
            if code == 38:
                hue, at = _extended(numbers, at)
            else:
                hue = 0 if code == 39 else code % 10
            if hue:
                classes.add(f"a{hue}")
        elif code == 48:
            _, at = _extended(numbers, at)
        at += 1
    return " ".join(sorted(classes))


def _extended(numbers: list[int], at: int) -> tuple[int, int]:
    """Return the nearest of the seven hues to a colour of 256 or of 24 bits, and the place of its last number."""
    kind = numbers[at + 1] if at + 1 < len(numbers) else 0
    if kind == 2 and at + 4 < len(numbers):
        red, green, blue = numbers[at + 2 : at + 5]
        return _nearest(red, green, blue), at + 4
    if kind == 5 and at + 2 < len(numbers):
        index = numbers[at + 2]
        if index < 16:
            return index % 8, at + 2
        if index >= 232:
            return 0, at + 2
        index -= 16
        return _nearest(_LEVELS[index // 36 % 6], _LEVELS[index // 6 % 6], _LEVELS[index % 6]), at + 2
    return 0, len(numbers)


def _nearest(red: int, green: int, blue: int) -> int:
    """Return a hue as terminals number them: 1 red, 2 green, 4 blue and their sums."""
    middle = (max(red, green, blue) + min(red, green, blue)) / 2
    return (red > middle) + 2 * (green > middle) + 4 * (blue > middle)
