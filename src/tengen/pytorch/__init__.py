"""PyTorch's dialect: ``import tengen.pytorch as torch``, and a program written for PyTorch runs.

What means the same in Tengen is Tengen's own object; where PyTorch's arguments, defaults or results differ, a function or a class of
this package has PyTorch's. `docs/pytorch.md` has the differences that remain. Importing this package makes parameters leaves
(`tengen.tensor.leaves`), so that ``loss.backward()`` finds them.

>>> import tengen.pytorch as torch
>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad.tolist()
[2.0, 4.0]
"""

from __future__ import annotations

import math
import sys
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.base.version import VERSION
from tengen.fft import istft, stft
from tengen.linalg import cholesky, det, inv, matrix_exp, matrix_power, pinv, qr, slogdet
from tengen.linalg import inv as inverse
from tengen.linalg import pinv as pinverse
from tengen.pytorch import (
    amp,
    autograd,
    backends,
    cuda,
    distributions,
    fft,
    func,
    jit,
    linalg,
    nn,
    optim,
    programs,
    random,
    special,
    testing,
    utils,
)
from tengen.pytorch.amp import autocast
from tengen.pytorch.functions import creation, dtypes, elementwise, modes, reductions, shaping
from tengen.pytorch.functions.creation import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.dtypes import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.elementwise import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.modes import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.reductions import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.shaping import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.programs import *  # noqa: F403  (its __all__ is the table of names)
from tengen.tensor import Tensor
from tengen.tensor.nodes import leaves

leaves.of_parameters(True)
__version__ = f"2.0+tengen.{VERSION}"
pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
strided, contiguous_format, preserve_format, channels_last = "strided", "contiguous", "preserve", "channels_last"
FloatTensor = Tensor


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    *creation.__all__, *dtypes.__all__, *elementwise.__all__, *modes.__all__, *programs.__all__, *reductions.__all__, *shaping.__all__,
    "FloatTensor", "amp", "autocast", "autograd", "backends", "channels_last", "cholesky", "contiguous_format", "cuda", "det", "distributions",
    "e", "fft", "func", "inf", "inv", "inverse", "istft", "jit", "linalg", "matrix_exp", "matrix_power", "nan", "newaxis", "nn", "optim", "pi",
    "pinv", "pinverse", "preserve_format", "qr", "random", "slogdet", "special", "stft", "strided", "testing",
    "utils",
]  # fmt: skip
