"""What is not read is not computed: slices go before what makes their operands, and every bit stays."""

from __future__ import annotations

import every_op
import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.ir.text import parse_graph, print_graph
from tengen.ir.verify import verify
from tengen.loops.lang import as_int
from tengen.models.vit import ViT
from tengen.passes.extents import infer
from tengen.passes.narrow import narrow

PRECISION = 'transpose_a=false, transpose_b=false, precision="highest"'


def after(text: str) -> list[str]:
    """The lines that the pass leaves of a graph, whose first line is its header."""
    head, *body = [line.strip() for line in text.strip().splitlines()]
    before = parse_graph("\n".join([head, *("    " + line for line in body)]) + "\n")
    verify(before, infer)
    printed = print_graph(before)
    g = narrow(before)
    verify(g, infer)
    assert print_graph(before) == printed, "a pass works on a copy"
    return [line.strip() for line in print_graph(g).strip().splitlines()[1:]]


def test_rows_of_a_product():
    assert after(f"""graph g(x: f32[6,4], w: f32[4,8], b: f32[8]):
        a: f32[6,8] = matmul(x, w, {PRECISION})
        c: f32[6,8] = add(a, b)
        r: f32[1,8] = strided_slice(c, starts=(2, 0), sizes=(1, 8), steps=(1, 1))
        return y = r""") == [
        "v0: f32[1,4] = strided_slice(x, starts=(2, 0), sizes=(1, 4), steps=(1, 1))",
        f"a: f32[1,8] = matmul(v0, w, {PRECISION})",
        "c: f32[1,8] = add(a, b)",
        "return y = c",
    ]  # fmt: skip


def sliced(start: int, size: int, step: int = 1, more: str = "") -> str:
    return f"""graph g(x: f32[8,4]):
        a: f32[8,4] = exp(x)
        r: f32[{size},4] = strided_slice(a, starts=({start}, 0), sizes=({size}, 4), steps=({step}, 1))
        {more}return y = r"""


@pytest.mark.parametrize(
    "start, size, step, want",
    [
        (2, 3, 1, (2, 3, None)),
        (5, 2, -2, (3, 3, "starts=(2, 0), sizes=(2, 4), steps=(-2, 1)")),
        (0, 5, 1, None),
        (0, 4, 2, None),
        (3, 0, 1, None),
    ],
)
def test_what_lies_between_is_computed_and_more_than_half_is_the_whole(start, size, step, want):
    lines = after(sliced(start, size, step))
    if want is None:
        assert lines[0] == "a: f32[8,4] = exp(x)"
        return
    first, rows, left = want
    assert lines[0] == f"v0: f32[{rows},4] = strided_slice(x, starts=({first}, 0), sizes=({rows}, 4), steps=(1, 1))"
    assert lines[1] == f"a: f32[{rows},4] = exp(v0)"
    assert [left in line for line in lines[2:-1]] == ([] if left is None else [True])


def test_other_readers_keep_the_whole_and_two_parts_make_a_hull():
    whole = """graph g(x: f32[8,4]):
        a: f32[8,4] = exp(x)
        r: f32[1,4] = strided_slice(a, starts=(0, 0), sizes=(1, 4), steps=(1, 1))
        return y = r, z = a"""
    assert after(whole)[0] == "a: f32[8,4] = exp(x)"
    hull = """graph g(x: f32[8,4]):
        a: f32[8,4] = exp(x)
        r: f32[1,4] = strided_slice(a, starts=(1, 0), sizes=(1, 4), steps=(1, 1))
        s: f32[1,4] = strided_slice(a, starts=(3, 0), sizes=(1, 4), steps=(1, 1))
        t: f32[1,4] = add(r, s)
        return y = t"""
    assert [line.split(": ")[1].split(", st")[0] for line in after(hull)[:-1]] == [
        "f32[3,4] = strided_slice(x", "f32[3,4] = exp(v0)", "f32[1,4] = strided_slice(a", "f32[1,4] = strided_slice(a",
        "f32[1,4] = add(v1, v2)",
    ]  # fmt: skip


