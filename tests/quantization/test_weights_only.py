"""Weights as integers in groups: the values written out in NumPy, the bytes they take, GPTQ's error against that of the
nearest, a language model, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from needs import needs

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, amp, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, DTypeError, ShapeError
from tengen.deploy.compile import compile_model
from tengen.deploy.run import run_artifact
from tengen.models import GPT
from tengen.module.quantized.weights import LIMITS, GroupedWeight, WeightOnlyEmbedding, WeightOnlyLinear
from tengen.quantization import QuantizationError, quantize_weights
from tengen.quantization.weights import awq, gptq, nearest

RNG = np.random.default_rng(0)


def rounded(w, bits, group):
    """The matrix after rounding, group by group, by the largest magnitude (of 8 and 4 bits)."""
    out = np.zeros_like(w)
    for i in range(len(w)):
        for k in range(0, w.shape[1], group):
            part = w[i, k : k + group]
            scale = np.float32(np.abs(part).max() / LIMITS[bits][1]) if part.any() else np.float32(1)
            out[i, k : k + group] = np.clip(np.rint(part / scale), *LIMITS[bits]) * scale
    return out


@but(every=3)
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("columns, group", [(128, 32), (100, 64), (6, 128), (64, 64), (10, 2)])
def test_values(bits, columns, group):
    w = RNG.standard_normal((5, columns)).astype("float32")
    w[2] = 0
    made = GroupedWeight(*nearest(w.astype("float64"), bits, group), bits, group)
    if bits > 2:
        np.testing.assert_allclose(made.values().numpy(), rounded(w.astype("float64"), bits, group), rtol=1e-6)
    codes, scale = nearest(w.astype("float64"), bits, group)
    exact = codes * np.repeat(scale, group, 1)[:, :columns]
    assert made.values().numpy().tobytes() == exact.astype("float32").tobytes()
    whole = -(-columns // group) * group
    assert made.bytes == 5 * -(-whole * bits // 8) + 4 * 5 * (whole // group) and made.values().shape == w.shape
    rows = Tensor([[4, 1], [0, 0]])
    np.testing.assert_array_equal(made.values(rows).numpy(), made.values().numpy()[rows.numpy()])


@but(every=3)
@pytest.mark.parametrize("bits, group, rows, terms, outputs", [
    (8, 32, (1,), 64, 70), (4, 64, (2, 3), 301, 20), (4, 32, (), 600, 64), (8, 128, (5,), 700, 130), (4, 2, (1,), 5, 17),
    (2, 32, (1,), 64, 70), (2, 64, (2, 3), 301, 20), (2, 4, (), 603, 64), (2, 128, (5,), 701, 130), (2, 2, (1,), 5, 17),
])  # fmt: skip
def test_few_rows_have_the_bits_of_the_matrix_in_float32(bits, group, rows, terms, outputs):
    weight = GroupedWeight(*nearest(RNG.standard_normal((outputs, terms)), bits, group), bits, group)
    x = Tensor(RNG.standard_normal((*rows, terms)).astype("float32"))
    want = F.linear(x, weight.values()).numpy()
    if group % 16 == 0:  # else the matrix in float32 is made
        features = outputs if weight.tiled else None
        assert F.linear_grouped(x, weight.codes, weight.scale, bits, group, features).numpy().tobytes() == want.tobytes()
    assert weight.product(x).numpy().tobytes() == want.tobytes()
    grads = []
    for product in (weight.product, lambda x: F.linear(x, weight.values())):
        with GradManager().attach([x]) as gm:
            gm.backward((product(x) * Tensor(np.arange(outputs, dtype="float32"))).sum())
        grads.append(x.grad.numpy().tobytes())
        x.grad = None
    assert grads[0] == grads[1]
    with amp.autocast():
        assert weight.product(x).dtype == F.linear(x, weight.values()).dtype
    layer = trace(WeightOnlyLinear(weight, Tensor(np.ones(outputs, "float32"))), capture_as_const=True)
    assert [layer(x).numpy().tobytes() for _ in range(2)] == [(want + np.float32(1)).tobytes()] * 2


@pytest.mark.parametrize("outputs", [5, 64, 70])
def test_rows_are_those_of_the_matrix(outputs):
    """The last tile is filled up: what lies there is no row."""
    made = GroupedWeight(*nearest(RNG.standard_normal((outputs, 32)), 8, 32), 8, 32)
    rows = Tensor([[0, outputs - 1], [-1, -outputs]], dtype="int32")
    np.testing.assert_array_equal(made.values(rows).numpy(), made.values().numpy()[rows.numpy()])
    few = Tensor([0, 4], dtype="uint8")
    np.testing.assert_array_equal(made.values(few).numpy(), made.values().numpy()[few.numpy()])
    look = trace(made.values)
    look(rows)
    assert "iota" not in {node.op for node in look.graph.nodes}, "a number is made for each row of the table, for the few that are looked up"
    for run in (made.values, trace(made.values)):
        for bad in (outputs, -outputs - 1):
            with pytest.raises(IndexError, match=f"{outputs}"):
                run(Tensor([bad], dtype="int32")).numpy()


def test_what_linear_grouped_refuses():
    x, codes, scale = Tensor(np.zeros((1, 64), "float32")), Tensor(np.zeros((3, 64), "int8")), Tensor(np.zeros((3, 2), "float32"))
    for args, error, match in [
        ((x, codes, scale, 8, 48), ArgumentError, "groups of 48: .*64, 128 or 256"), ((x, codes, scale, 3), ArgumentError, "bits=3"),
        ((x, codes, scale, 8, 8), ArgumentError, "groups of 8: "),
        ((x, codes, scale, 8, 32, None, "int4"), ArgumentError, "activations='int4'"),
        ((x, codes, scale, 2), DTypeError, "2 bits in uint8"),
        ((x, codes, scale, 4), DTypeError, "4 bits in uint8"), ((x, codes, scale, 8, 64), ShapeError, "do not fit codes"),
        ((x, codes, scale[:2]), ShapeError, "takes"), ((x, codes, scale, 8, 32, 3), ShapeError, r"\(tiles, bytes / 4, 64, 4\)"),
        ((x, codes.T[None].reshape(1, 16, 3, 4), scale.T[None], 8, 32, 3), ShapeError, "3 output features in tiles of 64 do not fit"),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            F.linear_grouped(*args)


def test_four_integers_of_two_bits_lie_in_a_byte():
    """As the layout is stated, in files too: the first in the lowest bits, with 2 added."""
    made = GroupedWeight(np.array([[-2, -1, 0, 1, 1]], "int8"), np.array([[0.5, 2.0]], "float32"), 2, 4)
    assert made.codes.tolist() == [[0b11_10_01_00, 0b10_10_10_11]] and made.codes.dtype == "uint8"
    assert made.values().tolist() == [[-1.0, -0.5, 0.0, 0.5, 2.0]]


def test_scales_of_two_bits_have_small_errors():
    """Near the least squared error that any scale has, tried finely; the largest magnitude alone is far from it."""
    w = np.random.default_rng(0).standard_normal((6, 32))  # by itself: not every row has room for a factor of .75
    codes, scale = nearest(w, 2, 32)
    error = lambda row, s: np.square(np.clip(np.rint(row / s), -2, 1) * s - row).sum()
    for row, q, s in zip(w, codes, scale[:, 0]):
        least = min(error(row, t) for t in np.linspace(0.05, np.abs(row).max(), 2000))
        assert np.square(q * s - row).sum() <= 1.05 * least and least < 0.75 * error(row, np.abs(row).max())
    zero = nearest(np.zeros((2, 4)), 2, 2)
    assert not zero[0].any() and (zero[1] == 1).all()
    codes, scale = nearest(np.full((1, 4), -3.0), 2, 4)
    assert (codes * scale == -3).all()


def by_integers(x, made):
    """What `linear_grouped` computes of activations in int8, written out: each operation is one of float32."""
    rows = x.reshape(-1, x.shape[-1])
    scale = made._rows(made.scale, None).numpy()
    groups, whole = scale.shape[1], scale.shape[1] * made.group
    rows = np.pad(rows, ((0, 0), (0, whole - rows.shape[1]))).reshape(len(rows), groups, made.group)
    q = np.zeros((made.shape[0], whole), np.int64)
    q[:, : made.shape[1]] = np.rint(made.values().numpy().astype("float64") / np.repeat(scale, made.group, 1)[:, : made.shape[1]])
    y = np.zeros((len(rows), made.shape[0]), np.float32)
    with np.errstate(invalid="ignore"):
        for g in range(groups):
            step = np.maximum(np.abs(rows[:, g]).max(-1, keepdims=True), np.float32(2.0**-100)) / np.float32(127)
            p = np.nan_to_num(np.rint(rows[:, g] / step)).astype(np.int64)
            sums = (p @ q[:, g * made.group : (g + 1) * made.group].T).astype(np.float32)
            y = y + sums * (step * scale[:, g])
    return y.reshape(*x.shape[:-1], -1)


@but(every=3)
@pytest.mark.parametrize("bits, group, rows, terms, outputs", [
    (8, 32, (1,), 64, 70), (4, 64, (2, 3), 301, 20), (2, 16, (), 600, 64), (8, 128, (17,), 700, 130), (4, 32, (9,), 67, 66),
])  # fmt: skip
def test_activations_in_int8(bits, group, rows, terms, outputs):
    """The definition's bits, for any number of rows; the gradient is that of float32."""
    weight = GroupedWeight(*nearest(RNG.standard_normal((outputs, terms)), bits, group), bits, group, "int8")
    data = RNG.standard_normal((*rows, terms)).astype("float32")
    data.reshape(-1, terms)[0, :group] *= 1e-33  # smaller than what 127 may stand for: zeros
    x = Tensor(data)
    got = weight.product(x).numpy()
    np.testing.assert_array_equal(got, by_integers(data, weight))
    error = np.abs(got - data @ weight.values().numpy().T)
    bound = np.abs(data).max() / 254 * np.abs(weight.values().numpy()).sum(1)  # half a step of each
    assert (error <= 1.001 * bound).all() and error.max() > 0
    for one, y in list(zip(data.reshape(-1, terms), got.reshape(-1, outputs)))[-2:]:
        assert weight.product(Tensor(one)).numpy().tobytes() == y.tobytes()
    across = Tensor(np.ascontiguousarray(data.T)).transpose(tuple(range(data.ndim))[::-1])  # rows are no neighbours in memory
    assert weight.product(across).numpy().tobytes() == got.tobytes()
    with GradManager().attach([x]) as gm:
        gm.backward((weight.product(x) * Tensor(np.arange(outputs, dtype="float32"))).sum())
    want = np.arange(outputs) @ weight.values().numpy().astype("float64")
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(want, data.shape), rtol=1e-4, atol=1e-3)


