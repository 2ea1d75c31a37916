"""A pass for `check_finite`: each value that a program stores gets a check of whether all its elements are finite.

In: a graph after fusion. Out: the same with a reduction behind nodes, max |x|, which is infinite or NaN where an element is, and a
check of the graph on that. It reads a value once more; most need none, as what is not finite of them is sure to be seen in a result
of a node that reads them (`carries.py`): in a training step that leaves little but the parameters' new values. Bodies of loops and
branches hand a bool on, so each of them has one check.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import bool_, dtype
from tengen.base.errors import NonFiniteError, ShapeError
from tengen.debug.carries import carried
from tengen.ir.graph import Check, Graph, Node, Value
from tengen.ir.rewrite import rebuild
from tengen.ir.types import TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import bitcast
from tengen.ops.define import Case, check_floats, lookup, primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor

BOOL = TensorType((), bool_)
Look = tuple[Value, str]  # a largest magnitude with what is looked for in it; or a bool
NAN_ONLY, NOTHING = "nan", "nothing"  # what is still looked for in a value, where an infinity, or all, was found to be wanted


@primitive
def largest_magnitude(x: Tensor) -> Tensor:
    """max |x| of all elements, of a tensor that is not empty: NaN where one is."""


@largest_magnitude.infer
def _(x):
    if any(d == 0 for d in x.shape):
        raise ShapeError(f"{x} has no element")
    return TensorType((), check_floats(x))


@largest_magnitude.lower
def _(lo, ins, outs):
    """Where the elements are dense, they are read as they lie in memory: the order does not matter. Magnitudes are compared by their bits as
    integers, of which those of an infinity and of a NaN are the largest: a maximum of floats looks for a NaN at each step."""
    a, ints = ins[0], dtype(f"int{8 * ins[0].dtype.size}")
    if a.strides == contiguous_strides(a.shape, memory_order(a)):
        a = Array(a.id, a.dtype, (product(a.shape),), (1,), a.offset)
    bits = Elementwise(lambda x: bitcast(x, ints) & ~(-1 << (ints.bits - 1)), [Leaf(a)], a.shape, ints)
    reduce(lo, "max", bits, outs[0], range(len(a.shape)), then=lambda m: bitcast(m, a.dtype))


largest_magnitude.no_vjp("it is looked at, and not computed with")
largest_magnitude.reference(lambda x: np.abs(x).max())
largest_magnitude.cases(Case(lambda r: (r.standard_normal((3, 4)),)), Case(lambda r: (r.standard_normal(5),)))


def marked(graph: Graph, lenient: dict[int, str]) -> Graph:
    """The graph with a check behind each of its nodes. lenient: by the position of a node, what is looked for in its values."""
    checks: list[Check] = []
    numbers = iter(range(len(graph.nodes)))
    seen = _seen_later(graph, lenient)

    def rule(g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value]:
        i = next(numbers)
        how = lenient.get(i, "")
        outs, looks = _with_looks(g, n, ins, how, {k for k, v in enumerate(n.outputs) if v in seen})
        if (bad := _any(g, looks)) is not None:
            checks.append(Check(bad, NonFiniteError.__name__, str(i), n.where))
        return outs

    made = rebuild(graph, rule)
    made.checks += checks
    return made


def _seen_later(graph: Graph, lenient: Mapping[int, str]) -> set[Value]:
    """The values that need no check: what is not finite of them is seen in a result of a node that reads them."""
    readers: dict[Value, list[tuple[int, Node, int]]] = {}
    for at, n in enumerate(graph.nodes):
        for i, v in enumerate(n.inputs):
            if v is not None:
                readers.setdefault(v, []).append((at, n, i))
    found: set[Value] = set()
    hidden = {v for at, n in enumerate(graph.nodes) if lenient.get(at) == NOTHING for v in n.outputs}

    def is_seen(w: Value) -> bool:
        """Whether what is not finite of a result is found: views have no checks of their own."""
        n = w.node
        assert n is not None
        return w in found if n.op != "fused" and lookup(n.op).kind == "view" else w not in hidden

    for n in reversed(graph.nodes):
        for v in n.outputs:
            if any(is_seen(r.outputs[k]) for _, r, i in readers.get(v, ()) for k in carried(r, i)):
                found.add(v)
    return found


def _emit(g: Graph, op: str, ins: Sequence[Value], **attrs: Any) -> Value:
    known = lookup(op)
    types = [v.type for v in ins]
    canonical = known.canonical(types, tuple(attrs.values()))
    return g.add_node(op, list(ins), canonical, known.infer_types(types, canonical)).outputs[0]


@functools.lru_cache(256)
def _odd(kinds: tuple[tuple[TensorType, str], ...]) -> Graph:
    """Whether one of some numbers is not finite; bools say so of others."""
    body, found = Graph("not_finite"), None
    for i, (t, how) in enumerate(kinds):
        x = body.add_input(f"x{i}", t)
        if t.dtype is not bool_:
            x = _emit(body, "isnan", [x]) if how == NAN_ONLY else _emit(body, "logical_not", [_emit(body, "isfinite", [x])])
        found = x if found is None else _emit(body, "logical_or", [found, x])
    assert found is not None
    body.add_output("y", found)
    return body


def _look(g: Graph, v: Value, how: str) -> list[Look]:
    """What tells whether an element of a value is not finite; nothing for one that always is."""
    t = v.type
    if not t.dtype.is_float or how == NOTHING or any(d == 0 for d in t.shape):
        return []
    return [(_emit(g, "largest_magnitude", [v]) if t.ndim else v, how)]


def _any(g: Graph, some: Sequence[Look]) -> Value | None:
    """One bool of all of these, in one kernel."""
    if not some or (len(some) == 1 and some[0][0].type.dtype is bool_):
        return some[0][0] if some else None
    body = _odd(tuple((v.type, how) for v, how in some))
    return g.add_node("fused", [v for v, _ in some], {"body": body}, [BOOL]).outputs[0]


def _with_looks(g: Graph, n: Node, ins: list[Value | None], how: str, seen: Collection[int] = ()) -> tuple[list[Value], list[Look]]:
    """A node in another graph, and what tells whether something in it was not finite. seen: results that need no look."""
    if n.op != "fused" and lookup(n.op).has_bodies:
        outs, bad = _LOOPS[n.op](g, n, ins, how)
        return outs, [] if bad is None else [(bad, "")]
    made = g.add_node(n.op, ins, n.attrs, [v.type for v in n.outputs], n.where).outputs
    if n.op != "fused" and lookup(n.op).kind == "view":
        return made, []
    return made, [x for k, v in enumerate(made) if k not in seen for x in _look(g, v, how)]


def _marked_body(body: Graph, how: str) -> tuple[Graph, list[Look]]:
    """A body whose nodes are looked at, and what tells of all of them; it is no output of it yet."""
    looks: list[Look] = []
    seen = _seen_later(body, {})

    def rule(g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value]:
        outs, found = _with_looks(g, n, ins, how, {k for k, v in enumerate(n.outputs) if v in seen})
        looks.extend(found)
        return outs

    return rebuild(body, rule), looks


def _scan(g: Graph, n: Node, ins: list[Value | None], how: str) -> tuple[list[Value], Value | None]:
    """Each iteration stores what tells of it, and all are looked at behind the loop."""
    body, looks = _marked_body(n.attrs["body"], how)
    types, length = [v.type for v in n.outputs], n.attrs["length"]
    if not looks or length == 0:
        return g.add_node(n.op, ins, n.attrs, types, n.where).outputs, None
    at = len(body.outputs)  # behind what is stacked, before the states that are kept
    for i, (v, _) in enumerate(looks):
        body.add_output(f"look{i}", v)
        types.insert(at + i, TensorType((length,), v.type.dtype))
    outs = list(g.add_node(n.op, ins, {**n.attrs, "body": body}, types, n.where).outputs)
    stacked, outs[at : at + len(looks)] = outs[at : at + len(looks)], []
    of_all = [
        (_emit(g, "any", [v], axis=(0,), keepdims=False) if v.type.dtype is bool_ else _emit(g, "largest_magnitude", [v]), kind)
        for v, (_, kind) in zip(stacked, looks)
    ]
    return outs, _any(g, of_all)


def _while_loop(g: Graph, n: Node, ins: list[Value | None], how: str) -> tuple[list[Value], Value | None]:
    body, looks = _marked_body(n.attrs["body"], how)
    types, at = [v.type for v in n.outputs], n.attrs["carries"]
    if not looks:
        return g.add_node(n.op, ins, n.attrs, types, n.where).outputs, None
    before = body.add_input("not_finite", BOOL)
    body.inputs.insert(at, body.inputs.pop())
    now = _any(body, [(before, ""), *looks])
    assert now is not None
    body.outputs.insert(at, now)
    body.output_names.insert(at, "not_finite")
    first = ins[0]
    assert first is not None
    given = [*ins[:at], _emit(g, "not_equal", [first, first]), *ins[at:]]
    kept = [TensorType((n.attrs["limit"],), bool_)] if n.attrs["keep"] else []
    attrs = {**n.attrs, "body": body, "carries": at + 1}
    outs = list(g.add_node(n.op, given, attrs, [*types[:at], BOOL, *types[at:], *kept], n.where).outputs)
    odd = outs.pop(at)
    return outs[: len(types)], odd


def _cond(g: Graph, n: Node, ins: list[Value | None], how: str) -> tuple[list[Value], Value | None]:
    looked = [_marked_body(n.attrs[name], how) for name in ("then", "otherwise")]
    made = [(body, _any(body, looks)) for body, looks in looked]
    types = [v.type for v in n.outputs]
    if all(bad is None for _, bad in made):
        return g.add_node(n.op, ins, n.attrs, types, n.where).outputs, None
    flag = ins[0]
    assert flag is not None
    for body, bad in made:
        no = body.add_input("none_so_far", BOOL)  # bodies have no constants of their own
        body.add_output("not_finite", no if bad is None else bad)
    attrs = {**n.attrs, "then": made[0][0], "otherwise": made[1][0]}
    given = [*ins, _emit(g, "not_equal", [flag, flag])]
    outs = list(g.add_node(n.op, given, attrs, [*types, BOOL], n.where).outputs)
    return outs[:-1], outs[-1]


def _own_gradient(g: Graph, n: Node, ins: list[Value | None], how: str) -> tuple[list[Value], Value | None]:
    body, looks = _marked_body(n.attrs["forward"], how)
    types, bad = [v.type for v in n.outputs], _any(body, looks)
    if bad is None:
        return g.add_node(n.op, ins, n.attrs, types, n.where).outputs, None
    body.add_output("not_finite", bad)
    outs = list(g.add_node(n.op, ins, {**n.attrs, "forward": body}, [*types, BOOL], n.where).outputs)
    return outs[:-1], outs[-1]


_LOOPS = {"scan": _scan, "while_loop": _while_loop, "cond": _cond, "own_gradient": _own_gradient}
