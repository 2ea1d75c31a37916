"""A network that came from TFLite: a Module that runs the graph's operators in their order.

In: a `Source`. Out: a `Module` whose parameters are the graph's float arrays. Run eagerly, traced or recorded, it is the functions of
`ops/` that compute, with the functional operations of the house. Pictures are (N, height, width, channels) between operators, as in the
file; an operator on pictures turns the axes around and back, which moves no element: a program keeps the order that its kernels like.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError, TengenError
from tengen.base.record import record
from tengen.interop.networks.values import as_tensor, recording
from tengen.interop.tflite.ops import meaning, why_not
from tengen.interop.tflite.reader import SMALL, GraphOf, OpOf, Source, TensorOf, called, unique
from tengen.module import Module
from tengen.tensor import Parameter, Tensor

LEAST_ROOM = 1 << 25  # bytes that variables may have, whatever the file's size
MOST_OPERATORS = 100_000  # that a program may have, with loops written out
FIRST = ("VAR_HANDLE", "ASSIGN_VARIABLE", "RESHAPE", "DEQUANTIZE")  # of a graph that is run once


@record(frozen=True)
class Handle:
    """What names a variable that is kept from call to call."""

    name: str


Value = Tensor | np.ndarray | Handle | None


class TfliteNetwork(Module):
    """A TFLite graph as a module.

    Its inputs are the graph's, in order or by name: tensors, or what a tensor is made of. It returns the output, or a tuple of several.
    Float arrays of the file are parameters, under their names with "weights." before them; integers are buffers "constants." (those of 4 bits
    as bytes, two of them in each), variables that the network keeps from call to call are buffers "variables.".

    Attributes:
        source: what was read. weights, constants: tensors by name. variables: the state.
    """

    def __init__(self, source: Source):
        super().__init__()
        self.source = source
        self.weights: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        self.variables: dict[str, Tensor] = {}
        self.names: dict[tuple[int, int], str] = {}  # (graph, tensor) -> its name among weights and constants
        refuse_unknown(source)
        made: dict[int, Tensor] = {}  # by array: tensors of one buffer have their memory in common until one of them changes
        tensors = [(g, t) for g, graph in enumerate(source.graphs) for t in graph.tensors if t.data is not None]
        for (g, t), name in zip(tensors, unique(t.name or f"tensor_{t.index}" for _, t in tensors)):
            assert t.data is not None and t.dtype is not None
            if t.dtype.kind not in "fc" and t.data.size <= SMALL and t.quant is None and not t.packed:
                continue  # it stays known
            same = made[id(t.data)] if id(t.data) in made else made.setdefault(id(t.data), Tensor(t.data))
            if t.dtype.kind == "f":
                self.weights[name] = Parameter(same)
            else:
                self.constants[name] = Tensor(same)
            self.names[g, t.index] = name
        self._make_variables()

    def _make_variables(self) -> None:
        """Variables begin with 0, or with what the graphs give them that are run once.

        Errors: FileFormatError for more bytes of them than the file warrants; ArgumentError for a graph that computes what they begin with.
        """
        left = max(self.source.size, LEAST_ROOM)

        def make(name: str, t: TensorOf) -> None:
            nonlocal left
            if name in self.variables or t.dtype is None:
                return
            left -= math.prod(t.shape) * t.dtype.itemsize
            if left < 0:
                raise FileFormatError(
                    f"variables of more bytes than {max(self.source.size, LEAST_ROOM):,}: {name!r} has the shape {t.shape}"
                )
            self.variables[name] = Tensor(np.full(t.shape, 0 if t.quant is None else t.quant.zeros.flat[0], t.dtype))

        for g, graph in enumerate(self.source.graphs):
            for t in graph.tensors:
                if t.variable and t.data is None:
                    make(variable_name(g, t), t)
            handles = {o.outputs[0]: handle_name(o) for o in graph.operators if o.op == "VAR_HANDLE" and o.outputs}
            for o in graph.operators:
                if o.op in ("READ_VARIABLE", "ASSIGN_VARIABLE") and o.inputs and o.inputs[0] in handles:
                    make(handles[o.inputs[0]], o.out() if o.op == "READ_VARIABLE" else o.of(1))
        for o in self.source.graph.operators:
            if o.op == "CALL_ONCE":
                first = called(o)["InitSubgraphIndex"]
                odd = [i.op for i in self.source.graphs[first].operators if i.op not in FIRST]
                if odd:
                    raise ArgumentError(
                        f"graph {first}, which is run once, computes ({odd[0]}); known is one that gives variables arrays of the file"
                    )
                Scope(self, first).run([])

    def forward(self, *args: Any, **by_name: Any) -> Any:
        """Computes the graph's outputs."""
        source = self.source
        given = dict(zip(source.inputs, args), **by_name)
        missing = [n for n in source.inputs if n not in given]
        twice = {n for n, _ in zip(source.inputs, args)} & by_name.keys()
        if missing or twice or given.keys() - set(source.inputs) or len(args) > len(source.inputs):
            raise ArgumentError(f"the network takes {', '.join(source.inputs)}; got {', '.join(given) or 'nothing'}")
        tensors = source.graph.tensors
        values = [argument(n, tensors[i], given[n]) for n, i in zip(source.inputs, source.graph.inputs)]
        made = [as_tensor(v) for v in Scope(self, 0).run(values)]
        return made[0] if len(made) == 1 else tuple(made)


