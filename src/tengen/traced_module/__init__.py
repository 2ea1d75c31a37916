"""Modules as lists of expressions that can be edited: MegEngine's `traced_module`.

`trace_module` makes a `TracedModule`; its `graph` has expressions (`expr.py`) between nodes (`node.py`). `tengen.save` and `tengen.load` keep
it, with nothing executed (`saving.py`).
"""

from tengen.traced_module import saving  # noqa: F401  (says how a TracedModule is pickled)
from tengen.traced_module.expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from tengen.traced_module.graph import InternalGraph
from tengen.traced_module.nest import register_supported_type
from tengen.traced_module.node import ModuleNode, Node, TensorNode
from tengen.traced_module.optimize import optimize
from tengen.traced_module.traced_module import TracedModule
from tengen.traced_module.tracer import disable_default_checker, enable_expr_checker, register_as_builtin, trace_module, wrap

__all__ = [
    "Apply", "CallFunction", "CallMethod", "Constant", "Expr", "GetAttr", "Input", "InternalGraph", "ModuleNode", "Node", "TensorNode",
    "TracedModule", "disable_default_checker", "enable_expr_checker", "optimize", "register_as_builtin", "register_supported_type",
    "trace_module", "wrap",
]  # fmt: skip
