"""Whether arms are alike where the file says that they must be: parameters, and metrics such as a parameter count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Facts = tuple[str, Mapping[str, Any]]
"""An arm, and parameters and metrics of one of its runs."""


def unmatched(names: Sequence[str], runs: Iterable[Facts]) -> tuple[str, ...]:
    """One sentence for each name in which arms differ, or that no run knows."""
    if not names:
        return ()
    seen: dict[str, dict[str, set[str]]] = {name: {} for name in names}
    for arm, facts in runs:
        for name in names:
            if facts.get(name) is not None:
                seen[name].setdefault(arm, set()).add(str(facts[name]))
    found = []
    for name, by_arm in seen.items():
        if not by_arm:
            found.append(f"{name} must be matched between arms, but no run knows it")
        elif len({frozenset(values) for values in by_arm.values()}) > 1:
            told = ", ".join(f"{arm} {'/'.join(sorted(values)[:3])}" for arm, values in by_arm.items())
            found.append(f"not a fair comparison: {name} must be matched between arms, and is not ({told})")
    return tuple(found)
