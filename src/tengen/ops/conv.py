"""Convolutions over any number of spatial axes, their transposes and weight gradients: three linear ops, each the gradient of the
others, all contractions over sliding windows.

N batch, C channels, O output channels, G groups, S spatial extents of the image, P of the output, K of the filter.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import float32, promote
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels import convolution, numerics
from tengen.kernels.source import Literal
from tengen.loops.extents import TERMS, terms
from tengen.loops.lang import Expr, as_int, const, equal, select
from tengen.ops.attributes import Algorithm, Groups, Naturals, Positives, Precision
from tengen.ops.contract import chosen_precision, in_dtype
from tengen.ops.conv_parts import filter_extents, grouped, out_extent, per_axis, prologue_operand, readable, tall
from tengen.ops.conv_strategies import DIRECT, FILTERS, IMAGE, RESULTS, WINOGRAD2, WINOGRAD4, WORDS, Convolution, lower
from tengen.ops.define import Case, composite, primitive
from tengen.ops.elementwise import add
from tengen.ops.shape import reshape, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _canon(types, stride, padding, dilation, groups, **more):
    x = types[0]
    n = x.ndim - 2
    if n < 1:
        raise ShapeError(f"a convolution needs an image of at least 3 axes (batch, channels, space), got {x}")
    a = {
        "stride": per_axis(stride, n, "stride"), "padding": per_axis(padding, n, "padding"),
        "dilation": per_axis(dilation, n, "dilation"), "groups": groups,
    }  # fmt: skip
    if "output_padding" in more:
        a["output_padding"] = per_axis(more["output_padding"], n, "output_padding")
    precision = _precision(types, a, more["precision"])
    if "algorithm" in more:
        asked = "direct" if more["algorithm"] == "auto" and precision != "highest" else more["algorithm"]
        a["algorithm"] = _algorithm(types, a, asked)
        precision = precision if a["algorithm"] == "direct" else "highest"
    return a | {"precision": precision}


def _precision(types, a: dict, asked: str) -> str:
    """The precision of the products, from what is asked for; one filter of each channel is computed as always."""
    o, c, _ = filter_extents(types[1], types[0].ndim - 2, a["groups"])
    alone = grouped(a["groups"]) and as_int(c) == 1 and as_int(o) == 1
    return chosen_precision("highest" if alone else asked, *types[:2])


def _algorithm(types, a: dict, asked: str | Expr) -> str | Expr:
    """The algorithm, from what is asked for: "auto" is decided by `winograd.pays` from the extents of channels and space.
    Batch, threads and target are not looked at: the choice changes bits. Where extents of space are open it is an expression of
    them, which a graph keeps: its number is the position of the word in `Algorithm`.

    Errors: ShapeError, DTypeError where Winograd is asked for and cannot be.
    """
    x, w = types[:2]
    fits = x.ndim == w.ndim == 4 and w.shape[2:] == (3, 3) and not grouped(a["groups"]) and a["stride"] == a["dilation"] == (1, 1)
    computed = _check_dtypes(x, w).compute
    if asked not in ("auto", "direct"):
        if not fits or any(isinstance(d, int) and d > numerics.WINOGRAD_MOST_CHANNELS for d in w.shape):  # of a run, where open
            raise ShapeError(f"algorithm={asked!r} is for filters of 3x3, stride and dilation 1, one group and at most "
                             f"{numerics.WINOGRAD_MOST_CHANNELS} channels; help: 'auto'")  # fmt: skip
        if not computed.is_inexact:
            raise DTypeError(f"algorithm={asked!r} is for floats; help: 'auto'")
    if asked == "direct" or not fits or any(as_int(d) == 0 for d in (*x.shape[1:], *w.shape)):
        return "direct"
    if asked != "auto":
        return asked
    if computed is not float32:
        return "direct"
    grows = -2 if "output_padding" in a else 2  # for each pixel of padding
    results = [s - grows + grows * p for s, p in zip(x.shape[2:], a["padding"])]
    o, c = map(as_int, w.shape[:2])
    if o is not None and c is not None and None in map(as_int, results):
        chosen = convolution.winograd.pays_for_any(c, o, *results, values=(DIRECT, WINOGRAD2, WINOGRAD4))
        if isinstance(chosen, int):
            return WORDS[chosen]
        if terms(chosen) <= TERMS - 5:  # which `_of_weights` adds; else a recording has the algorithm of its call, as a condition
            return chosen
    outputs = convolution.winograd.pays(w.shape[1], w.shape[0], *results)
    return f"winograd{outputs}" if outputs else "direct"


def _of_weights(algorithm: str | Expr) -> str | Expr:
    """The algorithm of the filter's gradient, from the convolution's: Winograd's with 4x4 gradients in a tile, which saves most, and
    whose error a sum over batch and space hides."""
    if isinstance(algorithm, Expr):
        return select(equal(algorithm, DIRECT), const(DIRECT), const(WINOGRAD4))
    return "direct" if algorithm == "direct" else "winograd4"


def _check_dtypes(*types: TensorType):
    d = types[0].dtype
    for t in types[1:]:
        d = promote(d, t.dtype)
    if d.kind == "b":
        raise DTypeError("does not take bool; help: cast it with .astype('float32')")
    return d


def channels_last(arrays, out, **attrs) -> list[int]:
    """The memory order of images: batch, space, channels."""
    return [0, *range(2, len(out.shape)), 1]


def small_filter(arrays, stride, **attrs) -> set[int]:
    """Extents of a filter (the second operand) that a program is compiled for: those of windows, which loops are unrolled for, and of
    channels so few that strategies ask for them. All images and larger channel counts share one program."""
    shape, n = arrays[1].shape, len(stride)
    whole = attrs.get("algorithm", "direct") != "direct" and arrays[1].dtype.compute.size > 4  # scratch memory has no room for any
    windows, channels = {d for d in shape[-n:] if d <= MOST_KNOWN_PIXELS}, shape[:-n]
    return windows | {d for d in channels if whole or d <= convolution.few_channels.MOST_IMAGE_CHANNELS}


MOST_KNOWN_PIXELS = 32  # pixels of a window along an axis, at most, that an eager program is compiled for


def one_of_each(arrays, groups, stride, **attrs) -> tuple[str, ...]:
    """The number of groups is an extent where there is one filter (the second operand) of each channel: then all numbers of channels
    share a program."""
    return ("groups",) if len(stride) == 2 and convolution.depthwise.fits(arrays[1], groups) else ()


# ---- the three ops -------------------------------------------------------------------------------------------------------


@primitive(autocast="low", older={"algorithm": "direct", "precision": "highest"})
def conv(
    inp: Tensor, weight: Tensor, stride: Positives = 1, padding: Naturals = 0, dilation: Positives = 1,
    groups: Groups = 1, algorithm: Algorithm = "auto",
    precision: Precision = "highest",
) -> Tensor:  # fmt: skip
    """Cross-correlation of images with filters.

    Shapes:   (N, C, *S), (O, C/G, *K) or (G, O/G, C/G, *K) -> (N, O, *P),
              P = (S + 2 padding - dilation (K - 1) - 1) // stride + 1
    Args:
        algorithm: "direct", or "winograd2" and "winograd4" for 3x3 filters, stride and dilation 1 and one group (tiles of 2x2
            or 4x4 outputs: fewer multiplications, other roundings); "auto" decides by the extents of channels and space, see
            `convolution.winograd.pays`, and a graph keeps what was decided.
        precision: of the products, as of `matmul`; "bfloat16" makes "auto" direct. Winograd, and one filter of each channel, are
            always "highest".
    Numerics: direct: accumulated over (*K, C) in that order, see `kernels/contraction/chunks.py`; padding is zeros, multiplied.
        Winograd: see `kernels/convolution/winograd.py`
    Layout:   the result is channels-last in memory
    """


conv.canon(_canon)
conv.layout(channels_last)
conv.parts(lambda types, **attrs: [[0, *[None] * (types[0].ndim - 1)], [None] * types[1].ndim])
conv.known(small_filter)
conv.named(one_of_each)
conv.prologue(prologue_operand)


@conv.infer
def _output_type(x, w, stride, padding, dilation, groups, algorithm="direct", precision="highest"):
    if x.ndim != len(stride) + 2:
        raise ShapeError(f"{x} is no image with {len(stride)} axes of space")
    o, c, k = filter_extents(w, x.ndim - 2, groups)
    if isinstance(x.shape[1], int) and isinstance(c, int) and x.shape[1] != c * groups:
        raise ShapeError(f"the image has {x.shape[1]} channels, the filter takes {c * groups}")
    out = [out_extent(*a) for a in zip(x.shape[2:], k, stride, padding, dilation)]
    return TensorType([x.shape[0], o * groups, *out], _check_dtypes(x, w))


@conv.epilogue
def _(lo, ins, outs, epilogue, stride, padding, dilation, groups, algorithm="direct", precision="highest"):
    image = readable(lo, ins[0], outs[0].strides[1])
    x, w = (in_dtype(lo, a, promote(ins[0].dtype, ins[1].dtype)) for a in (image, ins[1]))
    lower(RESULTS, Convolution(lo, x, w, outs[0], stride, padding, dilation, groups, algorithm, precision, epilogue))


@conv.vjp
def _(g, x, w, algorithm, **a):
    weights = _of_weights(algorithm)
    return (lambda: conv_transposed(g, w, x, **a, algorithm=algorithm)), (lambda: conv_weight_grad(x, g, w, **a, algorithm=weights))


def _check_gradient(image: TensorType, w: TensorType, grad: TensorType, **attrs) -> None:
    """ShapeError unless `grad` has the shape of conv(image, w), or fewer pixels: a file can hold any types."""
    want = _output_type(image, w, **attrs).shape
    known = [(p, q) for p, q in zip(grad.shape, want) if isinstance(p, int) and isinstance(q, int)]
    if grad.ndim != len(want) or any(p > q for p, q in known) or any(p != q for p, q in known[:2]):
        raise ShapeError(f"{grad} is no gradient of a convolution of {image} by {w}")


@primitive(autocast="low", older={"algorithm": "direct", "precision": "highest"})
def conv_transposed(
    inp: Tensor, weight: Tensor, like: Tensor | None = None, stride: Positives = 1, padding: Naturals = 0,
    dilation: Positives = 1, groups: Groups = 1, output_padding: Naturals = 0,
    algorithm: Algorithm = "auto", precision: Precision = "highest",
) -> Tensor:  # fmt: skip
    """The transpose of `conv` as a linear map: its gradient with respect to the image, and the transposed convolution.

    Shapes: (N, O, *P), a filter that takes C channels to O -> (N, C, *S); S is that of `like` (only its type is used) when
    given,
            else (P - 1) stride - 2 padding + dilation (K - 1) + 1 + output_padding
    Args:
        algorithm, precision: as of `conv`; the gradient of a convolution takes those of the convolution.
    """


conv_transposed.canon(_canon)
conv_transposed.layout(channels_last)
conv_transposed.known(small_filter)
conv_transposed.named(one_of_each)
conv_transposed.typed(2)


@conv_transposed.infer
def _(y, w, like, stride, padding, dilation, groups, output_padding, algorithm="direct", precision="highest"):
    if y.ndim != len(stride) + 2:
        raise ShapeError(f"{y} is no image with {len(stride)} axes of space")
    o, c, k = filter_extents(w, y.ndim - 2, groups)
    if isinstance(y.shape[1], int) and isinstance(o, int) and y.shape[1] != o * groups:
        raise ShapeError(f"the image has {y.shape[1]} channels, the filter gives {o * groups}")
    if like is not None:
        _check_gradient(like, w, y, stride=stride, padding=padding, dilation=dilation, groups=groups)
        return TensorType([y.shape[0], c * groups, *like.shape[2:]], _check_dtypes(y, w))
    if any(not 0 <= op < max(s, d) for op, s, d in zip(output_padding, stride, dilation)):
        raise ShapeError(f"output_padding={output_padding} must be at least 0, and less than the stride {stride} or the dilation {dilation}")
    space = [(p - 1) * s - 2 * pad + d * (kk - 1) + 1 + op
             for p, kk, s, pad, d, op in zip(y.shape[2:], k, stride, padding, dilation, output_padding)]  # fmt: skip
    if any(isinstance(s, int) and s < 1 for s in space):
        raise ShapeError(f"the result would have spatial extents {space}")
    return TensorType([y.shape[0], c * groups, *space], _check_dtypes(y, w))


@conv_transposed.lower
def _(lo, ins, outs, stride, padding, dilation, groups, output_padding, algorithm="direct", precision="highest"):
    out = outs[0]
    y, w = in_dtype(lo, ins[0], out.dtype), in_dtype(lo, ins[1], out.dtype)
    lower(IMAGE, Convolution(lo, out, w, y, stride, padding, dilation, groups, algorithm, precision))


@conv_transposed.vjp
def _(g, y, w, like, output_padding, algorithm, **a):
    weights = _of_weights(algorithm)
    more = any(p >= s for p, s in zip(output_padding, a["stride"]))  # pixels that a convolution would look at once more
    return (
        lambda: _first_pixels(conv(g, w, **a, algorithm=algorithm), y, more),
        lambda: conv_weight_grad(g, y, w, **a, algorithm=weights),
        None,
    )


def _first_pixels(x, like, more: bool = False):
    """The pixels of an image that another one also has. more: x is known to have more of them."""
    if not more and not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(x.shape, like.shape)):
        return x
    return strided_slice(x, (0,) * x.ndim, (*x.shape[:2], *like.shape[2:]), (1,) * x.ndim)


@primitive(older={"algorithm": "direct", "precision": "highest"})
def conv_weight_grad(
    inp: Tensor, grad: Tensor, like: Tensor, stride: Positives = 1, padding: Naturals = 0, dilation: Positives = 1,
    groups: Groups = 1, algorithm: Algorithm = "auto",
    precision: Precision = "highest",
) -> Tensor:  # fmt: skip
    """The gradient of `conv` with respect to the filter: the sum over batch and space of image windows times output gradients.

    Shapes: (N, C, *S), (N, O, *P), the filter (only its type is used) -> the filter's shape
    Args:
        algorithm: as of `conv`. Winograd's sums are in the transformed domain: see `kernels/convolution/winograd_weights.py`.
    """


conv_weight_grad.canon(lambda types, **attrs: _canon(types[::2], **attrs))
conv_weight_grad.known(lambda arrays, **attrs: small_filter(arrays[1:], **attrs))
conv_weight_grad.named(lambda arrays, **attrs: one_of_each(arrays[1:], **attrs))
conv_weight_grad.typed(2)
conv_weight_grad.prologue(prologue_operand)


@conv_weight_grad.infer
def _(x, g, like, stride, padding, dilation, groups, algorithm="direct", precision="highest"):
    _check_gradient(x, like, g, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return TensorType(like.shape, _check_dtypes(x, g))


@conv_weight_grad.layout
def _(arrays, out, **attrs):
    n = len(attrs["stride"])
    lead = len(out.shape) - n - 2  # 1 where the groups are an axis of their own
    window = list(range(lead + 2, len(out.shape)))
    outs, ins = map(as_int, out.shape[lead : lead + 2])
    straight = {*map(as_int, out.shape[lead + 2 :])} == {1}
    if outs is not None and ins is not None and straight and tall((outs, ins), attrs["stride"]):
        return [*range(lead), *window, lead, lead + 1]
    return [*range(lead), *window, lead + 1, lead]


@conv_weight_grad.lower
def _(lo, ins, outs, stride, padding, dilation, groups, algorithm="direct", precision="highest"):
    out = outs[0]
    if any(as_int(d) == 0 for d in ins[1].shape[2:]):  # no pixel, no term
        return kernels.pointwise.pointwise(lo, [Literal(0, out.dtype)], [out], "zero")
    image = readable(lo, ins[0], 1 if grouped(groups) else out.strides[0])
    x, g = in_dtype(lo, image, out.dtype), in_dtype(lo, ins[1], out.dtype)
    lower(FILTERS, Convolution(lo, x, out, g, stride, padding, dilation, groups, algorithm, precision))


@conv_weight_grad.vjp
def _(gw, x, g, like, **a):
    return (lambda: conv_transposed(g, gw, x, **a)), (lambda: _first_pixels(conv(x, gw, **a), g)), None


@composite(autocast="low")
def conv_bias(
    inp: Tensor, weight: Tensor, bias: Tensor, stride: Positives = 1, padding: Naturals = 0, dilation: Positives = 1,
    groups: Groups = 1, algorithm: Algorithm = "auto",
    precision: Precision = "highest",
) -> Tensor:  # fmt: skip
    """`conv` plus a bias of shape (O,) or (1, O, 1, ...), in one kernel."""
    y = conv(inp, weight, stride, padding, dilation, groups, algorithm, precision)
    return add(y, reshape(bias, (1, -1, *(1 for _ in y.shape[2:]))))


@conv_bias.canon
def _(types, **attrs):
    """Here, where extents are numbers: in the body they may be names, of which nobody can say that they do not fit."""
    canonical = _canon(types, **attrs)
    conv.infer_of_any(types[:2], canonical)
    return canonical


@conv_bias.known
def _(arrays, **attrs):
    """With the extents of the bias where that of the result is known, which it has to be."""
    known = small_filter(arrays, **attrs)
    channels = arrays[1].shape[: -len(attrs["stride"]) - 1]
    return known | set(arrays[2].shape) if known.issuperset(channels) else known


conv_bias.named(one_of_each)


# ---- references and samples ------------------------------------------------------------------------------------------------


def _grouped(w, n: int, groups: int):
    """The filter as (G, O/G, C/G, *K)."""
    return w if w.ndim == n + 3 else w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


def _offsets(k, out, stride, dilation):
    """(position in the filter, the pixels that it meets) for each position."""
    for at in product(*map(range, k)):
        yield (
            at,
            (
                slice(None),
                slice(None),
                *(slice(d * i, d * i + s * (p - 1) + 1, s) for i, d, s, p in zip(at, dilation, stride, out)),
            ),
        )


def _np_settings(n, stride, padding, dilation):
    return per_axis(stride, n, "stride"), per_axis(padding, n, "padding"), per_axis(dilation, n, "dilation")


def np_conv(x, w, stride=1, padding=0, dilation=1, groups=1, algorithm=None, precision=None):
    """The convolution by NumPy, in the dtype of its operands: the reference of every op that convolves."""
    n = x.ndim - 2
    stride, padding, dilation = _np_settings(n, stride, padding, dilation)
    w = _grouped(w, n, groups)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    out = [(s - d * (k - 1) - 1) // st + 1 for s, k, st, d in zip(x.shape[2:], w.shape[3:], stride, dilation)]
    y = np.zeros((x.shape[0], groups, w.shape[1], *out), np.result_type(x, w))
    for at, pixels in _offsets(w.shape[3:], out, stride, dilation):
        y += np.einsum("ngc...,goc->ngo...", x[pixels].reshape(x.shape[0], groups, w.shape[2], *out), w[(..., *at)])
    return y.reshape(x.shape[0], groups * w.shape[1], *out)


def _np_conv_transposed(y, w, like=None, stride=1, padding=0, dilation=1, groups=1, output_padding=0, algorithm=None, precision=None):
    n = y.ndim - 2
    stride, padding, dilation = _np_settings(n, stride, padding, dilation)
    w, more = _grouped(w, n, groups), per_axis(output_padding, n, "output_padding")
    out = y.shape[2:]
    space = [(p - 1) * s - 2 * pad + d * (k - 1) + 1 + m
             for p, k, s, pad, d, m in zip(out, w.shape[3:], stride, padding, dilation, more)] if like is None else like.shape[2:]  # fmt: skip
    x = np.zeros((y.shape[0], groups * w.shape[2], *(s + 2 * p for s, p in zip(space, padding))), np.result_type(y, w))
    y = y.reshape(y.shape[0], groups, w.shape[1], *out)
    for at, pixels in _offsets(w.shape[3:], out, stride, dilation):
        x[pixels] += np.einsum("ngo...,goc->ngc...", y, w[(..., *at)]).reshape(x.shape[0], x.shape[1], *out)
    return x[(slice(None), slice(None), *(slice(p, p + s) for p, s in zip(padding, space)))]


def _np_conv_weight_grad(x, g, like, stride=1, padding=0, dilation=1, groups=1, algorithm="auto", precision=None):
    n = x.ndim - 2
    stride, padding, dilation = _np_settings(n, stride, padding, dilation)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    w = np.zeros(_grouped(like, n, groups).shape, np.result_type(x, g))
    out, batch = g.shape[2:], x.shape[0]
    area = int(np.prod(out))
    g = g.reshape(batch, groups, w.shape[1], area)
    for at, pixels in _offsets(w.shape[3:], out, stride, dilation):
        w[(..., *at)] = np.einsum("ngcp,ngop->goc", x[pixels].reshape(batch, groups, w.shape[2], area), g)
    return w.reshape(like.shape)


def _uniform(*shapes):
    return lambda r: tuple(None if s is None else r.uniform(-1, 1, s) for s in shapes)


conv.reference(np_conv)
conv.cases(
    Case(_uniform((2, 3, 7, 6), (4, 3, 3, 2))),
    Case(_uniform((2, 4, 7, 6), (2, 3, 2, 3, 3)), {"stride": 2, "padding": (1, 2), "dilation": (1, 2), "groups": 2}),
    Case(_uniform((1, 3, 9), (17, 3, 3)), {"stride": 3, "padding": 1}),
    Case(_uniform((2, 5, 6, 6), (5, 1, 1, 3, 3)), {"padding": 1, "groups": 5}),
    Case(_uniform((1, 2, 4, 3, 5), (3, 2, 2, 1, 3)), {"padding": (1, 0, 1)}),
    Case(_uniform((0, 2, 4, 4), (3, 2, 3, 3))),
    Case(_uniform((1, 1, 1, 1), (1, 1, 1, 1))),
    Case(_uniform((2, 4, 5, 5), (6, 2, 1, 1)), {"groups": 2}),
    Case(_uniform((2, 3, 7, 6), (17, 3, 3, 3)), {"padding": 1, "algorithm": "winograd4"}),
    Case(_uniform((1, 5, 3, 5), (4, 5, 3, 3)), {"padding": (0, 2), "algorithm": "winograd2"}),
    Case(lambda r: (r.integers(-9, 9, (2, 3, 6, 5)) * 1.0, r.integers(-9, 9, (17, 3, 3, 3)) * 1.0),
         {"padding": 1, "precision": "bfloat16"}, grad=False),  # fmt: skip
)
conv_transposed.reference(_np_conv_transposed)
conv_transposed.cases(
    Case(_uniform((2, 4, 5, 4), (4, 3, 3, 2), None)),
    Case(
        _uniform((2, 6, 3, 3), (2, 3, 2, 3, 3), None), {"stride": 2, "padding": (1, 0), "groups": 2, "output_padding": (1, 0)}
    ),
    Case(_uniform((1, 4, 5), (4, 3, 3), None), {"stride": 3, "padding": 2, "dilation": 2}),
    Case(_uniform((2, 4, 3, 3), (4, 3, 3, 3), (2, 3, 8, 7)), {"stride": 3, "padding": 1}),
    Case(_uniform((0, 4, 3, 3), (4, 3, 3, 3), None)),
    Case(_uniform((1, 4, 5, 3), (4, 3, 3, 3), (1, 3, 5, 3)), {"padding": 1, "algorithm": "winograd4"}),
    Case(_uniform((1, 4, 6, 5), (4, 3, 3, 3), None), {"padding": (0, 3), "algorithm": "winograd2"}),
    Case(_uniform((1, 1, 1), (1, 1, 1), None)),
)
conv_weight_grad.reference(_np_conv_weight_grad)
conv_weight_grad.cases(
    Case(_uniform((2, 3, 7, 6), (2, 4, 5, 5), (4, 3, 3, 2))),
    Case(
        _uniform((2, 4, 7, 6), (2, 6, 4, 3), (2, 3, 2, 3, 3)), {"stride": 2, "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    ),
    Case(_uniform((1, 3, 9), (1, 17, 3), (17, 3, 3)), {"stride": 3, "padding": 1}),
    Case(_uniform((0, 3, 5), (0, 4, 3), (4, 3, 3))),
    Case(_uniform((2, 3, 7, 6), (2, 17, 7, 6), (17, 3, 3, 3)), {"padding": 1, "algorithm": "winograd4"}),
    Case(_uniform((1, 5, 3, 5), (1, 4, 1, 7), (4, 5, 3, 3)), {"padding": (0, 2), "algorithm": "winograd2"}),
)
conv_bias.reference(lambda x, w, b, **a: np_conv(x, w, **a) + b.reshape(1, -1, *(1,) * (x.ndim - 2)))
conv_bias.cases(
    Case(_uniform((2, 3, 7, 6), (4, 3, 3, 2), (1, 4, 1, 1)), {"padding": 1}),
    Case(_uniform((2, 4, 7), (2, 2, 2, 3), (4,)), {"groups": 2}),
    Case(_uniform((2, 3, 5, 6), (4, 3, 3, 3), (4,)), {"padding": 1, "algorithm": "winograd4"}),
)
