"""`torch.nn.modules.batchnorm`: the class that all batch norms are of."""

from tengen import module as M
from tengen.pytorch.nn.norms import BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm

_BatchNorm = M.BatchNorm1d.__bases__[0]
_NormBase = _BatchNorm

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "_BatchNorm", "_NormBase"]
