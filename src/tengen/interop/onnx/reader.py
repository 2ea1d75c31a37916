"""ONNX bytes to a checked description of a network: graphs, nodes, arrays. Nothing is computed.

Any bytes give a `Source` or one `FileFormatError`. Data outside of the file is read from the file's own folder only.
"""

from __future__ import annotations

import heapq
import itertools
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.base.files import open_regular
from tengen.base.record import record
from tengen.interop.onnx.values import BITS, package
from tengen.interop.onnx.wire import OVERHEAD, Arrays, without_arrays

DEEPEST = 32  # graphs in graphs
MOST_NODES = 1_000_000
SPARE = 1 << 24  # bytes by which arrays of one file beside the model may lie over one another
PIECE = 1 << 22  # bytes of packed numbers that are unpacked together
UNBOUNDED = (1 << 31) - 1  # inputs of an op that takes any number of them, as the package onnx says it
FLOATS = ("float32", "float16", "float64")
MAPPED = 1 << 20  # bytes of a file above which it is mapped
DEFAULT = ("", "ai.onnx")  # two names of one domain


@record(frozen=True, slots=True)
class NodeOf:
    """A node: its op and what it reads and writes by name; "" for what is absent.

    Attributes:
        since: the opset in which the op got the meaning that it has here. proto: the bytes of the node as a message, where the package onnx may
            have to say what it means.
    """

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    since: int = 1
    proto: bytes = field(default=b"", repr=False, compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where it is absent."""
        return self.attributes.get(name, default)

    @property
    def what(self) -> str:
        """The op with its domain."""
        return f"{self.domain}.{self.op}" if self.domain else self.op


@record(frozen=True)
class PortOf:
    """An input or output of a graph. shape: numbers, names of open extents, or None where nothing is said; None: no shape.
    dtype: NumPy's; None for sequences and optional values."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: np.dtype | None


@record(frozen=True)
class GraphOf:
    """A graph, with arrays by name."""

    name: str
    inputs: tuple[PortOf, ...]
    outputs: tuple[PortOf, ...]
    nodes: tuple[NodeOf, ...]
    arrays: Mapping[str, np.ndarray]


@record(frozen=True)
class FunctionOf:
    """A function that a file defines: what its nodes are in place of a node that calls it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]  # name -> default; names without one have `...`
    nodes: tuple[Any, ...]  # protos, in which attributes may refer to the caller's
    opsets: Mapping[str, int]


@record(frozen=True)
class Source:
    """A model: its graph, the functions that its nodes call by (domain, name), and the name of what wrote the file."""

    graph: GraphOf
    functions: Mapping[tuple[str, str], FunctionOf]
    opsets: Mapping[str, int]
    producer: str = ""


@record(frozen=True)
class SchemaOf:
    """What the standard says of an op.

    Attributes:
        since: the opset in which the op got its meaning. defaults, kinds: of attributes, by name. required: names of attributes.
        needed: names of the inputs that are always there, by position. fewest, most: how many inputs there are; most may be None.
        results: how many outputs there are at least. asked: whether the package onnx may be asked what a node of it means.
    """

    since: int = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    required: Sequence[str] = ()
    needed: Mapping[int, str] = field(default_factory=dict)
    fewest: int = 0
    most: int | None = None
    results: int = 0
    asked: bool = False


def read(source: Any) -> Source:
    """A file, its bytes or a ModelProto.

    Errors: FileFormatError for anything that is no ONNX model, FileNotFoundError and the like for the file itself.
    """
    onnx = package()
    from google.protobuf.message import DecodeError

    folder: Path | None = None
    raw, of = None, ""
    if isinstance(source, (str, os.PathLike)):
        folder, of, source = Path(source).parent, f"{os.fspath(source)}: ", contents(source)
    try:
        if not isinstance(source, onnx.ModelProto):
            source = source if isinstance(source, (bytes, mmap.mmap)) else bytes(source)
            small, raw = without_arrays(source)
            source = onnx.load_model_from_string(small)
        return Reader(source, folder, raw or Arrays(left=OVERHEAD + source.ByteSize())).source()
    except FileFormatError as e:
        raise FileFormatError(f"{of}{e}") from e
    except (
        DecodeError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as e:
        raise FileFormatError(f"{of}this is no ONNX model: {type(e).__name__}: {e}") from e


def contents(path: str | os.PathLike) -> bytes | mmap.mmap:
    """The bytes of a file: mapped where they are many, so that arrays are copied once."""
    with open_regular(path) as fd, open(fd, "rb", closefd=False) as f:
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if os.fstat(fd).st_size > MAPPED else f.read()


class Reader:
    """Reads one model. raw: the bytes of arrays that were left out of it, and of memory that others may take."""

    def __init__(self, model, folder: Path | None, raw: Arrays | None = None):
        import onnx

        self.onnx, self.model, self.folder, self.raw = onnx, model, folder, raw or Arrays()
        self.beside: dict[Path, Beside] = {}
        self.nodes = 0
        self.schemas: dict[tuple[str, str, int], SchemaOf] = {}
        self.opsets = versions(model.opset_import)
        newest = onnx.defs.onnx_opset_version()
        if not 1 <= self.opsets.get("", 1) <= newest + 5:
            raise FileFormatError(f"opset {self.opsets['']}; the onnx package here knows those up to {newest}")

    def source(self) -> Source:
        """All of it."""
        if not self.model.HasField("graph"):
            raise FileFormatError("this is no ONNX model: it has no graph")
        functions = {}
        for f in self.model.functions:
            opsets = versions(f.opset_import)
            attributes = {**{a: ... for a in f.attribute}, **{a.name: self.attribute(a, 0) for a in f.attribute_proto}}
            nodes = tuple(map(copied, f.node))
            functions[normal(name(f.domain)), name(f.name)] = FunctionOf(names(f.input), names(f.output), attributes, nodes, opsets)
        graph = self.graph(self.model.graph, 0)
        check_functions(graph, functions)
        if any(misread(graph, set())) and not any(misread(other := in_order(graph), set())):
            graph = other
        if wrong := list(itertools.islice(misread(graph, set()), 41)):
            more = ["  and more"] if len(wrong) > 40 else []
            raise FileFormatError("\n".join([f"{graph.name}: values of the network that are not there, or there twice:", *wrong[:40], *more]))
        return Source(graph, functions, self.opsets, name(self.model.producer_name))

    def graph(self, g, depth: int, opsets: Mapping[str, int] | None = None) -> GraphOf:
        """A graph, also one inside of an attribute."""
        if depth > DEEPEST:
            raise FileFormatError(f"graphs nest more than {DEEPEST} deep")
        arrays = {name(t.name): self.array(t, depth == 0) for t in g.initializer}
        for s in g.sparse_initializer:
            arrays[name(s.values.name)] = self.sparse(s)
        nodes = tuple(self.node(n, depth, opsets or self.opsets) for n in g.node)
        return GraphOf(
            name(g.name),
            tuple(self.port(v) for v in g.input if v.name not in arrays or depth),
            tuple(map(self.port, g.output)),
            nodes,
            arrays,
        )

    def node(self, n, depth: int, opsets: Mapping[str, int], given: Mapping[str, Any] | None = None) -> NodeOf:
        """A node; given: attributes of the function's caller."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise FileFormatError(f"more than {MOST_NODES:,} nodes")
        attributes = {}
        domain, op = normal(name(n.domain)), name(n.op_type)
        schema = self.schema(op, domain, opsets.get(domain, 1))
        check_ports(n, schema)
        for a in n.attribute:
            if (kind := schema.kinds.get(a.name, a.type)) != a.type:
                have, want = (self.onnx.AttributeProto.AttributeType.Name(v) for v in (a.type, kind))
                raise FileFormatError(f"the attribute {a.name!r} of {op} ({n.name!r}) has the type {have}, not {want}")
            if a.ref_attr_name:
                if given and given.get(a.ref_attr_name, ...) is not ...:
                    attributes[name(a.name)] = given[a.ref_attr_name]
            else:
                attributes[name(a.name)] = self.attribute(a, depth, opsets)
        if missing := [a for a in schema.required if a not in attributes and not (given and any(b.name == a for b in n.attribute))]:
            raise FileFormatError(f"{op} ({n.name!r}) misses the attribute {missing[0]!r}")
        every = {**schema.defaults, **attributes} if attributes else schema.defaults
        proto = n.SerializeToString() if schema.asked else b""
        return NodeOf(op, domain, name(n.name), names(n.input), names(n.output), every, schema.since, proto)

    def schema(self, op: str, domain: str, opset: int) -> SchemaOf:
        """What the standard says of an op in an opset, or in the first one that has it, where the file says an older one; of ops that `onnx`
        does not know, nothing."""
        key = op, domain, opset
        if key not in self.schemas:
            s = self.formal(op, domain, opset)
            if s is None:
                self.schemas[key] = SchemaOf()
                return self.schemas[key]
            each = s.attributes.items()
            defaults = {k: self.attribute(a.default_value, 0) for k, a in each if a.default_value is not None and a.default_value.name}
            kinds = {k: int(a.type.value) for k, a in each}
            single = self.onnx.defs.OpSchema.FormalParameterOption.Single
            needed = {i: p.name for i, p in enumerate(s.inputs) if p.option == single}
            required, most = [k for k, a in each if a.required], s.max_input if s.max_input < UNBOUNDED else None
            asked = s.has_context_dependent_function or domain == "ai.onnx.ml"
            self.schemas[key] = SchemaOf(s.since_version, defaults, kinds, required, needed, s.min_input, most, s.min_output, asked)
        return self.schemas[key]

    def formal(self, op: str, domain: str, opset: int) -> Any:
        """The schema of `onnx` that `schema` is about; None where there is none."""
        defs = self.onnx.defs
        for version in (opset, 0, *range(max(opset, 0) + 1, defs.onnx_opset_version() + 1)):
            try:
                found = defs.get_schema(op, version, domain) if version else defs.get_schema(op, domain)
            except defs.SchemaError:
                if not version:  # no opset has it
                    return None
                continue
            if version:
                return found
        return None

    def attribute(self, a, depth: int, opsets: Mapping[str, int] | None = None) -> Any:
        """The value of an attribute: a number, text, an array, a graph, or a list of these."""
        kinds = self.onnx.AttributeProto
        match a.type:
            case kinds.FLOAT: return float(a.f)  # fmt: skip
            case kinds.INT: return int(a.i)  # fmt: skip
            case kinds.STRING: return text(a.s)  # fmt: skip
            case kinds.TENSOR: return self.array(a.t)  # fmt: skip
            case kinds.GRAPH: return self.graph(a.g, depth + 1, opsets)  # fmt: skip
            case kinds.SPARSE_TENSOR: return self.sparse(a.sparse_tensor)  # fmt: skip
            case kinds.FLOATS: return [float(x) for x in a.floats]  # fmt: skip
            case kinds.INTS: return [int(x) for x in a.ints]  # fmt: skip
            case kinds.STRINGS: return [text(x) for x in a.strings]  # fmt: skip
            case kinds.TENSORS: return [self.array(t) for t in a.tensors]  # fmt: skip
            case kinds.GRAPHS: return [self.graph(g, depth + 1, opsets) for g in a.graphs]  # fmt: skip
            case kinds.TYPE_PROTO: return copied(a.tp)  # fmt: skip
        raise FileFormatError(f"attribute {a.name!r} has the unknown type {a.type}")

    def array(self, t, weight: bool = False) -> np.ndarray:
        """The array of a TensorProto. weight: whether it becomes a tensor at once if it is of floats, so that it may be a view of the file."""
        shape = tuple(int(d) for d in t.dims)
        if any(d < 0 for d in shape):
            raise FileFormatError(f"array {t.name!r} has the shape {shape}")
        raw = self.raw.of(t)
        if raw is not None:
            return self.left_out(t, shape, raw, weight)
        if t.data_location == self.onnx.TensorProto.EXTERNAL:
            return self.external(t, shape)
        found = self.onnx.numpy_helper.to_array(t)
        return found.astype(object) if found.dtype.kind in "USO" else found

    def left_out(self, t, shape: tuple[int, ...], raw: memoryview, weight: bool) -> np.ndarray:
        """The array of a TensorProto whose bytes lie in the file."""
        if t.HasField("segment"):
            raise FileFormatError(f"array {t.name!r} is a segment of one, which ONNX's own reader does not take either")
        dtype = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(t.data_type)).newbyteorder("<")
        if (bits := BITS.get(dtype.name, 8)) == 8:
            found = np.frombuffer(raw, dtype).reshape(shape)
            return found if weight and dtype.name in FLOATS else found.copy()  # a view would keep the whole file in memory
        found, each = np.empty(len(raw) * 8 // bits, dtype), 8 // bits
        for at in range(0, len(raw), PIECE):
            piece = raw[at : at + PIECE]
            small = self.onnx.TensorProto(data_type=t.data_type, dims=[len(piece) * each], raw_data=bytes(piece))
            found[at * each : (at + len(piece)) * each] = self.onnx.numpy_helper.to_array(small)
            let_go(raw.obj)
        n = prod(shape)
        if (n + each - 1) // each != len(raw):
            raise FileFormatError(f"array {t.name!r} of shape {shape} and {dtype} has {len(raw)} bytes")
        return found[:n].reshape(shape)

    def external(self, t, shape: tuple[int, ...]) -> np.ndarray:
        """An array outside of the file: mapped, so that what is not used is not read. Those of one place are one array."""
        said = {e.key: e.value for e in t.external_data}
        if self.folder is None:
            raise FileFormatError(
                f"array {t.name!r} lies in the file {said.get('location')!r} beside the model; help: load it by its path"
            )
        place = Path(said.get("location", ""))
        if place.is_absolute() or ".." in place.parts or not place.name:
            raise FileFormatError(f"array {t.name!r}: its file {str(place)!r} is outside of the model's folder")
        if place not in self.beside:
            self.beside[place] = Beside(self.folder, place, t.name)
        file = self.beside[place]
        dtype = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(t.data_type))
        bits = BITS.get(dtype.name, dtype.itemsize * 8)
        n = prod(shape)
        want = (n * bits + 7) // 8
        offset, length = int(said.get("offset", 0)), int(said.get("length", want))
        if offset < 0 or length != want or offset + length > file.size:
            raise FileFormatError(
                f"array {t.name!r} of shape {shape} and {dtype} needs {want} bytes, its file {str(place)!r} has {file.size}, the model says "
                f"{length} from {offset}"
            )
        key = (offset, dtype, shape)
        if key not in file.arrays:
            file.take(length)
            raw = memoryview(file.memory)[offset : offset + length]
            file.arrays[key] = self.left_out(t, shape, raw, False) if bits < 8 else np.frombuffer(raw, dtype).reshape(shape)
        return file.arrays[key]

    def sparse(self, s) -> np.ndarray:
        """A sparse array, made dense."""
        shape = tuple(int(d) for d in s.dims)
        values, places = self.array(s.values), self.array(s.indices)
        if any(d < 0 for d in shape):
            raise FileFormatError(f"a sparse array has the shape {shape}")
        self.raw.take(prod(shape) * values.dtype.itemsize)
        found = np.zeros(shape, values.dtype)
        if places.ndim == 1:
            found.reshape(-1)[places] = values
        else:
            found[tuple(places.T)] = values
        return found

    def port(self, v) -> PortOf:
        """An input or output as it is declared."""
        if not v.type.HasField("tensor_type"):
            return PortOf(name(v.name), None, None)
        t = v.type.tensor_type
        shape = None
        if t.HasField("shape"):
            shape = tuple(extent(d) for d in t.shape.dim)
        dtype = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)) if t.elem_type else None
        return PortOf(name(v.name), shape, dtype)


