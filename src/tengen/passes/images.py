"""Loops over images: which nodes of a graph become a loop of the program over parts of their first axis.

    for step in range(batch / some):                           # `some` images in each iteration
        for node of the loop:
            outputs[images of the step] = node(inputs[images of the step], filters)

In: a graph whose extents are numbers, and the layouts of its values. Out: `Loop`s. The nodes of one are neighbours in the graph
(convolutions and what follows them), their images do not depend on each other, and the values between them are larger than what
stays in cache. In a loop over a few images, a value is read soon after it was written, and needs memory for these images alone.
Where the filters are larger than the values between nodes, an iteration has more images, in a loop of its own. No bit changes,
only the order in which results are computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import isqrt

from tengen.base.record import record
from tengen.ir.graph import Graph, Node, Value
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, product
from tengen.loops.lang import Index, as_int
from tengen.ops.define import lookup

LAST_CACHE_BYTES = 4 << 20  # bytes of the last cache that a program can count on, whatever its size: others share it
MOST_LARGE_ITERATIONS = 8  # that compute a value of LAST_CACHE_BYTES: each is then work enough to share among threads

PerImage = tuple[bool, ...]  # for each input of a node: whether an image of the outputs needs the same image of it alone


@record(frozen=True)
class Loop:
    """Nodes that run `count` times, each time for `some` images.

    Attributes:
        nodes: their positions in the graph; between them are only views of other values.
        inner: values that only these nodes read, so that they need memory for `some` images alone.
        parts: for each node, which of its inputs an iteration reads its own images of.
    """

    nodes: tuple[int, ...]
    some: int
    count: int
    inner: frozenset[Value]
    parts: tuple[PerImage, ...]

    def part(self, a: Array, step: Index) -> Array:
        """The images of one iteration."""
        return replace(a, shape=(self.some, *a.shape[1:]), offset=a.offset + step * (self.some * a.strides[0]))


def find_loops(graph: Graph, lies: Mapping[Value, Array], wanted: Mapping[Value, Hashable]) -> list[Loop]:
    """The loops of a graph, in order.

    Args:
        lies: the layouts of its values. wanted: the values that are computed straight into buffers of the caller.
    """
    found: list[Loop] = []
    last = -1
    for i in range(len(graph.nodes)):
        if i > last:
            nodes, some = _chain(graph, i, lies, wanted)
            if len(nodes) > 1:
                last = max(nodes)
                found += (x for x in _cut(graph, _loop(graph, nodes, some)) if x.count > 1)
    return found


def at_images(body: Graph, parts: PerImage, some: int) -> Graph:
    """The body of a fused node for `some` images."""
    g = Graph(body.name)
    cut = lambda t: TensorType((some, *t.shape[1:]), t.dtype)
    m = {v: g.add_input(v.name, cut(v.type) if p else v.type) for v, p in zip(body.inputs, parts)}
    m |= {c.value: g.add_constant(c.name, c.data, c.value.type) for c in body.constants.values()}
    for n in body.nodes:
        ins = [None if v is None else m[v] for v in n.inputs]
        types = lookup(n.op).infer_types([None if v is None else v.type for v in ins], n.attrs)
        m.update(zip(n.outputs, g.add_node(n.op, ins, n.attrs, types, n.where).outputs))
    g.take_results(body, m)
    return g


def _chain(
    graph: Graph, start: int, lies: Mapping[Value, Array], wanted: Mapping[Value, Hashable]
) -> tuple[dict[int, PerImage], int]:
    """(the nodes of a loop that begins with node `start`, the number of images of an iteration). Each of the nodes reads a
    large value that one of them made shortly before, or stands between two such nodes."""
    shape = graph.nodes[start].outputs[0].type.shape
    batch = as_int(shape[0]) or 0 if shape else 0
    chain: dict[int, PerImage] = {}
    made: dict[Value, tuple[int, int]] = {}  # by which node, and the bytes that an image had needed before it
    end, total, most, least = start, 0, 0, LAST_CACHE_BYTES
    for i in range(start, len(graph.nodes)):
        n = graph.nodes[i]
        inside = [v for v in n.inputs if v in made]
        parts = _parts(n, batch, lies, wanted)
        if parts is None or not all(p for v, p in zip(n.inputs, parts) if v in made):
            if inside or n.op == "fused" or lookup(n.op).kind != "view":
                break
            continue
        chain[i] = parts
        cache = LAST_CACHE_BYTES
        near = {v for v, (at, before) in made.items() if at <= end and _bytes(v) > cache and total - before <= 2 * cache}
        for each in (_bytes(v) // batch for v in inside if v in near):
            if _at_a_time(batch, max(most, each)) * min(least, each) * MOST_LARGE_ITERATIONS >= LAST_CACHE_BYTES:
                end, most, least = i, max(most, each), min(least, each)
        if i > end and not near:
            break
        for v in n.outputs:
            made[v] = i, total
            total += _bytes(v) // batch
    return {i: parts for i, parts in chain.items() if i <= end}, _at_a_time(batch, most)


def _at_a_time(batch: int, most: int) -> int:
    """How many images of `most` bytes stay in cache: the largest divisor of the batch that does."""
    low = [s for s in range(1, isqrt(batch) + 1) if batch % s == 0]
    return max((s for x in low for s in (x, batch // x) if s * most <= LAST_CACHE_BYTES), default=1)


def _loop(graph: Graph, chain: Mapping[int, PerImage], some: int) -> Loop:
    made = {v for i in chain for v in graph.nodes[i].outputs}
    outside = {v for i, n in enumerate(graph.nodes) if i not in chain for v in n.inputs} | set(graph.results())
    batch = graph.nodes[min(chain)].outputs[0].type.shape[0]
    return Loop(tuple(chain), some, batch // some, frozenset(made - outside), tuple(chain.values()))


def _cut(graph: Graph, loop: Loop) -> list[Loop]:
    """A loop, or several in its place if they move fewer bytes. Filters, which all images share, are read in each iteration, so
    nodes with large filters and small images had better have more images in an iteration than the nodes before them. The values
    between two loops are then written and read for all images."""
    best, moved = [loop], _moved(graph, loop)
    chain = list(zip(loop.nodes, loop.parts))
    for at in range(1, len(chain)):
        pair = [_of_part(graph, dict(part)) for part in (chain[:at], chain[at:])]
        if (less := sum(_moved(graph, x) for x in pair)) < moved:
            best, moved = pair, less
    return best if len(best) == 1 else [y for x in best for y in _cut(graph, x)]


def _of_part(graph: Graph, chain: Mapping[int, PerImage]) -> Loop:
    """Some nodes of a loop as a loop of their own, with as many images in an iteration as stay in cache; all, if no value
    between the nodes is large."""
    read = {v for i in chain for v in graph.nodes[i].inputs}
    inner = (v for i in chain for v in graph.nodes[i].outputs if v in read and _bytes(v) > LAST_CACHE_BYTES)
    batch = as_int(graph.nodes[min(chain)].outputs[0].type.shape[0]) or 1
    return _loop(graph, chain, _at_a_time(batch, max((_bytes(v) // batch for v in inner), default=0)))


def _moved(graph: Graph, loop: Loop) -> int:
    """Bytes that a loop moves from and to memory: what all images share, once, or in each iteration if it is too much to stay
    in cache; and large results that other nodes need, which are written and read."""
    shared = result = 0
    for i, parts in zip(loop.nodes, loop.parts):
        n = graph.nodes[i]
        shared += sum(_bytes(v) for v, part in zip(n.inputs, parts) if v is not None and not part)
        result += sum(_bytes(v) for v in n.outputs if v not in loop.inner and _bytes(v) > LAST_CACHE_BYTES)
    return shared * (loop.count if shared > LAST_CACHE_BYTES else 1) + 2 * result


def _bytes(v: Value) -> int:
    return (as_int(product(v.type.shape)) or 0) * v.type.dtype.size


# ---- what images need ------------------------------------------------------------------------------------------------


def _parts(n: Node, batch: int, lies: Mapping[Value, Array], wanted: Mapping[Value, Hashable]) -> PerImage | None:
    """Which inputs an image of a node's outputs needs only the same image of. None if the node cannot be in a loop: its outputs
    are not `batch` images one after another in memory, they are states, or its images depend on each other."""
    for v in n.outputs:
        a, place = lies[v], wanted.get(v, ("temp",))[0]
        if batch < 2 or not a.ndim or a.shape[0] != batch or a.strides[0] != product(a.shape[1:]):
            return None
        if place not in ("temp", "out"):
            return None
    return _of_op(n) if n.op != "fused" else _of_body(n.attrs["body"], batch)


def _of_op(n: Node) -> PerImage | None:
    op = lookup(n.op)
    if op.kind == "view" or op.whole_batch or None in n.inputs:
        return None
    axes = op.axes_of_parts([None if v is None else v.type for v in n.inputs], n.attrs)
    if axes is None or any(0 in a[1:] for a in axes):
        return None
    return tuple(a[:1] == [0] for a in axes)


def _of_body(body: Graph, batch: int) -> PerImage | None:
    cut = {c.value: False for c in body.constants.values()}
    for n in body.nodes:
        whole = not n.outputs[0].type.ndim or n.outputs[0].type.shape[0] != batch  # the same for all images
        parts = _of_op(n)
        if parts is None:
            return None
        if any(cut.setdefault(v, p and not whole) != (p and not whole) for v, p in zip(n.inputs, parts) if v is not None):
            return None
        cut.update(dict.fromkeys(n.outputs, not whole))
    return tuple(cut.get(v, False) for v in body.inputs) if all(cut[v] for v in body.outputs) else None
