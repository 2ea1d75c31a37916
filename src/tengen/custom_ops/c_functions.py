"""C functions as operators: where a function is in this process, and what an artifact takes in its place.

In: a function of `ctypes`, `cffi` or Numba, an address, C source or object files. Out: a `CFunction`, whose address kernels call.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from tengen.base.errors import CustomOpError
from tengen.base.record import record
from tengen.codegen.targets import ARCHITECTURES, Target
from tengen.deploy.run import CannotRun, linker
from tengen.loops import external

FLAGS = ["-O2", "-ffp-contract=off"]  # no multiplication and addition is contracted, so that targets agree where C's rules let them
LIMIT_S = 300
C_SUFFIXES = (".c", ".h")


@record(frozen=True, eq=False)
class CFunction:
    """A C function that computes an operator.

    Attributes:
        symbol: its name in C. source: C text that defines it, or None. objects: an object file that does, by architecture.
    """

    symbol: str
    source: str | None = None
    objects: Mapping[str, str] = field(default_factory=dict)


def c_function_of(symbol: str, function: Any, source: str | os.PathLike | None, objects: Mapping[str, str | os.PathLike]) -> CFunction:
    """A C function, which this process can call from now on. Errors: CustomOpError where it is nowhere, or has a name of others."""
    if unknown := [k for k in objects if k.replace("-", "_") not in ARCHITECTURES]:
        raise CustomOpError(f"objects for {unknown[0]!r}; help: one of {', '.join(ARCHITECTURES)}")
    files = {k.replace("-", "_"): os.fspath(v) for k, v in objects.items()}
    text = _text(source)
    here = Target.machine().arch
    owner: Any = function
    if function is not None:
        address = address_of(function)
    elif text is not None or here in files:
        owner = _library(text, None if text is not None else files[here])
        try:
            address = address_of(getattr(owner, symbol))
        except AttributeError:
            raise CustomOpError(f"the C code defines no function {symbol}; help: symbol= names it") from None
    else:
        raise CustomOpError("no C function is given; help: function= (of ctypes, cffi or Numba, or an address), source=, or objects=")
    _check_symbol(symbol, address)
    external.define(symbol, address, owner)
    return CFunction(symbol, text, files)


def _text(source: str | os.PathLike | None) -> str | None:
    if source is None or (isinstance(source, str) and "\n" in source):
        return source
    if isinstance(source, str) and not source.endswith(C_SUFFIXES):
        return source
    return Path(source).read_text()


def address_of(function: Any) -> int:
    """Where a C function is: of `ctypes`, of `cffi`, of Numba's `cfunc`, or a number. Errors: CustomOpError for anything else."""
    found: int | None
    if isinstance(function, ctypes._CFuncPtr):
        found = ctypes.cast(function, ctypes.c_void_p).value
    elif _is_of_cffi(function):
        import _cffi_backend

        if _cffi_function(function) is None:
            raise CustomOpError(f"{function!r} is no C function; help: ffi.addressof(lib, name), or a callback")
        found = int(_cffi_backend.cast(_cffi_backend.new_primitive_type("intptr_t"), function))
    elif isinstance(address := getattr(function, "address", function), int) and not isinstance(address, bool):
        found = address
    else:
        raise CustomOpError(f"a {type(function).__name__} is no C function; help: one of ctypes, cffi or Numba's cfunc, or its address")
    if not found or found < 0:
        raise CustomOpError(f"the address of the C function is {found}")
    return found


def _is_of_cffi(function: Any) -> bool:
    return type(function).__module__ == "_cffi_backend"


def _cffi_function(pointer: Any) -> Any:
    """The type of the function that is called by something of cffi; None where that is data."""
    import _cffi_backend

    try:
        t = _cffi_backend.typeof(pointer)
    except TypeError:  # a type, say
        return None
    return t if t.kind == "function" else t.item if t.kind == "pointer" and t.item.kind == "function" else None


def check_parameters(name: str, function: Any, wanted: Sequence[str]) -> None:
    """Compares what a C function says of its parameters with what an operator gives it. Functions may say nothing.

    Args:
        name: of the operator.
        wanted: for each parameter "pointer", "int64_t" or "double".

    Errors: CustomOpError where they differ in number or kind: the call would read what is not there.
    """
    have = _parameters(function)
    if have is None or (len(have) == len(wanted) and all(h in (w, "") for h, w in zip(have, wanted))):
        return
    said, needed = (", ".join(kind or "?" for kind in kinds) for kinds in (have, wanted))
    raise CustomOpError(
        f"{name}: the C function takes ({said}), and is given ({needed}); help: pointers to the inputs and the results, a pointer to the "
        "shapes, then each attribute as int64_t or double"
    )


def _parameters(function: Any) -> list[str] | None:
    """The kind of each parameter, "" for one that is unknown; None where a function does not say."""
    if _is_of_cffi(function):
        found = _cffi_function(function)
        return None if found is None else [_cffi_kind(t) for t in found.args]
    own = function if isinstance(function, ctypes._CFuncPtr) else getattr(function, "ctypes", None)  # Numba's
    return None if not isinstance(own, ctypes._CFuncPtr) or own.argtypes is None else [_ctypes_kind(t) for t in own.argtypes]


def _ctypes_kind(t: Any) -> str:
    code = getattr(t, "_type_", None)
    if not isinstance(code, str) or len(code) != 1:
        return "pointer" if isinstance(t, type) and issubclass(t, (ctypes._Pointer, ctypes.Array)) else ""
    if code in "PzZ":
        return "pointer"
    return "int64_t" if code in "qQlL" and ctypes.sizeof(t) == 8 else "double" if code == "d" else t.__name__


def _cffi_kind(t: Any) -> str:
    if t.kind in ("pointer", "array"):
        return "pointer"
    return t.cname if t.kind != "primitive" or t.cname in ("float", "double") else "int64_t" if _cffi_size(t) == 8 else t.cname


def _cffi_size(t: Any) -> int:
    import _cffi_backend

    return int(_cffi_backend.sizeof(t))


def _check_symbol(symbol: str, address: int) -> None:
    if not (symbol.isascii() and symbol.isidentifier()) or symbol.startswith(("tengen_", "Py", "_", "llvm")) or symbol == "run":
        raise CustomOpError(f"{symbol!r} cannot be the name of the C function; help: symbol='mylib_name'")
    own = getattr(ctypes.CDLL(None), symbol, None)
    if own is not None and ctypes.cast(own, ctypes.c_void_p).value != address:
        raise CustomOpError(f"the C library has a function {symbol} already; help: another name, as symbol='mylib_{symbol}'")


@functools.lru_cache(64)
def _library(text: str | None, file: str | None) -> ctypes.CDLL:
    """C source, or an object file, as a library in this process."""
    try:
        command = linker(Target.machine())
    except CannotRun as e:
        raise CustomOpError(f"C source needs a C compiler: {e}") from None
    with tempfile.TemporaryDirectory(prefix="tengen-c-") as folder:
        if text is not None:
            Path(file := os.path.join(folder, "ops.c")).write_text(text)
        assert file is not None
        made = os.path.join(folder, "ops.so")
        call = [*command, *FLAGS, "-fPIC", "-shared", "-o", made, file, "-lm"]
        try:
            done = subprocess.run(call, capture_output=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise CustomOpError(f"the C compiler {command[0]} failed: {e}") from None
        if done.returncode:
            raise CustomOpError(f"the C compiler {command[0]} refuses the source:\n{done.stderr.decode(errors='replace').strip()[:4000]}")
        return ctypes.CDLL(made)
