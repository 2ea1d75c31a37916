"""`torch.signal`: windows."""

from tengen.pytorch.signal import windows

__all__ = ["windows"]
