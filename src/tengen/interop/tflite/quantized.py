"""int8 networks on their way out: integers that stand for numbers are tensors with a scale, and layers read and write them.

before: %s = conv_int(%q, %w); %f = dequantize_linear(%s, %c); %y = relu(%f + %b); %r = quantize_linear(%y, %t)
after:  CONV_2D of int8 with a bias of int32, that ends with RELU and whose result has the scale %t

In: a graph. Out: the same with numbers turned into integers as early, and back as late, as nothing changes by it (`settled`), and what
layers there are for nodes that quantise (`plans`); then the operators. Numbers that are in no such layer stay float32, between
DEQUANTIZE and QUANTIZE. Integers of uint8 are those of int8 less 128.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import int8, int32, uint8
from tengen.base.errors import ArgumentError
from tengen.base.record import NamedTuple
from tengen.interop.tflite.schema import numbers_of
from tengen.interop.tflite.writer import LAST, Out, Writer, writes
from tengen.interop.tflite.writing import NONE, div, mul, product, sub
from tengen.ir.graph import Graph, Node, Value
from tengen.ir.rewrite import rebuild
from tengen.kernels.numerics import LARGEST_WEIGHT
from tengen.ops.define import lookup
from tengen.passes.codes import does_the_same

CODES = (int8, uint8)
ENDS = {"relu": "RELU", "relu6": "RELU6"}
PAIRS = {"add": ("ADD", "AddOptions"), "sub": ("SUB", "SubOptions"), "mul": ("MUL", "MulOptions")}
VALID = 1


def settled(graph: Graph) -> Graph:
    """Numbers that integers stand for pass through moves and maxima as integers, and are quantised before these: the same either way."""
    if not any(n.op in ("quantize_linear", "requantize_linear") for n in graph.nodes):
        return graph
    return rebuild(later := rebuild(graph, _turned_later), _Earlier(later))


def _turned_later(g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value] | None:
    """Dequantised behind what moves elements."""
    made = ins[0].node if ins and ins[0] is not None else None
    if made is None or made.op != "dequantize_linear" or n.op == "dequantize_linear" or not does_the_same(n):
        return None
    q, scale, zero = made.inputs
    if q is None or q.type.dtype not in CODES or any(v is not None and v.type.ndim for v in (scale, zero)):
        return None
    moved = g.add_node(n.op, [q], n.attrs, lookup(n.op).infer_types([q.type], n.attrs), n.where).outputs[0]
    return g.add_node("dequantize_linear", [moved, scale, zero], made.attrs, [n.outputs[0].type], made.where).outputs


class _Earlier:
    """Quantised before what moves elements, joins them or surrounds them with zeros, where nothing else reads that."""

    def __init__(self, graph: Graph):
        self.uses, self.known = uses_of(graph), constants_of(graph)

    def __call__(self, g: Graph, n: Node, ins: list[Value | None]) -> Sequence[Value] | None:
        if n.op != "quantize_linear" or any(v is not None and v.type.ndim for v in ins[1:]):
            return None
        self.node, self.scales = n, ins[1:]
        assert n.inputs[0] is not None and ins[0] is not None
        return [self._quantized(g, n.inputs[0], ins[0])]

    def _quantized(self, g: Graph, old: Value, new: Value) -> Value:
        """old: in the graph whose uses are counted. new: the same in the one that is made."""
        step, n, zero = old.node, self.node, self.node.inputs[2]
        if step is not None and new.node is not None and self.uses[old] == 1:
            attrs = step.attrs
            if step.op == "pad" and attrs["mode"] == "constant" and attrs["constant_value"] == 0 and (zero is None or zero in self.known):
                attrs = {**attrs, "constant_value": 0.0 if zero is None else float(self.known[zero])}
            if step.op == "concat" or attrs is not step.attrs or step.op == "pad" and zero is None or does_the_same(step):
                pairs = [(a, b) for a, b in zip(step.inputs, new.node.inputs) if a is not None and b is not None]
                inner = [self._quantized(g, a, b) for a, b in pairs]
                types = lookup(step.op).infer_types([v.type for v in inner], attrs)
                return g.add_node(step.op, inner, attrs, types, step.where).outputs[0]
        kind = type(new.type)(new.type.shape, n.outputs[0].type.dtype)
        return g.add_node("quantize_linear", [new, *self.scales], n.attrs, [kind], n.where).outputs[0]


def uses_of(graph: Graph) -> Counter[Value]:
    """How often each value is read: as a result, and by nodes of which a result depends."""
    found = Counter(graph.outputs)
    for n in reversed(graph.nodes):
        if any(found[v] for v in n.outputs):
            found.update(v for v in n.inputs if v is not None)
    return found


def constants_of(graph: Graph) -> dict[Value, np.ndarray]:
    """The arrays that are known, in other shapes too."""
    found = {c.value: c.data for c in graph.constants.values() if c.data is not None}
    for n in graph.nodes:
        if n.op == "reshape" and n.inputs[0] in found:
            found[n.outputs[0]] = found[n.inputs[0]].reshape(n.outputs[0].type.shape)
    return found


# -- which layers there are ----------------------------------------------------------------------------------------------------
class Total(NamedTuple):
    """Sums of products in int32: integers x less a zero point, a weight, and one number more for each channel."""

    node: Node
    x: Value
    zero: int
    weight: np.ndarray
    bias: np.ndarray


class Layer(NamedTuple):
    """scale total + shift, both for each channel, and an end: what a node stands for. integers: whether its result is quantised."""

    total: Total
    scale: np.ndarray
    shift: np.ndarray
    end: str = "NONE"
    integers: bool = True

    @property
    def sources(self) -> list[Value]:
        return [self.total.x]


class Pair(NamedTuple):
    """Numbers that stand for integers, made by some nodes of `dequantize_linear`, as integers: of two their sum, difference or product, of
    one the same by another scale."""

    op: str
    made: list[Node]
    end: str = "NONE"

    @property
    def sources(self) -> list[Value]:
        return [n.inputs[0] for n in self.made]


Plan = Layer | Pair


class Planner:
    """Finds the layers of a settled graph."""

    def __init__(self, graph: Graph):
        self.graph, self.uses, self.known = graph, uses_of(graph), constants_of(graph)
        self.affine: dict[Value, Layer] = {}  # by the last value of a chain

    def plans(self) -> dict[Node, Plan]:
        """What nodes stand for, by node. Of a chain each node has a plan; the last one that is read is written."""
        found: dict[Node, Plan] = {}
        for n in self.graph.nodes:
            plan: Plan | None
            if (made := self._affine_of(n)) is not None:
                self.affine[n.outputs[0]] = made
            if n.op in ("quantize_linear", "requantize_linear", "maximum"):
                plan = {"quantize_linear": self._quantized, "requantize_linear": self._requantized, "maximum": self._ended}[n.op](n)
            else:
                numbers = self._numbers(n.outputs[0])
                plan = None if numbers is None else numbers._replace(integers=False)
            if plan is not None:
                found[n] = plan
        return found

    def _numbers(self, v: Value | None) -> Layer | None:
        """Sums as numbers, and an end."""
        if v is None or v.node is None or v.node.op not in ENDS:
            return None if v is None else self.affine.get(v)
        x, end = v.node.inputs[0], ENDS[v.node.op]
        made = self.affine.get(x) if x is not None and self.uses[x] == 1 else None
        return None if made is None else made._replace(end=end)

    def _quantized(self, n: Node) -> Plan | None:
        v = n.inputs[0]
        if (made_of := self._made_of(v)) is not None:
            return Pair("same", [made_of])
        if v is None or v.node is None or self.uses[v] != 1:
            return None
        if (made := self._numbers(v)) is not None:
            return made
        end = ENDS.get(v.node.op, "NONE")
        x = v.node.inputs[0] if end != "NONE" else v
        if x is None or x.node is None or self.uses[x] != 1 or x.node.op not in PAIRS:
            return None
        both = [m for m in map(self._made_of, x.node.inputs) if m is not None]
        return Pair(x.node.op, both, end) if len(both) == 2 else None

    def _requantized(self, n: Node) -> Layer | None:
        total, factor = self._total(n.inputs[0]), self.known.get(n.inputs[1])
        scale = None if total is None or factor is None else _each(factor, len(total.bias))
        return None if total is None or scale is None else Layer(total, scale, np.zeros(len(scale)))

    def _ended(self, n: Node) -> Layer | None:
        """A maximum with the zero point."""
        v, least = n.inputs
        made = None if v is None else v.node
        if made is None or made.op != "requantize_linear" or self.uses[v] != 1 or least not in self.known:
            return None
        zero = 0 if made.inputs[2] is None else self.known.get(made.inputs[2])
        plan = self._requantized(made) if zero is not None and np.all(self.known[least] == zero) else None
        return None if plan is None else plan._replace(end="RELU")

    def _made_of(self, v: Value | None) -> Node | None:
        """The node that makes numbers of integers."""
        n = None if v is None else v.node
        q = n.inputs[0] if n is not None and n.op == "dequantize_linear" else None
        return n if q is not None and q.type.dtype in CODES else None

    def _affine_of(self, n: Node) -> Layer | None:
        """The end of a chain of factors and shifts of channels that begins at sums."""
        if n.op == "dequantize_linear":
            total, scale = self._total(n.inputs[0]), self.known.get(n.inputs[1])
            scale = None if total is None or scale is None or n.inputs[2] is not None else _each(scale, len(total.bias))
            return None if total is None or scale is None else Layer(total, scale, np.zeros(len(scale)))
        if n.op not in ("add", "sub", "mul", "fma") or n.inputs[0] is None or n.inputs[1] is None:
            return None
        x, *more = n.inputs
        if n.op in ("add", "mul") and x in self.known:
            x, more = more[0], [x]
        if any(c not in self.known for c in more) or self.uses[x] != 1 or (before := self.affine.get(x)) is None:
            return None
        each = [_each(self.known[c], len(before.scale)) for c in more if c is not None]
        if any(c is None for c in each) or x.type.shape != n.outputs[0].type.shape:
            return None
        factor = each[0] if n.op in ("mul", "fma") else np.ones(1)
        shift = {"add": each[0], "sub": -each[0], "mul": np.zeros(1), "fma": each[-1]}[n.op]
        return before._replace(scale=before.scale * factor, shift=before.shift * factor + shift)

    def _total(self, v: Value | None) -> Total | None:
        bias: Any = np.zeros((), np.int64)
        n = None if v is None else v.node
        while n is not None and n.op == "add" and n.outputs[0].type.dtype is int32:
            x, y = n.inputs if n.inputs[1] in self.known else n.inputs[::-1]
            if y not in self.known or x is None:
                return None
            bias, n = bias + self.known[y].astype(np.int64), x.node
        if n is None or n.op not in ("conv_int", "matmul_int") or n.inputs[1] not in self.known:
            return None
        (x, zero), weight = self._centred(n.inputs[0]), self.known[n.inputs[1]]
        count = n.outputs[0].type.shape[1 if n.op == "conv_int" else -1]
        each = _each(bias, count)
        fits = weight.dtype == np.int8 and (n.op == "conv_int" and n.outputs[0].type.ndim == 4 or n.op == "matmul_int" and weight.ndim == 2)
        if x is None or zero is None or x.type.dtype not in CODES or each is None or not fits or n.attrs.get("transpose_a"):
            return None
        return Total(n, x, zero, weight, each)

    def _centred(self, x: Value | None) -> tuple[Value | None, int | None]:
        """Integers, and the zero point that was taken off, or None where it is not known."""
        n = None if x is None else x.node
        if n is None or n.op != "sub" or n.inputs[0] is None or n.inputs[0].node is None or n.inputs[0].node.op != "astype":
            return x, 0
        zero = self.known.get(n.inputs[1])
        return n.inputs[0].node.inputs[0], int(zero.reshape(())) if zero is not None and zero.size == 1 else None


def _each(a: np.ndarray, count: Any) -> np.ndarray | None:
    """One number for each channel, or None."""
    flat = np.asarray(a, np.float64).reshape(-1)
    return np.broadcast_to(flat, (count,)) if flat.size in (1, count) else None


# -- operators -----------------------------------------------------------------------------------------------------------------
def codes_of(w: Writer, n: Node, v: Value) -> tuple[float, int]:
    """The scale and the zero point, of int8, of the integers that a node makes; v: these, behind an end.

    Errors: ArgumentError for scales that are not known, and for integers of fewer bits.
    """
    low, high, d = n.attrs["low"], n.attrs["high"], n.outputs[0].type.dtype
    if d not in CODES or (low, high) not in ((-128, 127), (-127, 127), (0, 255)):
        raise ArgumentError(f"integers of {d} from {low} to {high}; TFLite's have 8 bits")
    scale = w.constants.get(n.inputs[1]) if n.op == "quantize_linear" else np.float32(w.scales.get(v, 1.0))
    zero = np.int32(0) if n.inputs[2] is None else w.constants.get(n.inputs[2])
    if scale is None or zero is None or np.size(scale) != 1 or np.size(zero) != 1:
        raise ArgumentError("a scale or a zero point that is computed, or one for each channel")
    return float(np.reshape(scale, ())), int(np.reshape(zero, ())) - (128 if d is uint8 else 0)


@writes("planned")
def planned(w: Writer, n: Node) -> Out:
    """What a node stands for that has a plan."""
    plan = w.plans[n]
    if isinstance(plan, Layer) and not plan.integers:
        return layer(w, plan, None)
    codes = codes_of(w, n.inputs[0].node if n.op == "maximum" else n, n.outputs[0])
    if isinstance(plan, Layer):
        return layer(w, plan if n.op == "quantize_linear" else plan._replace(scale=plan.scale * codes[0]), codes)
    assert isinstance(plan, Pair)
    for made in plan.made:
        checked(w, made)
    if plan.op == "same":
        x = placed(w, plan.sources[0])
        return x if x.codes == codes else w.emit("QUANTIZE", [x], x.shape, np.int8, ("QuantizeOptions", {}), x.last, codes)
    x, y = (w.picture(s) if all(s in w.last for s in plan.sources) else w.get(s) for s in plan.sources)
    op, table = PAIRS[plan.op]
    return w.emit(op, [x, y], np.broadcast_shapes(x.shape, y.shape), np.int8, (table, _end(plan.end)), x.last, codes)


def checked(w: Writer, n: Node) -> Out:
    """The integers that a node makes numbers of. Errors: ArgumentError where they have another scale or zero point than it takes."""
    x = placed(w, n.inputs[0])
    scale, zero = w.constants.get(n.inputs[1]), np.int32(0) if n.inputs[2] is None else w.constants.get(n.inputs[2])
    if x.codes is None or scale is None or zero is None or np.size(scale) != 1 or np.size(zero) != 1:
        raise ArgumentError("integers of a scale that is not known, or one for each channel")
    taken = float(np.reshape(scale, ())), int(np.reshape(zero, ())) - (128 if n.inputs[0].type.dtype is uint8 else 0)
    if x.codes != taken:
        raise ArgumentError(f"integers were made with the scale {x.codes[0]:.6g} and are read with {taken[0]:.6g}, or by another zero point")
    return x


def placed(w: Writer, v: Value) -> Out:
    """In the order in which it is there."""
    return w.last[v] if v in w.last and v not in w.plain else w.get(v)


@writes("quantize_linear")
def quantize(w: Writer, n: Node) -> Out:
    """Numbers as integers."""
    x = placed(w, n.inputs[0])
    return w.emit("QUANTIZE", [x], x.shape, np.int8, ("QuantizeOptions", {}), x.last, codes_of(w, n, n.outputs[0]))


@writes("dequantize_linear")
def dequantize(w: Writer, n: Node) -> Out:
    """Integers as numbers."""
    x = checked(w, n)
    return w.emit("DEQUANTIZE", [x], x.shape, np.float32, ("DequantizeOptions", {}), x.last)


@writes("conv_int", "matmul_int", "requantize_linear")
def sums(w: Writer, n: Node) -> Out:
    """Errors: ArgumentError: TFLite's layers give their sums to nobody."""
    raise ArgumentError("sums in int32 that are read as they are, or whose weight is not an array of int8 that is known")


