"""Files of a training: those that grow while it goes on, its checkpoint, and files of tensors.

Growing files are kept inside the checkpoint, which outlives attempts. `state.pt` says how long each was when it was
written. A run that goes on after a kill cuts them to that length, so no step is in them twice. `metrics.jsonl` also
grows in the run's directory, where the engine reads it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bakeoff.errors import UsageError

METRICS = "metrics.jsonl"
STATE = "state.pt"
MODEL = "model.pt"


class Checkpoint:
    """The checkpoint of a run and its growing files. `directory` is the run's."""

    def __init__(self, directory: Path, checkpoint: Path) -> None:
        self._directory, self.path = directory, checkpoint
        exists = (checkpoint / STATE).exists()
        self.state: dict[str, Any] = torch.load(checkpoint / STATE, weights_only=True) if exists else {}
        """What was saved last; empty at the beginning."""

    def open(self, lengths: Mapping[str, int]) -> None:
        """Open the growing files, cut to these lengths. METRICS must be one of them."""
        self._files = {name: open(self.path / name, "a") for name in lengths}  # noqa: SIM115 - open for the run's life
        for name, length in lengths.items():
            self._files[name].truncate(length)
        shutil.copyfile(self.path / METRICS, self._directory / METRICS)
        self._live = open(self._directory / METRICS, "a")  # noqa: SIM115

    def add(self, row: dict[str, Any]) -> None:
        """Append a row of metrics."""
        self.write(METRICS, row)
        self._live.write(json.dumps(row) + "\n")
        self._live.flush()

    def write(self, name: str, *rows: dict[str, Any]) -> None:
        """Append rows to a growing file."""
        self._files[name].writelines(json.dumps(row) + "\n" for row in rows)

    def sync(self) -> dict[str, int]:
        """Bring the growing files to the disk, and return their lengths, for the state that is saved next."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def save(self, state: dict[str, Any]) -> None:
        """Write the state that `Checkpoint.state` will be after a kill."""
        save_tensors(self.path / STATE, state)

    def close(self, *, finished: bool) -> None:
        """Close the growing files. A run that is finished needs no checkpoint any more."""
        for file in (*self._files.values(), self._live):
            file.close()
        for path in self.path.iterdir() if finished else ():
            path.unlink()


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write a file of tensors so that after a crash the file is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_tensors(path: Path, formats: tuple[str, ...], kind: str, missing: str) -> dict[str, Any]:
    """Return the content of a file of tensors. Raises UsageError: `missing` if there is none, or that it is not `kind`."""
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)
        if content["format"] not in formats:
            raise ValueError(content["format"])
        return content
    except FileNotFoundError:
        raise UsageError(f"{path}: {missing}") from None
    except Exception as error:
        raise UsageError(f"{path}: not {kind} ({type(error).__name__}: {str(error)[:80]})") from error
