"""`torch.cuda.amp`: the older place of `torch.amp`, whose classes are for a GPU unless something else is said."""

from tengen.pytorch.amp import GradScaler, autocast, custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
