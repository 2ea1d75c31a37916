"""A further size compiles nothing: every op, its gradient and the modules are called with two sizes of each extent, and then with others.

What is varied follows from an op's own samples: each extent of its operands, alone and together with the attributes that are equal to
it, and each number among its attributes. Calls that do not fit are left out. Only programs are counted: they are lowered,
and no code is made of them. What still makes a program for each size is listed with the reason; the list may only shrink.
"""

import math

import every_op
import numpy as np
import pytest
from checking import samples
from counted import counted_programs
from exhaustive import but

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, linalg
from tengen.autodiff import GradManager, vjp
from tengen.base.errors import TengenError

FIRST, FURTHER = (7, 12), (19, 26)  # are added to what a sample has: for these programs may be made, and for those not
MOST_ELEMENTS = 1 << 20  # of an operand
FIXED = {"axis", "axes", "start_axis", "end_axis", "axis1", "axis2"}  # they are no sizes: there are as many as axes

WINDOW = "loops over a window are unrolled: strides, paddings and dilations are numbers of a network, few of each"
FILTER = "loops over a filter are unrolled, and few channels are told from many: numbers of a network, few of each"
TAPS = "loops over the taps of a window are unrolled: one to four along an axis, of which a filter has one number"
HEAD = "registers hold the sums of a head's features, and the scale follows from them: one number of a network"
FORMAT = "the range of a format of integers, whose bounds are constants of the kernel: numbers of a network, few of each"
STEPS = "how many steps there are follows from the extent, each another operation of the program"
EXCEPTIONS = {
    **{(op, "extents"): HEAD for op in ("attention", "attention_grad", "attention_int", "attention_weights", "fake_attention")},
    **{(op, "stride"): WINDOW for op in ("avg_pool", "max_pool", "max_pool_gather")},
    **{(op, what): WINDOW for op in ("conv", "conv_int", "conv_transposed") for what in ("padding", "stride")},
    **{(op, "padding"): WINDOW for op in ("conv_bias", "conv_weight_grad")},
    ("conv_transposed", "dilation"): WINDOW,
    **{(op, "extents"): FILTER for op in ("conv", "conv_bias", "conv_int", "conv_transposed", "conv_weight_grad", "region_restricted_conv")},
    **{(op, "extents"): TAPS for op in ("window_sums", "window_sums_of_taps")},
    **{(op, "low"): FORMAT for op in ("quantize_linear", "requantize_linear")},  # the samples leave no room above `high`
    ("fake_quantize", "high"): FORMAT,
    **{(op, "extents"): STEPS for op in ("complex_det", "complex_log_det", "lstm_grad_by_steps")},
    ("dft", "extents"): "the factors of a length are the program's loops",
    ("linear_grouped", "extents"): "features, groups and bytes of a row have to fit each other",
    ("linear_grouped", "features"): "the tiles of the codes say it but for their last",
    ("quantile", "extents"): "between which elements a quantile lies is a fraction of their number",
    ("roll", "shift"): "by 0 or 1 elements less than all is another program, which few shifts of a small sample are not",
}  # (op, what of it) -> why it makes a program for each size
GRADIENT_EXCEPTIONS = {
    ("lstm_grad", "extents"): STEPS,
}


@pytest.fixture
def programs(monkeypatch):
    """The programs that are made."""
    yield from counted_programs(monkeypatch)


def resized(array, old, new):
    """The array with another extent wherever it had this one. Errors: ValueError where it would be large."""
    if array is None:
        return None
    shape = tuple(new if d == old else d for d in np.shape(array))
    if math.prod(shape) > MOST_ELEMENTS:
        raise ValueError(f"{shape} are too many elements")
    return np.resize(array, shape)


def renumbered(value, old, new):
    """An attribute with another number wherever it had this one."""
    if isinstance(value, (tuple, list)):
        return tuple(renumbered(v, old, new) for v in value)
    return new if type(value) is int and value == old else value


