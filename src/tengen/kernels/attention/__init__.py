"""softmax(q k^T) v and its gradients, chunk by chunk of keys, without a matrix of scores.

Read `forward.py`, then `tiles.py` (the blocks and register tiles of all these kernels), then `backward.py`. The forward pass
is one kernel. The gradients are one kernel where there are groups (batch and heads) enough for all threads, else two: one for
the gradient of the queries, one for those of keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.attention import backward, forward, tiles  # noqa: F401

__getattr__ = modules_of(__name__)
