"""How a convolution and both its gradients are computed: the strategies of each of the three, and the choice among them.

All three are one relation of three arrays: results = the convolution of image by filters. `conv` computes the results from the
other two, `conv_transposed` the image, `conv_weight_grad` the filters. In: a `Convolution`. Out: launches of the first strategy
in `RESULTS`, `IMAGE` or `FILTERS` that fits: the special ones come first, and products of windows, which always fit, last.
Which one it is changes no bit, except for Winograd's, which the graph's node has to ask for.

N batch, C channels, O output channels, G groups, S spatial extents of the image, P of the output, K of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

from tengen import kernels
from tengen.base.dtype import float32, int8, int16, int32, uint8
from tengen.base.record import record
from tengen.ir.types import Dim
from tengen.kernels import contraction, convolution, numerics
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.lowering import product as product_of
from tengen.kernels.source import At, Literal, given, moved
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import Expr, as_int, equal
from tengen.ops.attributes import Algorithm
from tengen.ops.contract import in_dtype
from tengen.ops.conv_parts import (
    add_axis,
    array,
    beside,
    by_role,
    dense_image,
    filter_parts,
    grouped,
    image_parts,
    part,
    windows,
)

if TYPE_CHECKING:
    from tengen.kernels.contraction.formats import DotFormat
    from tengen.kernels.convolution.few_channels import Window
    from tengen.kernels.convolution.few_outputs import Sizes


@record(frozen=True)
class Convolution:
    """A convolution, or a gradient of one, that is to be computed.

    Attributes:
        image: (N, C, *S). filters: (O, C/G, *K) or (G, O/G, C/G, *K). results: (N, O, *P). One of the three is computed from
            the other two. stride, padding, dilation: of each spatial axis.
        algorithm: "direct", "winograd2" or "winograd4", or an extent that is the position of the word in `WORDS`.
        precision: of the products, as of `matmul`.
        epilogue: makes what is stored of the results; None: a cast.
    """

    lo: Lowering
    image: Array
    filters: Array
    results: Array
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: Dim
    algorithm: str | Expr = "direct"
    precision: str = "highest"
    epilogue: Any = None

    @property
    def format(self) -> DotFormat:
        """How products are stored and multiplied."""
        return contraction.formats.dot_format(self.image.dtype, self.precision, self.filters.dtype, self.lo.target)

    @property
    def n(self) -> int:
        """How many spatial axes there are."""
        return len(self.stride)

    @property
    def kernel(self) -> list[int]:
        """The spatial extents of the filters, in two dimensions; 0 where one is open."""
        return [as_int(d) or 0 for d in self.filters.shape[-2:]]

    @property
    def outputs(self) -> int:
        """The results of a Winograd tile along an axis."""
        assert isinstance(self.algorithm, str)
        return int(self.algorithm[-1])


@record(frozen=True)
class Strategy:
    """One way to compute a convolution.

    Attributes:
        name: for people. match: what `lower` needs, for a convolution that it fits (at least True); None where it does not fit.
        lower: launches what computes it.
    """

    name: str
    match: Callable[[Convolution], Any]
    lower: Callable[[Convolution, Any], None]


MOST_FLOAT_CHANNELS = 5  # channels of an image of integers, below which it is multiplied as float32
MOST_IN_FLOATS = 1 << 22  # of a sum of integers in float32
WORDS = get_args(Algorithm)
DIRECT, WINOGRAD2, WINOGRAD4 = (WORDS.index(word) for word in ("direct", "winograd2", "winograd4"))


def lower(strategies: Sequence[Strategy], c: Convolution) -> None:
    """Launches the first strategy that fits. Where the run's extents decide the algorithm, the program branches by them, and has the
    strategies of each."""
    if isinstance(c.algorithm, Expr):
        return _branch(strategies, c, c.algorithm, values(c.algorithm))
    for s in strategies:
        if (found := s.match(c)) is not None:
            return s.lower(c, found)


def values(e: Expr) -> list[int]:
    """The numbers that an expression which selects among literals may have."""
    if e.op == "select":
        return sorted({*values(e.args[1]), *values(e.args[2])})
    n = as_int(e)
    return [DIRECT, WINOGRAD2, WINOGRAD4] if n is None else [n]


def _branch(strategies: Sequence[Strategy], c: Convolution, number: Expr, words: Sequence[int]) -> None:
    first, *others = words
    one = replace(c, algorithm=WORDS[first])
    if not others:
        return lower(strategies, one)
    with c.lo.branch(equal(number, first)) as branches:
        lower(strategies, one)
        branches.otherwise()
        _branch(strategies, c, number, others)


# ---- what more than one of the three asks ------------------------------------------------------------------------------------


def _is_winograd(c: Convolution) -> bool | None:
    """Whether the node asks for Winograd's algorithm, whose bits are others."""
    return True if c.algorithm != "direct" else None


