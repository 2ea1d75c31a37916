"""What each op of Tengen's graphs is in TFLite: one function for each, entered in `WRITERS`, from the node to its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.dtype import bool_
from tengen.base.errors import ArgumentError
from tengen.interop.tflite.writer import FIRST, LAST, WRITERS, Out, Writer, writes
from tengen.ir.graph import Node, Value

VALID = 1
NONE: dict[str, Any] = {}


def operands(w: Writer, n: Node) -> list[Out]:
    """The inputs of a node that works element by element: with channels last where one is a picture and the others can be."""
    found = [v for v in n.inputs if v is not None]
    turned = [v for v in found if v in w.last and v not in w.plain]
    if turned and all(v.type.ndim in (0, 4) for v in found):
        return [w.picture(v) if v.type.ndim == 4 else w.get(v) for v in found]
    return [w.get(v) for v in found]


# -- elementwise -------------------------------------------------------------------------------------------------------------
DIRECT = {
    "relu": ("RELU", ""), "sigmoid": ("LOGISTIC", ""), "neg": ("NEG", "NegOptions"), "abs": ("ABS", "AbsOptions"), "sqrt": ("SQRT", ""),
    "rsqrt": ("RSQRT", ""), "round": ("ROUND", ""), "floor": ("FLOOR", ""), "ceil": ("CEIL", ""), "exp": ("EXP", "ExpOptions"),
    "log": ("LOG", ""), "sin": ("SIN", ""), "cos": ("COS", "CosOptions"), "tanh": ("TANH", ""), "sign": ("SIGN", "SignOptions"),
    "square": ("SQUARE", "SquareOptions"), "relu6": ("RELU6", ""), "hswish": ("HARD_SWISH", "HardSwishOptions"),
    "sub": ("SUB", "SubOptions"), "div": ("DIV", "DivOptions"), "pow": ("POW", "PowOptions"), "minimum": ("MINIMUM", "MaximumMinimumOptions"),
    "maximum": ("MAXIMUM", "MaximumMinimumOptions"), "floor_div": ("FLOOR_DIV", "FloorDivOptions"), "mod": ("FLOOR_MOD", "FloorModOptions"),
    "logical_not": ("LOGICAL_NOT", "LogicalNotOptions"), "logical_and": ("LOGICAL_AND", "LogicalAndOptions"),
    "logical_or": ("LOGICAL_OR", "LogicalOrOptions"), "atan2": ("ATAN2", "ATan2Options"),
}  # fmt: skip
COMPARISONS = {
    "equal": ("EQUAL", "EqualOptions"), "not_equal": ("NOT_EQUAL", "NotEqualOptions"), "less": ("LESS", "LessOptions"),
    "less_equal": ("LESS_EQUAL", "LessEqualOptions"), "greater": ("GREATER", "GreaterOptions"),
    "greater_equal": ("GREATER_EQUAL", "GreaterEqualOptions"),
}  # fmt: skip


def _direct(op: str, of: str, dtype: Any = None) -> Callable[[Writer, Node], Out]:
    return lambda w, n: w.each(op, *operands(w, n), dtype=dtype, options=(of, NONE) if of else None)


for _op, (_name, _of) in DIRECT.items():
    WRITERS[_op] = _direct(_name, _of)
for _op, (_name, _of) in COMPARISONS.items():
    WRITERS[_op] = _direct(_name, _of, np.bool_)


def add(w: Writer, x: Out, y: Out) -> Out:
    """x + y."""
    return w.each("ADD", x, y, options=("AddOptions", NONE))


def sub(w: Writer, x: Out, y: Out) -> Out:
    """x - y."""
    return w.each("SUB", x, y, options=("SubOptions", NONE))


def mul(w: Writer, x: Out, y: Out) -> Out:
    """x y."""
    return w.each("MUL", x, y, options=("MulOptions", NONE))


def div(w: Writer, x: Out, y: Out) -> Out:
    """x / y."""
    return w.each("DIV", x, y, options=("DivOptions", NONE))


def scaled(w: Writer, x: Out, v: float) -> Out:
    """x times a number."""
    return mul(w, x, w.number(v, x))


def clipped(w: Writer, x: Out, low: float, high: float) -> Out:
    """Within two numbers."""
    least = w.each("MAXIMUM", x, w.number(low, x), options=("MaximumMinimumOptions", NONE))
    return w.each("MINIMUM", least, w.number(high, x), options=("MaximumMinimumOptions", NONE))


def log1p(w: Writer, x: Out) -> Out:
    """log(1 + x)."""
    return w.each("LOG", add(w, x, w.number(1, x)))


def softplus(w: Writer, x: Out) -> Out:
    """log(1 + e^x), from the side on which nothing overflows."""
    down = w.each("NEG", w.each("ABS", x, options=("AbsOptions", NONE)), options=("NegOptions", NONE))
    return add(w, w.each("RELU", x), log1p(w, w.each("EXP", down, options=("ExpOptions", NONE))))


FORMULAS: dict[str, Callable[..., Out]] = {
    "reciprocal": lambda w, x: div(w, w.number(1, x), x), "fma": lambda w, x, y, z: add(w, mul(w, x, y), z),
    "silu": lambda w, x: mul(w, x, w.each("LOGISTIC", x)),
    "hsigmoid": lambda w, x: clipped(w, add(w, scaled(w, x, 1 / 6), w.number(0.5, x)), 0, 1),
    "log1p": log1p, "softplus": softplus, "mish": lambda w, x: mul(w, x, w.each("TANH", softplus(w, x))),
    "expm1": lambda w, x: sub(w, w.each("EXP", x, options=("ExpOptions", NONE)), w.number(1, x)),
    "exp2": lambda w, x: w.each("POW", w.number(2, x), x, options=("PowOptions", NONE)),
    "log2": lambda w, x: scaled(w, w.each("LOG", x), 1 / math.log(2)), "log10": lambda w, x: scaled(w, w.each("LOG", x), 1 / math.log(10)),
    "logical_xor": lambda w, x, y: w.each("NOT_EQUAL", x, y, options=("NotEqualOptions", NONE)),
    "where": lambda w, m, x, y: w.each("SELECT_V2", m, x, y, options=("SelectV2Options", NONE)), "copy": lambda w, x: x,
    "stop_gradient": lambda w, x: x,
    "prelu": lambda w, x, s: w.each(
        "SELECT_V2", w.each("GREATER", x, w.number(0, x), dtype=np.bool_, options=("GreaterOptions", NONE)), x, mul(w, x, s),
        options=("SelectV2Options", NONE),
    ),
}  # fmt: skip


def _formula(f: Callable[..., Out]) -> Callable[[Writer, Node], Out]:
    return lambda w, n: f(w, *operands(w, n))


for _op, _f in FORMULAS.items():
    WRITERS[_op] = _formula(_f)


@writes("add", "mul")
def sum_or_product(w: Writer, n: Node) -> Out:
    """Of bools they are "or" and "and"."""
    x, y = operands(w, n)
    if n.inputs[0].type.dtype is bool_:
        name = "OR" if n.op == "add" else "AND"
        return w.each(f"LOGICAL_{name}", x, y, options=(f"Logical{name.capitalize()}Options", NONE))
    return (add if n.op == "add" else mul)(w, x, y)


@writes("leaky_relu")
def leaky_relu(w: Writer, n: Node) -> Out:
    """By its slope."""
    return w.each("LEAKY_RELU", *operands(w, n), options=("LeakyReluOptions", {"Alpha": float(n.attrs["negative_slope"])}))


@writes("elu")
def elu(w: Writer, n: Node) -> Out:
    """TFLite's has an alpha of 1."""
    if n.attrs["alpha"] != 1:
        raise ArgumentError(f"alpha={n.attrs['alpha']}: TFLite's is 1")
    return w.each("ELU", *operands(w, n))