@writes("attention_int")
def attention_int(w: Writer, n: Node) -> Out:
    """Its integers as whole numbers in float32: TFLite's products of integers give sums of 8 bits. Sums below 2^24 are exact."""
    q, k, v = (_whole_numbers(w, w.get(t)) for t in n.inputs[:3])
    multiplier, value_scale = (w.cast(w.get(t), np.float32) for t in n.inputs[3:])
    scores = product(w, q, k, False, True)
    axis, shape, keep = w.ints([len(scores.shape) - 1]), [*scores.shape[:-1], 1], ("ReducerOptions", {"KeepDims": True})
    over = lambda op, x: w.emit(op, [x, axis], shape, x.dtype, keep)
    x = mul(w, sub(w, scores, over("REDUCE_MAX", scores)), multiplier)
    weights = w.each("ROUND", mul(w, w.each("EXP", x, options=("ExpOptions", NONE)), w.number(LARGEST_WEIGHT, x)))
    return mul(w, product(w, weights, v, False, False), div(w, value_scale, over("SUM", weights)))


def _whole_numbers(w: Writer, x: Out) -> Out:
    """Integers without a zero point as floats, whatever they stand for."""
    if x.codes is None:
        return w.cast(x, np.float32)
    x, scale = w.emit("DEQUANTIZE", [x], x.shape, np.float32, ("DequantizeOptions", {}), x.last), x.codes[0]
    return x if scale == 1 else w.each("ROUND", div(w, x, w.number(scale, x)))


