"""The backward walk: from recorded nodes to gradients.

Gradient rules are written in ops, so the walk is itself eager code: inside a trace it is recorded, and with `create_graph`
it goes
on the tape and can be differentiated again.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence
from typing import Any

from tengen.base.errors import DTypeError, GradientError, ShapeError
from tengen.casting import casting, casts
from tengen.ops.define import REGISTRY, Op
from tengen.tensor import Node, Tensor, dispatch


def leaf(t: Tensor) -> Node:
    """Makes `t` a tensor to which gradients flow; returns its node."""
    t._node = Node(None, (), ())
    return t._node


def node_of(t: Tensor | None) -> tuple[Node | None, int]:
    """The node that made a tensor, and which of its outputs the tensor is."""
    n = None if t is None else t._node
    return n if isinstance(n, tuple) else (n, 0)


def gradients(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], wanted: Sequence[Tensor], create_graph: bool = False
) -> list[Tensor | None]:
    """Gradients of sum(output * seed) with respect to the `wanted` tensors; None where an output does not depend on one.

    Args:
        outputs: recorded tensors. seeds: their gradients; None stands for ones, for a float tensor of one element.
        create_graph: records the walk itself, for gradients of gradients. Otherwise the walk uses the record up: what a call had
            kept for its gradient is let go as soon as that is known, and nobody can walk there again.

    The walk is the same inside autocast and outside: gradients have the dtypes of what they are gradients of.
    """
    if casting.rule is None:
        return _gradients(outputs, seeds, wanted, create_graph)
    with casts(None, None, None):
        return _gradients(outputs, seeds, wanted, create_graph)


def _gradients(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], wanted: Sequence[Tensor], create_graph: bool
) -> list[Tensor | None]:
    targets: dict[int, list[tuple[int, int]]] = {}  # id of a node -> (position in wanted, which output of the node)
    for i, t in enumerate(wanted):
        node, index = node_of(t)
        if node is not None:
            targets.setdefault(id(node), []).append((i, index))
    useful = _useful([node_of(t)[0] for t in outputs], targets)
    grads: dict[int, dict[int, Tensor]] = {}
    slices: dict[int, dict[int, list[_Part]]] = {}
    nodes: dict[int, Node] = {}
    heap: list[tuple[int, int]] = []

    def give(t: Tensor, g: Tensor | _Part) -> None:
        node, index = node_of(t)
        if node is None or id(node) not in useful:
            return
        slot = grads.get(id(node))
        if slot is None:
            slot = grads[id(node)] = {}
            nodes[id(node)] = node
            heapq.heappush(heap, (-node.order, id(node)))
        if isinstance(g, _Part):
            slices.setdefault(id(node), {}).setdefault(index, []).append(g)
            return
        g = _fit(g, t)
        slot[index] = REGISTRY["add"](slot[index], g) if index in slot else g

    for t, seed in zip(outputs, seeds, strict=True):
        give(t, _seed(t) if seed is None else seed if create_graph else seed.detach())
    result: list[Tensor | None] = [None] * len(wanted)
    while heap:
        _, key = heapq.heappop(heap)
        node, slot = nodes[key], grads.pop(key)
        for index, parts in slices.pop(key, {}).items():
            for g in _joined(parts):
                slot[index] = REGISTRY["add"](slot[index], g) if index in slot else g
        for i, index in targets.get(key, ()):
            result[i] = slot.get(index)
        if node.op is not None:
            _step(node, slot, give, useful, create_graph)
            if not create_graph:
                node.saved, node.outputs = [], None
    return result


class _Part:
    """The gradient of a slice of a tensor: it lies at `starts` in `shape`, and is zero elsewhere."""

    __slots__ = ("grad", "shape", "starts")

    def __init__(self, grad: Tensor, shape: tuple[int, ...], starts: tuple[int, ...]):
        self.grad, self.shape, self.starts = grad, shape, starts


def _joined(parts: list[_Part]) -> list[Tensor]:
    """Gradients of slices as gradients of the whole: one where the slices tile it along an axis (the steps of a sequence, the
    gates of a cell), so that each element is written once; otherwise one for each slice, with zeros around it."""
    shape = parts[0].shape
    same: dict[tuple, _Part] = {}
    for p in parts:  # a slice that was taken twice
        first = same.setdefault((p.starts, tuple(p.grad.shape)), p)
        if first is not p:
            first.grad = REGISTRY["add"](first.grad, p.grad)
    parts = list(same.values())
    axes = {i for p in parts for i, (n, d) in enumerate(zip(p.grad.shape, shape)) if n is not d and n != d}
    if len(axes) == 1 and all(isinstance(d, int) for d in shape):
        (axis,) = axes
        ordered = sorted(parts, key=lambda p: p.starts[axis])
        ends = [p.starts[axis] + p.grad.shape[axis] for p in ordered]
        if [p.starts[axis] for p in ordered] == [0, *ends[:-1]] and ends[-1] == shape[axis]:
            return [REGISTRY["concat"]([p.grad for p in ordered], axis)]
    return [REGISTRY["slice_grad"](p.grad, shape, p.starts, (1,) * len(shape)) for p in parts]


def _seed(t: Tensor) -> Tensor:
    if t.size != 1 or not t.dtype.is_float:
        raise GradientError(
            f"the gradient of {t._layout.type!r} needs a seed: only a float tensor of one element has an implied one; "
            "help: pass dy=, or reduce the output with .sum() or .mean() first"
        )
    return REGISTRY["broadcast_to"](Tensor(1.0, t.dtype), t.shape)


def _useful(starts: Sequence[Node | None], targets: dict) -> set[int]:
    """The nodes on a way from an output to a wanted tensor."""
    useful: dict[int, bool] = {}
    stack = [n for n in starts if n is not None]
    while stack:
        n = stack[-1]
        if id(n) in useful:
            stack.pop()
            continue
        below = n.parents()
        todo = [m for m in below if id(m) not in useful]
        if todo:
            stack.extend(todo)
            continue
        useful[id(n)] = id(n) in targets or any(useful[id(m)] for m in below)
        stack.pop()
    return {k for k, v in useful.items() if v}


def _fit_dtype(g: Tensor, t: Tensor) -> Tensor:
    return g if g.dtype is t.dtype else REGISTRY["astype"](g, t.dtype)


def _fit(g: Tensor, t: Tensor) -> Tensor:
    """A gradient in the shape and dtype of the tensor it belongs to: undoes broadcasting and promotion."""
    g = _fit_dtype(g, t)
    return g if g.shape == t.shape else REGISTRY["sum_to"](g, t.shape)


@functools.lru_cache(4096)  # a training step asks the same of the same types again and again
def _call_facts(op: Op, attrs: tuple, types: tuple) -> tuple[dict[str, Any], int | None]:
    """(the attributes in canonical form, how many outputs; None for a composite, which may have any number)."""
    canonical = op.canonical(types, attrs)
    return canonical, None if op.kind == "composite" else len(op.infer_types(types, canonical))


def _step(node: Node, slot: dict[int, Tensor], give: Any, useful: set[int], create_graph: bool) -> None:
    """Runs one node's gradient rule and hands its results on."""
    op: Op = node.op
    saved = node.inputs()
    inputs = saved if create_graph else tuple(None if x is None else x.detach() for x in saved)
    types = tuple([None if x is None else x._layout.type for x in inputs])
    try:
        attrs, n_outs = _call_facts(op, node.attrs, types)
    except TypeError:  # an attribute that has no hash
        attrs, n_outs = _call_facts.__wrapped__(op, node.attrs, types)
    wants = tuple([i for i, x in enumerate(saved) if x is not None and x.dtype.is_float and id(node_of(x)[0]) in useful])
    n_outs = n_outs or max(slot) + 1
    g: Any = slot[0] if n_outs == 1 else tuple(slot.get(i) for i in range(n_outs))
    if "vjp" not in op.rules:
        same = op.rules.get("same", op)  # a composite that computes the same has a gradient
        if same.kind != "composite":
            raise GradientError(
                f"{op.signature(types, attrs)} has no gradient rule; help: add @{op.name}.vjp below its definition"
            )
        results = dict(zip(wants, composite_vjp(same, g, inputs, attrs, wants)))
    else:
        if op.saves_output:
            results = tuple(_output(o, node, i) for i, o in enumerate(node.outputs)) if create_graph else node.outputs
            attrs = attrs | {"out": results[0] if len(results) == 1 else results}
        if op.name == "strided_slice" and all(s == 1 for s in attrs["steps"]):
            return give(saved[0], _Part(_fit_dtype(g, saved[0]), tuple(inputs[0].shape), tuple(attrs["starts"])))
        r = op.rules["vjp"](g, *inputs, **attrs)
        results = dict(enumerate(r if isinstance(r, (tuple, list)) else (r,)))
    for i in wants:
        gi = results.get(i)
        gi = gi() if callable(gi) and not isinstance(gi, Tensor) else gi
        if gi is not None:
            give(saved[i], gi)


