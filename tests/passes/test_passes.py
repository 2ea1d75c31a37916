"""Each pass does what its docstring says, on graphs as text; what becomes one kernel; memory plans."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import graph_of

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.config import config
from tengen.base.dtype import ALL, float32
from tengen.base.errors import VerifyError
from tengen.codegen.targets import Target
from tengen.compiler.arena import ALIGN, Temporaries
from tengen.compiler.building import build
from tengen.ir.graph import Graph
from tengen.ir.text import parse_graph, print_graph
from tengen.ir.verify import verify
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf
from tengen.kernels.steps import Launch
from tengen.loops.lang import call, var
from tengen.ops.define import REGISTRY
from tengen.passes.cleanup import merge_common, remove_broadcasts, remove_dead_code, remove_identities
from tengen.passes.extents import infer
from tengen.passes.fuse import fuse
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize

TARGET = Target.named("x86-64-v3")


def graph(text: str) -> Graph:
    """The graph of a body whose first line is its header."""
    head, *body = [line.strip() for line in text.strip().splitlines()]
    g = parse_graph("\n".join([head, *("    " + line for line in body)]) + "\n")
    verify(g, infer)
    return g


def after(p, text: str) -> list[str]:
    """The lines that a pass leaves of a graph."""
    before = graph(text)
    printed = print_graph(before)
    g = p(before)
    verify(g, infer)
    assert print_graph(before) == printed, "a pass works on a copy"
    return [line.strip() for line in print_graph(g).strip().splitlines()[1:]]


def test_dead_code():
    assert after(remove_dead_code, """graph g(x: f32[4]):
        a: f32[4] = exp(x)
        c: f32[4] = relu(a)
        b: f32[4] = relu(x)
        return y = b""") == ["b: f32[4] = relu(x)", "return y = b"]  # fmt: skip


def test_dead_code_keeps_what_a_state_becomes():
    assert after(remove_dead_code, """graph g(x: f32[4]):
        state s: f32[4]
        a: f32[4] = add(s, x)
        b: f32[4] = exp(x)
        write s = a
        return""") == ["state s: f32[4]", "a: f32[4] = add(s, x)", "write s = a", "return"]  # fmt: skip


def test_common_calls():
    assert after(merge_common, """graph g(x: f32[4]):
        a: f32[4] = exp(x)
        b: f32[4] = exp(x)
        c: f32[4] = add(a, b)
        return y = c""") == ["a: f32[4] = exp(x)", "c: f32[4] = add(a, a)", "return y = c"]  # fmt: skip


def test_calls_that_differ_in_an_attribute_stay():
    lines = after(merge_common, """graph g(x: f32[4,3]):
        a: f32[4] = sum(x, axes=(1,), keepdims=false)
        b: f32[3] = sum(x, axes=(0,), keepdims=false)
        return y = a, z = b""" if "axes" in REGISTRY["sum"].attrs else """graph g(x: f32[4,4]):
        a: f32[4,4] = permute(x, axes=(1, 0))
        b: f32[4,4] = permute(x, axes=(0, 1))
        return y = a, z = b""")  # fmt: skip
    assert len(lines) == 3


def test_identities():
    assert after(remove_identities, """graph g(x: f32[2,3]):
        a: f32[2,3] = reshape(x, shape=(2, 3))
        b: f32[2,3] = permute(a, axes=(0, 1))
        c: f32[2,3] = broadcast_to(b, shape=(2, 3))
        d: f32[2,3] = relu(c)
        return y = d""") == ["d: f32[2,3] = relu(x)", "return y = d"]  # fmt: skip


def test_joining_with_nothing_is_an_identity():
    """A copy of a picture's one channel, as cvt_color to gray made it; what has no elements adds none, in whatever order."""
    for operands, kept in (("x", False), ("x, e", False), ("e, x", True), ("x, x", True)):
        rows = 4 if operands == "x, x" else 2
        lines = after(remove_identities, f"""graph g(x: f32[2,3], e: f32[0,3]):
            a: f32[{rows},3] = concat({operands}, axis=0)
            b: f32[{rows},3] = relu(a)
            return y = b""")  # fmt: skip
        assert any("concat" in line for line in lines) == kept, (operands, lines)


def test_a_transpose_of_a_square_is_no_identity():
    assert len(after(remove_identities, """graph g(x: f32[3,3]):
        a: f32[3,3] = permute(x, axes=(1, 0))
        return y = a""")) == 2  # fmt: skip


