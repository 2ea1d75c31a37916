"""Factors and shifts of channels behind a product become part of it: batch norms, biases, scales.

In: a graph in float32. Out: one in which a convolution or a product by a constant matrix is followed by one shift of each output channel
at most, as far as its result goes nowhere else. The weights are multiplied before anything is calibrated, so they get scales of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tengen.base.dtype import float32
from tengen.compiler.driver import evaluate
from tengen.deploy.graphs import Graph, Node, Value
from tengen.ir.editing import free
from tengen.passes.constants import fold_constants

PRODUCTS = ("conv", "matmul")


class Known:
    """What is known of a graph's values.

    Attributes: data: arrays of constants, and of constants in other shapes. users: the nodes that read a value. kept: values that leave it.
    """

    def __init__(self, graph: Graph):
        self.users, self.kept = graph.users(), set(graph.results())
        self.data: dict[Value, np.ndarray] = {c.value: c.data for c in graph.constants.values() if c.data is not None}
        for n in graph.nodes:
            if n.op == "reshape" and n.inputs[0] in self.data:
                self.data[n.outputs[0]] = self.data[n.inputs[0]].reshape(n.outputs[0].type.shape)

    def only_reader(self, v: Value) -> Node | None:
        """The node that reads a value once, where nobody else does."""
        readers = self.users[v]
        return readers[0] if len(readers) == 1 and v not in self.kept and readers[0].inputs.count(v) == 1 else None

    def each(self, v: Value | None, like: Value, channel: int) -> np.ndarray | None:
        """One number for each channel of `like`, in float64: what a constant gives each when it is repeated; None: it is none of these."""
        a, count = self.data.get(v) if v is not None else None, like.type.shape[channel]
        if a is None or a.ndim > like.type.ndim or not isinstance(count, int) or a.dtype.kind != "f":
            return None
        shape = [1] * (like.type.ndim - a.ndim) + list(a.shape)
        if any(d != 1 for i, d in enumerate(shape) if i != channel):
            return None
        return np.broadcast_to(a.reshape(-1).astype(np.float64), (count,))


def channel_of(n: Node) -> int:
    """The axis of a product's result whose elements are output channels."""
    return n.outputs[0].type.ndim - 1 if n.op == "matmul" else 1


def weight_channels(op: str, ndim: int, attrs: Mapping) -> tuple[int, ...]:
    """The axes of the weight of a product that are output channels."""
    if op == "matmul":
        return (0,) if attrs["transpose_b"] else (1,)
    return (0, 1) if ndim == len(attrs["stride"]) + 3 else (0,)


def shift_of(known: Known, n: Node) -> tuple[Node, np.ndarray] | None:
    """The node that adds a constant to each channel of a product's result, if only it reads that, and the constants."""
    step = known.only_reader(n.outputs[0])
    if step is None or step.op != "add":
        return None
    found = _step(known, step, n.outputs[0], channel_of(n))
    return None if found is None else (step, found[1])


def fold_affine(graph: Graph) -> Graph:
    """Multiplies weights by the factors behind their products, and adds up the shifts, both in float64 and rounded once.

    before: ``%y = conv(%x, %w); %z = add(%y, %b); %n = fma(%z, %scale, %shift)``
    after:  ``%y = conv(%x, %w scale); %n = add(%y, %b scale + shift)``
    """
    g = fold_constants(graph, evaluate)
    assert isinstance(g, Graph)
    known = Known(g)
    with g.edits():
        for n in list(g.nodes):
            weight = known.data.get(n.inputs[1]) if n.op in PRODUCTS else None
            if weight is not None and n.outputs[0].type.dtype is float32 and (n.op == "conv" or weight.ndim == 2):
                _fold(g, known, n, weight)
    return g


def _fold(g: Graph, known: Known, n: Node, weight: np.ndarray) -> None:
    channel, last, y = channel_of(n), n, n.outputs[0]
    factor, shift = np.ones(1), np.zeros(1)
    while (step := known.only_reader(y)) is not None and (found := _step(known, step, y, channel)) is not None:
        factor, shift = factor * found[0], shift * found[0] + found[1]
        last, y = step, step.outputs[0]
    if last is n or (last is known.only_reader(n.outputs[0]) and last.op == "add"):
        return
    axes = weight_channels(n.op, weight.ndim, n.attrs)
    wide = [d if i in axes else 1 for i, d in enumerate(weight.shape)]
    w = (weight * np.broadcast_to(factor, (int(np.prod(wide)),)).reshape(wide)).astype(np.float32)
    rest = (-1,) if n.op == "matmul" else (1, -1, *[1] * (n.outputs[0].type.ndim - 2))
    count = n.outputs[0].type.shape[channel]
    b = np.broadcast_to(shift, (count,)).astype(np.float32).reshape(rest)
    inp, old = n.inputs
    assert old is not None
    constant = next((c for c in g.constants.values() if c.value is old), None)
    taken = {v.name for v in g.sources()}
    if constant is not None and known.only_reader(old) is n:
        constant.data, w_value = w, old
    else:
        w_value = g.add_constant(free(f"{old.name or 'weight'}.folded", taken), w)
    product = g.insert(n.op, [inp, w_value], before=last, where=n.where, **n.attrs)
    shifted = g.insert("add", [product.outputs[0], g.add_constant(free(f"{w_value.name}.shift", taken), b)], before=last, where=last.where)
    g.replace(last, shifted)


def _step(known: Known, n: Node, x: Value, channel: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(factor, shift) of each channel by which a node makes its result of x, which keeps its type; None: it does something else."""
    if n.op not in ("add", "sub", "mul", "fma") or n.outputs[0].type is not x.type:
        return None
    if n.op == "fma":
        a, b = (known.each(v, x, channel) for v in n.inputs[1:]) if n.inputs[0] is x else (None, None)
        return None if a is None or b is None else (a, b)
    first = n.inputs[0] is x
    c = known.each(n.inputs[1 if first else 0], x, channel)
    if c is None:
        return None
    one, none = np.ones(1), np.zeros(1)
    if n.op == "sub":
        return (one, -c) if first else (-one, c)
    return (one, c) if n.op == "add" else (c, none)

