"""Attention, softmax(q k^T) v, and its gradients, chunk by chunk of keys, without a matrix of scores in memory.

Read `forward.py`, then what all these kernels are made of: `tiles.py` (register tiles, and which keys are seen), `blocks.py`
(the memory of a piece), `sizes.py` (the schedule); then `backward.py`. The forward pass is one kernel, which for one query is that
of `one_query.py`. The gradients are one kernel where there are groups (sequences of the batch times heads) enough for all threads, else
two: one for the gradient of the queries, one for those of keys and values. Attention of integers of 8 bits has a kernel of its own
(`integers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.attention import backward, blocks, forward, integers, one_query, sizes, tiles  # noqa: F401  (loads when it is named)

__getattr__ = modules_of(__name__)
