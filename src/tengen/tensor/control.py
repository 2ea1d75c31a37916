"""Loops, branches and functions with a gradient of their own: calls of the ops of `ops/control.py`, their gradients, and `vmap`.

In: Python functions of lists of tensors, which `regions.py` records. Out: the results of a call of the op that runs the graphs. What a body
changes is handed on from one iteration to the next, and takes its last value behind the loop; whether a check was violated is
noted in bools that the loop carries.

The gradient of a loop is a loop over the same iterations in the other order. Each begins with the state that the forward loop has
kept, or to which it runs again, computes the body once more, and goes back through it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base import errors
from tengen.base.dtype import bool_, int64
from tengen.base.errors import ArgumentError, DTypeError, GradientError, ShapeError, user_line
from tengen.compiler.ready import may_stop
from tengen.ir.graph import Check, Graph, Value
from tengen.ir.types import TensorType
from tengen.loops.lang import Expr, const, select
from tengen.ops.batching import RULES, again, everywhere
from tengen.ops.define import REGISTRY, Op, dispatch, lookup
from tengen.tensor.batched import Mapping, mapping_of
from tengen.tensor.batching import examples, whole
from tengen.tensor.nodes import Level, node_of, on_tape
from tengen.tensor.recording import tracing
from tengen.tensor.regions import Body, Draft, Recorded, recorded, shared
from tengen.tensor.tape import gradients
from tengen.tensor.tensor import Tensor, as_tensor, assign

COUNT = TensorType((), int64)


def _report(checks: Sequence[Check], violated: Sequence[Tensor]) -> None:
    """Raises the error of a check that was violated, or leaves that to the run of what is being recorded."""
    recorder = tracing.recorder
    for c, bad in zip(checks, map(in_any_example, violated)):
        if recorder is not None:
            recorder.check(bad, c.error, c.message, c.where)
        elif bad.item():
            raise errors.class_of_check(c.error)(f"{c.message} [at {c.where}]")


def in_any_example(bad: Tensor) -> Tensor:
    """Whether a bool is true in any example of the `vmap`s around."""
    while mapping_of(bad) is not None:
        bad = REGISTRY["any"].call(bad._data)
    return bad


def _false() -> Tensor:
    return as_tensor(False)


Hidden = contextlib.AbstractContextManager | None


def _call(op: Op, operands: Sequence[Tensor], attrs: dict[str, Any], made: int, function: str = "") -> list[Tensor]:
    """The first `made` results of a call; on the tape, it keeps what its gradient needs. function: of a body; see `Region`."""
    wants = tuple(i for i, x in enumerate(operands) if x.dtype.is_inexact and _taped(x))
    if wants and function:
        raise GradientError(
            f"{user_line()}: the body of a {op.name} calls {function}, whose own gradient would be lost: a body is differentiated by its ops; "
            "help: call it outside of the loop, or use ops (and detach()) that have the gradient"
        )
    attrs = attrs | {"wants": wants}
    if wants and op.name == "while_loop" and attrs["limit"] is None:
        operands, attrs = _counted(operands, attrs)
    if "keep" in op.attrs:
        attrs["keep"] = bool(attrs.get("keep") or (wants and attrs.get("limit", 0) is not None))  # a node that is replayed may have kept them
    out = dispatch.run(op, tuple(operands), tuple(attrs[name] for name in op.attrs))
    return list(out if isinstance(out, tuple) else (out,))[:made]


def _shown(hidden: Hidden, *bodies: Graph) -> contextlib.AbstractContextManager:
    """The block in which a call is recorded, where a body gives what it was given, by another way than `detach`."""
    return hidden if hidden is not None and any(map(_passes_on, bodies)) else contextlib.nullcontext()


def _passes_on(body: Graph) -> bool:
    """Whether a float of a body's operands reaches one of its results on a way without `detach`."""
    live = {v for v in body.inputs if v.type.dtype.is_inexact}
    for n in body.nodes:
        if n.op != "detach" and not live.isdisjoint(n.inputs):
            live.update(v for v in n.outputs if v.type.dtype.is_inexact)
    return not live.isdisjoint(body.outputs)