def test_an_open_extent_beside_the_part():
    text = """graph g(x: f32[N,8,4]):
        m: f32[N,8,1] = mean(x, axes=(2,), keepdims=true)
        p: f32[8,N,1] = permute(m, axes=(1, 0, 2))
        b: f32[8,N,5] = broadcast_to(p, shape=(8, {N}, 5))
        s: f32[1,N,5] = strided_slice(b, starts=(7, 0, 0), sizes=(1, {N}, 5), steps=(1, 1, 1))
        return y = s"""
    assert [line.split(" = ")[0] for line in after(text)[:-1]] == [
        "v0: f32[N,1,4]",
        "m: f32[N,1,1]",
        "p: f32[1,N,1]",
        "b: f32[1,N,5]",
    ]


CASES = every_op.cases(where=lambda op: op.rules.parts is not None)


def part(x, axes, axis, cut):
    """Of an operand or a result the part along an axis of the results, where it has that."""
    if x is None or axis not in axes:
        return x
    return x[tuple(cut if a == axis else slice(None) for a in axes)]


@but(first_of="op", every=2)
@pytest.mark.parametrize("op, case", CASES)
def test_parts_of_operands_give_parts_of_results(op, case):
    """The rule "parts" of each op, held to the bits of its samples."""
    arrays = case.inputs(np.random.default_rng(7))
    xs = [None if a is None else Tensor(a.astype("float32") if a.dtype == np.float64 else a) for a in arrays]
    recorded = trace(lambda *inputs: op(*inputs, **case.attrs))
    outs = recorded(*xs)
    outs = outs if isinstance(outs, tuple) else (outs,)
    node = next(n for n in recorded.graph.nodes if n.op == op.name)
    axes = op.axes_of_parts([None if v is None else v.type for v in node.inputs], node.attrs)
    for axis in sorted({a for operand in axes for a in operand if a is not None}):
        n = as_int(outs[0].shape[axis])
        cut = slice(n // 2, n // 2 + max(1, n // 3))
        wants = [np.ascontiguousarray(part(y.numpy(), range(y.ndim), axis, cut)) for y in outs]
        more = case.attrs | ({"shape": wants[0].shape} if "shape" in node.attrs else {})
        got = op(*(part(x, on, axis, cut) for x, on in zip(xs, axes)), **more)
        for g, want in zip(got if isinstance(got, tuple) else (got,), wants):
            assert g.shape == want.shape and g.numpy().tobytes() == want.tobytes(), axis


def test_the_last_block_of_a_classifier():
    net = ViT(10, 32, 8, 32, 2, 3).eval()
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype("float32"))
    f = trace(net)
    assert f(x).numpy().tobytes() == net(x).numpy().tobytes()
    nodes = narrow(f.graph).nodes
    assert [n.outputs[0].type.shape for n in nodes if n.op == "attention"] == [(2, 2, 17, 16), (2, 2, 17, 16), (2, 2, 1, 16)]
    assert [n.outputs[0].type.shape[1] for n in nodes if n.op == "gelu"] == [17, 17, 1]


def test_bits_stay():
    r = np.random.default_rng(3)
    x, w, v = (Tensor(r.normal(size=s).astype("float32")) for s in ((5, 24, 32), (32, 32), (32,)))
    x[2, 3] = np.nan

    def heads(y):
        return y.reshape(5, 24, 4, 8).transpose(0, 2, 1, 3)

    def f(x, causal):
        y = F.gelu(F.matmul(x, w) + v)
        y = (
            F.scaled_dot_product_attention(heads(y), heads(x), heads(y * 2), None, causal)
            .transpose(0, 2, 1, 3)
            .reshape(5, 24, 32)
        )
        y = F.softmax(y + x, -1)
        return y[:, 3], y[1:3, ::-9], (y - y.mean(axis=1, keepdims=True))[0:1, 20:]

    for causal in (False, True):
        run = trace(lambda x, causal=causal: f(x, causal))
        for got, want in zip(run(x), f(x, causal)):
            assert got.numpy().tobytes() == want.numpy().tobytes()
