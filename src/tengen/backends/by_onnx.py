"""What back ends share that read ONNX: which nodes can be said in it, and the file of a part."""

from __future__ import annotations

from tengen.base.errors import ArgumentError, TengenError
from tengen.deploy.backends import Backend, Refused
from tengen.deploy.model import Model
from tengen.deploy.partition import subgraph
from tengen.interop.onnx.save import to_proto
from tengen.ir.graph import Graph, Node, attrs_key


class ByOnnx(Backend):
    """A back end that takes every node which Tengen writes as ONNX, with dtypes of `DTYPES`."""

    DTYPES = frozenset(("float32", "float64", "int64", "int32", "int8", "uint8", "bool"))
    rounding = "sums in another order than Tengen's: float results differ by roundings, integers are equal"

    def __init__(self) -> None:
        self._known: dict[tuple, bool] = {}

    def takes(self, node: Node, graph: Graph) -> bool:
        """Whether ONNX can say the node; each kind of node is tried once."""
        types = tuple(None if v is None else v.type for v in node.inputs)
        if {t.dtype.name for t in (*(t for t in types if t), *(v.type for v in node.outputs))} - self.DTYPES:
            return False
        key = node.op, attrs_key(node.attrs), types
        if key not in self._known:
            try:
                to_proto(Model(subgraph(graph, [node], "node")[0], {}))
                self._known[key] = True
            except (ArgumentError, TengenError):
                self._known[key] = False
        return self._known[key]

    def compile(self, graph: Graph) -> bytes:
        """The part as a file of ONNX."""
        try:
            return to_proto(Model(graph, {})).SerializeToString()
        except TengenError as e:
            raise Refused(f"{graph.name} cannot be said in ONNX: {e}") from e
