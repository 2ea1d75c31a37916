"""Operators of users: their four forms in every way of running them, their rules, what is said of wrong ones, and that another definition
leaves nothing of the older one."""

import ctypes
import importlib.util
import io
import re

import numpy as np
import pytest
from needs import of_zigs_libraries

from tengen import Tensor, autodiff, custom_ops, load_graph, trace
from tengen import functional as F
from tengen.base.errors import (
    CompileError,
    CustomOpError,
    DTypeError,
    FileFormatError,
    GradientError,
    IndexOutOfRange,
    ShapeError,
    VerifyError,
)
from tengen.codegen.targets import Target
from tengen.deploy import compile_model
from tengen.deploy.run import CannotRun, linker
from tengen.deploy.verify import verify
from tengen.loops import external, lang
from tengen.loops.interp import interpret
from tengen.loops.text import parse_kernel, print_kernel
from tengen.ops.op import forget_op


def _why_no_compiler():
    try:
        linker(Target.machine())
    except CannotRun as e:
        return str(e)
    return ""


needs_cc = pytest.mark.skipif(bool(_why_no_compiler()), reason=_why_no_compiler())
RNG = np.random.default_rng(3)
TOTAL = """
kernel total(in x: {d}, out y: {d}, int n, int m):
    each row of n:
        var total = 0.0{d}
        for i in range(row * m, row * m + m, 1):
            load v: {d} = x[i]
            set total = total + v
            store y[i] = total
"""


def T(*shape):
    return Tensor(RNG.standard_normal(shape).astype("float32"))


def running_total():
    @custom_ops.kernel("test::total", ["x: f32[n, m] -> y: f32[n, m]", "x: f64[n, m] -> y: f64[n, m]"])
    def total(x: Tensor):
        return TOTAL.format(d=x.dtype.short)

    @total.vjp
    def _(g, x):
        return F.flip(total(F.flip(g, 1)), 1)

    total.reference(lambda x: np.cumsum(x, 1))
    return total


def row_max(function=None, source=None, **said):
    form = "x: f32[n, m] -> y: f32[n], at: i64[n]"

    @custom_ops.c_function("test::row_max", form, function=function, source=source, symbol="test_row_max", **said)
    def row_max(x: Tensor, bias: float = 0.0, negate: bool = False):
        """The largest number of each row, and where it is."""

    return row_max


SOURCE = """
#include <stdint.h>
int32_t test_row_max(const float *x, float *y, int64_t *at, const int64_t *shapes, double bias, int64_t negate) {
    if (shapes[0] != 2 || shapes[3] != 1 || shapes[4] != shapes[1] || shapes[5] != 1) return 9;
    for (int64_t i = 0; i < shapes[1]; i++) {
        if (!shapes[2]) return 4;
        at[i] = 0;
        for (int64_t j = 1; j < shapes[2]; j++)
            if (x[i * shapes[2] + j] > x[i * shapes[2] + at[i]]) at[i] = j;
        y[i] = x[i * shapes[2] + at[i]] + (float)bias;
        if (y[i] > 100) return 2;
        if (negate) y[i] = -y[i];
    }
    return 0;
}
"""


def python_row_max(sign=1.0):
    """The same as a callback of ctypes, which needs no compiler."""

    def body(x, y, at, shapes, bias, negate):
        n, m = shapes[1], shapes[2]
        rows = np.ctypeslib.as_array(x, (n, m)) if n * m else np.zeros((n, m), "float32")
        best = rows.max(1) + np.float32(bias)
        np.ctypeslib.as_array(y, (n,))[:] = sign * (-best if negate else best)
        np.ctypeslib.as_array(at, (n,))[:] = rows.argmax(1)
        return 2 if (best > 100).any() else 0

    f, i = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64)
    return ctypes.CFUNCTYPE(ctypes.c_int32, f, f, i, i, ctypes.c_double, ctypes.c_int64)(body)


# ---- the four forms ------------------------------------------------------------------------------------------------------