def test_a_value_of_a_row_is_not_repeated_for_an_elementwise_node():
    assert after(remove_broadcasts, """graph g(x: f32[2,3], y: f32[2,1]):
        s: f32[2,1] = sum(x, axes=(1,), keepdims=true)
        h: f32[2,1] = neg(s)
        a: f32[2,3] = broadcast_to(h, shape=(2, 3))
        b: f32[2,3] = add(x, a)
        c: f32[2,3] = mul(a, a)
        d: f32[2,3] = broadcast_to(y, shape=(2, 3))
        e: f32[2,3] = add(c, d)
        return b = b, e = e""") == [
        "s: f32[2,1] = sum(x, axes=(1,), keepdims=true)", "h: f32[2,1] = neg(s)", "a: f32[2,3] = broadcast_to(h, shape=(2, 3))",
        "b: f32[2,3] = add(x, h)", "c: f32[2,3] = mul(h, a)", "d: f32[2,3] = broadcast_to(y, shape=(2, 3))",
        "e: f32[2,3] = add(c, d)", "return b = b, e = e",
    ]  # fmt: skip


def test_fused():
    lines = after(fuse, """graph g(x: f32[4], y: f32[4]):
        a: f32[4] = exp(x)
        b: f32[4] = add(a, y)
        return z = b""")  # fmt: skip
    assert lines == [
        "b: f32[4] = fused(x, y, body=$0)", "graph fused(x0: f32[4], x1: f32[4]):", "v0: f32[4] = exp(x0)",
        "v1: f32[4] = add(v0, x1)", "return y0 = v1", "return z = b",
    ]  # fmt: skip


def test_a_circle_is_not_fused():
    """The middle of x -> exp -> matmul -> add cannot be left out of a group of exp and add."""
    g = fuse(graph("""graph g(x: f32[4,4]):
        a: f32[4,4] = exp(x)
        m: f32[4,4] = matmul(a, a, transpose_a=false, transpose_b=false, precision="highest")
        b: f32[4,4] = add(a, m)
        return z = b"""))  # fmt: skip
    verify(g, infer)
    assert [n.op for n in g.nodes][0] == "exp"


def test_a_wrong_pass_is_noticed():
    g = graph("""graph g(x: f32[4]):
        a: f32[4] = exp(x)
        return y = a""")  # fmt: skip
    g.nodes[0].op = "matmul"
    with pytest.raises(VerifyError, match="types cannot be derived"):
        verify(g, infer)


# ---- what becomes one kernel -----------------------------------------------------------------------------------------------------


