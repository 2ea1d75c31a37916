"""Complex numbers against NumPy: parts as views, everything that moves elements, arithmetic, comparisons, promotion."""

import cmath
import pickle

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
from tengen import Tensor, load_graph, trace
from tengen.autodiff import GradManager, grad, jacobian, jvp, vmap
from tengen.base.errors import DTypeError, GradientError, ShapeError
from tengen.ir.text import parse_graph, print_graph
from tengen.passes.pipeline import optimize

KINDS = ("complex64", "complex128")


def sample(*shape, seed=0, dtype="complex128"):
    r = np.random.default_rng(seed)
    return (r.uniform(-2, 2, shape) + 1j * r.uniform(-2, 2, shape)).astype(dtype)


def same(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape, wanted.dtype, wanted.shape)
    assert got.tobytes() == wanted.tobytes(), (got, wanted)


def near(got, wanted, ulps=8):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape, wanted.dtype, wanted.shape)
    assert np.all(np.abs(got - wanted) <= ulps * np.finfo(got.dtype).eps * np.abs(wanted).max(initial=0)), np.abs(got - wanted).max()


@pytest.mark.parametrize("dtype", KINDS)
def test_round_trips(dtype):
    for a in (sample(3, 4, dtype=dtype), sample(dtype=dtype), sample(0, 2, dtype=dtype), sample(3, 4, dtype=dtype).T):
        t = Tensor(a)
        assert t.dtype == dtype and t.shape == a.shape and t.dtype.size == a.itemsize
        same(t, a)
        same(Tensor(a, dtype), a)
    one = Tensor(np.array(1 - 2j, dtype))
    assert one.item() == 1 - 2j == complex(one) and one.tolist() == 1 - 2j and f"{one:.2f}" == "1.00-2.00j"
    assert "complex" in repr(one) and "1.-2.j" in repr(one)
    with pytest.raises(TypeError):
        float(one)
    assert Tensor([1j]).dtype == "complex64" and Tensor(1j, "complex128").dtype == "complex128" and Tensor(1j).dtype == "complex64"
    assert F.zeros(2, complex).dtype == "complex64" and F.full(2, 1j).tolist() == [1j, 1j]


@pytest.mark.parametrize("dtype", KINDS)
def test_parts_are_views(dtype):
    for a in (sample(3, 4, dtype=dtype), sample(dtype=dtype), sample(2, 3, 4, dtype=dtype)[:, ::2].transpose(2, 0, 1)):
        z = Tensor(np.array(a, order="C"))
        same(z.real, a.real), same(z.imag, a.imag), same(F.real(z), a.real), same(F.imag(z), a.imag)
        pairs = F.view_as_real(z)
        same(pairs, np.stack([a.real, a.imag], -1)), same(F.view_as_complex(pairs), a)
        for part in (z.real, pairs):
            assert np.shares_memory(part.numpy(), z.numpy())
        assert np.shares_memory(F.view_as_complex(pairs).numpy(), z.numpy())
        same(F.complex(z.real, z.imag), a), same(F.conj(z), a.conj()), same(z.conj(), a.conj())
    x = Tensor([1.0, -2.0])
    assert F.real(x) is x and F.imag(x).tolist() == [0, 0] and F.conj(x) is x and F.angle(x).tolist()[0] == 0
    y = Tensor(np.arange(24.0).reshape(2, 3, 4))
    same(F.view_as_complex(y[:, :, 1:3]), y.numpy()[:, :, 1] + 1j * y.numpy()[:, :, 2])  # odd offset
    same(F.view_as_complex(y[:, :, ::2]), y.numpy()[:, :, 0] + 1j * y.numpy()[:, :, 2])
    same(F.view_as_complex(y[:, 1:, 2:]), y.numpy()[:, 1:, 2] + 1j * y.numpy()[:, 1:, 3])
    with pytest.raises(ShapeError, match="pairs along the last axis"):
        F.view_as_complex(Tensor([1.0]))
    with pytest.raises(DTypeError, match="takes complex numbers"):
        F.view_as_real(Tensor([1.0]))


