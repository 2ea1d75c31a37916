"""`torch.nn.modules.module`: where `Module` stands in PyTorch's files."""

from tengen.pytorch.nn.module import Module

__all__ = ["Module"]
