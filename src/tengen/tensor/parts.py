"""Tensors whose writes go on to another tensor: `x.data`, and in files of PyTorch's dialect views and `x.detach()`.

    x.data[0] = 1.0        flat = x.view(-1); flat[0] = 1.0        x[0].add_(1)        x.detach().t().zero_()        from_numpy(a).zero_()

A tensor has values of its own here, so each of these has a link (`_part`) that says whose values they are, how they are read there and how
they are written there. What is written in place goes on along the links; before that the tensor takes the values that are there now.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.base.record import NamedTuple
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Tensor, assign, from_numpy, settled


class Part(NamedTuple):
    """What a tensor is a part of, how its values are read there, and how what is written to it is written there. layout: how the part lay when
    it was made; a part that was written may lie otherwise here, and not in PyTorch. as_if: how it would lie there, where it lies otherwise
    here from the first."""

    base: Tensor
    read: Callable[[Tensor], Tensor]
    write: Callable[[Tensor, Tensor], None]
    layout: Any
    as_if: Any = None


class Alias(NamedTuple):
    """Whose values a tensor has off the tape. The other one is not kept alive, for it may hold all that it was computed from; where it is a
    part, `through` is the link to the values, off the tape, of what it is a part of. memory: how often its memory had been exchanged."""

    owner: ref[Tensor]
    through: Link | None
    memory: int

    def alive(self) -> Tensor | None:
        """The other tensor, while somebody holds it and its memory is the same."""
        owner = self.owner()
        return owner if owner is not None and _times_exchanged(owner) == self.memory else None


class OfArray(NamedTuple):
    """The NumPy array whose values a tensor has, as `torch.from_numpy` gives it: how it lies in the array that owns the memory. That is not
    kept alive: what nobody holds need not be written."""

    owner: Callable[[], np.ndarray | None]
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]
    offset: int

    def array(self) -> np.ndarray | None:
        """The array; None where nobody holds its memory any more."""
        owner = self.owner()
        if owner is None:
            return None
        memory = owner if owner.flags.c_contiguous else owner.T
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)


Link = Part | Alias | OfArray
_exchanged: dict[int, tuple[ref[Tensor], int]] = {}  # how often ``x.data = value`` gave a tensor other memory, by the tensor's id


def _times_exchanged(x: Tensor) -> int:
    known = _exchanged.get(id(x))
    return 0 if known is None or known[0]() is not x else known[1]


def _exchange(x: Tensor) -> None:
    n = _times_exchanged(x) + 1
    _exchanged[id(x)] = ref(x, lambda r, key=id(x): _exchanged.pop(key, None)), n


class Data(Tensor):
    """What `x.data` is: x's values off the tape. What is written to it in place is written to x."""

    def __setitem__(self, key: Any, value: Any) -> None:
        written(self, lambda: dispatch.set_item(self, key, value))

    def _reset(self, other: Any) -> None:
        reset(self, other)


def _updating(name: str) -> Callable[[Any, Any], Any]:
    def update(self: Any, other: Any) -> Any:
        refresh(self)
        return getattr(Tensor, name)(self, other)

    return update


for _name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split():
    setattr(Data, f"__i{_name}__", _updating(f"__i{_name}__"))


def data_of(x: Tensor) -> Data:
    """The tensor's values off the tape; what is written to them in place is written to the tensor, and not recorded.

    To set it gives the tensor another value.

    >>> from tengen import Parameter
    >>> p = Parameter([1.0, 2.0])
    >>> p.data *= 2.0
    >>> _ = p.data.add_(1.0)
    >>> p.tolist()
    [3.0, 5.0]
    """
    plain = x.detach()
    made = object.__new__(Data)
    made._data, made._layout, made._node = plain._data, plain._layout, plain._node
    return as_alias(x, made)


def set_data(x: Tensor, value: Any) -> None:
    """``x.data = value``: the tensor takes the value, its shape and its dtype, and stays attached where it is."""
    given = value if isinstance(value, Tensor) else Tensor(value)
    link = getattr(given, "_part", None)
    if type(link) is Alias and link.alive() is x and given._data is x._data:  # what `x.data += y` sets at last
        return
    if type(x) is Data:  # x.data.data = value
        return reset(x, given.detach())
    _exchange(x)
    if is_part(x):
        x._part = None
    _keep_node(x, given.detach())


def _keep_node(x: Tensor, value: Tensor) -> None:
    """x takes a value and keeps its place on the tape."""
    node = x._node
    assign(x, value)
    if node is not None:
        x._node = node


# ---- links ------------------------------------------------------------------------------------------------------------------


def as_part(base: Tensor, made: Tensor, read: Callable[[Tensor], Tensor], write: Callable[[Tensor, Tensor], None]) -> Tensor:
    """The tensor, which knows what it is a part of: read(base) are its values, and write(base, x) gives base those of x there."""
    if made is not base:
        made._part = Part(base, read, write, made._layout)
    return made


def as_alias(x: Tensor, made: Any) -> Any:
    """The tensor, which knows that its values are those of x off the tape."""
    made._part = Alias(ref(x), _off_tape(getattr(x, "_part", None)), _times_exchanged(x))
    return made


