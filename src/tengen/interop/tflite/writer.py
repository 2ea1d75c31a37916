"""A TFLite graph that is being written: operators, tensors with their shapes, arrays.

Pictures are (N, C, H, W) in Tengen's graphs and (N, H, W, C) in TFLite's. A value may be known in either order, or in both: what works
element by element takes the order in which its operands are, so that axes are turned around at the border and where something else
needs it, and not around each convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import DType
from tengen.base.errors import ArgumentError
from tengen.base.record import NamedTuple
from tengen.interop.tflite.reader import DTYPES
from tengen.interop.tflite.schema import numbers_of
from tengen.ir.graph import Graph, Node, Value

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of a picture, as TFLite has them, and back
WRITERS: dict[str, Callable[..., Any]] = {}  # op of Tengen's -> what writes it (`writing.py`)
KINDS = {
    np.dtype(v).name: k
    for k, v in reversed(DTYPES.items())
    if k in ("FLOAT32", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL")
}


def writes(*ops: str) -> Callable[[Callable], Callable]:
    """Enters a function under the names of ops. It takes the writer and the node, and returns its outputs."""

    def enter(f: Callable) -> Callable:
        for op in ops:
            WRITERS[op] = f
        return f

    return enter


class Out(NamedTuple):
    """A tensor of the file: its number, shape and dtype. last: whether it is a picture with its channels last. codes: of integers that
    stand for numbers, the scale and the zero point."""

    index: int
    shape: tuple[int, ...]
    dtype: np.dtype
    last: bool = False
    codes: tuple[float, int] | None = None


MOVES = {  # operators that keep a scale
    "RESHAPE", "TRANSPOSE", "MAX_POOL_2D", "STRIDED_SLICE", "SLICE", "PAD", "PADV2", "CONCATENATION", "GATHER", "BROADCAST_TO", "TILE",
    "REVERSE_V2",
}  # fmt: skip
NUMBERS = {"DEQUANTIZE"}  # and what makes numbers of integers


class Writer:
    """Operators in order, and the tensors that they read and write.

    Attributes:
        plain, last: what stands for the values of Tengen's graph, in its order and with channels last. arrays: of the file, by the number
            of their tensor. read: the values that operators which are written, or the graph's outputs, read. constants: arrays that are known.
        plans: layers of integers, by the node that ends one; scales: of integers that sums become (`quantized.py`).
    """

    def __init__(self, graph: Graph, plans: Mapping[Node, Any] | None = None, scales: Mapping[Value, float] | None = None):
        self.graph, self.plans, self.scales = graph, plans or {}, scales or {}
        self.constants: dict[Any, np.ndarray] = {c.value: c.data for c in graph.constants.values() if c.data is not None}
        self.tensors: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []
        self.codes: dict[str, int] = {}
        self.buffers: list[dict[str, Any]] = [{}]
        self.arrays: dict[int, np.ndarray] = {}
        self.plain: dict[Value, Out] = {}
        self.last: dict[Value, Out] = {}
        self.read: set[Value] = set()
        self._known: dict[tuple, Out] = {}
        self._taken: set[str] = set()

    # -- tensors ---------------------------------------------------------------------------------------------------------
    def tensor(self, name: str, shape: Sequence[Any], dtype: Any, last: bool = False, codes: Any = None) -> Out:
        """A new tensor. codes: the scale and the zero point; of an array also an axis, along which there are several scales.

        Errors: ArgumentError for an open extent, and for dtypes that TFLite does not compute with.
        """
        d = np.dtype(dtype.numpy if isinstance(dtype, DType) else dtype)
        if d.name not in KINDS:
            raise ArgumentError(f"TFLite does not compute with {d}")
        if not all(isinstance(e, (int, np.integer)) for e in shape):
            raise ArgumentError(f"the shape {tuple(shape)} is open")
        extents = tuple(int(e) for e in shape)
        fresh, n = name, 0
        while fresh in self._taken:
            n += 1
            fresh = f"{name}_{n}"
        self._taken.add(fresh)
        entry = {"Shape": np.array(extents, np.int32), "Type": numbers_of("TensorType")[KINDS[d.name]], "Name": fresh}
        if codes is not None:
            scale = np.atleast_1d(np.asarray(codes[0], np.float32))
            zeros, axis = np.full(scale.shape, codes[1], np.int64), (*codes, 0)[2]
            entry["Quantization"] = {"Scale": scale, "ZeroPoint": zeros, "QuantizedDimension": axis}
        self.tensors.append(entry)
        return Out(len(self.tensors) - 1, extents, d, last, None if codes is None or np.ndim(codes[0]) else (codes[0], codes[1]))

    def array(self, a: Any, name: str = "known", last: bool = False, codes: Any = None) -> Out:
        """An array of the file; equal ones are one."""
        a = np.asarray(a)
        key = (a.dtype.name, a.shape, a.tobytes(), last, None if codes is None else (np.asarray(codes[0]).tobytes(), *codes[1:]))
        if key not in self._known:
            made = self._known[key] = self.tensor(name, a.shape, a.dtype, last, codes)
            self.buffers.append({"Data": np.frombuffer(a.tobytes(), np.uint8)})
            self.tensors[made.index]["Buffer"] = len(self.buffers) - 1
            self.arrays[made.index] = a
        return self._known[key]

    def ints(self, v: Any) -> Out:
        """A vector of int32: a shape, axes."""
        return self.array(np.array(v, np.int32))

    def number(self, v: Any, like: Out) -> Out:
        """A 0-d array of a tensor's dtype."""
        return self.array(np.array(v, like.dtype))

    # -- values ----------------------------------------------------------------------------------------------------------
    def get(self, v: Value) -> Out:
        """A value in Tengen's order."""
        if v not in self.plain:
            self.plain[v] = self.turned(self.last[v], FIRST)
        return self.plain[v]

    def picture(self, v: Value) -> Out:
        """A value of four axes with its channels last."""
        if v not in self.last:
            self.last[v] = self.turned(self.plain[v], LAST)._replace(last=True)
        return self.last[v]

    def known(self, v: Value) -> np.ndarray:
        """The array that a value is. Errors: ArgumentError for one that is computed."""
        made = self.plain.get(v)
        if made is None or made.index not in self.arrays:
            raise ArgumentError("weights that are computed")
        return self.arrays[made.index]

    def turned(self, x: Out, axes: Sequence[int]) -> Out:
        """With its axes in another order."""
        if x.index in self.arrays:
            return self.array(np.ascontiguousarray(self.arrays[x.index].transpose(axes)), "turned")
        return self.emit("TRANSPOSE", [x, self.ints(axes)], [x.shape[a] for a in axes], x.dtype, ("TransposeOptions", {}))

    # -- operators -------------------------------------------------------------------------------------------------------
    def emit(
        self,
        op: str,
        inputs: Sequence[Out | None],
        shape: Sequence[Any],
        dtype: Any,
        options: tuple[str, dict] | None = None,
        last: bool = False,
        codes: tuple[float, int] | None = None,
    ) -> Out:
        """Adds an operator with one output. What moves integers keeps their scale."""
        given = [x.codes for x in inputs if x is not None and x.codes is not None]
        if codes is None and op in MOVES and given:
            codes = given[0]
        if given and (op in MOVES and {*given} != {codes} or codes is None and op not in NUMBERS):
            raise ArgumentError(f"integers that stand for numbers, which TFLite's {op} would compute with as such")
        made = self.tensor(op.lower(), shape, dtype, last, codes)
        self.add(op, inputs, [made], options)
        return made

    def add(self, op: str, inputs: Sequence[Out | None], outputs: Sequence[Out], options: tuple[str, dict] | None) -> None:
        """Adds an operator."""
        code = self.codes.setdefault(op, len(self.codes))
        entry = {
            "OpcodeIndex": code, "Inputs": np.array([-1 if x is None else x.index for x in inputs], np.int32),
            "Outputs": np.array([o.index for o in outputs], np.int32),
        }  # fmt: skip
        self.operators.append({**entry, **({"BuiltinOptions": options} if options else {})})

    def each(self, op: str, *x: Out, dtype: Any = None, options: tuple[str, dict] | None = None) -> Out:
        """An operator that works element by element on operands that broadcast."""
        shape = np.broadcast_shapes(*(o.shape for o in x))
        like = x[1] if op == "SELECT_V2" else x[0]
        return self.emit(op, x, shape, like.dtype if dtype is None else dtype, options, any(o.last for o in x))

    def cast(self, x: Out, dtype: Any) -> Out:
        """In another dtype."""
        d = np.dtype(dtype.numpy if isinstance(dtype, DType) else dtype)
        return x if d == x.dtype else self.emit("CAST", [x], x.shape, d, ("CastOptions", {}), x.last)

    def reshaped(self, x: Out, shape: Sequence[int]) -> Out:
        """In another shape."""
        if tuple(shape) == x.shape:
            return x
        if x.index in self.arrays:
            return self.array(self.arrays[x.index].reshape(shape), "shaped")
        return self.emit(
            "RESHAPE", [x, self.ints(shape)], shape, x.dtype, ("ReshapeOptions", {"NewShape": np.array(shape, np.int32)})
        )

    # -- all of it -------------------------------------------------------------------------------------------------------
    def write_nodes(self) -> None:
        """Writes the graph's constants, and the nodes that its outputs need: those of checks alone are left out.

        Errors: ArgumentError that lists the nodes that cannot be said.
        """
        live = self._needed()
        wrong = []
        for c in self.graph.constants.values():
            if c.value in self.read:
                try:
                    self.plain[c.value] = self.array(c.data, c.name)
                except ArgumentError as e:
                    wrong.append(f"  the weight {c.name}: {e}")
        for n in (n for n in self.graph.nodes if n in live):
            if any(v is not None and v not in self.plain and v not in self.last for v in self._read_by(n)):
                continue  # one that it reads has been told
            try:
                op = "planned" if n in self.plans else n.op
                if op not in WRITERS:
                    raise ArgumentError("TFLite has no operator for it")
                made = WRITERS[op](self, n)
                for v, o in zip(n.outputs, made if isinstance(made, list) else [made]):
                    if o is not None:
                        (self.last if o.last else self.plain)[v] = o
            except ArgumentError as e:
                types = ", ".join(repr(v.type) for v in n.inputs if v is not None)
                wrong.append(f"  {n.op}({types}): {e}{f' [at {n.where}]' if n.where else ''}")
                for v in n.outputs:  # what reads it is written nevertheless, so that all is told
                    if all(isinstance(e, int) for e in v.type.shape) and v.type.dtype.numpy.name in KINDS:
                        self.plain[v] = self.tensor("unknown", v.type.shape, v.type.dtype)
        if wrong:
            raise ArgumentError("\n".join(["these nodes cannot be said in TFLite:", *wrong[:40]]))

    def _needed(self) -> set[Node]:
        live: set[Node] = set()
        stack = list(self.graph.outputs)
        while stack:
            v = stack.pop()
            self.read.add(v)
            if v.node is not None and v.node not in live:
                live.add(v.node)
                stack.extend(x for x in self._read_by(v.node) if x is not None)
        return live

    def _read_by(self, n: Node) -> Sequence[Value | None]:
        """What a node reads, or what the layer reads that it ends; scales belong to tensors."""
        if n in self.plans:
            return self.plans[n].sources
        return n.inputs[:1] if n.op in ("quantize_linear", "dequantize_linear") else n.inputs
