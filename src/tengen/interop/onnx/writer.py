"""An ONNX graph that is being written: nodes, arrays, names, and extents as tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import ArgumentError
from tengen.interop.onnx.unsaid import UNSAID
from tengen.ir.graph import Graph, Node, Value
from tengen.ir.types import Dim, TensorType
from tengen.loops.lang import Expr

ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "quo": "Div", "rem": "Mod", "min": "Min", "max": "Max"}  # of extents
LIGHT = 1 << 12  # bytes of an array that is kept twice to find equal ones
WRITERS: dict[str, Callable[..., Any]] = {}  # op of Tengen's -> what writes it (`writing.py`)


def writes(*ops: str) -> Callable[[Callable], Callable]:
    """Enters a function under the names of ops. It takes the writer, the node and the names of its inputs, and returns those of its
    outputs."""

    def enter(f: Callable) -> Callable:
        for op in ops:
            WRITERS[op] = f
        return f

    return enter


class Form(Protocol):
    """How one node is written, where that is not the form of its op."""

    def reads(self) -> Iterable[Value | None]:
        """The values that it is written from."""

    def write(self) -> str:
        """Writes it. Returns the name of the node's output."""


class Writer:
    """Nodes in order, and the arrays that they read. Graphs in nodes have writers of their own, which put their arrays into the outermost.

    Attributes:
        nodes: NodeProtos. names: of the values of Tengen's graph. outer: the writer of the graph around it. read: the values that
            nodes which are written, or the graph's outputs, read. lines: the user's, by nodes' names; where: that of what is written now.
    """

    def __init__(self, graph: Graph, outer: Writer | None = None):
        import onnx

        self.onnx, self.graph, self.outer = onnx, graph, outer
        self.nodes: list[Any] = []
        self.names: dict[Value, str] = {}
        self.arrays: dict[str, np.ndarray] = outer.arrays if outer else {}
        self._known: dict[tuple, str] = outer._known if outer else {}
        self._taken: set[str] = outer._taken if outer else set()
        self._extents: dict[Dim, str] = {}
        self.read: set[Value] = set()
        self.lines: dict[str, str] = outer.lines if outer else {}
        self.where: str | None = outer.where if outer else None

    # -- names -----------------------------------------------------------------------------------------------------------
    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        name, n = hint, 0
        while name in self._taken:
            n += 1
            name = f"{hint}_{n}"
        self._taken.add(name)
        return name

    def name(self, v: Value) -> str:
        """The name of a value that has been written."""
        return self.names[v]

    def array(self, a: np.ndarray, hint: str = "known") -> str:
        """An array of the file; equal ones are one."""
        a = np.asarray(a)
        held = a.tobytes() if a.nbytes <= LIGHT else hashlib.sha256(np.ascontiguousarray(a).view(np.uint8)).digest()
        key = (a.dtype.str, a.dtype.name, a.shape, held)
        if key not in self._known or hint != "known":
            name = self.fresh(hint)
            self.arrays[name] = a
            self._known[key] = name
        return self._known[key]

    def reshape_array(self, name: str, shape: tuple[int, ...]) -> str:
        """An array of the file in another shape: itself where it is one constant's, and no node reads it yet, else another one."""
        a, shared = self.arrays[name], list(self.names.values()).count(name) != 1
        if a.shape == shape:
            return name
        if shared or self.outer is not None or any(name in n.input for n in self.nodes):
            return self.array(a.reshape(shape), name)
        for key in [k for k, v in self._known.items() if v == name]:
            del self._known[key]
        self.arrays[name] = a.reshape(shape)
        return name

    # -- nodes -----------------------------------------------------------------------------------------------------------
    def emit(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Adds a node. Returns the name of its output, or a tuple of names for a `count` of several."""
        outs = [self.fresh(op.lower()) for _ in range(count)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        layers = (i.rpartition(".")[0] for i in inputs if i in self.arrays)  # of the user's module whose weight it reads
        layer = next(filter(None, layers), "")
        name = self.fresh(f"{layer}/{op}" if layer else f"{op}_node")
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), outs, name=name, **attributes))
        if self.where:
            self.lines[name] = self.where
        return outs[0] if count == 1 else tuple(outs)

    def cast(self, x: str, to: DType) -> str:
        """In another dtype."""
        return self.emit("Cast", x, to=self.element_type(to))

    def element_type(self, d: DType) -> int:
        """ONNX's number of a dtype."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(d.numpy)

    def scalar(self, value: Any, like: TensorType) -> str:
        """A 0-d array of a value's dtype."""
        return self.array(np.array(value, like.dtype.numpy))

    # -- extents ---------------------------------------------------------------------------------------------------------
    def shape(self, extents: Sequence[Dim]) -> str:
        """Extents as an int64 vector: an array where all are numbers, else computed from the shapes of inputs."""
        if all(isinstance(e, int) for e in extents):
            return self.array(np.array(extents, np.int64))
        return self.emit("Concat", *(self.extent(e) for e in extents), axis=0)

    def extent(self, e: Dim) -> str:
        """An extent as an int64 vector of one element."""
        if isinstance(e, int):
            return self.array(np.array([e], np.int64))
        if e not in self._extents:
            self._extents[e] = self._computed(e)
        return self._extents[e]

    def number(self, e: Dim) -> str:
        """An extent as an int64 without axes."""
        return self.array(np.array(e, np.int64)) if isinstance(e, int) else self.emit("Squeeze", self.extent(e))

    def _computed(self, e: Expr) -> str:
        if e.op == "const":
            return self.array(np.array([e.attr], np.int64))
        if e.op == "var":
            writer: Writer | None = self
            while writer is not None:
                for v in writer.graph.inputs:
                    for axis, d in enumerate(v.type.shape):
                        if d is e and v in writer.names:
                            shape = self.emit("Shape", writer.names[v])
                            return self.emit("Gather", shape, self.array(np.array([axis], np.int64)), axis=0)
                writer = writer.outer
            raise ArgumentError(f"the extent {e} is of no input's axis by itself, so ONNX cannot say it")
        if e.op in ARITHMETIC:
            return self.emit(ARITHMETIC[e.op], *(self.extent(a) for a in e.args))
        if e.op == "neg":
            return self.emit("Neg", self.extent(e.args[0]))
        raise ArgumentError(f"the extent {e} cannot be said in ONNX")

    # -- all of it -------------------------------------------------------------------------------------------------------
    def write_nodes(self, instead: Mapping[Node, Form] | None = None) -> None:
        """Writes the graph's constants, and the nodes that its outputs need: those of checks alone are left out.

        Args:
            instead: other forms of nodes than their ops have.
        Errors: ArgumentError that lists the nodes that cannot be said.
        """
        forms = instead or {}
        for c in self.graph.constants.values():
            self.names[c.value] = self.array(c.data, c.name)
        self.read, live, wrong = set(self.graph.outputs), [], []
        for n in reversed(self.graph.nodes):
            if any(v in self.read for v in n.outputs):
                live.append(n)
                self.read.update(v for v in (forms[n].reads() if n in forms else n.inputs) if v is not None)
        for n in reversed(live):
            self.where = n.where or (self.outer.where if self.outer else None)
            try:
                if n.op not in WRITERS:
                    raise ArgumentError(UNSAID.get(n.op, "ONNX has no operator for it"))
                made = forms[n].write() if n in forms else WRITERS[n.op](self, n, *(None if v is None else self.name(v) for v in n.inputs))
                self.names.update(zip(n.outputs, made if isinstance(made, tuple) else (made,)))
            except ArgumentError as e:
                types = ", ".join(repr(v.type) for v in n.inputs if v is not None)
                wrong.append(f"  {n.op}({types}): {e}{f' [at {n.where}]' if n.where else ''}")
                self.names.update((v, "unknown") for v in n.outputs)
        if wrong:
            raise ArgumentError("\n".join(["these nodes cannot be said in ONNX:", *wrong[:40]]))

    # -- ports -----------------------------------------------------------------------------------------------------------
    def port(self, name: str, t: TensorType) -> Any:
        """What a graph says of an input or output."""
        shape = [d if isinstance(d, int) else str(d) for d in t.shape]
        return self.onnx.helper.make_tensor_value_info(name, self.element_type(t.dtype), shape)
