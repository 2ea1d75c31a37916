"""Batching rules: how a call of an op for many examples becomes one call for all of them (`vmap`).

In: the operands of a call, where those that differ by example have the examples along axis 0. Out: the results, all with the
examples along axis 0. `RULES` names the rule of each primitive; elementwise ops broadcast. An op without one is called for one example
after the other, which is right for every op, and slower.

By the numerics contract no result depends on what else is computed beside it, so the bits of each example are those of a call
for that example alone. Where a rule could not keep that (filters of each example by Winograd's algorithm, which knows no
groups), it answers None, and the examples are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.dtype import int64
from tengen.base.errors import ShapeError
from tengen.ops.creation import arange
from tengen.ops.define import REGISTRY, Op, broadcast_shapes, dispatch
from tengen.ops.shape import broadcast_to, permute, reshape

Whole = Sequence[Any]  # operands: tensors, or None for one that is absent


def again(op: Op, xs: Sequence[Any], attrs: dict[str, Any], **changed: Any) -> Any:
    """The same call with other operands and some other attributes. attrs: canonical."""
    given = {"axis": attrs.get("axes"), **attrs, **changed}  # reductions name their axes `axis` when they are called
    return dispatch.run(op, tuple(xs), tuple(given[name] for name in op.attrs))


def one_by_one(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """The calls for the examples one after the other: what is right for every op."""
    if not isinstance(size, int) or not size:
        what = "no example" if size == 0 else f"{size} examples, an extent that is open"
        raise ShapeError(f"vmap has no rule for {op.name} and computes one example after the other, which it cannot for {what}")
    made = [again(op, [x[i] if b else x for x, b in zip(xs, batched)], attrs) for i in range(size)]
    stack = REGISTRY["stack"].call
    if isinstance(made[0], tuple):
        return tuple(stack(list(some)) for some in zip(*made))
    return stack(made)


def everywhere(x: Any, is_batched: bool, size: Any) -> Any:
    """An operand with the examples along axis 0, also where it is the same for all."""
    return x if is_batched or x is None else broadcast_to(x, (size, *x.shape))


def _all(xs: Whole, batched: Sequence[bool], size: Any) -> list[Any]:
    return [everywhere(x, b, size) for x, b in zip(xs, batched)]


def _ndims(xs: Whole, batched: Sequence[bool]) -> list[int]:
    """The numbers of axes of one example's operands."""
    return [-1 if x is None else x.ndim - b for x, b in zip(xs, batched)]


def _wide(x: Any, is_batched: bool, ndim: int) -> Any:
    """An operand with unit axes behind that of the examples, so that it broadcasts as one of `ndim` axes does."""
    if x is None or not is_batched or x.ndim - 1 == ndim:
        return x
    return reshape(x, (x.shape[0], *(1,) * (ndim - x.ndim + 1), *x.shape[1:]))


# ---- families: a rule is (op, operands, which of them are batched, how many examples, canonical attributes) -> results ----


