"""Convolutions that are more than a contraction over windows, and their gradients. Images are (N, C, H, W), of any layout.

The lowerings of `conv` and its gradients take the first that fits (`ops/conv_strategies.py` has the lists):

- `winograd.py`: 3x3 filters with stride 1, where the graph's node says so (`winograd.pays` decides when it is recorded): fewer
  multiplications, other bits; of constant filters of integers of 8 bits by rule (`winograd.pays_in_integers`), with the same bits.
  `winograd_filter.py` transforms the filter; `winograd_weights.py` is its gradient, `winograd_transforms.py` the arithmetic of all,
  and `winograd_sizes.py` says how many tiles go together.
- `depthwise.py`: one filter for each channel: channels in the lanes. `depthwise_bytes.py`: of integers of 8 bits, rows of the filter at once.
- `few_outputs.py`: few channels of results: pixels in the lanes.
- `few_channels.py`: few channels of the image: windows are read from a strip of it in scratch memory. Also the filter's
  gradient (`few_channels_weights.py`), and the image's with strides (`few_channels_transposed.py`).
- else `contraction.contract` over windows of the image; `halo.py` makes a channels-last image for it, or one with zeros around.

Read `depthwise.py` first: it is the smallest complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.convolution import (  # noqa: F401  (loads when it is named)
        depthwise,
        depthwise_bytes,
        few_channels,
        few_channels_groups,
        few_channels_transposed,
        few_channels_weights,
        few_outputs,
        halo,
        winograd,
        winograd_filter,
        winograd_sizes,
        winograd_transforms,
        winograd_weights,
    )

__getattr__ = modules_of(__name__)