def variations(arrays, attrs):
    """(what is varied, call with more of it) of a sample. A call is (arrays, attributes)."""
    for old in sorted({d for a in arrays if a is not None for d in np.shape(a) if d > 1}):
        other = lambda more, old=old: [resized(a, old, old + more) for a in arrays]
        yield "extents", lambda more, other=other: (other(more), attrs)
        if any(renumbered(v, old, None) != v for k, v in attrs.items() if k not in FIXED):
            numbers = lambda more, old=old: {k: v if k in FIXED else renumbered(v, old, old + more) for k, v in attrs.items()}
            yield "extents", lambda more, other=other, numbers=numbers: (other(more), numbers(more))
    for name, value in attrs.items():
        if name not in FIXED and type(value) is int:
            yield name, lambda more, name=name, value=value: (arrays, {**attrs, name: value + more})
        elif name not in FIXED and isinstance(value, (tuple, list)) and value and all(type(v) is int for v in value):
            for i in range(len(value)):
                changed = lambda more, value=value, i=i: (*value[:i], value[i] + more, *value[i + 1 :])
                yield name, lambda more, name=name, changed=changed: (arrays, {**attrs, name: changed(more)})


def operands(op, arrays):
    """Tensors by the names of parameters; those of a list together."""
    tensors = [None if a is None else Tensor(a.astype("float32") if a.dtype == np.float64 else a) for a in map(_array, arrays)]
    n = len(tensors) - len(op.tensors) + 1 if op.variadic else 0
    named = dict(zip(op.tensors[bool(op.variadic) :], tensors[n:]))
    return {op.tensors[0]: tensors[:n], **named} if op.variadic else named


def _array(a):
    return None if a is None else np.asarray(a)


def forward(op, arrays, attrs):
    op.call(**operands(op, arrays), **attrs)


def backward(op, arrays, attrs):
    given = operands(op, arrays)
    floats = [k for k, x in given.items() if isinstance(x, Tensor) and x.dtype.is_float]

    def result(*some):
        y = op.call(**{**given, **dict(zip(floats, some))}, **attrs)
        return y[0] if isinstance(y, (tuple, list)) else y

    y, pull = vjp(result, *(given[k] for k in floats))
    pull(Tensor(np.zeros(y.shape, "float32")).astype(y.dtype))


def closed(run, op, case, programs):
    """What of a sample makes a program for each size."""
    found = set()
    for what, call in variations(samples(case), case.attrs):
        if what in found:
            continue
        made = []
        for more in (*FIRST, *FURTHER):
            before = len(programs)
            try:
                run(op, *call(more))
            except (TengenError, ValueError, TypeError, IndexError):  # it does not fit
                continue
            made.append(len(programs) - before)
        if any(made[len(FIRST) :]):
            found.add(what)
    return found


def known_of(op, exceptions):
    """What of an op is listed."""
    return {what for name, what in exceptions if name == op.name}


SWEPT = every_op.ops(where=lambda op: op.kind != "elementwise" and op.samples)  # elementwise: one program, of merged axes


@but(every=4)
@pytest.mark.parametrize("op", SWEPT, ids=lambda op: op.name)
def test_operation(op, programs):
    assert {what for case in op.samples for what in closed(forward, op, case, programs)} == known_of(op, EXCEPTIONS)


DIFFERENTIABLE = [op for op in SWEPT if op.why_no_vjp is None and not known_of(op, EXCEPTIONS) and any(c.grad for c in op.samples)]


@but(every=4)
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradient(op, programs):
    case = next(c for c in op.samples if c.grad)
    assert closed(backward, op, case, programs) == known_of(op, GRADIENT_EXCEPTIONS)


def z(*shape, dtype="float32"):
    return Tensor(np.zeros(shape, dtype))


def filled(n, value):
    return Tensor(np.full(n, value, "int32"))


def assigned(x, key, value):
    x[key] = value


