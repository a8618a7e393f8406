"""The usual script: a loop with json and pandas.read_csv over run directories. Imported and started by collect.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd


def collect(runs: Path) -> pd.DataFrame:
    frames = []
    for directory in sorted(runs.iterdir()):
        meta = json.loads((directory / "meta.json").read_text())
        frame = pd.read_csv(directory / "out" / "summary.csv")
        for key in ("run_id", "arm", "task", "seed", "status", "wall_time_s"):
            frame[key] = meta[key]
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


if __name__ == "__main__":
    collect(Path(sys.argv[1])).to_csv(sys.argv[2], index=False)