def test_an_expression_is_checked_in_every_way_and_fuses():
    @custom_ops.elementwise("test::softclip")
    def softclip(x, y, limit: float = 1.0):
        return lang.select(x > y, x / lang.unary("sqrt", x * x + limit), y * x)

    softclip.reference(lambda x, y, limit=1.0: np.where(x > y, x / np.sqrt(x * x + limit), y * x))
    told = custom_ops.check_op(softclip, [[RNG.normal(size=(3, 4)).astype("f4"), RNG.normal(size=4).astype("f4")]], {"limit": 2.0})
    assert len(told.passed) == 3 and not told.skipped
    run = trace(lambda x, y: F.relu(softclip(x + 1, y)) * 2)
    x, y = T(5, 7), T(7)
    assert run(x, y).numpy().tobytes() == (F.relu(softclip(x + 1, y)) * 2).numpy().tobytes()
    assert run._last.run.program.kernels == 1  # fused with what is before and behind


def test_a_composite_has_the_gradient_of_its_body_and_runs_others():
    total = running_total()

    @custom_ops.composite("test::unit")
    def unit(x: Tensor, axis: int = -1):
        return total(x) / F.sqrt((x * x).sum(axis, keepdims=True))

    unit.reference(lambda x, axis=-1: np.cumsum(x, 1) / np.sqrt((x * x).sum(axis, keepdims=True)))
    assert len(custom_ops.check_op(unit, [[RNG.normal(size=(2, 5)).astype("f4")]]).passed) == 3


