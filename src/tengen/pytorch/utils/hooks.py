"""`torch.utils.hooks`: what takes a hook off."""

from tengen.tensor.hooks import HookHandle as RemovableHandle

__all__ = ["RemovableHandle"]
