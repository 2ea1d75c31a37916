"""What expressions of a traced module read and make: tensors, and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tengen.ir.types import TensorType
from tengen.tensor import Tensor
from tengen.tensor.elsewhere import Elsewhere, refuse_writing

if TYPE_CHECKING:
    from tengen.traced_module.expr import Expr
    from tengen.traced_module.graph import InternalGraph

__all__ = ["ModuleNode", "Node", "TensorNode"]


class InGraph:
    """What a graph numbers: its nodes and its expressions. Attributes: graph (`top_graph`): the graph that it is in. id: its number."""

    graph: InternalGraph
    _id: int

    @property
    def id(self) -> int:
        return self._id

    @property
    def top_graph(self) -> InternalGraph:
        return self.graph


class Node(InGraph):
    """What an expression makes.

    Attributes: name: unique in its graph. expr: the expression that makes it. graph (`top_graph`): the graph that it is in. id: a number
        that no other node of the traced module has.
    """

    _name: str
    expr: Expr

    def _enter(self, graph: InternalGraph, expr: Expr, name: str) -> None:
        self.graph, self.expr, self._id = graph, expr, graph.ids.node()
        self._name = graph.free_name(name)

    def __repr__(self) -> str:
        return self._name

    @property
    def qualname(self) -> str:
        """The name with that of the graph's module before it."""
        return f"{self.graph.qualname}.[{self._name}]"

    @property
    def users(self) -> list[Expr]:
        """The expressions that read it."""
        return [e for e in self.graph._exprs if any(n is self for n in e.inputs)]


class TensorNode(Node, Tensor):
    """A tensor without a value. Inside of `graph.insert_exprs()`, functions of tensors that are called with it become expressions.

    Attributes: shape, dtype: as of tensors, those of the example; extents that are the example's batch are open.
    """

    def __init__(self, graph: InternalGraph, expr: Expr, name: str, type_: TensorType):
        self._node = None
        self._data, self._layout = None, Elsewhere(type_, graph)
        self._enter(graph, expr, name)

    __repr__ = Node.__repr__

    def _reset(self, other: Any) -> None:
        refuse_writing()

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = self.graph.free_name(name)


class ModuleNode(Node):
    """A module: `owner`, found by its path. Inside of `graph.insert_exprs()` it can be called with TensorNodes, and asked for attributes."""

    def __init__(self, graph: InternalGraph, expr: Expr, name: str, path: str):
        self.path = path
        self._enter(graph, expr, name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def owner(self) -> Any:
        """The module."""
        return self.graph.reach(self.path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph.insert_call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "graph" not in self.__dict__:
            raise AttributeError(name)
        return self.graph.insert_attribute(self, name)