def variable_name(g: int, t: TensorOf) -> str:
    """The name of a tensor that is kept from call to call."""
    return f"{g}.{t.index}.{t.name}"


def handle_name(o: OpOf) -> str:
    """The name of the variable that a VAR_HANDLE names."""
    return f"{o.get('Container', '')}/{o.get('SharedName', '')}"


def argument(name: str, t: TensorOf, x: Any) -> Tensor:
    """What is given for an input. Python's numbers take its dtype.

    Errors: DTypeError for an array or a tensor of another dtype than the file says, ShapeError for another number of axes.
    """
    if t.dtype is None:
        raise ArgumentError(f"the input {name} is a {t.kind.lower()}, which no program takes")
    if isinstance(x, (bool, int, float, list, tuple)):
        x = np.asarray(x, t.dtype)
    x = x if isinstance(x, Tensor) else Tensor(x)
    if x.dtype.numpy != t.dtype:
        raise DTypeError(f"the input {name} takes {t.dtype}, got {x.dtype}; help: x.astype({t.dtype.name!r})")
    if len(x.shape) != len(t.shape) and t.shape:
        raise ShapeError(f"the input {name} has the shape {t.opened}, got {tuple(x.shape)}")
    return x


class Scope:
    """Values by number while a graph runs.

    Attributes:
        network: whose arrays and variables they are. number: of the graph. graph: it. count: counts the operators of a call.
    """

    def __init__(self, network: TfliteNetwork, number: int, count: Iterator[int] | None = None):
        self.network, self.number, self.count = network, number, count or itertools.count(1)
        self.graph: GraphOf = network.source.graphs[number]
        self.values: dict[int, Value] = {}

    def __getitem__(self, i: int) -> Value:
        """A tensor of the graph; None for one that is absent."""
        if i < 0:
            return None
        if i in self.values:
            return self.values[i]
        t = self.graph.tensors[i]
        if t.variable and t.data is None:
            return self.network.variables[variable_name(self.number, t)]
        name = self.network.names.get((self.number, i))
        if name is None:
            return t.data
        found = self.network.weights[name] if name in self.network.weights else self.network.constants[name]
        return unpacked(found, t.shape) if t.packed else found

    def handle(self, n: OpOf) -> Handle:
        """What a VAR_HANDLE gives.

        Errors: FileFormatError for a variable that nothing of the file reads or writes.
        """
        name = handle_name(n)
        if name not in self.network.variables:
            raise FileFormatError(f"the variable {name!r} is neither read nor written, so nothing says what it is")
        return Handle(name)

    def keep(self, i: int, value: Tensor) -> None:
        """A variable tensor of this graph gets its next value."""
        self.assign(variable_name(self.number, self.graph.tensors[i]), value)

    def assign(self, name: str, value: Tensor) -> None:
        """A variable gets its next value.

        Errors: ShapeError where it has another shape: the variable keeps the one that it has in the file.
        """
        old = self.network.variables[name]
        if tuple(old.shape) != tuple(value.shape):
            raise ShapeError(
                f"the variable {name!r} of shape {tuple(old.shape)} is given a value of shape {tuple(value.shape)}"
            )
        old._reset(value)

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """Runs the operators, and gives the graph's outputs. Values that nothing reads any more are let go."""
        if len(inputs) != len(self.graph.inputs):
            raise FileFormatError(f"graph {self.number} takes {len(self.graph.inputs)} values, and is given {len(inputs)}")
        self.values.update(zip(self.graph.inputs, inputs))
        last = {i: k for k, o in enumerate(self.graph.operators) for i in o.inputs}
        kept = set(self.graph.outputs)
        for k, o in enumerate(self.graph.operators):
            made = self.compute(o, [self[i] for i in o.inputs])
            self.values.update(zip(o.outputs, made))
            for i in {*o.inputs, *o.outputs}:
                if last.get(i, k) <= k and i not in kept:
                    self.values.pop(i, None)
            del made
        return [self[i] for i in self.graph.outputs]

    def compute(self, n: OpOf, inputs: list[Value]) -> Sequence[Value]:
        """The outputs of an operator."""
        f = meaning(n)
        assert f is not None
        if next(self.count) > MOST_OPERATORS and recording():
            raise FileFormatError(f"more than {MOST_OPERATORS:,} operators, with loops written out")
        try:
            made = f(self, n, *inputs) if getattr(f, "scoped", False) else f(n, *inputs)
        except (
            TengenError,
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            ZeroDivisionError,
            OverflowError,
            AttributeError,
        ) as e:
            names = ", ".join(n.tensors[i].name for i in n.outputs)
            where = f"in the TFLite operator {n.index}: {n.op}({', '.join(map(shown, inputs))}) -> {names}"
            if isinstance(e, TengenError):
                e.add_note(where)
                raise
            raise FileFormatError(f"{e} {where}") from e
        made = made if isinstance(made, tuple) else (made,)
        if len(made) < len(n.outputs):
            raise FileFormatError(f"operator {n.index}, {n.op}, has {len(made)} outputs; the file says {len(n.outputs)}")
        return made


