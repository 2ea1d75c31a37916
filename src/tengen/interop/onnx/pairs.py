"""Operators of floats between DequantizeLinear and QuantizeLinear (QDQ models) as operators of integers.

    x -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear      becomes      x -> QLinearConv -> Clip

In: a graph as it was read. Out: a graph in which such operators are the ones of integers that onnxruntime puts in their place (QLinearConv,
QGemm, QLinearAdd ...), and for each operator that still computes in floats between integers the reason. Results may be one step of the integer
beside those of the float operators, which round their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tengen.base.record import record
from tengen.interop.onnx.reader import GraphOf, NodeOf, Source, bodies, reads

MS = "com.microsoft"
CONV = "tengen.ConvIntegerToFloat"  # (data, weights, their scales, their zero points, bias in int32, bias in float32) -> float32
BIAS = "tengen.BiasCodes"  # (bias, scale of the data, scale of the weights) -> int32, in units of the product's scale
MOVES = {  # what they do to numbers, they do to the integers that stand for them
    "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
}  # fmt: skip
QUANTIZE, DEQUANTIZE = ("QuantizeLinear", f"{MS}.QuantizeLinear"), ("DequantizeLinear", f"{MS}.DequantizeLinear")


class Stays(Exception):
    """Why an operator goes on in floats."""


@record(frozen=True)
class Codes:
    """Integers that stand for a tensor: the names of their values, their scale and their zero point ("": 0), whose numbers are known.

    Attributes:
        axis: along which there are several scales; None: one for all. ndim: of the tensor, where it is known.
    """

    codes: str
    scale: str
    zero: str
    dtype: np.dtype
    scales: np.ndarray
    zeros: np.ndarray
    axis: int | None
    ndim: int | None

    def same(self, other: Codes) -> bool:
        """Whether the integers mean the same numbers."""
        one = self.axis is None and other.axis is None and self.dtype == other.dtype
        return one and self.scales.item() == other.scales.item() and self.zeros.item() == other.zeros.item()

    def code(self, v: float) -> int:
        """The integer that stands for a number."""
        info = np.iinfo(self.dtype)
        with np.errstate(over="ignore"):
            q = np.rint(np.float32(v) / self.scales.reshape(-1)[0].astype(np.float32))
        return int(np.clip(float(q) + int(self.zeros.reshape(-1)[0]), info.min, info.max))


def in_integers(source: Source) -> tuple[GraphOf, dict[str, str]]:
    """(The graph with operators of integers, why others compute in floats: by the name of the node).

    In files that `save` wrote, only products and what moves integers are such: the others were computed in floats there too. Bodies of If,
    Loop and Scan are rewritten too; they may read integers, scales and weights of the graphs around them."""
    graph = source.graph
    every = list(within(graph))
    of_codes = [n for g in every for n in g.nodes if n.what in QUANTIZE or n.what in DEQUANTIZE]
    # what is broken is said when the network runs
    broken = any(len(n.inputs) < 2 for n in of_codes) or not all(n.outputs for g in every for n in g.nodes)
    if broken or not any(n.what in DEQUANTIZE for n in of_codes):
        return graph, {}
    forms = {op: form for op, form in FORMS.items() if source.producer != "tengen" or op in UNQUANTISED | MOVES}
    return Pairs(graph, None, dict.fromkeys((name for g in every for name in own_names(g)), 0), forms).rewritten()


def within(graph: GraphOf) -> Iterator[GraphOf]:
    """A graph, and all in it."""
    yield graph
    for n in graph.nodes:
        for g in bodies(n):
            yield from within(g)


def own_names(graph: GraphOf) -> set[str]:
    """The names that stand for values of the graph itself."""
    return {*(p.name for p in graph.inputs), *graph.arrays, *(o for n in graph.nodes for o in n.outputs)}


class Pairs:
    """The rewriting of one graph.

    Attributes:
        around: that of the graph around it. taken: the names in the whole network, shared by all its graphs, each with how many names were
            made of it. forms: what makes operators of integers, by operators of floats.
    """

    def __init__(self, graph: GraphOf, around: Pairs | None, taken: dict[str, int], forms: Mapping[str, Form]):
        self.graph, self.around, self.taken, self.forms = graph, around, taken, forms
        self.makers = {o: n for n in graph.nodes for o in n.outputs if o}
        self.readers: dict[str, list[NodeOf]] = {}
        for n in graph.nodes:
            for name in set(reads(n)):
                self.readers.setdefault(name, []).append(n)
        self.ends, self.own = {p.name for p in graph.outputs}, own_names(graph)
        bound = {p.name for p in graph.inputs}
        self.constants = {name: a for name, a in graph.arrays.items() if name not in bound}
        self.arrays: dict[str, np.ndarray] = {}
        self.made: dict[int, list[NodeOf]] = {}  # by the id of the node in whose place they stand
        self.gone: set[int] = set()
        self.why: dict[str, str] = {}

    def rewritten(self) -> tuple[GraphOf, dict[str, str]]:
        """What `in_integers` gives."""
        for n in self.graph.nodes:
            if n.what in QUANTIZE:
                self.try_to(lambda n=n: self.quantised(n))
        for n in self.graph.nodes:
            if n.what in UNQUANTISED and id(n) not in self.gone and self.among(n):
                self.try_to(lambda n=n: self.finish(n, [], None, n))
        inside: dict[str, str] = {}
        nodes: list[NodeOf] = []
        for n in self.graph.nodes:
            nodes += self.made.get(id(n), [] if id(n) in self.gone else [self.with_bodies(n, inside)])
        graph = replace(self.graph, nodes=self.needed(nodes), arrays={**self.graph.arrays, **self.arrays})
        return graph, {**inside, **self.in_floats(nodes)}

    def with_bodies(self, n: NodeOf, why: dict[str, str]) -> NodeOf:
        """The node with its graphs rewritten; `why` takes what stays in floats there."""

        def changed(v: Any) -> Any:
            if isinstance(v, list):
                return [changed(g) for g in v]
            if not isinstance(v, GraphOf):
                return v
            graph, left = Pairs(v, self, self.taken, self.forms).rewritten()
            why.update(left)
            return graph

        return replace(n, attributes={k: changed(v) for k, v in n.attributes.items()}) if any(bodies(n)) else n

    def try_to(self, change: Callable[[], None]) -> None:
        """Changes a group of nodes, or notes why not."""
        try:
            change()
        except Stays as e:
            n, reason = e.args
            self.why[label(n)] = reason

    def needed(self, nodes: Sequence[NodeOf]) -> tuple[NodeOf, ...]:
        """The nodes without those that make numbers of integers for nobody."""
        read = {name for n in nodes for name in reads(n)} | self.ends
        return tuple(n for n in nodes if n.what not in DEQUANTIZE or any(o in read for o in n.outputs))

    def in_floats(self, nodes: Sequence[NodeOf]) -> dict[str, str]:
        """Why nodes that read numbers made of 8-bit integers compute with those."""
        left = {}
        for n in nodes:
            if n.what not in QUANTIZE and self.among(n):
                usual = "its result is not quantised" if n.what in self.forms else "it has no form of integers here"
                left[label(n)] = f"{n.op}: {self.why.get(label(n), usual)}"
        return left

    # -- values ----------------------------------------------------------------------------------------------------------
    def known(self, name: str) -> np.ndarray | None:
        """The array that a name stands for, if that is known."""
        while (n := self.makers.get(name)) is not None and n.what == "Identity" and n.inputs:
            name = n.inputs[0]
        if name in self.constants:
            return self.constants[name]
        if name not in self.own:
            return None if self.around is None else self.around.known(name)
        if n is None or n.what != "Constant":
            return None
        for key, dtype in (("value", None), ("value_float", np.float32), ("value_int", np.int64)):
            if key in n.attributes:
                return np.asarray(n[key], dtype)
        return None

    def pair(self, n: NodeOf, codes: str, given: np.dtype | None) -> Codes | None:
        """The integers of a Quantize- or DequantizeLinear, with 8 bits and known scales. given: their dtype where there is no zero point."""
        inputs = [*n.inputs, "", ""]
        scales, zeros = self.known(inputs[1]), self.known(inputs[2]) if inputs[2] else None
        axis = n.get("axis", 1)
        if scales is None or (inputs[2] and zeros is None) or n.get("block_size", 0) or not isinstance(axis, int):
            return None
        dtype = given if zeros is None else zeros.dtype
        if dtype is None or dtype.name not in ("int8", "uint8", "int32") or scales.dtype != np.float32 or scales.ndim > 1:
            return None
        if not (np.isfinite(scales) & (scales > 0)).all() or not scales.size:
            return None
        zeros = np.zeros(scales.shape, dtype) if zeros is None else zeros
        if zeros.size not in (1, scales.size):
            return None
        array = self.known(codes)
        axis = None if scales.size == 1 else axis
        return Codes(codes, inputs[1], inputs[2], dtype, scales, zeros, axis, None if array is None else array.ndim)

    def codes(self, name: str) -> Codes | None:
        """The integers of which DequantizeLinear makes a value, also one of a graph around this one."""
        if name not in self.own and self.around is not None:
            return self.around.codes(name)
        n = self.makers.get(name)
        if n is None or n.what not in DEQUANTIZE or not n.inputs:
            return None
        array, maker = self.known(n.inputs[0]), self.makers.get(n.inputs[0])
        given = None if array is None else array.dtype
        if maker is not None and maker.what in QUANTIZE:
            made = self.pair(maker, n.inputs[0], np.dtype(np.uint8) if not maker.get("output_dtype", 0) else None)
            given = None if made is None else made.dtype
            weights = self.known(maker.inputs[0]) if maker.inputs else None
            array = weights if array is None else array
        found = self.pair(n, n.inputs[0], given)
        return found and replace(found, ndim=None if array is None else array.ndim)

    def hidden(self, name: str, c: Codes) -> bool:
        """Whether a value is of a graph around this one, and a name of its integers stands for something else here."""
        here: Pairs | None = self
        while here is not None and name not in here.own:
            if here.own & {c.codes, c.scale, c.zero} - {""}:
                return True
            here = here.around
        return False

    def among(self, n: NodeOf) -> bool:
        """Whether a node reads numbers that integers of 8 bits stand for."""
        return any((c := self.codes(i)) is not None and c.dtype.itemsize == 1 for i in n.inputs if i)

    def array(self, a: np.ndarray) -> str:
        """The name of a new array."""
        return self.enter(self.fresh("known"), a)

    def enter(self, name: str, a: np.ndarray) -> str:
        self.arrays[name] = a
        return name

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        base = made = f"{name}__codes"
        while made in self.taken:
            self.taken[base] = self.taken.get(base, 0) + 1
            made = f"{base}{self.taken[base]}"
        self.taken[made] = 0
        return made

    def zero(self, c: Codes) -> str:
        """The name of a zero point, also of an absent one."""
        return c.zero or self.array(np.zeros((), c.dtype))

    def three(self, c: Codes) -> tuple[str, str, str]:
        """Integers, scale and zero point as operators of integers read them."""
        return c.codes, c.scale, self.zero(c)

    # -- groups ----------------------------------------------------------------------------------------------------------
    def quantised(self, q: NodeOf) -> None:
        """The operator that ends with a QuantizeLinear, through bounds that follow it."""
        bounds: list[NodeOf] = []
        name = next(iter(q.inputs), "")
        n = self.makers.get(name)
        while n is not None and n.what in ("Relu", "Clip") and n.inputs and self.codes(n.inputs[0]) is None:
            self.alone(name, n)
            bounds.append(n)
            name = n.inputs[0]
            n = self.makers.get(name)
        if n is None or n.what in DEQUANTIZE or not self.among(n):
            return
        if n.what not in self.forms:
            raise Stays(n, "it has no form of integers here")
        self.alone(name, n)
        y = self.pair(q, q.outputs[0], np.dtype(np.uint8) if not q.get("output_dtype", 0) else None)
        if y is None or y.axis is not None or y.dtype.itemsize != 1:
            raise Stays(n, "its result does not become integers of 8 bits with one known scale")
        self.finish(n, bounds[::-1], y, q)

    def alone(self, name: str, n: NodeOf) -> None:
        """Errors: Stays where somebody else reads a result in floats."""
        if name in self.ends or len(self.readers.get(name, ())) != 1:
            raise Stays(n, "its result is also read as floats")

    def finish(self, n: NodeOf, bounds: Sequence[NodeOf], y: Codes | None, place: NodeOf) -> None:
        """Puts the operator of integers in the place of the node that ends the group."""
        low, high = (None, None) if y is None else self.limits(n, bounds, y)
        out = y.codes if y is not None and low is None and high is None else self.fresh(n.outputs[0]) if y is not None else n.outputs[0]
        ins = [self.codes(i) if i else None for i in n.inputs]
        if hidden := [i for i, c in zip(n.inputs, ins) if c is not None and self.hidden(i, c)]:
            raise Stays(n, f"its body gives a name of the integers of {hidden[0]} to something else")
        made = self.forms[n.what](self, n, [*ins, *[None] * (3 - len(ins))], y, out)
        if y is not None and out != y.codes:
            ends = [self.array(np.array(v, y.dtype)) if v is not None else "" for v in (low, high)]
            made.append(NodeOf("Clip", "", label(n), (out, *ends), (y.codes,), {}, 13))
        self.made[id(place)] = made
        self.gone.update(map(id, (n, *bounds)))
        self.gone.discard(id(place))

    def limits(self, n: NodeOf, bounds: Sequence[NodeOf], y: Codes) -> tuple[int | None, int | None]:
        """The least and the largest integer that bounds leave, None for those of the dtype."""
        info = np.iinfo(y.dtype)
        low, high = int(info.min), int(info.max)
        for b in bounds:
            if b.op == "Relu":
                ends: list[Any] = [0.0, None]
            elif b.since < 11:
                ends = [b.get("min"), b.get("max")]
            else:
                given = [self.known(i) if i else None for i in (*b.inputs[1:], "", "")[:2]]
                if any(i and (a is None or a.dtype != np.float32 or a.size != 1) for i, a in zip(b.inputs[1:], given)):
                    raise Stays(n, "its bounds are computed")
                ends = [None if a is None else float(a.item()) for a in given]
            if any(e is not None and np.isnan(e) for e in ends):
                raise Stays(n, "its bounds are no numbers")
            low = low if ends[0] is None else max(low, y.code(ends[0]))
            high = high if ends[1] is None else max(min(high, y.code(ends[1])), info.min)
            if low > high:
                raise Stays(n, "its bounds cross")
        return (low if low > info.min else None), (high if high < info.max else None)


def label(n: NodeOf) -> str:
    """What names a node in a report."""
    return n.name or next(iter(n.outputs), n.op)


def narrow(n: NodeOf, c: Codes | None, what: str, axis: int | None = None) -> Codes:
    """Integers of 8 bits with one scale, or several along an axis. Errors: Stays."""
    if c is None or c.dtype.itemsize != 1:
        raise Stays(n, f"{what} is not made of integers of 8 bits with known scales")
    if c.axis is not None:
        if axis is None or c.ndim is None and min(c.axis, axis) < 0:
            raise Stays(n, f"{what} has several scales")
        if c.axis % (c.ndim or 1 << 30) != axis % (c.ndim or 1 << 30):
            raise Stays(n, f"{what} has scales along axis {c.axis}")
    return c


def bias_of(p: Pairs, n: NodeOf, name: str, c: Codes | None, x: Codes, w: Codes, alpha: float = 1.0) -> tuple[list[NodeOf], str]:
    """(Nodes that make them, int32 in units of the product's scale) of a bias."""
    if not name:
        return [], ""
    with np.errstate(over="ignore", under="ignore"):
        units = np.float32(alpha) * x.scales.reshape(()) * w.scales.reshape(-1)
    if c is not None and c.dtype == np.int32:
        if c.zeros.any() or c.scales.size not in (1, units.size) or not np.allclose(c.scales.reshape(-1), units, rtol=1e-5, atol=0):
            raise Stays(n, "its bias has another scale than its products")
        return [], c.codes
    a = p.known(name)
    if a is None or a.dtype != np.float32 or a.ndim != 1:
        raise Stays(n, "its bias is neither int32 nor a vector of floats that is known")
    made, (domain, op) = p.fresh(name), BIAS.split(".")
    return [NodeOf(op, domain, label(n), (name, x.scale, w.scale), (made,), {"alpha": alpha})], made


def conv(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    x, w = narrow(n, ins[0], "its image"), narrow(n, ins[1], "its filter", 0)
    third = (*n.inputs, "", "")[2]
    if y is None:  # an exact product, and a bias in floats
        coded, bias = bias_of(p, n, third, ins[2], x, w)[1] if ins[2] is not None else "", third if ins[2] is None else ""
        domain, op = CONV.split(".")
        inputs = (x.codes, w.codes, x.scale, w.scale, p.zero(x), p.zero(w), coded, bias)
        return [NodeOf(op, domain, label(n), inputs, (out,), n.attributes, 10)]
    made, bias = bias_of(p, n, third, ins[2], x, w)
    inputs = (*p.three(x), *p.three(w), y.scale, p.zero(y), bias)
    return [*made, NodeOf("QLinearConv", "", label(n), inputs, (out,), n.attributes, 10)]


def matmul(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    a, b = narrow(n, ins[0], "its first matrix"), narrow(n, ins[1], "its second matrix", -1)
    if b.axis is not None and b.ndim != 2:
        raise Stays(n, "its second matrix has several scales and other axes than two")
    if y is not None:
        return [NodeOf("QLinearMatMul", "", label(n), (*p.three(a), *p.three(b), y.scale, p.zero(y)), (out,), {}, 10)]
    return [NodeOf("MatMulIntegerToFloat", MS, label(n), (a.codes, b.codes, a.scale, b.scale, p.zero(a), p.zero(b)), (out,), {})]


def gemm(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    a, b = narrow(n, ins[0], "its first matrix"), narrow(n, ins[1], "its second matrix", 0 if n.get("transB", 0) else 1)
    third = (*n.inputs, "", "")[2]
    if third and n.get("beta", 1.0) != 1.0:
        raise Stays(n, "its bias has a factor")
    made, bias = bias_of(p, n, third, ins[2], a, b, n.get("alpha", 1.0))
    ends = (y.scale, p.zero(y)) if y is not None else ()
    attributes = {k: n[k] for k in ("alpha", "transA", "transB") if k in n.attributes}
    return [*made, NodeOf("QGemm", MS, label(n), (*p.three(a), *p.three(b), bias, *ends), (out,), attributes)]


def binary(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    a, b = narrow(n, ins[0], "its first operand"), narrow(n, ins[1], "its second operand")
    assert y is not None
    if not a.dtype == b.dtype == y.dtype:
        raise Stays(n, "its operands and its result are integers of several dtypes")
    return [NodeOf(f"QLinear{n.op}", MS, label(n), (*p.three(a), *p.three(b), y.scale, p.zero(y)), (out,), {})]


def global_average(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    x = narrow(n, ins[0], "its image")
    assert y is not None
    if x.dtype != y.dtype:
        raise Stays(n, "its operand and its result are integers of several dtypes")
    return [NodeOf("QLinearGlobalAveragePool", MS, label(n), (*p.three(x), y.scale, p.zero(y)), (out,), {"channels_last": 0})]


def concat(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    parts = [narrow(n, c, f"its part {i}") for i, c in enumerate(ins[: len(n.inputs)])]
    assert y is not None
    if all(c.same(y) for c in parts):
        return [replace(n, inputs=tuple(c.codes for c in parts), outputs=(out,))]
    if any(c.dtype != y.dtype for c in parts):
        raise Stays(n, "its parts and its result are integers of several dtypes")
    inputs = (y.scale, p.zero(y), *(name for c in parts for name in p.three(c)))
    return [NodeOf("QLinearConcat", MS, label(n), inputs, (out,), {"axis": n["axis"]})]


def move(p: Pairs, n: NodeOf, ins: list[Codes | None], y: Codes | None, out: str) -> list[NodeOf]:
    x = narrow(n, ins[0], "its operand")
    assert y is not None
    if not x.same(y) or sum(map(bool, n.outputs)) != 1:
        raise Stays(n, "its result has another scale than its operand")
    return [replace(n, inputs=(x.codes, *n.inputs[1:]), outputs=(out,))]


Form = Callable[[Pairs, NodeOf, list[Codes | None], Codes | None, str], list[NodeOf]]
FORMS: Mapping[str, Form] = {
    "Conv": conv, "MatMul": matmul, "Gemm": gemm, "Add": binary, "Mul": binary, "GlobalAveragePool": global_average, "Concat": concat,
    **dict.fromkeys(MOVES, move),
}  # fmt: skip
UNQUANTISED = {"Conv", "MatMul", "Gemm"}  # those that also give floats