AROUND = ((0, 1), (1, 0), (2, 2))
LAST = lambda z: np.concatenate([z[..., :1], z[..., 3:], z[..., 2:]], -1)
MOVES = {
    "reshape": (lambda F, z: F.reshape(z, (4, -1)), lambda z: z.reshape(4, -1)),
    "transpose": (lambda F, z: F.reshape(z.transpose(2, 0, 1), (-1,)), lambda z: z.transpose(2, 0, 1).reshape(-1)),
    "slice": (lambda F, z: z[1:, ::-1, ::2], lambda z: z[1:, ::-1, ::2]),
    "index": (lambda F, z: z[:, [2, 0, 1]], lambda z: z[:, [2, 0, 1]]),
    "mask": (lambda F, z: z[np.arange(24).reshape(2, 3, 4) % 5 == 1], lambda z: z[np.arange(24).reshape(2, 3, 4) % 5 == 1]),
    "copy": (lambda F, z: F.copy(z.transpose(1, 0, 2)), lambda z: z.transpose(1, 0, 2)),
    "concat": (lambda F, z: F.concat([z, z[:, :1], z.real], 1), lambda z: np.concatenate([z, z[:, :1], z.real], 1)),
    "stack": (lambda F, z: F.stack([z, 2 * z], 1), lambda z: np.stack([z, 2 * z], 1)),
    "split": (lambda F, z: F.split(z, [1, 3], 2)[1], lambda z: np.split(z, [1, 3], 2)[1]),
    "flip": (lambda F, z: F.flip(z, 1), lambda z: np.flip(z, 1)),
    "roll": (lambda F, z: F.roll(z, 2, 2), lambda z: np.roll(z, 2, 2)),
    "tile": (lambda F, z: F.tile(z, (2, 1, 2)), lambda z: np.tile(z, (2, 1, 2))),
    "repeat": (lambda F, z: F.repeat(z, 2, 1), lambda z: np.repeat(z, 2, 1)),
    "pad": (lambda F, z: F.pad(z, AROUND, constant_value=1.5), lambda z: np.pad(z, AROUND, constant_values=1.5)),
    "reflect": (lambda F, z: F.pad(z, ((0, 0), (1, 1), (2, 2)), "reflect"), lambda z: np.pad(z, ((0, 0), (1, 1), (2, 2)), "reflect")),
    "broadcast": (lambda F, z: F.copy(F.broadcast_to(z[:, :, :1], (5, 2, 3, 4))), lambda z: np.broadcast_to(z[:, :, :1], (5, 2, 3, 4))),
    "gather": (lambda F, z: F.gather(z, 2, F.zeros((2, 3, 1), "int32") + 3), lambda z: z[:, :, 3:]),
    "take_along": (lambda F, z: F.take_along_axis(z, Tensor(np.ones((1, 3, 4), int)), 0), lambda z: z[1:]),
    "where": (lambda F, z: F.where(z.real > 0, z, 1j), lambda z: np.where(z.real > 0, z, np.asarray(1j, z.dtype))),
    "diag": (lambda F, z: F.diag(F.diag(z[0], 1)), lambda z: np.diag(np.diag(z[0], 1))),
    "tril": (lambda F, z: F.tril(z), lambda z: np.tril(z)),
    "squeeze": (lambda F, z: F.squeeze(F.expand_dims(z, 1), 1), lambda z: z),
    "moveaxis": (lambda F, z: F.moveaxis(z, 0, -1) + 0, lambda z: np.moveaxis(z, 0, -1) + 0),
    "sum": (lambda F, z: F.sum(z.astype("complex128"), (0, 2)), lambda z: None),
    "full_like": (lambda F, z: F.full_like(z, 2 - 1j), lambda z: np.full_like(z, 2 - 1j)),
    "zeros_like": (lambda F, z: F.zeros_like(z) + F.ones_like(z), lambda z: np.ones_like(z)),
    "masked_fill": (lambda F, z: F.masked_fill(z, z.real > 0, 0), lambda z: np.where(z.real > 0, 0, z).astype(z.dtype)),
    "meshgrid": (lambda F, z: F.meshgrid(z[0, 0], z[0, 1])[1] + 0, lambda z: np.meshgrid(z[0, 0], z[0, 1])[1] + 0),
    "scatter": (lambda F, z: F.scatter(z, 2, F.ones((2, 3, 1), "int32"), z[:, :, 3:]), LAST),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_elements(name):
    move, numpys = MOVES[name]
    for dtype in KINDS:
        a = sample(2, 3, 4, dtype=dtype)
        wanted = numpys(a)
        if wanted is None:
            near(move(F, Tensor(a)), a.astype("complex128").sum((0, 2)), 20)
        else:
            same(move(F, Tensor(a)), wanted)


def test_assignment():
    a = sample(4, 5, dtype="complex64")
    z = Tensor(a)
    before = z.numpy()
    for key, value in ((1, 2j), ((slice(None), slice(1, 4, 2)), a[:, :2]), ([0, 3], 1.5), (np.eye(4, 5, dtype=bool), -1j), ((2, 2), a[0, 0])):
        z[key] = value
        a2 = z.numpy()
        wanted = before.copy()
        wanted[key] = value
        same(a2, wanted)
        before = a2


BINARY = {
    "add": (lambda x, y: x + y, 0), "sub": (lambda x, y: x - y, 0), "mul": (lambda x, y: x * y, 2), "div": (lambda x, y: x / y, 4),
    "eq": (lambda x, y: x == y, 0), "ne": (lambda x, y: x != y, 0),
}  # fmt: skip


@but(every=2)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name):
    f, ulps = BINARY[name]
    for dtype in KINDS:
        real = "float32" if dtype == "complex64" else "float64"
        a, b = sample(3, 17, dtype=dtype), sample(17, seed=1, dtype=dtype)
        a[0, :3], b[:3] = 1 + 2j, 1 + 2j
        r = np.random.default_rng(2).uniform(1, 2, (3, 1)).astype(real)
        for x, y in ((a, b), (a, r), (r, b), (a[:, ::2], b[::2]), (a.T, np.ascontiguousarray(a.T)), (a[0, 0], b)):
            got, wanted = f(Tensor(x), Tensor(y)), f(x, y)
            assert got.dtype == wanted.dtype
            if wanted.dtype == bool:
                same(got, wanted)
            else:
                assert np.all(np.abs(got.numpy() - wanted) <= ulps * np.finfo(real).eps * (np.abs(wanted) + 1e-30)), name
        for number in (2, 1.5, 1 - 2j) if wanted.dtype != bool else ():
            near(f(Tensor(a), number), f(a, np.asarray(number, dtype))), near(f(number, Tensor(a)), f(np.asarray(number, dtype), a))


