"""Which meeting gets which room."""

from collections.abc import Sequence

Meeting = tuple[float, float]


def assign(meetings: Sequence[Meeting]) -> list[int]:
    """A room number for each meeting."""
    order = sorted(range(len(meetings)), key=lambda index: meetings[index][0])
    taken: dict[int, list[Meeting]] = {}
    result = [0] * len(meetings)
    for index in order:
        start, end = meetings[index]
        room = 0
        while any(start <= other_end and other_start <= end for other_start, other_end in taken.get(room, [])):
            room += 1
        taken.setdefault(room, []).append((start, end))
        result[index] = room
    return result
