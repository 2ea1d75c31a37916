"""`Parameter`: a tensor that is trained."""

from __future__ import annotations

from tengen.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that modules list among their parameters and optimizers update.

    >>> Parameter([1.0]).shape
    (1,)
    """

    def __init__(self, data=None, dtype=None, device=None, name: str | None = None):
        super().__init__(data, dtype, device)
        self.name = name
