"""`replace_pattern`: every place of a graph that is as a pattern becomes another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.base.record import NamedTuple
from tengen.pytorch.fx.graph import Graph
from tengen.pytorch.fx.graph_module import GraphModule
from tengen.pytorch.fx.node import Node, map_arg
from tengen.pytorch.fx.tracer import symbolic_trace
from tengen.pytorch.nn.module import Module


class Match(NamedTuple):
    """anchor: the step with the result of the place that was found. nodes_map: the steps there, by those of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


def _graph(x: Any) -> Graph:
    return x if isinstance(x, Graph) else x.graph if isinstance(x, GraphModule) else symbolic_trace(x).graph


def _fits(pattern: Any, found: Any, of: dict[Node, Any]) -> bool:
    """Whether what was found is as the pattern; `of` gets what stands for its nodes."""
    if isinstance(pattern, Node):
        if pattern in of:
            return of[pattern] is found or (not isinstance(found, Node) and of[pattern] == found)
        if pattern.op == "placeholder":
            of[pattern] = found
            return True
        if not isinstance(found, Node) or found.op != pattern.op or not _same_target(pattern, found):
            return False
        of[pattern] = found
        return _fits(pattern.args, found.args, of) and _fits(pattern.kwargs, found.kwargs, of)
    if isinstance(pattern, (tuple, list)):
        same = isinstance(found, (tuple, list)) and len(found) == len(pattern)
        return same and all(_fits(p, f, of) for p, f in zip(pattern, found))
    if isinstance(pattern, dict):
        return isinstance(found, dict) and found.keys() == pattern.keys() and all(_fits(p, found[k], of) for k, p in pattern.items())
    return type(pattern) is type(found) and pattern == found


def _same_target(pattern: Node, found: Node) -> bool:
    """Whether both call the same; of modules, modules of one class."""
    if pattern.op != "call_module":
        return found.target == pattern.target
    a, b = (n.graph.owning_module.get_submodule(n.target) for n in (pattern, found))
    return type(a) is type(b)


def _closed(of: dict[Node, Any], result: Node) -> bool:
    """Whether nobody else uses what is between."""
    inside = {n for p, n in of.items() if p.op != "placeholder" and isinstance(n, Node)}
    return all(user in inside for n in inside if n is not result for user in n.users)


def replace_pattern(gm: GraphModule, pattern: Callable | Module | Graph, replacement: Callable | Module | Graph) -> list[Match]:
    """Replaces every place of a graph that computes as `pattern` does, from the first on and without overlaps, by `replacement`: functions of
    the same parameters. Calls of modules are alike where the modules are of one class. The module's Python is made anew.

    Returns: what was found. Errors: ArgumentError for a pattern of several results

    >>> import operator
    >>> from tengen.pytorch import relu, sigmoid
    >>> gm = symbolic_trace(lambda x, y: relu(x) * 2 + y)
    >>> [m.anchor.name for m in replace_pattern(gm, lambda a: relu(a) * 2, lambda a: sigmoid(a))]
    ['mul']
    >>> [n.name for n in gm.graph.nodes]
    ['x', 'y', 'sigmoid', 'add', 'output']
    """
    wanted, other = _graph(pattern), _graph(replacement)
    result = wanted.output_node().args[0]
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    taken: set[Node] = set()
    found: list[Match] = []
    if not isinstance(result, Node):
        raise ArgumentError(f"replace_pattern: the pattern returns {result!r}; help: one value that it computes")
    now: dict[Node, Any] = {}  # what stands for a result that was replaced
    for node in gm.graph.nodes:
        of: dict[Node, Any] = {}
        if node in taken or not _fits(result, node, of) or not _closed(of, node):
            continue
        inside = {n for p, n in of.items() if p.op != "placeholder"}
        if inside & taken:
            continue
        taken |= inside
        given = dict(zip((n for n in other.nodes if n.op == "placeholder"), (map_arg(of.get(p), lambda n: now.get(n, n)) for p in inputs)))
        with gm.graph.inserting_before(node):
            made = gm.graph.graph_copy(other, dict(given))
        node.replace_all_uses_with(made)
        now[node] = made
        for n in reversed(gm.graph.nodes):
            if n in inside and not n.users:
                gm.graph.erase_node(n)
        found.append(Match(node, of))
    if found and other.owning_module is not None:
        for n in other.nodes:
            if n.op in ("call_module", "get_attr"):
                gm._take(n.target, other.owning_module)
    gm.recompile()
    return found
