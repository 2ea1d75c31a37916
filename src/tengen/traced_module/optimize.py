"""Passes over traced modules, under MegEngine's names.

In: a traced module in evaluation. Out: another one that computes the same within rounding, with fewer expressions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tengen import module as M
from tengen.base.errors import ArgumentError
from tengen.traced_module.expr import CallMethod, GetAttr, reach
from tengen.traced_module.graph import InternalGraph
from tengen.traced_module.traced_module import TracedModule
from tengen.utils.bn_fusion import fuse_conv_bn_relu_module

__all__ = ["PASSES", "optimize"]


def optimize(module: TracedModule, enabled_pass: str | Sequence[str] = "FuseConvBn") -> TracedModule:
    """A copy of a traced module after some passes; the module stays as it was.

    Args:
        enabled_pass: names of passes. "FuseConvBn": a batch norm in evaluation becomes part of the convolution before it, where nothing
            else reads that one's result, and neither is called elsewhere.

    Errors: TypeError for what is no traced module, ArgumentError for a pass that there is none of.

    >>> from tengen import functional as F, module as M
    >>> from tengen.traced_module import trace_module
    >>> net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU()).eval()
    >>> optimize(trace_module(net, F.ones((1, 3, 8, 8)))).graph.get_method_by_type("__call__").as_count()
    2
    """
    if not isinstance(module, TracedModule):
        raise TypeError(f"optimize() takes a TracedModule, got a {type(module).__name__}; help: trace_module(module, example)")
    names = [enabled_pass] if isinstance(enabled_pass, str) else list(enabled_pass)
    if unknown := [n for n in names if n not in PASSES]:
        raise ArgumentError(f"optimize() has no pass {unknown[0]!r}, only {', '.join(PASSES)}")
    made = copy.deepcopy(module)
    for name in names:
        for m in made.modules():
            if isinstance(m, TracedModule) and m.graph is not None:
                PASSES[name](made, m.graph)
    return made


def _fuse_conv_bn(top: TracedModule, graph: InternalGraph) -> None:
    for e in list(graph._exprs):
        if not (isinstance(e, CallMethod) and isinstance(bn := e.args[0].owner, M.BatchNorm2d)) or bn.training or bn.running_mean is None:
            continue
        before = getattr(e.args[1], "expr", None)
        if not isinstance(before, CallMethod) or type(conv := before.args[0].owner) not in (M.Conv2d, M.ConvTranspose2d):
            continue
        read_once = len(before.outputs[0].users) == 1 and not any(n is before.outputs[0] for n in graph.outputs)
        if read_once and all(_calls(top, m) == 1 for m in (conv, bn)):
            _put(graph.module, before.args[0].path, fuse_conv_bn_relu_module(conv, bn))
            graph.replace_node({e.outputs[0]: before.outputs[0]})
            graph.compile()
            _put(graph.module, e.args[0].path, None)


def _calls(top: TracedModule, m: Any) -> int:
    """How often expressions call a module, and something else reads it."""
    found = {id(e): e for x in top.modules() if isinstance(x, TracedModule) and x.graph is not None for e in x.graph._exprs}.values()
    calls = sum(isinstance(e, CallMethod) and e.args[0].owner is m for e in found)
    own = {id(t) for t in m.tensors()}
    return calls + sum(isinstance(e, GetAttr) and id(reach(e.graph.module, e.name)) in own for e in found)


def _put(module: Any, path: str, value: Any) -> None:
    """Gives a path another module; None removes it."""
    *above, last = path.split(".")
    holder = reach(module, ".".join(above))
    if isinstance(holder, list):
        holder[int(last)] = value
    elif isinstance(holder, dict):
        holder[last] = value
    elif value is None:
        delattr(holder, last)
    else:
        setattr(holder, last, value)


PASSES = {"FuseConvBn": _fuse_conv_bn}
