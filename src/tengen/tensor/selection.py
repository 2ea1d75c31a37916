"""Selections by a mask inside of a trace, `x[mask]`: how many rows they have depends on values, and a program has shapes that do not.

In: a tensor and a mask that is computed by the trace. Out: a tensor (its layout is a `Selected`, `elsewhere.py`) that has all rows in their
places, of which users see the selected ones. Ops that compute row by row run on all rows: elementwise ones, and others by their rule "parts"
(`ops/rules.py`). An assignment behind the same mask, `x[mask] = f(x[mask])`, becomes `where`; reductions over the rows become
`reduce_selected`. All have the bits of the same calls on counted rows. What depends on how many rows there are, a shape among them, counts
them: a trace that may ask for values asks, another one says in its error what to write.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from tengen.base.dtype import bool_
from tengen.base.errors import TengenError, TraceError, user_line
from tengen.ir.graph import Value
from tengen.kernels.lowering import product
from tengen.loops.lang import as_int
from tengen.ops.define import REGISTRY, Op, dispatch
from tengen.ops.indexing import index
from tengen.ops.masks import true_positions
from tengen.ops.selections import beside, reduce_selected, selected
from tengen.ops.shape import normalize_axes, normalize_axis
from tengen.tensor.batched import Batched
from tengen.tensor.eager import put_on_tape
from tengen.tensor.elsewhere import Elsewhere, Placed, Selected
from tengen.tensor.quantised import holds_codes
from tengen.tensor.recording import tracing
from tengen.tensor.tape import call_body
from tengen.tensor.tensor import Buffer, Tensor, tensor_over

_REDUCED = {"sum", "mean", "max", "min"}
_INDICES = {"gather": 1, "cross_entropy_each": 1, "one_hot": 0}  # ops of rows, and which operand must be an index
_POINTWISE = {"astype", "copy"}  # ops of each element that are not elementwise expressions
_ALONG = {"argmax", "argmin", "sort", "argsort", "k_first", "cumsum", "cumprod", "concat", "logsumexp"}  # by rows, unless along axis 0
_TRUTHS = {"any": False, "all": True}  # what changes neither


class Selection:
    """The rows that a mask selects of tensors whose first axes are those of the mask.

    Args:
        mask: bool, computed by the trace that is recorded.

    Attributes:
        mask: with the value that it had. flat: the same with one axis. may_count: False while it is tried what an op does without.
    """

    def __init__(self, mask: Tensor):
        self.mask, self.may_count = mask._off_tape(), True
        self.flat = self.mask if mask.ndim == 1 else REGISTRY["reshape"](self.mask, (-1,))

    def of(self, x: Tensor) -> Tensor:
        """``x[mask]``."""
        rest = x._layout.type.shape[self.mask.ndim :]
        rows = x if self.mask.ndim == 1 else REGISTRY["reshape"](x, (-1, *rest))
        return self.of_rows(selected(beside(self.flat, rows), rows))

    def of_rows(self, rows: Tensor) -> Tensor:
        """The selected rows of a tensor that has all of them along axis 0."""
        layout = Selected(rows, self)
        if (recorder := tracing.recorder) is not None:
            recorder.selections.append(ref(layout))
        return tensor_over(rows, layout)

    def _each(self, rows: Any) -> Any:
        return tuple(map(self.of_rows, rows)) if isinstance(rows, tuple) else self.of_rows(rows)

    def same(self, other: Selection) -> bool:
        """Whether another one is known to select the same rows."""
        return other is self or self.has(other.mask)

    def has(self, mask: Tensor) -> bool:
        """Whether a mask is known to have the values of this one."""
        a, b = self.mask._data, mask._data
        if a is b:
            return True
        recorder = tracing.recorder
        return recorder is not None and isinstance(a, Value) and isinstance(b, Value) and recorder.computes_the_same(a, b)

    # -- counted ---------------------------------------------------------------------------------------------------------
    def counted(self, rows: Tensor) -> Tensor:
        """The selected rows alone. Errors: TraceError in a trace that asks for no values."""
        recorder = tracing.recorder
        if not self.may_count or (recorder is not None and not recorder.answers and type(self.mask._data) is not Buffer):
            raise TraceError(
                f"{user_line()}: a selection by a mask inside a trace: how many elements it has is known only when the program runs, and its "
                "shape, or what is computed here, depends on that; help: ops on elements or rows, sum, mean, max, min, any and all of "
                "x[mask], and assignments to the places of the same mask, need no number; elsewhere use where(mask, x, 0), and mask.sum() "
                "for the number; a call of a function that is traced with symbolic=False, and not dumped, may ask"
            )
        return index([true_positions(self.flat)], rows, (0,), 0)

    def settle(self, t: Tensor) -> Tensor:
        """The same tensor, with the selected rows alone."""
        layout: Any = t._layout
        if layout.alone is None:
            layout.alone = self.counted(layout.rows)
        t._data, t._layout = layout.alone._data, layout.alone._layout
        t._node = layout.alone._node if t._node is None else t._node
        return t

    # -- calls -----------------------------------------------------------------------------------------------------------
    def run(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """What a call gives: a selection, or a reduction of one; None where it depends on how many rows are selected."""
        mine = [x is not None and type(x._layout) is Selected for x in inputs]
        for x, is_mine in zip(inputs, mine):
            if is_mine and (x._node is not None or x._layout.alone is not None or not self.same(x._layout.owner)):
                return None  # a gradient is asked for by the selection itself; it is counted; or by another mask
            if x is not None and not is_mine and (x._node is not None or type(x._layout) in (Batched, Placed, Elsewhere)):
                return None  # its gradient would be a sum over the rows, in an order that depends on their number
        operands = tuple([x._layout.rows if is_mine else x for x, is_mine in zip(inputs, mine)])
        types = [None if x is None else x._layout.type for x in operands]
        if op.name in _INDICES:
            return self._indexed(op, operands, types, attrs) if all(mine) else None
        if op.rules.check is not None and (op.rules.checks is None or op.rules.checks(types)):
            return None  # a row that is not selected may have what must not be
        if mine == [True] and (op.name in _REDUCED or op.name in _TRUTHS) and not operands[0].dtype.is_complex:
            axes = normalize_axes(attrs[0], operands[0].ndim)
            if 0 in axes:
                return self._reduced(op, operands[0], axes, attrs[1])
        if self._by_rows(op, types, attrs, mine):
            return self._each(dispatch.run(op, operands, attrs))
        return self._composite(op, operands, attrs, mine) if op.kind == "composite" else None

    def _composite(self, op: Op, operands: tuple, attrs: tuple, mine: list[bool]) -> Any:
        """What a composite gives, whose body says what it is: a call row by row stays a call of the composite."""
        try:
            canonical = op.canonical([None if x is None else x._layout.type for x in operands], attrs)
            self.may_count, before = False, self.may_count
            try:
                out = call_body(op, tuple([self.of_rows(x._off_tape()) if is_mine else x for x, is_mine in zip(operands, mine)]), canonical)
            finally:
                self.may_count = before
        except TengenError:
            return None
        if all([type(t._layout) is Selected for t in (out if isinstance(out, tuple) else (out,))]):
            return self._each(dispatch.run(op, operands, attrs))
        if all([x is None or x._node is None for x in operands]):
            return out
        if op.rules.vjp is not None or op.rules.same is not None:  # its gradient is not that of its body
            return None
        return call_body(op, tuple([self.of_rows(_entry(x)) if is_mine else x for x, is_mine in zip(operands, mine)]), canonical)

    def _indexed(self, op: Op, operands: tuple, types: list, attrs: tuple) -> Any:
        """A call whose indices are looked at; those of rows that are not selected are taken to be 0."""
        axis = op.canonical(types, attrs).get("axis")
        if axis is not None and normalize_axis(axis, operands[0].ndim) == 0:
            return None
        i = _INDICES[op.name]
        looked_at = selected(beside(self.flat, operands[i]), operands[i])
        return self._each(dispatch.run(op, (*operands[:i], looked_at, *operands[i + 1 :]), attrs))

    def _by_rows(self, op: Op, types: list, attrs: tuple, mine: list[bool]) -> bool:
        """Whether each row of the results depends on the same row of the selections alone."""
        if op.name in _POINTWISE:
            return True
        if op.name in _ALONG:
            try:
                found = op.canonical(types, attrs)
            except TengenError:
                return False
            axes = found.get("axes", found.get("axis"))
            return all(mine) and axes is not None and 0 not in normalize_axes(axes, len(types[0].shape))
        if op.extents and not (op.name == "reshape" and attrs[0][:1] == (-1,)):
            return False
        try:
            parts = op.axes_of_parts(types, op.canonical(types, attrs))
        except TengenError:  # an operand whose extent is to be the number of selected rows
            return False
        return parts is not None and all([(list(p[:1]) == [0]) is m and 0 not in p[1:] for p, m in zip(parts, mine)])

    def _reduced(self, op: Op, rows: Tensor, axes: tuple, keepdims: bool) -> Tensor:
        """A reduction over the rows. axes: as `normalize_axes` gives them."""
        if op.name in _TRUTHS:
            inside = REGISTRY["where"](beside(self.flat, rows), REGISTRY["astype"](rows, bool_), _TRUTHS[op.name])
            return op(inside, axes, keepdims)
        return reduce_selected(self.flat, rows, op.name, axes, keepdims)


def _entry(x: Tensor) -> Tensor:
    """An operand inside of a body: what the body gives to its gradient is added there, as if the body were one call."""
    return x if x._node is None else put_on_tape(REGISTRY["copy"], (x,), (), x._off_tape())


def by_mask(x: Tensor, mask: Tensor, value: Tensor | None = None) -> Tensor | None:
    """``x[mask]``, or with a value a copy of x that has it at [mask], where the trace that is recorded computes the mask; None where the
    selected rows must be counted. The mask's axes are the first of x's."""
    if type(x._layout) in (Batched, Placed, Elsewhere, Selected) or holds_codes(x):
        return None
    shape = x._layout.type.shape
    if as_int(product(shape)) == 0 or not mask.ndim:
        return None
    if value is None:
        return Selection(mask).of(x)
    rest = len(shape) - mask.ndim
    if type(value._layout) is Selected:
        if value._node is not None or not value._layout.owner.has(mask) or value.ndim != rest + 1:
            return None
        value = value._layout.rows
        value = REGISTRY["reshape"](value, (*mask._layout.type.shape, *value._layout.type.shape[1:]))
    elif value.ndim > rest:  # an axis of the rows
        return None
    flags = REGISTRY["reshape"](mask, (*mask._layout.type.shape, *(1,) * rest))
    return REGISTRY["where"](flags, value, x)
