"""What each op of Tengen's graphs is in ONNX: one function for each, entered in `WRITERS`, from the names of its inputs to those of its
outputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.dtype import DType, bool_, float32, int32, int64, promote
from tengen.base.errors import ArgumentError
from tengen.interop.onnx.defined import write_defined
from tengen.interop.onnx.writer import WRITERS, Writer, writes
from tengen.ir.graph import Graph, Node
from tengen.ops.define import REGISTRY, broadcast_shapes


def type_of(n: Node, i: int = 0):
    """The type of an input."""
    return n.inputs[i].type


def common(n: Node) -> DType:
    """The dtype in which a node computes: its operands', promoted, but for those whose dtype is their own (a condition)."""
    own = REGISTRY[n.op].own
    return functools.reduce(promote, (v.type.dtype for i, v in enumerate(n.inputs) if i not in own and v is not None))


def alike(w: Writer, n: Node, names: Any) -> list[str]:
    """The operands in one dtype: ONNX promotes nothing."""
    own, to = REGISTRY[n.op].own, common(n)
    return [x if i in own or type_of(n, i).dtype is to else w.cast(x, to) for i, x in enumerate(names)]


# -- elementwise -------------------------------------------------------------------------------------------------------------
DIRECT = {
    "relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "sub": "Sub", "neg": "Neg", "abs": "Abs", "sign": "Sign", "sqrt": "Sqrt",
    "reciprocal": "Reciprocal", "minimum": "Min", "maximum": "Max", "round": "Round", "floor": "Floor", "ceil": "Ceil", "exp": "Exp",
    "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "equal": "Equal", "less": "Less",
    "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "isnan": "IsNaN", "isinf": "IsInf", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot", "selu": "Selu", "hswish": "HardSwish", "mish": "Mish", "copy": "Identity",
    "stop_gradient": "Identity",
}  # fmt: skip
for _op, _name in DIRECT.items():
    WRITERS[_op] = lambda w, n, *x, name=_name: w.emit(name, *alike(w, n, x))

# Ops that are formulas: (writer, inputs, a maker of numbers of the first input's dtype) -> the name of the result
FORMULAS: dict[str, Callable[..., str]] = {
    "square": lambda e, k, x: e("Mul", x, x),
    "rsqrt": lambda e, k, x: e("Reciprocal", e("Sqrt", x)),
    "fma": lambda e, k, x, y, z: e("Add", e("Mul", x, y), z),
    "relu6": lambda e, k, x: e("Clip", x, k(0), k(6)),
    "silu": lambda e, k, x: e("Mul", x, e("Sigmoid", x)),
    "logsigmoid": lambda e, k, x: e("Neg", e("Softplus", e("Neg", x))),
    "trunc": lambda e, k, x: e("Mul", e("Sign", x), e("Floor", e("Abs", x))),
    "exp2": lambda e, k, x: e("Pow", k(2), x),
    "expm1": lambda e, k, x: e("Sub", e("Exp", x), k(1)),
    "log1p": lambda e, k, x: e("Log", e("Add", x, k(1))),
    "log2": lambda e, k, x: e("Mul", e("Log", x), k(1 / math.log(2))),
    "log10": lambda e, k, x: e("Mul", e("Log", x), k(1 / math.log(10))),
    "cbrt": lambda e, k, x: e("Mul", e("Sign", x), e("Pow", e("Abs", x), k(1 / 3))),
    "erfc": lambda e, k, x: e("Sub", k(1), e("Erf", x)),
    "hypot": lambda e, k, x, y: e("Sqrt", e("Add", e("Mul", x, x), e("Mul", y, y))),
    "not_equal": lambda e, k, x, y: e("Not", e("Equal", x, y)),
    "isfinite": lambda e, k, x: e("Not", e("Or", e("IsNaN", x), e("IsInf", x))),
    "prelu": lambda e, k, x, s: e("Where", e("Greater", x, k(0)), x, e("Mul", x, s)),
    "logaddexp": lambda e, k, x, y: e("Add", e("Max", x, y), e("Log", e("Add", k(1), e("Exp", e("Neg", e("Abs", e("Sub", x, y))))))),
}  # fmt: skip
for _op, _formula in FORMULAS.items():
    WRITERS[_op] = lambda w, n, *x, f=_formula: f(w.emit, lambda v: w.array(np.array(v, common(n).numpy)), *alike(w, n, x))


