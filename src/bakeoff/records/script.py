"""`bakeoff.log` and `bakeoff.finish` for a user's own script, with or without a scheduler around it.

    import bakeoff
    for step in range(1000):
        bakeoff.log(step, loss=loss)
    bakeoff.finish(accuracy=0.93)

Under a scheduler they write into the run's directory, which BAKEOFF_RUN_DIR names; inside an in-process run they go to
its context. Without a scheduler they make a directory under `bakeoff-runs/standalone/`, which `bakeoff import` reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any, Protocol


class Target(Protocol):
    """The part of a run's context that is used here."""

    def log(self, step: int, **values: float) -> None: ...
    def finish(self, **metrics: Any) -> None: ...


current: Target | None = None
"""The in-process run that is going on in this process; the worker sets it."""
_file: IO[str] | None = None


def log(step: int, **values: float) -> None:
    """Add `values` to the run's series at `step`."""
    if current is not None:
        current.log(step, **values)
        return
    global _file
    if _file is None:
        _file = open(_directory() / "metrics.jsonl", "a")  # noqa: SIM115 - open for the script's life
    _file.write(json.dumps({"step": step, **{name: float(value) for name, value in values.items()}}) + "\n")
    _file.flush()


def finish(**metrics: Any) -> None:
    """Report the run's final metrics. Later calls add to earlier ones."""
    if current is not None:
        current.finish(**metrics)
        return
    target = _directory() / "metrics.json"
    known = json.loads(target.read_text()) if target.exists() else {}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
    fresh = target.with_suffix(".tmp")
    fresh.write_text(json.dumps({**known, **plain}))
    fresh.replace(target)


def _directory() -> Path:
    place = os.environ.get("BAKEOFF_RUN_DIR")
    if place is None:
        name = f"{Path(sys.argv[0]).stem or 'python'}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        place = os.environ["BAKEOFF_RUN_DIR"] = str(Path("bakeoff-runs", "standalone", name).absolute())
        print(f"bakeoff: logging to {place}", file=sys.stderr)
    directory = Path(place)
    directory.mkdir(parents=True, exist_ok=True)
    return directory