def _integer_tiles(c: Convolution) -> int | None:
    """The results of a tile along an axis, where integers of 8 bits are multiplied in tiles, which has the bits of a direct
    convolution: by a constant filter of 3x3."""
    small = c.image.dtype.size == 1 and c.filters.dtype is int8 and c.format.total is int32
    plain = c.n == 2 and set(c.stride) | set(c.dilation) == {1} and not grouped(c.groups) and c.filters.ndim == 4
    if not (small and plain and c.filters.constant and tuple(c.filters.shape[2:]) == (3, 3)):
        return None
    lo, (o, channels), (h, w) = c.lo, c.filters.shape[:2], c.results.shape[2:]
    there = lo.target is not None and lo.target.computes("dot2i") and lo.target.vector_bytes > int32.size
    return (convolution.winograd.pays_in_integers(channels, o, h, w, c.format.group) or None) if there else None


def _exact_in_floats(c: Convolution) -> bool:
    """Whether sums of integers of 8 bits are integers that float32 holds, with all sums on the way, so that products and sums of
    float32 are exact in any order; and the target has vectors of floats and an fma, but no instruction for products of four bytes,
    which is quicker. Half of what float32 holds is what `nearest_integer` takes."""
    largest = {int8: 128, uint8: 255}
    terms = as_int(product_of(c.filters.shape[-c.n - 1 :]))
    target = c.lo.target
    quicker = c.format.group > 2 and (target is None or target.computes(c.format.op, at_once=True))
    slow = target is not None and (target.vector_bytes <= float32.size or not target.computes("fma"))
    if c.format.total is not int32 or quicker or slow or terms is None or not {c.image.dtype, c.filters.dtype} <= set(largest):
        return False
    return terms * largest[c.image.dtype] * largest[c.filters.dtype] < MOST_IN_FLOATS


def _strips_in_groups(c: Convolution) -> Window | None:
    """The windows, where an image of few channels of integers is read in strips, and the target multiplies groups of them."""
    if c.n != 2 or grouped(c.groups) or c.filters.ndim != 4 or c.format.group == 1 or c.format.total is not int32:
        return None
    target, channels, kernel = c.lo.target, c.filters.shape[1], c.filters.shape[2:]
    there = target is None or (target.vector_bytes > int32.size and target.computes(c.format.op, at_once=c.format.group > 2))
    if not there or c.image.dtype.size > 1 or c.dilation[1] != 1 or (as_int(channels) or MOST_FLOAT_CHANNELS) >= MOST_FLOAT_CHANNELS:
        return None
    return convolution.few_channels.window(c.image, kernel, channels, c.stride, c.padding, c.dilation)


def _of_integers(c: Convolution) -> Callable[..., Expr]:
    """The epilogue of a sum of integers that was computed in float32."""
    return (lambda k, v, at: nearest_integer(v)) if c.epilogue is None else given(c.epilogue, nearest_integer)


def _strips_of_integers(c: Convolution) -> Window | None:
    """The windows, where an image of few channels is to be multiplied as float32: packed rows of so short runs cost more."""
    if c.n != 2 or grouped(c.groups) or c.filters.ndim != 4 or not _exact_in_floats(c):
        return None
    channels, kernel = c.filters.shape[1], c.filters.shape[2:]
    if (as_int(channels) or MOST_FLOAT_CHANNELS) >= MOST_FLOAT_CHANNELS:
        return None
    plain = Array("image", float32, c.image.shape, contiguous_strides(c.image.shape))
    return convolution.few_channels.window(plain, kernel, channels, c.stride, c.padding, c.dilation)


def _is_depthwise(c: Convolution) -> bool | None:
    """Whether there is one filter for each channel, in two dimensions: channels lie in the lanes, and nothing is packed."""
    return True if c.n == 2 and convolution.depthwise.fits(c.filters, c.groups) else None


