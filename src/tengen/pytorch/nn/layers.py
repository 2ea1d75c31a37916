"""Layers with parameters, or with other defaults than Tengen's: the first draws, shapes, momenta and arguments are PyTorch's.

Each is a Tengen layer of the same name. Weights of grouped convolutions are (out, in / groups, *kernel), biases and norms' vectors (C,).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError
from tengen.module.settings import counts, one_of
from tengen.pytorch.functions import elementwise
from tengen.pytorch.nn import functional
from tengen.pytorch.nn.module import Module, finished
from tengen.tensor import Parameter, Tensor


def _uniform(fan_in: int, *parameters: Parameter | None) -> None:
    """PyTorch's first draw of linear maps and convolutions, weight and bias alike."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    for p in parameters:
        if p is not None:
            M.init.uniform_(p, -bound, bound)


class Linear(Module, M.Linear):
    """y = x W^T + b. Weight (out, in) and bias (out,) are drawn uniformly in +-1/sqrt(in). Either number of features may be 0.

    >>> Linear(3, 2)(F.zeros((4, 3))).shape
    (4, 2)
    """

    _checked = M.Linear._checked | counts("in_features", "out_features", least=0)

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(in_features, out_features, bias)
        finished(self, device, dtype)

    def _draw(self) -> None:
        _uniform(self.in_features, self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        self._draw()


class Bilinear(Module, M.Bilinear):
    """`tengen.module.Bilinear`."""


class ConvNd(Module):
    """What all convolutions are instances of, transposed ones too."""


class _Conv(ConvNd, M.Conv2d):
    _checked = M.Conv2d._checked | {"padding_mode": one_of("padding_mode", "zeros", "reflect", "replicate", "circular")}
    n = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode=padding_mode)
        _flat(self)
        finished(self, device, dtype)

    def _draw(self) -> None:
        _uniform(self.in_channels // self.groups * math.prod(self.kernel_size), self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        self._draw()

    def _computes_as(self, layer: type[M.Module], forward: Any = None) -> bool:
        """A batch's result is the layer's."""
        return super()._computes_as(layer, forward or _Conv.forward)

    def forward(self, x: Tensor) -> Tensor:
        one = x.ndim == self.n + 1  # an image without a batch
        y = self.calc_conv(x.unsqueeze(0) if one else x, self.weight, self.bias)
        return y[0] if one else y


def _flat(m: Any) -> None:
    """Gives a convolution's parameters PyTorch's shapes."""
    if m.groups > 1:
        m.weight = Parameter(m.weight.detach().reshape((-1, *m.weight.shape[2:])))
        m.weight.spatial = m.n
    if m.bias is not None:
        m.bias = Parameter(m.bias.detach().reshape(-1))


class Conv1d(_Conv, M.Conv1d):
    """Convolution of (N, C, L), or (C, L)."""

    n = 1
    calc_conv = M.Conv1d.calc_conv


class Conv2d(_Conv):
    """Convolution of (N, C, H, W), or (C, H, W).

    >>> Conv2d(4, 6, 3, groups=2).weight.shape
    (6, 2, 3, 3)
    """


class Conv3d(_Conv, M.Conv3d):
    """Convolution of (N, C, D, H, W), or (C, D, H, W)."""

    n = 3
    calc_conv = M.Conv3d.calc_conv


class _ConvTranspose(ConvNd, M.ConvTranspose2d):
    convolve = staticmethod(functional.conv_transpose2d)

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        if padding_mode != "zeros":
            raise ArgumentError(f"{type(self).__name__}: padding_mode={padding_mode!r} must be 'zeros'")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias)
        _flat(self)
        finished(self, device, dtype)

    def _draw(self) -> None:
        _uniform(self.out_channels // self.groups * math.prod(self.kernel_size), self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        self._draw()

    def _computes_as(self, layer: type[M.Module], forward: Any = None) -> bool:
        """A batch's result is the layer's, where it has as many axes."""
        return self.n == getattr(layer, "n", None) and super()._computes_as(layer, forward or _ConvTranspose.forward)

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            wanted = tuple(output_size)[-self.n :]
            of = zip(wanted, x.shape[-self.n :], self.stride, self.padding, self.dilation, self.kernel_size)
            extra = tuple(w - ((s - 1) * st - 2 * p + d * (k - 1) + 1) for w, s, st, p, d, k in of)
        return self.convolve(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C, L); weight (C, O / groups, K)."""

    n = 1
    convolve = staticmethod(functional.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C, H, W); weight (C, O / groups, KH, KW)."""


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W); weight (C, O / groups, KD, KH, KW)."""

    n = 3
    convolve = staticmethod(functional.conv_transpose3d)


class Embedding(Module, M.Embedding):
    """Rows of a table by index. max_norm, norm_type, scale_grad_by_freq: as of `nn.functional.embedding`."""

    _fixed = ("num_embeddings", "embedding_dim", "padding_idx")

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False, device: Any = None,
        dtype: Any = None, **mge: Any,
    ):  # fmt: skip
        weight, freeze = mge.get("initial_weight", _weight), mge.get("freeze", _freeze)
        super().__init__(num_embeddings, embedding_dim, padding_idx, None, None, weight)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        finished(self, device, dtype if dtype is not None or weight is None else weight.dtype)
        if freeze:
            self.weight.requires_grad = False

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, *args: Any, **kwargs: Any) -> Embedding:
        """An embedding of a table (V, D). Args: freeze: it gets no gradient; the others as of the class. Errors: ValueError for no table"""
        if embeddings.ndim != 2:
            raise ValueError(f"Embedding.from_pretrained: a table (V, D) is needed, got shape {embeddings.shape}")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, *args, _weight=embeddings, _freeze=freeze, **kwargs)

    def _computes_as(self, layer: type[M.Module], forward: Any = None) -> bool:
        """Rows are the layer's, unless the call shortens them first."""
        return self.max_norm is None and super()._computes_as(layer, forward or Embedding.forward)

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        )


