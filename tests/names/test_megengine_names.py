"""Every public name of MegEngine 1.13 and its last sources (`megengine.txt`): it exists here, or stands in `NOT_HERE` with the reason.
The list can only become shorter: a name in it that exists is an error, and so is one that neither exists nor is in it."""

import importlib
import re
from pathlib import Path

import pytest

import tengen

PLANNED = "planned, issue 16"
KERNELS = "needs kernels of its own: planned, issue 16"
COMPLEX = "complex numbers and linear algebra: planned, issue 16"
QUANTISED = "quantisation is an issue of its own"
SEVERAL = "needs several processes: an issue of its own"
INTERNAL = "MegEngine's own insides or tools, not for programs"
HARDWARE = "for hardware or a compiler that Tengen has no programs for"
SETTING = "a setting of MegEngine's runtime"
AUGMENT = "augmentation of images on the device: planned, issue 16"

# namespace, or namespace: names -> why
NOT_HERE = {
    "megengine: async_level benchmark_kernel benchmark_with_subprocess deterministic_kernel disable_memory_forwarding": (
        f"{SETTING}: every run is synchronous, deterministic and planned"
    ),
    "megengine: check_misc": INTERNAL,
    "megengine: get_max_reserved_memory": "the pool counts the most that tensors held, not the most that it kept",
    "megengine: quantization": QUANTISED,
    "megengine: traced_module": "an issue of its own",
    "device: get_max_reserved_memory": "the pool counts the most that tensors held, not the most that it kept",
    "functional: complex imag matinv polar real svd": COMPLEX,
    "functional.math: matinv svd": COMPLEX,
    "functional.tensor: complex imag polar real": COMPLEX,
    "functional: deformable_conv2d deformable_psroi_pooling local_conv2d region_restricted_conv remap vision warp_affine "
    "warp_perspective": KERNELS,
    "functional.nn: deformable_conv2d deformable_psroi_pooling local_conv2d region_restricted_conv remap warp_affine "
    "warp_perspective": KERNELS,
    "functional: multi_head_attention": "its packed weights are cuDNN's; module.MultiHeadAttention and scaled_dot_product_attention are here",
    "functional.nn: multi_head_attention": "its packed weights are cuDNN's; module.MultiHeadAttention is here",
    "functional.loss: ctc_loss": KERNELS,
    "functional.vision": KERNELS,
    "functional.quantized": QUANTISED,
    "functional.external": HARDWARE,
    "functional.debug_param": f"{SETTING}: kernels are chosen by rules, and `tengen.tune` measures",
    "functional.einsum": INTERNAL,
    "module: DeformableConv2d DeformablePSROIPooling LocalConv2d RegionRestrictedConv": KERNELS,
    "module: ActiveBlur AdditiveElemwise AdditiveGaussianNoise AdditiveLaplaceNoise AdditivePoissonNoise CropAndPad Cutmix Dilation Emboss "
    "FillPoly Flip GaussianBlur LinearContrast Mixup Remap Resize Rot90 Rotate Sharpen": AUGMENT,
    "module.qat": QUANTISED,
    "module.quantized": QUANTISED,
    "module.Module: disable_quantize": QUANTISED,
    "data.transform: CudaTransform": HARDWARE,
    "data.transform: ColorJitter GaussianNoise HueTransform Lighting RandomResize SaturationTransform ShortestEdgeResize "
    "TorchTransformCompose": PLANNED,
    "data.dataset: CIFAR10 CIFAR100 COCO Cityscapes ImageFolder ImageNet MNIST Objects365 PascalVOC VisionDataset": PLANNED,
    "jit: xla_trace": HARDWARE,
    "quantization": QUANTISED,
    "traced_module": "an issue of its own",
    "distributed: Client Server get_client get_mm_server_addr get_py_server_addr group": SEVERAL,
    "utils.module_stats: disable_receptive_field enable_receptive_field hook_modules preprocess_receptive_field register_hook_module "
    "register_receptive_field": "a receptive field by MegEngine's rules is right for a chain of convolutions alone",
    "utils.network": "surgery on MegEngine's model files: an issue of its own",
    "utils.tensorboard": INTERNAL,
    "utils.comp_graph_tools": INTERNAL,
    "utils.hook": INTERNAL,
    "utils.deprecation": INTERNAL,
    "tools.network_visualize": INTERNAL,
    "tools.draw_graph": INTERNAL,
    "tools.load_network_and_run": INTERNAL,
    "random.rng": "its names stand in `random`",
    "core.tensor.dtype": QUANTISED,
    "xla": HARDWARE,
    "experimental": HARDWARE,
    "amp: Xla_GradScaler": HARDWARE,
    "logger: MegBrainLogFormatter call_countlog_func replace_mgb_log_level set_mgb_log_level": (
        "of the log that MegEngine's native library writes; here TENGEN_DEBUG prints"
    ),
    "serialization: dmap": "maps names of devices in a file; files here name none",
    "Tensor: dmap_callback": "maps names of devices in a file; files here name none",
    "Tensor: qparams": QUANTISED,
    "Tensor: format name requires_grad reset_zero set_value": PLANNED,
    "Tensor: __array_wrap__ __ceil__ __complex__ __contains__ __floor__ __pos__ __trunc__": PLANNED,
}  # fmt: skip


def names() -> dict[str, set[str]]:
    """MegEngine's names by namespace."""
    text = (Path(__file__).parent / "megengine.txt").read_text()
    return {ns: set(words.split()) for ns, words in re.findall(r"^([\w.]+):\n((?: +.*\n)+)", text, re.MULTILINE)}


def namespace(name: str):
    """The module or class of a namespace; None where there is none."""
    if name == "megengine":
        return tengen
    try:
        return importlib.import_module(f"tengen.{name}")
    except ModuleNotFoundError:
        value = tengen
        for part in name.split("."):
            value = getattr(value, part, None)
        return value


def excused() -> dict[str, set[str]]:
    """The names of `NOT_HERE` by namespace; of a whole namespace all of its names."""
    found: dict[str, set[str]] = {}
    for key in NOT_HERE:
        ns, _, some = key.partition(":")
        found.setdefault(ns, set()).update(some.split() or NAMES[ns])
    return found


NAMES = names()


@pytest.mark.parametrize("ns", NAMES)
def test_every_name_is_here_or_excused(ns):
    home, not_here = namespace(ns), excused().get(ns, set())
    here = {n for n in NAMES[ns] if home is not None and hasattr(home, n)}
    if ns not in NOT_HERE:
        assert home is not None, f"there is no tengen.{ns}"
        assert NAMES[ns] - here == not_here, "what is not here is not what NOT_HERE says"
    else:
        assert not here or ns == "functional.einsum", f"tengen.{ns} has {sorted(here)}: name in NOT_HERE what it lacks"


def test_the_list_names_what_megengine_has():
    for ns, some in excused().items():
        assert some and not (stray := some - NAMES[ns]), f"{ns}: MegEngine has no {stray}"


def test_the_count_grows():
    """How many of MegEngine's names exist here: raise it with each change that adds some."""
    here = sum(hasattr(home, n) for ns, some in NAMES.items() if (home := namespace(ns)) is not None for n in some)
    assert here >= 520, here