@writes("gelu")
def gelu(w: Writer, n: Node) -> Out:
    """Exact, or by tanh."""
    return w.each("GELU", *operands(w, n), options=("GeluOptions", {"Approximate": n.attrs["approximate"] == "tanh"}))


@writes("astype")
def astype(w: Writer, n: Node) -> Out:
    """Floats to integers: TFLite leaves open what is out of range."""
    if n.inputs[0].type.dtype is n.outputs[0].type.dtype:
        return operands(w, n)[0]
    return w.cast(operands(w, n)[0], n.outputs[0].type.dtype)


# -- shapes ------------------------------------------------------------------------------------------------------------------
@writes("reshape")
def reshape(w: Writer, n: Node) -> Out:
    """A picture of one pixel has the same elements in the same order either way."""
    v = n.inputs[0]
    x = w.last[v] if v in w.last and v not in w.plain and v.type.shape[2:] == (1, 1) else w.get(v)
    return w.reshaped(x._replace(last=False), n.outputs[0].type.shape)


@writes("permute")
def permute(w: Writer, n: Node) -> Out:
    """Axes in another order; that of TFLite's pictures may be there already."""
    axes, v = tuple(n.attrs["axes"]), n.inputs[0]
    if axes == LAST and v in w.last:
        return w.last[v]._replace(last=False)
    if axes == FIRST:
        return w.get(v)._replace(last=True)
    return w.turned(w.get(v), axes) if axes else w.get(v)