def _counted(operands: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Sequence[Tensor], dict[str, Any]]:
    """A `while_loop` that counts its iterations besides: an int64, the last tensor of its state."""
    n, body = attrs["carries"], attrs["body"].copy()
    taken = {v.name for v in body.sources()}
    fresh = lambda name: next(some for i in range(len(taken) + 1) if (some := f"{name}{i}") not in taken)
    count, one = body.add_input(fresh("count"), COUNT), body.add_constant(fresh("one"), np.array(1, np.int64))
    body.inputs.insert(n, body.inputs.pop())
    body.outputs.insert(n, body.add_node("add", [count, one], {}, [COUNT]).outputs[0])
    body.output_names.insert(n, fresh("counted"))
    attrs = attrs | {"body": shared(body), "carries": n + 1, "wants": tuple(i + (i >= n) for i in attrs["wants"])}
    return [*operands[:n], Tensor(0, dtype="int64"), *operands[n:]], attrs


def _taped(x: Tensor) -> bool:
    """Whether a gradient may be asked for, also through the examples of a `vmap` around."""
    return on_tape(x) or (mapping_of(x) is not None and _taped(x._data))


def _check_state(what: str, before: Sequence[TensorType], after: Sequence[Value]) -> None:
    """The error for a body that does not give the state's types."""
    if len(before) != len(after):
        raise ShapeError(f"{user_line()}: the state of {what} has {len(before)} tensors, and its body gives {len(after)}")
    for i, (t, v) in enumerate(zip(before, after)):
        if t != v.type:
            error = ShapeError if t.shape != v.type.shape else DTypeError
            raise error(
                f"{user_line()}: tensor {i} of the state of {what} is {t!r} before an iteration and {v.type!r} behind it; help: a "
                "state keeps its shapes and dtypes: begin with a tensor of the last type, or cast in the body"
            )


def run_scan(
    body: Body, state: Sequence[Tensor], sliced: Sequence[Tensor], length: Any, reverse: bool = False, hidden: Hidden = None
) -> tuple[list[Tensor], list[Tensor]]:
    """(the last state, what the iterations made, stacked.)

    Args:
        body: (state and slices, one after another) -> the next state, and what is stacked. hidden: see `run_cond`.
    """
    n, types = len(state), [x._layout.type for x in state]
    r = recorded("scan", body, [*types, *(TensorType(x._layout.type.shape[1:], x.dtype) for x in sliced)], hidden is not None)
    _check_state("scan", types, r.results[:n])
    before, now = r.noted()
    same = [pair for key, pair in r.outside.items() if key not in r.changes]
    carried = [*r.arguments[:n], *(r.outside[key][1] for key in r.changes), *before]
    after = [*r.results[:n], *(v for _, v in r.changes.values()), *now]
    graph = r.closed([*carried, *r.arguments[n:], *(v for _, v in same)], [*after, *r.results[n:]])
    operands = [*state, *(t for t, _ in r.changes.values()), *(_false() for _ in now), *sliced, *(t for t, _ in same)]
    attrs = {"body": graph, "carries": len(carried), "slices": len(sliced), "length": length, "reverse": reverse}
    with _shown(hidden, graph):
        out = _call(REGISTRY["scan"], operands, attrs, len(graph.outputs), r.function)
    _finish(r, out[n : len(carried)])
    return out[:n], out[len(carried) :]


def _finish(r: Recorded, out: Sequence[Tensor]) -> None:
    """What a body changed takes its last value; what its checks found is told. out: of both, one after another."""
    for (t, _), new in zip(r.changes.values(), out):
        assign(t, new)
    _report(r.checks, out[len(r.changes) :])


