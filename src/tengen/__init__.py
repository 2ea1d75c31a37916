"""Tengen: a deep-learning framework in pure Python; the kernels that trained a model are the ones you ship, bit for bit.

What most programs use at once is imported here; the rest when it is first named, so that `import tengen` stays quick.
"""

import importlib
import sys
from typing import TYPE_CHECKING

if sys.platform != "linux":  # its kernels are ELF objects, its threads glibc's or musl's
    raise ImportError(f"Tengen runs on Linux, on x86-64 and AArch64; this is {sys.platform}; help: a Linux container, or WSL 2 on Windows")

from tengen.base import tracebacks
from tengen.base.version import VERSION as __version__
from tengen.tensor import (
    Parameter,
    Tensor,
    methods,  # noqa: F401  (operators and methods of Tensor)
)
from tengen.tensor.dlpack import from_dlpack

if TYPE_CHECKING:
    from tengen import amp, autodiff, data, deploy, device, distributions, functional, jit, models, module, optimizer, random
    from tengen.base.config import config
    from tengen.deploy import load_graph
    from tengen.deploy.checkpoint import load, save
    from tengen.device import get_default_device, get_device_count, is_cuda_available, set_default_device
    from tengen.jit import trace  # type: ignore[no-redef]
    from tengen.profiling.profiler import profile
    from tengen.runtime.process import set_threads
    from tengen.runtime.report import show_config
    from tengen.tuning.tuner import tune

tensor = Tensor

# name -> the module that it is, or that defines it
_LATER = {
    "amp": "tengen.amp", "autodiff": "tengen.autodiff", "config": "tengen.base.config", "data": "tengen.data",
    "deploy": "tengen.deploy", "device": "tengen.device", "distributions": "tengen.distributions",
    "functional": "tengen.functional",
    "get_default_device": "tengen.device", "get_device_count": "tengen.device", "is_cuda_available": "tengen.device", "jit": "tengen.jit",
    "models": "tengen.models", "module": "tengen.module", "optimizer": "tengen.optimizer", "random": "tengen.random",
    "load": "tengen.deploy.checkpoint", "load_graph": "tengen.deploy", "profile": "tengen.profiling.profiler",
    "save": "tengen.deploy.checkpoint", "set_default_device": "tengen.device",
    "set_threads": "tengen.runtime.native", "show_config": "tengen.runtime.report", "trace": "tengen.jit", "tune": "tengen.tuning.tuner",
}  # fmt: skip


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module 'tengen' has no attribute {name!r}")
    found = importlib.import_module(_LATER[name])
    value = found if found.__name__ == f"tengen.{name}" else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER})


tracebacks.install()


__all__ = [
    "__version__", "Parameter", "Tensor", "amp", "autodiff", "config", "data", "deploy", "device", "distributions", "from_dlpack",
    "functional",
    "get_default_device", "get_device_count", "is_cuda_available", "jit", "load", "load_graph", "models", "module", "optimizer",
    "profile", "random", "save", "set_default_device", "show_config", "set_threads", "tensor", "trace", "tune",
]  # fmt: skip