@writes("broadcast_to", "fill")
def broadcast(w: Writer, n: Node) -> Out:
    """Repeated to a shape."""
    x, shape = w.get(n.inputs[0]), n.outputs[0].type.shape
    if x.index in w.arrays and math.prod(shape) <= 4096:
        return w.array(np.broadcast_to(w.arrays[x.index], shape))
    return w.emit(
        "BROADCAST_TO",
        [w.reshaped(x, (1,) * (len(shape) - len(x.shape)) + x.shape), w.ints(shape)],
        shape,
        x.dtype,
        ("BroadcastToOptions", NONE),
    )


def placed(w: Writer, v: Value) -> tuple[Out, Sequence[int]]:
    """A value in the order in which it is there, and the axes of Tengen's order in that."""
    if v in w.last and v not in w.plain:
        return w.last[v], LAST
    return w.get(v), range(v.type.ndim)


@writes("strided_slice")
def strided_slice(w: Writer, n: Node) -> Out:
    """starts, starts + step, ...: ends are one past the last; a mask says where one lies before the first."""
    x, order = placed(w, n.inputs[0])
    starts, sizes, steps = ([n.attrs[k][a] for a in order] for k in ("starts", "sizes", "steps"))
    ends = [a + (s - 1) * d + (1 if d > 0 else -1) for a, s, d in zip(starts, sizes, steps)]
    mask = sum(1 << i for i, e in enumerate(ends) if e < 0)
    parts = [w.ints(v) for v in (starts, [max(e, 0) for e in ends], steps)]
    return w.emit("STRIDED_SLICE", [x, *parts], sizes, x.dtype, ("StridedSliceOptions", {"EndMask": mask}), x.last)


@writes("pad")
def pad(w: Writer, n: Node) -> Out:
    """With one value, or by reflection."""
    x, order = placed(w, n.inputs[0])
    widths = [n.attrs["pad_width"][a] for a in order]
    shape = [e + a + b for e, (a, b) in zip(x.shape, widths)]
    pairs = w.array(np.array(widths, np.int32).reshape(-1, 2))
    if x.codes is not None:  # with the zero point
        return w.emit("PAD", [x, pairs], shape, x.dtype, ("PadOptions", NONE), x.last)
    if n.attrs["mode"] == "constant":
        return w.emit(
            "PADV2", [x, pairs, w.number(n.attrs["constant_value"], x)], shape, x.dtype, ("PadV2Options", NONE), x.last
        )
    if n.attrs["mode"] == "reflect":
        return w.emit("MIRROR_PAD", [x, pairs], shape, x.dtype, ("MirrorPadOptions", {"Mode": 0}), x.last)
    raise ArgumentError(f"mode={n.attrs['mode']!r}")


