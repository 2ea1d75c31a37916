"""Layers under PyTorch's names that MegEngine lacks: activations with limits, padding by sides, shapes, similarities, bags, lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.errors import ArgumentError, ShapeError, UnknownName
from tengen.module import init
from tengen.module.linear import Embedding
from tengen.module.module import Module
from tengen.module.norm import InstanceNorm, LayerNorm
from tengen.module.settings import PARAMETERS, Configured, InPlace, also, counts
from tengen.module.transformer import TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer
from tengen.module.vision import Upsample
from tengen.tensor import Parameter, Tensor

# ---- activations ----------------------------------------------------------------------------------------------------------------


class Hardtanh(InPlace):
    """The number, or the nearer of two limits."""

    @also(inplace=None)
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0):
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val)


class CELU(InPlace):
    """`functional.celu`."""

    @also(inplace=None)
    def __init__(self, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha)


class Threshold(InPlace):
    """x where x > threshold, else value."""

    @also(inplace=None)
    def __init__(self, threshold: float, value: float):
        super().__init__()
        self.threshold, self.value = threshold, value

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value)


class Hardshrink(Module):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(Module):
    """x moved towards 0 by lambd."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Softmin(Module):
    """softmax(-x) along an axis; by default as `Softmax`."""

    @also(dim="axis")
    def __init__(self, axis: int | None = None):
        super().__init__()
        self.axis = axis

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.axis)


class Softmax2d(Module):
    """softmax over the channels of images (N, C, H, W), or (C, H, W).

    Errors: ShapeError for other numbers of axes
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d takes images (N, C, H, W) or (C, H, W), got {input._layout.type!r}")
        return F.softmax(input, -3)


# ---- shapes -----------------------------------------------------------------------------------------------------------------------


class Unflatten(Module):
    """An axis as several; one of their extents may be -1.

    >>> from tengen import functional as F, module as M
    >>> M.Unflatten(1, (2, -1))(F.zeros((3, 8))).shape
    (3, 2, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)


class Unfold(Module):
    """`functional.unfold`: the windows of images as columns."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """`functional.fold`: columns added up to images."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class PixelUnshuffle(Module):
    """(N, C, H r, W r) -> (N, C r r, H, W), where r is `downscale_factor`."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(Module):
    """`functional.channel_shuffle`."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)


def _sides(m: _SidePad, padding: Any) -> tuple[int, ...]:
    sides = (padding,) * (2 * m.space) if isinstance(padding, int) else tuple(padding)
    if len(sides) != 2 * m.space or not all(isinstance(p, int) for p in sides):
        raise ArgumentError(
            f"{type(m).__name__}: padding={padding!r} must be an int, or {2 * m.space} of them: two for each axis of space, from the last "
            "axis on; a negative one cuts off"
        )
    return sides


