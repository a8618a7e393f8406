"""Readings with all the faults that FORMAT.md names, and what they come to. The same seed gives the same files."""

import datetime as dt
import json
import random
import sys
from pathlib import Path

TURN = 100_000_000  # in thousandths of a kWh


def german(thousandths: int) -> str:
    whole, part = divmod(thousandths, 1000)
    return f"{whole:,}".replace(",", ".") + f",{part:03d}".rstrip("0").rstrip(",")


def make(seed: int, folder: Path) -> dict[str, dict[str, float]]:
    rng = random.Random(seed)
    first: list[str] = []
    second: list[str] = []
    usage: dict[str, dict[str, int]] = {}
    for number in range(9):
        meter = f"{rng.choice('ABK')}{number}{rng.randint(1, 9)}"
        time = dt.datetime(2023, 11, rng.randint(1, 20), tzinfo=dt.UTC)
        counter = rng.randint(0, TURN - 1) if number % 3 else TURN - rng.randint(1, 400_000)
        readings = 1 if number == 4 else rng.randint(8, 30)
        for index in range(readings):
            if index:
                time += dt.timedelta(hours=rng.randint(30, 900))
                used = rng.randint(0, 180_000)
                counter = (counter + used) % TURN
                months = usage.setdefault(meter, {})
                months[f"{time:%Y-%m}"] = months.get(f"{time:%Y-%m}", 0) + used
            write(rng, meter, time, counter, first, second)
            if rng.random() < 0.2 and counter > 1000:
                write(rng, meter, time, counter - rng.randint(1, 900), first, second)
    for name, header, lines in (("one", "meter,time,kwh", first), ("two", "Zaehler;Zeit;Stand", second)):
        rng.shuffle(lines)
        half = len(lines) // 2
        for part, some in (("a", lines[:half]), ("b", lines[half:])):
            (folder / f"{name}-{part}.csv").write_text("\n".join([header, *some]) + "\n", encoding="utf-8")
    return {
        meter: {month: round(value / 1000, 3) for month, value in months.items()} for meter, months in usage.items()
    }


def write(rng: random.Random, meter: str, time: dt.datetime, counter: int, first: list[str], second: list[str]) -> None:
    bad = rng.choice(["", "n/a", "-1"])
    if rng.random() < 0.5:
        first.append(f"{meter},{time:%Y-%m-%dT%H:%M:%SZ},{counter / 1000:.3f}")
        if rng.random() < 0.1:
            first.append(f"{meter},{time + dt.timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ},{bad}")
    else:
        name = meter.lower() if rng.random() < 0.4 else meter
        second.append(f"{name};{time:%d.%m.%Y %H:%M};{german(counter)}")
        if rng.random() < 0.1:
            second.append(f"{name};{time + dt.timedelta(minutes=5):%d.%m.%Y %H:%M};{bad}")


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    print(json.dumps(make(int(sys.argv[1]), target)))