@writes("concat")
def concat(w: Writer, n: Node) -> Out:
    """Along an axis."""
    x, axis = operands(w, n), n.attrs["axis"]
    axis = LAST.index(axis) if x[0].last else axis
    shape = list(x[0].shape)
    shape[axis] = sum(o.shape[axis] for o in x)
    return w.emit("CONCATENATION", x, shape, x[0].dtype, ("ConcatenationOptions", {"Axis": axis}), x[0].last)


@writes("index")
def index(w: Writer, n: Node) -> Out:
    """Integer indices of one axis."""
    *at, source = n.inputs
    axis = n.attrs["axes"][0]
    if len(at) != 1 or n.attrs["position"] != axis:
        raise ArgumentError("indices of several axes")
    return w.emit(
        "GATHER", [w.get(source), w.get(at[0])], n.outputs[0].type.shape, source.type.dtype, ("GatherOptions", {"Axis": axis})
    )


@writes("one_hot")
def one_hot(w: Writer, n: Node) -> Out:
    """1 at each index, 0 elsewhere."""
    t, x = n.outputs[0].type, w.get(n.inputs[0])
    ends = [w.array(np.array(v, t.dtype.numpy)) for v in (1, 0)]
    return w.emit(
        "ONE_HOT", [x, w.array(np.array(t.shape[-1], np.int32)), *ends], t.shape, t.dtype, ("OneHotOptions", {"Axis": -1})
    )


# -- reductions --------------------------------------------------------------------------------------------------------------
def _reduction(op: str) -> Callable[[Writer, Node], Out]:
    def write(w: Writer, n: Node) -> Out:
        """Over axes, in the dtype of the result."""
        v, keep, t = n.inputs[0], bool(n.attrs["keepdims"]), n.outputs[0].type
        x, order = placed(w, v)
        over = [order.index(a) for a in n.attrs["axes"]]
        if x.last and not keep and 3 not in over and len(set(over) & {1, 2}) < 2:  # what is left would be in another order
            x, over = w.get(v), list(n.attrs["axes"])
        x = w.cast(x, t.dtype)
        if not over:
            return x
        shape = [1 if i in over else e for i, e in enumerate(x.shape) if keep or i not in over]
        return w.emit(op, [x, w.ints(over)], shape, x.dtype, ("ReducerOptions", {"KeepDims": keep}), x.last and keep)

    return write


for _op, _name in (
    ("sum", "SUM"), ("mean", "MEAN"), ("prod", "REDUCE_PROD"), ("max", "REDUCE_MAX"), ("min", "REDUCE_MIN"),
    ("any", "REDUCE_ANY"), ("all", "REDUCE_ALL"),
):  # fmt: skip
    WRITERS[_op] = _reduction(_name)


@writes("argmax", "argmin")
def argument(w: Writer, n: Node) -> Out:
    """Along one axis."""
    if len(n.attrs["axes"]) != 1:
        raise ArgumentError(f"axes {n.attrs['axes']}: TFLite's has one")
    x, axis, t = w.get(n.inputs[0]), n.attrs["axes"][0], n.outputs[0].type
    shape = [e for i, e in enumerate(x.shape) if i != axis]
    name = "Max" if n.op == "argmax" else "Min"
    made = w.emit(
        f"ARG_{name.upper()}", [x, w.array(np.array(axis, np.int32))], shape, np.int32, (f"Arg{name}Options", {"OutputType": 2})
    )
    return w.reshaped(w.cast(made, t.dtype), t.shape)


