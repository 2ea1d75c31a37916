"""Making, joining and rearranging tensors: the ops that say to stand here, under MegEngine's names."""

from __future__ import annotations

from tengen.functional.export import export

__all__ = export(globals(), "tensor")
