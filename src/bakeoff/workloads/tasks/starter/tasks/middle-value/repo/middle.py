"""Middle values."""


def median(values: list[float]) -> float:
    """Return the value in the middle."""
    values.sort()
    return values[len(values) // 2]