def _end(name: str) -> dict[str, Any]:
    return {"FusedActivationFunction": numbers_of("ActivationFunctionType")[name]}


def layer(w: Writer, plan: Layer, codes: tuple[float, int] | None) -> Out:
    """A convolution or a fully connected layer of int8 (of float32, with dequantised weights, where `codes` is None)."""
    t = plan.total
    picture = t.node.op == "conv_int"
    x = w.picture(t.x) if picture else w.get(t.x)
    if x.codes is None or x.codes[1] != t.zero - (128 if t.x.type.dtype is uint8 else 0):
        raise ArgumentError("integers of an unknown scale, or from which something else than their zero point was taken")
    weight, scale, bias = _positive(t, picture, plan.scale / x.codes[0])
    unit, shift = scale * np.float64(x.codes[0]), plan.shift
    if codes is None:
        x = w.emit("DEQUANTIZE", [x], x.shape, np.float32, ("DequantizeOptions", {}), x.last)
        b = w.array((bias * unit + shift).astype(np.float32))
    else:
        whole = np.rint(bias + shift / unit)
        if np.abs(whole).max(initial=0) >= 2.0**31:
            raise ArgumentError(f"a bias of {np.abs(whole).max():.3g} steps does not fit int32")
        b = w.array(whole.astype(np.int32), codes=(unit.astype(np.float32), 0, 0))
    if picture:
        return _convolution(w, t, x, weight, scale, b, plan.end, codes)
    filters = _filters(w, weight, scale, 0, codes is None)
    how = {"KeepNumDims": True, **_end(plan.end)}
    kind = np.float32 if codes is None else np.int8
    return w.emit("FULLY_CONNECTED", [x, filters, b], [*x.shape[:-1], len(scale)], kind, ("FullyConnectedOptions", how), False, codes)