def pad_sides(x: Tensor, sides: Sequence[int], mode: str, value: float) -> Tensor:
    """x padded by (left, right, top, bottom, ...), the last axis first; a negative number cuts off.

    >>> pad_sides(Tensor([[1.0, 2.0], [3.0, 4.0]]), (0, 0, 1, -1), "constant", 0.0).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    widths = [*zip(sides[::2], sides[1::2])]
    every = [(0, 0)] * (x.ndim - len(widths)) + [(max(a, 0), max(b, 0)) for a, b in reversed(widths)]
    if mode == "circular":  # what goes round is what is left
        return F.pad(_cut(x, widths), every, mode)
    return _cut(F.pad(x, every, mode, value), widths)


def _cut(x: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    """x without what negative widths of a padding cut off."""
    for i, (a, b) in enumerate(widths):
        if a < 0 or b < 0:
            axis = x.ndim - 1 - i
            x = x.narrow(axis, max(-a, 0), x.shape[axis] - max(-a, 0) - max(-b, 0))
    return x


class _SidePad(Configured):
    """Padding of the axes of space, whose sides are given from the last axis on, as PyTorch does: (left, right, top, bottom, ...). A negative
    side is cut off.

    Errors: ArgumentError for sides that are not two for each axis of space, ShapeError for an input that has too few axes
    """

    space, mode, value = 0, "constant", 0.0
    _checked = {"padding": _sides}

    def __init__(self, padding: int | Sequence[int]):
        super().__init__()
        self.padding = padding

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim < self.space + 1:
            raise ShapeError(f"{type(self).__name__} takes channels and {self.space} axes of space, got {input._layout.type!r}")
        return pad_sides(input, self.padding, self.mode, self.value)

    def _module_info_string(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_SidePad):
    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value


class ConstantPad1d(_ConstantPad):
    """Pads (..., C, L) with a number: (left, right)."""

    space = 1


class ConstantPad2d(_ConstantPad):
    """Pads (..., C, H, W) with a number: (left, right, top, bottom).

    >>> from tengen import functional as F, module as M
    >>> M.ConstantPad2d((1, 0, 0, 2), 5.0)(F.zeros((1, 1, 2, 2))).shape
    (1, 1, 4, 3)
    """

    space = 2


class ConstantPad3d(_ConstantPad):
    """Pads (..., C, D, H, W) with a number."""

    space = 3


class ZeroPad1d(_SidePad):
    """Pads (..., C, L) with zeros."""

    space = 1


class ZeroPad2d(_SidePad):
    """Pads (..., C, H, W) with zeros."""

    space = 2


class ZeroPad3d(_SidePad):
    """Pads (..., C, D, H, W) with zeros."""

    space = 3


class ReflectionPad1d(_SidePad):
    """Pads (..., C, L) with its mirror image; the element at the edge is not repeated."""

    space, mode = 1, "reflect"


class ReflectionPad2d(_SidePad):
    """Pads (..., C, H, W) with its mirror image; the elements at the edge are not repeated."""

    space, mode = 2, "reflect"


class ReflectionPad3d(_SidePad):
    """Pads (..., C, D, H, W) with its mirror image; the elements at the edge are not repeated."""

    space, mode = 3, "reflect"


class ReplicationPad1d(_SidePad):
    """Pads (..., C, L) with the element at the edge."""

    space, mode = 1, "replicate"


class ReplicationPad2d(_SidePad):
    """Pads (..., C, H, W) with the elements at the edge."""

    space, mode = 2, "replicate"


class ReplicationPad3d(_SidePad):
    """Pads (..., C, D, H, W) with the elements at the edge."""

    space, mode = 3, "replicate"


class CircularPad1d(_SidePad):
    """Pads (..., C, L) with the elements of the other end."""

    space, mode = 1, "circular"


class CircularPad2d(_SidePad):
    """Pads (..., C, H, W) with the elements of the other end."""

    space, mode = 2, "circular"


class CircularPad3d(_SidePad):
    """Pads (..., C, D, H, W) with the elements of the other end."""

    space, mode = 3, "circular"


class UpsamplingNearest2d(Upsample):
    """`Upsample` by the nearest pixel. Args: size: of the result; scale_factor: or by how much it is larger."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size=size, scale_factor=scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` by bilinear interpolation in which the corners' pixels lie on each other. Args: as of `UpsamplingNearest2d`."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size=size, scale_factor=scale_factor, mode="bilinear", align_corners=True)


# ---- norms, similarities, tables --------------------------------------------------------------------------------------------------


