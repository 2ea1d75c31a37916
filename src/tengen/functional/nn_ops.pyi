"""The ops of `nn.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import gelu as gelu
from tengen.functional import hsigmoid as hsigmoid
from tengen.functional import hswish as hswish
from tengen.functional import leaky_relu as leaky_relu
from tengen.functional import log_softmax as log_softmax
from tengen.functional import logsigmoid as logsigmoid
from tengen.functional import logsoftmax as logsoftmax
from tengen.functional import logsumexp as logsumexp
from tengen.functional import one_hot as one_hot
from tengen.functional import pad as pad
from tengen.functional import prelu as prelu
from tengen.functional import relu as relu
from tengen.functional import relu6 as relu6
from tengen.functional import sigmoid as sigmoid
from tengen.functional import silu as silu
from tengen.functional import sliding_window as sliding_window
from tengen.functional import sliding_window_transpose as sliding_window_transpose
from tengen.functional import softmax as softmax
from tengen.functional import softplus as softplus

__all__ = [
    "gelu", "hsigmoid", "hswish", "leaky_relu", "log_softmax", "logsigmoid", "logsoftmax", "logsumexp", "one_hot", "pad",
    "prelu", "relu", "relu6", "sigmoid", "silu", "sliding_window", "sliding_window_transpose", "softmax", "softplus"
]
