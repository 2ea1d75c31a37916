"""`torch.nn.modules`: the files that PyTorch's layers stand in, for programs that name them."""

from __future__ import annotations

import sys
from typing import Any

from tengen.base.lazy import NoSuchName
from tengen.pytorch.nn.modules import batchnorm, module, utils
from tengen.pytorch.nn.modules.module import Module


def __getattr__(name: str) -> Any:
    layers = sys.modules["tengen.pytorch.nn"]
    if name in layers.__all__:
        return getattr(layers, name)
    raise NoSuchName("tengen.pytorch.nn.modules", name, lambda: layers.__all__)


__all__ = ["Module", "batchnorm", "module", "utils"]
