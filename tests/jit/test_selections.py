"""`x[mask]` inside of a trace, where the mask is computed: one program wherever the number of selected elements is not needed, with the bits
of eager calls, and gradients; an error or a question where it is."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Parameter, Tensor, autodiff, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.errors import IndexOutOfRange, ShapeError, TraceError
from tengen.optimizer import SGD


def numbers(seed=0, shape=(40, 5), odd=True):
    x = np.random.default_rng(seed).normal(size=shape).astype("float32")
    if odd:
        x[3, 2], x[7], x[9, 1], x[11, 3] = np.nan, -0.0, np.inf, -np.inf
    return x


def plain(t):
    """What is compared: shapes, dtypes and bytes, but for the bits of NaNs."""
    if isinstance(t, (tuple, list)):
        return [plain(u) for u in t]
    a = t.numpy()
    return a.shape, t.dtype, np.where(a != a, 9, a).tobytes(), (a != a).tobytes()


def agree(f, *arrays, grad=False):
    """Eager, as one program, and by a trace that may ask, but has not to."""
    call = (lambda *xs: autodiff.grad(f)(*xs)) if grad else f
    xs = [Tensor(a) for a in arrays]
    want = plain(call(*xs))
    assert plain(trace(call, symbolic=True)(*xs)) == want
    asking = trace(call)
    assert plain(asking(*xs)) == want and plain(asking(*xs)) == want
    assert not asking.stats().parts and len(asking.stats()) == 1


def same_mask(x, y):
    z = x + 0
    z[x > 0] = y[x > 0]  # two masks, computed alike
    return z


def elementwise(x, y):
    z, m = x + 0, (x > 0) & (y < 1)
    z[m] = F.gelu(-z[m]) * 2 + F.maximum(y[m], 0.5) - F.exp(z[m])
    return z


def augmented(x, y):
    z, m = x + 0, x > y
    z[m] += 1
    z[m] *= y[m]
    z[m] /= 3.0
    return z


def rows(x, y):
    z, m = x + 0, x[:, 0] > 0
    z[m] = F.softmax(z[m], axis=1) @ y[:5] + y[0]
    z[m] = z[m].sum(axis=1, keepdims=True)
    z[x[:, 1] > 1, ...] = y[3]
    z[x[:, 2] > 1] = 7
    return z


def another_dtype(x, y):
    z, m = (x * 10).astype("int16"), y > 0
    z[m] = x[m] * 3
    return z


def reduced(x, y):
    m, r = x > 0, x[:, 1] > 0
    of = [x[m].sum(), x[m].mean(), x[m].max(), x[m].min(), (x[m] > 0.5).all(), (x[m] > 0.5).any(), (x[m] > 0.5).sum()]
    of += [x[r].sum(axis=0), x[r].mean(axis=0), x[r].max(), x[r].min(axis=0), x[r].sum(axis=1).sum()]
    return [*of, x[r].sum(axis=(0, 1), keepdims=True)]


def integers(x, y):
    i, m = (y * 100).astype("int32"), x > 0
    return i[m].sum(), i[m].mean(), i[m].max(), i[m].min(), (i[m] > 3).sum()


def half(x, y):
    h, m = x.astype("float16"), y > 0
    return h[m].sum(), h[m].mean(), h[m].max(), (h[m] * 2).sum(axis=0)


@pytest.mark.parametrize("f", [same_mask, elementwise, augmented, rows, another_dtype, integers], ids=lambda f: f.__name__)
def test_bits(f):
    agree(f, numbers(), numbers(1, odd=False))
    agree(f, numbers(2, odd=False), numbers(3, odd=False))


@pytest.mark.parametrize("shape", [(40, 5), (16, 2), (17, 3), (4100, 2)], ids=str)
def test_reductions(shape):
    x = numbers(shape=shape, odd=False)
    agree(reduced, x, x)
    agree(half, x, numbers(1, shape, odd=False))
    x[0, 1], x[1, 0] = np.nan, np.inf
    agree(reduced, x, x)


def test_one_element_and_zeros():
    agree(lambda x: (x[x > 0].sum(), x[x > 0].mean(), x[x > 0].max()), np.array([2.5], "f4"))
    zeros = np.array([-0.0, 1.0, -0.0, -0.0], "f4")  # the sum is -0.0, and which zero is the largest depends on the order
    agree(lambda x: (x[x < 1].sum(), x[x < 1].max(), x[x < 1].min()), zeros)
    agree(lambda x: (x[x < 1].max(), x[x < 1].min()), np.array([0.0, 1.0, -0.0] * 20, "f4"))


def test_nothing_is_selected():
    none = lambda x: (x[x > 9].sum(), x[x > 9].mean(), x[x > 9].sum(axis=0), (x[x > 9] > 0).any(), (x[x > 9] > 0).all())
    agree(none, np.linspace(-1, 1, 7, dtype="f4"))

    @trace(symbolic=True)
    def largest(x):
        return x[x > 0].max()

    assert largest(Tensor([1.0, 3.0, -1.0])).item() == 3.0
    with pytest.raises(ShapeError, match="the max of a selection of no rows"):
        largest(Tensor([-1.0, -3.0, -1.0]))


def test_memory_of_another_order():
    x = numbers()
    agree(lambda x: elementwise(x.T, x.T * 2), x)
    agree(lambda x: reduced(x.T, x)[0:2], x)


def test_gradients_have_the_bits_of_eager_calls():
    def f(x, y):
        z, m = x * 1, x > 0
        z[m] = F.relu(z[m] - 0.5) * y[m]  # -0.0 where relu is flat
        return (z * y).sum() + (x[m] ** 2).mean() + x[m].max() * 2 + F.log(x[m]).sum() - x[m].min()  # log of what is not selected is NaN

    agree(f, numbers(odd=False), numbers(1, odd=False), grad=True)

    def by_rows(x, y):
        m = y[:, 0] > 0
        return (F.softmax(x[m] * 2, axis=1) * x[m]).sum() + F.abs(x[m]).mean() + x[m].sum(axis=0).max()

    agree(by_rows, numbers(odd=False), numbers(1, odd=False), grad=True)


def test_gradients_by_differences():
    x, y = (numbers(i, (9, 3), odd=False).astype("float64") for i in (4, 5))

    def f(x, y):
        z, m = x * 1, y > 0
        z[m] = F.exp(z[m]) * F.sqrt(y[m])
        z[~m] -= y[~m] ** 2
        return (z * z).sum() + F.sqrt(y[m]).mean() * x[m].max()

    for i, got in enumerate(trace(autodiff.grad(f, argnums=(0, 1)), symbolic=True)(Tensor(x), Tensor(y))):
        for at in np.ndindex(9, 3):
            ends = []
            for step in (1e-6, -1e-6):
                given = [x.copy(), y.copy()]
                given[i][at] += step
                ends.append(f(*map(Tensor, given)).item())
            assert abs((ends[0] - ends[1]) / 2e-6 - got.numpy()[at]) < 1e-5


def test_losses_of_what_is_selected():
    labels = np.random.default_rng(2).integers(0, 5, 40)
    labels[::3] = -100

    def f(x, y, labels):
        there = labels >= 0
        return F.loss.cross_entropy(x[there] * 2, labels[there]) + F.loss.square_loss(x[there], y[there]) + F.loss.l1_loss(y[there], x[there])

    agree(f, numbers(odd=False), numbers(1, odd=False), labels)
    agree(f, numbers(odd=False), numbers(1, odd=False), labels, grad=True)
    agree(lambda x, i: F.gather(x[i >= 0], 1, i[i >= 0].reshape(-1, 1)).sum(), numbers(odd=False), labels)
    wrong = trace(lambda x, y, labels: f(x, y, labels), symbolic=True)
    labels[1] = 5
    with pytest.raises(IndexOutOfRange, match="outside the 5 classes"):
        wrong(Tensor(numbers()), Tensor(numbers(1)), Tensor(labels))


def test_a_training_step():
    def trained(wrap):
        w = Parameter(np.ones((5, 5), "f4"))
        gm, opt = GradManager().attach([w]), SGD([w], lr=0.1)

        def step(x):
            with gm:
                y = x @ w
                loss = (y[x > 0] ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        step = wrap(step)
        return [step(Tensor(numbers(i, odd=False))).item() for i in range(4)], w.numpy().tobytes()

    assert trained(lambda f: f) == trained(trace(symbolic=True)) == trained(trace)


def test_one_program_for_every_batch_and_a_file(tmp_path):
    def f(x):
        z, m = x * 2, x > 0.5
        z[m] = F.sqrt(x[m])
        return z, x[m].sum(), x[x[:, 0] > 0].mean(axis=0)

    traced = trace(f, symbolic=True, dynamic_axes={"x": {0: "n"}})
    for n in (1, 16, 33):
        x = Tensor(numbers(n, (n, 5), odd=False))
        assert plain(traced(x)) == plain(f(x))
    assert len(traced.stats()) == 1
    traced.dump(tmp_path / "f.tgn", arg_names=["x"])
    x = Tensor(numbers(8, (21, 5), odd=False))
    assert plain(tuple(load_graph(tmp_path / "f.tgn")(x))) == plain(f(x))


def test_along_other_axes():
    def f(x, y):
        r = x[y[:, 0] > 0]
        columns = (r[:, 1:3] * r[..., 0:1]).sum() + r[:, None, 2].max()
        along = F.logsumexp(r, axis=1).sum(), F.sort(r, descending=True)[0][:, 0].sum(), F.cumsum(r, axis=1).max(), F.argmax(r, axis=1).sum()
        return columns, *along, F.concat([r, r * 2], axis=1).mean(axis=0), F.zeros_like(r).sum(), (F.ones_like(r) * r).mean()

    agree(f, numbers(odd=False), numbers(1, odd=False))
    ignored = np.random.default_rng(2).integers(0, 5, 40)
    agree(lambda x, i: F.loss.cross_entropy(x[i > 1], i[i > 1], ignore_index=3), numbers(odd=False), ignored, grad=False)


def test_what_needs_the_number():
    x = Tensor(numbers(odd=False))
    w = Tensor(np.ones((40,), "f4"))
    needs = {
        "returned": lambda x: x[x > 0],
        "a shape": lambda x: x.sum() / x[x > 0].shape[0],
        "a size": lambda x: x * x[x > 0].size,
        "another mask": lambda x: _assigned(x, x > 0, x[x < 0][:0]),
        "sorted": lambda x: F.sort(x[x > 0])[0].sum(),
        "of a column": lambda x: (x[:, 0][x[:, 0] > 0] + w[:1]).sum() + x[x > 0][0],
    }
    for name, f in needs.items():
        want = f(x) if name != "another mask" else None
        with pytest.raises(TraceError, match=r"a selection by a mask inside a trace: how many elements it has.*x\[mask\].*\[?"):
            trace(f, symbolic=True)(x)
        if want is not None:
            assert plain(trace(f)(x)) == plain(want), name
    assert x[x > 0].shape[1:] == () and trace(lambda x: x * x[x[:, 0] > 0].shape[1], symbolic=True)(x).tolist() == (x * 5).tolist()


def _assigned(x, mask, value):
    z = x + 0
    z[mask] = value
    return z


def test_a_weight_for_the_selected_rows_counts_them():
    """Its gradient is a sum over the rows, whose bits depend on how many there are."""
    x, w = Tensor(numbers(odd=False)), Tensor(np.ones(5, "f4"))
    f = autodiff.grad(lambda w, x: (x[x[:, 0] > 0] * w).sum())
    with pytest.raises(TraceError, match="selection by a mask"):
        trace(f, symbolic=True)(w, x)
    assert plain(trace(f)(w, x)) == plain(f(w, x))


def test_the_mask_is_that_of_then():
    def f(x):
        m = x > 0
        y = x[m]
        m[0] = False
        z = x + 0
        z[x > 0] = y * 2
        return z

    agree(f, np.array([1.0, -1.0, 3.0], "f4"))

    def changed(x):
        z = x + 0
        y = z[z > 0]
        z[0] = -5.0
        z[z > 0] = y  # another mask by now
        return z

    x = Tensor(np.array([-1.0, 2.0, 3.0], "f4"))
    with pytest.raises(TraceError, match="selection by a mask"):
        trace(changed, symbolic=True)(x)
    assert trace(changed)(x).tolist() == [-5.0, 2.0, 3.0]


def test_a_selection_that_is_kept():
    kept = []

    def f(x):
        kept.append(x[x > 0] * 2)
        return x.sum()

    assert trace(f)(Tensor([1.0, -1.0, 4.0])).item() == 4.0
    assert kept[0].tolist() == [2.0, 8.0] and kept[0].shape == (2,)
