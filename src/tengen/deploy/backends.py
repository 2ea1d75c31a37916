"""Other programs that compute parts of a model: what a back end is, how one is found, and models whose parts several compute.

In: a model and a back end, which says which nodes it takes. Out: a `Partitioned`, called as the model is. Nodes that the back end takes
form convex parts; each is compiled by it, and what it refuses then, Tengen computes, as it computes all the rest. The bits of other
programs are other bits: `Partitioned.compare` says how far apart.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from math import prod
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, ConfigError, FileFormatError, TengenError
from tengen.base.files import File, name_of
from tengen.base.record import record
from tengen.compiler.arrays import array_over
from tengen.compiler.plans import Layout
from tengen.deploy.dump import dump_model
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model
from tengen.deploy.partition import parts_of, subgraph
from tengen.deploy.tensorfile import read_tensors, write_tensors
from tengen.ir.graph import Graph, Node
from tengen.ir.plain_json import load_json
from tengen.ops.define import lookup
from tengen.tensor import from_numpy

GROUP = "tengen.backends"  # of entry points: name -> a class, or a function without arguments, that gives a `Backend`
OWN = {
    "onnxruntime": "tengen.backends.onnxruntime:OnnxRuntime", "openvino": "tengen.backends.openvino:OpenVINO",
    "tpu-mlir": "tengen.backends.tpu_mlir:TpuMlir",
}  # fmt: skip
FORMAT = "tengen-partitioned"
Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]  # arrays in the order of a graph's inputs -> of its outputs


class Refused(ConfigError):
    """A part that a back end cannot compile, with the reason; Tengen computes it."""


class Backend:
    """A program that computes graphs. A package brings one by an entry point of the group "tengen.backends".

    >>> from tengen import backends
    >>> class Negative(backends.Backend):  # computes `neg`, by NumPy
    ...     name = "negative"
    ...     def takes(self, node, graph):
    ...         return node.op == "neg"
    ...     def compile(self, graph):
    ...         return b""
    ...     def load(self, blob, graph):
    ...         return lambda arrays: [-a for a in arrays]
    >>> import os, tempfile, tengen
    >>> from tengen import Tensor, trace
    >>> f = trace(lambda x: -(x * 2) + 1, example_input=Tensor([1.0, 2.0]))
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = f.dump(os.path.join(d, "f.tgn"))
    ...     p = backends.partition(tengen.load_graph(os.path.join(d, "f.tgn")), Negative())
    >>> p(Tensor([1.0, 2.0])).tolist(), [part.who for part in p.parts()]
    ([-1.0, -3.0], ['tengen', 'negative', 'tengen'])
    """

    name = ""
    rounding = "its own rounding: not Tengen's bits"  # what a report says of its results

    def takes(self, node: Node, graph: Graph) -> bool:
        """Whether it computes a node: op, attributes, and types of operands and results say what that is. It is not asked for ops whose
        operands Tengen checks, as indices: these, and their errors, stay Tengen's."""
        raise NotImplementedError

    def compile(self, graph: Graph) -> bytes:
        """What a file keeps of a graph, whose constants have data, and whose extents are numbers. Errors: Refused."""
        raise NotImplementedError

    def load(self, blob: bytes, graph: Graph) -> Run:
        """A function that computes the graph, which several threads may call at once. Errors: Refused."""
        raise NotImplementedError


def names() -> list[str]:
    """The names of the back ends that there are: Tengen's own, and those of packages."""
    return sorted({*OWN, *(e.name for e in entry_points(group=GROUP))})