def _strips(c: Convolution) -> Window | None:
    """The windows, where an image of few channels is read in strips that stay in L1: packed rows of so short sums would be
    copied once for each position of the filter."""
    if c.n != 2 or grouped(c.groups) or c.filters.ndim != 4 or c.format.group > 1:
        return None
    channels, kernel = c.filters.shape[1], c.filters.shape[2:]
    return convolution.few_channels.window(c.image, kernel, channels, c.stride, c.padding, c.dilation)


def _few_outputs(c: Convolution, filters: Array, out: Array, before: Sequence[Dim]) -> Sizes | None:
    """The sizes, where there are so few output channels that pixels fill vectors better than they do. filters: (*K, C, O).
    before: pixels in front of the image at which the first window begins."""
    if max(c.stride) > 1 or grouped(c.groups) or c.format.group > 1 or out.ndim != 4 or None in map(as_int, before):
        return None
    return convolution.few_outputs.sizes(c.lo, filters, out, c.dilation)


def _same(a: Dim, b: Dim) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


# ---- results: the convolution ------------------------------------------------------------------------------------------------


def _winograd(c: Convolution, found) -> None:
    image = convolution.halo.image(c.lo, c.image)
    convolution.winograd.winograd(c.lo, image, c.filters, c.results, c.outputs, c.padding, c.epilogue)  # type: ignore[arg-type]  # numbers here


def _winograd_of_integers(c: Convolution, outputs: int) -> None:
    image, pairs = convolution.halo.image(c.lo, c.image), contraction.formats.dot_format(int16, "int32")
    convolution.winograd.winograd(c.lo, image, c.filters, c.results, outputs, c.padding, c.epilogue, format=pairs)  # type: ignore[arg-type]  # numbers here


def _by_strips_of_integers(c: Convolution, window: Window) -> None:
    x, w = (in_dtype(c.lo, a, float32) for a in (c.image, c.filters))
    convolution.few_channels.convolve(c.lo, x, w, c.results, window, _of_integers(c))


def _by_strips_in_groups(c: Convolution, window: Window) -> None:
    convolution.few_channels_groups.convolve(c.lo, c.image, c.filters, c.results, window, c.epilogue, c.format)


def _depthwise(c: Convolution, found) -> None:
    phases = convolution.depthwise.convolution(c.kernel, c.padding, c.dilation, c.results.shape[2:])  # type: ignore[arg-type]  # numbers here
    x = convolution.halo.image(c.lo, c.image)
    if convolution.depthwise_bytes.fits(c.lo, x, c.results, c.format):
        w = convolution.depthwise.packed_filter(c.lo, c.filters)
        return convolution.depthwise_bytes.depthwise_bytes(c.lo, x, w, c.results, phases[0], c.stride, c.epilogue, c.format)  # type: ignore[arg-type]  # numbers here
    floats = _exact_in_floats(c)
    w = convolution.depthwise.packed_filter(c.lo, in_dtype(c.lo, c.filters, float32) if floats else c.filters)
    epilogue, compute = (_of_integers(c), float32) if floats else (c.epilogue, c.format.total)
    convolution.depthwise.stencil(c.lo, x, w, c.results, phases, c.stride, (1, 1), epilogue, compute=compute)  # type: ignore[arg-type]  # numbers here


def _by_role(c: Convolution) -> Array:
    """The filters as ([G], *K, C, O)."""
    f = filter_parts(c.filters, c.n, c.groups)
    return array(c.filters, [f["g"], f["k"], f["c"], f["o"]])


def _by_pixels(c: Convolution, sizes: Sizes) -> None:
    before = [as_int(p) or 0 for p in c.padding]
    out, w = c.results, _by_role(c)
    convolution.few_outputs.few_outputs(c.lo, sizes, c.image, w, out, before, c.dilation, c.epilogue, "conv")


def _by_strips(c: Convolution, window: Window) -> None:
    convolution.few_channels.convolve(c.lo, c.image, c.filters, c.results, window, c.epilogue)


