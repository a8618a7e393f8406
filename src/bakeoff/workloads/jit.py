"""Compile kernels with numba and cache the machine code on disk, for every workload that has kernels.

`kernel` marks functions that only other kernels call, `Kernels.entry` the ones Python calls. A workload makes one
`Kernels` for its own sources and turns a missing numba into a UsageError that names its extra. Kernels may work on bare
pointers (`row`). This is the only module that imports numba.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.extending
from llvmlite import ir as llvm_ir  # type: ignore[import-untyped]
from numba import types as numba_types
from numba.core import cgutils as numba_cgutils

F = TypeVar("F", bound=Callable[..., object])

# numba's annotations cover neither all options of its decorators nor the API for intrinsics.
_njit: Any = numba.njit
_config: Any = numba.config
_intrinsic: Any = numba.extending.intrinsic
types: Any = numba_types
cgutils: Any = numba_cgutils
ir: Any = llvm_ir

READY = "compiled"
"""An empty file in the cache directory: everything has been compiled once, so the lock is not needed any more."""


class Kernels:
    """The kernels of one world: where their machine code is cached, and who compiles them.

    `title` is what the user reads while they are compiled. `sources` are all files with kernels that are compiled
    together, in one directory.
    """

    def __init__(self, title: str, sources: Iterable[Path]) -> None:
        self.title = title
        self.sources = sorted(sources)

    @cached_property
    def cache_directory(self) -> Path | None:
        """The directory for compiled kernels, or None when nothing is writable and every process has to compile.

        numba invalidates its cache by the age of the file that defines a function, and would miss a change in a
        kernel of another file that was inlined into it. So the directory's name is a digest of all sources.
        """
        digest = hashlib.sha256()
        for file in (Path(__file__), *self.sources):
            digest.update(file.read_bytes())
        name = f"kernels-{digest.hexdigest()[:16]}"
        if configured := os.environ.get("NUMBA_CACHE_DIR"):
            roots = [Path(configured)]
        else:
            user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bakeoff"
            beside = self.sources[0].parent / "__pycache__"
            roots = [beside, user, Path(tempfile.gettempdir()) / f"bakeoff-{os.getuid()}"]
        for root in roots:
            try:
                (root / name).mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(root / name, os.W_OK):
                return root / name
        return None

    @contextmanager
    def compiling_once(self) -> Iterator[None]:
        """Let one process compile while the others wait for its result. Costs nothing once the kernels are cached.

        Whoever makes the first call of an entry wraps it in this.
        """
        directory = self.cache_directory
        if directory is None or (directory / READY).exists():
            yield
            return
        import fcntl

        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (directory / READY).exists():
                print(f"compiling the {self.title}'s kernels (once per machine) ...", file=sys.stderr)
            yield
            (directory / READY).touch()

    def entry(self, function: F, *, fastmath: bool = False) -> F:
        """Decorator for a kernel that Python calls. It is compiled at its first call and cached on disk.

        With `fastmath` sums may be reordered, which lets the compiler vectorize them.

        numba reads the cache directory from its global configuration while decorating, so it is set for that moment
        only: other users of numba in this process keep their own.
        """
        directory, before = self.cache_directory, _config.CACHE_DIR
        if directory is not None:
            _config.CACHE_DIR = str(directory)
        try:
            compiled: F = _njit(cache=directory is not None, error_model="numpy", fastmath=fastmath)(function)
        finally:
            _config.CACHE_DIR = before
        return compiled


def kernel(function: F) -> F:
    """Decorator for a function that other kernels call. It is always inlined.

    numba types literal arguments such as `False` or `0` separately and would compile the function again for each of
    them. The call template is wrapped so that it sees plain numbers, which keeps compilation at seconds.
    """
    compiled: Any = _njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)(
        function
    )
    template = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: template([types.unliteral(argument) for argument in args], kws)
    return cast(F, compiled)


# Intrinsics emit LLVM instructions directly; https://numba.readthedocs.io/en/stable/extending/high-level.html


@_intrinsic  # type: ignore[untyped-decorator]
def row(_context: Any, array: Any, index: Any) -> Any:
    """Row `index` of a C-contiguous array as a bare pointer.

    An array argument is seven machine words with a reference count. A pointer is one register, and numba emits no
    bounds or wrap-around checks for it, so an index that is out of range corrupts memory: kernels only index by the
    layout's own offsets.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        structure = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, structure.shape)[-1]
        return builder.gep(structure.data, [builder.mul(args[1], width)])

    return types.CPointer(array.dtype)(array, types.int64), codegen


@_intrinsic  # type: ignore[untyped-decorator]
def prefetch(_context: Any, pointer: Any, at: Any) -> Any:
    """Ask for the cache line that holds `pointer[at]`, to be written soon.

    `llvm.prefetch` takes address, rw (1 = write), locality (3 = keep in all caches) and cache type (1 = data);
    https://llvm.org/docs/LangRef.html#llvm-prefetch-intrinsic
    """

    def codegen(_: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        signature_type = ir.FunctionType(ir.VoidType(), [place.type, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, signature_type, "llvm.prefetch.p0i8")
        builder.call(function, [place, *(ir.Constant(ir.IntType(32), value) for value in (1, 3, 1))])
        return None

    return types.void(pointer, types.int64), codegen


@_intrinsic  # type: ignore[untyped-decorator]
def as_bits(_context: Any, number: Any) -> Any:
    """The bits of a float64 as an int64."""

    def codegen(_: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@_intrinsic  # type: ignore[untyped-decorator]
def as_float(_context: Any, bits: Any) -> Any:
    """The float64 that has these bits."""

    def codegen(_: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
