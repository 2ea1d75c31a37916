"""Units: a fused graph as a plan of memory sees it. A unit is a node that becomes kernels; its values are memory that it reads and
writes; views are other strides on the same memory.

In: a graph after fusion, and where its values lie (`Placed`). Out: sizes in bytes, counted operations, an order that frees memory early,
and, for units in any order and any number of times, the graph that runs them so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tengen.base.dtype import bool_, int64
from tengen.base.record import record
from tengen.ir.graph import Constant, Graph, Node, State, Value, attr_graphs, attrs_key, copy_node, graph_key
from tengen.ir.types import TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import product
from tengen.loops.lang import as_int
from tengen.ops.define import lookup
from tengen.passes.inplace import memory_of, over_in
from tengen.passes.lower import Placed

ALIGN_BYTES = 64  # sizes of temporaries are multiples of it (`compiler/arena.py`)
SMALL_BYTES = 256  # smaller values are kept, and smaller states may be copied (what random draws begin with, say)
DISK_FLOPS = 50  # the same from or to a file
PAGE_FLOPS = 1_000_000  # the same for each call of the system
LEAST_PAGED_BYTES = 4096  # smaller values are not written to a file
BYTE_FLOPS = 5  # how many operations take as long as moving a byte from or to memory, about: what units cost beside each other


ONCE = Value(TensorType((), bool_), "once")  # a state that is never there again: of what runs once, as it calls Python


@record(frozen=True)
class Run:
    """One execution of a unit: those of its values that are wanted of it; others are not kept."""

    unit: int
    wanted: tuple[int, ...]


@record
class Units:
    """The units of a graph, in its order, and their values by number.

    Attributes:
        graph: it is not changed. nodes: of each unit. values: what units make, but for views. size: of each value, in bytes of the arena;
            0 for what lies in an output, a state or a check. maker: the unit that makes it. held: whether it has to stay to the end.
        ins: the values that each unit reads; those that no unit makes, which are always there, are not among them. outs: that it makes.
        readers: the units that read each value. needs: for each value those of its unit's operands that it is computed of, and the states.
        after: units that have to run before a unit though it reads nothing of them: the last readers of a state that it overwrites.
        overwritten: for each unit the states that it overwrites, but for tiny ones. flops, cost: of each unit.
        work: bytes of the arena that it uses while it runs, besides its values.
        over: of units that may compute their result over an operand that nobody reads later, the operand.
        store: the key of the store of files that values may be written to; None: they are not. order: for each value that may be, its axes
            from the outermost in memory to the innermost. pages: of a value that is written to a file, the unit that does that and the
            one that reads it, which stand behind those of the graph, `own` in number.
    """

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    maker: list[int] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    ins: list[tuple[int, ...]] = field(default_factory=list)
    outs: list[tuple[int, ...]] = field(default_factory=list)
    readers: list[list[int]] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    overwritten: list[frozenset[Value]] = field(default_factory=list)
    needs: list[tuple[tuple[int, ...], frozenset[Value]]] = field(default_factory=list)
    flops: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    number: dict[Value, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    store: int | None = None
    order: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    own: int = 0
    views: dict[Value, Node] = field(default_factory=dict)  # a view of memory that another value has -> the node that shows it

    @property
    def runs(self) -> list[Run]:
        """Each unit of the graph once, in order."""
        return [Run(i, outs) for i, outs in enumerate(self.outs[: self.own])]

    def page(self, v: int) -> tuple[int, int]:
        """The units that write a value to a file, and read it."""
        if v not in self.pages:
            value, order, first = self.values[v], self.order[v], len(self.nodes)
            ticket = Value(TensorType((), int64), "ticket")
            attrs: dict[str, Any] = {"store": self.store, "order": order}
            out = Node("page_out", [value], dict(attrs), [ticket])
            attrs |= {"shape": value.type.shape, "dtype": value.type.dtype, "what": 1}
            t = self.number[ticket] = len(self.values)
            self.values.append(ticket)
            self.size.append(0)
            self.maker.append(first)
            self.held.append(False)
            self.readers.append([first + 1])
            self.needs.append(((v,), frozenset()))
            for node, ins, outs in ((out, (v,), (t,)), (Node("page_in", [ticket], attrs, [value]), (t,), (v,))):
                self.nodes.append(node)
                self.ins.append(ins)
                self.outs.append(outs)
                self.after.append(())
                self.overwritten.append(frozenset())
                self.flops.append(0)
                self.cost.append(PAGE_FLOPS + DISK_FLOPS * self.size[v])
                self.work.append(0)
            self.pages[v] = first, first + 1
        return self.pages[v]

    def reads(self, r: Run) -> Sequence[int]:
        """The values that a run reads."""
        if len(r.wanted) == len(self.outs[r.unit]):
            return self.ins[r.unit]
        return list(dict.fromkeys(x for v in r.wanted for x in self.needs[v][0]))


def units_of(p: Placed, store: int | None = None) -> Units:
    """The units of a graph whose extents are numbers. store: see `Units`."""
    u, root = Units(p.graph, store=store), {}
    reading: dict[Value, list[int]] = {}  # the units that read a state
    inner = {v: loop.count for loop in p.loops for v in loop.inner}
    states = {s.read for s in p.graph.states.values()}
    for n in p.graph.nodes:
        if n.op != "fused" and lookup(n.op).kind == "view":
            base, array = memory_of(n.outputs[0], p.lies)
            if array is not None:
                u.views[n.outputs[0]] = n
                root[n.outputs[0]] = base
                continue
        reads = list(dict.fromkeys(root.get(v, v) for v in operands(n)))
        at, writes = len(u.nodes), [id[1] for v in n.outputs if (id := p.wanted.get(v, ("",)))[0] == "state"]
        u.nodes.append(n)
        u.ins.append(tuple(u.number[v] for v in reads if v in u.number))
        for v in reads:
            if v in states:
                reading.setdefault(v, []).append(at)
        gone = (p.graph.states[name].read for name in writes)
        u.overwritten.append(frozenset(v for v in gone if bytes_of(v) > SMALL_BYTES))
        for v in n.outputs:
            temporary = p.wanted.get(v, ("temp",))[0] == "temp"
            u.number[v] = len(u.values)
            u.values.append(v)
            u.size.append(0 if not temporary else rounded(bytes_of(v) // inner.get(v, 1)))
            u.maker.append(at)
            u.held.append(False)
            u.readers.append([])
            if store is not None and v not in inner and u.size[-1] >= LEAST_PAGED_BYTES and not v.type.dtype.is_complex:
                u.order[u.number[v]] = tuple(memory_order(p.lies[v]))
            of = [root.get(x, x) for x in (reads if len(n.outputs) == 1 else operands(n, v.index))]
            needed = frozenset((*(x for x in of if x in states), *([ONCE] if _runs_once(n) else [])))
            u.needs.append((tuple(dict.fromkeys(u.number[x] for x in of if x in u.number)), needed))
        u.outs.append(tuple(u.number[v] for v in n.outputs))
        for v in u.ins[-1]:
            u.readers[v].append(at)
        if len(n.outputs) == 1 and u.size[u.outs[-1][0]] and n.outputs[0] not in inner:
            roots = (root.get(v, v) for _, v in over_in(n, p.lies) if v is not None)
            fits = (u.number[v] for v in roots if v in u.number and v not in inner and u.size[u.number[v]] == u.size[u.outs[-1][0]])
            if (x := next(fits, None)) is not None:
                u.over[at] = x
        u.flops.append(flops(n))
        moved = sum(bytes_of(v) for v in (*reads, *n.outputs))
        u.cost.append(u.flops[-1] + BYTE_FLOPS * moved + 1)
        u.work.append(0)
    for v in p.graph.results():
        v = root.get(v, v)
        if v in u.number:
            u.held[u.number[v]] = True
    u.own = len(u.nodes)
    u.after = [tuple({j for v in gone for j in reading.get(v, ()) if j != i}) for i, gone in enumerate(u.overwritten)]
    return u


def _runs_once(n: Node) -> bool:
    """Whether a node, or one inside of it, does more than to compute results."""
    return n.op != "fused" and bool(lookup(n.op).rules.effect or any(_runs_once(m) for g in attr_graphs(n.attrs) for m in g.nodes))


def operands(n: Node, output: int | None = None) -> list[Value]:
    """The inputs of a node whose elements it reads, or needs for one of its outputs: of others it uses the type alone (the rule "typed")."""
    if n.op != "fused":
        typed = lookup(n.op).rules.typed
        return [v for i, v in enumerate(n.inputs) if v is not None and i not in typed]
    body: Graph = n.attrs["body"]
    if output is None:
        read = {v for m in body.nodes for v in operands(m)}
    else:
        read = {body.outputs[output]}
        for m in reversed(body.nodes):
            if not read.isdisjoint(m.outputs):
                read.update(operands(m))
    return [v for v, w in zip(n.inputs, body.inputs) if w in read]


def bytes_of(v: Value) -> int:
    """The bytes of a value's elements; 0 where an extent is no number."""
    return (as_int(product(v.type.shape)) or 0) * v.type.dtype.size


