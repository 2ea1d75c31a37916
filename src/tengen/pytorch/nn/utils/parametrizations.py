"""`torch.nn.utils.parametrizations`: `weight_norm` and `spectral_norm` under their newer names.

In state dicts the parts have the names of the older ones: `weight_g` and `weight_v`, not `parametrizations.weight.original0`.
"""

from tengen.module.utils import spectral_norm, weight_norm

__all__ = ["spectral_norm", "weight_norm"]
