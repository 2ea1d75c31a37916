"""`torch.backends`: true answers about back ends that are not here, and switches that change nothing here."""

from tengen.pytorch.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
