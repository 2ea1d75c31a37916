"""Numbers and extents beside the tensors: shapes, arithmetic of extents, checks."""

from __future__ import annotations

import math
import operator
from typing import Any

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.torch.registry import op
from tengen.loops.lang import Expr, as_int, maximum, minimum
from tengen.tensor import Tensor

for name, f in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "truediv": operator.truediv, "pow": operator.pow, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "and_": operator.and_, "or_": operator.or_, "not_": operator.not_,
    "getitem": operator.getitem,
}.items():  # fmt: skip
    op(f"operator.{name}", domain="")(lambda *args, f=f: f(*args))

op("math.ceil", domain="")(lambda x: x if isinstance(x, Expr) else math.ceil(x))
op("math.floor", domain="")(lambda x: x if isinstance(x, Expr) else math.floor(x))
op("math.trunc", domain="")(lambda x: x if isinstance(x, Expr) else math.trunc(x))


def _extreme(a: Any, b: Any, number: Any, extent: Any) -> Any:
    return number(a, b) if as_int(a) is not None and as_int(b) is not None else extent(a, b)


op("sym_max", domain="torch")(lambda a, b: a if isinstance(a, float) and a >= b else _extreme(a, b, max, maximum))
op("sym_min", domain="torch")(lambda a, b: a if isinstance(a, float) and a <= b else _extreme(a, b, min, minimum))
op("sym_float", domain="torch")(lambda x: x if isinstance(x, Expr) else float(x))
op("sym_int", domain="torch")(lambda x: x if isinstance(x, Expr) else int(x))
op("sym_not", domain="torch")(lambda x: not x)
op("sym_ite", domain="torch")(lambda c, a, b: a if c else b)
op("sym_sqrt", domain="torch")(lambda x: math.sqrt(x))
op("_sym_sqrt", domain="torch")(lambda x: math.sqrt(x))

op("sym_size.int")(lambda x, dim: x.shape[dim])
op("sym_size")(lambda x: list(x.shape))
op("sym_stride.int")(lambda x, dim: dense_strides(x)[dim])
op("sym_stride")(lambda x: dense_strides(x))
op("sym_storage_offset")(lambda x: 0)
op("sym_is_contiguous")(lambda x, *_, **__: True)


def dense_strides(x: Tensor) -> list[Any]:
    """The strides that a dense tensor has: to a program, every tensor is one."""
    found: list[Any] = [1]
    for d in x.shape[:0:-1]:
        found.insert(0, found[0] * (d if as_int(d) != 0 else 1))
    return found[: x.ndim]


@op("_local_scalar_dense", "item")
def item(x: Tensor) -> Any:
    """The number that a tensor holds; inside of a trace it has none."""
    return x.item()


@op("_assert_scalar")
def assert_scalar(condition: Any, message: str) -> None:
    """Errors: ArgumentError where it does not hold."""
    if not isinstance(condition, Expr) and not condition:
        raise ArgumentError(message)


op("_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range", "_assert_async.msg", "_assert_async")(
    lambda *_, **__: None
)


@op("_check_is_size", domain="torch")
def check_is_size(*_: Any, **__: Any) -> None:
    """Extents are never negative here."""


op("is_nonzero")(lambda x: bool(x))
op("equal")(lambda x, y: tuple(x.shape) == tuple(y.shape) and bool(F.all(F.equal(x, y))))