def rounded(n: int) -> int:
    """Bytes that a temporary takes in the arena."""
    return -(-n // ALIGN_BYTES) * ALIGN_BYTES


def problem(n: Node) -> tuple:
    """A key under which nodes that become the same kernels are equal."""
    what = graph_key(n.attrs["body"]) if n.op == "fused" else (n.op, attrs_key(n.attrs))
    return what, tuple(None if v is None else v.type for v in n.inputs)


# ---- operations --------------------------------------------------------------------------------------------------------


def flops(n: Node) -> int:
    """Operations on numbers that a node needs, counted from the extents: a multiply-add of a contraction is two, each element of
    anything else is one for each of the node's operations."""
    if n.op == "fused":
        return sum(flops(m) for m in n.attrs["body"].nodes)
    op = lookup(n.op)
    if op.kind == "view":
        return 0
    size = lambda v: as_int(product(v.type.shape)) or 0
    if n.op in _CONTRACTIONS:
        return _CONTRACTIONS[n.op](n, size)
    inside = sum(flops(m) for g in attr_graphs(n.attrs) for m in g.nodes)
    return max((size(v) for v in (*n.inputs, *n.outputs) if v is not None), default=0) + inside


def _terms(v: Value) -> int:
    """Filters (O, I, ...): products that each output is a sum of."""
    return as_int(product(v.type.shape[1:])) or 0


_CONTRACTIONS: dict[str, Callable[[Node, Callable[[Value], int]], int]] = {
    "matmul": lambda n, size: 2 * size(n.outputs[0]) * (as_int(_summed(n)) or 0),
    "conv": lambda n, size: 2 * size(n.outputs[0]) * _terms(n.inputs[1]),
    "conv_transposed": lambda n, size: 2 * size(n.inputs[0]) * _terms(n.inputs[1]),
    "conv_weight_grad": lambda n, size: 2 * min(size(v) // max(as_int(v.type.shape[1]) or 1, 1) for v in n.inputs[:2]) * size(n.outputs[0]),
    "attention": lambda n, size: 4 * size(n.inputs[0]) * (as_int(n.inputs[1].type.shape[-2]) or 0),
    "attention_int": lambda n, size: 4 * size(n.inputs[0]) * (as_int(n.inputs[1].type.shape[-2]) or 0),
    "attention_grad": lambda n, size: 10 * size(n.outputs[0]) * (as_int(n.outputs[1].type.shape[-2]) or 0),
}


def _summed(n: Node):
    x, axis = n.inputs[0].type, -1
    return x.shape[-2 if n.attrs["transpose_a"] and x.ndim > 1 else axis]


# ---- order -------------------------------------------------------------------------------------------------------------


def freeing_order(u: Units) -> list[int]:
    """The units in the order of the graph, except that one which frees more than it makes runs as soon as it can: the update of a
    parameter frees its gradient."""
    readers: list[set[int]] = [set() for _ in u.values]
    behind: list[list[int]] = [[] for _ in u.nodes]  # units that wait for a unit
    waits = [0] * len(u.nodes)
    for i, ins in enumerate(u.ins):
        before = {u.maker[v] for v in ins} | set(u.after[i])
        waits[i] = len(before)
        for j in before:
            behind[j].append(i)
        for v in ins:
            readers[v].add(i)
    order: list[int] = []
    done = [False] * len(u.nodes)
    ready: dict[int, None] = {}

    def frees(i: int) -> int:
        gone = sum(u.size[v] for v in u.ins[i] if readers[v] == {i} and not u.held[v])
        return gone - sum(u.size[v] for v in u.outs[i])

    def run(i: int) -> list[int]:
        done[i] = True
        order.append(i)
        ready.pop(i, None)
        near = set()
        for v in u.ins[i]:
            readers[v].discard(i)
            if len(readers[v]) == 1:
                near |= readers[v]
        for j in behind[i]:
            waits[j] -= 1
            if not waits[j]:
                ready[j] = None
                near.add(j)
        return sorted(j for j in near if j in ready)

    for i in range(len(u.nodes)):
        if done[i]:
            continue
        near = run(i)
        while near:
            j = near.pop(0)
            if j in ready and frees(j) > 0 and j != i + 1:
                near += run(j)
    return order


# ---- lifetimes ---------------------------------------------------------------------------------------------------------


def pruned(u: Units, runs: Sequence[Run]) -> list[Run]:
    """The runs without those values that nobody reads, and without runs of which nothing is wanted."""
    read: set[int] = {i for i, held in enumerate(u.held) if held}
    kept: list[Run] = []
    for r in reversed(runs):
        first = tuple(v for v in r.wanted if v in read or (u.size[v] == 0 and u.held[v]))
        if not first:
            continue
        read.difference_update(v for v in first if not u.held[v])
        kept.append(Run(r.unit, first))
        read.update(u.reads(kept[-1]))
    return kept[::-1]


def peak(u: Units, runs: Sequence[Run]) -> int:
    """The most bytes that are held at once."""
    last: dict[int, int] = {}
    change = [0] * (len(runs) + 2)
    made: dict[int, int] = {}

    over = [u.over.get(r.unit) for r in runs]

    def close(v: int) -> None:
        end = last[v]
        change[made[v]] += u.size[v]
        change[end if end < len(runs) and over[end] == v and not u.held[v] else end + 1] -= u.size[v]

    for at, r in enumerate(runs):
        for v in u.reads(r):
            last[v] = at
        for v in r.wanted:
            if v in made:
                close(v)
            made[v] = last[v] = at
    for v in made:
        if u.held[v]:
            last[v] = len(runs)
        close(v)
    total = most = 0
    for at, r in enumerate(runs):
        total += change[at]
        most = max(most, total + u.work[r.unit])
    return most


def least(u: Units) -> int:
    """A lower bound of the peak of any order and any recomputing: a unit's operands and results are there at the same time."""
    both = (sum(u.size[v] for v in {*ins, *outs}) for ins, outs in zip(u.ins, u.outs))
    shared = (u.size[u.over[i]] if i in u.over and not u.held[u.over[i]] else 0 for i in range(len(u.nodes)))
    return max((n - s + w for n, s, w in zip(both, shared, u.work)), default=0)


# ---- back to a graph ---------------------------------------------------------------------------------------------------


def written_out(u: Units, runs: Iterable[Run]) -> Graph:
    """The graph that runs the units so. Bodies of fused nodes are nodes of the graph again, which may be fused anew."""
    old = u.graph
    g = Graph(old.name)
    m: dict[Value, Value] = {v: Value(v.type, v.name) for v in old.sources()}
    g.inputs = [m[v] for v in old.inputs]
    g.constants = {c.name: Constant(c.name, m[c.value], c.data) for c in old.constants.values()}
    g.states = {s.name: State(s.name, m[s.read]) for s in old.states.values()}
    numbers: dict[tuple, Value] = {}  # constants of bodies
    shows: dict[Value, list[Value]] = {}  # views of a value that the graph has now

    def get(v: Value) -> Value:
        if v not in m:  # a view of memory that has been computed again
            n = u.views[v]
            below = n.inputs[0]
            assert below is not None
            m[v] = copy_node(g, n, {below: get(below)}).outputs[0]
            shows.setdefault(below, []).append(v)
        return m[v]

    def forget(v: Value) -> None:
        for x in shows.pop(v, ()):
            m.pop(x, None)
            forget(x)

    runs = list(runs)
    reads = {r.unit: at for at, r in enumerate(runs) if u.nodes[r.unit].op == "page_in"}  # the last of each value
    for at, r in enumerate(runs):
        n = u.nodes[r.unit]
        inputs: dict[Value | None, Value] = {v: get(v) for v in n.inputs if v is not None}
        made = _inlined(g, n, inputs, numbers) if n.op == "fused" else copy_node(g, n, inputs).outputs
        if n.op == "page_in":
            g.nodes[-1].attrs["what"] = 2 if at == reads[r.unit] else 1
        for v, new in zip(n.outputs, made):
            if u.number[v] in r.wanted:
                m[v] = new
                forget(v)
    g.take_results(old, {v: get(v) for v in old.results()})
    return g


def _inlined(g: Graph, n: Node, inputs: Mapping[Value | None, Value], numbers: dict[tuple, Value]) -> list[Value]:
    body: Graph = n.attrs["body"]
    m = {v: inputs[w] for v, w in zip(body.inputs, n.inputs) if w is not None}
    for c in body.constants.values():
        key = c.value.type, c.data.tobytes()
        if key not in numbers:
            numbers[key] = g.add_constant(f"number.{len(numbers)}", c.data, c.value.type)
        m[c.value] = numbers[key]
    for x in body.nodes:
        m.update(zip(x.outputs, copy_node(g, x, m).outputs))
    return [m[v] for v in body.outputs]
