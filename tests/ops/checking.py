"""What the generated tests of ops share: from an op's sample inputs to tensors, results, references and gradients.

In: an op of the registry and one of its cases. Out: arrays to compare. References are NumPy in float64 (or exact integers), and
gradients are held against central differences of the reference, so nothing here trusts the code under test.
"""

import numpy as np
from every_op import COUNTED

from tengen import Tensor, trace
from tengen.autodiff import vjp
from tengen.base.dtype import dtype
from tengen.base.errors import DTypeError
from tengen.ops.define import REGISTRY

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8", "int8")
# Relative, of the largest result of a case. float32: 50 roundings to 2^-24, as many as sums of some hundred terms after a few steps
# leave. float16 and bfloat16: 4 or 5 roundings to 2^-11 and 2^-8, of what is stored between a composite's ops. float64: rounding is
# 1e-16, and references in float64 lose some digits of their own where they cancel.
EPS = {"float64": 1e-12, "float32": 50 * 2.0**-24, "float16": 4 * 2.0**-11, "bfloat16": 5 * 2.0**-8}
WIDE_ONLY = {"view_as_complex": "no complex dtype has parts of 16 bits"}
EPS |= {"complex128": EPS["float64"], "complex64": EPS["float32"]}


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
    """Whether an input stands for any float dtype, or for both complex ones."""
    return a is not None and np.asarray(a).dtype in (np.float64, np.complex128)


def is_complex(a):
    return a is not None and np.asarray(a).dtype.kind == "c"


def in_dtype(arrays, name):
    """The float inputs in another dtype (small whole numbers for an integer dtype)."""
    d = dtype(name).numpy
    if any(map(is_complex, arrays)):
        kinds = {"f": d, "c": np.result_type(d, np.complex64)}
        return tuple(np.asarray(a).astype(kinds[np.asarray(a).dtype.kind]) if takes_any_float(a) else a for a in arrays)
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
    if a.dtype.kind == "c":
        return a.astype(np.complex128)
    return a if a.dtype.itemsize == 8 or a.dtype == bool else a.astype(np.int64)


def reference(op, arrays, attrs):
    """The op's independent meaning: floats in float64, integers as they are."""
    wide = [a if a is None else _widest(np.asarray(a)) for a in arrays]
    with np.errstate(all="ignore"):
        return tuple(np.asarray(r) for r in outputs(op.rules.reference(*_listed(op, wide), **attrs)))


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
    a = a.view(a.real.dtype) if a.dtype.kind == "c" else a
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        a = np.where(np.isnan(a.astype(np.float64)), np.array(np.nan, a.dtype), a)
    return a.dtype, a.shape, a.tobytes()


def traced_call(op, inputs, attrs):
    """The op's results from a traced program."""
    present = [x for x in inputs if x is not None]

    @trace(symbolic=True)
    def f(xs):
        it = iter(xs)
        return call(op, [None if x is None else next(it) for x in inputs], attrs)

    return outputs(f(present))


def differentiable(op, case, arrays):
    """Positions of the inputs with a gradient."""
    return [i for i, a in enumerate(arrays) if takes_any_float(a) and np.asarray(a).size]


def float_outputs(results):
    """Positions of the outputs that are floats or complex."""
    return [i for i, r in enumerate(results) if np.asarray(r).dtype.kind in "fc"]


def draw(rng, low, high, like):
    """Numbers between low and high as parts of numbers of the shape and kind of `like`."""
    x = rng.uniform(low, high, np.shape(like))
    return x + 1j * rng.uniform(low, high, np.shape(like)) if is_complex(like) else x


def inner(a, b):
    """The sum of products of all parts: how a gradient acts on a direction."""
    return float(np.real(np.conj(a) * b).sum())


def pulled(op, arrays, attrs, wrt, weights, which):
    """(outputs[which], gradients of sum(weights * outputs[which])), as Tensors."""
    xs = tensors(arrays)

    def f(*wanted):
        full = list(xs)
        for i, t in zip(wrt, wanted):
            full[i] = t
        out = outputs(call(op, full, attrs))
        return tuple(out[i] for i in which)

    values, pull = vjp(f, *(xs[i] for i in wrt))
    return values, pull(tensors(weights))


def slope(f, arrays, i, direction, h=1e-5):
    """The directional derivative of a function of arrays, by central differences of fourth order."""

    def at(s):
        moved = list(arrays)
        moved[i] = arrays[i] + s * h * direction
        return f(moved)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)


# ---- what is checked of every op --------------------------------------------------------------------------------------

def close(got, want, name, case):
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    if got.dtype.kind == "c":
        assert is_complex(want)
        return [close(part(got), part(want), name, case) for part in (np.real, np.imag)]
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, np.asarray(want).astype(got.dtype))
        return
    # an output can be float32 although the inputs were wider or integers
    eps = EPS[name] if name in EPS else EPS["float32"]
    eps = max(eps, EPS[dtype(got.dtype).name], case.rtol if name == "float32" else 0)
    scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0)))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=eps * scale)