@writes("cumsum")
def cumsum(w: Writer, n: Node) -> Out:
    """Running sums."""
    x = w.cast(w.get(n.inputs[0]), n.outputs[0].type.dtype)
    how = {"Exclusive": bool(n.attrs["exclusive"]), "Reverse": bool(n.attrs["reverse"])}
    return w.emit("CUMSUM", [x, w.array(np.array(n.attrs["axis"], np.int32))], x.shape, x.dtype, ("CumsumOptions", how))


# -- contractions ------------------------------------------------------------------------------------------------------------
def product(w: Writer, x: Out, y: Out, turn_x: bool, turn_y: bool) -> Out:
    """A product of the matrices in the last two axes; with a matrix of the file it is a fully connected layer."""
    if len(y.shape) == 2 and y.index in w.arrays and not turn_x:
        weight = y if turn_y else w.turned(y, (1, 0))
        how = {"KeepNumDims": True}
        return w.emit(
            "FULLY_CONNECTED", [x, weight, None], [*x.shape[:-1], weight.shape[0]], x.dtype, ("FullyConnectedOptions", how)
        )
    rank = max(len(x.shape), len(y.shape))
    x, y = (w.reshaped(o, (1,) * (rank - len(o.shape)) + o.shape) for o in (x, y))
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = [*lead, x.shape[-1 if turn_x else -2], y.shape[-2 if turn_y else -1]]
    return w.emit("BATCH_MATMUL", [x, y], shape, x.dtype, ("BatchMatMulOptions", {"AdjX": turn_x, "AdjY": turn_y}))


@writes("matmul")
def matmul(w: Writer, n: Node) -> Out:
    """NumPy's, with the last two axes exchanged where it says so."""
    x, y = (w.get(v) for v in n.inputs)
    wide = w.reshaped(x, (1, *x.shape)) if len(x.shape) == 1 else x
    high = w.reshaped(y, (*y.shape, 1)) if len(y.shape) == 1 else y
    made = product(
        w, wide, high, bool(n.attrs["transpose_a"]) and len(x.shape) > 1, bool(n.attrs["transpose_b"]) and len(y.shape) > 1
    )
    return w.reshaped(made, n.outputs[0].type.shape)


def window(w: Writer, x: Out, pads: Sequence[int], fill: float = 0.0) -> Out:
    """A picture with the same width added on both sides of an axis."""
    if not any(pads):
        return x
    pairs = [[0, 0], *([p, p] for p in pads), [0, 0]]
    shape = [e + a + b for e, (a, b) in zip(x.shape, pairs)]
    return w.emit(
        "PADV2", [x, w.array(np.array(pairs, np.int32)), w.array(np.array(fill, x.dtype), codes=x.codes)], shape, x.dtype,
        ("PadV2Options", NONE), True, x.codes,
    )  # fmt: skip


def flat(v: Value, what: str) -> None:
    """Errors: ArgumentError for what has not two axes of space."""
    if v.type.ndim != 4:
        raise ArgumentError(f"a {what} over {v.type.ndim - 2} axes")