@but(every=2)
@pytest.mark.parametrize("bits, outputs, method", [(4, 70, "rtn"), (8, 20, "rtn"), (2, 70, "gptq"), (4, 64, "awq")])
def test_scales_of_float16(bits, outputs, method):
    """They take half of the bytes, are what integers are chosen for, and compute as the same numbers in float32."""
    layer = M.Linear(100, outputs, bias=False)
    layer.weight[...] = RNG.standard_normal((outputs, 100)).astype("float32")
    layer.weight[1] = 1e-9  # less than any scale of float16 stands for
    x = Tensor(RNG.standard_normal((5, 100)).astype("float32"))
    made = {s: quantize_weights(M.Sequential(layer), bits, 32, method, [x], False, scales=s)[0] for s in ("float16", "float32")}
    small, wide = (m.grouped for m in made.values())
    assert small.scale.dtype == "float16" and wide.bytes - small.bytes == 2 * small.scale.size
    error = lambda m: np.sqrt(np.square(m(x).numpy() - layer(x).numpy()).mean())
    assert error(made["float16"]) < 1.05 * error(made["float32"])
    if method == "rtn":  # each integer is the nearest for the scale as it is
        scale = np.repeat(small._rows(small.scale, None).numpy().astype("float64"), 32, 1)[:, :100]
        nearest_to = np.clip(np.rint(layer.weight.numpy() / scale), *LIMITS[bits]) * scale
        np.testing.assert_array_equal(small.values().numpy(), nearest_to.astype("float32"))
    factors = made["float16"].factors
    given = x if factors is None else x * factors
    codes, scale = (small._rows(t, None) for t in (small.codes, small.scale))
    for activations in ("float32", "int8"):
        small.activations = activations
        of_rows = [F.linear_grouped(given, codes, s, bits, 32, None, activations).numpy().tobytes() for s in (scale, scale.astype("float32"))]
        assert of_rows == [small.product(given).numpy().tobytes()] * 2
    rows = Tensor([outputs - 1, 1])
    np.testing.assert_array_equal(small.values(rows).numpy(), small.values().numpy()[[outputs - 1, 1]])


