"""Tensors: what a user holds, how calls of ops are run, put on the tape, or recorded.

Read `tensor.py` (the class), `eager.py` (calls of ops), `tape.py` (gradients), `recorder.py` (calls become a graph), `assignment.py`
(``x[key] = value``), `casting.py` (mixed precision), `executable.py` (a graph as one native call), `dlpack.py` (other libraries'
arrays); `methods.py` puts it together. The recorder and the executable bring the compiler's passes with them: they are imported
where they are used.
"""

from tengen.tensor import methods  # noqa: F401  (operators and methods of Tensor)
from tengen.tensor.eager import hide_plans, restore_plans
from tengen.tensor.nodes import TapeNode
from tengen.tensor.parameter import Parameter
from tengen.tensor.recording import tracing
from tengen.tensor.tensor import Buffer, Tensor, contiguous, from_numpy, tensor_on_tape, tensor_over, view_as_numpy

__all__ = [
    "Buffer", "Parameter", "TapeNode", "Tensor", "contiguous", "from_numpy", "hide_plans", "restore_plans", "tensor_on_tape",
    "tensor_over", "tracing", "view_as_numpy",
]  # fmt: skip
