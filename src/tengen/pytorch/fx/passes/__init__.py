"""`torch.fx.passes`: what is noted at a graph's steps."""

from tengen.pytorch.fx.passes import shape_prop

__all__ = ["shape_prop"]