def truths(w: Writer, n: Node, names: Any, count: int | None = None) -> list[str]:
    """Operands as bools, the first `count` of them: numbers that are not 0 are true."""
    return [x if count is not None and i >= count or type_of(n, i).dtype is bool_ else w.cast(x, bool_) for i, x in enumerate(names)]


for _op, _name in (("logical_and", "And"), ("logical_or", "Or"), ("logical_xor", "Xor"), ("logical_not", "Not")):
    WRITERS[_op] = lambda w, n, *x, name=_name: w.emit(name, *truths(w, n, x))


@writes("where")
def where(w: Writer, n: Node, *operands: str) -> str:
    """Of bools too, which runtimes do not choose."""
    mask, x, y = alike(w, n, truths(w, n, operands, 1))
    if n.outputs[0].type.dtype is bool_:
        return w.emit("Or", w.emit("And", mask, x), w.emit("And", w.emit("Not", mask), y))
    return w.emit("Where", mask, x, y)


@writes("add", "mul")
def sum_or_product(w: Writer, n: Node, x: str, y: str) -> str:
    """Of bools they are "or" and "and"."""
    x, y = alike(w, n, (x, y))
    if type_of(n).dtype is bool_:
        return w.emit("Or" if n.op == "add" else "And", x, y)
    return w.emit("Add" if n.op == "add" else "Mul", x, y)


@writes("div")
def divide(w: Writer, n: Node, x: str, y: str) -> str:
    """Integers give float32."""
    if not common(n).is_float:
        return w.emit("Div", w.cast(x, float32), w.cast(y, float32))
    return w.emit("Div", *alike(w, n, (x, y)))


@writes("floor_div", "mod")
def divide_down(w: Writer, n: Node, x: str, y: str) -> str:
    """Rounded down: ONNX's Mod has the divisor's sign too, of integers."""
    x, y = alike(w, n, (x, y))
    if common(n).is_float:
        down = w.emit("Floor", w.emit("Div", x, y))
        return down if n.op == "floor_div" else w.emit("Sub", x, w.emit("Mul", down, y))
    rest = w.emit("Mod", x, y)
    return rest if n.op == "mod" else w.emit("Div", w.emit("Sub", x, rest), y)


@writes("pow")
def power(w: Writer, n: Node, x: str, y: str) -> str:
    """x to the power y."""
    return w.emit("Pow", *alike(w, n, (x, y)))


@writes("leaky_relu")
def leaky_relu(w: Writer, n: Node, x: str) -> str:
    """By its slope."""
    return w.emit("LeakyRelu", x, alpha=float(n.attrs["negative_slope"]))


@writes("elu")
def elu(w: Writer, n: Node, x: str) -> str:
    """By its alpha."""
    return w.emit("Elu", x, alpha=float(n.attrs["alpha"]))


@writes("hsigmoid")
def hsigmoid(w: Writer, n: Node, x: str) -> str:
    """relu6(x + 3) / 6."""
    return w.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@writes("gelu")
def gelu(w: Writer, n: Node, x: str) -> str:
    """By its formula: the operator came with opset 20."""
    k = lambda v: w.scalar(v, type_of(n))
    if n.attrs["approximate"] == "tanh":
        inner = w.emit("Add", x, w.emit("Mul", w.emit("Mul", w.emit("Mul", x, x), x), k(0.044715)))
        part = w.emit("Tanh", w.emit("Mul", inner, k(math.sqrt(2 / math.pi))))
    else:
        part = w.emit("Erf", w.emit("Mul", x, k(1 / math.sqrt(2))))
    return w.emit("Mul", w.emit("Mul", x, k(0.5)), w.emit("Add", part, k(1)))


@writes("astype")
def astype(w: Writer, n: Node, x: str) -> str:
    """Floats to integers: ONNX leaves open what is out of range."""
    return w.cast(x, n.outputs[0].type.dtype)


