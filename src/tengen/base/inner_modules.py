"""The modules in which MegEngine keeps what its packages show: ``from megengine.quantization.quantize import quantize_qat``,
``from megengine.autodiff.grad_manager import GradManager``. Here each is a view of the module that has the names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from tengen.base.lazy import PickledByName

VIEWS = {  # a module of ours: the modules inside it, in MegEngine, that show its names
    "amp": "convert_format grad_scaler",
    "autodiff": "grad_manager",
    "data.dataset": (
        "meta_dataset vision vision.cifar vision.cityscapes vision.coco vision.folder vision.imagenet vision.meta_vision vision.mnist "
        "vision.objects365 vision.voc"
    ),
    "data.transform": "meta_transform vision vision.transform vision.functional",
    "distributed": "group launcher",
    "distributions": "exponential",
    "dtr": "dtr",
    "hub": "hub",
    "jit": "dtr_config graph_opt_config partial_tracing sublinear_memory_config tracing",
    "module": (
        "adaptive_pooling batch_matmul_activation batchnorm concat conv_bn conv_transpose_bn deformable_psroi_pooling elemwise embedding "
        "identity linear_bn lrn multiheadattn normalization padding pixel_shuffle pooling quant_dequant sliding_window"
    ),
    "module.qat": "batch_matmul_activation concat conv conv_bn conv_transpose_bn elemwise linear linear_bn quant_dequant",
    "module.quantized": "batch_matmul_activation concat conv conv_bn conv_transpose_bn elemwise linear linear_bn quant_dequant",
    "optimizer": "adadelta adagrad adamw clip_grad lamb multi_step_lr",
    "quantization": "quantize",
    "random": "rng",
}
ELSEWHERE = {"distributed.functional": "tengen.functional.distributed", "version": "tengen"}  # a place of MegEngine's -> the module
ASKED = ("__all__", "__version__")  # of names with underscores those that a view has


class View(PickledByName):
    """A module with the names of another, which is imported when the first of them is asked for.

    Args: name: its own. of: that of the other. shown: what its documentation calls it; default: its name.
    """

    def __init__(self, name: str, of: str, shown: str | None = None):
        super().__init__(name, f"`{shown or name}`: the names of `{of}`.")
        self.__dict__["_of"] = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ASKED:  # what the import system asks of modules
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(self.__dict__["_of"]), name)

    def __dir__(self) -> Iterable[str]:
        return dir(importlib.import_module(self.__dict__["_of"]))


def install() -> None:
    """Makes them importable. They stand in `sys.modules` alone, so an attribute that a package has, such as the function
    `quantization.quantize`, stays what it is."""
    places = {f"{package}.{inner}": f"tengen.{package}" for package, names in VIEWS.items() for inner in names.split()} | ELSEWHERE
    for place, of in places.items():
        sys.modules[f"tengen.{place}"] = View(f"tengen.{place}", of)
