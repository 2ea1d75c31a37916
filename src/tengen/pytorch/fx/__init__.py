"""`torch.fx`: a module's Python as a graph of its calls, which programs look at, edit, and run as a module again.

The graph is of PyTorch's calls, one step for each function, method or module that the code calls, without shapes: what passes over programs
are written on. (`tengen.traced_module` records a module for an example; `tengen.trace(...).graph` has the operations that run.)

>>> from tengen.pytorch import nn, ones
>>> gm = symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
>>> print(gm.code)
def forward(self, x):
    _0 = getattr(self, "0")(x);  x = None
    _1 = getattr(self, "1")(_0);  _0 = None
    return _1
<BLANKLINE>
"""

import sys
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.pytorch.fx import node, passes, proxy, subgraph_rewriter
from tengen.pytorch.fx.graph import Graph
from tengen.pytorch.fx.graph_module import GraphModule
from tengen.pytorch.fx.interpreter import Interpreter, Transformer
from tengen.pytorch.fx.node import Node, map_arg
from tengen.pytorch.fx.proxy import Proxy
from tengen.pytorch.fx.subgraph_rewriter import replace_pattern
from tengen.pytorch.fx.tracer import Tracer, symbolic_trace, wrap


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.fx", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "map_arg", "node", "passes", "proxy", "replace_pattern",
    "subgraph_rewriter", "symbolic_trace", "wrap",
]  # fmt: skip