def test_a_kernel_takes_any_operands_and_stands_in_loops():
    total = running_total()
    assert len(custom_ops.check_op(total, [[RNG.normal(size=(3, 5)).astype("f4")]]).passed) == 4
    x = T(5, 4, 3)
    run = trace(lambda x: total(x[1].T) + total(F.flip(x[2], 0).T), dynamic_axes={0: "a", 1: "n", 2: "m"})
    np.testing.assert_allclose(run(x).numpy(), np.cumsum(x.numpy()[1].T, 1) + np.cumsum(x.numpy()[2, ::-1].T, 1), rtol=1e-5, atol=1e-6)
    wanted = total(x[0]) + sum(total(v).numpy() for v in x)  # an order of its own: the sums are compared with a tolerance
    made, kept = F.scan(lambda c, v: (c + total(v), total(v)), total(x[0]), x)
    np.testing.assert_allclose(made.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
    assert kept[2].numpy().tobytes() == total(x[2]).numpy().tobytes()
    assert total(Tensor(np.zeros((2, 0), "float32"))).shape == (2, 0)


def test_an_access_outside_of_a_tensor_is_found_before_the_kernel_runs():
    @custom_ops.kernel("test::beyond", "x: f32[n] -> y: f32[n]")
    def beyond(x: Tensor):
        return """
        kernel beyond(in x: f32, out y: f32, int n):
            each i of n:
                load v: f32 = x[i + 1000000000]
                store y[i] = v
        """

    with pytest.raises(IndexOutOfRange, match="index 1000000000 is outside buffer x of 3 elements"):
        custom_ops.check_op(beyond, [[np.zeros(3, "f4")]])


def test_extents_of_results_are_arithmetic_of_operands_and_attributes():
    @custom_ops.kernel("test::repeat", "x: f32[n], w: f32[2 * n] -> y: f32[n * k + 1], z: f32[n]")
    def repeat(x: Tensor, w: Tensor, k: int):
        return """
        kernel repeat(in x: f32, in w: f32, out y: f32, out z: f32, int n, int k):
            each i of n * k + 1:
                let at = min(i, n * k - 1)
                load v: f32 = x[at // k]
                load u: f32 = w[at // k * 2]
                store y[i] = v + u
                if i < n:
                    store z[i] = v
        """

    x, w = T(3), T(6)
    y, z = repeat(x, w, 2)
    sums = np.repeat(x.numpy() + w.numpy()[::2], 2)
    assert y.numpy().tobytes() == np.append(sums, sums[-1]).tobytes() and z.numpy().tolist() == x.numpy()[[0, 0, 1]].tolist()
    both = trace(lambda x: repeat(x, F.concat([x, x]), 3))(x)
    assert both[0].shape == (10,)
    with pytest.raises(ShapeError, match=r"test::repeat\(f32\[3\], f32\[5\], k=2\): axis 0 of w is 5, not .* = 6, in the form"):
        repeat(x, T(5), 2)
    with pytest.raises(GradientError):
        autodiff.grad(lambda x: repeat(x, w, 2)[0].sum())(x)


@pytest.mark.parametrize("how", ["callback", pytest.param("source", marks=needs_cc)])
def test_a_c_function(how, tmp_path):
    op = row_max(python_row_max() if how == "callback" else None, SOURCE if how == "source" else None, errors={2: "more than 100"})
    op.reference(lambda x, bias=0.0, negate=False: ((-1 if negate else 1) * (x.max(1) + np.float32(bias)), x.argmax(1)))
    samples = [[RNG.normal(size=shape).astype("f4")] for shape in ((3, 5), (1, 1))]
    told = custom_ops.check_op(op, samples, {"bias": 0.5, "negate": True})
    assert len(told.passed) == 4
    x = T(4, 6)
    run = trace(lambda x: op(x.T * 2, 0.25)[0] + 1)
    assert run(x).numpy().tobytes() == ((x.numpy().T * 2).max(1) + np.float32(0.25) + 1).astype("f4").tobytes()
    assert op(x, 3)[0].numpy().tobytes() == (x.numpy().max(1) + np.float32(3)).tobytes()  # an int where a float is declared
    bad = Tensor(np.full((6, 4), 200, "float32"))
    loop = lambda: F.scan(lambda c, v: (c, op(v)[0]), x[0], F.stack([x, F.full((4, 6), 200.0)]))
    asks = trace(lambda x: (x[0, 0].item(), op(x)[0]))  # in parts
    for call in (lambda: op(bad), lambda: trace(lambda x: op(x)[0])(bad), lambda: asks(bad), loop):
        with pytest.raises(CustomOpError, match=r"test::row_max: more than 100.* \[at .*test_custom_ops.py"):
            call()
    run.dump(tmp_path / "m.tgn", arg_names=["x"], output_names=["y"])
    model = load_graph(tmp_path / "m.tgn")
    assert model(x=x).numpy().tobytes() == run(x).numpy().tobytes()
    if how == "callback":
        with pytest.raises(CompileError, match=r"test_row_max is known in this process alone; help: .*source="):
            compile_model(model, "x86-64-v3", tmp_path / "out")
        return
    for target in ("x86-64-v3", "aarch64"):
        made = compile_model(model, target, tmp_path / target, name="m")
        assert len(made.operators) == 1 and "2: test" not in (tmp_path / target / "m.h").read_text()
        assert "CustomOpError: test::row_max: more than 100" in (tmp_path / target / "m.h").read_text()
        if target == "aarch64":
            of_zigs_libraries(target)  # C of users' own is linked with a C library
        found = verify(model, tmp_path / target)
        assert found.status == "equal" or (found.status == "skipped" and target != "x86-64-v3"), found


@needs_cc
def test_an_object_file_stands_for_source(tmp_path):
    import subprocess

    (tmp_path / "f.c").write_text(SOURCE)
    subprocess.run([*linker(Target.machine()), "-fPIC", "-c", "-o", str(tmp_path / "f.o"), str(tmp_path / "f.c")], check=True)
    here = Target.machine().arch
    op = row_max(objects={here: tmp_path / "f.o"})
    run, x = trace(lambda x: op(x)[0]), T(3, 4)
    assert run(x).numpy().tobytes() == x.numpy().max(1).tobytes()
    file = io.BytesIO()
    run.dump(file)
    model = load_graph(io.BytesIO(file.getvalue()))
    other = "aarch64" if here == "x86_64" else "x86-64"
    with pytest.raises(CompileError, match="objects= with an object file"):
        compile_model(model, other, tmp_path / "other")
    compile_model(model, here.replace("_", "-"), tmp_path / "out")
    assert verify(model, tmp_path / "out").status == "equal"


def test_pointers_of_other_libraries():
    f = python_row_max()
    address = ctypes.cast(f, ctypes.c_void_p).value
    numba_like = type("CFunc", (), {"address": address})()
    x = T(2, 3)
    for pointer in (address, numba_like):
        assert row_max(pointer)(x)[0].numpy().tobytes() == x.numpy().max(1).tobytes()
    for wrong in ("text", 0, None, True, 1.5):
        with pytest.raises(CustomOpError, match="C function"):
            row_max(wrong)


def of_library(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed: its pointers were not tried")


@of_library("cffi")
def test_pointers_of_cffi():
    import cffi

    ffi, x, f = cffi.FFI(), T(2, 3), python_row_max()
    address = ctypes.cast(f, ctypes.c_void_p).value
    taken = ffi.cast("int32_t (*)(float *, float *, int64_t *, int64_t *, double, int64_t)", address)
    assert row_max(taken)(x)[0].numpy().tobytes() == x.numpy().max(1).tobytes()
    with pytest.raises(CustomOpError, match=r"takes \(pointer, pointer, float\), and is given \(pointer, .*int64_t\); help"):
        row_max(ffi.cast("int32_t (*)(float *, float *, float)", address))
    for data in (ffi.new("float[3]"), ffi.cast("void *", address), ffi.typeof("float"), ffi.cast("int", 3)):
        with pytest.raises(CustomOpError, match="is no C function"):
            row_max(data)

    @ffi.callback("int32_t(float *, float *, int64_t *)")
    def twice(x, y, shapes):
        for i in range(shapes[1]):
            y[i] = 2 * x[i]
        return 0

    op = custom_ops.c_function("test::twice", "x: f32[n] -> y: f32[n]", function=twice, symbol="test_twice")(one_tensor)
    assert trace(lambda x: op(x) + 1)(x[0]).numpy().tobytes() == (x[0].numpy() * 2 + 1).tobytes()


@of_library("numba")
def test_pointers_of_numba():
    from numba import cfunc, njit, types

    pointer, ints = types.CPointer(types.float32), types.CPointer(types.int64)

    def twice(x, y, shapes):
        for i in range(shapes[1]):
            y[i] = 2 * x[i]
        return 0

    made, x = cfunc(types.int32(pointer, pointer, ints))(twice), T(5)
    form = {"signature": "x: f32[n] -> y: f32[n]", "symbol": "test_twice"}
    op = custom_ops.c_function("test::twice", function=made, **form)(one_tensor)
    assert op(x).numpy().tobytes() == trace(op)(x).numpy().tobytes() == (x.numpy() * 2).tobytes()
    with pytest.raises(CustomOpError, match=r"takes \(pointer, pointer\), and is given \(pointer, pointer, pointer\)"):
        custom_ops.c_function("test::other", function=cfunc(types.int32(pointer, pointer))(lambda x, y: 0), **form)(one_tensor)
    with pytest.raises(CustomOpError, match="CPUDispatcher is no C function"):
        custom_ops.c_function("test::other", function=njit(twice), **form)(one_tensor)


def one_tensor(x: Tensor): ...


def test_parameters_that_a_c_function_does_not_have():
    f, i = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64)
    for kinds in ((f, f, i), (f, f, i, i, ctypes.c_float, ctypes.c_int64), (f, f, i, i, ctypes.c_double, ctypes.c_int32)):
        with pytest.raises(CustomOpError, match=r"test::row_max: the C function takes \(.*\), and is given \(.*\); help: pointers to"):
            row_max(ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(lambda *args: 0))
    unknown = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 4, ctypes.c_double, ctypes.c_longlong)(lambda *args: 0)
    assert row_max(unknown)(T(2, 3))[0].shape == (2,)