def as_own(made: Tensor) -> Tensor:
    """The tensor, which is known to share no memory with another one in PyTorch, though it may here."""
    made._part = False
    return made


def as_array_of(array: np.ndarray, made: Tensor) -> Tensor:
    """The tensor, which knows the array that it was made of; one that cannot be written it does not."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    whole = owner.flags.c_contiguous or owner.flags.f_contiguous
    if array.flags.writeable and whole:
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        held: Any = ref(owner) if owner.base is None else lambda: owner  # of other memory the array itself says nothing
        made._part = OfArray(held, array.shape, array.dtype, array.strides, offset)
    return made


def is_part(x: Tensor) -> bool:
    """Whether what is written to the tensor goes on to another."""
    return bool(getattr(x, "_part", None))


def relay(x: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> None:
    """A part takes another shape, there(x), and stays a part: of what is written to it, back(value) is written on."""
    refresh(x)
    before = object.__new__(Tensor)
    before._data, before._layout, before._node, before._part = x._data, x._layout, x._node, x._part
    assign(x, there(before))
    x._part = Part(before, there, lambda b, value: reset(b, back(value)), x._layout)


def is_known_as_own(x: Tensor) -> bool:
    """Whether `as_own` has said so of the tensor."""
    return getattr(x, "_part", None) is False


def lies(x: Tensor) -> Any:
    """The layout of a tensor as PyTorch's would be: of a part that which it had when it was made."""
    link = getattr(x, "_part", None)
    if type(link) is Alias:
        owner = link.alive()
        return lies(owner) if owner is not None else link.through.layout if type(link.through) is Part else x._layout
    return link.as_if or link.layout if type(link) is Part and link.layout.shape == x._layout.shape else x._layout


def root_of(x: Tensor) -> Tensor:
    """What a tensor is a part of, and what that is a part of, to the last one."""
    while type(link := getattr(x, "_part", None)) is Part:
        x = link.base
    return x


def _off_tape(link: Link | None) -> Link | None:
    if type(link) is not Part:
        return link or None
    return link._replace(base=as_alias(link.base, link.base._off_tape()))


def _read(link: Link) -> Tensor | None:
    """The values that a link leads to; None where nobody has them any more."""
    if type(link) is Part:
        refresh(link.base)
        return link.read(link.base)
    if type(link) is OfArray:
        array = link.array() if tracing.recorder is None else None
        return None if array is None else from_numpy(array)
    if (owner := link.alive()) is not None:
        refresh(owner)
        return owner._off_tape()
    return None if link.through is None else _read(link.through)


def _send(link: Link, x: Tensor) -> None:
    """Gives the values of x to what a link leads to. Errors: ArgumentError for an array, inside of a trace"""
    if type(link) is Part:
        return link.write(link.base, x)
    if type(link) is OfArray:
        if (array := link.array()) is None:
            return None
        if not settled(x):
            raise ArgumentError(
                f"{x._layout.type!r} is written in a traced function, and the NumPy array that it was made of cannot be; help: x.clone() first"
            )
        array[...] = x.numpy()
        return None
    if (owner := link.alive()) is not None:
        _keep_node(owner, x._off_tape())
    if link.through is not None:
        _send(link.through, x._off_tape())


def refresh(x: Tensor) -> None:
    """Gives a part the values that are now in what it is a part of."""
    if is_part(x) and (value := _read(x._part)) is not None:
        assign(x, value)


def relaid(x: Tensor) -> None:
    """A part that was written, and so lies by itself, is a view of what it is a part of once more, before a view of it is made."""
    link = getattr(x, "_part", None)
    if type(link) is Part and link.layout is not x._layout:
        refresh(x)


def written(x: Tensor, write: Callable[[], Any]) -> Any:
    """What write() gives, which writes a part; then what it is a part of is written."""
    refresh(x)
    done = write()
    _pass_on(x)
    return done


def reset(x: Tensor, value: Any) -> None:
    """Gives a tensor another value, and what it is a part of."""
    if value is not x:
        assign(x, value if isinstance(value, Tensor) else Tensor(value))
    if is_part(x):
        _pass_on(x)


def _pass_on(x: Tensor) -> None:
    link, x._part = x._part, None  # so that nobody takes the old values again before they are written
    try:
        _send(link, x)
    finally:
        x._part = link


# ---- x[key] -----------------------------------------------------------------------------------------------------------------


def is_view_key(key: Any) -> bool:
    """Whether PyTorch gives a view for a key: ints, slices, None, ... and 0-d tensors of integers."""
    if type(key) is tuple:
        return all(map(is_view_key, key))
    if isinstance(key, Tensor):
        return not key.shape and key.dtype.is_int
    return key is None or key is Ellipsis or (isinstance(key, (int, slice)) and not isinstance(key, bool))


def part_of(base: Tensor, key: Any) -> Tensor:
    """``base[key]``, which knows what it is a part of where it is a view in PyTorch."""
    read = REGISTRY["getitem"].call
    relaid(base)
    made = read(base, key)
    return as_part(base, made, lambda b: read(b, key), lambda b, x: operator.setitem(b, key, x)) if is_view_key(key) else made
