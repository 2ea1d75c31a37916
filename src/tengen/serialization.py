"""`tengen.serialization`: MegEngine's namespace of `save` and `load`, which are `tengen.save` and `tengen.load`."""

from tengen.deploy.checkpoint import load, save

__all__ = ["load", "save"]