# -- shapes ------------------------------------------------------------------------------------------------------------------
@writes("reshape")
def reshape(w: Writer, n: Node, x: str) -> str:
    """One open extent is what is left; several are computed."""
    shape = n.outputs[0].type.shape
    opened = [d for d in shape if not isinstance(d, int)]
    if len(opened) == 1 and 0 not in shape:
        return w.emit("Reshape", x, w.array(np.array([d if isinstance(d, int) else -1 for d in shape], np.int64)))
    return w.emit("Reshape", x, w.shape(shape), allowzero=1 if 0 in shape else None)


@writes("permute")
def permute(w: Writer, n: Node, x: str) -> str:
    """Axes in another order."""
    return w.emit("Transpose", x, perm=list(n.attrs["axes"])) if n.attrs["axes"] else w.emit("Identity", x)


@writes("broadcast_to", "fill")
def expand(w: Writer, n: Node, x: str) -> str:
    """Repeated to a shape."""
    return w.emit("Expand", x, w.shape(n.outputs[0].type.shape))


@writes("strided_slice")
def strided_slice(w: Writer, n: Node, x: str) -> str:
    """starts, starts + step, ...: ends are one past the last, and for negative steps one before."""
    starts, sizes, steps = n.attrs["starts"], n.attrs["sizes"], n.attrs["steps"]
    shape = type_of(n).shape
    axes = [a for a in range(len(shape)) if not (starts[a] == 0 and steps[a] == 1 and sizes[a] == shape[a])]
    if not axes:
        return w.emit("Identity", x)
    ends = [starts[a] + (sizes[a] - 1) * steps[a] + (1 if steps[a] > 0 else -1) for a in axes]
    if any(steps[a] < 0 and not isinstance(e, int) for a, e in zip(axes, ends)):
        raise ArgumentError("an open axis that is turned round: its end may be -1, which counts from the end")
    ends = [-(1 << 31) if isinstance(e, int) and e < 0 else e for e in ends]
    known = lambda v: w.array(np.array(v, np.int64))
    return w.emit("Slice", x, w.shape([starts[a] for a in axes]), w.shape(ends), known(axes), known([steps[a] for a in axes]))


@writes("strided")
def strided(w: Writer, n: Node, x: str) -> str:
    """The elements at places that are known."""
    places = np.full((), n.attrs["offset"], np.int64)
    for size, step in zip(n.attrs["sizes"], n.attrs["strides"]):
        places = places[..., None] + step * np.arange(size)
    return w.emit("Gather", x, w.array(places), axis=0)


@writes("slice_grad")
def slice_grad(w: Writer, n: Node, x: str) -> str:
    """With steps of 1 it pads with zeros."""
    starts, steps, shape = n.attrs["starts"], n.attrs["steps"], n.outputs[0].type.shape
    if any(s != 1 for s in steps):
        return write_defined(w, n, x)[0]
    after = [e - s - d for e, s, d in zip(shape, starts, type_of(n).shape)]
    return w.emit("Pad", x, w.shape([*starts, *after]))


@writes("pad")
def pad(w: Writer, n: Node, x: str) -> str:
    """By pairs for each axis."""
    mode, widths = n.attrs["mode"], n.attrs["pad_width"]
    if mode == "circular":  # opset 19 has a mode for it, which runtimes do not have
        return write_defined(w, n, x)[0]
    pads = w.shape([*(a for a, _ in widths), *(b for _, b in widths)])
    return w.emit("Pad", x, pads, *([w.scalar(n.attrs["constant_value"], type_of(n))] if mode == "constant" else []), mode=mode)


@writes("concat")
def concat(w: Writer, n: Node, *x: str) -> str:
    """Along an axis."""
    return w.emit("Concat", *x, axis=n.attrs["axis"])


def count_up(w: Writer, n: Any, first: Any = 0) -> str:
    """first, first + 1, ... of n numbers, int64."""
    if isinstance(n, int) and isinstance(first, int):
        return w.array(np.arange(first, first + n))
    return w.emit("Range", w.number(first), w.number(first + n), w.number(1))