def find(backend: str | Backend) -> Backend:
    """A back end by its name. Errors: ConfigError for another name, or where its package is missing."""
    if isinstance(backend, Backend):
        return backend
    found = [e for e in entry_points(group=GROUP) if e.name == backend]
    found += [EntryPoint(backend, OWN[backend], GROUP)] if backend in OWN else []
    if not found:
        raise ConfigError(f"no back end is named {backend!r}; help: one of {', '.join(names())}")
    try:
        made = found[0].load()()
    except ImportError as e:
        raise ConfigError(f"the back end {backend!r} needs a package: {e}; help: pip install 'tengen[{backend}]'") from e
    if not isinstance(made, Backend):
        raise ConfigError(f"the entry point {found[0].value!r} gives a {type(made).__name__}, which is no tengen.backends.Backend")
    return made


@record(frozen=True)
class Part:
    """A part of a model.

    Attributes:
        who: "tengen", or the name of the back end. nodes: how many. ops: how many there are of each. takes, gives: bytes that go in and
            come out. why: the reason why Tengen computes what the back end would have taken; "" where there is none. ms: of its last run.
    """

    who: str
    nodes: int
    ops: dict[str, int]
    takes: int
    gives: int
    why: str
    ms: float


@record(eq=False)
class _Piece:
    """A part with what computes it, and the values that go in and out, by their places in the whole graph."""

    nodes: list[int]
    graph: Graph
    takes: list[Any]
    gives: list[Any]
    blob: bytes | None
    run: Run
    why: str
    ms: float = 0.0