def test_promotion():
    ask = lambda x, y: (x + y).dtype.name
    t = {d: Tensor(np.ones(2, d)) for d in ("complex64", "complex128", "float32", "float64", "int32", "bool", "float16", "uint8")}
    for x, y, wanted in (
        ("complex64", "complex128", "complex128"), ("complex64", "float32", "complex64"), ("complex64", "float64", "complex128"),
        ("complex64", "int32", "complex64"), ("complex128", "float32", "complex128"), ("complex64", "bool", "complex64"),
        ("complex64", "float16", "complex64"),
    ):  # fmt: skip
        assert ask(t[x], t[y]) == ask(t[y], t[x]) == wanted
    for x in ("float32", "float64", "complex64", "complex128", "int32", "float16"):
        wanted = "complex128" if x in ("float64", "complex128") else "complex64"
        assert ask(t[x], 1j) == ask(1j, t[x]) == wanted
        if x.startswith("c"):
            assert ask(t[x], 2.5) == ask(2, t[x]) == ask(t[x], True) == wanted
    assert t["float32"].astype("complex64").dtype == "complex64" and t["complex64"].astype("bool").tolist() == [True, True]
    assert Tensor([0j, 1j]).astype(bool).tolist() == [False, True]
    with pytest.raises(DTypeError, match="lose the imaginary parts"):
        t["complex64"].astype("float32")


