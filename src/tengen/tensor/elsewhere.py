"""What a tensor is whose calls of ops go to somebody else.

One that stands for a value of a graph which is being edited: ops on it become nodes of that graph.
Its `Layout` is an `Elsewhere`, which belongs to the graph's owner; its data is whatever the owner keeps. A call of an op on such a
tensor, outside of traces, goes to `owner.record(op, inputs, attributes)` (`eager.py`), so that plain functions of tensors extend a
loaded network or a traced module.

And one of which each process holds a part: users see the type of the whole. Its `Layout` is a `Placed`, its data this process's part, a
tensor. A call of an op on it, in a trace too, goes to `owner.run(op, inputs, attributes)`, which calls ops on parts; the tape holds the
calls on wholes. So plain functions, modules, gradients and optimizers work on such tensors, and on others beside them, which are the same
in all processes.

And one that a mask selects inside of a trace, `x[mask]`, whose number of rows only a run knows. Its `Layout` is a `Selected`, its data a tensor
that has the rows in the places where x has them. A call of an op on it goes to `owner.run`, which computes all rows where no selected one
depends on how many there are; the tape holds these calls. Whatever else is asked of it counts the rows (`selection.py`).
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


class Rows(Protocol):
    """Who has a mask, and computes with what it selects."""

    def run(self, op: Any, inputs: tuple, attrs: tuple) -> Any:
        """What a call of an op gives; None where it depends on how many rows are selected."""
        ...

    def counted(self, rows: Tensor) -> Tensor:
        """The selected rows alone."""
        ...

    def of_rows(self, rows: Tensor) -> Tensor:
        """The selected rows of a tensor that has all of them along axis 0."""
        ...

    def same(self, other: Any) -> bool:
        """Whether another one is known to select the same rows."""
        ...

    def settle(self, t: Tensor) -> Tensor:
        """The same tensor, which has the selected rows alone from now on."""
        ...


class _Extents(tuple):
    """The shape of selected rows: they are counted when it is asked how many they are, and not when the other extents are asked for."""

    _layout: Selected

    def _counted(self) -> tuple:
        return self._layout.counted().shape

    def __getitem__(self, key: Any) -> Any:
        first = key.indices(len(self))[0] == 0 if isinstance(key, slice) else key in (0, -len(self))
        return self._counted()[key] if first or (isinstance(key, slice) and (key.step or 1) < 0) else super().__getitem__(key)

    def __iter__(self) -> Any:
        return iter(self._counted())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != len(self) or self[1:] != other[1:]:
            return False
        same = isinstance(other, _Extents) and self._layout.owner.same(other._layout.owner)
        return same or self._counted() == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._counted())

    def __repr__(self) -> str:
        return repr(self._counted())

    def __add__(self, other: Any) -> Any:
        return self._counted() + other


class Selected:
    """What stands in for a `Layout`: of all rows, and who knows which are selected. Type, size and all else that depends on how many there are
    are those of the selected rows, which are counted when they are asked for: a `TraceError` where they cannot be."""

    __slots__ = ("rows", "owner", "dtype", "device", "alone", "__weakref__")

    def __init__(self, rows: Tensor, owner: Rows):
        self.rows, self.owner, self.dtype, self.device = rows, owner, rows._layout.dtype, rows._layout.device
        self.alone: Tensor | None = None  # the selected rows, once they were counted

    @property
    def shape(self) -> tuple:
        """The extents."""
        made = _Extents(self.rows._layout.shape)
        made._layout = self
        return made

    def counted(self) -> Any:
        """The layout of the selected rows alone."""
        if self.alone is None:
            self.alone = self.owner.counted(self.rows)
        return self.alone._layout

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.counted(), name)

    def settle(self, t: Tensor) -> bool:
        """Counts the rows of a tensor that has this in place of its layout. Returns whether it has values."""
        t = self.owner.settle(t)
        settle = getattr(t._layout, "settle", None)
        return settle is None or settle(t)


def whole(t: Tensor) -> Tensor:
    """A placed tensor with all of its elements, a selection with those that are selected; another one as it is."""
    if type(t._layout) is Selected:
        return t._layout.owner.settle(t)
    return t._layout.owner.whole(t) if type(t._layout) is Placed else t


def selected_by(inputs: Any) -> Rows | None:
    """Who has the mask of the first operand that is a selection; None where none is."""
    for x in inputs:
        if type(getattr(x, "_layout", None)) is Selected:
            return x._layout.owner
    return None


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