# ---- another definition --------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_an_older_definition():
    def define(k):
        @custom_ops.elementwise("test::scaled")
        def scaled(x):
            return x * x * k

        return scaled

    ops = [define(2.0)]

    @custom_ops.composite("test::outer")
    def outer(x: Tensor):
        return ops[-1](x) + 1

    traced, x = trace(lambda x: ops[-1](x) + 1), Tensor([1.0, 2.0])
    slope = lambda: autodiff.grad(lambda x: ops[-1](x).sum())(x).tolist()
    assert [traced(x).tolist(), outer(x).tolist(), slope()] == [[3.0, 9.0], [3.0, 9.0], [4.0, 8.0]]
    old = ops[-1]
    ops.append(define(3.0))
    assert [traced(x).tolist(), outer(x).tolist(), slope(), ops[-1](x).tolist()] == [[4.0, 13.0], [4.0, 13.0], [6.0, 12.0], [3.0, 12.0]]
    with pytest.raises(CustomOpError, match="older definition of test::scaled"):
        old(x)
    f, g = python_row_max(), python_row_max(-1.0)
    first, y = row_max(f)(x.reshape(1, 2))
    assert row_max(g)(x.reshape(1, 2))[0].tolist() == [-first.item()] == [-2.0]


def test_names_clash_across_definitions():
    def other(x):
        return x + 1

    custom_ops.elementwise("test::clash")(lambda x: x * 2)
    with pytest.raises(CustomOpError, match=r"test::clash is defined already, by .*<lambda>; help: another namespace; or replace=True"):
        custom_ops.elementwise("test::clash")(other)
    assert custom_ops.elementwise("test::clash", replace=True)(other)(Tensor([1.0])).tolist() == [2.0]
    for name in ("clash", "add", "a::b::c", "a:b", "1::x", "a::", 3):
        with pytest.raises(CustomOpError, match="no name of an operator"):
            custom_ops.elementwise(name)(other)


