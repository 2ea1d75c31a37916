"""`torch.special`: those functions that Tengen has."""

from tengen.functional import digamma, erf, erfc, exp2, expm1, log1p, logit, sinc
from tengen.functional import lgamma as gammaln
from tengen.functional import sigmoid as expit
from tengen.pytorch.functions.elementwise import log_softmax, round, softmax, xlogy
from tengen.pytorch.functions.reductions import logsumexp

psi = digamma

__all__ = [
    "digamma", "erf", "erfc", "exp2", "expit", "expm1", "gammaln", "log1p", "log_softmax", "logit", "logsumexp", "psi", "round", "sinc",
    "softmax", "xlogy",
]  # fmt: skip
