"""Computed coordinates, and sorting. Read in this order:

- `gather.py`: sources that read at computed coordinates (also padding, one-hot, binary search), and joining.
- `scatter.py`: stores at computed coordinates, in logical order whatever the number of threads.
- `taps.py`: weighted sums of elements at computed coordinates (interpolation, warping), and their gradients.
- `tap_pixels.py`: kernels of these sums for pixels of few channels. `samples.py`: sums whose places are computed from coordinates.
- `windows.py`: weighted sums of windows of a picture that changes its size. `window_kernels.py`: kernels of these for pixels of few channels.
- `suppress.py`: non-maximum suppression of boxes.
- `sort.py`: sorting along an axis, and the first k elements of the sorted order.
- `radix.py`: long rows, sorted digit by digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.indexing import gather, radix, samples, scatter, sort, suppress, taps, window_kernels, windows  # noqa: F401  (loads when it is named)

__getattr__ = modules_of(__name__)
