"""`torch.special`: functions of probability and physics, as Tengen's `functional` has them, with PyTorch's names of parameters."""

from __future__ import annotations

import sys
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.functional import bessel, digamma, erf, erfc, exp2, expm1, log1p, logit, orthogonal, sinc
from tengen.functional import lgamma as gammaln
from tengen.functional import sigmoid as expit
from tengen.functional import special as functions
from tengen.functional.bessel import *  # noqa: F403  (its __all__ is the table of names)
from tengen.functional.orthogonal import *  # noqa: F403  (the same)
from tengen.functional.special import *  # noqa: F403  (the same)
from tengen.functional.special import gammainc, gammaincc
from tengen.ops.widths import narrowed
from tengen.pytorch.functions import in_words
from tengen.pytorch.functions.elementwise import log_softmax, round, softmax, xlogy
from tengen.pytorch.functions.reductions import logsumexp
from tengen.tensor import Tensor

psi = digamma


def _float(x: Any) -> Tensor:
    t = x if isinstance(x, Tensor) else Tensor(x, dtype="float32")
    return t if t.dtype.is_inexact else t.astype("float32")


def i0e(input: Tensor) -> Tensor:
    """exp(-|x|) I_0(x), of the modified Bessel function of the first kind."""
    return bessel.i0e(_float(input))


def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    return bessel.i0(_float(input))


def i1e(input: Tensor) -> Tensor:
    """exp(-|x|) I_1(x)."""
    x = _float(input)
    return narrowed(bessel.i1e(x), x)


def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1."""
    x = _float(input)
    return narrowed(bessel.i1(x), x)


igamma, igammac, modified_bessel_i0, modified_bessel_i1 = gammainc, gammaincc, i0, i1


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.special", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    *orthogonal.__all__, *bessel.__all__, *functions.__all__,
    "digamma", "erf", "erfc", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e", "igamma", "igammac", "log1p", "log_softmax",
    "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "psi", "round", "sinc", "softmax", "xlogy",
]  # fmt: skip
in_words(globals(), __all__)
