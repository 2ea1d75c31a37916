"""Strategies: how ops become kernels. Everything here writes the kernel language (`loops/`) and nothing else.

A strategy takes arrays and sources and launches kernels through a `Lowering`; it knows no op. Which strategy computes an op is
decided by the op's lowering, and inside a family by extents and strides alone, so that every choice gives the same bits; only
Winograd's convolutions and pairs of bfloat16 have others, and are chosen by attributes of the graph.

In this folder lies what all strategies share. Read `lowering.py` (arrays and launches), `source.py` (values at coordinates),
`schedule.py` (what may be tuned), `pointwise.py` (the simplest strategy; `transposing_copy.py` is for operands that are dense
along another axis than the result, `pixels.py` for few channels that lie beside each other), `fourier.py` (Fourier transforms,
with the tables of `roots.py`), then a folder:
`contraction`, `convolution`, `reduction`, `attention`, `recurrent`, `indexing`. `axes.py` and `machine.py` are small tools;
`numerics.py` holds the constants that decide bits.
tests/test_floors.py says which folder may import which.

Words that mean the same thing in every file:

- A *piece* is a work item: one iteration of a kernel's outermost loop, which is parallel. `k.split(n)` makes a kernel of n
  pieces, which run in any order and on any thread, so no piece reads what another one stores.
- A *vector* is LANES (16) numbers, each in a *lane*. A *tile* is a block of results that a piece keeps in registers; a *panel*
  is a block of columns of an operand, packed one after another.
- A *packed* operand is copied into the order in which tiles read it. If it is not, tiles read it in its own memory, which is
  called `direct`.
- A *chunk* is a part of a sum that is computed from zero; the sums of chunks are added in order. Where chunks begin is part of
  the contract on bits; pieces, tiles and panels are not.
- `stream`: stores go past the caches, because results are larger than these. `count`: how many lanes of a vector exist, from
  lane 0 on (None: all). `several`, `abreast`: instructions of several independent computations are interleaved, so that the
  processor has something to do while one of them waits for its operands.

The modules are attributes of this package, imported when they are first named: a process whose programs are in the cache needs
few of them, and starts sooner. The definitions of ops say ``kernels.reduction.scan.scan(...)`` for that reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels import attention, contraction, convolution, fourier, indexing, pointwise, recurrent, reduction, roots  # noqa: F401  (load when named)

__getattr__ = modules_of(__name__)
