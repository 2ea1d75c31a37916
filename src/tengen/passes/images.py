"""Images one after the other: which nodes of a graph become a loop over parts of their first axis.

In: a graph whose extents are numbers, and how its values lie. Out: `Loop`s, runs of nodes whose results depend on the same part
of what they read (a convolution and what follows it, of the same images) and between which lies more than stays in cache: part
by part, a value is read where it was just written, and needs the memory of one part. Only when something is computed changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from tengen.base.errors import VerifyError
from tengen.ir.graph import Graph, Node, Value
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, product
from tengen.loops.lang import Index, as_int
from tengen.ops.define import lookup

KEPT = 8  # second caches: what of the last one a program can count on, which others share


@dataclass(frozen=True)
class Loop:
    """Nodes that run `count` times, each time for `some` images.

    Attributes:
        nodes: their positions in the graph. inner: values that only they read, of which the memory of `some` images is enough.
        parts: for each node and each of its inputs, whether it reads the same images of it, or all of it.
    """

    nodes: tuple[int, ...]
    some: int
    count: int
    inner: frozenset[Value]
    parts: tuple[tuple[bool, ...], ...]

    def part(self, a: Array, step: Index) -> Array:
        """The images of a time round."""
        return replace(a, shape=(self.some, *a.shape[1:]), offset=a.offset + step * (self.some * a.strides[0]))


def find_loops(graph: Graph, lies: Mapping[Value, Array], wanted: Mapping[Value, Hashable], target) -> list[Loop]:
    """The loops of a graph, in order.

    Args:
        lies: how its values lie. wanted: those that are computed straight into buffers of the caller.
    """
    kept = KEPT * target.l2_bytes
    found, i = [], 0
    while i < len(graph.nodes):
        chain = _chain(graph, i, lies, wanted, kept)
        if len(chain) > 1 and (loop := _loop(graph, chain, kept)) is not None:
            found.append(loop)
            i = loop.nodes[-1]
        i += 1
    return found


def at_images(body: Graph, parts: Mapping[Value, bool], some: int) -> Graph:
    """The body of a fused node for `some` images. parts: which of its inputs are of images."""
    g = Graph(body.name)
    m = {v: g.add_input(v.name, _of_images(v.type, some) if parts[v] else v.type) for v in body.inputs}
    m |= {c.value: g.add_constant(c.name, c.data, c.value.type) for c in body.constants.values()}
    for n in body.nodes:
        ins = [None if v is None else m[v] for v in n.inputs]
        types = lookup(n.op).infer_types([None if v is None else v.type for v in ins], n.attrs)
        m.update(zip(n.outputs, g.add_node(n.op, ins, n.attrs, types, n.where).outputs))
    g.take_results(body, m)
    return g


def _of_images(t: TensorType, some: int) -> TensorType:
    return TensorType((some, *t.shape[1:]), t.dtype)


def _chain(graph: Graph, start: int, lies, wanted, kept: int) -> dict[int, tuple[bool, ...]]:
    """Nodes from `start` on, with what they need of their inputs. The last of them reads something large that one before it made,
    little enough of each image before that it is still in cache; views of other values may lie between."""
    first = graph.nodes[start].outputs[0].type
    batch = first.shape[0] if first.ndim else 0
    chain: dict[int, tuple[bool, ...]] = {}
    made: dict[Value, int] = {}  # and the bytes of an image of all that was made before it
    end, total = start, 0
    for i in range(start, len(graph.nodes)):
        n = graph.nodes[i]
        mine = [v for v in n.inputs if v in made]
        parts = _parts(n, batch, lies, wanted)
        if parts is not None and all(p for v, p in zip(n.inputs, parts) if v in made):
            if any(_bytes(v) > kept and total - made[v] <= kept for v in mine):
                end = i
            chain[i] = parts
            for v in n.outputs:
                made[v] = total
                total += _bytes(v) // batch
        elif mine or n.op == "fused" or lookup(n.op).kind != "view":
            break
    return {i: parts for i, parts in chain.items() if i <= end}


def _parts(n: Node, batch: int, lies, wanted) -> tuple[bool, ...] | None:
    """`split`, for a node whose outputs' images lie one after the other, in no state."""
    if any(not _outermost(lies[v]) or wanted.get(v, ("temp",))[0] not in ("temp", "out") for v in n.outputs):
        return None
    return split(n, batch)


def _loop(graph: Graph, chain: Mapping[int, tuple[bool, ...]], kept: int) -> Loop | None:
    """The chain as a loop of as many images as stay in cache; None where that leaves too little to do at a time."""
    nodes = [graph.nodes[i] for i in chain]
    made = {v for n in nodes for v in n.outputs}
    read = [v for n in nodes for v in n.inputs if v in made]
    batch = nodes[0].outputs[0].type.shape[0]
    most = max(map(_bytes, read)) // batch
    some = max(s for s in range(1, batch + 1) if batch % s == 0 and (s == 1 or s * most <= kept))
    if some == batch or some * most * 8 < kept:
        return None
    outside = {v for i, n in enumerate(graph.nodes) if i not in chain for v in n.inputs} | set(graph.results())
    return Loop(tuple(chain), some, batch // some, frozenset(made - outside), tuple(chain.values()))


def _bytes(v: Value | None) -> int:
    return 0 if v is None else product(v.type.shape) * v.type.dtype.size  # type: ignore[return-value]


def _outermost(a: Array) -> bool:
    """Whether images lie one after the other."""
    return a.ndim > 0 and as_int(a.strides[0]) == product(a.shape[1:])


def split(n: Node, batch: int) -> tuple[bool, ...] | None:
    """For each input of a node, whether an image of its outputs needs the same image of it alone, or all of it; None where an
    image needs something else."""
    if batch < 2 or any(v.type.ndim == 0 or v.type.shape[0] != batch for v in n.outputs):
        return None
    if n.op != "fused":
        return _split(n)
    body: Graph = n.attrs["body"]
    parts: dict[Value, bool] = {c.value: False for c in body.constants.values()}
    for m in body.nodes:
        of = _split(m)
        whole = m.outputs[0].type.ndim == 0 or m.outputs[0].type.shape[0] != batch
        if whole and of is not None:
            of = (False,) * len(m.inputs)
        if of is None or any(v is not None and parts.setdefault(v, p) != p for v, p in zip(m.inputs, of)):
            return None
        parts.update(dict.fromkeys(m.outputs, not whole))
    if not all(parts[v] for v in body.outputs):
        return None
    return tuple(parts.get(v, False) for v in body.inputs)


def _split(n: Node) -> tuple[bool, ...] | None:
    rule = lookup(n.op).rules.get("split")
    if rule is None or None in n.inputs:
        return None
    return rule([v.type for v in n.inputs if v is not None], **n.attrs)
