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

import importlib
import math
import sys
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.fft import istft, stft
from tengen.pytorch import (
    amp,
    autograd,
    backends,
    cuda,
    distributed,
    distributions,
    fft,
    foreach,
    func,
    hub,
    inner_modules,
    jit,
    linalg,
    multiprocessing,
    nn,
    optim,
    profiler,
    programs,
    random,
    special,
    tensor_methods,
    testing,
    utils,
    version,
)
from tengen.pytorch.amp import autocast
from tengen.pytorch.functions import creation, dtypes, elementwise, factors, further, modes, reductions, shaping, types
from tengen.pytorch.functions.creation import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.dtypes import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.elementwise import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.factors import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.further import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.modes import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.reductions import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.shaping import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.functions.types import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.linalg import det, inv, matrix_exp, matrix_power, pinv, slogdet
from tengen.pytorch.linalg import inv as inverse
from tengen.pytorch.nn.functional import (
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    alpha_dropout,
    avg_pool1d,
    bilinear,
    celu,
    celu_,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    dropout,
    group_norm,
    hardshrink,
    layer_norm,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    relu_,
    rms_norm,
    rrelu,
    rrelu_,
    selu_,
    threshold_,
)
from tengen.pytorch.programs import *  # noqa: F403  (its __all__ is the table of names)
from tengen.pytorch.special import erfinv, i0, igamma, igammac, polygamma
from tengen.pytorch.special import multigammaln as mvlgamma
from tengen.tensor import dialect, methods
from tengen.tensor.nodes import leaves

leaves.of_parameters(True)
methods.put({**dialect.methods(), "grad_fn": property(autograd.graph.grad_fn, doc=autograd.graph.grad_fn.__doc__)})
tensor_methods.install(sys.modules[__name__])
inner_modules.install()
__version__ = version.__version__
pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
strided, contiguous_format, preserve_format, channels_last = "strided", "contiguous", "preserve", "channels_last"


# packages that are imported when they are first named
_LATER = ("_dynamo", "accelerator", "compiler", "cpu", "export", "fx", "mps", "onnx", "signal", "xpu")


def __getattr__(name: str) -> Any:
    if name.startswith("_foreach_"):
        return foreach.function(name)
    if name in _LATER:
        return importlib.import_module(f"tengen.pytorch.{name}")
    raise NoSuchName("tengen.pytorch", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    *creation.__all__, *dtypes.__all__, *elementwise.__all__, *factors.__all__, *further.__all__, *modes.__all__, *programs.__all__,
    *reductions.__all__, *shaping.__all__,
    *types.__all__, "amp", "autocast", "autograd", "backends", "channels_last", "contiguous_format", "cuda", "det", "distributed",
    "distributions", "multiprocessing", "profiler",
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear", "celu", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "dropout", "group_norm", "hardshrink",
    "i0", "igamma", "igammac",
    "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d", "mvlgamma", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
    "polygamma", "relu_",
    "rms_norm", "rrelu", "rrelu_", "selu_", "celu_", "threshold_",
    "erfinv",
    *(name for name in _LATER if name[0] != "_"),
    "e", "fft", "func", "hub",
    "inf", "inv", "inverse", "istft", "jit", "linalg", "matrix_exp", "matrix_power", "nan", "newaxis", "nn", "optim", "pi",
    "pinv", "preserve_format", "random", "slogdet", "special", "stft", "strided", "testing",
    "utils", "version",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
