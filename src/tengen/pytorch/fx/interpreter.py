"""`Interpreter` runs a graph step by step; `Transformer` makes another graph of what it runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tengen.pytorch.fx.graph import Graph
from tengen.pytorch.fx.graph_module import GraphModule
from tengen.pytorch.fx.node import Node, map_arg
from tengen.pytorch.fx.proxy import Proxy
from tengen.pytorch.fx.tracer import TracerBase
from tengen.pytorch.nn.module import Module


class Interpreter:
    """Runs a graph: subclasses say otherwise by `run_node`, or by the method of a kind of steps.

    Args: module: a `GraphModule`. garbage_collect_values: whether results are let go after their last use. graph: other steps for the module.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None):
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        last = {m: n for n in self.graph.nodes for m in n.all_input_nodes}
        self._spent: dict[Node, list[Node]] = {}
        for m, n in last.items():
            self._spent.setdefault(n, []).append(m)

    def run(self, *args: Any, initial_env: Mapping[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result for these arguments. initial_env: results of steps that are known already."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if self.garbage_collect_values:
                for spent in self._spent.get(node, ()):
                    self.env.pop(spent, None)
            if node.op == "output":
                return self.env[node]
        return None

    def run_node(self, n: Node) -> Any:
        """The result of a step."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: str, args: tuple, kwargs: dict) -> Any:
        """An argument, or its default; of "*args" all that are left. Errors: RuntimeError where it is missing"""
        if target.startswith("*"):
            return {} if target.startswith("**") else list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"the argument {target!r} is missing") from None

    def get_attr(self, target: str, args: tuple, kwargs: dict) -> Any:
        """A tensor of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Callable, args: tuple, kwargs: dict) -> Any:
        """A function's result."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple, kwargs: dict) -> Any:
        """A method's result."""
        of, *rest = args
        return getattr(of, target)(*rest, **kwargs)

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        """A module's result."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: tuple, kwargs: dict) -> Any:
        """The graph's result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has under a dotted name."""
        return operator.attrgetter(target)(self.module) if all(p.isidentifier() for p in target.split(".")) else _walk(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple, dict]:
        """A step's arguments as values."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Arguments with results in the places of nodes."""
        return map_arg(args, lambda m: self.env[m])


def _walk(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return module


class Transformer(Interpreter):
    """An `Interpreter` whose values are proxies: `transform` gives the graph of what it does."""

    def __init__(self, module: GraphModule):
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = TracerBase()
        self.tracer.graph = self.new_graph

    def placeholder(self, target: str, args: tuple, kwargs: dict) -> Proxy:
        """An argument of the new graph."""
        return self.tracer.proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...))

    def get_attr(self, target: str, args: tuple, kwargs: dict) -> Proxy:
        """A tensor of the module."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Callable, args: tuple, kwargs: dict) -> Any:
        """A function's step."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: tuple, kwargs: dict) -> Any:
        """A method's step."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        """A module's step."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new graph as a module."""
        self.new_graph.output(self.tracer.create_arg(self.run()))
        return GraphModule(self.module, self.new_graph, self.module._class_name)