class Beside:
    """A file with arrays beside the model, which is mapped once however many they are.

    Attributes:
        memory: its bytes. arrays: what was read of it, by offset, dtype and shape. left: bytes that further arrays may have.
    """

    def __init__(self, folder: Path, place: Path, name: str):
        file = folder
        for part in place.parts:
            file = file / part
            if file.is_symlink():
                raise FileFormatError(f"array {name!r}: {str(place)!r} is or passes a symbolic link")
        try:
            with open_regular(file) as fd:
                self.size = os.fstat(fd).st_size
                self.memory: bytes | mmap.mmap = mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if self.size else b""
        except OSError as e:
            raise FileFormatError(f"array {name!r}: its file {str(place)!r} cannot be read: {e}") from e
        self.arrays: dict[tuple, np.ndarray] = {}
        self.left = self.size + SPARE

    def take(self, size: int) -> None:
        """Counts the bytes of an array. FileFormatError for more than the file has, and some that lie over one another."""
        self.left -= size
        if self.left < 0:
            raise FileFormatError(f"arrays beside the model lie over one another: they have more bytes than their file, {self.size:,}")


def let_go(memory: Any) -> None:
    """Gives back the pages of a mapped file that were read; they come again when they are read again."""
    if isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def extent(d: Any) -> int | str | None:
    """An extent as it is declared: a number, a name, or None where nothing is said. Paddle's exporters write -1 and "?" for that: two axes
    with "?" need not have the same extent."""
    if d.HasField("dim_value"):
        return int(d.dim_value) if d.dim_value >= 0 else None
    return None if d.dim_param in ("", "?") else name(d.dim_param)


