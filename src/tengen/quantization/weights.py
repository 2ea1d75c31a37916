"""Weights of linear layers and embeddings as integers of 8, 4 or 2 bits, in groups: rounded to the nearest, or by GPTQ or AWQ
against data.

For networks whose time is that of reading weights: they take a quarter of the bytes, an eighth, or a sixteenth. Activations stay float32
between layers; products may take them as integers of 8 bits.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.jit import trace
from tengen.kernels.contraction.grouped_weights import fits
from tengen.module.linear import Embedding, Linear
from tengen.module.module import Module
from tengen.module.quantized.weights import LIMITS, GroupedWeight, WeightOnlyEmbedding, WeightOnlyLinear
from tengen.ops.grouped_weights import ACTIVATIONS
from tengen.quantization.convert import check_module, replace_modules
from tengen.quantization.dtypes import QuantizationError
from tengen.quantization.modes import evaluating
from tengen.tensor import Tensor

METHODS = ("rtn", "gptq", "awq")
SCALES = ("float32", "float16")
LEAST_FLOAT16, MOST_FLOAT16 = 2.0**-24, 65504  # the least above zero, and the largest
POWERS = np.linspace(0, 1, 21)  # that AWQ tries; 0 leaves weights as they are
SHARES = {8: (1.0,), 4: (1.0,), 2: tuple(np.linspace(1, 1 / 3, 17))}  # of the largest magnitude, that the largest integer may stand for
DAMPING = 0.01  # of GPTQ: this share of the mean of the diagonal is added to it


def quantize_weights(
    model: Module, bits: int = 8, group: int = 64, method: str = "rtn", data: Any = None, inplace: bool = True,
    activations: str = "float32", scales: str = "float32",
) -> Module:  # fmt: skip
    """Puts layers with integer weights in the place of `Linear` and `Embedding`.

    Args:
        model: the network, of PyTorch's dialect too. Layers that compute in their own way stay (an embedding with `max_norm`), and those after
            `disable_quantize()`.
        bits: 8, 4 or 2 (which is little: see docs/quantization.md). group: input features that share a scale: 32, 64 or 128, or another
            even number.
        method: "rtn" rounds to the nearest; "gptq" rounds linear layers feature by feature, and makes up for each error by the
            features behind it (Frantar et al., "GPTQ", 2023); "awq" multiplies weights of features that are large in the data, and
            divides the features, so that these weights have smaller errors (Lin et al., "AWQ", 2023). data: for both, inputs of the
            network, a batch each.
        inplace: change the network; else a copy.
        activations: what linear layers multiply. "int8": each group of each input row is rounded to integers of 8 bits when a layer runs, and
            products are exact integers, with an error about as large as that of weights of 8 bits: faster for many rows, and for one
            row too (`docs/quantization.md` has figures). The group is then 16, 32, 64, 128 or 256. "float32": inputs as they
            are.
        scales: the dtype of the scales. "float16": half of their bytes, which are a fifth of all with 4 bits and groups of 32; a scale is
            rounded before its integers are chosen, to 11 bits where it is at least 2^-14, and to a multiple of 2^-24 below.

    Errors: QuantizationError for other bits, groups, methods, activations and scales, for weights with NaN or inf or too large for scales of
        float16, and for "gptq" and "awq" without data or with data that do not fit; TypeError for what is no module

    >>> from tengen import functional as F, module as M
    >>> from tengen.quantization import quantize_weights
    >>> quantize_weights(M.Linear(64, 8), bits=4)(F.ones((2, 64))).shape
    (2, 8)
    """
    check_module(model)
    for name, value, right, what in (
        ("bits", bits, bits in tuple(LIMITS), f"one of {', '.join(map(str, LIMITS))}"),
        ("group", group, type(group) is int and group >= 2 and group % 2 == 0, "an even number of input features"),
        ("method", method, method in METHODS, f"one of {', '.join(map(repr, METHODS))}"),
        ("activations", activations, activations in ACTIVATIONS, f"one of {', '.join(map(repr, ACTIVATIONS))}"),
        ("group", group, activations == "float32" or fits(group), "16, 32, 64, 128 or 256 where activations are integers"),
        ("scales", scales, scales in SCALES, f"one of {', '.join(map(repr, SCALES))}"),
    ):
        if not right:
            raise QuantizationError(f"{name}={value!r} must be {what}")
    model = model if inplace else _copied(model)
    seen = _second_moments(model, data, method) if method != "rtn" else {}

    def make(m: Module) -> Module | None:
        if not _has_weight(m):
            return m if m.quantize_disabled else None
        if not np.isfinite(m.weight.numpy()).all():
            raise QuantizationError(f"the weight of {m!r} holds NaN or inf")
        if scales == "float16":
            _check_float16(m, np.abs(m.weight.numpy()).max(initial=0) / LIMITS[bits][1])
        moments, factors = seen.get(id(m)), None
        if moments is None:
            codes, scale = nearest(m.weight, bits, group, scales)
        elif method == "awq":
            codes, scale, factors = awq(m.weight.numpy().astype(np.float64), moments, bits, group, scales)
        else:
            codes, scale = gptq(m.weight.numpy().astype(np.float64), moments, bits, group, scales)
        if scales == "float16":
            _check_float16(m, scale.max(initial=0))  # GPTQ moves weights
        weight = GroupedWeight(codes, scale.astype(scales), bits, group, activations)
        made = WeightOnlyLinear(weight, m.bias, factors) if _is_linear(m) else WeightOnlyEmbedding(weight)
        return made.train(m.training)

    return replace_modules(model, make)


def _check_float16(m: Module, largest: float) -> None:
    """QuantizationError where the largest scale of a layer does not fit float16."""
    if not largest <= MOST_FLOAT16:
        raise QuantizationError(f"the weight of {m!r} needs scales above {MOST_FLOAT16}, float16's largest; help: scales='float32'")


def _has_weight(m: Module) -> bool:
    """Whether a module's weight becomes integers."""
    return not m.quantize_disabled and (_is_linear(m) or m._computes_as(Embedding))