@writes("iota")
def iota(w: Writer, n: Node, start: str, step: str) -> str:
    """start + i step."""
    t = n.outputs[0].type
    numbers = w.cast(count_up(w, t.shape[0]), t.dtype)
    return w.emit("Add", w.emit("Mul", numbers, w.cast(step, t.dtype)), w.cast(start, t.dtype))


@writes("extent_op")
def extent_op(w: Writer, n: Node) -> str:
    """An extent as a number."""
    return w.cast(w.number(n.attrs["n"]), n.outputs[0].type.dtype)


# -- indexing ----------------------------------------------------------------------------------------------------------------
@writes("index")
def index(w: Writer, n: Node, *x: str) -> str:
    """Integer indices of one axis, or of several that broadcast together."""
    *at, source = x
    axes, position, ndim = n.attrs["axes"], n.attrs["position"], type_of(n, -1).ndim
    if len(at) == 1 and position == axes[0]:
        return w.emit("Gather", source, at[0], axis=axes[0])
    common, to_front, back = places_of(w, n, at, axes, position, ndim)
    made = w.emit("GatherND", w.emit("Transpose", source, perm=to_front), common)
    return w.emit("Transpose", made, perm=back)


def places_of(w: Writer, n: Node, at: list[str], axes: Any, position: int, ndim: int) -> tuple[str, list[int], list[int]]:
    """Indices of several axes as vectors; the order of axes in which these axes are first; and that from (indices' axes, other axes) to the
    indexed shape."""
    shape = broadcast_shapes(*(type_of(n, i).shape for i in range(len(at))))
    wide = [w.emit("Expand", w.cast(i, int64), w.shape(shape)) for i in at]
    last = w.array(np.array([-1], np.int64))
    rest, many = [a for a in range(ndim) if a not in axes], len(shape)
    others = list(range(many, many + len(rest)))
    order = [*others[:position], *range(many), *others[position:]]
    return w.emit("Concat", *(w.emit("Unsqueeze", i, last) for i in wide), axis=-1), [*axes, *rest], order


@writes("index_put")
def index_put(w: Writer, n: Node, *x: str) -> str:
    """A copy with other elements at these places."""
    *at, source, value = x
    axes, position, ndim = n.attrs["axes"], n.attrs["position"], type_of(n, -2).ndim
    common, to_front, order = places_of(w, n, at, axes, position, ndim)
    shape = broadcast_shapes(*(type_of(n, i).shape for i in range(len(at))))
    rest = [d for i, d in enumerate(type_of(n, -2).shape) if i not in axes]
    wide = w.emit("Expand", value, w.shape([*rest[:position], *shape, *rest[position:]]))
    updates = w.emit("Transpose", wide, perm=np.argsort(order).tolist())
    front = w.emit("Transpose", source, perm=to_front)
    made = w.emit("ScatterND", front, common, updates, reduction="add" if n.attrs["mode"] == "add" else None)
    return w.emit("Transpose", made, perm=np.argsort(to_front).tolist())


@writes("gather")
def gather(w: Writer, n: Node, x: str, at: str) -> str:
    """One element for each index."""
    return w.emit("GatherElements", x, w.cast(at, int64), axis=n.attrs["axis"])


@writes("scatter")
def scatter(w: Writer, n: Node, x: str, at: str, source: str) -> str:
    """One update for each index."""
    mode = n.attrs["mode"]
    if type_of(n, 2).shape != type_of(n, 1).shape:
        source = w.emit("Expand", source, w.shape(type_of(n, 1).shape))
    return w.emit("ScatterElements", x, w.cast(at, int64), source, axis=n.attrs["axis"], reduction=None if mode == "set" else mode)


@writes("one_hot")
def one_hot(w: Writer, n: Node, x: str) -> str:
    """1 at each index, 0 elsewhere."""
    t = n.outputs[0].type
    return w.emit("OneHot", x, w.number(t.shape[-1]), w.array(np.array([0, 1], t.dtype.numpy)))


