"""What the generated tests of ops share: from an op's sample inputs to tensors, results, references and gradients.

In: an op of the registry and one of its cases. Out: arrays to compare. References are NumPy in float64 (or exact integers), and
gradients are held against central differences of the reference, so nothing here trusts the code under test.
"""

import numpy as np

from tengen import Tensor, trace
from tengen.autodiff import vjp
from tengen.base.dtype import dtype
from tengen.base.errors import DTypeError
from tengen.ops.define import REGISTRY

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8", "int8")
EPS = {"float64": 1e-12, "float32": 3e-6, "float16": 2e-3, "bfloat16": 2e-2}


def samples(case):
    """The case's inputs: the same for every run. A list among them (of tensors to join) is laid out flat."""
    xs = case.inputs(np.random.default_rng(1234))
    return tuple(a for x in xs for a in (x if isinstance(x, list) else [x]))


def _listed(op, inputs):
    """The inputs as the op takes them: a variadic op's first ones in a list."""
    if not op.variadic:
        return list(inputs)
    n = len(inputs) - len(op.tensors) + 1
    return [list(inputs[:n]), *inputs[n:]]


def takes_any_float(a):
    """Whether an input stands for any float dtype."""
    return a is not None and np.asarray(a).dtype == np.float64


def in_dtype(arrays, name):
    """The float inputs in another dtype (small whole numbers for an integer dtype)."""
    d = dtype(name).numpy
    if name in FLOATS:
        return tuple(np.asarray(a).astype(d) if takes_any_float(a) else a for a in arrays)
    scale = (lambda a: np.abs(np.round(a * 3))) if name.startswith("u") or name == "bool" else lambda a: np.round(a * 3)
    return tuple(scale(np.asarray(a)).astype(d) if takes_any_float(a) else a for a in arrays)


def tensors(arrays):
    return tuple(None if a is None else Tensor(a, dtype=dtype(np.asarray(a).dtype)) for a in arrays)


def call(op, inputs, attrs):
    """Calls an op by the names of its parameters (tensors need not come first)."""
    return op.call(**dict(zip(op.tensors, _listed(op, inputs))), **attrs)


def outputs(result):
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _widest(a):
    if dtype(a.dtype).is_float:
        return a.astype(np.float64)
    return a if a.dtype.itemsize == 8 or a.dtype == bool else a.astype(np.int64)


def reference(op, arrays, attrs):
    """The op's independent meaning: floats in float64, integers as they are."""
    wide = [a if a is None else _widest(np.asarray(a)) for a in arrays]
    with np.errstate(all="ignore"):
        return tuple(np.asarray(r) for r in outputs(op.rules["reference"](*_listed(op, wide), **attrs)))


def accepts(op, arrays, attrs):
    """Whether the op says that it takes these dtypes."""
    try:
        call(op, tensors(arrays), attrs)
    except DTypeError:
        return False
    return True


def strange_layout(a):
    """The same values in memory with gaps, backwards, and with axes in another order."""
    x = np.asarray(a)
    if x.ndim == 0:
        return Tensor(x)
    order = tuple(reversed(range(x.ndim)))
    moved = np.transpose(x, order)
    spread = np.zeros(tuple(2 * d for d in moved.shape), x.dtype)
    spread[tuple(slice(None, None, 2) for _ in moved.shape)] = moved[tuple(slice(None, None, -1) for _ in moved.shape)]
    big = Tensor(spread)
    starts = tuple(max(2 * (d - 1), 0) for d in moved.shape)
    t = REGISTRY["permute"](REGISTRY["strided_slice"](big, starts, moved.shape, (-2,) * x.ndim), order)
    assert t.shape == x.shape
    assert x.size <= 1 or not t._layout.contiguous
    return t


def bits(t):
    a = np.ascontiguousarray(t.numpy())
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        a = np.where(np.isnan(a.astype(np.float64)), np.array(np.nan, a.dtype), a)
    return a.dtype, a.shape, a.tobytes()


def traced_call(op, inputs, attrs):
    """The op's results from a traced program."""
    present = [x for x in inputs if x is not None]

    @trace
    def f(xs):
        it = iter(xs)
        return call(op, [None if x is None else next(it) for x in inputs], attrs)

    return outputs(f(present))


def differentiable(op, case, arrays):
    """Positions of the inputs with a gradient, and of the outputs that are floats."""
    return [i for i, a in enumerate(arrays) if takes_any_float(a) and np.asarray(a).size]


def float_outputs(results):
    return [i for i, r in enumerate(results) if np.asarray(r).dtype.kind == "f"]


def pulled(op, arrays, attrs, wrt, weights, which):
    """(gradients of sum(weights * outputs[which]) as Tensors, the pullback's inputs)."""
    xs = tensors(arrays)

    def f(*wanted):
        full = list(xs)
        for i, t in zip(wrt, wanted):
            full[i] = t
        out = outputs(call(op, full, attrs))
        return tuple(out[i] for i in which)

    _, pull = vjp(f, *(xs[i] for i in wrt))
    return pull(tuple(Tensor(w, dtype="float64") for w in weights))


def slope(f, arrays, i, direction, h=1e-5):
    """The directional derivative of a function of arrays, by central differences of fourth order."""

    def at(s):
        moved = list(arrays)
        moved[i] = arrays[i] + s * h * direction
        return f(moved)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)
