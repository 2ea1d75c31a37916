"""`autocast`: a block in which contractions are computed in low precision and delicate ops in high.

In: dtypes; calls of ops inside the block. Out: the same calls with casts before them, which are ops like others: a trace records
them, a file keeps them. Each op says where it is defined which precision suits it (`Op.autocast`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.arguments import check_flag
from tengen.base.device import Device
from tengen.base.dtype import DType, bfloat16, dtype, float16, float32, float64
from tengen.base.errors import ArgumentError, DTypeError
from tengen.ops.contract import PRECISIONS
from tengen.ops.define import REGISTRY, Op
from tengen.tensor import Parameter, Tensor
from tengen.tensor.casting import Rule, casting, casts
from tengen.tensor.nodes import node_of, on_tape


class _Blocks(threading.local):
    """depth: how many blocks a thread is in."""

    depth = 0


_blocks = _Blocks()


class autocast:
    """Inside, ops are computed in the dtype that suits them: a context manager, and a decorator.

    Args:
        enabled: False makes a block in which nothing is cast, also inside another one.
        low_prec_dtype: of contractions (matmul, linear, convolutions, attention): "float16" or "bfloat16".
        high_prec_dtype: of exponentials, logarithms, sums, softmax, norms and losses: "float32" or "float64".
        dtype: PyTorch's name for `low_prec_dtype`. device_type: where it holds, as PyTorch says it: the processor is the only device.
        precision: of the products in contractions other than attention: "highest" multiplies the operands, cast to the low
            dtype, in float32. "bfloat16", which goes with that dtype, sums two products at a time as processors' instructions for
            bfloat16 do: where there are such instructions it is faster, and the bits are others. See `loops.dots.dot2`.

    All other ops are computed in the widest dtype of their operands, as always (docs/ops.md says which op is computed in
    what). A float64 operand of a contraction keeps it in float64. Parameters stay what they are, and get gradients of their
    own dtype; one that is used twice is cast once in a block. The block is the calling thread's. The backward walk may lie
    inside or outside: its dtypes are those of the forward.

    Numerics: contractions accumulate in float32 and round once; eager, traced and compiled runs agree as bits
    Source:   Micikevicius et al., arXiv 1710.03740
    Errors: TypeError for a first argument that is no bool, DeviceError for a device that is not here, ArgumentError for a precision that
        is not there, DTypeError for one
        that does not go with the dtype

    >>> from tengen import Tensor, amp, functional as F
    >>> x = Tensor([[1.0, 2.0]])
    >>> with amp.autocast(low_prec_dtype="bfloat16"):
    ...     y = F.matmul(x, x, transpose_b=True)
    ...     print(y.dtype, F.exp(y).dtype, (x + y).dtype)
    bfloat16 float32 float32
    """

    def __init__(
        self, enabled: bool = True, low_prec_dtype: Any = "float16", high_prec_dtype: Any = "float32", *, dtype: Any = None,
        precision: str = "highest", device_type: str = "cpu",
    ):  # fmt: skip
        Device.named(device_type)
        if isinstance(enabled, (str, DType)):
            raise TypeError(f"autocast({enabled!r}): the first argument is `enabled`; help: autocast(dtype='bfloat16')")
        check_flag("autocast", "enabled", enabled)
        self.enabled = bool(enabled)
        self.low_prec_dtype = _one_of(low_prec_dtype if dtype is None else dtype, float16, bfloat16)
        self.high_prec_dtype = _one_of(high_prec_dtype, float32, float64)
        if precision not in PRECISIONS:
            raise ArgumentError(f"autocast: precision={precision!r} must be one of {', '.join(PRECISIONS)}")
        if precision != "highest" and self.low_prec_dtype.name != precision:
            raise DTypeError(f"autocast: precision={precision!r} goes with dtype={precision!r}, not {self.low_prec_dtype}")
        self.precision = precision
        self._entered: list = []

    def __enter__(self) -> autocast:
        low, high = self.low_prec_dtype, self.high_prec_dtype
        rule, key = _rule(low, high, self.precision), ("autocast", low, high, self.precision)
        block = casts(rule, high, key) if self.enabled else casts(None, None, None)
        block.__enter__()
        _blocks.depth += 1
        self._entered.append(block)
        return self

    def __exit__(self, *error: Any) -> None:
        _blocks.depth -= 1
        self._entered.pop().__exit__(*error)
        if not _blocks.depth:
            casting.begin()

    def __call__(self, function: Callable) -> Callable:
        """The function, run in such a block."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.enabled, self.low_prec_dtype, self.high_prec_dtype, precision=self.precision):
                return function(*args, **kwargs)

        return run


def _one_of(d: Any, *some: DType) -> DType:
    found = dtype(d)
    if found not in some:
        raise DTypeError(f"autocast: {found} must be one of {', '.join(s.name for s in some)}")
    return found


@functools.cache
def _rule(low: DType, high: DType, precision: str) -> Rule:
    """(op, operands, attributes) -> the operands in the dtypes that the op says, and the precision of products."""

    def rule(op: Op, inputs: tuple, attrs: tuple) -> tuple[tuple, tuple]:
        if op.autocast is None:
            return inputs, attrs
        inputs = tuple([Tensor(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in inputs])
        floats = [x.dtype for x in inputs if isinstance(x, Tensor) and x.dtype.is_float]
        if op.autocast == "high":
            return tuple([_cast(x, high) if isinstance(x, Tensor) and x.dtype.bits < high.bits else x for x in inputs]), attrs
        if float64 in floats:
            return inputs, attrs
        if precision != "highest" and "precision" in op.attrs:
            at = op.attrs.index("precision")
            attrs = (*attrs[:at], precision, *attrs[at + 1 :])
        return tuple([_cast(x, low) if isinstance(x, Tensor) else x for x in inputs]), attrs

    return rule


def _cast(x: Tensor, d: DType) -> Tensor:
    """A float tensor in another dtype. A parameter is cast once, as long as it has the same value and place on the tape."""
    if not x.dtype.is_float or x.dtype is d:
        return x
    if not isinstance(x, Parameter):
        return REGISTRY["astype"](x, d)
    known = casting.made
    data, node, made = known.get((id(x), d), (None, None, None))
    if made is None or data is not x._data or node is not x._node or (made._node is None and on_tape(x)):  # it was cast inside of `no_grad`
        made = REGISTRY["astype"](x, d)
        if casting.order is not None and (of := node_of(made)[0]) is not None:
            of.order = casting.order
        known[id(x), d] = x._data, x._node, made
    return made


def current() -> tuple[bool, DType | None, DType | None]:
    """(whether the calling thread is inside autocast, the low dtype, the high dtype)."""
    key = casting.key
    return (False, None, None) if key is None else (True, *key[1:3])


class Switch:
    """The block that setting `tengen.amp.enabled` opens in a thread, until it is set again."""

    def __init__(self) -> None:
        self.low: DType = float16
        self.high: DType = float32
        self._open = contextlib.ExitStack()
        self._depth = 0

    def set(self, enabled: bool, low: Any = None, high: Any = None) -> None:
        """Leaves the block that is open, and opens one with these dtypes (None: those of before) if `enabled`.

        Errors: RuntimeError inside another block, which would end before this one.
        """
        if _blocks.depth != self._depth:
            raise RuntimeError("tengen.amp is set inside an autocast block; help: set it before, or nest another block")
        block = autocast(enabled, low or self.low, high or self.high)
        self._open.close()
        self.low, self.high = block.low_prec_dtype, block.high_prec_dtype
        if enabled:
            self._open.enter_context(block)
        self._depth = _blocks.depth