def _positive(t: Total, picture: bool, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weight with the channels' axis first, scales above 0 (negative ones turn signs around), and the bias."""
    weight = t.weight.reshape(-1, *t.weight.shape[-3:]) if picture else t.weight if t.node.attrs["transpose_b"] else t.weight.T
    each = (-1, *[1] * (weight.ndim - 1))
    sign = np.sign(scale)
    turned = weight * sign.reshape(each)
    if turned.max(initial=0) > 127:
        raise ArgumentError("a weight of -128 in a channel with a negative factor")
    return turned.astype(np.int8), np.where(sign == 0, 1, np.abs(scale)).astype(np.float32), t.bias * sign


def _filters(w: Writer, weight: np.ndarray, scale: np.ndarray, axis: int, as_floats: bool) -> Out:
    f = w.array(np.ascontiguousarray(weight), "filters", codes=(scale, 0, axis))
    return w.emit("DEQUANTIZE", [f], f.shape, np.float32, ("DequantizeOptions", {})) if as_floats else f


def _convolution(w: Writer, t: Total, x: Out, weight: np.ndarray, scale: np.ndarray, b: Out, end: str, codes: tuple[float, int] | None) -> Out:
    a = t.node.attrs
    if any(a["padding"]):
        pairs = np.array([[0, 0], *([p, p] for p in a["padding"]), [0, 0]], np.int32)
        x = w.emit("PAD", [x, w.array(pairs)], [e + 2 * p for e, (p, _) in zip(x.shape, pairs.tolist())], x.dtype, ("PadOptions", {}), True)
    space = [(e - (k - 1) * d - 1) // s + 1 for e, k, d, s in zip(x.shape[1:3], weight.shape[2:], a["dilation"], a["stride"])]
    shape, kind = [x.shape[0], *space, len(scale)], np.float32 if codes is None else np.int8
    how = {
        "Padding": VALID, "StrideH": a["stride"][0], "StrideW": a["stride"][1], "DilationHFactor": a["dilation"][0],
        "DilationWFactor": a["dilation"][1], **_end(end),
    }  # fmt: skip
    if a["groups"] == x.shape[3] and a["groups"] > 1:
        how["DepthMultiplier"] = len(scale) // a["groups"]
        filters = _filters(w, weight.transpose(1, 2, 3, 0), scale, 3, codes is None)
        return w.emit("DEPTHWISE_CONV_2D", [x, filters, b], shape, kind, ("DepthwiseConv2DOptions", how), True, codes)
    filters = _filters(w, weight.transpose(LAST), scale, 0, codes is None)
    return w.emit("CONV_2D", [x, filters, b], shape, kind, ("Conv2DOptions", how), True, codes)


def scales_of(graph: Graph) -> dict[Value, float]:
    """The scales of integers that nodes make from sums: those by which they are turned into numbers later."""
    known, found = constants_of(graph), {}
    for n in reversed(graph.nodes):
        q = n.inputs[0] if n.inputs else None
        if q is None or q.type.dtype not in CODES:
            continue
        if n.op == "dequantize_linear" and np.size(known.get(n.inputs[1], ())) == 1:
            found.setdefault(q, float(np.reshape(known[n.inputs[1]], ())))
        elif n.outputs[0] in found and n.outputs[0].type.dtype is q.type.dtype:
            found.setdefault(q, found[n.outputs[0]])
    return found
