"""`GraphModule`: a module whose forward is a graph's Python."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any

from tengen.pytorch.fx.graph import Graph
from tengen.pytorch.nn.module import Module
from tengen.tensor import Parameter, Tensor

_made = 0


class GraphModule(Module):
    """A module that computes a graph.

    Args: root: the module whose tensors and modules the graph names, of which it takes those; or a dict of them by dotted name. graph: the
        steps. class_name: what `repr` calls it.
    Attributes: graph: the steps. code: the Python that runs, as text. After a change of the graph `recompile()` makes it anew.
    """

    def __init__(self, root: Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule"):
        super().__init__()
        self._class_name = class_name
        if isinstance(root, Module):
            vars(self)["training"] = root.training
        for node in graph.nodes:
            if node.op in ("call_module", "get_attr"):
                self._take(node.target, root)
        self.graph = graph

    def _take(self, path: str, root: Any) -> None:
        *outer, last = path.split(".")
        target, source = self, root
        for part in outer:
            if not hasattr(target, part):
                setattr(target, part, Module())
            target = getattr(target, part)
            source = source if isinstance(source, Mapping) else getattr(source, part)
        if not hasattr(target, last):
            value = root[path] if isinstance(root, Mapping) else getattr(source, last)
            put = target.register_buffer if isinstance(value, Tensor) and not isinstance(value, Parameter) else partial(setattr, target)
            put(last, value)

    @property
    def graph(self) -> Graph:
        """The steps. To set it takes another graph."""
        return vars(self)["_graph"]

    @graph.setter
    def graph(self, value: Graph) -> None:
        vars(self)["_graph"] = value
        value.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python that runs."""
        return vars(self)["_code"]

    def recompile(self) -> Any:
        """Makes the Python of the graph as it is now. Returns it: text and names."""
        global _made
        made = self.graph.python_code("self")
        _made += 1
        place = f"<fx {_made}>"
        linecache.cache[place] = (len(made.src), None, made.src.splitlines(True), place)
        scope = dict(made.globals)
        exec(compile(made.src, place, "exec"), scope)
        vars(self).update(_code=made.src, forward=MethodType(scope["forward"], self))
        return made

    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a dotted name, with modules around it where there are none. Returns whether that could be."""
        *outer, last = target.split(".")
        at = self
        for part in outer:
            if not isinstance(getattr(at, part, None), (Module, type(None))):
                return False
            if getattr(at, part, None) is None:
                setattr(at, part, Module())
            at = getattr(at, part)
        setattr(at, last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes a module out. Returns whether there was one."""
        path, _, last = target.rpartition(".")
        try:
            at = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(getattr(at, last, None), Module):
            return False
        delattr(at, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes out the modules that no step uses."""
        used = {n.target for n in self.graph.nodes if n.op == "call_module"}
        paths = [n.target.split(".") for n in self.graph.nodes if n.op in ("call_module", "get_attr")]
        whole = {".".join(p[:i]) for p in paths for i in range(len(p))}
        for name in [name for name, _ in self.named_modules() if name]:
            inside = any(name == u or name.startswith(f"{u}.") for u in used)
            if not inside and name not in whole:
                self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **how: Any) -> str:
        """The class as text, which is printed unless print_output is False."""
        body = "".join(f"    {line}\n" for line in self.code.splitlines())
        text = f"class {self._class_name}(torch.nn.Module):\n{body}"
        if print_output:
            print(text)
        return text

    def _module_info_string(self) -> str:
        return ""

    def __deepcopy__(self, memo: dict) -> GraphModule:
        plain = {n: copy.deepcopy(v, memo) for n, v in vars(self).items() if n not in ("_graph", "forward", "_code")}
        made = Module.__new__(type(self))
        memo[id(self)] = made
        vars(made).update(plain)
        graph = Graph()
        result = graph.graph_copy(self.graph, {})
        graph.output(result)
        made.graph = graph
        return made

    def __copy__(self) -> GraphModule:
        graph = Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        return GraphModule(self, graph, self._class_name)
