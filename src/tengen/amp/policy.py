"""Which ops autocast computes in low precision, and which in high: the one table. An op that is not in it is computed in the
widest dtype among its operands.

In: an op's name. Out: "low", "high" or None.
"""

from __future__ import annotations

# Where the time of a network goes, and where a long sum is kept in float32 anyway: contractions.
LOW = """
    matmul linear
    conv conv_bias conv_transposed
    attention attention_weights
"""

# Where small differences matter, or numbers leave float16's range.
HIGH = """
    exp exp2 expm1 log log2 log10 log1p logaddexp pow sqrt rsqrt reciprocal cbrt square
    sin cos tan asin acos atan2 sinh cosh asinh acosh atanh
    softplus logsigmoid
    sum mean prod var std cumsum cumprod logsumexp
    softmax logsoftmax
    general_norm layer_norm group_norm batch_norm_train batch_norm_eval
    cross_entropy_each
"""

POLICY = {name: "low" for name in LOW.split()} | {name: "high" for name in HIGH.split()}
