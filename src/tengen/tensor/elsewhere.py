"""What a tensor is that stands for a value of a graph which is being edited: ops on it become nodes of that graph.

Its `Layout` is an `Elsewhere`, which belongs to the graph's owner; its data is whatever the owner keeps. A call of an op on such a
tensor, outside of traces, goes to `owner.record(op, inputs, attributes)` (`eager.py`), so that plain functions of tensors extend a
loaded network or a traced module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from tengen.base.device import Device, cpu
from tengen.base.errors import TraceError
from tengen.ir.types import TensorType
from tengen.kernels.lowering import contiguous_strides, product
from tengen.loops.extents import open_extent


class Owner(Protocol):
    """Who keeps the graph."""

    def record(self, op: Any, inputs: tuple, attrs: tuple) -> Any:
        """What a call of an op gives: a tensor that stands for a new value, or a tuple of them."""
        ...


class Elsewhere:
    """A `Layout` without memory. type, shape, dtype, size, strides: as of a dense tensor; open extents are arithmetic."""

    __slots__ = ("shape", "dtype", "type", "size", "strides", "device", "contiguous", "graph", "owner", "__weakref__")

    def __init__(self, t: TensorType, owner: Owner, device: Device = cpu):
        self.type, self.dtype, self.owner, self.device = t, t.dtype, owner, device
        seen: Callable[[tuple], tuple] = lambda extents: tuple(map(open_extent, extents))
        self.shape, self.strides, self.size = seen(t.shape), seen(contiguous_strides(t.shape)), open_extent(product(t.shape))
        self.contiguous, self.graph = True, None


def refuse_writing() -> NoReturn:
    """The error where such a tensor, or one's value, would be written in place."""
    raise TraceError("a value of a graph is not written in place; help: make another value, and replace this one by it")
