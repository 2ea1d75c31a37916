"""Gradients: `GradManager` as MegEngine has it, and transformations of functions: `grad`, `value_and_grad`, `vjp`, `jvp`,
`jacobian`, `hessian`, `hvp`, `vmap`."""

from tengen.autodiff.checkpointing import checkpoint
from tengen.autodiff.derivatives import hessian, hvp, jacobian, jvp
from tengen.autodiff.function import Function
from tengen.autodiff.functions import grad, value_and_grad, vjp
from tengen.autodiff.manager import GradManager
from tengen.autodiff.modes import enable_grad, no_grad
from tengen.autodiff.vmap import vmap
from tengen.base.lazy import modules_of

__getattr__ = modules_of(__name__)
__all__ = [
    "Function", "GradManager", "checkpoint", "enable_grad", "grad", "hessian", "hvp", "jacobian", "jvp", "no_grad", "value_and_grad",
    "vjp", "vmap",
]  # fmt: skip
