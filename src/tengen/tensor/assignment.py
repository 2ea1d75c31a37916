"""Writing tensors in place, eagerly: `x[key] = value`, and the updates of optimizers.

In: a tensor x, a key and a value of any kind; or a composite, and which of its operands its results replace. Out: x's memory is
written; if another tensor or array shares that memory, x gets a copy of its own before. While a trace or the tape records, the
op `setitem` or the composite makes a new tensor instead, which x then stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.base.dtype import DType
from tengen.compiler.plans import exact_key, make_overwrite
from tengen.ops.calls import with_line
from tengen.ops.complex_numbers import imag_part, real_part
from tengen.ops.define import REGISTRY, Op
from tengen.ops.elementwise import astype, where
from tengen.ops.indexing import index_put, indexed_shape
from tengen.ops.keys import dropped, fitted, masks_whole, read_key, sliced, value_for
from tengen.ops.shape import reshape, strided_slice
from tengen.runtime import native
from tengen.tensor.batched import Batched
from tengen.tensor.eager import check_values, explain, look, planned, slow_plan
from tengen.tensor.elsewhere import Placed, refuse_writing
from tengen.tensor.looking import looking
from tengen.tensor.nodes import leaf_of, node_of
from tengen.tensor.parts import is_part, refresh, reset
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Buffer, Tensor, assign
from tengen.tensor.writes import watching


def own(t: Tensor) -> None:
    """Makes sure that the tensor's elements are dense, and that nothing else shares their memory, so that they may be
    written."""
    if t._layout.order is None:
        dense = REGISTRY["copy"](t.detach())
        t._data, t._layout = dense._data, dense._layout
    elif not native.sole(t._data):
        t._data = native.copy(t._data, t.size * t.dtype.size)


@with_line
def set_item(x: Tensor, key: Any, value: Any) -> None:
    """Gives the elements that a key names another value. Views made before keep the old one."""
    v = value_for(x, value)
    odd = tracing.active is not None or watching or looking.around is not None or x._node is not None or v._node is not None
    if odd or type(x._data) is not Buffer or type(v._data) is not Buffer:
        return assign(x, REGISTRY["setitem"].call(x, key, value))
    v = _apart(v, x)
    if v.dtype.is_complex is not x.dtype.is_complex:
        v = astype(v, x.dtype)
    mask = masks_whole(x, key, v)
    if mask is not None:
        mask = reshape(_apart(mask, x), (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        v = reshape(v if v.dtype is x.dtype else astype(v, x.dtype), ())
        own(x)
        return _run_over(where, (mask, v, x), (), 2)
    k = read_key(key, x.shape)
    if not k.indices:
        v = fitted(v, k.shape, k.sizes)
        own(x)
        return _run_over(astype, (v, strided_slice(x, tuple(k.starts), tuple(k.sizes), tuple(k.steps))), (x.dtype,), 1)
    indices, axes = [_apart(i, x) for i in k.indices], tuple(k.axes)
    own(x)
    inside = sliced(x, k)
    ndim = len(indexed_shape([i._layout.type for i in indices], inside._layout.type, axes, k.position))
    v = dropped(v if v.dtype is x.dtype else astype(v, x.dtype), ndim)
    _run_over(index_put, (*indices, inside, v), (axes, k.position, "set"), len(indices))


def update(op: Op, inputs: tuple[Tensor | None, ...], attrs: tuple, over: tuple[int, ...]) -> None:
    """Gives operands the results of a composite.

    Args:
        attrs: all of them, in order. over: for each result the operand that it replaces, which has its type.
    """
    targets = [inputs[i] for i in over]
    linked = [t for t in targets if is_part(t)]
    for t in linked:
        refresh(t)
    _update(op, inputs, attrs, over, targets)
    for t in linked:
        reset(t, t)


def _update(op: Op, inputs: tuple[Tensor | None, ...], attrs: tuple, over: tuple[int, ...], targets: list[Any]) -> None:
    layouts = tuple([None if x is None else x._layout for x in inputs])
    one_type = len({a.dtype for a in layouts if a is not None}) == 1  # else a result may have another type than its operand
    batched = any([type(a) in (Batched, Placed) for a in layouts])
    seen = watching or looking.around is not None or tracing.active is not None
    if batched or seen or not one_type or not all(t is not None and _alone(t) for t in targets):
        out = op(*(None if x is None else x.detach() for x in inputs), *attrs)
        for t, new in zip(targets, out if isinstance(out, tuple) else (out,)):
            node = t._node
            assign(t, new)
            if node is not None and node_of(t)[0] is None and getattr(node, "op", node) is None:
                t._node = node  # an update is not differentiated, and what is attached stays so
        return

    def make() -> Callable:
        canonical = op.canonical([None if a is None else a.type for a in layouts], attrs)
        return planned(op, layouts, canonical, over).call

    plan = slow_plan(("over", op, exact_key(attrs), layouts), make)
    kept = [x._data for i, x in enumerate(inputs) if x is not None and i not in over]
    plan(*kept, *[inputs[i]._data for i in sorted(over)])  # the program has its states in the order of the operands


def _alone(t: Tensor) -> bool:
    """Whether the tensor's memory is dense, nothing else shares it, and the tensor is not on the tape, unless as a leaf."""
    if type(t._data) is not Buffer or (t._node is not None and leaf_of(t) is None) or not t._layout.contiguous or not t.size:
        return False
    return native.sole(t._data)


def _apart(t: Tensor, x: Tensor) -> Tensor:
    """An operand that does not change when x is written: a detached tensor where it is x itself."""
    return t.detach() if t is x else t


def _run_over(op: Op, inputs: tuple, attrs: tuple, over: int) -> None:
    """Runs a call whose result is stored over one of `inputs`: an operand, or the last one, which is no operand."""
    if inputs[over].dtype.is_complex:  # part by part
        attrs = tuple([a.part if isinstance(a, DType) else a for a in attrs])
        for part in (real_part, imag_part):
            _run_over(op, tuple([part(t) if t.dtype.is_complex else t for t in inputs]), attrs, over)
        return
    layouts = tuple([t._layout for t in inputs])
    types = [a.type for a in layouts]

    def make() -> Callable:
        operands = types if op.variadic else types[: len(op.tensors)]
        canonical = op.canonical(operands, attrs)
        op.infer_types(operands, canonical)
        return make_overwrite(op, layouts, canonical, over) if layouts[over].size else lambda *buffers: None

    try:
        if check_values(op, inputs, types) is not None:
            refuse_writing()
        plan = slow_plan(("over", op, attrs, layouts), make)
        look(op, inputs, types, attrs)
        plan(*[t._data for t in inputs])
    except Exception as e:
        explain(e, op, inputs, attrs)
        raise
