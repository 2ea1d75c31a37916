"""Many elements become one: sums, products, extrema and their positions, running sums, windows.

Read `folding.py` (the order of every sum, part of the contract on bits; and folds across rows, `Columns`),
`fold_along_rows.py` (folds with vectors along the row), then `reduce.py` (the entry: how rows are shared among pieces).

- `reduce.py`: reductions that nothing is fused with; `arg.py` is such a fold whose state remembers a position.
- `rows.py`: what is computed of a row and of its reductions together, as softmax: one kernel.
- `scan.py`: running sums and the like, in order along the axis.
- `windows.py`: pooling: folds over the windows of an image, and their gradients.

In all but scans, vectors run along rows where these are dense in memory, and across rows where neighbouring rows are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.reduction import arg, fold_along_rows, folding, reduce, rows, scan, windows  # noqa: F401

__getattr__ = modules_of(__name__)