def test_a_file_that_needs_an_operator_says_which():
    custom_ops.elementwise("gone::op")(lambda x: x * 2)
    from tengen.ops.define import lookup

    file = io.BytesIO()
    run = trace(lambda x: lookup("gone::op")(x))
    run(Tensor([1.0]))
    run.dump(file)
    assert load_graph(io.BytesIO(file.getvalue()))(Tensor([2.0])).tolist() == [4.0]
    forget_op("gone::op")
    with pytest.raises(FileFormatError, match=r"needs the operator 'gone::op', which is not registered; help: .*import .* operators of 'gone'"):
        load_graph(io.BytesIO(file.getvalue()))


# ---- what is wrong is said -----------------------------------------------------------------------------------------------

SIGNATURES = {
    "x: f32[n] y: f32[n]": "expected ','",
    "x: f32[n]": "expected '->'",
    "x: f32[n] ->": "no result",
    "x: f31[n] -> y: f32[n]": "expected a dtype",
    "x: f32[n] -> y: f32[m]": "nothing says what m is",
    "x: f32[2 * n] -> y: f32[n]": "nothing says what n is",
    "z: f32[n] -> y: f32[n]": r"takes \['z'\], and the function's tensor parameters are \['x'\]",
    "x: f32[n] -> x: f32[n]": "two tensors of one name",
    "x: f32[n] -> y: f32[n] extra": "expected .,., got .extra.",
    "": "it is one line",
}


@pytest.mark.parametrize("text", SIGNATURES)
def test_wrong_signatures(text):
    def body(x: Tensor):
        raise AssertionError

    with pytest.raises(CustomOpError, match=SIGNATURES[text]):
        custom_ops.kernel("test::wrong", text)(body)


def test_wrong_kernels_and_definitions():
    form = "x: f32[n, m] -> y: f32[n, m]"

    def define(text):
        def wrong(x: Tensor):
            return text

        return custom_ops.kernel("test::wrong", form)(wrong)

    for text, message in (
        (TOTAL.format(d="f64"), r"has the buffers in x: f64, out y: f64; by the signature .* they are in x: f32, out y: f32"),
        (re.sub(r"\bm\b", "k", TOTAL.format(d="f32")), "takes the integer k"),
        (3, "returned int, not a kernel"),
    ):
        with pytest.raises(CustomOpError, match=message):
            define(text)
    with pytest.raises(VerifyError, match="line 1, column 1"):
        define("no kernel")
    with pytest.raises(CustomOpError, match="its expression of f32 fails.*TypeError|its expression of float32 fails"):
        custom_ops.elementwise("test::wrong")(lambda x: x + "text")
    with pytest.raises(CustomOpError, match="returned str, not an expression"):
        custom_ops.elementwise("test::wrong")(lambda x: "text")

    def unannotated(x, y: Tensor): ...

    def odd(x: Tensor, how: dict): ...

    for fn in (unannotated, odd):
        with pytest.raises(CustomOpError, match="neither a tensor nor a kind of attribute"):
            custom_ops.composite("test::wrong")(fn)
    with pytest.raises(CustomOpError, match="has no tensor"):
        custom_ops.composite("test::wrong")(lambda: None)
    with pytest.raises(CustomOpError, match="takes int, float and bool"):

        @custom_ops.c_function("test::wrong", "x: f32[n] -> y: f32[n]", function=python_row_max())
        def test_texts(x: Tensor, how: str): ...

    for symbol, message in (("malloc", "has a function malloc already"), ("run", "cannot be the name"), ("a b", "cannot be the name")):
        with pytest.raises(CustomOpError, match=message):
            custom_ops.c_function("test::wrong", "x: f32[n] -> y: f32[n]", function=python_row_max(), symbol=symbol)(lambda x: None)
    with pytest.raises(CustomOpError, match="no C function is given"):
        row_max()


