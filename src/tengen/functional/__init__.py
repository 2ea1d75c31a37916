"""Functions of tensors, under MegEngine's names. `functional.nn` holds networks' building blocks, `functional.loss` the
losses."""

from __future__ import annotations

from tengen.functional import loss, metric, nn
from tengen.functional.einsum import einsum
from tengen.functional.elemwise import *  # noqa: F403
from tengen.functional.elemwise import __all__ as _elemwise
from tengen.functional.loss import cross_entropy_with_softmax
from tengen.functional.math import *  # noqa: F403
from tengen.functional.math import __all__ as _math
from tengen.functional.metric import topk_accuracy
from tengen.functional.nn import *  # noqa: F403
from tengen.functional.nn import __all__ as _nn
from tengen.functional.tensor import *  # noqa: F403
from tengen.functional.tensor import __all__ as _tensor

__all__ = ["cross_entropy_with_softmax", "einsum", "loss", "metric", "nn", "topk_accuracy", *_elemwise, *_math, *_nn, *_tensor]
