"""`torch.signal`: the windows of signals (`windows`)."""

from tengen.pytorch.signal import windows

__all__ = ["windows"]