class _InstanceNorm(InstanceNorm):
    """`InstanceNorm` with PyTorch's arguments and default: no weight and bias.

    Errors: ArgumentError for track_running_stats, which there is not
    """

    _fixed = (*InstanceNorm._fixed, "num_features", "momentum", "track_running_stats")

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False
    ):
        if track_running_stats:
            raise ArgumentError(f"{type(self).__name__}: running statistics are not kept; help: track_running_stats=False, or BatchNorm2d")
        super().__init__(num_features, eps, affine)
        self.num_features, self.momentum, self.track_running_stats = num_features, momentum, track_running_stats


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample of (N, C, L) normalised. As in PyTorch it has no weight and bias unless `affine`."""


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample of (N, C, H, W) normalised. As in PyTorch it has no weight and bias unless `affine`."""


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample of (N, C, D, H, W) normalised. As in PyTorch it has no weight and bias unless `affine`."""


class CosineSimilarity(Module):
    """`functional.cosine_similarity` along an axis."""

    @also(dim="axis")
    def __init__(self, axis: int = 1, eps: float = 1e-8):
        super().__init__()
        self.axis, self.eps = axis, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """`functional.pairwise_distance`: the p-norm of the difference of rows."""

    @also(keepdim="keepdims")
    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False):
        super().__init__()
        self.p, self.eps, self.keepdims = p, eps, keepdims

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)


class Bilinear(Configured):
    """x1 A_k x2 + b_k for each of out_features matrices. Parameters: weight (out, in1, in2), bias (out,), uniform within 1 / sqrt(in1)."""

    _fixed = ("in1_features", "in2_features", "out_features")
    _checked = PARAMETERS | counts("in1_features", "in2_features", "out_features")

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(np.zeros((out_features, in1_features, in2_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        for p in (self.weight, self.bias) if bias else (self.weight,):
            init.uniform_(p, -(in1_features**-0.5), in1_features**-0.5)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


def _mode(m: Module, value: Any) -> Any:
    if value not in ("sum", "mean", "max"):
        raise ArgumentError(f"EmbeddingBag: mode={value!r} must be 'sum', 'mean' or 'max'")
    return value


class EmbeddingBag(Embedding):
    """`functional.embedding_bag`: a table whose rows are summed up, or averaged. Parameter: weight (num_embeddings, embedding_dim).

    Errors: ArgumentError for another mode
    """

    _checked = Embedding._checked | {"mode": _mode}

    def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean"):
        super().__init__(num_embeddings, embedding_dim)
        self.mode = mode

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.mode, per_sample_weights)


class ParameterList(Module):
    """A list of parameters, named 0, 1, ...; tensors become parameters.

    >>> from tengen import functional as F, module as M
    >>> some = M.ParameterList([F.zeros(2), F.ones(3)])
    >>> len(some), [p.shape for p in some], [name for name, _ in some.named_parameters()]
    (2, [(2,), (3,)], ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] = ()):
        super().__init__()
        self._count = 0
        self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Adds a parameter at the end; returns self."""
        setattr(self, str(self._count), value if isinstance(value, Parameter) else Parameter(value))
        self._count += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds parameters at the end; returns self."""
        for v in values:
            self.append(v)
        return self

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Parameter:
        if not -self._count <= i < self._count:
            raise IndexError(f"index {i} of a ParameterList of {self._count}")
        return getattr(self, str(i % self._count))

    def __setitem__(self, i: int, value: Any) -> None:
        self[i]  # an IndexError
        setattr(self, str(i % self._count), value if isinstance(value, Parameter) else Parameter(value))

    def __iter__(self) -> Iterator[Parameter]:
        return (self[i] for i in range(self._count))


class ParameterDict(Module):
    """A dict of parameters; tensors become parameters. Errors: KeyError for a key that is no plain name."""

    def __init__(self, values: Mapping[str, Any] | None = None):
        super().__init__()
        self._keys: tuple[str, ...] = ()
        for key, value in (values or {}).items():
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or "." in key or (key not in self._keys and hasattr(self, key)):
            raise UnknownName(f"{key!r} cannot name a parameter: it must be a text without dots that names nothing of a module")
        setattr(self, key, value if isinstance(value, Parameter) else Parameter(value))
        self._keys += () if key in self._keys else (key,)

    def __getitem__(self, key: str) -> Parameter:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def keys(self) -> tuple[str, ...]:
        """The keys, in the order in which they came."""
        return self._keys

    def values(self) -> list[Parameter]:
        """The parameters."""
        return [self[k] for k in self._keys]

    def items(self) -> list[tuple[str, Parameter]]:
        """The keys with their parameters."""
        return [(k, self[k]) for k in self._keys]


class Transformer(Configured):
    """An encoder, and a decoder that attends to what it made. See `TransformerEncoder` and `TransformerDecoder`.

    Shapes: src (S, N, E), tgt (T, N, E), or (N, S, E) and (N, T, E) with batch_first -> as tgt
    Source: Vaswani et al., arXiv 1706.03762

    >>> from tengen import functional as F, module as M
    >>> net = M.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    >>> net(F.ones((1, 3, 8)), F.ones((1, 2, 8)), tgt_mask=net.generate_square_subsequent_mask(2)).shape
    (1, 2, 8)
    """

    _fixed = ("d_model", "nhead", "batch_first")

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        from_here = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*from_here), num_encoder_layers, LayerNorm(d_model, layer_norm_eps))
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*from_here), num_decoder_layers, LayerNorm(d_model, layer_norm_eps))
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A float mask (sz, sz) that hides what comes later: -inf above the diagonal, 0 elsewhere."""
        return Tensor(np.triu(np.full((sz, sz), -np.inf, np.float32), 1))


__all__ = [
    "Bilinear", "CELU", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "CosineSimilarity", "EmbeddingBag", "Fold", "Hardshrink", "Hardtanh", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "PairwiseDistance", "ParameterDict", "ParameterList", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d",
    "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Softmax2d", "Softmin", "Softshrink", "Softsign",
    "Tanhshrink", "Threshold", "Transformer", "Unflatten", "Unfold", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d",
    "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip
