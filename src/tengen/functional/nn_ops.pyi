"""The ops of `nn.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import log_softmax as log_softmax
from tengen.functional import logsoftmax as logsoftmax
from tengen.functional import logsumexp as logsumexp
from tengen.functional import softmax as softmax

__all__ = [
    "log_softmax", "logsoftmax", "logsumexp", "softmax"
]
