"""What each operation of the kernel language computes, in NumPy: the part of the interpreter that knows no statements.

In: an expression, of which the operation and the dtypes count. Out: the function from its operands' values to its value, for arrays of
any shape. A vector's last axis holds the lanes, of which equal ones may be held as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tengen.base.dtype import DType, float32
from tengen.base.errors import VerifyError
from tengen.loops.exact import (
    convert,
    dot2,
    dot2h,
    dot2i,
    dot4,
    dot4s,
    floor_division,
    fma32,
    fma64,
    index_division,
    quad4,
    shift_left,
    shift_right,
    swizzle,
)
from tengen.loops.lang import LANES, OPS, SHUFFLES, Expr


def _beats(compare):
    return lambda a, b: np.where((a != a) | compare(a, b), a, b)


_FUNCTIONS: dict[str, Callable] = {
    # fmt: off
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": np.divide,
    "floordiv": lambda a, b: floor_division(a, b, False), "floormod": lambda a, b: floor_division(a, b, True),
    "quo": lambda a, b: index_division(a, b, False), "rem": lambda a, b: index_division(a, b, True),
    "min": _beats(operator.lt), "max": _beats(operator.gt),
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": shift_left, "shr": shift_right,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "fma": lambda a, b, c: fma32(a, b, c) if a.dtype == np.float32 else fma64(a, b, c),
    # fmt: on
}


def _lanes(x) -> np.ndarray:
    """All lanes of a vector, of which equal ones may be held as one."""
    x = np.asarray(x)
    return np.broadcast_to(x, (*x.shape[:-1], LANES)) if x.shape[-1] == 1 else x


def _plain(op: str, dt: DType) -> Callable:
    """An op of `OPS` on operands of dtype `dt`. 16-bit floats are computed in float32 and rounded once."""
    f = _FUNCTIONS[op]
    if dt.kind != "f" or dt.bits != 16:
        return f
    if OPS[op][2] == "bool":
        return lambda *xs: f(*(np.asarray(x).astype(np.float32) for x in xs))
    return lambda *xs: convert(f(*(np.asarray(x).astype(np.float32) for x in xs)), float32, dt)


def _fold(f: Callable) -> Callable:
    def tree(x):
        x, half = _lanes(x), LANES // 2
        if x.shape[-1] != LANES:
            raise VerifyError(f"fold of {x.shape[-1]} lanes")
        while half:
            x = np.asarray(f(x[..., :half], x[..., half : 2 * half]))
            half //= 2
        return x[..., 0]

    return tree


def _shuffle(lanes: Sequence[int]) -> Callable:
    def taken(a, b):
        return np.concatenate(np.broadcast_arrays(_lanes(a), _lanes(b)), -1)[..., list(lanes)]

    return taken


def _lookup(table, index):
    half = LANES // 2
    table, index = np.broadcast_arrays(_lanes(table), _lanes(index))
    return np.take_along_axis(table, np.arange(LANES) // half * half + index % half, -1)


def function(e: Expr) -> Callable:
    """The function from the values of `e`'s operands to its value, or to an array without axes that holds it."""
    if e.op in OPS:
        return _plain(e.op, e.args[0].dtype)
    match e.op:
        case "select":
            return np.where
        case "dot2":
            return dot2
        case "dot2i":
            return dot2i
        case "dot2h":
            return dot2h
        case "dot4n":
            return partial(dot4, least=-127)
        case "dot4s":
            return dot4s
        case "dot4i" | "dot4u":
            return partial(dot4, signed=e.op == "dot4i")
        case "quad4i" | "quad4u":
            return lambda total, a, b: quad4(*map(_lanes, (total, a, b)), signed=e.op == "quad4i")
        case "cast":
            return lambda x: convert(x, e.args[0].dtype, e.dtype)
        case "bitcast":
            return lambda x: np.asarray(x).view(e.dtype.numpy)
        case "splat":
            return lambda x: np.asarray(x)[..., None]
        case "ramp":
            return lambda: np.arange(LANES, dtype=np.int64)
        case "lane":
            return lambda x: _lanes(x)[..., e.attr]
        case "shuffle":
            return _shuffle(SHUFFLES[str(e.attr)])
        case "swizzle":
            return lambda x, index: swizzle(_lanes(x), _lanes(index))
        case "lookup":
            return _lookup
        case "fold":
            return _fold(_plain(str(e.attr), e.dtype))
    raise VerifyError(f"{e.op} has no value")


OF_SCALARS: dict[str, Callable] = {  # the same as above for NumPy's scalars, where that is quicker
    "min": lambda a, b: a if a != a or a < b else b,
    "max": lambda a, b: a if a != a or a > b else b,
    "select": lambda p, a, b: a if p else b,
    "quo": lambda a, b: a // b if b > 0 else index_division(a, b, False),
    "rem": lambda a, b: a % b if b > 0 else index_division(a, b, True),
}

OF_NUMPY = set("add sub mul div neg abs sqrt floor ceil trunc rint and or xor not eq ne lt le gt ge".split())


def gives_scalars(e: Expr) -> bool:
    """Whether the function of a scalar operation gives a scalar for scalars, as NumPy's own do, and no array without axes."""
    return e.op in OF_NUMPY and (e.args[0].dtype.kind != "f" or e.args[0].dtype.bits > 16)
