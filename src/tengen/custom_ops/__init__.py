"""Operators of one's own: defined in the user's file, used like Tengen's. See `docs/custom_ops.md`."""

from tengen.custom_ops.checking import Checked, check_op
from tengen.custom_ops.definitions import CustomOp, c_function, composite, elementwise, kernel

__all__ = ["Checked", "CustomOp", "c_function", "check_op", "composite", "elementwise", "kernel"]
