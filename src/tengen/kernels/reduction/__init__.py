"""Reductions: sums, products, extrema and their positions; softmax and norms; scans; pooling.

Read `folding.py` (what a fold is, and the order of every sum, which is part of the contract on bits), `frame.py` (which axes
are reduced, and where vectors run), `fold_along_rows.py` and `columns.py` (the inner loops, with vectors along rows or across
them), then the strategies:

- `reduce.py`: plain reductions, and several of one shape in one kernel; `arg.py` is such a fold whose state has a position.
- `rows.py`: pointwise expressions that contain reductions of their own row, as softmax and norms do, in one kernel.
- `scan.py`: running sums and the like.
- `windows.py`: pooling and its gradients, folds over the windows of an image.

A *row* is what is reduced to one result. In all but scans, vectors run along rows where rows are dense in memory, and across
rows where neighbouring rows are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.reduction import (  # noqa: F401  (loads when it is named)
        arg,
        columns,
        fold_along_rows,
        folding,
        frame,
        reduce,
        rows,
        scan,
        windows,
    )

__getattr__ = modules_of(__name__)
