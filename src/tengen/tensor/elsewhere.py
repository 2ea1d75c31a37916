"""What a tensor is whose calls of ops go to somebody else.

One that stands for a value of a graph which is being edited: ops on it become nodes of that graph.
Its `Layout` is an `Elsewhere`, which belongs to the graph's owner; its data is whatever the owner keeps. A call of an op on such a
tensor, outside of traces, goes to `owner.record(op, inputs, attributes)` (`eager.py`), so that plain functions of tensors extend a
loaded network or a traced module.

And one of which each process holds a part: users see the type of the whole. Its `Layout` is a `Placed`, its data this process's part, a
tensor. A call of an op on it, in a trace too, goes to `owner.run(op, inputs, attributes)`, which calls ops on parts; the tape holds the
calls on wholes. So plain functions, modules, gradients and optimizers work on such tensors, and on others beside them, which are the same
in all processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tengen.base.device import Device, cpu
from tengen.base.errors import TraceError
from tengen.ir.types import TensorType
from tengen.kernels.lowering import contiguous_strides, product
from tengen.loops.extents import open_extent

if TYPE_CHECKING:
    from tengen.tensor.tensor import Tensor


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


class Parts(Protocol):
    """Who knows the parts. moved: bytes that were brought from other processes."""

    moved: int

    def run(self, op: Any, inputs: tuple, attrs: tuple) -> Any:
        """What a call of an op gives: a placed tensor, or a tuple of them; of a composite what its body gives, on the tape where its operands
        are."""
        ...

    def whole(self, t: Tensor) -> Tensor:
        """The tensor with all of its elements in each process."""
        ...

    def like(self, t: Tensor, part: Tensor) -> Tensor:
        """A tensor of which this process has a part, placed as another one is."""
        ...

    def part(self, t: Tensor, value: Tensor) -> Tensor:
        """This process's part of a value, placed or not, once it is placed as another tensor is."""
        ...

    def assign(self, target: Tensor, value: Tensor) -> None:
        """A placed tensor takes a value, placed or not; its placement stays."""
        ...


class Placed:
    """What stands in for a `Layout`: the type of the whole. placements: where the parts are, as the owner understands it. moved: what the
    owner has made of the parts, where they need not be moved twice."""

    __slots__ = ("shape", "dtype", "type", "size", "strides", "device", "contiguous", "order", "graph", "owner", "placements", "moved")

    def __init__(self, t: TensorType, device: Any, owner: Parts, placements: tuple):
        self.type, self.shape, self.dtype, self.device, self.owner, self.placements = t, t.shape, t.dtype, device, owner, placements
        self.size, self.strides = product(t.shape), contiguous_strides(t.shape)
        self.contiguous, self.order, self.graph, self.moved = True, None, None, None

    def __repr__(self) -> str:
        return f"{self.type!r} on {self.placements}"


def whole(t: Tensor) -> Tensor:
    """A placed tensor with all of its elements; another one as it is."""
    return t._layout.owner.whole(t) if type(t._layout) is Placed else t


def local(t: Tensor) -> Tensor:
    """This process's part of a placed tensor; another one as it is."""
    return t._data if type(t._layout) is Placed else t


def part_of(value: Tensor, t: Tensor) -> Tensor:
    """This process's part of a value that goes where another tensor is; all of it where that one is not placed."""
    return t._layout.owner.part(t, value) if type(t._layout) is Placed else whole(value)


def placed_as(t: Tensor, part: Tensor) -> Tensor:
    """A tensor of which this process has a part, placed as another one is; the part itself where that one is not placed."""
    return t._layout.owner.like(t, part) if type(t._layout) is Placed else part


def parts_of(inputs: Any) -> Parts | None:
    """Who knows the parts of the operands; None where none is placed."""
    for x in inputs:
        if type(getattr(x, "_layout", None)) is Placed:
            return x._layout.owner
    return None