class Partitioned(Model):
    """A model whose parts a back end and Tengen compute. It is called as a `Model` is, from several threads too.

    Attributes:
        backend: who computes parts. least: nodes that a part of the back end has at least.
    """

    def __init__(self, model: Model, backend: Backend, least: int = 1, kept: Sequence[tuple[list[int], bytes | None]] | None = None):
        if model.graph.states:
            raise ConfigError(f"{model.name} has states, which no back end keeps; help: a model without, as one in evaluation is")
        super().__init__(model.graph, {}, model.checksum, model.bytes, model.schedules)
        self.backend, self.least = backend, least
        self._made: dict[tuple[int, ...], tuple[Graph, list[_Piece]]] = {}
        if kept is not None:
            pieces = [self._piece(self.graph, i, nodes, blob is not None, blob) for i, (nodes, blob) in enumerate(kept)]
            self._made[()] = self.graph, pieces

    def _prepare(self) -> None:
        """Parts are compiled when their extents are known."""

    def bytes_of_run(self, extents: Mapping[str, int]) -> int:
        """Errors: ConfigError, always: what another program takes is not known."""
        raise ConfigError(f"{self.name}: what {self.backend.name} takes of memory is not known; help: no budget=")

    def _run(self, given: list[Any], extents: tuple[int, ...]) -> Any:
        graph, pieces = self._parts_for(extents)
        values = {v: array_over(data, Layout(tuple(v.type.shape), v.type.dtype)) for v, data in zip(graph.inputs, given)}
        values.update({c.value: c.data for c in graph.constants.values() if c.data is not None})
        for p in pieces:
            start = time.perf_counter()
            made = [np.asarray(a) for a in p.run([values[v] for v in p.takes])]
            p.ms = (time.perf_counter() - start) * 1e3
            if [(a.shape, a.dtype) for a in made] != [(v.type.shape, v.type.dtype.numpy) for v in p.gives]:
                given = ", ".join(f"{a.dtype}{list(a.shape)}" for a in made)
                raise TengenError(f"{self.backend.name} gave {given or 'nothing'}, the part has {[v.type for v in p.gives]}")
            values.update(zip(p.gives, made))
        outs = [from_numpy(np.asarray(values[v], order="C")) for v in graph.outputs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    # -- making parts ----------------------------------------------------------------------------------------------------
    def _parts_for(self, extents: tuple[int, ...]) -> tuple[Graph, list[_Piece]]:
        """The graph for these extents, and its parts."""
        with self._lock:
            if extents not in self._made:
                graph = Model.at(self, **dict(zip(self.extents, extents))).graph if extents else self.graph
                self._made[extents] = graph, self._pieces(graph)
            return self._made[extents]

    def _pieces(self, graph: Graph) -> list[_Piece]:
        """The parts of a graph whose extents are numbers."""
        checked = {c.bad.node for c in graph.checks}  # what raises errors stays here, as do ops whose operands may be wrong (indices)
        here = lambda n: n in checked or n.op != "fused" and lookup(n.op).rules.check is not None
        theirs = {n: not here(n) and self.backend.takes(n, graph) for n in graph.nodes}
        while True:
            parts = parts_of(graph, theirs)
            small = [nodes for owner, nodes in parts if owner and len(nodes) < self.least]
            if not small:
                break
            theirs.update((n, False) for nodes in small for n in nodes)
        numbers = {n: i for i, n in enumerate(graph.nodes)}
        return [self._piece(graph, i, [numbers[n] for n in nodes], owner) for i, (owner, nodes) in enumerate(parts)]

    def _piece(self, graph: Graph, i: int, nodes: list[int], theirs: bool, blob: bytes | None = None) -> _Piece:
        """A part; blob: what the back end has made of it before."""
        g, takes, gives = subgraph(graph, [graph.nodes[j] for j in nodes], f"{self.name}_part{i}")
        run, why = None, ""
        if theirs:
            try:
                blob = self.backend.compile(g) if blob is None else blob
                run = self.backend.load(blob, g)
            except Refused as e:
                blob, why = None, str(e)
        return _Piece(nodes, g, takes, gives, blob, run or _own(g), why)

    def _last(self) -> list[_Piece]:
        """The parts of the last size that it was made for; those of its one size are made now, if need be."""
        if not self._made and self.extents:
            raise ConfigError(f"{self.name} has the open extents {', '.join(self.extents)}: its parts are made at the first call")
        return next(reversed(self._made.values()))[1] if self._made else self._parts_for(())[1]

    # -- looking ---------------------------------------------------------------------------------------------------------
    def parts(self) -> list[Part]:
        """Who computes what, in the order of a run. Errors: ConfigError with open extents, before the first call."""
        size = lambda values: sum(prod(v.type.shape) * v.type.dtype.size for v in values)
        found = []
        for p in self._last():
            ops: dict[str, int] = {}
            for n in p.graph.nodes:
                ops[n.op] = ops.get(n.op, 0) + 1
            who = "tengen" if p.blob is None else self.backend.name
            found.append(Part(who, len(p.graph.nodes), ops, size(p.takes), size(p.gives), p.why, p.ms))
        return found

    def report(self) -> str:
        """`parts` as a table, and what is promised of the results."""
        rows = [("part", "by", "nodes", "bytes in", "bytes out", "ms", "ops")]
        for i, p in enumerate(self.parts()):
            ops = ", ".join(f"{n} {op}" for op, n in sorted(p.ops.items(), key=lambda r: (-r[1], r[0]))[:4])
            more = f" ({p.why})" if p.why else ""
            rows.append((str(i), p.who, str(p.nodes), f"{p.takes:,}", f"{p.gives:,}", f"{p.ms:.2f}", ops + more))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = ["  ".join([*(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))), row[6]]) for row in rows]
        return "\n".join([*lines, f"{self.backend.name}: {self.backend.rounding}"])

    def compare(self, *args: Any, **kwargs: Any) -> list[tuple[float, float]]:
        """How far the results are from Tengen's: for each output, the largest difference, and that over the largest number of Tengen's."""
        some = lambda made: [np.asarray(t.numpy()) for t in (made if isinstance(made, tuple) else (made,))]
        theirs, ours = some(self(*args, **kwargs)), some(Model(self.graph, {})(*args, **kwargs))
        wide = lambda a: a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
        apart = [float(np.abs(wide(a) - wide(b)).max(initial=0)) for a, b in zip(theirs, ours)]
        return [(d, d / (float(np.abs(wide(b)).max(initial=0)) or 1.0)) for d, b in zip(apart, ours)]

    # -- files -----------------------------------------------------------------------------------------------------------
    def save(self, file: File) -> None:
        """Writes the model, and what the back end has made of its parts, to one file, which `load` reads.

        Errors: ConfigError with open extents; OSError where the file cannot be written.
        """
        if self.extents:
            raise ConfigError(f"{self.name} has the open extents {', '.join(self.extents)}; help: partition(model.at(...), ...)")
        parts, whole = self._last(), io.BytesIO()
        dump_model(Model(self.graph, {}, schedules=self.schedules), whole)
        arrays = {"model": np.frombuffer(whole.getvalue(), np.uint8)}
        arrays |= {f"part{i}": np.frombuffer(p.blob, np.uint8) for i, p in enumerate(parts) if p.blob is not None}
        about = {"backend": self.backend.name, "parts": json.dumps([p.nodes for p in parts])}
        write_tensors(file, arrays, {"format": FORMAT, "version": "1", **about})


