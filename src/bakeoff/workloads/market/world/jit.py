"""The compiler of the market world's kernels. Without numba, importing this raises a UsageError that names the extra."""

from __future__ import annotations

from pathlib import Path

from bakeoff.errors import UsageError, install

try:
    from bakeoff.workloads.jit import Kernels, as_bits, as_float, kernel, prefetch, row
except ModuleNotFoundError as error:
    raise UsageError(f"the market world needs the package {error.name}: {install('market')}") from error

__all__ = ["as_bits", "as_float", "compiling_once", "entry", "kernel", "prefetch", "row"]

KERNELS = Kernels("market world", Path(__file__).parent.glob("*.py"))
entry, compiling_once = KERNELS.entry, KERNELS.compiling_once
