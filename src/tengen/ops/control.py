"""Loops and branches: ops whose bodies are graphs.

    scan         a body that runs once for each slice of some tensors, and hands its state on
    while_loop   a body that runs as long as a bool in its state is true
    cond         one of two bodies, by a bool
    own_gradient a body with a gradient of the user's own, which is another one

In: operands in a fixed order, and bodies as `Graph`s in attributes, which know nothing of what is outside: all that they read are
their inputs. Out: launches inside a `Loop`, a `While` or an `If` of the program, so a body is compiled once, whatever the number
of iterations. Users call `tengen.functional.scan` and its siblings, which record the bodies (`tensor/control.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tengen import kernels
from tengen.base.dtype import bool_
from tengen.base.errors import ShapeError, VerifyError
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.lang import Index
from tengen.ops.attributes import Count, Extent
from tengen.ops.define import primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _check_body(what: str, body: Graph, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> None:
    """VerifyError unless a body takes values of these types, and gives values that begin with those."""
    if body.states or body.checks:
        raise VerifyError(f"{what} has states or checks; help: what it changes is handed on as inputs and outputs")
    if (have := [v.type for v in body.inputs]) != list(inputs):
        raise VerifyError(f"{what} takes {have}, and is given {list(inputs)}")
    if (made := [v.type for v in body.outputs][: len(outputs)]) != list(outputs):
        raise VerifyError(f"{what} gives {made}, where {list(outputs)} are needed")


def _all_extents(arrays: Sequence[Array | None], **attrs: object) -> set[int]:
    """Bodies are recorded for the extents of a call."""
    return {d for a in arrays if a is not None for d in a.shape if isinstance(d, int)}


# ---- scan ------------------------------------------------------------------------------------------------------------


@primitive
def scan(
    operands: list[Tensor], body: Graph, carries: Count, slices: Count, length: Extent, reverse: bool, keep: bool, wants: Sequence[Count]
):
    """Runs `body` `length` times.

        state = operands[:carries]
        for i in range(length):                       # from the last one to the first where `reverse`
            state, *out[i] = body(*state, *(x[i] for x in sliced), *same)
        return state, stacked out

    Args:
        operands: the first state, `slices` tensors of which an iteration reads the slice along axis 0, and those that all
            iterations read. keep: whether the state before each iteration is returned too, stacked, behind all else. wants: the
            operands whose gradients will be asked for, if any.
    """


@scan.infer
def _(*types, body, carries, slices, length, reverse, keep, wants):
    if carries + slices > len(types):
        raise VerifyError(f"scan has {len(types)} operands, and its state and what it goes over are {carries + slices}")
    state, sliced = types[:carries], types[carries : carries + slices]
    for t in sliced:
        if not t.ndim or t.shape[0] != length:
            raise ShapeError(f"scan goes over {length} slices, and {t} has {t.shape[0] if t.ndim else 'none'}")
    inside = [*state, *(TensorType(t.shape[1:], t.dtype) for t in sliced), *types[carries + slices :]]
    _check_body("the body of scan", body, inside, state)
    made = [v.type for v in body.outputs[carries:]] + [*state] * keep
    return (*state, *(TensorType((length, *t.shape), t.dtype) for t in made))


@scan.lower
def _(lo, arrays, outs, body, carries, slices, length, reverse, keep, wants):
    state, sliced, same = outs[:carries], arrays[carries : carries + slices], arrays[carries + slices :]
    made = len(body.outputs)
    _begin(lo, arrays, state)
    with lo.loop(length, [*sliced, *same]) as step:
        at = length - 1 - step if reverse else step
        for a, kept in zip(state, outs[made:]):
            kernels.pointwise.copy(lo, a, _slice(kept, at), "keep_state")
        ins = [*state, *(_slice(a, at) for a in sliced), *same]
        lo.lower_graph(lo, body, carries, ins, [*state, *(_slice(a, at) for a in outs[carries:made])])


def _begin(lo: Lowering, first: Sequence[Array], state: Sequence[Array]) -> None:
    """What a loop begins with, where its state lies: nothing is copied of a tensor over which the loop computes."""
    for a, to in zip(first, state):
        if a != to:
            kernels.pointwise.copy(lo, a, to, "begin_loop")


def _slice(a: Array, at: Index) -> Array:
    """a[at]"""
    return replace(a, shape=a.shape[1:], strides=a.strides[1:], offset=a.offset + at * a.strides[0])


# ---- while_loop ------------------------------------------------------------------------------------------------------


@primitive
def while_loop(operands: list[Tensor], body: Graph, carries: Count, limit: Extent | None, keep: bool, wants: Sequence[Count]):
    """Runs `body` as long as the first tensor of its state, a bool [], is true, at most `limit` times.

        state = operands[:carries]
        while state[0]:
            state = body(*state, *same)
        return state

    Args:
        operands: the first state, and what all iterations read. keep: whether the state before each iteration is returned too, as
            the first slices of tensors that have `limit`. wants: the operands whose gradients will be asked for, if any.
    """


@while_loop.infer
def _(*types, body, carries, limit, keep, wants):
    state = types[:carries]
    if carries > len(types):
        raise VerifyError(f"while_loop has {len(types)} operands, and its state {carries}")
    if not state or state[0] != TensorType((), bool_):
        raise ShapeError(f"while_loop runs as long as one bool is true, a tensor bool[], not {state[0] if state else 'nothing'}")
    _check_body("the body of while_loop", body, types, state)
    if keep and limit is None:
        raise VerifyError("while_loop keeps the states of at most `limit` iterations, and has no limit")
    return (*state, *(TensorType((limit, *t.shape), t.dtype) for t in state)) if keep else (*state,)


@while_loop.lower
def _(lo, arrays, outs, body, carries, limit, keep, wants):
    state, same = outs[:carries], arrays[carries:]
    _begin(lo, arrays, state)
    with lo.while_loop(same, limit) as loop:
        loop.holds(state[0])
        for a, kept in zip(state, outs[carries:]):
            kernels.pointwise.copy(lo, a, _slice(kept, loop.iteration), "keep_state")
        lo.lower_graph(lo, body, carries, [*state, *same], state)


# ---- cond ------------------------------------------------------------------------------------------------------------


@primitive
def cond(operands: list[Tensor], then: Graph, otherwise: Graph, wants: Sequence[Count]):
    """`then` of the operands behind the first one, where that is true, else `otherwise` of them.

    Args:
        operands: a bool [], then what both read. wants: the operands whose gradients will be asked for, if any.
    """


@cond.infer
def _(*types, then, otherwise, wants):
    if not types or types[0] != TensorType((), bool_):
        raise ShapeError(f"cond decides by one bool, a tensor bool[], not by {types[0] if types else 'nothing'}")
    made = [v.type for v in then.outputs]
    _check_body("the first branch of cond", then, types[1:], made)
    _check_body("the second branch of cond", otherwise, types[1:], made)
    if len(otherwise.outputs) != len(made):
        raise VerifyError(f"the branches of cond give {len(made)} and {len(otherwise.outputs)} results")
    return tuple(made)


@cond.lower
def _(lo, arrays, outs, then, otherwise, wants):
    flag = lo.temp(bool_, ())
    kernels.pointwise.copy(lo, arrays[0], flag, "decide")
    with lo.branch(flag) as branches:
        lo.lower_graph(lo, then, 0, arrays[1:], outs)
        branches.otherwise()
        lo.lower_graph(lo, otherwise, 0, arrays[1:], outs)


# ---- own_gradient ----------------------------------------------------------------------------------------------------


@primitive
def own_gradient(operands: list[Tensor], forward: Graph, backward: Graph, results: Count, kept: Count, gives: Sequence[Count]):
    """`forward` of the operands, whose gradient is `backward`: an `autodiff.Function` inside of a body.

    Args:
        results: how many results `forward` has. Behind them are those that it keeps for `backward`, `kept` in number, and what else it gives.
        backward: of the gradients of those results that are no integers, of what is kept, and of the operands, gives gradients of some
            operands. gives: which.
    """


@own_gradient.infer
def _(*types, forward, backward, results, kept, gives):
    _check_body("the forward part of a function", forward, types, [])
    made = [v.type for v in forward.outputs]
    if results + kept > len(made) or any(i >= len(types) for i in gives):
        raise VerifyError(f"own_gradient gives {results} results, keeps {kept}, and has {len(made)}, for operands {gives} of {len(types)}")
    given = [*(t for t in made[:results] if t.dtype.is_inexact), *made[results : results + kept], *types]
    _check_body("the backward part of a function", backward, given, [types[i] for i in gives])
    return tuple(made)


@own_gradient.lower
def _(lo, arrays, outs, forward, backward, results, kept, gives):
    lo.lower_graph(lo, forward, 0, arrays, outs)


for _op in (scan, while_loop, cond, own_gradient):
    _op.known(_all_extents)
for _op in (scan, while_loop):
    _op.over(lambda carries, **attrs: {i: i for i in range(carries)})  # each iteration computes its state over that of the last one
