"""What a loop goes over without being unrolled: rows of a tensor, pieces of `split`, numbers, several of these side by side.

`lanes(x)` makes one of what a `for` is given, or returns None for what is known when the function is recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import field
from threading import get_ident
from typing import Any

from tengen.base.dtype import int64
from tengen.base.errors import ScriptError, user_line
from tengen.base.record import record
from tengen.jit.script.numbers import Number, strong
from tengen.ops.define import REGISTRY, differ
from tengen.tensor import Tensor, tracing
from tengen.tensor.batched import mapping_of
from tengen.tensor.structure import flatten, mapped, unflatten
from tengen.tensor.tensor import as_tensor


def unknown(x: Any) -> bool:
    """Whether a value is a tensor that has no values while the function is recorded."""
    return isinstance(x, Tensor) and (tracing.recorder is not None or mapping_of(x) is not None)


@record
class Lanes:
    """Tensors whose slices along axis 0 are the items.

    Attributes:
        length: how many. tensors: with this extent along axis 0. make: of the slices, the item. tail: items behind the last one, of
            other shapes. known: the item at a known position, where that is more than the slices tell: a number. read: the tensors of which
            plain Python reads each item when it comes to it. iterator: whether it stands for an iterator of Python's (`zip`, `enumerate`,
            `reversed`, `map`), which the first that goes over it uses up.
    """

    length: Any
    tensors: list[Tensor]
    make: Any
    tail: list[Any] = field(default_factory=list)
    known: Callable[[int], Any] | None = None
    read: list[Tensor] = field(default_factory=list)
    iterator: bool = False

    def __post_init__(self) -> None:
        self._made_in, self._used = tracing.recorder, False

    def taken(self) -> Lanes:
        """Itself, for one who goes over it. Errors: ScriptError for an iterator that was gone over before, or comes from outside of the
        branch or the loop: what plain Python finds left of it depends on who went over it first, and how far."""
        if self.iterator and (self._used or self._made_in is not tracing.recorder):
            when = "again" if self._used else "in a branch or a loop over tensors, and was made outside of it"
            raise ScriptError(
                f"{user_line()}: an iterator over tensors (zip, enumerate, reversed, map) is gone over {when}; help: make it where it is gone "
                "over, or go over a list(...) of it"
            )
        self._used = True
        return self

    def __iter__(self) -> Iterator[Any]:
        self.taken()
        if not isinstance(self.length, int):
            raise ScriptError(
                f"{user_line()}: the items of a tensor with an open extent are asked for one by one; help: a `for` over it, or script(..., "
                "dynamic_axes=None), which records each extent by itself"
            )
        return items(self)

    def item(self, i: Any) -> Any:
        """The item at a position, which may be a tensor."""
        if self.known is not None and isinstance(i, int):
            return self.known(i)
        return self.make([x[i] for x in self.tensors])

    def behind(self, i: int) -> Lanes:
        """All but the first few."""
        known = None if self.known is None else lambda k: self.item(i + k)
        return Lanes(self.length - i, [x[i:] for x in self.tensors], self.make, self.tail, known)

    def backwards(self) -> Lanes:
        """The same from the last one to the first."""
        if self.tail:
            raise ScriptError(f"{user_line()}: reversed() of pieces that are not all equal; help: a list of them")
        return Lanes(self.length, [x[::-1] for x in self.tensors], self.make, read=self.read, iterator=True)


def rows(x: Tensor) -> Lanes:
    """The rows of a tensor."""
    if not x.ndim:
        raise TypeError(f"{user_line()}: iteration over a 0-d tensor")
    return Lanes(x.shape[0], [strong(x)], lambda xs: xs[0], read=[x])


def pieces(x: Tensor, size: int, axis: int) -> Lanes | None:
    """The pieces of so many elements along an axis; None where the extent is open and may not be a multiple."""
    axis = axis % x.ndim
    n = x.shape[axis]
    if not isinstance(n, int) and size != 1:
        return None
    full, left = (n // size, n % size) if isinstance(n, int) else (n, 0)
    cut = x if not left else REGISTRY["getitem"].call(x, (slice(None),) * axis + (slice(0, full * size),))
    first = REGISTRY["moveaxis"].call(cut, axis, 0)
    first = first.reshape(full, size, *first.shape[1:])
    tail = [REGISTRY["getitem"].call(x, (slice(None),) * axis + (slice(full * size, None),))] if left else []
    return Lanes(full, [first], lambda xs: REGISTRY["moveaxis"].call(xs[0], 0, axis), tail)


@record
class Count:
    """``range`` with a bound that is a tensor or a number of the program."""

    start: Any
    stop: Any
    step: int


class Stacked:
    """A list that has grown in a loop: some elements, then for each loop one stacked tensor of all.

    It is read as a list: its length, elements, slices; `F.stack` and `F.concat` take the stacked tensors as they are.
    """

    def __init__(self, parts: list[Any]):
        self.parts = parts  # elements, and (key of an element, stacked tensors, number)

    def length(self) -> Any:
        """How many elements: an open extent where a loop over one has filled it."""
        return sum(p.length if isinstance(p, Lanes) else 1 for p in self.parts)

    def __len__(self) -> int:
        return self.length()

    def __iter__(self) -> Iterator[Any]:
        for p in self.parts:
            if isinstance(p, Lanes):
                if not isinstance(p.length, int):
                    raise ScriptError(
                        f"{user_line()}: the elements of a list that a loop has filled are asked for, and their number is open; help: "
                        "F.stack or F.concat of the list"
                    )
                yield from (self._element(p, i) for i in range(p.length))
            else:
                yield p

    def __getitem__(self, i: Any) -> Any:
        last = self.parts[-1] if self.parts else None
        if i == -1 and isinstance(last, Lanes):
            return self._element(last, -1)
        return list(self)[i]

    def _element(self, p: Lanes, i: int) -> Any:
        return self._made_anew(p.item(i))

    def _made_anew(self, x: Any) -> Any:
        """An element of a stacked tensor: it may not be changed in place, which the list would not show."""
        told = tracing.writes.get(get_ident())
        if told is not None:
            where = user_line() or "?"
            mapped(x, lambda t: told.note(t, self, "an element of a list that a loop has filled and the one in the list", where))
        return x

    def append(self, x: Any) -> None:
        """Puts an element behind the others."""
        self.parts.append(x)

    def extend(self, xs: Any) -> None:
        """Puts elements behind the others."""
        self.parts += xs.parts if isinstance(xs, Stacked) else list(xs)

    def __add__(self, other: Any) -> Stacked:
        made = Stacked(list(self.parts))
        made.extend(other)
        return made

    def stacked(self) -> Lanes | None:
        """All elements as lanes, where each is one tensor of the same type."""
        found = []
        for p in self.parts:
            if isinstance(p, Lanes) and len(p.tensors) != 1:
                return None
            if not isinstance(p, (Lanes, Tensor)):
                return None
            found.append(p.tensors[0] if isinstance(p, Lanes) else REGISTRY["expand_dims"].call(p, 0))
        if not found:
            return None
        x = found[0] if len(found) == 1 else REGISTRY["concat"].call(found, 0)
        return Lanes(x.shape[0], [x], lambda xs: xs[0])

    def stack(self, axis: int = 0) -> Tensor:
        """`F.stack` of the elements."""
        made = self.stacked()
        if made is None:
            return REGISTRY["stack"].call(list(self), axis)
        return REGISTRY["moveaxis"].call(made.tensors[0], 0, axis) if axis else made.tensors[0]

    def concat(self, axis: int = 0) -> Tensor:
        """`F.concat` of the elements."""
        made = self.stacked()
        if made is None or made.tensors[0].ndim < 2:
            return REGISTRY["concat"].call(list(self), axis)
        x = made.tensors[0]
        axis = axis % (x.ndim - 1)
        x = REGISTRY["moveaxis"].call(x, 0, axis) if axis else x
        return x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])


def lanes(x: Any) -> Lanes | Count | None:
    """What a loop goes over as a whole; None for what is known."""
    if isinstance(x, Lanes):
        return x.taken()
    if isinstance(x, Count):
        return x
    if isinstance(x, Stacked):
        made = x.stacked() if any(isinstance(p, Lanes) for p in x.parts) else None
        return made and Lanes(made.length, made.tensors, lambda xs: x._made_anew(xs[0]))
    return rows(x) if unknown(x) else None


def numbered(start: int, n: Any) -> Lanes:
    """The numbers start, start + 1, ..."""
    return Lanes(
        n, [REGISTRY["arange"].call(start, start + n, dtype=int64)], lambda xs: Number.of(xs[0]), known=lambda i: start + i
    )


def numbers(xs: range) -> Lanes:
    """The numbers of a range."""
    return Lanes(len(xs), [Tensor(list(xs), dtype="int64")], lambda made: Number.of(made[0]), known=lambda i: xs[i])


def enumerated(x: Any, start: int = 0) -> Any:
    """`enumerate`"""
    found = lanes(x)
    if not isinstance(found, Lanes):
        return enumerate(x, start)
    return together([numbered(start, found.length), found], [(start + found.length + i, t) for i, t in enumerate(found.tail)])


def zipped(*xs: Any, strict: bool = False) -> Any:
    """`zip`"""
    found = [lanes(x) for x in xs]
    if not any(isinstance(f, Lanes) for f in found):
        return zip(*xs, strict=strict)
    known = [f.length for f in found if isinstance(f, Lanes)]
    n = known[0]
    if any(not isinstance(f, Lanes) or f.tail for f in found) or any(differ(m, n) for m in known):
        if all(isinstance(m, int) for m in known):
            return zip(*(items(f) if isinstance(f, Lanes) else x for f, x in zip(found, xs)), strict=strict)
        raise ScriptError(
            f"{user_line()}: zip of tensors and lists, or of tensors of several lengths; help: tensors of one length, or F.stack of the list"
        )
    return together(found, [])


def mapped_over(f: Callable, *xs: Any) -> Any:
    """`map`"""
    over = zipped(*xs)
    if not isinstance(over, Lanes):
        return map(lambda item: f(*item), over)
    return Lanes(
        over.length, over.tensors, lambda made: f(*over.make(made)), known=lambda i: f(*over.item(i)), read=over.read, iterator=True
    )


def items(x: Lanes) -> Iterator[Any]:
    """The items of lanes with a known number of them, each read when it is asked for."""
    return itertools.chain(map(x.item, range(x.length)), x.tail)


def together(some: list[Any], tail: list[Any]) -> Lanes:
    """Several lanes of one length side by side: items are tuples."""
    counts = [len(x.tensors) for x in some]

    def make(xs: list[Tensor]) -> tuple:
        rest = iter(xs)
        return tuple(lane.make([next(rest) for _ in range(n)]) for lane, n in zip(some, counts))

    tensors = [t for x in some for t in x.tensors]
    read = [t for x in some for t in x.read]
    return Lanes(some[0].length, tensors, make, tail, lambda i: tuple(lane.item(i) for lane in some), read, iterator=True)


def counted(*args: Any) -> Any:
    """`range`"""
    if not any(isinstance(a, Tensor) for a in args):
        return Numbered.of(*args)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    for a in args:
        if isinstance(a, float) or isinstance(a, Tensor) and not a.dtype.is_int:
            raise TypeError(f"{user_line()}: range() takes ints, got {a._layout.type if isinstance(a, Tensor) else a!r}; help: int(x)")
    if not isinstance(step, int):
        raise ScriptError(f"{user_line()}: range with a step that is a tensor; help: a step that is a number")
    return Count(start, stop, step)


class Numbered:
    """`range` with bounds that are known, or extents that are open."""

    @staticmethod
    def of(*args: Any) -> Any:
        """A range, or the numbers below an open extent."""
        if all(isinstance(a, int) for a in args) or len(args) == 3:
            return range(*args)
        start, stop = (0, args[0]) if len(args) == 1 else args
        return numbered(start, stop - start) if isinstance(start, int) else range(*args)


def backwards(x: Any) -> Any:
    """`reversed`"""
    found = lanes(x)
    return found.backwards() if isinstance(found, Lanes) else reversed(x)


def elements(x: Any) -> tuple[Any, list[Tensor]]:
    """The structure of what is appended, and its tensors; numbers among them are tensors."""
    leaves: list[Tensor] = []
    key = flatten(as_tensor(x) if isinstance(x, (bool, int, float)) else x, leaves, frozen=True)
    return key, [strong(t) for t in leaves]


def lane_of(key: Any, tensors: list[Tensor], n: Any) -> Lanes:
    """The elements that a loop has appended, of what it has stacked."""
    return Lanes(n, tensors, lambda xs: unflatten(key, xs))
