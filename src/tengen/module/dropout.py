"""Modules that zero elements, or whole channels, at random while training."""

from __future__ import annotations

from tengen import functional as F
from tengen.module.module import Module
from tengen.module.settings import also
from tengen.tensor import Tensor


class Dropout(Module):
    """Zeroes elements at random while training. See `functional.dropout`.

    Errors: ValueError for what is no probability
    """

    @also(p="drop_prob")
    def __init__(self, drop_prob: float = 0.0, inplace: bool = False, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= drop_prob <= 1:
            raise ValueError(f"{type(self).__name__}: drop_prob={drop_prob!r} is not a probability; help: a number from 0 to 1")
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.drop_prob, self.training)

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"


class _ChannelDropout(Dropout):
    axes: int

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.ndim > self.axes:
            raise ValueError(f"{type(self).__name__} takes (N, C, ...) of at most {self.axes} axes, got shape {x.shape}")
        if not self.training or self.drop_prob == 0:
            return x
        return x * F.dropout(F.ones((*x.shape[:2], *(1 for _ in x.shape[2:])), dtype=x.dtype), self.drop_prob)


class Dropout1d(_ChannelDropout):
    """Zeroes whole channels of (N, C, L) at random while training. See `Dropout2d`."""

    axes = 3


class Dropout2d(_ChannelDropout):
    """Zeroes whole channels of (N, C, H, W) at random while training (Tompson et al., arXiv 1411.4280)."""

    axes = 4


class Dropout3d(_ChannelDropout):
    """Zeroes whole channels of (N, C, D, H, W) at random while training. See `Dropout2d`."""

    axes = 5


class AlphaDropout(Dropout):
    """Dropout for `SELU`. See `functional.alpha_dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.alpha_dropout(x, self.drop_prob, self.training)
