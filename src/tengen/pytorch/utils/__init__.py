"""`torch.utils`: data and checkpoint."""

from tengen.pytorch.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