@writes("tap_sum")
def tap_sum(w: Writer, n: Node, x: str, image: str | None, at: str, weight: str) -> str:
    """Weighted sums of pixels by their numbers; those below 0 are outside, and count as 0."""
    t = type_of(n, 2)
    if image is not None:
        return write_defined(w, n, x, image, at, weight)[0]
    one, zero = w.array(np.array([1], np.int64)), w.array(np.array([0], np.int64))
    weight = w.emit("Where", w.emit("Less", w.cast(at, int64), zero), w.scalar(0, type_of(n, 3)), weight)
    at = w.emit("Max", w.cast(at, int64), zero)
    if t.shape[0] == 1:  # (T, *Q) for all examples
        taps = w.emit("Gather", x, w.emit("Squeeze", at, zero), axis=2)
    else:
        count, channels = type_of(n).shape[:2]
        size: Any = math.prod(t.shape[1:])
        flat = w.emit("Reshape", at, w.shape([t.shape[0], 1, size]), allowzero=1 if size == 0 or t.shape[0] == 0 else None)
        flat = w.emit("Expand", flat, w.shape([count, channels, 1]))
        taps = w.emit("Reshape", w.emit("GatherElements", x, flat, axis=2), w.shape([count, channels, *t.shape[1:]]), allowzero=1)
    if type_of(n).dtype is not type_of(n, 3).dtype:  # an image of integers
        taps = w.cast(taps, type_of(n, 3).dtype)
    return w.emit("ReduceSum", w.emit("Mul", taps, w.emit("Unsqueeze", weight, one)), w.array(np.array([2], np.int64)), keepdims=0)


# -- reductions --------------------------------------------------------------------------------------------------------------
def reduction(op: str, widened: bool) -> Callable[..., str]:
    """Over axes; widened: in the dtype of the result, which for integers is another."""

    def write(w: Writer, n: Node, x: str) -> str:
        to = n.outputs[0].type.dtype
        x = w.cast(x, to) if widened and type_of(n).dtype is not to else x
        if not n.attrs["axes"]:
            return w.emit("Identity", x)
        return w.emit(op, x, w.array(np.array(n.attrs["axes"], np.int64)), keepdims=int(n.attrs["keepdims"]))

    return write


for _op, _name in (("sum", "ReduceSum"), ("mean", "ReduceMean"), ("prod", "ReduceProd"), ("max", "ReduceMax"), ("min", "ReduceMin")):
    WRITERS[_op] = reduction(_name, _op in ("sum", "mean", "prod"))


@writes("any", "all")
def truth(w: Writer, n: Node, x: str) -> str:
    """The largest or smallest of 0 and 1."""
    numbers = w.cast(w.cast(x, bool_), int32)
    return w.cast(reduction("ReduceMax" if n.op == "any" else "ReduceMin", False)(w, n, numbers), bool_)


@writes("argmax", "argmin")
def argument(w: Writer, n: Node, x: str) -> str:
    """Along one axis, or in the flattened tensor."""
    op, axes, keep = {"argmax": "ArgMax", "argmin": "ArgMin"}[n.op], n.attrs["axes"], n.attrs["keepdims"]
    if len(axes) == 1:
        return w.emit(op, x, axis=axes[0], keepdims=int(keep))
    if len(axes) != type_of(n).ndim:
        raise ArgumentError(f"axes {axes} of {type_of(n).ndim}")
    flat = w.emit(op, w.emit("Reshape", x, w.array(np.array([-1], np.int64))), axis=0, keepdims=0)
    return w.emit("Reshape", flat, w.array(np.array([1] * len(axes), np.int64))) if keep else flat


@writes("cumsum")
def cumsum(w: Writer, n: Node, x: str) -> str:
    """Running sums; integers in int64."""
    a = n.attrs
    x = w.cast(x, n.outputs[0].type.dtype)
    return w.emit("CumSum", x, w.array(np.array(a["axis"], np.int64)), exclusive=int(a["exclusive"]), reverse=int(a["reverse"]))


