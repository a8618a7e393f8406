"""Monthly usage from meter readings."""

import csv
import json
import sys
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path

TURN = Decimal(100_000)


def readings(file: Path):
    with file.open(encoding="utf-8", newline="") as opened:
        german = ";" in opened.readline()
        opened.seek(0)
        for row in csv.DictReader(opened, delimiter=";" if german else ","):
            meter, time, text = (
                row[name] for name in (("Zaehler", "Zeit", "Stand") if german else ("meter", "time", "kwh"))
            )
            if german:
                text = text.replace(".", "").replace(",", ".")
                when = datetime.strptime(time, "%d.%m.%Y %H:%M").replace(tzinfo=UTC)
            else:
                when = datetime.fromisoformat(time.replace("Z", "+00:00"))
            try:
                counter = Decimal(text)
            except InvalidOperation:
                continue
            if counter >= 0:
                yield meter.upper(), when, counter


def main() -> None:
    meters: dict[str, dict[datetime, Decimal]] = defaultdict(dict)
    for file in sorted(Path(sys.argv[1]).glob("*.csv")):
        for meter, when, counter in readings(file):
            meters[meter][when] = max(counter, meters[meter].get(when, counter))
    usage: dict[str, dict[str, float]] = {}
    for meter, counters in sorted(meters.items()):
        months: dict[str, Decimal] = defaultdict(Decimal)
        times = sorted(counters)
        for before, after in pairwise(times):
            used = counters[after] - counters[before]
            months[f"{after:%Y-%m}"] += used if used >= 0 else used + TURN
        if months:
            usage[meter] = {month: round(float(value), 3) for month, value in months.items()}
    print(json.dumps(usage, indent=2))


main()