def run_while(
    condition: Callable[[list[Tensor]], Tensor], body: Body, state: Sequence[Tensor], limit: Any = None, hidden: Hidden = None
) -> list[Tensor]:
    """The state for which the condition is false, or that after `limit` iterations. hidden: see `run_cond`."""
    n, types = len(state), [x._layout.type for x in state]

    def step(xs: list[Tensor]) -> list[Tensor]:
        new = [as_tensor(x) for x in body(xs[1 : n + 1])]
        return [decision("the condition of while_loop", condition(list(new))), *new, *(x + 1 for x in xs[n + 1 :])]

    count = [] if limit is None else [Tensor(0, dtype="int64")]
    first = [decision("the condition of while_loop", condition(list(state))), *state, *count]
    r = recorded("while_loop", step, [x._layout.type for x in first], hidden is not None)
    _check_state("while_loop", types, r.results[1 : len(r.results) - len(count)])
    before, now = r.noted()
    r.results[0] = r.none_of(r.results[0], now)  # what a check forbids ends the loop
    same = [pair for key, pair in r.outside.items() if key not in r.changes]
    counts = r.arguments[n + 1 :], r.results[n + 1 :]
    carried = [*r.arguments[: n + 1], *(r.outside[key][1] for key in r.changes), *before, *counts[0]]
    after = [*r.results[: n + 1], *(v for _, v in r.changes.values()), *now, *counts[1]]
    graph = r.closed([*carried, *(v for _, v in same)], after)
    operands = [*first[: n + 1], *(t for t, _ in r.changes.values()), *(_false() for _ in now), *count, *(t for t, _ in same)]
    with _shown(hidden, graph):
        out = _call(REGISTRY["while_loop"], operands, {"body": graph, "carries": len(carried), "limit": limit}, len(carried), r.function)
    _finish(r, out[n + 1 : len(carried) - len(count)])
    return out[1 : n + 1]


def decision(what: str, x: Any) -> Tensor:
    """One bool: of a tensor, a number, or a condition on open extents, which each run decides."""
    if isinstance(x, Expr):
        x = REGISTRY["extent_op"](select(x, const(1), const(0)) if x.dtype is bool_ else x, bool_)
    if x is None or isinstance(x, str) or callable(x) and not isinstance(x, Tensor):
        raise ArgumentError(f"{user_line()}: {what} is {x!r}; help: one bool, a comparison of tensors say")
    x = as_tensor(x)
    if x.ndim and all(d == 1 for d in x.shape):
        x = x.reshape(())
    if x.ndim:
        raise ShapeError(f"{user_line()}: {what} is {x._layout.type!r}; help: one bool, for example by .all() or .any()")
    return x if x.dtype is bool_ else x != 0


def run_cond(
    pred: Tensor, then: Callable[[list[Tensor]], Any], otherwise: Callable[[list[Tensor]], Any], operands: Sequence[Tensor],
    settle: Callable[[Any, Any], tuple[Callable[[], Sequence[Tensor]], Callable[[], Sequence[Tensor]]]] | None = None,
    hidden: Hidden = None,
) -> list[Tensor]:  # fmt: skip
    """What one of two bodies makes of the operands.

    Args:
        settle: of what both bodies returned, gives for each a function that makes its results, which is called inside of it. None:
            the bodies return them.
        hidden: inside of a `no_grad`, a block in which calls are recorded: what the bodies compute is off the tape, and a tensor from outside
            that one of them gives keeps its gradient, as plain Python's variables do. None: nothing keeps one.
    """
    types = [x._layout.type for x in operands]
    drafts = [Draft(name, f, types, hidden is not None) for name, f in (("then", then), ("otherwise", otherwise))]
    results = [d.made for d in drafts] if settle is None else settle(drafts[0].made, drafts[1].made)
    parts = [d.finished(made) for d, made in zip(drafts, results)]
    a, b = ([v.type for v in r.results] for r in parts)
    if a != b:
        raise (ShapeError if [t.shape for t in a] != [t.shape for t in b] else DTypeError)(
            f"{user_line()}: the branches of cond give different types, {a} where the condition is true and {b} where it is false; "
            "help: both give the same shapes and dtypes"
        )
    outside = {key: t for r in parts for key, (t, _) in r.outside.items()}
    changes = {key: t for r in parts for key, (t, _) in r.changes.items()}
    checks = [(r, c) for r in parts for c in r.checks]
    graphs = []
    for r in parts:
        reads = {key: r.input(f"unread{i}", key, t) for i, (key, t) in enumerate(outside.items())}
        new = [r.changes[key][1] if key in r.changes else reads[key] for key in changes]
        found = [c.bad if p is r else r.graph.add_constant(f"holds{i}", np.array(False)) for i, (p, c) in enumerate(checks)]
        graphs.append(r.closed([*r.arguments, *reads.values()], [*r.results, *new, *found]))
    given = [decision("the condition of cond", pred), *operands, *outside.values()]
    if not graphs[0].outputs:
        return []  # neither of the two does anything
    attrs = {"then": graphs[0], "otherwise": graphs[1]}
    with _shown(hidden, *graphs):
        out = _call(REGISTRY["cond"], given, attrs, len(graphs[0].outputs), parts[0].function or parts[1].function)
    n = len(a)
    for t, new in zip(changes.values(), out[n:]):
        assign(t, new)
    _report([c for _, c in checks], out[n + len(changes) :])
    return out[:n]