@writes("sort", "k_first")
def sort(w: Writer, n: Node, x: str) -> tuple[str, ...]:
    """In order along an axis, and where they come from."""
    axis = n.attrs["axis"]
    count = w.extent(n.outputs[0].type.shape[axis])
    return w.emit("TopK", x, count, count=2, axis=axis, largest=int(n.attrs["descending"]))


# -- contractions ------------------------------------------------------------------------------------------------------------
@writes("matmul")
def matmul(w: Writer, n: Node, x: str, y: str) -> str:
    """NumPy's, with the last two axes exchanged where it says so."""

    def turned(name: str, ndim: int) -> str:
        return w.emit("Transpose", name, perm=[*range(ndim - 2), ndim - 1, ndim - 2])

    x = turned(x, type_of(n).ndim) if n.attrs["transpose_a"] and type_of(n).ndim > 1 else x
    y = turned(y, type_of(n, 1).ndim) if n.attrs["transpose_b"] and type_of(n, 1).ndim > 1 else y
    return w.emit("MatMul", x, y)


def filters(w: Writer, n: Node, weight: str, groups: int) -> str:
    """A filter without an axis of groups."""
    shape = type_of(n, 1).shape
    if len(shape) == type_of(n).ndim:
        return weight
    shape = [shape[0] * shape[1], *shape[2:]]
    if weight in w.arrays:
        return w.array(w.arrays[weight].reshape(shape), f"{weight}_filter")
    return w.emit("Reshape", weight, w.shape(shape))


@writes("conv")
def conv(w: Writer, n: Node, x: str, weight: str, *bias: str) -> str:
    """A cross-correlation."""
    a = n.attrs
    kernel = filters(w, n, weight, a["groups"])
    pads = [*a["padding"]] * 2
    return w.emit("Conv", x, kernel, *bias, strides=list(a["stride"]), pads=pads, dilations=list(a["dilation"]), group=a["groups"])


@writes("conv_transposed")
def conv_transposed(w: Writer, n: Node, x: str, weight: str, like: str | None = None) -> str:
    """The transpose of a convolution."""
    a, more = n.attrs, list(n.attrs["output_padding"])
    if like is not None:
        kernel = type_of(n, 1).shape[-len(a["stride"]) :]
        sizes = zip(n.outputs[0].type.shape[2:], type_of(n).shape[2:], a["stride"], a["padding"], a["dilation"], kernel)
        more = [out - ((e - 1) * s - 2 * p + d * (k - 1) + 1) for out, e, s, p, d, k in sizes]
        if not all(isinstance(m, int) for m in more):
            raise ArgumentError("the size of its result is open")
    return w.emit(
        "ConvTranspose", x, filters(w, n, weight, a["groups"]), strides=list(a["stride"]), pads=[*a["padding"]] * 2,
        dilations=list(a["dilation"]), group=a["groups"], output_padding=more if any(more) else None,
    )  # fmt: skip


@writes("max_pool", "avg_pool")
def pool(w: Writer, n: Node, x: str) -> str:
    """The largest or the mean of each window."""
    a, space = n.attrs, type_of(n).shape[2:]
    if tuple(a["kernel_size"]) == tuple(space) and not any(a["padding"]):  # also where they are open
        return w.emit("GlobalMaxPool" if n.op == "max_pool" else "GlobalAveragePool", x)
    if not all(isinstance(k, int) for k in a["kernel_size"]):
        raise ArgumentError(f"a window of {a['kernel_size']}")
    how = {"kernel_shape": list(a["kernel_size"]), "strides": list(a["stride"]), "pads": [*a["padding"]] * 2}
    if n.op == "max_pool":
        return w.emit("MaxPool", x, **how)
    return w.emit("AveragePool", x, count_include_pad=int(a["mode"] == "average"), **how)