def test_a_row_with_nan_or_inf_is_nan():
    """Other rows are what they are."""
    weight = GroupedWeight(*nearest(RNG.standard_normal((64, 64)), 4, 32), 4, 32, "int8")
    data = RNG.standard_normal((4, 64)).astype("float32")
    data[1, 40], data[2, 3] = np.nan, -np.inf
    got = weight.product(Tensor(data)).numpy()
    assert np.isnan(got[1:3]).all() and np.isfinite(got[[0, 3]]).all()
    np.testing.assert_array_equal(got, by_integers(data, weight))


V4 = pytest.param("x86-64-v4", marks=needs("x86-64-v4"))


@but(every=2)
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", V4, pytest.param("aarch64", marks=needs("qemu"))])
def test_activations_in_int8_in_files_traces_and_artifacts(target, tmp_path):
    """Dot products of four bytes and of two int16 have the same bits."""
    net = M.Sequential(M.Linear(300, 70), M.ReLU(), M.Linear(70, 64), M.ReLU(), M.Linear(64, 5)).eval()
    for layer, bits in ((0, 8), (2, 4), (4, 2)):
        scales = "float16" if layer else "float32"
        net[layer] = quantize_weights(M.Sequential(net[layer]), bits, 32, activations="int8", scales=scales)[0]
    x = Tensor(RNG.standard_normal((3, 300)).astype("float32"))
    want = net(x).numpy().tobytes()
    traced = trace(net, example_input=x)
    assert traced(x).numpy().tobytes() == want
    traced.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    model = load_graph(tmp_path / "net.tgn")
    assert model(x=x).numpy().tobytes() == want and [n.op for n in model.graph.nodes].count("linear_grouped") == 3
    artifact = compile_model(model, target, tmp_path / "out")
    assert run_artifact(artifact, [x.numpy()])[0].tobytes() == want