def _is_linear(m: Module) -> bool:
    """Whether a module computes what `Linear` does, as that of PyTorch's dialect."""
    return m._computes_as(Linear)


def _copied(model: Module) -> Module:
    """A copy that shares the weights that become integers, which take the most memory, and which nobody changes."""
    found: list[Module] = []

    def look(m: Module) -> Module | None:
        """Finds what `replace_modules` would replace, and replaces nothing."""
        if _has_weight(m):
            found.append(m)
        return m if m.quantize_disabled or _has_weight(m) else None

    replace_modules(model, look)
    seen = {id(m) for m in found}
    others = {id(value) for m in model.modules() if id(m) not in seen for value in vars(m).values()}
    return copy.deepcopy(model, {id(m.weight): m.weight for m in found if id(m.weight) not in others})


@functools.cache
def _nearest(bits: int, group: int, dtype: str) -> trace:
    """Groups (any number, group) -> (integers, scales (any number, 1)), as one program.

    The scale of a group is its largest magnitude over the largest integer, or, of 2 bits, the share of it whose squared error is least. Groups
    of nothing but zeros have scale 1. Scales are numbers of `dtype`, in float32.
    """
    low, high = LIMITS[bits]

    def by(w: Tensor, scale: Tensor) -> Tensor:
        return F.quantize_linear(w, scale, None, low, high)

    def rounded(w: Tensor) -> tuple[Tensor, Tensor]:
        most = F.max(F.abs(w), -1, keepdims=True)
        scales = [F.where(most >= 2.0**-90, (most if share == 1 else most * share) / high, 1.0) for share in SHARES[bits]]
        if dtype == "float16":
            scales = [F.maximum(scale, LEAST_FLOAT16).astype("float16").astype("float32") for scale in scales]
        best, least = scales[0], None
        for scale in scales if len(scales) > 1 else ():
            error = F.sum(F.square(by(w, scale).astype("float32") * scale - w), -1, keepdims=True)
            best = scale if least is None else F.where(error < least, scale, best)
            least = error if least is None else F.minimum(error, least)
        return by(w, best), best

    return trace(rounded)


