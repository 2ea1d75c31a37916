"""Strategies: how ops become kernels. Everything here writes the kernel language (`loops/`) and nothing else.

A strategy takes arrays and sources and launches kernels through a `Lowering`; it knows no op. Which strategy computes an op is
decided by the op's lowering, and inside a family by extents and strides alone, so that every choice gives the same bits; only
Winograd's convolutions and pairs of bfloat16 have others, and are chosen by attributes of the graph.

On top lies what all strategies share. Read `lowering.py` (arrays and launches), `source.py` (values at coordinates),
`schedule.py` (what may be tuned), `pointwise.py` (the simplest strategy; `transposing_copy.py` where operands lie across),
then a
folder: `contraction`, `convolution`, `reduction`, `attention`, `recurrent`, `indexing`. `axes.py` and `machine.py` are small
tools, and `numerics.py` holds the constants that decide bits. tests/test_floors.py says which folder may import which.

Words that mean the same thing in every file:

- A *piece* is the unit of work that threads share: `k.split(n)` makes a kernel of n pieces, which run in any order and on any
  thread, so no piece reads what another one writes.
- A *vector* is LANES (16) numbers. A *tile* is the block of results that a piece keeps in registers; a *panel* is a block of
  columns of an operand, packed one after another.
- *Packed* operands are copied into the shape that a tile reads; otherwise they are read *where they lie*, which is `direct`.
- A *chunk* is a part of a sum that is computed from zero; chunks are added in order. Where they lie is part of the contract on
  bits; pieces, tiles and panels are not.
- `stream`: stores go past the caches, where results are larger than these. `count`: how many lanes of a vector exist (None:
  all).

The modules are attributes of this package, imported when they are first named: a process whose programs are in the cache needs
few of them, and starts sooner. The definitions of ops say ``kernels.reduction.scan.scan(...)`` for that reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels import attention, contraction, convolution, indexing, pointwise, recurrent, reduction  # noqa: F401

__getattr__ = modules_of(__name__)