def _by_windows(c: Convolution, found) -> None:
    """out[g, (n, *p), o] = the sum over (*k, c) of window[g, (n, *p), (*k, c)] * filter[g, (*k, c), o]."""
    n, f, y = c.n, filter_parts(c.filters, c.n, c.groups), image_parts(c.results, c.groups)
    x, first = dense_image(c.lo, c.image, c.padding, c.filters, c.groups)
    parts = list(by_role(x, c.results.shape[2:], f["k"][0], c.stride, c.dilation, c.groups))
    a, border = windows(x, parts, first, not any(first))
    in_image = partial(_in_image, n, c.groups, f["o"][0][0])
    contraction.contract.contract(
        c.lo, a, _by_role(c), array(c.results, [y["g"], y["p"], y["c"]]), g=int(grouped(c.groups)), m=n + 1, k=n + 1, n=1,
        epilogue=None if c.epilogue is None else moved(c.epilogue, in_image), name="conv", border=border, format=c.format,
    )  # fmt: skip


def _in_image(n: int, groups: Dim, per_group: Dim, at: At) -> At:
    """Coordinates of the contraction, ([g], n, *p, o), as those of the image, (n, c, *p)."""
    g, rest = (at.coords[0], at.coords[1:]) if grouped(groups) else (0, at.coords)
    batch, space, o = rest[0], rest[1:-1], rest[-1]
    channel = o + g * per_group if grouped(groups) else o
    vec = None
    if at.vec is not None:
        j = at.vec - (grouped(groups))
        vec = 1 if j in (-1, n + 1) else 0 if j == 0 else j + 1
    return At((batch, channel, *space), vec, at.count)


RESULTS = (
    Strategy("winograd", _is_winograd, _winograd),
    Strategy("winograd of integers", _integer_tiles, _winograd_of_integers),
    Strategy("few channels in groups", _strips_in_groups, _by_strips_in_groups),
    Strategy("few channels of integers", _strips_of_integers, _by_strips_of_integers),
    Strategy("depthwise", _is_depthwise, _depthwise),
    Strategy("few outputs", lambda c: _few_outputs(c, _by_role(c), c.results, c.padding), _by_pixels),
    Strategy("few channels", _strips, _by_strips),
    Strategy("windows", lambda c: True, _by_windows),
)

# ---- image: the transposed convolution ---------------------------------------------------------------------------------------


def _winograd_image(c: Convolution, found) -> None:
    before = tuple(2 - p for p in c.padding)
    y, w = convolution.halo.image(c.lo, c.results), _exchanged(c.filters)
    convolution.winograd.winograd(c.lo, y, w, c.image, c.outputs, before, None, "conv_transposed")  # type: ignore[arg-type]  # numbers here


def _exchanged(w: Array) -> Array:
    """The 3x3 filter with which a convolution transposes one with `w`: channels exchanged, turned by half."""
    o, c, i, j = w.strides
    return Array(w.id, w.dtype, (w.shape[1], w.shape[0], *w.shape[2:]), (c, o, -1 * i, -1 * j), w.offset + 2 * i + 2 * j)


def _depthwise_image(c: Convolution, found) -> None:
    phases = convolution.depthwise.transpose(c.kernel, c.stride, c.padding, c.dilation, c.image.shape[2:])  # type: ignore[arg-type]  # numbers here
    w, y = convolution.depthwise.packed_filter(c.lo, c.filters), convolution.halo.image(c.lo, c.results)
    convolution.depthwise.stencil(c.lo, y, w, c.image, phases, (1, 1), c.stride, None, "depthwise_transposed")  # type: ignore[arg-type]  # numbers here


def _is_few_channels_image(c: Convolution) -> bool | None:
    """Whether a strided convolution of an image of few channels is transposed: pixels of the image lie in the lanes."""
    if c.n != 2 or max(c.stride) == 1 or grouped(c.groups) or c.filters.ndim != 4 or c.format.group > 1:
        return None
    fits = convolution.few_channels_transposed.fits
    return True if fits(c.results, c.filters, c.image, c.stride, c.padding, c.dilation) else None


def _few_channels_image(c: Convolution, found) -> None:
    geometry = (c.stride, c.padding, c.dilation)
    convolution.few_channels_transposed.transposed(c.lo, c.results, c.filters, c.image, *geometry, "conv_transposed")


def _is_strided(c: Convolution) -> bool | None:
    """Whether there are strides, and the filter's extents are known: then each phase of the pixels is a dense product, of only
    the positions of the filter that meet it."""
    return True if max(c.stride) > 1 and None not in map(as_int, c.filters.shape[-c.n :]) else None