def run_function(forward: Callable[..., Any], backward: Callable[..., Any], xs: Sequence[Tensor], name: str) -> tuple[bool, list[Tensor]]:
    """(whether a function returned a tuple, its results), where its gradient is what another function says.

    Args:
        forward: of the tensors. backward: of the gradients of its results, None for those of integers, gives for each tensor its gradient, or
            None. What it reads of `forward` are results of that, too.

    Errors: GradientError for gradients that do not fit, and where `backward` changes a tensor.
    """
    several = True

    def body(inside: list[Tensor]) -> list[Tensor]:
        nonlocal several
        made = forward(*inside)
        several = isinstance(made, tuple)
        return list(made) if several else [made]

    draft = Draft("forward", body, [x._layout.type for x in xs])
    made = [x._layout.type for x in draft.made]
    gives: list[int] = []

    def back(gs: list[Tensor]) -> list[Tensor]:
        rest = iter(gs)
        found = backward(*(next(rest) if t.dtype.is_inexact else None for t in made))
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(xs):
            raise GradientError(f"{name}.backward() gave {len(found)} gradients for {len(xs)} tensors")
        gives.extend(i for i, g in enumerate(found) if g is not None and xs[i].dtype.is_inexact)
        for i in gives:
            if as_tensor(found[i])._layout.type != xs[i]._layout.type:
                raise GradientError(f"{name}.backward() gave {found[i]._layout.type!r} for {xs[i]._layout.type!r}; help: it has its type")
        return [found[i] for i in gives]

    b = recorded("backward", back, [t for t in made if t.dtype.is_inexact])
    if b.changes:
        raise GradientError(f"{user_line()}: {name}.backward() changes a tensor inside of a loop or a branch; help: forward() may")
    region, inside = draft.region, {id(x._data): i for i, x in enumerate(draft.arguments)}
    kept = {key: t for key, (t, _) in b.outside.items() if region._is_inside(t) and id(t._data) not in inside}
    f = draft.finished([*draft.made, *kept.values()])
    outside = {key: t for key, (t, _) in f.outside.items()}
    outside |= {key: t for key, (t, _) in b.outside.items() if not region._is_inside(t) and key not in outside}
    reads = {key: f.input(f"unread{i}", key, t) for i, (key, t) in enumerate(outside.items())}
    graph = f.closed([*f.arguments, *reads.values()], [*f.results, *(v for _, v in f.changes.values()), *(c.bad for c in f.checks)])
    of_arguments = {i: key for key, (t, _) in b.outside.items() if (i := inside.get(id(t._data))) is not None}
    read = lambda i: b.outside[of_arguments[i]][1] if i in of_arguments else b.graph.add_input(f"operand{i}", xs[i]._layout.type)
    operands = [read(i) for i in range(len(xs))]
    operands += [b.input(f"unread{i}", key, t) for i, (key, t) in enumerate(outside.items())]
    of_gradient = b.closed([*b.arguments, *(b.outside[key][1] for key in kept), *operands], b.results)
    attrs = {"forward": graph, "backward": of_gradient, "results": len(made), "kept": len(kept), "gives": tuple(gives)}
    out = _call(REGISTRY["own_gradient"], [*xs, *outside.values()], attrs, len(graph.outputs))
    _finish(f, out[len(made) + len(kept) :])
    return several, out[: len(made)]