def test_division_at_the_ends_of_the_range():
    for dtype, big, small in (("complex64", 2.0**126, 2.0**-120), ("complex128", 2.0**1022, 2.0**-1000)):
        pairs = [
            (big * (1 + 1j), big * (1 + 1j), 1 + 0j), (small * (1 + 1j), small * (1 - 1j), 1j), (big * (1 + 1j), big * (1 - 1j), 1j),
            (1 + 1j, big * (1 + 1j), 1 / big), (small * (1 + 3j), small * (1 + 3j), 1 + 0j), (1 + 2j, complex(np.inf, 1), 0j),
            (1 + 1j, 1 + small * 1j, 1 + 1j),
        ]  # fmt: skip
        x, y, wanted = (np.array(v, dtype) for v in zip(*pairs))
        got = (Tensor(x) / Tensor(y)).numpy()
        assert np.all(np.abs(got - wanted) <= 4 * np.finfo(dtype).eps * np.abs(wanted)), (got, wanted)
    got = (Tensor([1 + 1j, -2j, 0j]) / 0).numpy()
    assert np.isinf(got[0].real) and np.isinf(got[0].imag) and np.isneginf(got[1].imag) and np.isnan(got[2].real)


def test_tests_and_reductions():
    a = np.array([1 + 1j, complex(np.nan, 0), complex(0, np.inf), 0, complex(-np.inf, np.nan)], "complex64")
    z = Tensor(a)
    for mine, numpys in ((F.isnan, np.isnan), (F.isinf, np.isinf), (F.isfinite, np.isfinite), (F.logical_not, np.logical_not)):
        same(mine(z), numpys(a))
    assert F.any(z).item() and not F.all(z).item()
    for dtype in KINDS:
        a = sample(5, 33, dtype=dtype)
        z = Tensor(a)
        near(F.sum(z, 1), a.sum(1), 40), near(F.mean(z, 0, True), a.mean(0, keepdims=True), 20), near(z.sum(), a.sum(), 40)
        near(F.cumsum(z, 1), np.cumsum(a, 1), 40), near(F.matmul(z, z.conj().T), a @ a.conj().T, 40)
        near(z.mH, a.conj().T), near(z[0] @ z[1], a[0] @ a[1], 40), near(z.T @ z.real, a.T @ a.real, 40)
        near(F.abs(z), np.abs(a), 1), near(F.angle(z), np.angle(a), 2), near(F.square(z), a * a), near(F.reciprocal(z), 1 / a)


