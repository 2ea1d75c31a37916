"""Calls of ops inside of `vmap`: from tensors that stand for one example to calls on the tensors that hold all of them.

In: an op and operands of which one at least is `Batched`. Out: what the call gives, `Batched` too. The operands' whole tensors
keep their places on tapes and in traces, so what is around the `vmap` goes on through the calls here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tengen.base.errors import VmapError
from tengen.ir.types import TensorType
from tengen.ops.batching import batch, everywhere
from tengen.ops.define import REGISTRY, Op
from tengen.tensor.batched import Batched, Mapping, innermost_of, mapping_of, mappings
from tengen.tensor.recording import tracing
from tengen.tensor.tape import call_body
from tengen.tensor.tensor import Tensor, tensor_over


def examples(whole: Tensor, mapping: Mapping) -> Tensor:
    """A tensor that stands for one example of `whole`, which has them along axis 0."""
    t = whole._layout.type
    return tensor_over(whole, Batched(TensorType(t.shape[1:], t.dtype), whole.device, mapping))


def whole(t: Tensor, mapping: Mapping) -> tuple[Tensor, bool]:
    """(The tensor that holds all examples of a mapping, whether it has them along axis 0: else it is the same in all.)"""
    return (t._data, True) if mapping_of(t) is mapping else (t, False)


def run_batched(op: Op, inputs: Sequence[Tensor | None], attrs: tuple) -> Any:
    """A call of which an operand is `Batched`: it is a call for all examples of the innermost mapping."""
    mapping = innermost_of(op.name, inputs)
    assert mapping is not None
    types = [None if x is None else x._layout.type for x in inputs]
    canonical = op.canonical(types, attrs)
    if op.kind == "composite":
        _check(op, inputs, types, attrs)
        return call_body(op, tuple(_off(x) for x in inputs), canonical)
    op.infer_types(types, canonical)  # what is wrong is told of one example
    pairs = [(None, False) if x is None else whole(x, mapping) for x in inputs]
    out = batch(op, [x for x, _ in pairs], [b for _, b in pairs], mapping.size, canonical)
    return tuple(examples(o, mapping) for o in out) if isinstance(out, tuple) else examples(out, mapping)


def _off(x: Tensor | None) -> Tensor | None:
    """An operand without its own place on the tape; the whole tensor keeps its."""
    return x if x is None or mapping_of(x) is None else tensor_over(x._data, x._layout)


def _check(op: Op, inputs: Sequence[Tensor | None], types: Sequence, attrs: tuple) -> None:
    """What must not be in a composite's operands, in any example; the ops of a body check theirs themselves."""
    if op.rules.check is None or tracing.recorder is not None:
        return
    for v in op.violations(inputs, types, attrs):
        bad = v.bad
        while mapping_of(bad) is not None:
            bad = REGISTRY["any"](bad._data)
        if bad.item():
            raise v.error(v.message)


def drawn(op: Op, key: Tensor, parameters: Sequence[Tensor], shape: Any = None) -> Any:
    """A random op inside of `vmap`, by its `randomness`: "same", all examples have the same numbers; "different", the examples are
    the first axis of one draw.

    Args:
        key: of the draw. parameters: the op's other operands, or none; then it takes a shape.
    """
    rest = () if parameters else (shape,)
    kinds = {m.randomness for m in mappings()}
    if "error" in kinds:
        raise VmapError(
            f"{op.name}: random numbers are drawn inside of vmap, which does not say whether all examples have the same; "
            "help: vmap(..., randomness='different') or 'same'"
        )
    different = [m for m in mappings() if m.randomness == "different"]
    if parameters and len(kinds) > 1:
        raise VmapError(f"{op.name}: parameters inside of two vmaps, one with the same random numbers and one with different ones")
    if not parameters:
        rest = ((*(m.size for m in different), *shape),)
    for m in reversed(different):
        parameters = [everywhere(*whole(p, m), m.size) for p in parameters]
    out = op(key, *parameters, *rest)
    for m in different:
        out = examples(out, m)
    return out