CALLS = {  # of three sizes: what no sample says, since attributes and operands go together
    "topk": lambda n, m, k: F.topk(z(n, m + k), k),
    "roll": lambda n, m, k: F.roll(z(n, m + k), k, 1),
    "tril": lambda n, m, k: F.tril(z(n, m), k),
    "triu": lambda n, m, k: F.triu(z(n, m), -k),
    "eye": lambda n, m, k: F.eye(n + k, m + k, k),
    "assign a slice": lambda n, m, k: assigned(z(n, m + k), (slice(None), slice(k, k + 5)), 1.0),
    "assign in steps": lambda n, m, k: assigned(z(n + k, m * k), (slice(None, None, n % 7 + 2), slice(None, None, -(k % 5) - 2)), 1.0),
    "assign some rows": lambda n, m, k: assigned(z(n + k, m), slice(2, k), z(k - 2, m)),
    "assign a row": lambda n, m, k: assigned(z(n + k, m), k, z(m)),
    "gradient of a slice": lambda n, m, k: vjp(lambda x: x[2:k], z(n + k, m))[1](z(k - 2, m)),
    # windows of several sizes are joined: a program for each number of them
    "adaptive average of equal windows": lambda n, m, k: F.adaptive_avg_pool2d(z(2, n, 3 * k, m * k), k),
    "adaptive maximum of equal windows": lambda n, m, k: F.adaptive_max_pool2d(z(2, n, 3 * k, m * k), k),
    "qr": lambda n, m, k: linalg.qr(z(n + m, m)),
    "svd": lambda n, m, k: linalg.svd(z(m, n + m)),
    "solve": lambda n, m, k: linalg.solve(z(n, n), z(n, k)),
    "nms": lambda n, m, k: F.vision.nms(z(n, 4), z(n), 0.5),
    "ctc_loss": lambda n, m, k: F.loss.ctc_loss(z(n + k, m, k), filled(m, n + k), z(m * 2, dtype="int32"), filled(m, 2)),
}  # fmt: skip
MODULES = {  # (module, input), of three sizes: a training step
    "Linear": lambda n, m, k: (M.Linear(m, k), z(n, m)),
    "LSTM": lambda n, m, k: (M.LSTM(m, k), z(n, 3, m)),
    "GRU": lambda n, m, k: (M.GRU(m, k), z(3, n, m)),
    "RNN": lambda n, m, k: (M.RNN(m, k), z(3, n, m)),
    "Conv2d": lambda n, m, k: (M.Conv2d(m, k, 3), z(2, m, n, n)),
    "BatchNorm2d": lambda n, m, k: (M.BatchNorm2d(k), z(n, k, m, m)),
    "InstanceNorm": lambda n, m, k: (M.InstanceNorm(k), z(n, k, m, m)),
    "GroupNorm": lambda n, m, k: (M.GroupNorm(k, 4 * k), z(n, 4 * k, m, m)),
    "LayerNorm": lambda n, m, k: (M.LayerNorm(k), z(n, m, k)),
    "MultiHeadAttention": lambda n, m, k: (lambda net: (lambda x: net(x, x, x), net))(M.MultiHeadAttention(32 * 4, 4)) + (z(n, m, 128),),
    "Embedding": lambda n, m, k: (M.Embedding(n, k), z(m, n, dtype="int32")),
}
SIZES = [(40, 45, 37), (33, 50, 46), (47, 38, 55), (51, 66, 34)]


def count_after_two(call, programs):
    made = []
    for size in SIZES:
        before = len(programs)
        call(*size)
        made.append(len(programs) - before)
    return sum(made[2:])


@pytest.mark.parametrize("name", CALLS)
def test_call(name, programs):
    assert not count_after_two(CALLS[name], programs)


@pytest.mark.parametrize("name", MODULES)
def test_training_step_of_a_module(name, programs):
    def step(n, m, k):
        net, *more, x = MODULES[name](n, m, k)
        parameters = (more[0] if more else net).parameters()
        gm = GradManager().attach(parameters)
        with gm:
            y = net(x)
            gm.backward((y[0] if isinstance(y, tuple) else y).sum())

    assert not count_after_two(step, programs)


def test_only_what_is_swept_is_excepted():
    names = {op.name for op in SWEPT}
    assert {name for name, _ in {**EXCEPTIONS, **GRADIENT_EXCEPTIONS}} <= names