@writes("attention")
def attention(w: Writer, n: Node, q: str, k: str, v: str, mask: str | None = None) -> tuple[str, ...]:
    """softmax(scale q k.T + mask) v."""
    t, causal = type_of(n), n.attrs["causal"]
    queries, keys = t.shape[-2], type_of(n, 1).shape[-2]
    number = lambda value: w.scalar(value, t)
    perm = [*range(type_of(n, 1).ndim - 2), type_of(n, 1).ndim - 1, type_of(n, 1).ndim - 2]
    scores = w.emit("MatMul", w.emit("Mul", q, number(n.attrs["scale"])), w.emit("Transpose", k, perm=perm))
    seen = []  # bools: which keys each query sees
    if causal != "none":
        first, last = w.array(np.array([0], np.int64)), w.array(np.array([1], np.int64))
        rows = w.emit("Unsqueeze", count_up(w, queries, 0 if causal == "upper_left" else keys - queries), last)
        columns = w.emit("Unsqueeze", count_up(w, keys), first)
        seen.append(w.emit("Not", w.emit("Greater", columns, rows)))
    if mask is not None and type_of(n, 3).dtype is bool_:
        seen.append(mask)
    elif mask is not None:
        scores = w.emit("Add", scores, w.cast(mask, t.dtype))
        seen.append(w.emit("Not", w.emit("Equal", w.cast(mask, t.dtype), number(-math.inf))))
    both = None if not seen else seen[0] if len(seen) == 1 else w.emit("And", *seen)
    weights = w.emit("Softmax", scores if both is None else w.emit("Where", both, scores, number(-math.inf)), axis=-1)
    if both is not None:  # a query that sees no key has the result 0, and not NaN
        weights = w.emit("Where", both, weights, number(0))
    made = w.emit("MatMul", weights, v)
    if n.outputs[1] not in w.read:
        return made, ""
    shown = scores if both is None else w.emit("Where", both, scores, number(-math.inf))
    top = w.emit("ReduceMax", shown, w.array(np.array([-1], np.int64)), keepdims=1)
    top = w.emit("Where", w.emit("IsInf", top), number(0), top)
    total = w.emit("ReduceSum", w.emit("Exp", w.emit("Sub", shown, top)), w.array(np.array([-1], np.int64)), keepdims=1)
    return made, w.emit("Squeeze", w.emit("Add", w.emit("Log", total), top), w.array(np.array([-1], np.int64)))


@writes("lstm")
def lstm(w: Writer, n: Node, projected: str, weight: str, h0: str, c0: str) -> tuple[str, ...]:
    """ONNX's LSTM with its gates in another order; the input's part of the gates goes through unchanged."""
    t = type_of(n)
    hidden = type_of(n, 1).shape[1]
    if any(v in w.read for v in n.outputs[1:]):  # which ONNX's gives of the last step alone
        return write_defined(w, n, projected, weight, h0, c0)
    order = np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in (0, 3, 1, 2)])  # i, o, f, c of i, f, g, o
    through = w.array(np.eye(4 * hidden, dtype=t.dtype.numpy)[order][None])
    rows = w.emit("Unsqueeze", w.emit("Gather", weight, w.array(order), axis=0), w.array(np.array([0], np.int64)))
    first = [w.emit("Unsqueeze", x, w.array(np.array([0], np.int64))) for x in (h0, c0)]
    way = "reverse" if n.attrs["reverse"] else "forward"
    ys = w.emit("LSTM", projected, through, rows, "", "", *first, hidden_size=hidden, direction=way)
    ys, one = w.emit("Squeeze", ys, w.array(np.array([1], np.int64))), first[0]
    states = w.emit("Concat", *((ys, one) if n.attrs["reverse"] else (one, ys)), axis=0)
    return states, "", ""


@writes("dft")
def dft(w: Writer, n: Node, real: str, imaginary: str, roots: str) -> tuple[str, ...]:
    """DFT along the lines; its numbers are pairs."""
    known = lambda v: w.array(np.array(v, np.int64))
    pairs = w.emit("Concat", *(w.emit("Unsqueeze", x, known([2])) for x in (real, imaginary)), axis=2)
    made = w.emit("DFT", pairs, axis=1)
    made = made if n.attrs["scale"] == 1 else w.emit("Mul", made, w.scalar(n.attrs["scale"], type_of(n)))
    return tuple(w.emit("Gather", made, known(i), axis=2) for i in (0, 1))


