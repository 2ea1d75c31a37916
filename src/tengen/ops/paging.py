"""Values that a program writes to a file and reads again, to have their memory meanwhile (`trace(memory_budget=, offload=)`).

    page_out    a value -> a ticket, by whose address it is known; its bytes are written to the file of a store
    page_in     a ticket -> the value

The planner of budgets adds them to a program (`compiler/budget.py`); nobody records them. They call Python (`runtime/paging.py`) with the
memory itself, nothing is copied. A value is written in the order in which it lies in memory, and lies so when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tengen.base.dtype import int64
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.pointwise import over_dense
from tengen.loops.external import HOST
from tengen.loops.lang import const
from tengen.ops.attributes import Count, DTypeLike, Shape
from tengen.ops.define import primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive
def page_out(x: Tensor, store: int, order: Sequence[Count]):
    """Writes a value. store: the key of the store. order: the axes from the outermost in memory to the innermost. Returns the ticket."""


@page_out.infer
def _(x, store, order):
    return TensorType((), int64)


@page_out.lower
def _(lo, ins, outs, store, order):
    (x,), (ticket,) = ins, outs
    over_dense(lo, [x.permute(order)], [ticket], lambda some, made: _ask(lo, store, 0, [(some[0], False), (made[0], True)]))


@primitive
def page_in(ticket: Tensor, store: int, order: Sequence[Count], shape: Shape, dtype: DTypeLike, what: Count):
    """Reads a value. what: 1; 2 where nobody reads it again."""


@page_in.infer
def _(ticket, store, order, shape, dtype, what):
    return TensorType(shape, dtype)


@page_in.layout
def _(arrays, out, store, order, shape, dtype, what):
    return order


@page_in.lower
def _(lo, ins, outs, store, order, shape, dtype, what):
    (ticket,), (x,) = ins, outs
    over_dense(lo, [ticket], [x.permute(order)], lambda some, made: _ask(lo, store, what, [(made[0], True), (some[0], False)]))


def _ask(lo: Lowering, store: int, what: int, places: Sequence[tuple[Array, bool]]) -> None:
    """Calls Python with the key of the store, and what is asked for; then with places in memory, and whether they are written."""
    head = lo.temp(int64, (2,))
    k = lo.kernel("page")
    at = k.write(head)
    for i, n in enumerate((store, what)):
        k.store(at, head.offset + i, const(n, int64))
    addresses = [(at, head.offset), *(((k.write if out else k.read)(a), a.offset) for a, out in places)]
    sizes = [n for a in (head, *(a for a, _ in places)) for n in (1, product(a.shape) * a.dtype.size)]
    k.external(HOST, addresses, [len(addresses), *sizes], [])
    lo.launch(k)


for _op in (page_out, page_in):
    _op.effect()
    _op.no_vjp("a program is differentiated before its memory is planned")