# ---- gradients -------------------------------------------------------------------------------------------------------


def replayed(graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, by calls of its ops on these tensors."""
    recorder = tracing.recorder
    at: dict[Value, Tensor] = dict(zip(graph.inputs, inputs))
    for c in graph.constants.values():
        at[c.value] = Tensor(c.data) if recorder is None else recorder.constant(c.data, c.value.type)
    for n in graph.nodes:
        xs, op = [None if v is None else at[v] for v in n.inputs], lookup(n.op)
        known = 0 if recorder is None else len(recorder.graph.nodes)
        if op.has_bodies:
            out: Any = tuple(_call(op, xs, n.attrs, len(n.outputs)))
        else:
            out = again(op, xs, n.attrs)
        outs = out if isinstance(out, tuple) else (out,)
        at.update(zip(n.outputs, outs))
        if recorder is not None:
            for made in recorder.graph.nodes[known:]:
                made.where = n.where or made.where
            on = node_of(outs[0])[0] if outs else None
            if on is not None:
                on.where = n.where
    return [at[v] for v in graph.outputs]


def _pulled(graph: Graph, inputs: Sequence[Tensor], which: Sequence[int], seeds: Sequence[Tensor | None]) -> list[Tensor]:
    """Inside of a body: the gradients of a graph with respect to some inputs; zeros where nothing depends on one."""
    inside = [tracing.recorder.here(x)._off_tape() for x in inputs]
    with Level() as level:
        xs = [level.copy(x) if i in which else x for i, x in enumerate(inside)]
        outs = replayed(graph, xs)
        pairs = [(o, g) for o, g in zip(outs, seeds) if g is not None and o.dtype.is_inexact and o._node is not None]
        found = gradients([o for o, _ in pairs], [g for _, g in pairs], [node_of(xs[i]) for i in which], level)
    return [_zeros(xs[i]) if g is None else g for i, g in zip(which, found)]


def _zeros(x: Tensor) -> Tensor:
    return REGISTRY["broadcast_to"](Tensor(0, dtype=x.dtype), x.shape)


def _floats(xs: Sequence[Tensor], start: int = 0) -> list[int]:
    return [i for i, x in enumerate(xs, start) if x.dtype.is_inexact]


def _tuple(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def _sum(a: Tensor, b: Tensor | None) -> Tensor:
    return a if b is None else a + b


@REGISTRY["scan"].vjp
def _(g, *operands, out, body, carries, slices, length, reverse, keep, wants):
    g, out, made = _tuple(g), _tuple(out), len(body.outputs)
    kept, sliced, same = out[made:], operands[carries : carries + slices], operands[carries + slices :]
    states = _floats(operands[:carries])
    of_slices = [i for i in _floats(sliced, carries) if i in wants]
    of_same = [i for i in _floats(same, carries + slices) if i in wants]
    seeded = [(carries + i, x) for i, x in enumerate(g[carries:made]) if x is not None]
    g_kept = [(i, x) for i, x in enumerate(g[made:]) if x is not None]

    def step(xs: list[Tensor]) -> list[Tensor]:
        rest = iter(xs)
        take = lambda n: [next(rest) for _ in range(n)]
        later, sums, state, at = take(len(states)), take(len(of_same)), take(carries), take(slices)
        seeds: list[Tensor | None] = [None] * made
        for i, x in [*zip(states, later), *zip([i for i, _ in seeded], take(len(seeded)))]:
            seeds[i] = x
        more = dict(zip([i for i, _ in g_kept], take(len(g_kept))))
        found = iter(_pulled(body, [*state, *at, *same], [*states, *of_slices, *of_same], seeds))
        earlier = [_sum(next(found), more.get(i)) for i in states]
        slices_ = [next(found) for _ in of_slices]
        return [*earlier, *(x + next(found) for x in sums), *slices_]

    first = [_zeros(operands[i]) if g[i] is None else g[i] for i in states] + [_zeros(operands[i]) for i in of_same]
    over = [*kept, *sliced, *(x for _, x in seeded), *(x for _, x in g_kept)]
    last, stacked = run_scan(step, first, over, length, not reverse)
    return _placed(len(operands), [*zip(states, last), *zip(of_same, last[len(states) :]), *zip(of_slices, stacked)])


def _placed(n: int, found: Sequence[tuple[int, Tensor]]) -> tuple:
    """A tuple of n gradients, None where there is none."""
    result: list[Tensor | None] = [None] * n
    for i, x in found:
        result[i] = x
    return tuple(result)


@REGISTRY["while_loop"].vjp
def _(g, *operands, out, body, carries, limit, keep, wants):
    g, out = _tuple(g), _tuple(out)
    count, kept, same = out[carries - 1], out[carries:], operands[carries:]
    states, of_same = _floats(operands[:carries]), [i for i in _floats(operands[carries:], carries) if i in wants]
    first = [_zeros(operands[i]) if g[i] is None else g[i] for i in states] + [_zeros(operands[i]) for i in of_same]
    if limit is None:
        last = _back_by_checkpoints(body, operands[:carries], same, count, first, states, of_same)
        return _placed(len(operands), [*zip([*states, *of_same], last)])
    g_kept = [(i, x) for i, x in enumerate(g[carries:]) if x is not None]

    def step(xs: list[Tensor]) -> list[Tensor]:
        n = len(states) + len(of_same)
        grads, number, state, more = xs[:n], xs[n], xs[n + 1 : n + 1 + carries], xs[n + 1 + carries :]

        def back(xs: list[Tensor]) -> list[Tensor]:
            grads, state, more = xs[:n], xs[n : n + carries], dict(zip([i for i, _ in g_kept], xs[n + carries :]))
            seeds: list[Tensor | None] = [None] * carries
            for i, x in zip(states, grads):
                seeds[i] = x
            found = _pulled(body, [*state, *same], [*states, *of_same], seeds)
            earlier = [_sum(x, more.get(i)) for i, x in zip(states, found)]
            return [*earlier, *(x + y for x, y in zip(grads[len(states) :], found[len(states) :]))]

        return run_cond(number < count, back, lambda xs: xs[:n], [*grads, *state, *more])

    numbers = Tensor(np.arange(limit, dtype=np.int64))
    last, _ = run_scan(step, first, [numbers, *kept, *(x for _, x in g_kept)], limit, True)
    return _placed(len(operands), [*zip(states, last), *zip(of_same, last[len(states) :])])


def _back_by_checkpoints(
    body: Graph, start: Sequence[Tensor], same: Sequence[Tensor], count: Tensor, first: Sequence[Tensor],
    states: Sequence[int], of_same: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    """The gradients of a loop that ran `count` times, with the states of a fixed number of iterations in memory at once.

    Going back through an iteration needs the state before it. The loop runs again from the last state that is kept before that, and
    keeps further ones on its way, in places that are free; where these are, Griewank and Walther's algorithm (ACM TOMS 799, "revolve")
    says. With s places, C(s + r, s) iterations are computed at most r times.

        while left > 0:                               # iterations whose gradient is still to come
            if number of state == left - 1:
                gradients = back through an iteration at state; left -= 1
                state = the last one that is kept before left; it is forgotten
            else:
                state = body(state)
            if number of state == next:
                keep state; next = its number + how far the next one is

    Args:
        start: the first state; its last tensor is the number of the iteration, an int64. first: the gradients of what floats of the last state,
            then zeros for what iterations read. states, of_same: which operands these are.
    """
    places, carries, n = _places(start), len(start), len(first)
    distances = Tensor(_distances(places))  # (places + 1, 33): by the number of free places

    def step(xs: list[Tensor]) -> list[Tensor]:
        (left, top, next_), grads, state, kept = xs[:3], xs[3 : 3 + n], xs[3 + n : 3 + n + carries], xs[3 + n + carries :]

        def back(xs: list[Tensor]) -> list[Tensor]:
            (left, top, _), grads, state, kept = xs[:3], xs[3 : 3 + n], xs[3 + n : 3 + n + carries], xs[3 + n + carries :]
            seeds: list[Tensor | None] = [None] * carries
            for i, x in zip(states, grads):
                seeds[i] = x
            found = _pulled(body, [*state, *same], [*states, *of_same], seeds)
            found = [*found[: len(states)], *(x + y for x, y in zip(grads[len(states) :], found[len(states) :]))]
            left = left - 1
            used = (_row(kept[-1], top) >= left).astype("int64")  # the iteration was done from the last one that is kept
            top = REGISTRY["maximum"].call(top - used, 0)
            state = [_row(x, top) for x in kept]
            return [left, top - 1, state[-1], *found, *state]

        def forth(xs: list[Tensor]) -> list[Tensor]:
            return [*xs[: 3 + n], *replayed(body, [*xs[3 + n : 3 + n + carries], *same])]

        made = run_cond(state[-1] == left - 1, back, forth, [left, top, next_, *grads, *state, *kept])
        (left, top, next_), grads, state = made[:3], made[3 : 3 + n], made[3 + n :]
        kept = [_set_row(x, top + 1, new) for x, new in zip(kept, state)]
        keeps = REGISTRY["logical_and"].call(state[-1] == next_, top < places - 1)
        top = top + keeps.astype("int64")
        next_ = REGISTRY["where"].call(keeps, state[-1] + far(left - state[-1], places - top), next_)
        return [left, top, next_, *grads, *state, *kept]

    def far(length: Tensor, free: Tensor) -> Tensor:
        row = _row(distances, free)
        return REGISTRY["where"].call(row < length, row, 1).max()

    zero = Tensor(0, dtype="int64")
    kept = [REGISTRY["broadcast_to"](x.reshape((1, *x.shape)), (places + 1, *x.shape)) for x in start]
    return run_while(lambda xs: xs[0] > 0, step, [count, zero, far(count, zero + places), *first, *start, *kept])[3 : 3 + n]


def _places(state: Sequence[Tensor]) -> int:
    """How many states the gradient of a loop of unknown length keeps: some 32 MiB of them, at least 12 and at most 64."""
    sizes = [math.prod(x.shape) * x.dtype.size for x in state if all(isinstance(d, int) for d in x.shape)]
    return max(12, min(64, (32 << 20) // max(1, sum(sizes)))) if len(sizes) == len(state) else 16


def _distances(places: int) -> np.ndarray:
    """C(s + r, s) for s free places and r = 0, 1, ..., 32: how many iterations they do for when each is computed r times at most."""
    return np.array([[min(math.comb(s + r, s), 2**62) for r in range(33)] for s in range(places + 1)], np.int64)


def _row(x: Tensor, i: Tensor) -> Tensor:
    """x[i]"""
    return REGISTRY["index"]([i], x, (0,), 0)


def _set_row(x: Tensor, i: Tensor, value: Tensor) -> Tensor:
    """x with x[i] = value"""
    return REGISTRY["index_put"]([i], x, value, (0,), 0)


@REGISTRY["cond"].vjp
def _(g, pred, *operands, then, otherwise, wants):
    seeded = [(i, x) for i, x in enumerate(_tuple(g)) if x is not None]
    which = [i - 1 for i in wants]

    def back(graph: Graph) -> Body:
        def body(xs: list[Tensor]) -> list[Tensor]:
            seeds: list[Tensor | None] = [None] * len(graph.outputs)
            for (i, _), x in zip(seeded, xs):
                seeds[i] = x
            return _pulled(graph, xs[len(seeded) :], which, seeds)

        return body

    found = run_cond(pred, back(then), back(otherwise), [*(x for _, x in seeded), *operands])
    return _placed(len(operands) + 1, [*zip(wants, found)])


@REGISTRY["own_gradient"].vjp
def _(g, *operands, out, forward, backward, results, kept, gives):
    g, out = _tuple(g), _tuple(out)
    seeds = [_zeros(o) if x is None else x for x, o in zip(g[:results], out) if o.dtype.is_inexact]
    found: dict[int, Tensor] = dict(zip(gives, replayed(backward, [*seeds, *out[results : results + kept], *operands])))
    if any(x is not None for x in g[results:]):  # a gradient of the gradient, by what was kept
        which = _floats(operands)
        later = [None if i < results else x for i, x in enumerate(g)]
        found |= {i: _sum(x, found.get(i)) for i, x in zip(which, _pulled(forward, operands, which, later))}
    return _placed(len(operands), list(found.items()))


# ---- examples of `vmap` ----------------------------------------------------------------------------------------------


def _scan_of_examples(op: Op, xs: Sequence[Any], batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> tuple:
    """A scan for all examples together: its body is that of one example, inside of a `vmap` of its own."""
    carries, slices, body = attrs["carries"], attrs["slices"], attrs["body"]
    moveaxis = REGISTRY["moveaxis"].call
    operands = [everywhere(x, b, size) for x, b in zip(xs[:carries], batched)]
    operands += [moveaxis(x, 0, 1) if b else x for x, b in zip(xs[carries : carries + slices], batched[carries:])]
    operands += xs[carries + slices :]
    differs = [*[True] * carries, *batched[carries:]]

    def step(leaves: list[Tensor]) -> list[Tensor]:
        with Mapping(size, "error") as mapping:
            made = replayed(body, [examples(x, mapping) if b else x for x, b in zip(leaves, differs)])
            return [everywhere(*whole(y, mapping), size) for y in made]

    types = [x._layout.type for x in operands]
    inside = [TensorType(t.shape[1:], t.dtype) if carries <= i < carries + slices else t for i, t in enumerate(types)]
    r = recorded("scan", step, inside)
    graph = r.closed([*r.arguments, *(v for _, v in r.outside.values())], r.results)
    operands += [t for t, _ in r.outside.values()]
    out = dispatch.run(op, tuple(operands), tuple((attrs | {"body": graph})[name] for name in op.attrs))
    out = out if isinstance(out, tuple) else (out,)
    return tuple(out[:carries]) + tuple(moveaxis(y, 1, 0) for y in out[carries:])


def _cond_of_examples(op: Op, xs: Sequence[Any], batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> tuple | None:
    """A branch for all examples together: one branch of all where the condition is the same for all; else both are computed, and each
    example has its own. Where one of the two may have no end for examples that do not take it, does something, or is differentiated (a
    gradient that is no number, times 0, is none), the examples have a branch each, one after the other."""
    graphs, rest = (attrs["then"], attrs["otherwise"]), batched[1:]

    def all_of(graph: Graph, flag: Any, leaves: Sequence[Tensor]) -> list[Tensor]:
        with Mapping(size, "error") as mapping:
            inside = [examples(x, mapping) if b else x for x, b in zip(leaves, rest)]
            made = replayed(graph, inside)
            if flag is not None:
                where, test = REGISTRY["where"].call, examples(flag, mapping)
                made = [where(test, a, b) for a, b in zip(made, replayed(graphs[1], inside))]
            return [everywhere(*whole(y, mapping), size) for y in made]

    if not batched[0]:
        then, otherwise = ((lambda leaves, g=g: all_of(g, None, leaves)) for g in graphs)
        return tuple(run_cond(xs[0], then, otherwise, xs[1:]))
    recorder = tracing.recorder
    if any(map(may_stop, graphs)) or attrs["wants"] or (recorder is not None and recorder.of_a_body):
        return None
    return tuple(all_of(graphs[0], xs[0], xs[1:]))


RULES["scan"], RULES["cond"] = _scan_of_examples, _cond_of_examples
