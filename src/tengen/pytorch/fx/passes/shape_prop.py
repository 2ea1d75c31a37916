"""`ShapeProp`: notes the shapes and dtypes of all results."""

from __future__ import annotations

from typing import Any

from tengen.base.record import NamedTuple
from tengen.pytorch.fx.interpreter import Interpreter
from tengen.pytorch.fx.node import Node, map_aggregate
from tengen.tensor import Tensor


class TensorMetadata(NamedTuple):
    """What is known of a result."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any = None
    is_quantized: bool = False
    qparams: Any = None


class ShapeProp(Interpreter):
    """An `Interpreter` that notes of each result its `TensorMetadata` in ``node.meta["tensor_meta"]`` and its type in ``node.meta["type"]``."""

    def run_node(self, n: Node) -> Any:
        """The result of a step, which is noted."""
        result = super().run_node(n)
        made = map_aggregate(result, lambda t: _metadata(t) if isinstance(t, Tensor) else t)
        if isinstance(result, (Tensor, tuple, list, dict)):
            n.meta["tensor_meta"] = made
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph for these arguments; its result."""
        return self.run(*args)


def _metadata(t: Tensor) -> TensorMetadata:
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, tuple(t.strides))


__all__ = ["ShapeProp", "TensorMetadata"]
