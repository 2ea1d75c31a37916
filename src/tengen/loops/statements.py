"""The kernel language's statements, and the kernel: a body of statements over buffers and integer parameters.

    statements   Let, Load, Store, Prefetch, External, Declare, Assign, For, If
    Kernel       buffers, integer parameters, and a body that computes one piece; the pieces are independent

What they compute with are the expressions of `lang.py`; `builder.py` is how they are written, `interp.py` what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.loops.lang import GROUPS, Expr


@record(eq=False, slots=True)
class Buffer:
    """Memory of one dtype. `role`: "in" (read), "out" (written, may be read back), "scratch" (private to a piece,
    `size` elements, contents undefined at the start of each piece). Distinct buffers never overlap, except that an "out" may be
    exactly an "in" when each element is written after its last read."""

    name: str
    dtype: DType
    role: str = "in"
    size: int | None = None


@record(eq=False, slots=True)
class Let:
    """var = value."""

    var: Expr
    value: Expr


@record(eq=False, slots=True)
class Load:
    """var = buffer[index]. A vector var reads index .. index + 15, or gathers when the index itself is a vector.
    With `count`, lanes at and past it are not read and hold `other`. bool is stored as bytes 0 and 1.

    A var of the dtype that `GROUPS` has for the buffer's takes a group of elements: lane i holds the `group` elements from
    index + group * i on, the first in the lowest bits. The index is then a scalar, and there is no count."""

    var: Expr
    buffer: Buffer
    index: Expr
    count: Expr | None = None
    other: Expr | None = None

    @property
    def group(self) -> int:
        """How many elements are read for each lane."""
        return self.var.dtype.size // self.buffer.dtype.size if self.var.dtype is GROUPS.get(self.buffer.dtype) else 1


@record(eq=False, slots=True)
class Store:
    """buffer[index] = value, lanes as in Load. A scatter (vector index) writes lanes in order. `stream` means nothing: it is a
    hint that the value will not be read again soon, so that it may be written past the caches."""

    buffer: Buffer
    index: Expr
    value: Expr
    count: Expr | None = None
    stream: bool = False


@record(eq=False, slots=True)
class Prefetch:
    """buffer[index] will be read soon, or written if the buffer is an output: a hint, which changes nothing. The place may lie
    outside of the buffer."""

    buffer: Buffer
    index: Expr


@record(eq=False, slots=True)
class External:
    """var = symbol(address of each place, shapes, numbers...): a call of a C function that is not the kernel language's. What it
    computes, and with which bits, is its author's promise. It may read each buffer from its place on, and write those that are
    no "in".

        int32_t symbol(const T *in, ..., T *out, ..., const int64_t *shapes, int64_t or double number, ...)

    Attributes:
        var: an int32, what it returns. places: (buffer, the index of an element), one for each address. shapes: int64 numbers, of which
            it gets the address of the first. numbers: int64 and float64 numbers."""

    var: Expr
    symbol: str
    places: tuple[tuple[Buffer, Expr], ...]
    shapes: tuple[Expr, ...] = ()
    numbers: tuple[Expr, ...] = ()


@record(eq=False, slots=True)
class Declare:
    """A variable that Assign may change."""

    var: Expr
    value: Expr


@record(eq=False, slots=True)
class Assign:
    """Gives a declared variable a new value."""

    var: Expr
    value: Expr


@record(eq=False, slots=True)
class For:
    """for var in range(start, stop, step), step a positive literal."""

    var: Expr
    start: Expr
    stop: Expr
    step: int
    body: list = field(default_factory=list)


@record(eq=False, slots=True)
class If:
    """Runs `body` when cond holds, else `orelse`."""

    cond: Expr
    body: list = field(default_factory=list)
    orelse: list = field(default_factory=list)


@record(eq=False, slots=True)
class Kernel:
    """A loop nest. `body` computes piece number `piece` (an int64 variable) of `pieces` (an expression over `ints`). Pieces
    may run in any order and at the same time, so they write disjoint elements.

    Compiled signature: ``void name(ptr* buffers, i64* ints, i64 begin, i64 end)``, pieces begin <= piece < end.
    """

    name: str
    buffers: list[Buffer]
    ints: list[Expr]
    pieces: Expr
    piece: Expr
    body: list
    scratch: list[Buffer] = field(default_factory=list)


def assigned(body: Iterable) -> list[Expr]:
    """The variables that statements assign, in order of first assignment, also inside loops and branches."""
    found: dict[Expr, None] = {}
    for s in body:
        kind = type(s)
        if kind is Assign:
            found[s.var] = None
        elif kind is For:
            found.update(dict.fromkeys(assigned(s.body)))
        elif kind is If:
            found.update(dict.fromkeys(assigned([*s.body, *s.orelse])))
    return list(found)