def composite_vjp(op: Op, g: Any, inputs: Sequence[Tensor | None], attrs: dict, wants: tuple[int, ...]) -> tuple:
    """The gradient of a composite: that of its body, as one derived composite op (so that it, too, is one fused program)."""
    derived = _vjp_op(op)
    gs = g if isinstance(g, tuple) else (g,)
    r = dispatch.run(derived, (*gs, *inputs), (tuple(attrs.items()), wants, len(gs)))
    return r if isinstance(r, tuple) else (r,)


def _output(o: Tensor, node: Node, index: int) -> Tensor:
    """A saved output with its place on the tape, which the node does not keep: that would be a circle of references."""
    t = o.detach()
    t._node = node if len(node.outputs) == 1 else (node, index)
    return t


def call_body(op: Op, inputs: tuple, attrs: dict):
    """Calls a composite's function; what goes wrong inside names the composite too."""
    try:
        return _call_body(op, inputs, attrs)
    except (ShapeError, DTypeError) as e:
        if "." in op.name or str(e).startswith(f"{op.name}(") or hasattr(e, "_told"):  # then dispatch names the composite
            raise
        raise type(e)(f"{op.signature([None if x is None else x._layout.type for x in inputs], attrs)}: {e}") from None


def _call_body(op: Op, inputs: tuple, attrs: dict):
    if not op.variadic:
        return op.fn(**dict(zip(op.tensors, inputs)), **attrs)  # by name: tensors and attributes may come in any order
    if op.tensors == ("args",):
        return op.fn(*inputs, **attrs)
    n = len(inputs) - len(op.tensors) + 1
    return op.fn(list(inputs[:n]), *inputs[n:], **attrs)