def check_ports(n: Any, schema: SchemaOf) -> None:
    """Looks whether a node has as many inputs and outputs as its op, and the inputs that are not optional.

    Errors: FileFormatError.
    """
    where, count = f"{n.op_type} ({n.name!r})", len(n.input)
    if count < schema.fewest or schema.most is not None and count > schema.most:
        takes = f"{schema.fewest}" if schema.fewest == schema.most else f"{schema.fewest} to {schema.most or 'any number'}"
        raise FileFormatError(f"{where} has {count} inputs; the op takes {takes}")
    if len(n.output) < schema.results:
        raise FileFormatError(f"{where} has {len(n.output)} outputs; the op has {schema.results} or more")
    if absent := [said for i, said in schema.needed.items() if i < count and not n.input[i]]:
        raise FileFormatError(f"{where} misses the input {absent[0]!r}, which is not optional")


def check_functions(graph: GraphOf, functions: Mapping[tuple[str, str], FunctionOf]) -> None:
    """Looks whether the nodes that are left when every call of a function is written out have an end, and are not too many.

    Errors: FileFormatError where a function calls itself, by others too, or where it would be more than MOST_NODES.
    """
    sizes: dict[tuple[str, str], int] = {}
    calling: list[tuple[str, str]] = []

    def size(key: tuple[str, str]) -> int:
        if key not in functions:
            return 1
        if key in calling:
            raise FileFormatError(f"the function {key[1]!r} calls itself")
        if key not in sizes:
            if len(calling) > DEEPEST:
                raise FileFormatError(f"functions call functions more than {DEEPEST} deep")
            calling.append(key)
            sizes[key] = sum(size(k) for p in functions[key].nodes for k in called(p))
            calling.pop()
        if sizes[key] > MOST_NODES:
            raise FileFormatError(f"the function {key[1]!r} is more than {MOST_NODES:,} nodes")
        return sizes[key]

    def called(p: Any) -> Iterator[tuple[str, str]]:
        yield normal(name(p.domain)), name(p.op_type)
        for a in p.attribute:
            for g in (*a.graphs, *((a.g,) if a.HasField("g") else ())):
                for inner in g.node:
                    yield from called(inner)

    def run(n: NodeOf) -> Iterator[tuple[str, str]]:
        yield n.domain, n.op
        for g in bodies(n):
            for inner in g.nodes:
                yield from run(inner)

    if sum(size(k) for n in graph.nodes for k in run(n)) > MOST_NODES:
        raise FileFormatError(f"more than {MOST_NODES:,} nodes, with those of functions")
    for key in functions:
        size(key)


