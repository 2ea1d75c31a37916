"""Functions of tensors, under MegEngine's names. `functional.nn` holds networks' building blocks, `functional.loss` the
losses, `functional.vision` what is done with images."""

from __future__ import annotations

from tengen.base.lazy import modules_of
from tengen.functional import elemwise, loss, metric, nn, tensor, vision  # noqa: F401  (the submodules that hold ops alone are names as well)
from tengen.functional.accumulated import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.accumulated import __all__ as _accumulated
from tengen.functional.activations import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.activations import __all__ as _activations
from tengen.functional.arranged import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.arranged import __all__ as _arranged
from tengen.functional.composed import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.composed import __all__ as _composed
from tengen.functional.control import cond, fori_loop, scan, while_loop
from tengen.functional.einsum import einsum
from tengen.functional.export import export
from tengen.functional.loss import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.loss import __all__ as _loss
from tengen.functional.math import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.math import __all__ as _math
from tengen.functional.metric import topk_accuracy
from tengen.functional.nn import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.nn import __all__ as _nn
from tengen.functional.pooling import *  # noqa: F403  (the names of `__all__`)
from tengen.functional.pooling import __all__ as _pooling
from tengen.ops.define import SUBMODULES

__getattr__ = modules_of(__name__)  # `distributed`, `utils`
__all__ = [
    "cond", "einsum", "fori_loop", "loss", "metric", "nn", "scan", "topk_accuracy", "vision", "while_loop",
    *_accumulated, *_activations, *_arranged, *_composed, *_math, *_nn, *(n for n in (*_loss, *_pooling) if n not in _nn),
    *export(globals(), *SUBMODULES),
]  # fmt: skip
