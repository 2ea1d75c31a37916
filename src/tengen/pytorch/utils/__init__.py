"""`torch.utils`: data, checkpoint, dlpack, benchmark, hooks."""

from tengen.pytorch.utils import _pytree, benchmark, checkpoint, data, dlpack, hooks

__all__ = ["_pytree", "benchmark", "checkpoint", "data", "dlpack", "hooks"]
