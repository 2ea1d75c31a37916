"""`torch.utils`: data, checkpoint, dlpack, benchmark, hooks."""

import tengen.pytorch.utils._pytree  # noqa: F401  (programs reach it as an attribute of the package)
from tengen.pytorch.utils import benchmark, checkpoint, data, dlpack, hooks

__all__ = ["benchmark", "checkpoint", "data", "dlpack", "hooks"]