def misread(graph: GraphOf, around: Iterable[str]) -> Iterator[str]:
    """A line for each name that is read before it is computed, computed twice, or an output that nothing computes; `around`: names of the
    graphs around this one, which it may read."""
    own = {p.name for p in graph.inputs} | graph.arrays.keys()
    known = {*around, *own}
    for n in graph.nodes:
        said = f"node {n.name or '(without a name)'} ({n.what})"
        yield from (f"  {said} reads {i!r}, which nothing before it computes" for i in n.inputs if i and i not in known)
        for g in bodies(n):
            yield from misread(g, known)
        yield from (f"  {said} computes {o!r} again" for o in n.outputs if o and o in own)
        own.update(filter(None, n.outputs))
        known.update(filter(None, n.outputs))
    yield from (f"  the output {p.name!r} of {graph.name or 'a graph'} is computed by no node" for p in graph.outputs if p.name not in known)


def in_order(graph: GraphOf) -> GraphOf:
    """The graph with each node behind those that compute what it reads, and else in the file's order: onnxruntime takes any order, and its
    converter to float16 writes nodes at the end that others before them read. Where nodes wait for each other, the graph as it is."""
    inside = lambda n: replace(n, attributes={k: _bodies_in_order(v) for k, v in n.attributes.items()})
    nodes = tuple(inside(n) if any(bodies(n)) else n for n in graph.nodes)
    makers = {o: i for i, n in enumerate(nodes) for o in n.outputs if o}
    waits = [{makers[name] for name in reads(n) if name in makers} - {i} for i, n in enumerate(nodes)]
    readers: dict[int, list[int]] = {}
    for i, before in enumerate(waits):
        for j in before:
            readers.setdefault(j, []).append(i)
    ready, order = [i for i, before in enumerate(waits) if not before], []
    while ready:
        order.append(heapq.heappop(ready))
        for i in readers.get(order[-1], ()):
            waits[i].remove(order[-1])
            if not waits[i]:
                heapq.heappush(ready, i)
    return replace(graph, nodes=tuple(nodes[i] for i in order)) if len(order) == len(nodes) else graph


