"""What holds for the package as a whole."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import bakeoff.stats


def modules() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(bakeoff.stats.__path__)]


def test_importing_every_module_never_loads_scipy_stats_or_a_table_library() -> None:
    imports = "; ".join(f"import bakeoff.stats.{name}" for name in modules())
    code = f"{imports}; import sys; print([m for m in ('scipy.stats', 'statsmodels', 'polars', 'pydantic') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert out.stdout.strip() == "[]"
