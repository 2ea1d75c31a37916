"""`torch.nn.utils`: gradients clipped, parameters as one vector, weight norms, sequences of several lengths."""

from __future__ import annotations

from typing import Any

from tengen.module.utils import (
    parameters_to_vector,
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    vector_to_parameters,
    weight_norm,
)
from tengen.pytorch.nn.utils import clip_grad, fusion, parametrizations, parametrize, prune, rnn
from tengen.pytorch.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from tengen.pytorch.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """The module of a class, whose first values are as those of any other: here no tensor has values that nobody gave."""
    return module_cls(*args, **kwargs)


__all__ = [
    "clip_grad", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval", "fuse_conv_bn_weights",
    "fuse_linear_bn_eval", "fuse_linear_bn_weights", "fusion", "get_total_norm", "skip_init",
    "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn",
    "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
