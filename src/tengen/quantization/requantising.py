"""Sums of products become the next layer's integers by one multiplication, and additions read integers.

In: a graph in which layers by integers hand on numbers. Out: one in which they hand on integers, where nobody needs the numbers. Its
results differ by roundings: docs/numerics.md has the rule ("requantise").
"""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.base.dtype import int8, int32
from tengen.base.record import NamedTuple
from tengen.deploy.graphs import Graph, Node, Value
from tengen.passes.cleanup import merge_common
from tengen.passes.codes import LEAST_SCALE, MOST_SCALE, does_the_same
from tengen.quantization.folding import Known, weight_channels
from tengen.tensor import Tensor

MOST_BIAS = 1 << 30
SUMS = ("conv_int", "matmul_int")


class Made(NamedTuple):
    """Sums of integers that stand for numbers: scale total + shift.

    Attributes: total: the sums. product: the node that makes them. scale, shift: one for each output channel, in float64.
    """

    total: Value
    product: Node
    scale: np.ndarray
    shift: np.ndarray


def requantise(graph: Graph) -> Graph:
    """A copy in which sums are requantised wherever only `quantize_linear`, behind relu, relu6, views and maxima over windows, and
    additions read the numbers that they stand for.

    before: ``%x = dequantize_linear(%total, %p); %y = relu(add(%x, %b)); %q = quantize_linear(%y, %s)``
    after:  ``%q = requantize_linear(add(%total, %b / p), %p / s, low=0)``
    """
    g = merge_common(graph)
    assert isinstance(g, Graph)
    with g.edits():
        _share(g)
        _before_slices(g)
        for q in [n for n in g.nodes if n.op == "quantize_linear"]:
            _requantised(g, q)
    return g


def _share(g: Graph) -> None:
    """Where numbers are read by layers by integers and by additions alone, the additions too read what the integers stand for, so that nobody
    needs the numbers."""
    known = Known(g)
    for q in [n for n in g.nodes if n.op == "quantize_linear"]:
        v = q.inputs[0]
        assert v is not None
        adds = [n for n in known.users[v] if n.op == "add"]
        alone = {n.op for n in known.users[v]} == {"quantize_linear", "add"} and v not in known.kept and v.node is not None
        if not alone or _settings(known, q) is None or any(n.outputs[0].type is not v.type for n in adds):
            continue
        zero = [] if q.inputs[2] is None else [q.inputs[2]]
        scale = q.inputs[1]
        assert scale is not None
        numbers = g.apply(F.dequantize_linear, q.outputs[0], scale, *zero)
        for n in adds:
            n.inputs = [numbers if x is v else x for x in n.inputs]
        known = Known(g)


def _before_slices(g: Graph) -> None:
    """Sums whose numbers are cut into slices of channels, of which each becomes integers by a scale of its own, as queries, keys and values
    of one product do, become integers by a scale for each channel first, and these are cut."""
    known = Known(g)
    for v in [n.outputs[0] for n in g.nodes if n.op in ("add", "dequantize_linear")]:
        made = sums_of(known, v) if len(known.users[v]) > 1 and v not in known.kept else None
        if made is None or made.product.op != "matmul_int":
            continue
        ends = [(n, _end_of_slice(known, n, v)) for n in known.users[v]]
        found = sorted(((n, *end) for n, end in ends if end is not None), key=lambda x: x[0].attrs["starts"][-1])
        spans = [(n.attrs["starts"][-1], n.attrs["sizes"][-1]) for n, _, _ in found]
        apart = all(first + count <= following for (first, count), (following, _) in zip(spans, spans[1:]))
        if len(found) < len(ends) or not apart or len({tuple(q.attrs.items()) for _, q, _ in found}) > 1:
            continue
        scale = np.ones(v.type.shape[-1], np.float32)
        for (first, count), (_, q, _) in zip(spans, found):
            scale[first : first + count] = known.data[q.inputs[1]].reshape(())
        attrs, scales = found[0][1].attrs, Tensor(scale)
        codes = g.apply(lambda x, a=attrs, s=scales: F.quantize_linear(x, s, None, a["low"], a["high"], a["dtype"]), v)
        for n, q, between in found:
            x = codes
            for step in (n, *between):
                x = g.insert(step.op, [x], where=step.where, **step.attrs).outputs[0]
            g.replace(q, x)
        known = Known(g)


def _end_of_slice(known: Known, n: Node, v: Value) -> tuple[Node, list[Node]] | None:
    """The node that makes integers without a zero point of a slice of some channels of v, and the views between, where nothing else reads
    them."""
    whole = ([0] * (v.type.ndim - 1), list(v.type.shape[:-1]), [1] * v.type.ndim)
    if n.op != "strided_slice" or (list(n.attrs["starts"][:-1]), list(n.attrs["sizes"][:-1]), list(n.attrs["steps"])) != whole:
        return None
    if not all(isinstance(i, int) for i in (n.attrs["starts"][-1], n.attrs["sizes"][-1])):
        return None
    between: list[Node] = []
    step = known.only_reader(n.outputs[0])
    while step is not None and does_the_same(step):
        between.append(step)
        step = known.only_reader(step.outputs[0])
    if step is None or step.op != "quantize_linear" or step.inputs[2] is not None or (settings := _settings(known, step)) is None:
        return None
    return (step, between) if settings[0].ndim == 0 else None


