"""`torch.nn.utils`: gradients clipped, parameters as one vector, weight norms, sequences of several lengths."""

from __future__ import annotations

from tengen.module.utils import (
    parameters_to_vector,
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    vector_to_parameters,
    weight_norm,
)
from tengen.optimizer import clip_grad_norm_, clip_grad_value_
from tengen.pytorch.nn.utils import parametrizations, parametrize, prune, rnn

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn",
    "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