def _vjp_op(op: Op) -> Op:
    name = f"{op.name}.vjp"
    if name in REGISTRY:
        return REGISTRY[name]

    def body(*args, of, wants, n_grads):
        gs, xs = args[:n_grads], args[n_grads:]
        copies = list(xs)
        for i in wants:  # a node of its own for each, which keeps its link to what lies below: gradients of gradients
            copies[i] = REGISTRY["broadcast_to"](xs[i], xs[i].shape)
            if copies[i]._node is None:
                copies[i] = copies[i].detach()
                leaf(copies[i])
        out = call_body(op, tuple(copies), dict(of))
        outs = out if isinstance(out, tuple) else (out,)
        pairs = [(o, s) for o, s in zip(outs, gs) if s is not None and o._node is not None]
        found = gradients([o for o, _ in pairs], [s for _, s in pairs], [copies[i] for i in wants], create_graph=True)
        zeros = [REGISTRY["broadcast_to"](Tensor(0.0, copies[i].dtype), copies[i].shape) for i in wants]
        r = tuple(z if f is None else f for f, z in zip(found, zeros))
        return r if len(r) != 1 else r[0]

    made = Op.__new__(Op)
    made.fn, made.kind, made.name, made.doc = body, "composite", name, f"The gradient of `{op.name}`."
    made.rules, made.samples, made.why_no_vjp = {}, [], None
    made.tensors, made.attrs, made.variadic = ("args",), ("of", "wants", "n_grads"), True
    made.call = lambda *a, **k: dispatch.run(made, a, tuple(k[n] for n in made.attrs))
    if "known" in op.rules:
        made.rules["known"] = lambda arrays, of, wants, n_grads: op.known(arrays[n_grads:], dict(of))
    REGISTRY[name] = made
    return made
