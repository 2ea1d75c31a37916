"""C functions that kernels call by name (`statements.External`): where they are in this process.

In: an address, from whoever defines an operator by a C function. Out: the address, for the loader of machine code, and a call, for
the interpreter. A name stands for the function that was given last; machine code that is loaded keeps the one that it was linked to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tengen.base.errors import VerifyError

HOST = "tengen_host"  # a function of the runtime that calls Python: (addresses of the places, shapes)

_addresses: dict[str, int] = {}
_kept: list[Any] = []  # what owns the functions: code that was linked to one may run as long as the process does


def define(symbol: str, address: int, owner: Any = None) -> None:
    """Says where a C function is. owner: what must live as long as code may call it."""
    _addresses[symbol] = address
    _kept.append(owner)


def address(symbol: str) -> int | None:
    """Where a C function is; None for one that nobody has defined."""
    return _addresses.get(symbol)


def call(symbol: str, addresses: Sequence[int], numbers: Sequence[int | float]) -> int:
    """Calls a function. Errors: VerifyError where nobody has defined it."""
    at = address(symbol)
    if at is None:
        raise VerifyError(f"nobody has said where the C function {symbol} is; help: custom_ops.c_function gives it to Tengen")
    types = [ctypes.c_void_p] * len(addresses) + [ctypes.c_double if isinstance(n, float) else ctypes.c_int64 for n in numbers]
    return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(at)(*addresses, *numbers)
