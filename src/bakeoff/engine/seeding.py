"""Global random generators start each run from (task, seed), so that no run depends on the one before it.

A library that a run is the first to import is seeded the moment it is there: otherwise the first run of each worker
would draw other numbers than the same run in a worker where the library is loaded already.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_LIBRARIES: dict[str, Callable[[ModuleType, int], object]] = {
    "numpy.random": lambda module, key: module.seed(key % 2**32),
    "torch": lambda module, key: module.manual_seed(key % 2**63),
}


class Seeder(MetaPathFinder):
    def __init__(self) -> None:
        self._key = 0
        self._looking = False
        sys.meta_path.insert(0, self)

    def seed(self, key: int) -> None:
        self._key = key
        random.seed(key)
        for name, seed in _LIBRARIES.items():
            if (module := sys.modules.get(name)) is not None:
                seed(module, key)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Nothing of our own: only the loader of the libraries above is wrapped."""
        if name not in _LIBRARIES or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _SeedingLoader(spec.loader, lambda module: _LIBRARIES[name](module, self._key))
        return spec


class _SeedingLoader(Loader):
    def __init__(self, loader: Loader, after: Callable[[ModuleType], object]) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._after(module)
