"""Compiling the kernels, and keeping what was compiled.

Machine code is cached beside this package, or in the user's cache directory when the package is not writable, under
a digest of all kernel sources: numba alone looks at one file's age and would miss a change in another. The first
process on a machine compiles under a lock; others wait for it and load.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.extending
from llvmlite import ir as llvm_ir  # type: ignore[import-untyped]
from numba import types as numba_types
from numba.core import cgutils as numba_cgutils

F = TypeVar("F", bound=Callable[..., object])

# numba's annotations know neither all options of its decorators nor how to write intrinsics.
_njit: Any = numba.njit
_config: Any = numba.config
_intrinsic: Any = numba.extending.intrinsic
types: Any = numba_types
cgutils: Any = numba_cgutils
ir: Any = llvm_ir

HERE = Path(__file__).parent
READY = "compiled"


@cache
def cache_directory() -> Path | None:
    """Where compiled kernels lie; None when nothing is writable, and every process compiles for itself."""
    sources = hashlib.sha256()
    for file in sorted(HERE.glob("*.py")):
        sources.update(file.read_bytes())
    name = f"kernels-{sources.hexdigest()[:16]}"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bakeoff"
    given = os.environ.get("NUMBA_CACHE_DIR")
    tried = (
        [Path(given)] if given else [HERE / "__pycache__", user, Path(tempfile.gettempdir()) / f"bakeoff-{os.getuid()}"]
    )
    for root in tried:
        try:
            (root / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root / name, os.W_OK):
            return root / name
    return None


def kernel(function: F) -> F:
    """A function that other kernels call; it is compiled into them.

    Once: numba would compile it anew for every constant that it is called with, so constants are shown to it as numbers.
    """
    compiled: Any = _njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)(
        function
    )
    template = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: template([types.unliteral(each) for each in args], kws)
    return cast(F, compiled)


def entry(function: F) -> F:
    """A kernel that Python calls. It is compiled when first called, and the machine code outlives the process."""
    directory, before = cache_directory(), _config.CACHE_DIR
    if directory is not None:
        _config.CACHE_DIR = str(directory)
    try:
        compiled: F = _njit(cache=directory is not None, error_model="numpy")(function)
    finally:
        _config.CACHE_DIR = before
    return compiled


@_intrinsic  # type: ignore[untyped-decorator]
def row(_context: Any, array: Any, index: Any) -> Any:
    """Row `index` of a contiguous array as a bare pointer: one register, no reference counts, no checks."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, made.shape)[-1]
        return builder.gep(made.data, [builder.mul(args[1], width)])

    return types.CPointer(array.dtype)(array, types.int64), codegen


@_intrinsic  # type: ignore[untyped-decorator]
def prefetch(_context: Any, pointer: Any, at: Any) -> Any:
    """Ask for the cache line that holds `pointer[at]`, which will be needed soon."""

    def codegen(_: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [place, *(ir.Constant(ir.IntType(32), each) for each in (1, 3, 1))])
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


@contextmanager
def compiling_once() -> Iterator[None]:
    """Hold back other processes while this one compiles; free of cost once the kernels are cached."""
    directory = cache_directory()
    if directory is None or (directory / READY).exists():
        yield
        return
    import fcntl

    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / READY).exists():
            print("compiling the market world's kernels (once per machine) ...", file=sys.stderr)
        yield
        (directory / READY).touch()
