"""Functions of tensors, under MegEngine's names. `functional.nn` holds networks' building blocks, `functional.loss` the
losses, `functional.vision` what is done with images. Each is loaded when it is first asked for."""

from __future__ import annotations

from tengen.functional.einsum import einsum  # a module of this name is beside it, which would stand here once somebody loads it
from tengen.functional.export import export
from tengen.functional.names import FUNCTIONS
from tengen.ops.define import SUBMODULES

__all__ = ["einsum", "loss", "metric", "nn", "vision", *export(globals(), *SUBMODULES, elsewhere=FUNCTIONS)]
