"""In place: which values are computed straight into an output, a state, or the place of a check.

In: a graph. Out: a table from values to the buffer they are written to; every other value is a temporary. A state's new value
may lie over the old one when nothing reads that any more, or only the same element of it in the same kernel. What an
output is another view of is computed into it where its elements lie as the output's do.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tengen.ir.graph import Graph, Node, Value
from tengen.kernels.lowering import Array, product
from tengen.ops.define import lookup

CHECKS = "checks"  # the buffer of what the checks of a graph found


def destinations(graph: Graph) -> dict[Value, Hashable]:
    """Values that can be computed straight into an output or, when nothing reads the old value later, into a state."""
    where: dict[Value, Hashable] = {}
    for i, v in enumerate(graph.outputs):
        if v.node is not None:
            where.setdefault(v, ("out", i))
    for i, c in enumerate(graph.checks):
        if c.bad.node is not None:
            where.setdefault(c.bad, (CHECKS, i))
    last = {}
    for i, n in enumerate(graph.nodes):
        for v in _reads(n):
            last[v] = i
    position = {id(n): i for i, n in enumerate(graph.nodes)}
    views = _view_sources(graph)
    for s in graph.states.values():
        w = s.written
        if w is None or w.node is None or w in where:
            continue
        made = position[id(w.node)]
        late = max([last.get(v, -1) for v in [s.read, *(v for v, root in views.items() if root is s.read)]])
        aligned = late < made or (late == made and _pointwise_in_place(w.node, s.read))
        escapes = any(views.get(v, v) is s.read for v in graph.results())
        if aligned and not escapes:
            where[w] = ("state", s.name)
    return where


def seen_through_views(graph: Graph, lies: Mapping[Value, Array], wanted: Mapping[Value, Hashable]) -> dict[Value, Hashable]:
    """Values that need no temporary because an output shows them whole and in order: a convolution's image, channels-last, whose
    channels the caller has moved to the end.

    Args:
        lies: how values lie. wanted: those that have a place already.
    """
    where: dict[Value, Hashable] = {}
    for i, v in enumerate(graph.outputs):
        root, a = v, lies[v]
        while (shown := _shown(root, lies)) is not None:
            root = shown
        whole = a.is_contiguous() and a.offset == 0 and product(a.shape) == product(root.type.shape)
        if whole and root is not v and root.node is not None and not _is_view(root.node) and root not in wanted:
            where.setdefault(root, ("out", i))
    return where


def _shown(v: Value, lies: Mapping[Value, Array]) -> Value | None:
    """What a view is other strides of; None for other values, and for a view that has to copy."""
    n = v.node
    if not _is_view(n):
        return None
    source = n.inputs[0]  # type: ignore[union-attr]
    return None if lookup(n.op).rules["view"](lies[source], v.type, **n.attrs) is None else source  # type: ignore[union-attr, index]


def _is_view(n: Node | None) -> bool:
    return n is not None and n.op != "fused" and lookup(n.op).kind == "view"


def _reads(n: Node) -> list[Value]:
    return [v for v in n.inputs if v is not None]


def _view_sources(graph: Graph) -> dict[Value, Value]:
    """For each value that is a view, the value whose memory it shows."""
    root: dict[Value, Value] = {}
    for n in graph.nodes:
        if _is_view(n):
            root[n.outputs[0]] = root.get(n.inputs[0], n.inputs[0])
    return root


def _pointwise_in_place(n: Node, read: Value) -> bool:
    """Whether the node reads `read` only at the position that it writes: then it may write over it."""
    if n.op != "fused":
        return lookup(n.op).kind == "elementwise" and all(
            v is not read or v.type.shape == n.outputs[0].type.shape for v in n.inputs
        )
    body: Graph = n.attrs["body"]
    if any(lookup(m.op).kind != "elementwise" for m in body.nodes):
        return False
    return read.type.shape == n.outputs[0].type.shape and len({v.type.shape for v in n.outputs}) == 1