def _own(g: Graph) -> Run:
    """Tengen's own run of a part."""
    model = Model(g, {})

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        made = model(*(from_numpy(np.asarray(a, order="C")) for a in arrays))
        return [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]

    return run


def partition(model: Model | File, backend: str | Backend, least: int = 1) -> Partitioned:
    """A model whose parts a back end computes, where it can; Tengen computes the rest.

    Args:
        model: a `Model` without states, or its file. backend: a name of `names()`, or a `Backend`. least: parts of the back end with
            fewer nodes are Tengen's: each change of hands costs a copy of what goes over.

    Errors: ConfigError for an unknown back end, one whose package is missing, or a model with states; ArgumentError for a `least`
        below 1.

    Numerics: parts that Tengen computes have its bits; the others have those of the back end, whose sums have another order. See
        `Partitioned.report` and `Partitioned.compare`.
    """
    if least < 1:
        raise ArgumentError(f"least={least} must be at least 1")
    return Partitioned(model if isinstance(model, Model) else load_graph(model), find(backend), least)


def load(file: File, backend: Backend | None = None) -> Partitioned:
    """The model that `Partitioned.save` wrote, with the parts that its back end made. These are read by the back end's own code, which does
    not promise what Tengen does of files that somebody made to do harm (SECURITY.md).

    Args: backend: in place of the one that the file names, for one that no package brings.
    Errors: FileFormatError for another file; ConfigError where its back end is missing.
    """
    content = read_tensors(file)
    texts, arrays = content.texts, content.arrays
    if texts.get("format") != FORMAT or texts.get("version") != "1" or "model" not in arrays:
        raise FileFormatError(f"{name_of(file)} is no file of Partitioned.save, but {texts.get('format', 'one of tensors')[:60]!r}")
    model = load_graph(io.BytesIO(arrays["model"].tobytes()))
    parts = load_json(texts.get("parts", ""), content.bytes, "its list of parts")
    _check_parts(model.graph, parts, name_of(file))
    kept = [(nodes, arrays[f"part{i}"].tobytes() if f"part{i}" in arrays else None) for i, nodes in enumerate(parts)]
    return Partitioned(model, backend or find(texts.get("backend", "")[:60]), kept=kept)


def _check_parts(graph: Graph, parts: Any, name: str) -> None:
    """FileFormatError unless the parts are all nodes, each once, and each part reads what those before it make."""
    if not isinstance(parts, list) or not all(isinstance(p, list) and p and all(type(i) is int for i in p) for p in parts):
        raise FileFormatError(f"{name}: its parts are no lists of numbers")
    if sorted(i for p in parts for i in p) != list(range(len(graph.nodes))):
        raise FileFormatError(f"{name}: its parts are not the {len(graph.nodes)} nodes of its model, each once")
    made = set(graph.sources())
    for p in parts:
        for i in p:
            if any(v is not None and v not in made for v in graph.nodes[i].inputs):
                raise FileFormatError(f"{name}: a part reads what a later one makes")
            made.update(graph.nodes[i].outputs)
