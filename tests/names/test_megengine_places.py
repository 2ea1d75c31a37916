"""MegEngine's places of names, which are views of ours."""

import importlib
import subprocess
import sys

from each import each

import tengen
from tengen.base.inner_modules import ELSEWHERE, VIEWS

PLACES = {
    "amp.grad_scaler": "GradScaler", "autodiff.grad_manager": "GradManager", "data.dataset.meta_dataset": "Dataset",
    "data.dataset.vision.mnist": "MNIST", "distributions.exponential": "Exponential",
    "data.transform.vision.transform": "RandomCrop", "distributed.functional": "all_reduce_sum",
    "distributed.group": "WORLD", "distributed.launcher": "launcher", "hub.hub": "load", "jit.tracing": "exclude_from_trace",
    "module.batchnorm": "BatchNorm2d", "module.identity": "Identity", "module.qat.conv_bn": "ConvBn2d",
    "module.quantized.linear": "Linear", "optimizer.clip_grad": "clip_grad_norm", "quantization.quantize": "quantize_qat",
    "random.rng": "RNG", "version": "__version__",
}  # fmt: skip


@each("place", PLACES)
def test_names_are_those_of_the_package(place):
    name = PLACES[place]
    found = {}
    exec(f"from tengen.{place} import {name}", found)
    home = importlib.import_module(ELSEWHERE.get(place, f"tengen.{place.rpartition('.')[0]}"))
    assert found[name] is getattr(home, name)


def test_the_package_keeps_its_function_and_everything_can_be_imported():
    import tengen.quantization.quantize as function

    assert function is tengen.quantization.quantize and callable(function)
    scope = {}
    exec("from tengen.module.batchnorm import *", scope)
    assert scope["BatchNorm2d"] is tengen.module.BatchNorm2d and "BatchNorm2d" in dir(sys.modules["tengen.module.batchnorm"])
    for package, names in VIEWS.items():
        for name in names.split():
            assert dir(importlib.import_module(f"tengen.{package}.{name}"))


def test_a_view_is_there_before_its_package():
    text = "from tengen.quantization.quantize import quantize_qat as q; import tengen.quantization as Q; assert q is Q.quantize_qat"
    subprocess.run([sys.executable, "-c", text], check=True)