def test_what_has_no_complex_meaning_says_so():
    z = Tensor([1 + 2j, 0j])
    one = (F.sort, F.relu, F.floor, F.max, F.argmax, F.softmax, F.erf)
    for call in (*(lambda f=f: f(z) for f in one), lambda: z < z, lambda: F.maximum(z, 0), lambda: z // 2):
        with pytest.raises(DTypeError, match="has no meaning for complex numbers") as e:
            call()
        assert "c64[2]" in str(e.value)


def test_traced_is_eager_and_fused():
    a, b, c = (Tensor(sample(7, 33, seed=i, dtype="complex64")) for i in range(3))

    def f(a, b, c):
        return a * b + c, F.sum(F.abs(a / b) ** 2), (a @ b.mH).conj()

    run = trace(f)
    run(a, b, c)
    for x, y in zip(run(a, b, c), f(a, b, c)):
        same(x, y.numpy())
    step = trace(lambda a, b, c: a * b + c)
    same(step(a, b, c), (a * b + c).numpy())
    nodes = optimize(step.graph).nodes
    assert [n.op for n in nodes if n.op not in ("real_part", "imag_part")] == ["fused"], [n.op for n in nodes]


SPECIAL = [complex(x, y) for x in (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5) for y in (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan)]
FREE = {  # (function, real part, imaginary part): results whose sign, or a zero, C99 leaves open, or which docs/numerics.md lists
    "exp": "-inf -inf", "sinh": "-0.0 nan, -inf inf, -inf -inf, -inf nan", "tanh": "0.0 nan, -0.0 nan, inf -inf, -inf -inf",
    "cosh": "-0.0 inf, -0.0 -inf, -0.0 nan, nan -0.0", "asin": "inf nan, -inf nan", "acos": "inf nan, -inf nan", "atan": "inf nan, -inf nan",
    "sin": "inf -inf, -inf -inf, nan 0.0, nan inf, nan -0.0, nan -inf", "cos": "inf 0.0, -inf 0.0, nan 0.0, nan -0.0, 0.0 nan",
    "tan": "-inf inf, -inf -inf, nan 0.0, nan -0.0",
    "acosh": "0.0 nan, -0.0 nan",  # of Python NaN; NaN + pi / 2 i in C11 and in the array API, as i times acos is
}  # fmt: skip
NUMPYS = {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}


def _meant(name, z):
    """By Python's cmath, which follows C99's Annex G; by NumPy where it raises."""
    try:
        return getattr(cmath, name)(z)
    except ValueError:
        with np.errstate(all="ignore"):
            return complex(getattr(np, NUMPYS.get(name, name))(z))


def _alike(a, b):
    if np.isnan(a) or np.isnan(b):
        return np.isnan(a) and np.isnan(b)
    exact = np.isinf(a) or np.isinf(b) or a == 0 or b == 0
    return (a == b and np.signbit(a) == np.signbit(b)) if exact else abs(a - b) <= 1e-14 * abs(b)


@pytest.mark.parametrize("name", "exp log sqrt sinh cosh tanh sin cos tan asinh acosh atanh asin acos atan".split())
def test_special_values(name):
    got = getattr(F, name)(Tensor(np.array(SPECIAL))).numpy()
    free = [tuple(map(float, pair.split())) for pair in FREE.get(name, "").split(",") if pair]
    wrong = []
    for z, g in zip(SPECIAL, got):
        w = _meant(name, z)
        open_ = any(_alike(z.real, x) and _alike(z.imag, y) for x, y in free)
        if not open_ and not (_alike(g.real, w.real) and _alike(g.imag, w.imag)):
            wrong.append((z, complex(g), w))
    assert not wrong


def test_acosh_of_an_unknown_imaginary_number():
    got = F.acosh(Tensor(np.array([complex(0.0, np.nan), complex(-0.0, np.nan), complex(1.0, np.nan)]))).numpy()
    assert np.isnan(got.real).all() and (got.imag[:2] == np.pi / 2).all() and np.isnan(got.imag[2])


MEASURED = "exp expm1 log log2 log10 log1p sqrt rsqrt sinh cosh tanh sin cos tan asinh acosh atanh asin acos atan reciprocal"


@pytest.mark.parametrize("dtype", KINDS)
def test_errors_of_functions(dtype):
    """At most 2.5 roundings of the result's length from mpmath, over the plane, near 0, 1, -1 and i, and for large and small numbers."""
    mp = pytest.importorskip("mpmath")
    r = np.random.default_rng(0)
    turns = np.exp(1j * r.uniform(-np.pi, np.pi, 20))
    near = 10 ** r.uniform(-7, -1, 20) * turns
    around = [near, 1 + near, -1 + near, 1j + near, (1 + abs(near)) * turns, 10 ** r.uniform(-30, 30, 20) * turns]
    points = np.concatenate([sample(20), *around]).astype(dtype)
    with mp.workprec(400):
        others = {"rsqrt": lambda z: 1 / mp.sqrt(z), "log1p": lambda z: mp.log(1 + z), "expm1": lambda z: mp.exp(z) - 1}
        others |= {"log2": lambda z: mp.log(z, 2), "reciprocal": lambda z: 1 / z}
        for name in MEASURED.split():
            f = others.get(name) or getattr(mp, name)
            moderate = abs(points) < (80 if name in ("exp", "expm1", "sinh", "cosh", "tanh", "sin", "cos", "tan") else np.inf)
            z = points[moderate]
            for a, g in zip(z, getattr(F, name)(Tensor(z)).numpy()):
                w = f(mp.mpc(complex(a)))
                assert abs(mp.mpc(complex(g)) - w) <= 2.5 * float(np.finfo(dtype).eps) * abs(w), (name, a, g, complex(w))


def test_gradients_of_real_losses():
    z = Tensor([0j, 3 + 4j])
    assert np.allclose(grad(lambda x: F.sum(F.abs(x)))(z).numpy(), [0, 0.6 + 0.8j])
    assert np.allclose(grad(lambda x: F.sum(F.angle(x)))(z).numpy(), [0, (-4 + 3j) / 25])
    assert np.allclose(grad(lambda x: F.sum(F.sign(x).real))(z).numpy(), [0, 0.128 - 0.096j])
    real = Tensor([1.0, 2.0])
    g = grad(lambda x: F.sum((x * z).real))(real)
    assert g.dtype == "float32" and g.tolist() == [0, 3]
    with pytest.raises(GradientError, match="only a real number can be made smaller"):
        grad(lambda x: F.sum(x))(z)
    with pytest.raises(GradientError, match="view_as_real"):
        jacobian(lambda x: x * x)(z)
    target = Tensor(sample(2, 3, dtype="complex64"))
    w = Tensor(sample(2, 3, seed=1, dtype="complex64"))
    gm = GradManager().attach([w])

    @trace
    def step():
        with gm:
            loss = F.sum(F.square(F.abs(w - target)))
            gm.backward(loss)
        w._reset(w - 0.25 * w.grad)
        w.grad = None
        return loss

    losses = [step().item() for _ in range(30)]
    assert losses[-1] < 1e-6 * losses[0] and np.allclose(w.numpy(), target.numpy(), atol=1e-3)


def test_transformations():
    a = sample(3, 4)
    z = Tensor(a)
    for f, numpys in (
        (lambda x: x * x + 1j, a * a + 1j), (lambda x: F.sum(F.exp(x)), np.exp(a).sum(1)), (lambda x: F.abs(x)[1], np.abs(a)[:, 1]),
        (lambda x: F.matmul(x, Tensor(np.eye(4) * 1j)), a * 1j),
    ):  # fmt: skip
        near(vmap(f)(z), numpys)
    near(jvp(F.exp, (z,), (z,))[1], np.exp(a) * a)
    near(jvp(lambda x: x * F.conj(x), (z,), (z,))[1], (2 * np.abs(a) ** 2).astype("complex128"))


@pytest.mark.parametrize("dtype", KINDS)
def test_memory_is_shared_with_others(dtype):
    z = Tensor(sample(3, 4, dtype=dtype))
    out = np.from_dlpack(z)
    assert np.shares_memory(out, z.numpy())
    same(out, z.numpy()), same(tengen.from_dlpack(z.numpy().copy()), z.numpy()), same(pickle.loads(pickle.dumps(z)), z.numpy())
    assert "+" in z._repr_html_() or "-" in z._repr_html_()
    torch = pytest.importorskip("torch")
    assert str(torch.from_dlpack(z).dtype) == f"torch.{dtype}"
    same(tengen.from_dlpack(torch.tensor([1 + 2j], dtype=getattr(torch, dtype))), np.array([1 + 2j], dtype))


def test_files(tmp_path):
    z, wide = Tensor(sample(3, 4, dtype="complex64")), Tensor(sample(3, 4))
    tengen.save({"w": z}, tmp_path / "w")
    same(tengen.load(tmp_path / "w")["w"], z.numpy())
    tengen.save({"w": wide}, tmp_path / "wide")
    same(tengen.load(tmp_path / "wide")["w"], wide.numpy())
    for x in (z, wide):
        f = trace(lambda x: (F.exp(x) * 2 + x.real, F.abs(x)))
        wanted = f(x)
        text = print_graph(f.graph)
        assert print_graph(parse_graph(text)) == text
    f = trace(lambda x: (F.exp(x) * z + (2 - 1j), F.abs(x)), capture_as_const=True)
    wanted = f(z)
    f.dump(tmp_path / "m.tgn", arg_names=["x"], output_names=["y", "n"])
    got = load_graph(tmp_path / "m.tgn")(x=z)
    for g, w in zip(got.values() if isinstance(got, dict) else got, wanted):
        same(g, w.numpy())


def test_functions_of_numpy():
    z = Tensor(sample(3, dtype="complex64"))
    for f in (np.real, np.imag, np.angle, np.conj, np.abs, np.exp, np.sum):
        got = f(z)
        assert type(got) is Tensor
        near(got, f(z.numpy()))
    near(F.norm(z), np.linalg.norm(z.numpy())), near(F.var(z), np.var(z.numpy())), near(F.std(z), np.std(z.numpy()))
    near(F.linspace(0, 1 + 1j, 5, dtype="complex64"), np.linspace(0, 1 + 1j, 5).astype("complex64"))


def test_empty_numbers_have_gradients():
    for shape in ((5, 0), (0, 0), (0,)):
        x = Tensor(np.zeros(shape, "complex128"))
        gm = GradManager().attach(x)
        with gm:
            gm.backward(F.norm(F.view_as_real(x)) + F.view_as_real(x).sum())  # whose gradient is one number, seen with strides of 0
        assert x.grad.shape == shape and x.grad.dtype == "complex128"