@needs_cc
def test_source_that_does_not_compile():
    with pytest.raises(CustomOpError, match=r"refuses the source:[\s\S]*error"):
        row_max(source="int32_t test_row_max(\n")
    with pytest.raises(CustomOpError, match="defines no function test_row_max"):
        row_max(source="int unused_of_tests;\n")


def test_wrong_calls_and_gradients():
    total = running_total()
    wanted = r"test::total\(f32\[3\]\): x has 1 axes, not 2, in the form 'x: f32\[n, m\] -> y: f32\[n, m\]'; x is f32, not f64"
    with pytest.raises(ShapeError, match=wanted):
        total(T(3))
    with pytest.raises(DTypeError, match="x is i64, not f32"):
        total(Tensor([[1, 2]]))

    @total.vjp
    def _(g, x):
        return g.sum(1)

    for run in (autodiff.grad(lambda x: total(x).sum()), trace(autodiff.grad(lambda x: total(x).sum()))):
        with pytest.raises(GradientError, match=r"the gradient of test::total with respect to x has the shape \(2,\), and x has \(2, 3\)"):
            run(T(2, 3))
    total.vjp(lambda g, x: (g, g))
    with pytest.raises(GradientError, match="has 1 inputs, and its .vjp gives 2 gradients"):
        autodiff.grad(lambda x: total(x).sum())(T(2, 3))
    total.vjp(lambda g, x: g * 2)
    with pytest.raises(CustomOpError, match="the gradient of x differs from finite differences"):
        custom_ops.check_op(total, [[RNG.normal(size=(2, 3)).astype("f4")]])
    total.reference(lambda x: x)
    with pytest.raises(CustomOpError, match="the reference gives another result"):
        custom_ops.check_op(total, [[RNG.normal(size=(2, 3)).astype("f4")]])


# ---- the statement `extern` of the kernel language -----------------------------------------------------------------------

EXTERN = """\
kernel called(in x: f32, out y: f32, out at: i64, out code: i32, int n):
    each piece of 1:
        extern c = test_row_max(x[0], y[n - 2], at[0]) (2, 2, 3, 1, 2) (0.5f64, 1)
        store code[0] = c
"""


def test_a_call_of_c_has_a_text_form_and_is_interpreted():
    f = python_row_max()
    external.define("test_row_max", ctypes.cast(f, ctypes.c_void_p).value, f)
    k = parse_kernel(EXTERN)
    assert print_kernel(k) == EXTERN
    x, y, at, code = np.arange(6, dtype="f4"), np.zeros(4, "f4"), np.zeros(2, "i8"), np.ones(1, "i4")
    interpret(k, [x, y, at, code], {"n": 4})
    assert y.tolist() == [0, 0, -2.5, -5.5] and at.tolist() == [2, 2] and code.tolist() == [0]
    for wrong in ("x[0.5f32]", "gone[0]"):
        with pytest.raises(VerifyError):
            parse_kernel(EXTERN.replace("x[0]", wrong))
    with pytest.raises(VerifyError, match="is i32, not i64 or f64|is int32"):
        parse_kernel(EXTERN.replace("0.5f64, 1)", "0.5f64, 1i32)"))
    with pytest.raises(VerifyError, match="nobody has said where the C function"):
        interpret(parse_kernel(EXTERN.replace("test_row_max", "test_of_nobody")), [x, y, at, code], {"n": 4})