def rand(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def kernels(f, *inputs: Tensor) -> list[str]:
    """The names of a traced function's launches."""
    g = optimize(graph_of(f, *inputs))
    return [launch.kernel.name for launch in lower(g, TARGET)[0].launches]


def ten_adds(x):
    for i in range(10):
        x = x + float(i)
    return x


@pytest.mark.parametrize("f, inputs", [
    (lambda x: F.softmax(x, 1), [(5, 37)]),
    (lambda x: F.logsoftmax(x, 1), [(5, 37)]),
    (lambda x, w, b: F.layer_norm(x, (37,), True, w, b), [(5, 37), (37,), (37,)]),
    (ten_adds, [(5, 37)]),
    (lambda x, y: F.sum(F.exp(x) * y, 1), [(5, 37), (5, 37)]),
])  # fmt: skip
def test_one_kernel(f, inputs):
    assert len(kernels(f, *(rand(*s) for s in inputs))) == 1


def test_convolution_bias_and_relu_are_one_kernel():
    """Besides packing and padding."""
    names = kernels(lambda x, w, b: F.relu(F.conv2d(x, w, b)), rand(2, 3, 8, 8), rand(4, 3, 3, 3), rand(1, 4, 1, 1))
    assert len([n for n in names if not any(word in n for word in ("pack", "channels_last", "pad", "zero"))]) == 1


def test_linear_and_relu_are_one_kernel():
    names = kernels(lambda x, w, b: F.relu(F.linear(x, w, b)), rand(5, 37), rand(8, 37), rand(8))
    assert len([n for n in names if "pack" not in n]) == 1


def test_an_update_is_one_kernel_in_place():
    """SGD with momentum gives two results; they go where the old values are, without a copy or a temporary."""
    p, v, lr = rand(5, 37), rand(5, 37), rand()

    @trace
    def step(g):
        new_p, new_v = REGISTRY["sgd_update"].call(p, g, v, lr, 0.9, 1e-3, False)
        p._reset(new_p)
        v._reset(new_v)

    lo, _ = lower(optimize(step.trace(rand(5, 37)).graph), TARGET)
    assert len(lo.launches) == 1 and not lo.temps
    wrote = [i for i, b in zip(lo.launches[0].ids, lo.launches[0].kernel.buffers) if b.role == "out"]
    assert len(wrote) == 2 and all(i[0] == "state" for i in wrote)


def test_a_state_that_is_read_later_is_not_overwritten_too_early():
    s = Tensor(np.arange(6, dtype=np.float32))

    @trace
    def step(x):
        old = F.sum(s * x)
        s._reset(s + x)
        return old + F.sum(F.exp(s) * 0.0)

    want = np.arange(6, dtype=np.float32)
    for _ in range(3):
        assert step(Tensor(np.ones(6, np.float32))).item() == want.sum()
        want = want + 1
        assert s.tolist() == want.tolist()


# ---- memory ----------------------------------------------------------------------------------------------------------------------


@st.composite
def lowerings(draw) -> Lowering:
    """Launches that use temporaries of many sizes; the kernels themselves do not matter to the plan."""
    lo = Lowering(TARGET)
    sizes = draw(st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from([0, 1, 3, 16, 17, 100, 1000])), min_size=1, max_size=12))
    ids = [lo.temp(d, (n,)).id for d, n in sizes]
    for _ in range(draw(st.integers(1, 15))):
        lo.steps.append(Launch(None, tuple(draw(st.lists(st.sampled_from([*ids, ("in", 0)]), max_size=4, unique=True)))))
    return lo


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(lowerings())
def test_live_temporaries_never_overlap(lo):
    temps = Temporaries.of(lo)
    placed, arena = temps.place(temps.sizes)
    offsets = dict(zip(temps.ids, placed))
    life = {}
    for i, launch in enumerate(lo.launches):
        for id in launch.ids:
            if id in lo.temps:
                life[id] = (life.get(id, (i, i))[0], i)
    assert set(offsets) == set(life)
    place = {id: (offsets[id], offsets[id] + lo.temps[id][0].size * int(lo.temps[id][1])) for id in offsets}
    for a, (begin, end) in place.items():
        assert begin % ALIGN == 0 and 0 <= begin and end <= arena
        for b, (first, last) in place.items():
            if a != b and life[a][0] <= life[b][1] and life[b][0] <= life[a][1]:
                assert end <= first or last <= begin, f"{a} and {b} are alive together and overlap"
    assert arena <= sum(max(ALIGN, -(-(e - s) // ALIGN) * ALIGN) for s, e in place.values())


def test_a_chain_needs_two_temporaries():
    """Lifetimes are used: the arena of a chain of matmuls does not grow with its length."""

    def chain(n):
        def f(x):
            for _ in range(n):
                x = x @ x
            return x

        lo, _ = lower(optimize(graph_of(f, rand(64, 64))), TARGET)
        temps = Temporaries.of(lo)
        return temps.place(temps.sizes)[1]

    assert chain(12) == chain(5)


def test_the_check_knob():
    """TENGEN_CHECK=1 looks at every graph and every kernel."""
    with config.scope(check=True):
        g = optimize(trace(lambda x: F.softmax(x @ x + 1, 1)).trace(rand(8, 8)).graph)
        lo, outs = lower(g, TARGET)
        build(lo, [("in", 0)], [("out", 0)], "test")
        lo.launches[0].kernel.body.append("not a statement")
        with pytest.raises(VerifyError):
            build(lo, [("in", 0)], [("out", 0)], "test")


def kernels_of(f, *inputs):
    return [launch.kernel.name for launch in lower(optimize(graph_of(f, *inputs)), TARGET)[0].launches]


def test_what_is_cheap_is_computed_again_instead_of_stored():
    """x - 1 has one large operand and two readers that are different kernels: both compute it."""
    x, w = rand(64, 48), rand(48, 48)

    def f(x):
        d = (x - 1.0) * 2.0
        return F.matmul(F.relu(d), w), (d * d).sum(1), F.matmul(F.abs(d), w)

    assert kernels_of(f, x).count("sub_mul_relu") == 1 and kernels_of(f, x).count("sub_mul_abs") == 1
    assert "sub_mul" not in kernels_of(f, x)
    for a, b in zip(trace(f)(x), f(x)):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_what_is_dear_or_large_is_stored():
    x, y, w = rand(64, 48), rand(64, 48), rand(48, 48)
    dear = lambda x: (F.matmul(F.relu(F.exp(x)), w), F.matmul(F.abs(F.exp(x)), w))
    assert kernels_of(dear, x).count("exp") == 1
    large = lambda x, y: [F.matmul(f(x + y), w) for f in (F.relu, F.abs, F.square)]  # reading both thrice moves as much
    assert kernels_of(large, x, y).count("add") == 1


def test_a_sum_that_ends_a_product_is_stored():
    """A transformer's shortcuts: each product adds what the one before it has stored, and reads no product but that."""
    x, ws = rand(64, 48), [rand(48, 48) for _ in range(5)]

    def f(x):
        for w in ws:
            x = x + F.matmul(F.softmax(x, 1), w)
        return x

    launches = lower(optimize(graph_of(f, x)), TARGET)[0].launches
    products = [n for n in launches if n.kernel.name.startswith("matmul") and "pack" not in n.kernel.name]
    assert len(products) == len(ws) and all(sum(b.role == "in" for b in n.kernel.buffers) == 3 for n in products)
    assert trace(f)(x).numpy().tobytes() == f(x).numpy().tobytes()


def test_an_epilogue_computes_its_other_operands():
    x, w, y = rand(64, 48), rand(48, 40), rand(64, 40)
    f = lambda x, y: F.matmul(x, w) * F.relu(y * 2.0 + 1.0)
    assert [n for n in kernels_of(f, x, y) if "pack" not in n] == ["matmul"]
    assert trace(f)(x, y).numpy().tobytes() == f(x, y).numpy().tobytes()


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(7, 33, 5), (64, 20, 48), (3, 5000, 2), (1, 1, 1), (0, 4, 5)])
def test_reductions_of_the_same_become_one(axis, shape):
    x, y = rand(*shape), rand(*shape)

    def f(x, y):
        g = F.where(x > 0, y, 0.0)
        return g.sum(axis), (g * x).sum(axis, keepdims=True), x.mean(axis)

    names = kernels_of(f, x, y)
    assert len([n for n in names if "chunks" not in n]) == 1
    for a, b in zip(trace(f)(x, y), f(x, y)):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_reductions_that_need_one_another_stay_apart():
    f = lambda x: (x.sum(0), ((x - x.mean(0)) ** 2).sum(0))
    x = rand(64, 48)
    for a, b in zip(trace(f)(x), f(x)):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_reductions_join_though_a_later_kernel_computes_the_same_again():
    """The two sums of a norm's gradient: what they need is computed again where their results are used."""

    def f(x, y):
        g = F.where(x > 0, y, 0.0)
        a, b = g.sum(0, keepdims=True), (g * x).sum(0, keepdims=True)
        return g - a - x * b

    x, y = rand(600, 48), rand(600, 48)
    assert len([n for n in kernels_of(f, x, y) if "chunks" not in n]) == 2
    assert trace(f)(x, y).numpy().tobytes() == f(x, y).numpy().tobytes()


def test_a_lowering_goes_when_nobody_holds_it():
    """Without Python's garbage collector: nothing that a lowering holds, such as the choices of schedules, holds it."""

    def networks(q, x, w, v, a, b):
        return F.scaled_dot_product_attention(q, q, q), F.conv2d(x, w, padding=1), F.conv2d(x, v), F.exp(F.matmul(a, b)), F.matmul(a, b[:, :1])

    shapes = [(2, 4, 40, 8), (1, 16, 20, 20), (16, 16, 3, 3), (16, 16, 1, 1), (20, 30), (30, 40)]
    recorded = optimize(graph_of(networks, *(Tensor(np.zeros(s, np.float32)) for s in shapes)))
    made, _ = lower(recorded, TARGET)
    assert len(made.choices) > 3
    alive = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert alive() is None
    finally:
        gc.enable()


def test_a_program_finds_what_its_launches_take_once():
    """The places of arguments are found once in its text, and the number of pieces, which depends on an extent, once in a block."""
    n = var("n")
    lo = Lowering(TARGET, [n])
    x, y = (Array((name, 0), float32, (n,), (1,)) for name in ("in", "out"))
    for f in ("sin", "cos", "exp"):
        pointwise(lo, [Elementwise(partial(call, f), [Leaf(x)], x.shape, float32)], [y], f)
    text = build(lo, [("in", 0)], [("out", 0)], "test").text.partition("define void @run")[2]
    assert text.count("call void %parallel") == 3 and text.count("store ptr") == 6
    for table in ("ptr, ptr %args", "ptr, ptr %buffers", "i64, ptr %ints"):
        assert text.count(f"getelementptr {table}") == 1
