"""A network that came from ONNX: a Module that runs the graph's nodes in their order.

In: a `Source`. Out: a `Module` whose parameters are the graph's float arrays. Run eagerly, traced or recorded, it is the functions of
`ops/` that compute, with the functional operations of the house.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, DTypeError, FileFormatError, TengenError
from tengen.interop.onnx import expand
from tengen.interop.onnx.groups import with_groups
from tengen.interop.onnx.ops import OPS
from tengen.interop.onnx.pairs import in_integers
from tengen.interop.onnx.reader import GraphOf, NodeOf, PortOf, Source, bodies, names, normal, reads
from tengen.interop.onnx.values import Coded, Value, as_tensor, is_coded, is_text, recording, value_of
from tengen.module import Module
from tengen.tensor import Parameter, Tensor

MOST_RECORDED = 100_000  # nodes that a program may have, with loops and functions written out
WHY = {  # what is unknown, by domain
    **dict.fromkeys(("", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"), "no op of this name in this opset is known here"),
    "com.microsoft.nchwc": "a layout of one machine, which onnxruntime's optimiser writes at its highest level; help: ORT_ENABLE_EXTENDED",
}  # fmt: skip


class OnnxNetwork(Module):
    """An ONNX graph as a module.

    Its inputs are the graph's, in order or by name: tensors, or what a tensor is made of; sequences are lists. It returns the output, or a
    tuple of several. Float arrays of the file are parameters, under their names with "weights." before them; running means and
    variances are buffers.

    Attributes:
        source: what was read, without what became tensors, with operators of integers in place of those between DequantizeLinear and
            QuantizeLinear, and one operator in place of groups of nodes. weights: the parameters by name. statistics: of
            batch norms. in_float: the nodes that compute in floats with numbers made of 8-bit integers, with the reason.
    """

    def __init__(self, source: Source):
        super().__init__()
        self.weights: dict[str, Tensor] = {}
        self.statistics: dict[str, Tensor] = {}
        self.retries = 0  # of branches, in a recording (`ops/control.py`)
        self.computed = 0  # nodes, in a call
        fixed = {name for n in source.graph.nodes if n.op == "BatchNormalization" for name in n.inputs[3:]}
        refuse_unknown(source)
        graph, self.in_float = in_integers(source)
        source = replace(source, graph=with_groups(graph))
        arrays, made = dict(source.graph.arrays), {}  # tensors by array: arrays of one place in a file have their memory in common
        for name in source.graph.arrays:
            kind = arrays[name].dtype
            if kind.name == "bfloat16" or kind.kind == "f" and not is_coded(kind):  # float8_e5m2 is of the kind "f" too
                a = arrays.pop(name)
                t = made[id(a)][1] if id(a) in made else made.setdefault(id(a), (a, Tensor(a)))[1]
                (self.statistics if name in fixed else self.weights)[name] = t if name in fixed else Parameter(t)
        self.source = replace(source, graph=replace(source.graph, arrays=arrays))  # without those that are tensors now

    def forward(self, *args: Any, **by_name: Any) -> Any:
        """Computes the graph's outputs."""
        made = self.values(args, by_name)
        made = [as_tensor(v) if isinstance(v, np.ndarray) and not is_text(v) else v for v in made]
        return made[0] if len(made) == 1 else tuple(made)

    def values(self, args: Sequence[Any], by_name: Mapping[str, Any] | None = None) -> list[Value]:
        """The outputs as they flow inside: known shapes are arrays, float8 numbers are coded."""
        graph = self.source.graph
        given = dict(zip((p.name for p in graph.inputs), args, strict=False), **(by_name or {}))
        missing = [p.name for p in graph.inputs if p.name not in given and p.dtype is not None]
        unknown = given.keys() - {p.name for p in graph.inputs}
        twice = {p.name for p, _ in zip(graph.inputs, args)} & (by_name or {}).keys()
        if missing or unknown or twice or len(args) > len(graph.inputs):
            raise ArgumentError(
                f"{graph.name} takes {', '.join(p.name for p in graph.inputs)}; got {', '.join(given) or 'nothing'}"
            )
        self.retries = self.computed = 0
        scope = Scope(self, None)
        for p in graph.inputs:
            scope[p.name] = argument(p, given.get(p.name))
        for name, t in (*self.weights.items(), *self.statistics.items()):
            scope[name] = t
        return scope.run(graph)


def argument(p: PortOf, x: Any) -> Value:
    """What is given for an input. Python's numbers take its dtype.

    Errors: DTypeError for an array or a tensor of another dtype than the file says.
    """
    if p.dtype is None:
        return taken(x, True)
    if p.dtype.kind not in "OUS" and isinstance(x, (int, float, list, tuple)):
        x = np.asarray(x, p.dtype)
    v = taken(x)
    have = None if v is None else np.dtype(v.dtype.numpy) if isinstance(v, Tensor) else v.dtype
    if have is not None and have != p.dtype and not (have.kind == "O" and p.dtype.kind in "OUS"):
        raise DTypeError(f"the input {p.name} takes {p.dtype}, got {have}; help: x.astype({p.dtype.name!r})")
    return v


