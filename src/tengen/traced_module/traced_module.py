"""`TracedModule`: a module whose forward is a list of expressions, and whose modules are modules as before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.module import Module
from tengen.tensor import Tensor
from tengen.traced_module.graph import Ids, InternalGraph
from tengen.traced_module.nest import rebuild
from tengen.traced_module.node import Node, TensorNode

__all__ = ["TracedModule"]


class TracedModule(Module):
    """What `trace_module` gives: a module like another, with the same attributes, that runs the expressions of its `graph`.

    Attributes:
        graph: an `InternalGraph`; None of a module that only holds others (a list of them). class_name: of what it was made of.
        revision: a number that each edit of the graph changes. watch_node_value: what the nodes of `set_watch_points` were in the last run.
    """

    graph: InternalGraph | None
    saved_as = "traced_module"  # by `tengen.save`

    def __init__(self, name: str = ""):
        super().__init__()
        self.__dict__["graph"] = None
        self.class_name, self.revision = name, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the expressions. Errors: TypeError for arguments that are nested unlike those of the example."""
        graph, _ = self.graph, self.revision  # what recordings of `trace` guard is what is read here
        if graph is None:
            raise NotImplementedError(f"{self.class_name} was not called when it was traced, so it has no graph")
        return graph.call(args, kwargs)

    def _module_info_string(self) -> str:
        return self.class_name

    # -- points of a run -------------------------------------------------------------------------------------------------
    def _graph(self) -> InternalGraph:
        if self.graph is None:
            raise ArgumentError(f"{self.class_name} was not called when it was traced, so it has no graph")
        return self.graph

    def set_watch_points(self, nodes: Node | Sequence[Node]) -> None:
        """Keeps what these nodes of the graph are in the last run in `watch_node_value`."""
        graph, chosen = self._graph(), [nodes] if isinstance(nodes, Node) else list(nodes)
        graph._own(*chosen)
        graph.watched = dict.fromkeys(chosen)
        graph.changed()

    def clear_watch_points(self) -> None:
        """Keeps nothing."""
        self._graph().watched = {}
        self._graph().changed()

    @property
    def watch_node_value(self) -> dict[Node, Any]:
        return self._graph().watched

    def set_end_points(self, nodes: Node | Sequence[Node]) -> None:
        """A call gives a list of what these nodes are, in place of the result."""
        graph, chosen = self._graph(), [nodes] if isinstance(nodes, Node) else list(nodes)
        graph._own(*chosen)
        graph.ends = chosen
        graph.changed()

    def clear_end_points(self) -> None:
        """A call gives the result."""
        self._graph().ends = []
        self._graph().changed()

    # -- copies ----------------------------------------------------------------------------------------------------------
    def flatten(self) -> TracedModule:
        """A copy in which modules with graphs of their own are no longer called: their expressions stand in one graph. Its modules and
        parameters have the names they had."""
        made = copy.deepcopy(self)
        old = made._graph()
        g = InternalGraph(made, old.name, old.qualname, Ids())
        table: dict[int, Any] = {}
        for n in old.inputs:
            table[id(n)] = g.add_input(n.name, n._layout.type if isinstance(n, TensorNode) else None)
        g.inline(old, table, "", flat=True)
        g.bound, g.result = (_renamed(x, table) for x in (old.bound, old.result))
        for m in made.modules():  # nobody calls them now
            if isinstance(m, TracedModule):
                m.__dict__["graph"] = None
        made.__dict__["graph"] = g
        g.compile()
        return made

    def __deepcopy__(self, memo: dict[Any, Any]) -> TracedModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for k, v in self.__dict__.items():
            if k != "graph":
                made.__dict__[k] = copy.deepcopy(v, memo)
        ids = memo.setdefault("ids of traced modules", Ids())
        made.__dict__["graph"] = None if self.graph is None else self.graph.copied(made, ids)
        return made


def _renamed(x: Any, table: dict[int, Any]) -> Any:
    from_table = lambda n: table[id(n)] if isinstance(n, Node) else n
    return rebuild(x, from_table)


def traced_like(m: Module, known: dict[int, Any]) -> Any:
    """The traced module that stands for a module: with its tensors, the modules among its attributes as `known` (by id) has them, and no
    graph yet."""
    made = TracedModule(type(m).__name__)
    known[id(m)] = made

    def attribute(v: Any) -> Any:
        if isinstance(v, Module):
            return known[id(v)]
        if isinstance(v, (list, tuple)):
            return type(v)(*map(attribute, v)) if hasattr(v, "_fields") else (list if isinstance(v, list) else tuple)(map(attribute, v))
        return {k: attribute(x) for k, x in v.items()} if isinstance(v, dict) else v

    for name, v in m.__dict__.items():
        if isinstance(v, (Tensor, Module)) or (isinstance(v, (list, tuple, dict)) and _holds(v)):
            made.__dict__[name] = attribute(v)
    made.__dict__["training"] = m.training
    if "_not_saved" in m.__dict__:
        made.__dict__["_not_saved"] = m.__dict__["_not_saved"]
    return made


def _holds(v: Any) -> bool:
    """Whether a nest of attributes has a tensor or a module in it."""
    if isinstance(v, (list, tuple)):
        return any(map(_holds, v))
    return any(map(_holds, v.values())) if isinstance(v, dict) else isinstance(v, (Tensor, Module))