def _bodies_in_order(v: Any) -> Any:
    return [in_order(g) if isinstance(g, GraphOf) else g for g in v] if isinstance(v, list) else in_order(v) if isinstance(v, GraphOf) else v


def reads(n: NodeOf) -> Iterator[str]:
    """The names that a node reads, those that its graphs read included."""
    yield from n.inputs
    for g in bodies(n):
        for inner in g.nodes:
            yield from reads(inner)
        yield from (p.name for p in g.outputs)


def bodies(n: NodeOf) -> Iterator[GraphOf]:
    """The graphs that a node runs."""
    for a in n.attributes.values():
        yield from (g for g in (a if isinstance(a, list) else (a,)) if isinstance(g, GraphOf))


def copied(message: Any) -> Any:
    """A message by itself: a part of another one keeps all of it in memory, a model with its arrays."""
    made = type(message)()
    made.CopyFrom(message)
    return made


def versions(imported: Any) -> dict[str, int]:
    """Opsets by domain. Errors: FileFormatError for a version that is no number of 31 bits, as the package onnx takes them."""
    found = {normal(o.domain): int(o.version) for o in imported}
    if odd := [v for v in found.values() if not 0 <= v < 1 << 31]:
        raise FileFormatError(f"opset {odd[0]}, which no package knows")
    return found


def normal(domain: str) -> str:
    """A domain by its one name."""
    return "" if domain in DEFAULT else domain


def name(text: Any) -> str:
    """A name of the file.

    Errors: FileFormatError for one that is no UTF-8, which protobuf gives as bytes.
    """
    if not isinstance(text, str):
        raise FileFormatError(f"a name in the file is no text: {text[:40]!r}")
    return text


def names(texts: Any) -> tuple[str, ...]:
    """Several of them."""
    return tuple(map(name, texts))


def text(b: bytes) -> str:
    """Text of a file; bytes that are no UTF-8 stay visible."""
    return b.decode("utf-8", "surrogateescape")