@pytest.mark.parametrize("target", ["x86-64-v3", pytest.param("aarch64", marks=needs("qemu"))])
def test_two_bits_in_files_traces_and_artifacts(target, tmp_path):
    net = quantize_weights(M.Sequential(M.Linear(1024, 64), M.ReLU(), M.Linear(64, 5)).eval(), 2, 32)
    x = Tensor(RNG.standard_normal((3, 1024)).astype("float32"))
    want = net(x).numpy().tobytes()
    traced = trace(net, example_input=x)
    assert traced(x).numpy().tobytes() == want
    traced.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    model = load_graph(tmp_path / "net.tgn")
    assert model(x=x).numpy().tobytes() == want and [n.op for n in model.graph.nodes].count("linear_grouped") == 2
    bare = 1024 * 64 // 4 + 1024 * 64 // 32 * 4  # of the first layer's integers and scales
    artifact = compile_model(model, target, tmp_path / "out")
    assert bare < (tmp_path / "net.tgn").stat().st_size < bare + 6000 and bare < artifact.weights_bytes < bare + 4000
    assert run_artifact(artifact, [x.numpy()])[0].tobytes() == want


def test_gptq_is_nearer_than_the_nearest():
    """On inputs whose features depend on each other."""
    x = RNG.standard_normal((400, 16)) @ RNG.standard_normal((16, 96)) + 0.1 * RNG.standard_normal((400, 96))
    w = RNG.standard_normal((24, 96))

    def error(codes, scale):
        q = GroupedWeight(codes, scale, 4, 32).values().numpy()
        return np.square(x @ (q - w).T).sum()

    assert error(*gptq(w, x.T @ x, 4, 32)) < 0.5 * error(*nearest(w, 4, 32))

    def of_two_bits(codes, scale):
        return np.square(x @ (GroupedWeight(codes, scale, 2, 32).values().numpy() - w).T).sum()

    assert of_two_bits(*gptq(w, x.T @ x, 2, 32)) < 0.5 * of_two_bits(*nearest(w, 2, 32))


