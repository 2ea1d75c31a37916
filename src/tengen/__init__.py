"""Tengen: a deep-learning framework in pure Python; the kernels that trained a model are the ones you ship, bit for bit.

What most programs use at once is imported here; the rest when it is first named, so that `import tengen` stays quick.
"""

import importlib
import sys
from typing import TYPE_CHECKING

if sys.platform != "linux":  # its kernels are ELF objects, its threads glibc's or musl's
    raise ImportError(f"Tengen runs on Linux, and this is {sys.platform}; help: a Linux container, or WSL 2 on Windows")
if sys.version_info < (3, 11) or sys.implementation.name != "cpython":  # from a checkout any Python imports this
    raise ImportError(f"Tengen needs CPython 3.11 or newer, and this is {sys.implementation.name} {sys.version.split()[0]}")

from tengen.base import inner_modules, tracebacks
from tengen.base.lazy import NoSuchName, computes_nothing
from tengen.base.version import VERSION as __version__

if not computes_nothing():  # what starts other processes, or prints words, would wait for this
    from tengen.tensor import (
        Parameter,
        Tensor,
        methods,  # noqa: F401  (operators and methods of Tensor)
    )
    from tengen.tensor.dlpack import from_dlpack

    tensor = Tensor

if TYPE_CHECKING:
    from tengen import (
        amp,
        array_api,
        autodiff,
        backends,
        custom_ops,
        data,
        debug,
        deploy,
        device,
        distributed,
        distributions,
        dtr,
        fft,
        functional,
        hub,
        interop,
        jit,
        linalg,
        logger,
        memory,
        models,
        module,
        optimizer,
        quantization,
        random,
        serialization,
        serving,
        traced_module,
        utils,
    )
    from tengen.base.config import config
    from tengen.deploy import load_graph
    from tengen.deploy.checkpoint import load, save
    from tengen.deploy.graphs import Graph
    from tengen.deploy.predictor import Predictor
    from tengen.device import (
        coalesce_free_memory,
        get_allocated_memory,
        get_cuda_compute_capability,
        get_cuda_device_property,
        get_cuda_driver_version,
        get_cuda_version,
        get_cudnn_version,
        get_default_device,
        get_device_count,
        get_max_allocated_memory,
        get_max_reserved_memory,
        get_mem_status_bytes,
        get_reserved_memory,
        get_tensorrt_version,
        is_atlas_available,
        is_cambricon_available,
        is_cuda_available,
        is_rocm_available,
        reset_max_memory_stats,
        set_default_device,
        set_prealloc_config,
    )
    from tengen.jit import script as script  # type: ignore[no-redef]  # mypy sees a folder of that name, too
    from tengen.jit import trace  # type: ignore[no-redef]  # mypy sees a module of that name, too
    from tengen.logger import enable_debug_log, get_logger, set_log_file, set_log_level
    from tengen.profiling.profiler import profile
    from tengen.runtime.process import set_threads
    from tengen.runtime.report import show_config
    from tengen.serialization import load_checkpoint, save_checkpoint
    from tengen.tuning.tuner import tune
    from tengen.utils.summary import summary

_SUBMODULES = (
    "amp", "array_api", "autodiff", "backends", "custom_ops", "data", "debug", "deploy", "device", "distributed", "distributions", "dtr",
    "fft", "functional", "hub", "interop", "jit", "linalg", "logger", "memory", "models", "module", "optimizer", "random", "serialization",
    "serving", "quantization", "traced_module", "utils",
)  # fmt: skip
_OF_MODULES = {  # module -> the names of it that stand here too
    "tengen.base.config": "config",
    "tengen.deploy": "load_graph",
    "tengen.deploy.checkpoint": "load save",
    "tengen.deploy.graphs": "Graph",
    "tengen.deploy.predictor": "Predictor",
    "tengen.device": (
        "coalesce_free_memory get_allocated_memory get_cuda_compute_capability get_cuda_device_property get_cuda_driver_version "
        "get_cuda_version get_cudnn_version get_default_device get_device_count get_max_allocated_memory "
        "get_max_reserved_memory get_mem_status_bytes get_reserved_memory get_tensorrt_version is_atlas_available is_cambricon_available "
        "is_cuda_available is_rocm_available reset_max_memory_stats set_default_device set_prealloc_config"
    ),
    "tengen.jit": "script trace",
    "tengen.logger": "enable_debug_log get_logger set_log_file set_log_level",
    "tengen.profiling.profiler": "profile",
    "tengen.runtime.native": "set_threads",
    "tengen.runtime.report": "show_config",
    "tengen.serialization": "load_checkpoint save_checkpoint",
    "tengen.tuning.tuner": "tune",
    "tengen.utils.summary": "summary",
}
# name -> the module that it is, or that defines it
_LATER = {name: f"tengen.{name}" for name in _SUBMODULES}
_LATER |= {name: module for module, names in _OF_MODULES.items() for name in names.split()}


def __getattr__(name: str):
    if name not in _LATER:
        raise NoSuchName("tengen", name, __dir__)
    found = importlib.import_module(_LATER[name])
    value = found if found.__name__ == f"tengen.{name}" else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER})


tracebacks.install()
inner_modules.install()


__all__ = [
    "__version__", "Graph", "Parameter", "Predictor", "Tensor", "from_dlpack", "tensor",
    "amp", "array_api", "autodiff", "backends", "custom_ops", "data", "debug", "deploy", "device", "distributed", "distributions", "dtr",
    "fft", "functional", "hub", "interop", "jit", "linalg", "logger", "memory", "models", "module", "optimizer", "random", "serialization",
    "serving", "quantization", "traced_module", "utils",
    "coalesce_free_memory", "config", "enable_debug_log", "get_allocated_memory", "get_cuda_compute_capability",
    "get_cuda_device_property", "get_cuda_driver_version", "get_cuda_version", "get_cudnn_version", "get_default_device",
    "get_device_count", "get_logger", "get_max_allocated_memory", "get_max_reserved_memory", "get_mem_status_bytes",
    "get_reserved_memory", "get_tensorrt_version", "is_atlas_available", "is_cambricon_available", "is_cuda_available",
    "is_rocm_available", "load", "load_checkpoint", "load_graph",
    "profile", "reset_max_memory_stats", "save", "save_checkpoint", "set_default_device", "set_log_file", "set_log_level",
    "set_prealloc_config", "set_threads", "show_config", "summary", "trace", "tune",
]  # fmt: skip