class EmbeddingBag(Module, M.EmbeddingBag):
    """`nn.functional.embedding_bag` of a table. Parameter: weight (num_embeddings, embedding_dim)."""

    _fixed = ("num_embeddings", "embedding_dim", "padding_idx")

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        M.Embedding.__init__(self, num_embeddings, embedding_dim, padding_idx, None, None, _weight)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode = max_norm, norm_type, scale_grad_by_freq, mode
        self.include_last_offset = include_last_offset
        finished(self, device, dtype if dtype is not None or _weight is None else _weight.dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, *args: Any, **kwargs: Any) -> EmbeddingBag:
        """Bags of a table (V, D). Args: freeze: it gets no gradient; the others as of the class. Errors: ValueError for no table"""
        if embeddings.ndim != 2:
            raise ValueError(f"EmbeddingBag.from_pretrained: a table (V, D) is needed, got shape {embeddings.shape}")
        rows, columns = embeddings.shape
        made = cls(rows, columns, *args, _weight=embeddings, **kwargs)
        made.weight.requires_grad = not freeze
        return made

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return functional.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip


class PReLU(Module):
    """x, or weight * x below 0. Parameter: weight (num_parameters,)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(F.full((num_parameters,), init, "float32"))
        finished(self, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return elementwise.prelu(input, self.weight)


# ---- recurrent networks ------------------------------------------------------------------------------------------------


def _with_batch(x: Any, axis: int) -> Any:
    """A tensor, or each of a tuple of them, with an axis of one example."""
    return None if x is None else tuple(F.expand_dims(t, axis) for t in x) if isinstance(x, tuple) else F.expand_dims(x, axis)


def _without_batch(x: Any, axis: int) -> Any:
    return tuple(F.squeeze(t, axis) for t in x) if isinstance(x, tuple) else F.squeeze(x, axis)


class _Cell(Module):
    """Takes one example without an axis of examples, too."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next state, from the input (N, C) or (C,) and the state, of the same number of axes."""
        if input.ndim != 1:
            return super().forward(input, hx)
        return _without_batch(super().forward(_with_batch(input, 0), _with_batch(hx, 0)), 0)


class RNNCell(_Cell, M.RNNCell):
    """`tengen.module.RNNCell`."""


class LSTMCell(_Cell, M.LSTMCell):
    """`tengen.module.LSTMCell`."""