def dtypes_of(op, case):
    """The dtypes that a case is computed in: every one for an op's first case; for each further one float32, narrow floats or integers
    in turn, and float64, which where there is a gradient is left to the check of that."""
    if any(map(is_complex, samples(case))) or op.name in WIDE_ONLY:
        return ("float32", "float64")
    number, whole = _number(op, case), (*INTEGERS, "bool")
    if not number:
        return (*FLOATS, *whole)
    turn = whole[number // 2 % len(whole)] if number % 2 else FLOATS[2 + number // 2 % 2]
    return ("float32", turn) if case.grad and op.why_no_vjp is None else ("float32", "float64", turn)


def _number(op, case):
    """Which of the op's samples it is; 0 for one that is made for it."""
    return next((i for i, c in enumerate(op.samples) if c is case), 0)


def check_values_in_every_dtype(op, case):
    arrays = samples(case)
    any_float = any(map(takes_any_float, arrays))
    for name in dtypes_of(op, case) if any_float else ("as is",):
        if name not in (*FLOATS, "as is") and not all(a is None or np.isfinite(a).all() for a in arrays):
            continue
        cast = in_dtype(arrays, name) if any_float else arrays
        if name not in FLOATS and not accepts(op, cast, case.attrs):
            continue
        got = outputs(call(op, tensors(cast), case.attrs))
        of_floats = name not in (*FLOATS, "as is") and all(g.dtype.is_inexact for g in got)  # it is computed in floats
        want = reference(op, [a.astype(np.float64) if of_floats and takes_any_float(b) else a for a, b in zip(cast, arrays)], case.attrs)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert g.dtype.is_inexact or w.dtype.kind != "f" or (w == np.trunc(w)).all(), f"{name}: {g.dtype} holds no fractions: {w}"
            close(g.numpy(), w, name, case)
            if name in FLOATS and w.dtype.kind == "f" and op.kind != "composite" and "dtype" not in case.attrs:
                kept = g is not got[0] and op.name in ("attention", "ctc")  # their logarithms of sums have the dtype that is computed in
                assert g.dtype.name == (dtype(name).compute.name if kept else name) or not any_float


def check_layout_and_trace_change_no_bit(op, case):
    """Of an op's first case eagerly and traced, as it is and in another layout; of each further one traced in the one or the other."""
    number = _number(op, case)
    for name in ("float32", "bfloat16") if case is op.samples[0] and op.name not in WIDE_ONLY else ("float32",):
        arrays = in_dtype(samples(case), name)
        xs = tensors(arrays)
        want = [bits(t) for t in outputs(call(op, xs, case.attrs))]
        odd = [None if a is None else strange_layout(a) for a in arrays]
        assert [bits(t) for t in outputs(call(op, odd, case.attrs))] == want, "another layout"
        if name == "float32" and op.name not in COUNTED:
            for given, way in ((xs, "traced"), (odd, "traced, another layout"))[number % 2 :][: 1 if number else 2]:
                assert [bits(t) for t in traced_call(op, given, case.attrs)] == want, way


def check_gradient_against_finite_differences(op, case):
    rng = np.random.default_rng(5)
    arrays = samples(case)
    wrt = differentiable(op, case, arrays)
    base = reference(op, arrays, case.attrs)
    which = float_outputs(base)
    if not wrt:
        return
    weights = [draw(rng, 0.5, 1.5, base[i]) for i in which]
    values, found = pulled(op, arrays, case.attrs, wrt, weights, which)
    for i, v in zip(which, values):
        close(v.numpy(), base[i], "float64", case)

    def value(moved):
        out = reference(op, moved, case.attrs)
        return sum(inner(out[i], w) for i, w in zip(which, weights))

    for i, g in zip(wrt, found):
        assert g.shape == np.shape(arrays[i]) and g.dtype.name == np.asarray(arrays[i]).dtype
        for _ in range(2):
            d = draw(rng, -1, 1, arrays[i])
            np.testing.assert_allclose(
                inner(g.numpy(), d), slope(value, arrays, i, d), rtol=1e-6, atol=1e-7, err_msg=f"input {i}"
            )


def check_gradient_of_gradient(op, case):
    rng = np.random.default_rng(6)
    arrays = samples(case)
    wrt = differentiable(op, case, arrays)
    base = reference(op, arrays, case.attrs)
    which = float_outputs(base)
    if not wrt or sum(np.size(a) for a in arrays if a is not None) > 2000:
        return
    weights = [draw(rng, 0.5, 1.5, base[i]) for i in which]
    seeds = [draw(rng, 0.5, 1.5, arrays[i]) for i in wrt]

    def first(moved):
        _, gs = pulled(op, moved, case.attrs, wrt, weights, which)
        return sum(inner(g.numpy(), s) for g, s in zip(gs, seeds))

    xs = tensors(arrays)

    def gradient(*wanted):
        full = list(xs)
        for i, t in zip(wrt, wanted):
            full[i] = t

        def once_more(*again):
            mixed = list(full)
            for i, t in zip(wrt, again):
                mixed[i] = t
            out = outputs(call(op, mixed, case.attrs))
            return tuple(out[i] for i in which)

        return vjp(once_more, *wanted)[1](tensors(weights))

    _, pull = vjp(gradient, *(xs[i] for i in wrt))
    found = pull(tensors(seeds))
    for i, g in zip(wrt, found):
        d = draw(rng, -1, 1, arrays[i])
        np.testing.assert_allclose(
            inner(g.numpy(), d), slope(first, arrays, i, d), rtol=1e-5, atol=1e-6, err_msg=f"input {i}"
        )
