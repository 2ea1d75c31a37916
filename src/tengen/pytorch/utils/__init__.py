"""`torch.utils`: data, checkpoint, dlpack and benchmark."""

from tengen.pytorch.utils import benchmark, checkpoint, data, dlpack

__all__ = ["benchmark", "checkpoint", "data", "dlpack"]
