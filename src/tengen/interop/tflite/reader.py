"""TFLite bytes to a checked description of a network: graphs, operators, tensors. Nothing is computed.

Any bytes give a `Source` or one `FileFormatError`. Arrays are views of the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.base.files import read_regular
from tengen.base.record import record
from tengen.interop.networks.program import printable
from tengen.interop.tflite.flat import Bytes, Record
from tengen.interop.tflite.schema import names_of, package
from tengen.interop.tflite.sparse import densified

IDENTIFIER = b"TFL3"
DEEPEST = 16  # graphs that operators run in graphs
MOST_OPERATORS = 1_000_000  # with those of graphs that operators run, once for each of them
MOST_DIMENSIONS = 8
LARGEST = 1 << 60  # bytes of a tensor
SMALL = 4096  # integers of an array that may be a shape, axes or indices, which stay known
SPARE = 1 << 25  # bytes by which arrays may be more than the file: sparse and packed ones, and those that lie over one another
DTYPES = {
    "FLOAT32": np.float32, "FLOAT16": np.float16, "FLOAT64": np.float64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
    "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_,
    "COMPLEX64": np.complex64, "COMPLEX128": np.complex128, "INT4": np.int8,
}  # fmt: skip
OTHERS = {"STRING", "RESOURCE", "VARIANT"}  # no numbers


@record(frozen=True)
class Quant:
    """What integers stand for: (q - zeros) scales, with one scale for all or one for each slice along an axis."""

    scales: np.ndarray  # float32
    zeros: np.ndarray  # int64
    axis: int

    @property
    def scale(self) -> float:
        """The one scale, a float32 as a Python float."""
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """The one zero point."""
        return int(self.zeros[0])


@record(frozen=True)
class TensorOf:
    """A tensor of a graph.

    Attributes:
        shape: as the file says. opened: the same, with -1 where the extent is open. dtype: NumPy's; None for texts and resources.
        kind: the schema's name of its dtype. data: the array that it is; None for one that is computed. Of many integers of 4 bits these are
            the bytes of the file, two integers each, the first in the low bits. quant: None without scales.
        variable: whether it keeps its value from call to call.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    opened: tuple[int, ...]
    dtype: np.dtype | None
    kind: str
    data: np.ndarray | None
    quant: Quant | None
    variable: bool

    @property
    def packed(self) -> bool:
        """Whether `data` are bytes of two integers each."""
        return self.kind == "INT4" and self.data is not None and self.data.dtype == np.uint8


