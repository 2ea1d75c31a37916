"""Narrowing: where only a region of a value is read, only that region is computed.

In: a graph in which slices follow the nodes that compute their operands. Out: one in which slices come as early as the ops'
rules "parts" allow. Where a classifier reads one token of a transformer, its last block computes nothing but keys and values
for the other tokens. No bit changes, since no row of a result depends on how many rows there are; and nothing is computed
twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.ir.graph import Graph, Node, Value
from tengen.loops.lang import Expr
from tengen.ops.define import lookup

Span = tuple[int, int]  # the first element along an axis, and one past the last
Region = tuple[Span | None, ...]  # for each axis; None: all of it

LEAST_ELEMENTS_FOR_ONE = 2  # along an axis, for each that is read: of fewer, narrowing would change shapes and gain little


def narrow(graph: Graph) -> Graph:
    """Computes only what is read of values of which at most half is read.

    before: ``%a = matmul(%x, %w); %b = strided_slice(%a, starts=(0, 0), sizes=(1, 8), steps=(1, 1)); return %b``
    after:  ``%a = strided_slice(%x, starts=(0, 0), sizes=(1, 4), steps=(1, 1)); %b = matmul(%a, %w); return %b``
    """
    made = _parts(graph)
    if not any(any(made[n]) for n in graph.nodes if n.op != "strided_slice"):
        return graph
    g, there = Graph(graph.name), {}
    there |= {v: g.add_input(v.name, v.type) for v in graph.inputs}
    there |= {c.value: g.add_constant(c.name, c.data, c.value.type) for c in graph.constants.values()}
    there |= {s.read: g.add_state(s.name, s.read.type) for s in graph.states.values()}
    parts: dict[Value, Region] = {v: _whole(v) for v in there}
    for n in graph.nodes:
        there.update(zip(n.outputs, _narrowed(g, n, made[n], there, parts)))
        parts |= {v: made[n][: v.type.ndim] for v in n.outputs}
    g.take_results(graph, there)
    return g


# ---- what is read ----------------------------------------------------------------------------------------------------------


def _parts(graph: Graph) -> dict[Node, Region]:
    """The region of each node's results that is computed, on the axes that its results share."""
    read: dict[Value, Region] = {v: _whole(v) for v in graph.results()}
    found: dict[Node, Region] = {}
    for n in reversed(graph.nodes):
        found[n] = _part(n, read)
        for v, part in zip(n.inputs, _needed(n, found[n])):
            if v is not None:
                read[v] = _hull(read[v], part) if v in read else part
    return found


def _part(n: Node, read: dict[Value, Region]) -> Region:
    """The region that a node computes; `read` has the regions that are read of its results."""
    shape = max((v.type.shape for v in n.outputs), key=len)
    part: Region | None = None
    for mine in (read[v] for v in n.outputs if v in read):
        mine = (*mine, *[None] * (len(shape) - len(mine)))
        part = mine if part is None else _hull(part, mine)
    if part is None or not any(part):
        return (None,) * len(shape)
    if n.op == "strided_slice":
        return part
    named = {i for axes in _axes(n) for i in axes}
    return tuple(s if i in named and s and _is_part(s, shape[i]) else None for i, s in enumerate(part))


def _axes(n: Node) -> Sequence[Sequence[int | None]]:
    return lookup(n.op).axes_of_parts([None if v is None else v.type for v in n.inputs], n.attrs) or ()


def _is_part(s: Span, extent: int | Expr) -> bool:
    return isinstance(extent, int) and s[0] < s[1] and (s[1] - s[0]) * LEAST_ELEMENTS_FOR_ONE <= extent


def _needed(n: Node, part: Region) -> list[Region]:
    """For each operand, the region that is needed for a region of the results."""
    if n.op == "strided_slice":
        return [_behind_slice(n, part)]
    if not any(part):
        return [() if v is None else _whole(v) for v in n.inputs]
    return [tuple(None if i is None else part[i] for i in axes) for axes in _axes(n)]


def _behind_slice(n: Node, part: Region) -> Region:
    found: list[Span | None] = []
    assert n.inputs[0] is not None
    for extent, start, size, step, s in zip(n.inputs[0].type.shape, *_slice(n), part):
        first, last = (0, size) if s is None else s
        if not all(isinstance(x, int) for x in (extent, start, first, last, step)) or last <= first:
            found.append(None)
            continue
        ends = start + first * step, start + (last - 1) * step
        span = min(ends), max(ends) + 1
        found.append(None if span == (0, extent) else span)
    return tuple(found)


def _slice(n: Node) -> tuple[Sequence, Sequence, Sequence]:
    return n.attrs["starts"], n.attrs["sizes"], n.attrs["steps"]


def _whole(v: Value) -> Region:
    return (None,) * v.type.ndim


def _hull(x: Region, y: Region) -> Region:
    return tuple(None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(x, y))


# ---- the graph of parts ----------------------------------------------------------------------------------------------------


def _narrowed(g: Graph, n: Node, part: Region, there: dict[Value, Value], parts: dict[Value, Region]) -> list[Value]:
    """The node in the new graph `g` for a region of its results. there: the new values. parts: their regions."""
    if n.op == "strided_slice":
        v = n.inputs[0]
        assert v is not None
        starts, sizes, steps = _slice(n)
        starts = [a if s is None else a + s[0] * step for a, s, step in zip(starts, part, steps)]
        sizes = [size if s is None else s[1] - s[0] for size, s in zip(sizes, part)]
        return [_sliced(g, there[v], parts[v], starts, sizes, steps, n.where)]
    ins: list[Value | None] = []
    for v, want in zip(n.inputs, _needed(n, part)):
        if v is not None and parts[v] != want:
            starts = [0 if s is None else s[0] for s in want]
            sizes = [d if s is None else s[1] - s[0] for s, d in zip(want, v.type.shape)]
            ins.append(_sliced(g, there[v], parts[v], starts, sizes, [1] * len(want), n.where))
        else:
            ins.append(None if v is None else there[v])
    cut = lambda shape: tuple(d if s is None else s[1] - s[0] for s, d in zip(part, shape))
    attrs = n.attrs | ({"shape": cut(n.attrs["shape"])} if "shape" in n.attrs and any(part) else {})
    types = [type(v.type)(cut(v.type.shape), v.type.dtype) for v in n.outputs]
    return g.add_node(n.op, ins, attrs, types, n.where, [v.name for v in n.outputs]).outputs


def _sliced(g: Graph, v: Value, part: Region, starts: Sequence, sizes: Sequence, steps: Sequence, where: str | None) -> Value:
    """A slice of a value of which `v` is the region `part`. `starts` count from the first element of the whole value."""
    starts = [a if s is None else a - s[0] for a, s in zip(starts, part)]
    if tuple(sizes) == v.type.shape and not any(starts) and all(s == 1 for s in steps):
        return v
    t = type(v.type)(tuple(sizes), v.type.dtype)
    return g.add_node("strided_slice", [v], {"starts": starts, "sizes": sizes, "steps": steps}, [t], where).outputs[0]