def _settings(known: Known, q: Node) -> tuple[np.ndarray, int] | None:
    """The scale and the zero point of the integers that a node makes, where they are known: one for all elements, or without a zero point a
    scale for each element of the last axis."""
    scale = known.data.get(q.inputs[1]) if q.inputs[1] is not None else None
    zero = np.zeros((), np.int32) if q.inputs[2] is None else known.data.get(q.inputs[2])
    if scale is None or zero is None or zero.size != 1 or scale.dtype != np.float32:
        return None
    if scale.size != 1 and (scale.ndim != 1 or q.inputs[2] is not None):
        return None
    return scale.reshape(()) if scale.size == 1 else scale, int(zero.reshape(()))


def _requantised(g: Graph, q: Node) -> None:
    """Makes the integers of the sums themselves, if nothing else reads what is between."""
    known = Known(g)
    if (settings := _settings(known, q)) is None:
        return
    (scale, zero), attrs, relu = settings, q.attrs, False
    between: list[Node] = []
    v = q.inputs[0]
    while v is not None and v.node is not None and known.only_reader(v) is not None:
        n = v.node
        if n.op == "relu" or n.op == "relu6" and (np.rint(np.float32(6) / scale) + zero >= attrs["high"]).all():
            relu = True
        elif does_the_same(n) and scale.ndim == 0:
            between.append(n)
        else:
            break
        v = n.inputs[0]
    made = None if v is None or known.only_reader(v) is None else sums_of(known, v)
    if made is not None and scale.ndim and made.product.op != "matmul_int":  # whose channels are not the last axis
        return
    fitting = None if made is None else _fitting(known, made, scale)
    if made is None or fitting is None:
        return
    multiplier, bias = fitting
    d = attrs["dtype"]

    def computed(total: Tensor) -> Tensor:
        total = total + Tensor(bias) if bias.any() else total
        z = Tensor(np.int32(zero)) if zero else None
        codes = F.requantize_linear(total, Tensor(multiplier), z, attrs["low"], attrs["high"], d)
        return F.maximum(codes, Tensor(np.array(zero, d))) if relu and attrs["low"] < zero else codes

    codes = g.apply(computed, made.total)
    for n in reversed(between):
        codes = g.insert(n.op, [codes], where=n.where, **n.attrs).outputs[0]
    g.replace(q, codes)


def _fitting(known: Known, made: Made, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(multiplier, bias in int32) for integers of a scale, in the shape that broadcasts with the sums; None: where a multiplier or a bias is
    out of range, or where a sum with its bias may not fit int32."""
    product, weight = made.product, known.data[made.product.inputs[1]]
    multiplier = (made.scale.astype(np.float32) / scale).astype(np.float32)
    if not ((multiplier >= LEAST_SCALE) & (multiplier <= MOST_SCALE)).all() or not (made.scale > 0).all():
        return None
    bias = np.rint(made.shift / made.scale)
    op = "matmul" if product.op == "matmul_int" else "conv"
    axes = weight_channels(op, weight.ndim, product.attrs)
    most = np.abs(weight.astype(np.int64)).sum(axis=tuple(i for i in range(weight.ndim) if i not in axes)).reshape(-1)
    inp = product.inputs[0]
    assert inp is not None
    largest = 128 if inp.type.dtype is int8 else 255
    if not (np.abs(bias) + most * largest < 1 << 31).all() or not (np.abs(bias) <= MOST_BIAS).all():
        return None
    shape = (-1,) if op == "matmul" else (1, -1, *[1] * (weight.ndim - 1 - len(axes)))
    return np.reshape(multiplier, shape), bias.astype(np.int32).reshape(shape)


def sums_of(known: Known, v: Value) -> Made | None:
    """The sums by integers that a value is a number for each channel times, and one more for each channel added."""
    n, shift = v.node, None
    if n is not None and n.op == "add":
        first = n.inputs[0] not in known.data
        v, b = n.inputs if first else n.inputs[::-1]
        n, shift = v.node, b
        if known.only_reader(v) is None:
            return None
    if n is None or n.op != "dequantize_linear" or n.inputs[2] is not None:
        return None
    total = n.inputs[0]
    product = total.node if total is not None else None
    if total is None or total.type.dtype is not int32 or product is None or product.op not in SUMS or known.only_reader(total) is None:
        return None
    channel = total.type.ndim - 1 if product.op == "matmul_int" else 1
    scale = known.each(n.inputs[1], v, channel)
    shifts = np.zeros(1) if shift is None else known.each(shift, v, channel)
    if scale is None or shifts is None or product.inputs[1] not in known.data:
        return None
    return Made(total, product, scale, np.broadcast_to(shifts, scale.shape))