@record(frozen=True)
class OpOf:
    """An operator of a graph: what it reads and writes by number, -1 for what is absent.

    Attributes:
        op: the schema's name; for a custom one its own. custom: whether it is a custom one, whose options are in `blob`.
    """

    op: str
    index: int
    custom: bool
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Record | None
    blob: memoryview
    tensors: tuple[TensorOf, ...] = field(repr=False)
    intermediates: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """An option; where the file has no options the schema's default is not known: KeyError."""
        if self.options is None:
            raise KeyError(f"{self.op} has no option {name}: the file has none for it")
        return self.options[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An option, or the default where the file has no options for the operator."""
        return default if self.options is None or name not in self.options else self.options[name]

    def of(self, i: int) -> TensorOf:
        """What the file says of an input."""
        return self.tensors[self.inputs[i]]

    def out(self, i: int = 0) -> TensorOf:
        """What the file says of an output."""
        return self.tensors[self.outputs[i]]

    def has(self, i: int) -> bool:
        """Whether an input is there."""
        return i < len(self.inputs) and self.inputs[i] >= 0


@record(frozen=True)
class GraphOf:
    """A graph: tensors by number, and operators in the order in which they run."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[TensorOf, ...]
    operators: tuple[OpOf, ...]


@record(frozen=True)
class Source:
    """A model: its graphs, of which the first is run; names of inputs and outputs. size: bytes of the file."""

    name: str
    graphs: tuple[GraphOf, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size: int

    @property
    def graph(self) -> GraphOf:
        """The one that is run."""
        return self.graphs[0]


def read(source: Any) -> Source:
    """A file by its path, or its bytes.

    Errors: FileFormatError for anything that is no TFLite model, FileNotFoundError and the like for the file itself.
    """
    package()
    name = of = ""
    if isinstance(source, (str, os.PathLike)):
        name, of, source = Path(source).stem, f"{os.fspath(source)}: ", read_regular(source)
    try:
        return Reader(source).source(name)
    except (struct.error, ValueError, KeyError, IndexError, OverflowError, MemoryError) as e:
        if isinstance(e, FileFormatError):
            raise FileFormatError(f"{of}{e}") from e
        raise FileFormatError(f"{of}this is no TFLite model: {type(e).__name__}: {e}") from e


class Reader:
    """Reads one model."""

    def __init__(self, data: Any):
        self.bytes = Bytes(data)
        self.model = self.bytes.root("Model", IDENTIFIER)
        self.arrays: dict[tuple, np.ndarray] = {}  # by buffer, dtype, shape and sparsity: tensors of one buffer are one array
        self.left = self.bytes.size + SPARE

    def source(self, name: str) -> Source:
        """All of it. name: of the file; without one it is the graph's."""
        if self.model["Version"] != 3:
            raise FileFormatError(f"version {self.model['Version']} of TFLite's schema; version 3 is known")
        self.codes = [self.code(c) for c in self.model["OperatorCodes"]]
        graphs = tuple(self.graph(g, i) for i, g in enumerate(self.model["Subgraphs"]))
        if not graphs:
            raise FileFormatError("a TFLite model without a graph")
        check_calls(graphs)
        first = graphs[0]
        names = [{}, {}]
        for s in self.model["SignatureDefs"]:
            if s["SubgraphIndex"] == 0 and not names[0]:
                names = [{m["TensorIndex"]: m["Name"] for m in s[k]} for k in ("Inputs", "Outputs")]
        named = [
            unique(given.get(i) or first.tensors[i].name for i in of) for given, of in zip(names, (first.inputs, first.outputs))
        ]
        return Source(printable(name or first.name or "tflite"), graphs, named[0], named[1], self.bytes.size)

    def code(self, c: Record) -> tuple[str, bool, int]:
        """An operator's name, whether it is a custom one, and its version."""
        number = max(c["DeprecatedBuiltinCode"], c["BuiltinCode"])
        name = names_of("BuiltinOperator").get(number)
        if name == "CUSTOM":
            return c["CustomCode"], True, c["Version"]
        return name or f"operator {number}", False, c["Version"]

    def graph(self, g: Record, number: int) -> GraphOf:
        """A graph, whose operators read only what is there when they run."""
        tensors = tuple(self.tensor(t, i) for i, t in enumerate(g["Tensors"]))
        inputs, outputs = (indices(g[k], len(tensors), f"graph {number}") for k in ("Inputs", "Outputs"))
        operators = tuple(self.operator(o, i, tensors) for i, o in enumerate(g["Operators"]))
        ready = {*inputs, *(t.index for t in tensors if t.data is not None or t.variable)}
        for o in operators:
            for i in o.inputs:
                if i >= 0 and i not in ready:
                    raise FileFormatError(
                        f"operator {o.index} of graph {number}, {o.op}, reads tensor {i}, which nothing before it computes"
                    )
            twice = [i for i in o.outputs if i in ready]
            if twice:
                raise FileFormatError(
                    f"operator {o.index} of graph {number}, {o.op}, writes tensor {twice[0]}, which is there already"
                )
            ready.update(i for i in o.outputs if i >= 0)
        lost = [i for i in outputs if i not in ready]
        if lost:
            raise FileFormatError(f"graph {number} gives tensor {lost[0]}, which nothing computes")
        return GraphOf(g["Name"], inputs, outputs, tensors, operators)

    def operator(self, o: Record, index: int, tensors: tuple[TensorOf, ...]) -> OpOf:
        """An operator."""
        if o["OpcodeIndex"] >= len(self.codes):
            raise FileFormatError(f"operator {index} has the code {o['OpcodeIndex']} of {len(self.codes)}")
        name, custom, version = self.codes[o["OpcodeIndex"]]
        what = f"operator {index}, {name}"
        blob = memoryview(np.asarray(o["CustomOptions"], np.uint8))
        if o["LargeCustomOptionsOffset"] > 1:
            blob = memoryview(self.beyond(o["LargeCustomOptionsOffset"], o["LargeCustomOptionsSize"], what))
        for k in ("Inputs", "Outputs", "Intermediates"):
            self.bytes.part(len(o[k]) // 8)  # operators may have one vector in common
        inputs, outputs, between = (indices(o[k], len(tensors), what, -1) for k in ("Inputs", "Outputs", "Intermediates"))
        if -1 in outputs:
            raise FileFormatError(f"{what} has an output without a tensor")
        options = o["BuiltinOptions"] if o["BuiltinOptions"] is not None else o["BuiltinOptions2"]
        return OpOf(name, index, custom, version, inputs, outputs, options, blob, tensors, between)

    def tensor(self, t: Record, index: int) -> TensorOf:
        """A tensor, with its array if it is one of the file."""
        what = f"tensor {index} {t['Name']!r}"
        kind = names_of("TensorType").get(t["Type"])
        if kind not in DTYPES and kind not in OTHERS:
            raise FileFormatError(f"{what} has the unknown dtype {t['Type']}")
        if len(t["Shape"]) > MOST_DIMENSIONS:
            raise FileFormatError(f"{what} has {len(t['Shape'])} dimensions; {MOST_DIMENSIONS} may be")
        shape, opened = (tuple(int(d) for d in t[k][: MOST_DIMENSIONS + 1]) for k in ("Shape", "ShapeSignature"))
        dtype = np.dtype(DTYPES[kind]) if kind in DTYPES else None
        if min(shape, default=0) < 0 or prod(shape) * 16 > LARGEST:
            raise FileFormatError(f"{what} has the shape {shape}")
        if len(opened) != len(shape) or any(o not in (-1, d) for o, d in zip(opened, shape)):
            opened = shape
        data = None if dtype is None else self.array(t, shape, dtype, kind, what)
        quant = self.quant(t["Quantization"], shape, kind, what) if t["Quantization"] is not None else None
        return TensorOf(index, t["Name"], shape, opened, dtype, kind, data, quant, t["IsVariable"])

    def array(self, t: Record, shape: tuple[int, ...], dtype: np.dtype, kind: str, what: str) -> np.ndarray | None:
        """The array that a tensor is."""
        buffers = self.model["Buffers"]
        if t["Buffer"] >= max(len(buffers), 1):
            raise FileFormatError(f"{what} lies in buffer {t['Buffer']} of {len(buffers)}")
        if not t["Buffer"]:
            return None
        b = buffers[t["Buffer"]]
        data = self.beyond(b["Offset"], b["Size"], what) if b["Offset"] > 1 else np.asarray(b["Data"], np.uint8)
        if not data.size and prod(shape):
            return None
        key = (t["Buffer"], kind, shape, id(t["Sparsity"]))  # a table is one object
        if key not in self.arrays:
            unpacked = kind != "INT4" or t["Sparsity"] is not None or prod(shape) <= SMALL
            self.take(prod(shape) * dtype.itemsize if unpacked else 0, what)
            self.arrays[key] = self.made(t["Sparsity"], data, shape, dtype, kind, what)
        return self.arrays[key]

    def made(self, sparsity: Record | None, data: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, kind: str, what: str) -> np.ndarray:
        """The array of the bytes of a buffer."""
        if sparsity is not None:
            return densified(sparsity, data, shape, dtype, what, self.bytes.size + SPARE)
        want = (prod(shape) + 1) // 2 if kind == "INT4" else prod(shape) * dtype.itemsize
        if data.size != want:
            raise FileFormatError(f"{what} of shape {shape} and {kind} needs {want} bytes, its buffer has {data.size}")
        if kind == "INT4" and prod(shape) > SMALL:
            return data
        if kind == "INT4":
            return np.stack([data << 4, data], -1).reshape(-1)[: prod(shape)].view(np.int8).__rshift__(4).reshape(shape)
        if dtype.kind == "b":
            return (data != 0).reshape(shape)
        return np.frombuffer(data, dtype).reshape(shape)

    def take(self, size: int, what: str) -> None:
        """Counts bytes of memory that arrays take."""
        self.left -= size
        if self.left < 0:
            raise FileFormatError(f"{what}: its arrays are more than {self.bytes.size + SPARE:,} bytes, the file's size and {SPARE >> 20} MB")

    def beyond(self, offset: int, size: int, what: str) -> np.ndarray:
        """Bytes that lie behind the flatbuffer in the same file."""
        if offset + size > self.bytes.size:
            raise FileFormatError(f"{what} lies at bytes {offset} to {offset + size} of {self.bytes.size}")
        return np.frombuffer(self.bytes.data, np.uint8, size, offset) if size else np.empty(0, np.uint8)

    def quant(self, q: Record, shape: tuple[int, ...], kind: str, what: str) -> Quant | None:
        """The scales of a tensor."""
        scales = np.asarray(q["Scale"], np.float32)
        if not scales.size:
            return None
        zeros, axis = np.asarray(q["ZeroPoint"], np.int64), q["QuantizedDimension"]
        self.take(8 * (scales.size + zeros.size) if scales.size + zeros.size > 2 else 0, what)
        zeros = np.zeros(scales.size, np.int64) if not zeros.size else zeros
        if scales.size > 1 and zeros.size == 1:
            zeros = np.repeat(zeros, scales.size)
        if zeros.size != scales.size or not (np.isfinite(scales) & (scales >= 0)).all():
            raise FileFormatError(
                f"{what} has {scales.size} scales and {zeros.size} zero points; scales are finite and positive"
            )
        info = np.iinfo(DTYPES[kind]) if kind in DTYPES and np.dtype(DTYPES[kind]).kind in "iu" else None
        if info is not None and zeros.size and not info.min <= zeros.min() <= zeros.max() <= info.max:
            raise FileFormatError(f"{what} has the zero points {zeros.min()} to {zeros.max()}, which {kind} does not have")
        if scales.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scales.size):
            raise FileFormatError(f"{what} of shape {shape} has {scales.size} scales along axis {axis}")
        return Quant(scales, zeros, axis)


def indices(v: Any, count: int, what: str, least: int = 0) -> tuple[int, ...]:
    """Numbers of tensors. Errors: FileFormatError for one that is not there."""
    found = tuple(int(i) for i in v)
    odd = [i for i in found if not least <= i < count]
    if odd:
        raise FileFormatError(f"{what} names tensor {odd[0]} of {count}")
    return found


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names of which none is empty, all are printable, and no two are the same."""
    found: dict[str, None] = {}
    for name in map(printable, names):
        made, n = name, 0
        while made in found:
            n += 1
            made = f"{name}_{n}"
        found[made] = None
    return tuple(found)


CALLS = {  # the options of an operator that name graphs
    "IF": ("ThenSubgraphIndex", "ElseSubgraphIndex"), "WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
    "CALL_ONCE": ("InitSubgraphIndex",), "CALL": ("Subgraph",), "STABLEHLO_COMPOSITE": ("DecompositionSubgraphIndex",),
}  # fmt: skip


def called(o: OpOf) -> Mapping[str, int]:
    """The graphs that an operator runs, by the option that names them."""
    if o.op not in CALLS or o.custom:
        return {}
    if o.options is None:
        raise FileFormatError(f"operator {o.index}, {o.op}, names no graph")
    return {k: int(o[k]) for k in CALLS[o.op]}


def check_calls(graphs: tuple[GraphOf, ...]) -> None:
    """Looks whether graphs that operators run are there, have an end, and are not too many operators when each is written out.

    Errors: FileFormatError.
    """
    sizes: dict[int, int] = {}
    calling: list[int] = []

    def size(i: int) -> int:
        if not 0 <= i < len(graphs):
            raise FileFormatError(f"an operator runs graph {i} of {len(graphs)}")
        if i in calling:
            raise FileFormatError(f"graph {i} runs itself")
        if i not in sizes:
            if len(calling) > DEEPEST:
                raise FileFormatError(f"graphs run graphs more than {DEEPEST} deep")
            calling.append(i)
            sizes[i] = sum(1 + sum(size(j) for j in called(o).values()) for o in graphs[i].operators)
            calling.pop()
        if sizes[i] > MOST_OPERATORS:
            raise FileFormatError(f"graph {i} is more than {MOST_OPERATORS:,} operators, with those of graphs that it runs")
        return sizes[i]

    for i in range(len(graphs)):
        size(i)
