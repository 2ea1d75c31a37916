"""Activations and other modules without parameters to speak of."""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.module.module import Module
from tengen.module.settings import PARAMETERS, Configured, InPlace, also, counts, one_of
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor


class ReLU(InPlace):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["relu"](x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["sigmoid"](x)


class SiLU(InPlace):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["silu"](x)


class GELU(Configured):
    """x Phi(x). Args: approximate: "none", the exact error function, or "tanh" (Hendrycks and Gimpel, arXiv 1606.08415)."""

    has_parameters = False
    _checked = {"approximate": one_of("approximate", "none", "tanh")}

    def __init__(self, approximate: str = "none", **kwargs):
        super().__init__(**kwargs)
        self.approximate = approximate

    def _module_info_string(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["gelu"](x, self.approximate)


class LeakyReLU(InPlace):
    """x where it is positive, negative_slope x elsewhere."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["leaky_relu"](x, self.negative_slope)


class PReLU(Configured):
    """Leaky ReLU with a trained slope, one for all channels or one each. Parameter: weight (1,) or (1, C, 1, 1)."""

    _fixed = ("num_parameters", "init")
    _checked = PARAMETERS | counts("num_parameters")

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **kwargs):
        super().__init__(**kwargs)
        self.num_parameters, self.init = num_parameters, init
        shape = (1,) if num_parameters == 1 else (1, num_parameters, 1, 1)
        self.weight = Parameter(np.full(shape, init, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["prelu"](x, self.weight)


class Softmax(Module):
    """softmax along `axis`; by default axis 1 (axis 0 of inputs of one axis or three), as in MegEngine and PyTorch (`functional.softmax`)."""

    @also(dim="axis")
    def __init__(self, axis: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """The axes from `start_axis` to `end_axis` (included) as one: what stands between a convolution and a Linear."""

    @also(start_dim="start_axis", end_dim="end_axis")
    def __init__(self, start_axis: int = 1, end_axis: int = -1, **kwargs):
        super().__init__(**kwargs)
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        return F.flatten(x, self.start_axis, self.end_axis)

    def _module_info_string(self) -> str:
        return f"start_axis={self.start_axis}, end_axis={self.end_axis}"


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["tanh"](x)


class Hardswish(InPlace):
    """x relu6(x + 3) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["hswish"](x)


class Hardsigmoid(InPlace):
    """relu6(x + 3) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["hsigmoid"](x)


class ReLU6(InPlace):
    """min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["relu6"](x)


class Mish(InPlace):
    """x tanh(log(1 + exp(x))) (Misra, arXiv 1908.08681)."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["mish"](x)


class SELU(InPlace):
    """Scaled exponential linear units (Klambauer et al., arXiv 1706.02515)."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["selu"](x)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta. Args: beta, threshold: as of `functional.softplus`; by default nothing is cut off."""

    def __init__(self, beta: float = 1.0, threshold: float | None = None, **kwargs):
        super().__init__(**kwargs)
        self.beta, self.threshold = beta, threshold

    def _module_info_string(self) -> str:
        return "" if self.beta == 1 and self.threshold is None else f"beta={self.beta}, threshold={self.threshold}"

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["logsigmoid"](x)


class ELU(InPlace):
    """x where it is positive, alpha (exp(x) - 1) elsewhere (Clevert et al., arXiv 1511.07289)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["elu"](x, self.alpha)


class LogSoftmax(Module):
    """log(softmax(x)) along `axis`; by default as `Softmax`."""

    @also(dim="axis")
    def __init__(self, axis: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.logsoftmax(x, self.axis)


class GLU(Module):
    """a sigmoid(b), where a and b are the halves of x along `axis`."""

    @also(dim="axis")
    def __init__(self, axis: int = -1, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)
