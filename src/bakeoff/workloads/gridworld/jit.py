"""The compiler of the gridworld's kernels. Without numba, importing this raises a UsageError that names the extra."""

from __future__ import annotations

from pathlib import Path

from bakeoff.errors import UsageError, install

try:
    from bakeoff.workloads.jit import Kernels, kernel
except ModuleNotFoundError as error:
    raise UsageError(f"the gridworld needs the package {error.name}: {install('gridworld')}") from error

__all__ = ["Kernels", "compiling_once", "entry", "kernel"]

KERNELS = Kernels(
    "gridworld", (Path(__file__).with_name(f"{name}.py") for name in ("levels", "rooms", "walkers", "world"))
)
entry, compiling_once = KERNELS.entry, KERNELS.compiling_once
