"""What the array API standard lets functions take: categories of dtypes, and the promotion between them.

The namespace is strict where the operators of Tensor are lenient:

| operands | the namespace | operators and `tengen.functional` |
| --- | --- | --- |
| two integers, two floats, two bools | the standard's table | the same |
| an integer or bool beside a float; a bool beside an integer | TypeError | the float's dtype; the integer's |
| uint64 beside a signed integer | TypeError | float64, as in NumPy |
| a Python number of the array's kind, or an int beside floats | the array's dtype | the same |
| a complex number of Python's beside floats | the complex dtype of the same precision | the same |
| a Python float beside integers, a Python int beside bools | TypeError | float32, int64 |
| NumPy's arrays and lists | TypeError | become tensors |
"""

from __future__ import annotations

from typing import Any

from tengen.base.dtype import ALL, COMPLEX, DType, promote, promote_scalar
from tengen.base.errors import AxisError, DTypeError
from tengen.ops.define import dispatch
from tengen.tensor import Tensor

DTYPES = tuple(d for d in ALL + COMPLEX if d.name not in ("float16", "bfloat16"))  # those of the standard
# what the standard calls them -> `DType.kind` of their members
CATEGORIES = {
    "all": "biufc", "numeric": "iufc", "real numeric": "iuf", "integer": "iu", "integer or boolean": "iub", "boolean": "b",
    "real floating-point": "f", "complex floating-point": "c", "floating-point": "fc",
}  # fmt: skip
GROUPS = ("b", "iu", "fc")  # kinds that promote among each other


def array(name: str, x: Any, category: str = "all") -> Tensor:
    """x, which must be a tensor whose dtype is of a category.

    Errors: DTypeError (a TypeError) for what is none.
    """
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: takes arrays of this namespace, got a {type(x).__name__}; help: array_api.asarray(x)")
    if x.dtype.kind not in CATEGORIES[category]:
        raise DTypeError(f"{name}: takes {category} dtypes, got {x.dtype}; help: array_api.astype(x, dtype)")
    return x


def check_axes(name: str, x: Tensor, axis: int | tuple[int, ...] | None) -> None:
    """AxisError for an axis that x does not have; a 0-d array has none."""
    for a in () if axis is None else axis if isinstance(axis, tuple) else (axis,):
        if not -x.ndim <= a < x.ndim:
            raise AxisError(f"{name}: an array of shape {x.shape} has no axis {a}")


def common(name: str, *dtypes: DType) -> DType:
    """What dtypes promote to by the standard's tables. Errors: DTypeError where these have no entry."""
    found = dtypes[0]
    for d in dtypes[1:]:
        group = next(g for g in GROUPS if found.kind in g)
        made = promote(found, d) if d.kind in group else None
        if made is None or made.kind not in group:
            raise DTypeError(f"{name}: the standard promotes no {found} with {d}; help: array_api.astype one of them")
        found = made
    return found


def scalar(name: str, value: Any, d: DType) -> Tensor:
    """A Python number as a 0-d array of the dtype of the array that it stands beside.

    Errors: DTypeError for a number of another kind; OverflowError for an integer that the dtype does not have.
    """
    kinds = {bool: "b", int: "iufc", float: "fc", complex: "fc"}.get(type(value))
    if kinds is None:
        raise DTypeError(f"{name}: a {type(value).__name__} is neither an array of this namespace nor a Python number")
    if d.kind not in kinds:
        raise DTypeError(f"{name}: the standard combines no {type(value).__name__} with an array of {d}; help: cast the array")
    if d.is_int and not 0 <= value + (1 << (d.bits - 1)) * (d.kind == "i") < 1 << d.bits:
        raise OverflowError(f"{name}: {value} does not fit {d}")
    return dispatch.scalar(value, promote_scalar(d, value))


def two(name: str, x1: Any, x2: Any, category: str) -> tuple[Tensor, Tensor]:
    """The operands of a function of two, of which one may be a Python number. Errors: DTypeError where the standard allows none."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        raise DTypeError(f"{name}: one of the operands must be an array, got {type(x1).__name__} and {type(x2).__name__}")
    if not isinstance(x2, Tensor):
        return array(name, x1, category), scalar(name, x2, x1.dtype)
    if not isinstance(x1, Tensor):
        return scalar(name, x1, x2.dtype), array(name, x2, category)
    common(name, array(name, x1, category).dtype, array(name, x2, category).dtype)
    return x1, x2