# -- control flow ------------------------------------------------------------------------------------------------------------
def inner(w: Writer, body: Graph, names: list[str], ports: int, hint: str) -> tuple[Writer, list[str]]:
    """A writer for a body; its first inputs are ports of the body, the others values around it."""
    made = Writer(body, w)
    for i, v in enumerate(body.inputs):
        made.names[v] = made.fresh(f"{hint}_{v.name}") if i < ports else names[i]
    made.write_nodes()
    outs = [made.fresh(f"{hint}_out") for _ in body.outputs]
    for name, v in zip(outs, body.outputs):
        made.nodes.append(w.onnx.helper.make_node("Identity", [made.name(v)], [name], name=made.fresh(f"{name}_node")))
    return made, outs


def graph_proto(w: Writer, body: Graph, ports: int, outs: list[str], name: str) -> Any:
    """The GraphProto of a body."""
    ins = [w.port(w.name(v), v.type) for v in body.inputs[:ports]]
    return w.onnx.helper.make_graph(w.nodes, name, ins, [w.port(o, v.type) for o, v in zip(outs, body.outputs)])


@writes("cond")
def cond(w: Writer, n: Node, predicate: str, *operands: str) -> Any:
    """If: both branches read what is around them."""
    graphs = []
    for key in ("then", "otherwise"):
        body = n.attrs[key]
        made, outs = inner(w, body, list(operands), 0, key)
        graphs.append(graph_proto(made, body, 0, outs, w.fresh(key)))
    return w.emit("If", predicate, count=len(n.outputs), then_branch=graphs[0], else_branch=graphs[1])


@writes("scan")
def scan(w: Writer, n: Node, *operands: str) -> Any:
    """Scan over slices; a loop of a given length without slices counts."""
    a = n.attrs
    if a["keep"]:
        raise ArgumentError("a scan that keeps its states for a gradient")
    if not a["slices"]:
        return counted(w, n, *operands)
    body, ports = a["body"], a["carries"] + a["slices"]
    made, outs = inner(w, body, list(operands), ports, "scan")
    way = [int(a["reverse"])]
    return w.emit(
        "Scan", *operands[:ports], count=len(n.outputs), body=graph_proto(made, body, ports, outs, w.fresh("body")),
        num_scan_inputs=a["slices"], scan_input_directions=way * a["slices"], scan_output_directions=way * (len(outs) - a["carries"]),
    )  # fmt: skip


@writes("while_loop")
def while_loop(w: Writer, n: Node, *operands: str) -> Any:
    """Loop, which goes on as the first part of its state says."""
    a = n.attrs
    if a["keep"]:
        raise ArgumentError("a loop that keeps its states for a gradient")
    most = "" if a["limit"] is None else w.number(a["limit"])
    return loop(w, n, most, operands[0], operands, a["carries"])


def counted(w: Writer, n: Node, *operands: str) -> Any:
    """Loop, for so many times."""
    length, stacked = n.attrs["length"], len(n.outputs) - n.attrs["carries"]
    if n.attrs["reverse"] and stacked:
        raise ArgumentError("a loop over nothing that stacks its results from the end")
    return loop(w, n, w.number(length), "", operands, n.attrs["carries"])


def loop(w: Writer, n: Node, most: str, go: str, operands: Any, carries: int) -> Any:
    """A Loop whose body carries the first operands; it goes on for ever, or while the body's first result is true."""
    body = n.attrs["body"]
    made, outs = inner(w, body, list(operands), carries, "loop")
    i, on, more = (made.fresh(name) for name in ("iteration", "going", "more"))
    made.nodes.append(w.onnx.helper.make_node("Identity", [outs[0] if go else on], [more], name=made.fresh("more_node")))
    graph = graph_proto(made, body, carries, outs, w.fresh("body"))
    port = w.onnx.helper.make_tensor_value_info
    for p in (port(on, w.onnx.TensorProto.BOOL, []), port(i, w.onnx.TensorProto.INT64, [])):
        graph.input.insert(0, p)
    graph.output.insert(0, port(more, w.onnx.TensorProto.BOOL, []))
    return w.emit("Loop", most, go, *operands[:carries], count=len(n.outputs), body=graph)
