"""AdaRound: whether each weight is rounded up or down is learnt, layer by layer, so that the layer's result changes least.

Source: Nagel et al., "Up or down? Adaptive rounding for post-training quantization", 2020.
"""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.autodiff import GradManager
from tengen.jit import trace
from tengen.optimizer import Adam
from tengen.quantization.layers import Layer
from tengen.tensor import Parameter, Tensor

LOW, HIGH = -0.1, 1.1  # between which the sigmoid is stretched, so that it reaches 0 and 1
REGULAR, FIRST_POWER, LAST_POWER = (
    0.01,
    20.0,
    2.0,
)  # weight of what pushes to 0 and 1, and its power at the beginning and the end
WARM = 0.2  # the share of steps before that begins


def learn_rounding(layer: Layer, x: np.ndarray, steps: int = 200, lr: float = 1e-2) -> None:
    """Gives a calibrated layer integers that bring its result nearest to float32's, on an input.

    Args: x: the input in float32. steps, lr: of Adam. Where what was learnt is no better than the nearest integers, those stay.
    """
    layer.rounded = None
    nearest, scale = layer.codes()
    wide = layer.weight_scale()
    given = Tensor(x)
    want, rounded_input = layer.product(given, Tensor(layer.weight)), layer.rounded_input(given)
    down = np.floor(layer.weight / wide)
    rest = np.clip(layer.weight / wide - down, 0.001, 0.999)
    v = Parameter((-np.log((HIGH - LOW) / (rest - LOW) - 1)).astype(np.float32))
    base, unit = Tensor(down.astype(np.float32)), Tensor(wide)
    gm, opt = GradManager().attach([v]), Adam([v], lr=lr)
    share = lambda: F.clip(F.sigmoid(v) * (HIGH - LOW) + LOW, 0.0, 1.0)
    results = float(want.size // max(1, layer.outputs(want.shape)))  # elements of a channel of the result

    @trace
    def step(power: Tensor, weight: Tensor) -> Tensor:
        with gm:
            h = share()
            error = ((layer.product(rounded_input, (base + h) * unit) - want) ** 2).sum() / results
            loss = error + weight * (1 - F.abs(2 * h - 1) ** power).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return error

    for i in range(steps):
        begun = max(0.0, (i / steps - WARM) / (1 - WARM))
        power = FIRST_POWER + (LAST_POWER - FIRST_POWER) * begun
        step(Tensor(np.float32(power)), Tensor(np.float32(REGULAR if begun else 0.0)))
    learnt = np.clip(down + (share().numpy() >= 0.5), -127, 127).astype(np.int8)
    error = lambda q: float(((layer.product(rounded_input, Tensor(q * wide)) - want) ** 2).sum().item())
    if error(learnt) < error(nearest):
        layer.rounded = learnt