def unpacked(pairs: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Integers of 4 bits, two of which lie in each byte, as int8 of a shape."""
    parts = [((half ^ 8).astype("int8") - Tensor(np.int8(8))) for half in (pairs & 15, pairs >> 4)]
    return F.stack(parts, 1).reshape(-1)[: math.prod(shape)].reshape(shape)


def shown(v: Value) -> str:
    """A value in a message."""
    return "-" if v is None else v.name if isinstance(v, Handle) else f"{v.dtype}{list(v.shape)}"


def refuse_unknown(source: Source) -> None:
    """All operators that have no meaning here, told at once.

    Errors: ArgumentError with a line for each of them.
    """
    lines, helps = [], []
    for g, graph in enumerate(source.graphs):
        for o in graph.operators:
            if meaning(o) is None:
                names = ", ".join(o.tensors[i].name for i in o.outputs)
                why, instead = why_not(o)
                lines.append(f"  graph {g}, operator {o.index} -> {names}: {o.op}, {why}")
                helps.append(instead)
    if lines:
        more = [] if len(lines) <= 40 else [f"  and {len(lines) - 40} more"]
        raise ArgumentError(
            "\n".join([f"{len(lines)} operators of the network have no meaning here:", *lines[:40], *more,
            "help: " + "; ".join(dict.fromkeys(helps))])
        )  # fmt: skip


def named(network: TfliteNetwork) -> Mapping[str, Tensor]:
    """All tensors of a network by the names that a program gives them."""
    return {**network.weights, **network.constants, **network.variables}