def test_awq_is_nearer_than_the_nearest_where_features_differ():
    """A few features are large, as in language models; one is always 0. Where all are alike nothing is multiplied."""
    size = np.where(np.arange(100) % 9 == 0, 30.0, 1.0)
    x, w = RNG.standard_normal((400, 100)) * size, RNG.standard_normal((24, 100))
    x[:, 5] = 0
    error = lambda values: np.square(x @ (values - w).T).sum()
    codes, scale, factors = awq(w, x.T @ x, 4, 32)
    multiplied = GroupedWeight(codes, scale, 4, 32).values().numpy() * factors
    assert error(multiplied) < 0.5 * error(rounded(w, 4, 32))
    alike = RNG.standard_normal((24, 32))
    assert awq(alike, np.eye(32), 4, 32)[2] is None
    np.testing.assert_array_equal(awq(alike, np.eye(32), 4, 32)[0], nearest(alike, 4, 32)[0])
    layer = M.Linear(100, 24)
    layer.weight[...] = w.astype("float32")
    given = Tensor(x[:3].astype("float32"))
    made = quantize_weights(M.Sequential(layer), 4, 32, "awq", [Tensor(x.astype("float32"))])[0]
    np.testing.assert_allclose(made.weight.numpy(), multiplied, rtol=1e-5, atol=1e-6)
    want = x[:3] @ multiplied.T + layer.bias.numpy()
    np.testing.assert_allclose(made(given).numpy(), want, rtol=1e-4, atol=1e-3)


def test_networks(tmp_path):
    net = M.Sequential(M.Linear(64, 32), M.ReLU(), M.Linear(32, 8, bias=False)).eval()
    x = Tensor(RNG.standard_normal((10, 64)).astype("float32"))
    for method, data in (("rtn", None), ("gptq", [x]), ("awq", [x * Tensor(np.arange(64, dtype="float32"))])):
        made = quantize_weights(net, 8, 32, method, data, inplace=False)
        assert type(made[0]) is WeightOnlyLinear and type(net[0]) is M.Linear
        got, want = made(x).numpy(), net(x).numpy()
        assert np.abs(got - want).max() < 0.02 * np.abs(want).max()
    traced = trace(made, example_input=x)
    assert traced(x).numpy().tobytes() == got.tobytes()
    traced.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    assert load_graph(tmp_path / "net.tgn")(x=x).numpy().tobytes() == got.tobytes()


@but(every=2)
@pytest.mark.parametrize("tied", [False, True])
def test_text_from_integers(tied):
    """Tiles are read where they lie: a step packs nothing, and its bits are those of the float32 weights. The table of the tokens that is
    the last layer's too stays integers."""
    net = quantize_weights(GPT(vocabulary=70, layers=1, width=64, heads=2, context=200, tied=tied).eval(), 4, 32)
    with tengen.profile() as p:
        text = net.generate(np.array([[3, 1, 4]], "int32"), 70)
    kernels = {row.kernel for row in p.rows if row.calls > 60}
    assert "linear_grouped" in kernels and not any("grouped_pack" in k or "grouped_scales" in k for k in kernels)
    plain = GPT(vocabulary=70, layers=1, width=64, heads=2, context=200, tied=tied).eval()
    for name, p in plain.named_parameters():
        owner, last = (name.rsplit(".", 1)[0], name.rsplit(".", 1)[1]) if "." in name else ("", name)
        p[...] = getattr(dict(net.named_modules())[owner], last)
    np.testing.assert_array_equal(plain.generate(np.array([[3, 1, 4]], "int32"), 70), text)


def test_a_language_model():
    net = GPT(vocabulary=50, layers=2, width=32, heads=2, context=16).eval()
    tokens = Tensor(RNG.integers(0, 50, (2, 16)).astype("int32"))
    want = F.softmax(net(tokens), -1).numpy()
    made = quantize_weights(net, 8, 32, inplace=False)
    kinds = {type(m) for m in made.modules()}
    assert WeightOnlyLinear in kinds and WeightOnlyEmbedding in kinds and M.Linear not in kinds
    assert np.abs(F.softmax(made(tokens), -1).numpy() - want).max() < 0.02


