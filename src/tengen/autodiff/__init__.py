"""Gradients: `GradManager` as MegEngine has it, and `grad`, `value_and_grad`, `vjp` of functions."""

from tengen.autodiff.function import Function
from tengen.autodiff.functions import grad, value_and_grad, vjp
from tengen.autodiff.manager import GradManager

__all__ = ["Function", "GradManager", "grad", "value_and_grad", "vjp"]