def taken(x: Any, sequence: bool = False) -> Value:
    """An argument as a value. sequence: the network takes a sequence or an optional value there, so that a list is one."""
    if x is None or isinstance(x, (Tensor, Coded, dict)):
        return x
    if isinstance(x, (list, tuple)) and sequence:
        return [taken(e) for e in x]
    return value_of(np.asarray(x))


class Scope:
    """Values by name while a graph runs; names that a graph inside does not know are looked up in the one around it.

    Attributes:
        network: whose functions and opsets hold. graph: what runs.
    """

    def __init__(self, network: OnnxNetwork, around: Scope | None):
        self.network, self.around = network, around
        self.values: dict[str, Value] = {}
        self.graph: GraphOf | None = None

    def __setitem__(self, name: str, value: Value) -> None:
        self.values[name] = value

    def __getitem__(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.around
        raise FileFormatError(f"a node reads {name!r}, which nothing before it computes")

    def run(self, graph: GraphOf) -> list[Value]:
        """Runs the nodes, and gives the graph's outputs. Values that nothing reads any more are let go."""
        self.graph = graph
        for name, a in graph.arrays.items():
            if name not in self.values:  # a body's input, whose array is what it is without an argument
                self[name] = value_of(a) if is_coded(a.dtype) else a
        last = {name: i for i, n in enumerate(graph.nodes) for name in reads(n)}
        kept = {p.name for p in graph.outputs}
        for i, n in enumerate(graph.nodes):
            inputs = [self[name] if name else None for name in n.inputs]
            made = self.compute(n, inputs)
            for name, v in zip(n.outputs, made):
                if name:
                    self[name] = v
            for name in {*reads(n), *n.outputs}:
                if last.get(name, i) <= i and name not in kept and name in self.values:
                    del self.values[name]
            del inputs, made
        return [self[p.name] for p in graph.outputs]

    def compute(self, n: NodeOf, inputs: list[Value]) -> Sequence[Value]:
        """The outputs of a node."""
        self.network.computed += 1
        if self.network.computed > MOST_RECORDED and recording():
            raise FileFormatError(f"more than {MOST_RECORDED:,} nodes, with loops and functions written out; help: to_module runs the network")
        try:
            f = OPS.get(n.what)
            if (n.domain, n.op) in self.network.source.functions:
                made = expand.call(self, n, inputs, self.network.source.functions[n.domain, n.op])
            elif f is not None and getattr(f, "scoped", False):
                made = f(self, n, *inputs)
            elif f is not None:
                made = f(n, *inputs)
            else:
                made = expand.call(self, n, inputs, expand.of_schema(n, inputs, self.network.source.opsets))
            made = made if isinstance(made, tuple) else (made,)
            if lost := [name for name in n.outputs[len(made) :] if name]:
                raise FileFormatError(f"the op says nothing of its output {lost[0]!r} for these inputs")
        except (TengenError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError) as e:
            e.add_note(
                f"in the ONNX node {n.name or '(without a name)'}: {n.what}({', '.join(map(shown, inputs))}) -> {', '.join(n.outputs)}"
            )
            raise
        return made

    def inner(self, graph: GraphOf, inputs: Iterable[Value]) -> list[Value]:
        """The outputs of a graph inside, for these inputs."""
        scope = Scope(self.network, self)
        for p, v in zip(graph.inputs, inputs):
            scope[p.name] = v
        return scope.run(graph)


def shown(v: Value) -> str:
    """A value in a message."""
    if v is None:
        return "-"
    if isinstance(v, list):
        return f"[{', '.join(map(shown, v[:4]))}]"
    if isinstance(v, dict):
        return f"a map of {len(v)}"
    return f"{v.dtype}{list(v.shape)}"


def refuse_unknown(source: Source) -> None:
    """All nodes whose op has no meaning here, told at once.

    Errors: ArgumentError with a line for each of them.
    """
    lines = []

    def look(nodes: Iterable[NodeOf]) -> None:
        for n in nodes:
            if n.what not in OPS and (n.domain, n.op) not in source.functions and not expand.has_body(n, source.opsets):
                why = WHY.get(n.domain, "an op of another vendor")
                lines.append(f"  node {n.name or '(without a name)'} -> {', '.join(n.outputs)}: {n.what}, {why}")
            for g in bodies(n):
                look(g.nodes)

    look(source.graph.nodes)
    for (_, name), f in source.functions.items():
        look(NodeOf(p.op_type, normal(p.domain), p.name or f"in the function {name}", (), names(p.output), {}) for p in f.nodes)
    if lines:
        more = [] if len(lines) <= 40 else [f"  and {len(lines) - 40} more"]
        raise ArgumentError(
            "\n".join([f"{len(lines)} nodes of the network have no meaning here:", *lines[:40], *more,
            "help: export with ops of the domain ai.onnx, or add an op to tengen.interop.onnx.ops.OPS"])
        )  # fmt: skip