@pytest.mark.parametrize("more, words", [
    ({"activations": "int4"}, "'float32', 'int8'"), ({"activations": "int8", "group": 8}, "group=8 must be 16, 32"), ({"bits": 3}, "bits=3"),
    ({"bits": [4]}, r"bits=\[4\]"), ({"method": "gptq", "data": np.ones((0, 4), "float32")}, "needs data"),
    ({"method": "gptq", "data": np.ones((2, 6), "float32")}, r"\(2, 6\) reach .*which takes \(..., 4\)"),
    ({"group": 0}, "group=0"), ({"group": 3}, "group=3"), ({"method": "near"}, "'rtn', 'gptq', 'awq'"),
    ({"method": "gptq"}, "needs data"), ({"method": "awq", "data": []}, "method='awq' needs data"),
    ({"method": "gptq", "data": np.full((1, 4), np.inf, "float32")}, "NaN or inf"), ({"scales": "bfloat16"}, "'float32', 'float16'"),
])  # fmt: skip
def test_what_is_refused(more, words):
    with pytest.raises(QuantizationError, match=words):
        quantize_weights(M.Sequential(M.Linear(4, 3)), **more)


@pytest.mark.parametrize("method", ["rtn", "gptq", "awq"])
def test_weights_that_are_too_large_for_scales_of_float16(method):
    net = M.Sequential(M.Linear(4, 3))
    net[0].weight[0, 0] = 65600.0 * 7
    with pytest.raises(QuantizationError, match="scales above 65504, float16's largest; help: scales='float32'"):
        quantize_weights(net, 4, method=method, data=np.ones((2, 4), "float32"), scales="float16")


def test_weights_that_are_no_numbers_and_layers_that_stay():
    net = M.Sequential(M.Linear(4, 3), M.Linear(3, 2))
    net[1].disable_quantize()
    net[1].weight[0, 0] = float("nan")
    assert type(quantize_weights(net, inplace=False)[1]) is M.Linear
    net[1].disable_quantize(False)
    with pytest.raises(QuantizationError, match="holds NaN or inf"):
        quantize_weights(net)


def test_a_copy_leaves_the_network_as_it_is():
    """Weights that become integers are not copied; others are, also where a layer that becomes integers has them, too."""
    net = M.Sequential(M.Linear(64, 8), M.Linear(8, 64), M.Linear(64, 8), M.Linear(8, 2))
    net[1].disable_quantize()
    net[3] = M.Linear(8, 64)
    net[3].weight = net[1].weight
    before = [p.numpy().copy() for p in net.parameters()]
    made = quantize_weights(net, inplace=False)
    made[1].weight[...] = 0
    for layer in made:
        layer.bias[...] = 7
    assert [type(m) for m in net] == [M.Linear] * 4
    assert [type(m) for m in made] == [WeightOnlyLinear, M.Linear, WeightOnlyLinear, WeightOnlyLinear]
    for p, was in zip(net.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), was)


@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_a_row_has_its_bits_among_any_number_of_rows(activations):
    """Eagerly, in a trace whose number of rows is open, and where there are so many that the matrix in float32 is made."""
    layer = quantize_weights(M.Sequential(M.Linear(100, 70)), 4, 32, activations=activations)[0]
    data = RNG.standard_normal((131, 100)).astype("float32")
    want = np.concatenate([layer(Tensor(row[None])).numpy() for row in data[-9:]])
    run = trace(layer)
    for n in (9, 11, 131):
        x = Tensor(data[-n:])
        assert layer(x).numpy()[-9:].tobytes() == run(x).numpy()[-9:].tobytes() == want.tobytes()


def test_rows_that_several_layers_read_are_rounded_once():
    net = quantize_weights(M.Sequential(M.Linear(64, 70), M.Linear(64, 64)), 4, 32, activations="int8")
    run, x = trace(lambda x: (net[0](x), net[1](x))), Tensor(RNG.standard_normal((3, 64)).astype("float32"))
    run(x)
    with tengen.profile() as p:
        got = run(x)
    calls = {row.kernel: row.calls for row in p.rows}
    assert [n for name, n in calls.items() if "quantise_rows" in name] == [1]
    assert sum(n for name, n in calls.items() if "linear_grouped" in name) == 2
    assert [y.numpy().tobytes() for y in got] == [layer(x).numpy().tobytes() for layer in net]