def broadcasting(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Operands that broadcast against each other."""
    ndim = max(_ndims(xs, batched))
    return again(op, [_wide(x, b, ndim) for x, b in zip(xs, batched)], attrs)


def as_it_is(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """An op of one operand that works on its last axes, or on each element."""
    return again(op, xs, attrs)


def _axes_shifted(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """A reduction of the same axes, each one further back."""
    return again(op, xs, attrs, axis=tuple(a + 1 for a in attrs["axes"]))


def _axis_shifted(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """An op along one axis, which is one further back. A 0-d example is a line of one element."""
    xs = _all(xs, batched, size)
    lines = [reshape(x, (*x.shape, 1)) if x.ndim == 1 else x for x in xs]
    axis = attrs["axis"]
    out = again(op, lines, attrs, axis=axis + 1 if isinstance(axis, int) and axis >= 0 else axis)
    if all(x is line for x, line in zip(xs, lines)):
        return out
    flat = tuple(reshape(o, (size,)) for o in (out if isinstance(out, tuple) else (out,)))
    return flat if isinstance(out, tuple) else flat[0]


def _images(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """The examples' images are one long batch of images."""
    xs = _all(xs, batched, size)
    n = xs[0].shape[1]
    out = again(op, [reshape(x, (size * n, *x.shape[2:])) for x in xs], attrs)
    return reshape(out, (size, n, *out.shape[1:]))


def _attention(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Leading axes broadcast."""
    ndim = max(_ndims(xs, batched))
    return again(op, [_wide(x, b, ndim) for x, b in zip(xs, batched)], attrs)


def _attention_int(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Leading axes broadcast; examples with scales of their own are computed one after the other."""
    if any(batched[3:]):
        return None
    ndim = max(_ndims(xs[:3], batched))
    return again(op, [*(_wide(x, b, ndim) for x, b in zip(xs[:3], batched)), *xs[3:]], attrs)


def _matrices(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Stacks of matrices (of the order of their rows: a line for each matrix), whose leading axes broadcast."""
    lead = max(n - (1 if i in op.own else 2) for i, n in enumerate(_ndims(xs, batched)))
    return again(op, [_wide(x, b, lead + (1 if i in op.own else 2)) for i, (x, b) in enumerate(zip(xs, batched))], attrs)


def _lu_solve(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """The factors are those of every matrix."""
    some = any(batched[:3])
    full = [everywhere(x, b, size) if some else x for x, b in zip(xs[:3], batched)]
    return _matrices(op, [*full, xs[3]], [some] * 3 + [batched[3]], size, attrs)


def _checked(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return again(op, [everywhere(xs[0], batched[0], size), everywhere(xs[1], batched[1], size)], attrs)


def _attention_grad(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Leading axes are those of the result, which has them all; the sums are numbers of a query, so they have an axis less."""
    full, ndim = _all(xs, batched, size), xs[6].ndim - batched[6]
    sums = (1, 7)
    return again(op, [x if i in sums else _wide(x, True, ndim) for i, x in enumerate(full)], attrs)


# ---- views and shapes --------------------------------------------------------------------------------------------------


def _reshape(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return reshape(xs[0], (size, *attrs["shape"]))


def _strided(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """The vectors of all examples as one: each begins as many elements further as one has."""
    n = xs[0].shape[1]
    return op.call(reshape(xs[0], (-1,)), (size, *attrs["sizes"]), (n, *attrs["strides"]), attrs["offset"])


def _permute(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return permute(xs[0], (0, *(a + 1 for a in attrs["axes"])))


def _broadcast_to(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return broadcast_to(_wide(xs[0], True, len(attrs["shape"])), (size, *attrs["shape"]))


def _slice(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """A slice, its gradient, and the assignment to it: all examples."""
    named = {"starts": (0,), "sizes": (size,), "shape": (size,), "steps": (1,)}
    changed = {name: (*first, *attrs[name]) for name, first in named.items() if name in attrs}
    if op.name != "set_slice":
        return again(op, xs, attrs, **changed)
    value = _wide(xs[1], batched[1], len(attrs["starts"]))
    return again(op, [everywhere(xs[0], batched[0], size), value], attrs, **changed)


def _pad(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return again(op, xs, attrs, pad_width=((0, 0), *attrs["pad_width"]))


# ---- contractions ------------------------------------------------------------------------------------------------------


def _matmul(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Leading axes broadcast; a vector of each example is a matrix of one row or column."""
    ndims = _ndims(xs, batched)
    lead = max(0, *(n - 2 for n in ndims))
    full = []
    for i, (x, b, n) in enumerate(zip(xs, batched, ndims)):
        matrix = x.shape[b:] if n > 1 else (1, *x.shape[b:]) if i == 0 else (*x.shape[b:], 1)
        front = (size, *(1,) * (lead - max(n - 2, 0))) if b else ()
        full.append(x if (*front, *matrix) == tuple(x.shape) else reshape(x, (*front, *matrix)))
    turned = {f"transpose_{name}": attrs[f"transpose_{name}"] and n > 1 for name, n in zip("ab", ndims)}
    out = again(op, full, attrs, **turned)
    units = {out.ndim - 2 + i for i, n in enumerate(ndims) if n == 1}
    return reshape(out, tuple(d for i, d in enumerate(out.shape) if i not in units)) if units else out


def _linear_grouped(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Examples that share the weights are more rows."""
    return one_by_one(op, xs, batched, size, attrs) if any(batched[1:]) else again(op, xs, attrs)


def _channels(x: Any, size: Any) -> Any:
    """Images (examples, N, C, *S) as images whose channels are those of all examples, (N, examples * C, *S)."""
    x = permute(x, (1, 0, *range(2, x.ndim)))
    return reshape(x, (x.shape[0], size * x.shape[2], *x.shape[3:]))


def _filters(w: Any, size: Any, groups: int, space: int) -> Any:
    """Filters of each example as filters of so many times as many groups, (examples * G, O / G, C / G, *K)."""
    o = w.shape[-space - 2] if w.ndim == space + 4 else w.shape[1] // groups
    return reshape(w, (size * groups, o, *w.shape[-space - 1 :]))


def _convolution(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """With one filter for all, the examples are one batch of images; with a filter of each, they are groups of channels, where
    the algorithm is the direct one: it has the same bits for any number of groups."""
    space, groups = len(attrs["stride"]), attrs["groups"]
    weights = op.name == "conv_weight_grad"
    if weights and not (batched[0] or batched[1]):  # of the filter, only the type is used
        return everywhere(again(op, [*xs[:2], xs[2][0]], attrs), False, size)
    if not weights and not batched[1]:
        n = xs[0].shape[1 if batched[0] else 0]

        def long(i: int) -> Any:
            x = everywhere(xs[i], batched[i], size)
            return None if x is None else reshape(x, (size * n, *x.shape[2:]))

        out = again(op, [long(0), xs[1], *map(long, range(2, len(xs)))], attrs)
        return reshape(out, (size, n, *out.shape[1:]))
    if attrs.get("algorithm", "direct") != "direct":  # integers have no other
        return None
    full = _all(xs, batched, size)
    changed = {"groups": size * groups}
    if weights:
        like = xs[2].shape[batched[2] :]
        out = again(op, [_channels(full[0], size), _channels(full[1], size), _filters(full[2], size, groups, space)], attrs, **changed)
        return reshape(out, (size, *like))
    images = [None if x is None else _channels(x, size) for x in (full[0], *full[2:])]
    out = again(op, [images[0], _filters(full[1], size, groups, space), *images[1:]], attrs, **changed)
    out = reshape(out, (out.shape[0], size, out.shape[1] // size, *out.shape[2:]))
    return permute(out, (1, 0, *range(2, out.ndim)))


def _lstm(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Sequences of all examples are one batch, where all have the same weights."""
    if batched[1]:
        return None
    x, h, c = (everywhere(xs[i], batched[i], size) for i in (0, 2, 3))
    n = x.shape[2]
    steps = reshape(permute(x, (1, 0, 2, 3)), (x.shape[1], size * n, x.shape[3]))
    outs = again(op, [steps, xs[1], reshape(h, (size * n, h.shape[2])), reshape(c, (size * n, c.shape[2]))], attrs)
    return tuple(permute(reshape(o, (o.shape[0], size, n, o.shape[2])), (1, 0, 2, 3)) for o in outs)


# ---- indexing ----------------------------------------------------------------------------------------------------------


def _along_axis(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """gather and scatter; the source of scatter broadcasts to the index."""
    full = [_wide(x, b, xs[1].ndim - batched[1]) for x, b in zip(_all(xs, batched, size), (True,) * len(xs))]
    return again(op, full, attrs, axis=attrs["axis"] + 1)


def _own_indices(indices: Sequence[Any], batched: Sequence[bool], size: Any) -> tuple[list[Any], int]:
    """Indices of each example, behind one that names the example, and how many axes they have together."""
    ndim = max(_ndims(indices, batched))
    wide = [_wide(i, b, ndim) for i, b in zip(indices, batched)]
    return [reshape(arange(size, dtype=int64), (size, *(1,) * ndim)), *wide], ndim


def _index(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    axes, position = attrs["axes"], attrs["position"]
    *indices, x = xs
    if not any(batched[:-1]):
        return again(op, xs, attrs, axes=tuple(a + 1 for a in axes), position=position + 1)
    own, n = _own_indices(indices, batched[:-1], size)
    if not batched[-1]:
        out = again(op, [*own[1:], x], attrs)  # (*rest[:position], examples, *common, *rest[position:])
        return permute(out, (position, *(a for a in range(out.ndim) if a != position)))
    out = again(op, [*own, x], attrs, axes=(0, *(a + 1 for a in axes)), position=0)  # (examples, *common, *rest)
    common, rest = tuple(range(1, n + 1)), tuple(range(n + 1, out.ndim))
    return permute(out, (0, *rest[:position], *common, *rest[position:]))


def _index_put(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    axes, position = attrs["axes"], attrs["position"]
    *indices, x, value = xs
    shifted = tuple(a + 1 for a in axes)
    kept = [d for a, d in enumerate(x.shape[batched[-2] :]) if a not in axes]
    full = everywhere(x, batched[-2], size)
    if not any(batched[:-2]):
        n = max(i.ndim for i in indices)
        return again(op, [*indices, full, _wide(value, batched[-1], len(kept) + n)], attrs, axes=shifted, position=position + 1)
    own, n = _own_indices(indices, batched[:-2], size)
    common = broadcast_shapes(*(i.shape for i in own))[1:]
    value = broadcast_to(_wide(everywhere(value, batched[-1], size), True, len(kept) + n), (size, *kept[:position], *common, *kept[position:]))
    front = tuple(range(1 + position, 1 + position + n))
    value = permute(value, (0, *front, *(a for a in range(1, value.ndim) if a not in front)))
    return again(op, [*own, full, value], attrs, axes=(0, *shifted), position=0)


def _class_mask(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    label, like = _all(xs, batched, size)
    axis = attrs["axis"]
    return again(op, [label, like], attrs, axis=axis + 1 if axis >= 0 else axis)


def _searchsorted(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return None if batched[0] else again(op, xs, attrs)


def _lines_of_all(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Fourier transforms: the lines of all examples."""
    if batched[2]:
        return None
    parts = [everywhere(x, b, size) for x, b in zip(xs[:2], batched)]
    count, n = parts[0].shape[1:]
    made = again(op, [*(reshape(x, (size * count, n)) for x in parts), xs[2]], attrs)
    return tuple(reshape(y, (size, count, n)) for y in made)


def _fill(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    return broadcast_to(_wide(xs[0], True, len(attrs["shape"])), (size, *attrs["shape"]))


def _parts(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """Of operands that have one shape."""
    return again(op, _all(xs, batched, size), attrs)


_RULES: dict[Callable, str] = {  # rule -> the names of its ops
    as_it_is: (
        "astype copy one_hot real_part imag_part view_as_real view_as_complex last_diagonal on_diagonal stop_gradient windows windows_grad "
        "lu cholesky mirrored qr eigh eigvalsh svd svdvals geqrf"
    ),
    _axes_shifted: "sum mean prod max min all any",
    _axis_shifted: "cumsum cumprod sort argsort k_first concat",
    _images: "max_pool avg_pool avg_pool_grad max_pool_grad max_pool_gather",
    _attention: "attention",
    _attention_int: "attention_int",
    _attention_grad: "attention_grad",
    broadcasting: "complex quantize_linear dequantize_linear requantize_linear",
    _matrices: "triangular_solve ordered",
    _parts: "complex_lu complex_qr complex_hessenberg complex_bidiagonal general_eig complex_geqrf",
    _lu_solve: "lu_solve",
    _checked: "checked",
    _reshape: "reshape",
    _permute: "permute",
    _strided: "strided",
    _broadcast_to: "broadcast_to",
    _slice: "strided_slice slice_grad set_slice",
    _pad: "pad",
    _matmul: "matmul matmul_int",
    _linear_grouped: "linear_grouped",
    _convolution: "conv conv_transposed conv_weight_grad conv_int",
    _lstm: "lstm",
    _along_axis: "gather scatter",
    _index: "index",
    _index_put: "index_put",
    _class_mask: "class_mask",
    _searchsorted: "searchsorted",
    _fill: "fill",
    _lines_of_all: "dft",
}

RULES: dict[str, Callable] = {name: rule for rule, names in _RULES.items() for name in names.split()}


def batch(op: Op, xs: Whole, batched: Sequence[bool], size: Any, attrs: dict[str, Any]) -> Any:
    """The results of a call for all examples.

    Args:
        xs: the operands; None for one that is absent. batched: which of them have the examples along axis 0. size: how many
            examples. attrs: canonical, for one example.
    """
    rule = broadcasting if op.kind == "elementwise" else RULES.get(op.name)
    out = None if rule is None else rule(op, xs, batched, size, attrs)
    return one_by_one(op, xs, batched, size, attrs) if out is None else out
