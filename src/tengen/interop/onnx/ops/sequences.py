"""Sequences and optional values: Python lists and None."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.ops.control import scoped
from tengen.interop.onnx.ops.shapes import moving, shape_of
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints, known

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope


def listed(v: Value) -> list:
    """A sequence.

    Errors: TypeError for what is none.
    """
    if not isinstance(v, list):
        raise TypeError(f"a sequence is needed, this is {'absent' if v is None else type(v).__name__}")
    return v


@op("SequenceConstruct")
def construct(n: NodeOf, *items: Value) -> Value:
    """Of its inputs."""
    return list(items)


@op("SequenceEmpty")
def empty(n: NodeOf) -> Value:
    """Nothing."""
    return []


@op("SequenceAt")
def at(n: NodeOf, items: Value, place: Value) -> Value:
    """One of them; negative places count from the end."""
    return listed(items)[ints(place)[0]]


@op("SequenceInsert")
def insert(n: NodeOf, items: Value, new: Value, place: Value = None) -> Value:
    """Before a place, or at the end."""
    found = list(listed(items))
    where = len(found) if place is None else ints(place)[0]
    if not -len(found) <= where <= len(found):
        raise IndexError(f"place {where} in a sequence of {len(found)}")
    found.insert(where, new)
    return found


@op("SequenceErase")
def erase(n: NodeOf, items: Value, place: Value = None) -> Value:
    """Without one of them, the last by default."""
    found = list(listed(items))
    del found[-1 if place is None else ints(place)[0]]
    return found


@op("SequenceLength")
def length(n: NodeOf, items: Value) -> Value:
    """How many."""
    return np.array(len(listed(items)), np.int64)


@op("ConcatFromSequence")
def concat_from(n: NodeOf, items: Value) -> Value:
    """All of them along an axis, which `new_axis` makes."""
    parts = [as_tensor(v) for v in listed(items)]
    return F.stack(parts, n["axis"]) if n["new_axis"] else F.concat(parts, n["axis"])


@op("SplitToSequence")
def split_to(n: NodeOf, x: Value, sizes: Value = None) -> Value:
    """Parts along an axis."""
    axis, extent = n["axis"] % len(shape_of(x)), shape_of(x)[n["axis"]]
    single = sizes is None
    if sizes is None:
        parts = [1] * extent
    elif np.ndim(known(sizes)) == 0:
        each = ints(sizes)[0]
        parts = [each] * (extent // each) + ([extent % each] if extent % each else [])
    else:
        parts = ints(sizes)
    found, start = [], 0
    for p in parts:
        cut = (slice(None),) * axis + (slice(start, start + p),)
        v = moving(x, lambda a, c=cut: a[c], lambda t, c=cut: t[c])
        if single and not n["keepdims"]:
            v = moving(v, lambda a: a.squeeze(axis), lambda t: F.squeeze(t, [axis]))
        found.append(v)
        start += p
    return found


@op("SequenceMap")
@scoped
def map_(scope: Scope, n: NodeOf, items: Value, *others: Value) -> tuple[Value, ...]:
    """A body for each item."""
    made = []
    for i, v in enumerate(listed(items)):
        made.append(scope.inner(n["body"], [v, *(o[i] if isinstance(o, list) else o for o in others)]))
    return tuple([one[j] for one in made] for j in range(len(n["body"].outputs)))


@op("Optional")
def optional(n: NodeOf, x: Value = None) -> Value:
    """A value or none."""
    return x


@op("OptionalHasElement")
def has_element(n: NodeOf, x: Value = None) -> Value:
    """Whether there is one."""
    return np.array(x is not None)


@op("OptionalGetElement")
def get_element(n: NodeOf, x: Value) -> Value:
    """The value.

    Errors: ValueError where there is none.
    """
    if x is None:
        raise ValueError("the optional value is absent")
    return x
