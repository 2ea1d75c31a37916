"""`torch.backends`: true answers about back ends that are not here, and switches that change nothing here."""

from __future__ import annotations


class _Backend:
    """A back end of PyTorch's. `deterministic`, `benchmark`, `enabled` and the like may be set; Tengen's results have the same bits anyway."""

    def __init__(self, available: bool = False):
        self._available = available
        self.deterministic, self.benchmark, self.enabled, self.allow_tf32 = True, False, available, False

    def is_available(self) -> bool:
        """Whether it computes here: False of all that are not Tengen's."""
        return self._available

    def is_built(self) -> bool:
        """As `is_available`."""
        return self._available


cudnn, mps, mkldnn, mkl, openmp = _Backend(), _Backend(), _Backend(), _Backend(), _Backend()
cuda = _Backend()
cuda.matmul = _Backend()  # for torch.backends.cuda.matmul.allow_tf32

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