@writes("conv")
def conv(w: Writer, n: Node) -> Out:
    """A cross-correlation of pictures."""
    flat(n.inputs[0], "convolution")
    a, x, weight = n.attrs, window(w, w.picture(n.inputs[0]), n.attrs["padding"]), w.known(n.inputs[1])
    weight = weight.reshape(-1, *weight.shape[-3:])  # (O, C / groups, h, w)
    space = [(e - (k - 1) * d - 1) // s + 1 for e, k, d, s in zip(x.shape[1:3], weight.shape[2:], a["dilation"], a["stride"])]
    shape = [x.shape[0], *space, weight.shape[0]]
    how = {
        "Padding": VALID, "StrideH": a["stride"][0], "StrideW": a["stride"][1], "DilationHFactor": a["dilation"][0],
        "DilationWFactor": a["dilation"][1],
    }  # fmt: skip
    bias = w.array(np.zeros(weight.shape[0], weight.dtype))
    if a["groups"] == x.shape[3] and a["groups"] > 1:
        deep = w.array(np.ascontiguousarray(weight.transpose(1, 2, 3, 0)), "filters")
        how["DepthMultiplier"] = weight.shape[0] // a["groups"]
        return w.emit("DEPTHWISE_CONV_2D", [x, deep, bias], shape, x.dtype, ("DepthwiseConv2DOptions", how), True)
    return w.emit(
        "CONV_2D",
        [x, w.array(np.ascontiguousarray(weight.transpose(LAST)), "filters"), bias],
        shape,
        x.dtype,
        ("Conv2DOptions", how),
        True,
    )


@writes("conv_transposed")
def conv_transposed(w: Writer, n: Node) -> Out:
    """The transpose of a convolution: all that it gives, of which the border is cut off."""
    flat(n.inputs[0], "convolution")
    a, x, weight = n.attrs, w.picture(n.inputs[0]), w.known(n.inputs[1])
    if a["groups"] > 1 or tuple(a["dilation"]) != (1, 1):
        raise ArgumentError(f"groups={a['groups']}, dilation={tuple(a['dilation'])}: TFLite's has neither")
    weight = weight.reshape(-1, *weight.shape[-3:])
    wanted = [e + p for e, p in zip(n.outputs[0].type.shape[2:], a["padding"])]
    full = [max((e - 1) * s + k, q) for e, s, k, q in zip(x.shape[1:3], a["stride"], weight.shape[2:], wanted)]
    shape = [x.shape[0], *full, weight.shape[1]]
    how = {"Padding": VALID, "StrideH": a["stride"][0], "StrideW": a["stride"][1]}
    filters = w.array(np.ascontiguousarray(weight.transpose(1, 2, 3, 0)), "filters")
    y = w.emit("TRANSPOSE_CONV", [w.ints(shape), filters, x], shape, x.dtype, ("TransposeConvOptions", how), True)
    begin = [0, *a["padding"], 0]
    size = [shape[0], *n.outputs[0].type.shape[2:], shape[3]]
    return (
        y if size == shape else w.emit("SLICE", [y, w.ints(begin), w.ints(size)], size, x.dtype, ("SliceOptions", NONE), True)
    )


@writes("max_pool", "avg_pool")
def pool(w: Writer, n: Node) -> Out:
    """The largest or the mean of each window."""
    flat(n.inputs[0], "pool")
    a, given = n.attrs, w.picture(n.inputs[0])
    least = -128 if given.dtype == np.int8 else float(np.finfo(np.float32).min)
    x = window(w, given, a["padding"], least if n.op == "max_pool" else 0.0)
    kernel, stride, pads = a["kernel_size"], a["stride"], a["padding"]
    space = [(e - k) // s + 1 for e, k, s in zip(x.shape[1:3], kernel, stride)]
    how = {"Padding": VALID, "StrideH": stride[0], "StrideW": stride[1], "FilterHeight": kernel[0], "FilterWidth": kernel[1]}
    name = "MAX_POOL_2D" if n.op == "max_pool" else "AVERAGE_POOL_2D"
    y = w.emit(name, [x], [x.shape[0], *space, x.shape[3]], x.dtype, ("Pool2DOptions", how), True)
    if n.op == "max_pool" or a["mode"] == "average" or not any(pads):
        return y
    counts = []
    for e, k, s, p in zip(given.shape[1:3], kernel, stride, pads):
        first = np.arange((e + 2 * p - k) // s + 1) * s - p
        counts.append(np.minimum(first + k, e) - np.maximum(first, 0))
    share = kernel[0] * kernel[1] / (counts[0][:, None] * counts[1][None])
    return mul(w, y, w.array(share.astype(x.dtype)[None, :, :, None], last=True))


@writes("softmax")
def softmax(w: Writer, n: Node) -> Out:
    """Along an axis."""
    x, axis = w.get(n.inputs[0]), n.attrs["axis"] % n.inputs[0].type.ndim
    order = [*(a for a in range(len(x.shape)) if a != axis), axis]
    x = x if axis == len(x.shape) - 1 else w.turned(x, order)
    y = w.emit("SOFTMAX", [x], x.shape, x.dtype, ("SoftmaxOptions", {"Beta": 1.0}))
    return y if axis == len(x.shape) - 1 else w.turned(y, np.argsort(order).tolist())


@writes("attention")
def attention(w: Writer, n: Node) -> list[Out | None]:
    """softmax(scale q k.T + mask) v."""
    q, k, v = (w.get(t) for t in n.inputs[:3])
    mask = None if len(n.inputs) < 4 or n.inputs[3] is None else w.get(n.inputs[3])
    scores = product(w, scaled(w, q, n.attrs["scale"]), k, False, True)
    queries, keys = scores.shape[-2:]
    far = np.float32(-1e30)
    seen = None
    if n.attrs["causal"] != "none":
        offset = 0 if n.attrs["causal"] == "upper_left" else keys - queries
        if offset < 0:
            raise ArgumentError(f"{queries} queries of {keys} keys, of which the first see none")
        scores = add(w, scores, w.array(np.triu(np.full((queries, keys), far, np.float32), offset + 1).astype(q.dtype)))
    if mask is not None and mask.dtype == np.bool_:
        seen = mask
        scores = w.each("SELECT_V2", mask, scores, w.number(far, scores), options=("SelectV2Options", NONE))
    elif mask is not None:
        scores = add(w, scores, w.cast(mask, scores.dtype))
    weights = w.emit("SOFTMAX", [scores], scores.shape, scores.dtype, ("SoftmaxOptions", {"Beta": 1.0}))
    if seen is not None:  # a query that sees no key has the result 0
        weights = w.each("SELECT_V2", seen, weights, w.number(0, weights), options=("SelectV2Options", NONE))
    unread(w, "the log-sum-exp of attention", n, 1)
    return [product(w, weights, v, False, False), None]


def unread(w: Writer, what: str, n: Node, i: int) -> None:
    """Errors: ArgumentError where something reads an output that is not written."""
    if n.outputs[i] in w.read:
        raise ArgumentError(f"{what} is read")


LONGEST = 512  # steps of an LSTM that are written one after the other


@writes("lstm")
def lstm(w: Writer, n: Node) -> list[Out | None]:
    """Step by step: the operator for a whole sequence keeps its state from call to call."""
    z, h, c = (w.get(n.inputs[i]) for i in (0, 2, 3))
    steps, batch, size = z.shape[0], z.shape[1], h.shape[1]
    if steps > LONGEST:
        raise ArgumentError(f"{steps} steps; as many as {LONGEST} are written one after the other")
    states = [h]
    for t in reversed(range(steps)) if n.attrs["reverse"] else range(steps):
        now = w.emit(
            "SLICE", [z, w.ints([t, 0, 0]), w.ints([1, batch, 4 * size])], [1, batch, 4 * size], z.dtype, ("SliceOptions", NONE)
        )
        gates = add(w, w.reshaped(now, (batch, 4 * size)), product(w, h, w.get(n.inputs[1]), False, True))
        part = [
            w.emit(
                "SLICE", [gates, w.ints([0, g * size]), w.ints([batch, size])], [batch, size], z.dtype, ("SliceOptions", NONE)
            )
            for g in range(4)
        ]
        i, f, o = (w.each("LOGISTIC", part[g]) for g in (0, 1, 3))
        c = add(w, mul(w, f, c), mul(w, i, w.each("TANH", part[2])))
        h = mul(w, o, w.each("TANH", c))
        states.append(h)
    rows = states[::-1] if n.attrs["reverse"] else states
    made = w.emit("PACK", rows, [steps + 1, batch, size], z.dtype, ("PackOptions", {"ValuesCount": steps + 1, "Axis": 0}))
    unread(w, "the cell states of an LSTM", n, 1)
    unread(w, "the gates of an LSTM", n, 2)
    return [made, None, None]