class _ProjectedLSTMCell(M.LSTMCell):
    """An LSTM cell whose hidden state a matrix makes smaller: h' = weight_hr (o tanh(c')).

    Source: Sak, Senior and Beaufays, arXiv 1402.1128
    """

    def __init__(self, input_size: int, hidden_size: int, proj_size: int, bias: bool):
        super().__init__(input_size, hidden_size, bias)
        self.proj_size = proj_size
        self.weight_hh = M.init.blank(4 * hidden_size, proj_size)
        self.weight_hr = M.init.blank(proj_size, hidden_size)
        self.reset_parameters()

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        """PyTorch's order: the biases stand before `weight_hr`."""
        found = dict(super()._attributes())
        yield from ((name, found.pop(name)) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr") if name in found)
        yield from found.items()

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        h, c = super().step(projected, state)
        return F.linear(h, self.weight_hr), c

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return F.zeros((x.shape[0], self.proj_size), dtype=x.dtype), self._zeros(x)

    def run(self, projected: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps, one by one."""
        return super(M.LSTMCell, self).run(projected, state, reverse)

    def states(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states after each step."""
        found = []
        for t in range(projected.shape[0]):
            state = self.step(projected[t], state)
            found.append(state)
        return tuple(F.stack(each, 0) for each in zip(*found))


class GRUCell(_Cell, M.GRUCell):
    """`tengen.module.GRUCell`."""


class _Recurrent(Module):
    """A network of cells whose parameters have PyTorch's names, weight_ih_l0, bias_hh_l1_reverse and so on."""

    cells: list[list[M.Module]]
    batch_first: bool

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(Outputs, last state), from (T, N, C), (N, T, C) with batch_first, (T, C) of one example, or a packed sequence."""
        if not isinstance(input, Tensor) or input.ndim != 2:
            return super().forward(input, hx)
        outputs, last = super().forward(_with_batch(input, 0 if self.batch_first else 1), _with_batch(hx, 1))
        return _without_batch(outputs, 0 if self.batch_first else 1), _without_batch(last, 1)

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for layer, directions in enumerate(self.cells):
            for cell, end in zip(directions, ("", "_reverse")):
                yield from ((f"{name}_l{layer}{end}", t) for name, t in cell._attributes())
        yield from super()._attributes()  # what a subclass adds

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("weight_", "bias_")) and "cells" in self.__dict__:
            for known, t in self._attributes():
                if known == name:
                    return t
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def flatten_parameters(self) -> None:
        """Nothing: parameters lie as they are."""


class RNN(_Recurrent, M.RNN):
    """`tengen.module.RNN` with PyTorch's names of parameters; ``RNN(input, hidden, layers, nonlinearity="relu")``."""

    def create_cell(self, layer: int) -> RNNCell:
        """A cell for a layer."""
        size = self.input_size if layer == 0 else self.hidden_size * self.num_directions
        return RNNCell(size, self.hidden_size, self.bias, self.nonlinearity)


class LSTM(_Recurrent, M.LSTM):
    """`tengen.module.LSTM` with PyTorch's names of parameters.

    Args: proj_size: of the outputs and hidden states, which a matrix `weight_hr_l0` makes of hidden_size elements; 0: it is not there.
    Errors: ValueError for a proj_size that is not below hidden_size

    >>> [name for name, _ in LSTM(3, 4).named_parameters()]
    ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    cell = LSTMCell
    projects = True

    def create_cell(self, layer: int) -> Any:
        """A cell for a layer."""
        if not self.proj_size:
            return super().create_cell(layer)
        if not 0 < self.proj_size < self.hidden_size:
            raise ValueError(f"LSTM: proj_size={self.proj_size} must be positive and below hidden_size={self.hidden_size}")
        size = self.input_size if layer == 0 else self.proj_size * self.num_directions
        return _ProjectedLSTMCell(size, self.hidden_size, self.proj_size, self.bias)


class GRU(_Recurrent, M.GRU):
    """`tengen.module.GRU` with PyTorch's names of parameters."""

    cell = GRUCell


# ---- without parameters, with other defaults -----------------------------------------------------------------------------


class _Share(Module):
    """`p` of dropouts."""

    drop_prob: float

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__(p, inplace)  # type: ignore[call-arg]  # the layer beside it

    @property
    def p(self) -> float:
        """The probability with which an element is zeroed."""
        return self.drop_prob

    @p.setter
    def p(self, value: float) -> None:
        self.drop_prob = value


class Dropout(_Share, M.Dropout):
    """Zeroes elements at random while training, with probability .5 unless another is given.

    >>> Dropout().p, Dropout(0.1).p
    (0.5, 0.1)
    """


class Dropout1d(_Share, M.Dropout1d):
    """Zeroes whole channels of (N, C, L)."""


class Dropout2d(_Share, M.Dropout2d):
    """Zeroes whole channels of (N, C, H, W)."""


class Dropout3d(_Share, M.Dropout3d):
    """Zeroes whole channels of (N, C, D, H, W)."""


class AlphaDropout(_Share, M.AlphaDropout):
    """Dropout for `SELU`."""


class _Average(Module):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):  # fmt: skip
        how = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override}
        super().__init__(kernel_size, stride, padding, **how)  # type: ignore[call-arg]  # the layer beside it


class AvgPool1d(_Average, M.AvgPool1d):
    """The mean of each window of (N, C, L); the padding counts unless count_include_pad=False."""


class AvgPool2d(_Average, M.AvgPool2d):
    """The mean of each window of (N, C, H, W); the padding counts unless count_include_pad=False."""


class AvgPool3d(_Average, M.AvgPool3d):
    """The mean of each window of (N, C, D, H, W); the padding counts unless count_include_pad=False."""


class GELU(Module):
    """x Phi(x); approximate="tanh" for the formula with tanh."""

    def __init__(self, approximate: Any = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return functional.softplus(input, self.beta, self.threshold)


class LocalResponseNorm(Module):
    """x / (k + alpha / size * the sum of squares over `size` channels) ^ beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)