def nearest(w: Tensor | np.ndarray, bits: int, group: int, scales: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """(integers, scales) of a matrix, each number rounded to the nearest, in float32. scales: the dtype whose numbers scales are."""
    given, (rows, columns) = w.numpy() if isinstance(w, Tensor) else w, w.shape
    if columns % group:
        given = np.pad(given, ((0, 0), (0, -columns % group)))
    codes, scale = _nearest(bits, group, scales)(Tensor(given.astype(np.float32, copy=False).reshape(-1, group)))
    return codes.numpy().reshape(rows, -1)[:, :columns], scale.numpy().reshape(rows, -1)


def gptq(w: np.ndarray, moments: np.ndarray, bits: int, group: int, scales: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """(integers, scales) of a matrix by GPTQ.

    Args: moments: the sum over inputs x of x x^T. scales: as of `nearest`.
    """
    h, w = moments.copy(), w.copy()
    dead = np.diag(h) == 0  # features that no input has
    h[dead, dead] = 1
    h[np.diag_indices(len(h))] += DAMPING * np.mean(np.diag(h))
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    codes, found = np.zeros(w.shape, np.int8), []
    for k in range(w.shape[1]):
        if k % group == 0:
            found.append(nearest(w[:, k : k + group], bits, group, scales)[1][:, 0])
        q = np.clip(np.rint(w[:, k] / found[-1]), *LIMITS[bits])
        codes[:, k] = q
        error = (w[:, k] - q * found[-1]) / upper[k, k]
        w[:, k + 1 :] -= np.outer(error, upper[k, k + 1 :])
    return codes, np.stack(found, 1)


def awq(
    w: np.ndarray, moments: np.ndarray, bits: int, group: int, scales: str = "float32"
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(integers, scales, what features are multiplied by) of a matrix by AWQ: weights are multiplied by a power of their feature's
    root mean square, the one of `POWERS` by which the results of the inputs change least.

    Args: moments, scales: as of `gptq`.
    """
    size = np.sqrt(np.diag(moments))
    there = size > 0
    logs = np.where(there, np.log(np.where(there, size, 1)), np.log(size[there]).mean() if there.any() else 0.0)
    best = np.inf
    for power in POWERS:
        by = np.exp(np.clip(power * (logs - logs.mean()), -10, 10)).astype(np.float32).astype(np.float64)
        codes, scale = nearest(w * by, bits, group, scales)
        change = codes * np.repeat(scale, group, 1)[:, : w.shape[1]] / by - w
        error = float(((change @ moments) * change).sum())
        if error < best:
            best, found = error, (codes, scale, None if power == 0 else (1 / by).astype(np.float32))
    return found


def _second_moments(model: Module, data: Any, method: str) -> dict[int, np.ndarray]:
    """For each linear layer, the sum over its inputs x of x x^T."""
    found: dict[int, np.ndarray] = {}

    def watching(layer: Linear) -> Callable[..., None]:
        def watch(module: Module, inputs: tuple) -> None:
            x = inputs[0].numpy().astype(np.float64)
            if not x.size:
                return
            if x.shape[-1] != layer.in_features:
                raise QuantizationError(f"data of {x.shape} reach {layer!r}, which takes (..., {layer.in_features})")
            x = x.reshape(-1, layer.in_features)
            found[id(layer)] = found.get(id(layer), 0) + x.T @ x

        return watch

    handles = [m.register_forward_pre_hook(watching(m)) for m in model.modules() if _is_linear(m)]
    batches = [] if data is None else [data] if isinstance(data, (Tensor, np.ndarray)) else data
    if not isinstance(batches, Iterable):
        raise TypeError(f"data must be a tensor, an array, or batches of them, got a {type(data).__name__}")
    try:
        with evaluating(model):
            for batch in batches:
                model(*(x if isinstance(x, Tensor) else Tensor(x) for x in (batch if isinstance(batch, tuple) else (batch,))))
    finally:
        for h in handles:
            h.remove()
    if not found:
        raise QuantizationError(f"method={method!r} needs data: inputs that reach a linear layer")
    if not all(np.isfinite(m).all() for m in found.values()):
        raise QuantizationError("calibration data makes NaN or inf; help: debug.check_finite finds where it comes from")
    return found