def _by_phases(c: Convolution, found) -> None:
    """A strided transposed convolution as dense contractions, one for each phase of the image's pixels."""
    lo, w, out, stride, n = c.lo, c.filters, c.image, c.stride, c.n
    f = filter_parts(w, n, c.groups)
    kernel = [as_int(d) or 0 for d in f["k"][0]]
    sides = zip(kernel, stride, c.padding, c.dilation)
    taps = [[convolution.depthwise.reached(*args, phase) for phase in range(args[1])] for args in sides]
    y = convolution.halo.image(lo, c.results)
    zeros = beside(out, stride, taps)
    if not zeros and any(not phase for axis in taps for phase in axis):
        kernels.pointwise.pointwise(lo, [Literal(0, out.dtype)], [out], "zero")
    x, gradient = image_parts(out, c.groups), image_parts(y, c.groups)
    for phases in product(*(range(s) for s in stride)):
        chosen = [axis[p] for axis, p in zip(taps, phases)]
        if not all(chosen):
            continue
        m, k, filter_k, place = part([y.shape[0]], y.strides[:1]), part(), part(), part([out.shape[0]], out.strides[:1])
        at_w, at_out, begins = w.offset, out.offset, []
        for i, t in enumerate(chosen):
            st, ws, os_ = y.strides[i + 2], f["k"][1][i], out.strides[i + 2]
            (first, position), (second, other) = t[0], t[1] if len(t) > 1 else t[0]
            add_axis(m, (out.shape[i + 2] + (stride[i] - 1 - phases[i])) // stride[i], st, (i, 1))
            add_axis(k, len(t), (second - first) * st, (i, second - first))
            add_axis(filter_k, len(t), (other - position) * ws)
            add_axis(place, m[0][-1], stride[i] * os_)
            at_w, at_out = at_w + position * ws, at_out + phases[i] * os_
            begins.append(first)
        add_axis(k, gradient["c"][0][0], gradient["c"][1][0])
        a, border = windows(y, [gradient["g"], m, k], begins)
        contraction.contract.contract(
            lo, a, array(w, [f["g"], filter_k, f["o"], f["c"]], at_w), array(out, [x["g"], place, x["c"]], at_out),
            g=int(grouped(c.groups)), m=n + 1, k=n + 1, n=1, name="conv_transposed", border=border, format=c.format, zeros=zeros,
        )  # fmt: skip


def _reversed(c: Convolution) -> Array:
    """The filters as ([G], *K, O, C), each from its last position to its first: with them, and `_before` pixels of padding, a
    convolution of stride 1 is transposed by a convolution."""
    f = filter_parts(c.filters, c.n, c.groups)
    k, offset = f["k"][0], c.filters.offset
    for d, s in zip(k, f["k"][1]):
        offset = offset + (d - 1) * s
    return array(c.filters, [f["g"], part(k, [-1 * s for s in f["k"][1]]), f["o"], f["c"]], offset)


def _halo(c: Convolution) -> tuple[Dim, ...]:
    """By how many pixels a window is longer than one, along each axis."""
    k = filter_parts(c.filters, c.n, c.groups)["k"][0]
    return tuple(d * (kk - 1) for d, kk in zip(c.dilation, k))


def _before(c: Convolution) -> tuple[Dim, ...]:
    """Pixels in front of the results at which the first window of the transposed convolution begins."""
    return tuple(h - p for h, p in zip(_halo(c), c.padding))


def _by_pixels_image(c: Convolution, sizes: Sizes) -> None:
    before, w = [as_int(b) or 0 for b in _before(c)], _reversed(c)
    run = convolution.few_outputs.few_outputs
    run(c.lo, sizes, c.results, w, c.image, before, c.dilation, None, "conv_transposed")


def _by_windows_image(c: Convolution, found) -> None:
    """image[g, (n, *s), c] = the sum over (*k, o) of window[g, (n, *s), (*k, o)] * reversed filter[g, (*k, o), c], over windows
    of the results; where these are strided, of a copy that is spread out by the strides."""
    n, out, y, before = c.n, c.image, c.results, _before(c)
    f = filter_parts(c.filters, n, c.groups)
    extents = tuple(s + h for s, h in zip(out.shape[2:], _halo(c)))
    if max(c.stride) > 1 or (grouped(c.groups) and as_int(f["c"][0][0]) == 1):
        y, before = convolution.halo.padded(c.lo, y, before, extents, c.stride), (0,) * n
    else:
        y = convolution.halo.image(c.lo, y)
    inside = all(as_int(b) == 0 and _same(e, p) for b, e, p in zip(before, extents, y.shape[2:]))
    parts = list(by_role(y, out.shape[2:], f["k"][0], (1,) * n, c.dilation, c.groups))
    a, border = windows(y, parts, [0 - b for b in before], inside)
    x = image_parts(out, c.groups)
    contraction.contract.contract(
        c.lo, a, _reversed(c), array(out, [x["g"], x["p"], x["c"]]), g=int(grouped(c.groups)), m=n + 1, k=n + 1, n=1,
        name="conv_transposed", border=border, format=c.format,
    )  # fmt: skip


IMAGE = (
    Strategy("winograd", _is_winograd, _winograd_image),
    Strategy("depthwise", _is_depthwise, _depthwise_image),
    Strategy("few channels", _is_few_channels_image, _few_channels_image),
    Strategy("phases", _is_strided, _by_phases),
    Strategy("few outputs", lambda c: _few_outputs(c, _reversed(c), c.image, _before(c)), _by_pixels_image),
    Strategy("windows", lambda c: True, _by_windows_image),
)

# ---- filters: the gradient of the filter -------------------------------------------------------------------------------------


def _winograd_filters(c: Convolution, found) -> None:
    images = convolution.halo.image(c.lo, c.image), convolution.halo.image(c.lo, c.results)
    run = convolution.winograd_weights.winograd_weights
    run(c.lo, *images, c.filters, c.outputs, c.padding, "conv_weight_grad")  # type: ignore[arg-type]  # numbers here


def _is_depthwise_in_chunks(c: Convolution) -> bool | None:
    """Whether there is one filter for each channel, and rows of results are shorter than a chunk: chunks are whole rows."""
    columns = as_int(c.results.shape[-1])
    short = columns is not None and 0 < columns < numerics.CHUNK_TERMS
    return True if short and _is_depthwise(c) else None


def _depthwise_filters(c: Convolution, found) -> None:
    out = c.filters
    taps = convolution.depthwise.convolution(c.kernel, c.padding, c.dilation, c.results.shape[2:])[0].taps  # type: ignore[arg-type]  # numbers here
    flat = Array(out.id, out.dtype, (len(taps), out.shape[0]), (out.strides[-1], out.strides[0]), out.offset)
    images = convolution.halo.image(c.lo, c.image), convolution.halo.image(c.lo, c.results)
    convolution.depthwise.stencil_weights(c.lo, *images, flat, taps, c.stride)  # type: ignore[arg-type]  # numbers here


def _strips_of_chunks(c: Convolution) -> Window | None:
    """The windows, where strips of the image are read and a strip has room for a chunk of rows of results."""
    window, size = _strips(c), c.filters.dtype.compute.size
    return window if window is not None and convolution.few_channels_weights.fits(c.results, window, size) else None


def _by_strips_filters(c: Convolution, window: Window) -> None:
    out = c.filters.permute((2, 3, 1, 0))
    convolution.few_channels_weights.weights(c.lo, c.image, c.results, out, window, "conv_weight_grad")


def _by_windows_filters(c: Convolution, found) -> None:
    """filter[g, (*k, c), o] = the sum over (n, *p) of window[g, (*k, c), (n, *p)] * results[g, (n, *p), o]."""
    n, out, g = c.n, c.filters, c.results
    x, first = dense_image(c.lo, c.image, c.padding, out, c.groups)
    f, y = filter_parts(out, n, c.groups), image_parts(g, c.groups)
    group, pixels, window = by_role(x, g.shape[2:], f["k"][0], c.stride, c.dilation, c.groups)
    a, border = windows(x, [group, window, pixels], first, not any(first))
    contraction.contract.contract(
        c.lo, a, array(g, [y["g"], y["p"], y["c"]]), array(out, [f["g"], f["k"], f["c"], f["o"]]), g=int(grouped(c.groups)),
        m=n + 1, k=n + 1, n=1, name="conv_weight_grad", border=border, format=c.format,
    )  # fmt: skip


FILTERS = (
    Strategy("winograd", _is_winograd, _winograd_filters),
    Strategy("depthwise", _is_depthwise_in_chunks, _depthwise_filters),
    Strategy("few channels", _strips_of_chunks, _by_strips_filters),
    Strategy("windows", lambda c: True, _by_windows_filters),
)
