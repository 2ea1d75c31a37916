"""trace: its spellings, states read anew in each run and updated in place, aliasing, gradients, errors."""

import copy
import pickle
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tengen
from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager, grad
from tengen.base.errors import TraceError, TraceWarning, UsageWarning


@pytest.fixture(autouse=True)
def _enabled():
    yield
    trace.enabled = True


def mlp(seed=3):
    random.seed(seed)
    return M.Sequential(M.Linear(6, 8), M.ReLU(), M.Linear(8, 4))


def batch(n=5, seed=1):
    r = np.random.default_rng(seed)
    return Tensor(r.normal(size=(n, 6)).astype(np.float32)), Tensor(r.integers(0, 4, n))


def state(*holders):
    return [(k, np.asarray(v).tobytes()) for h in holders for k, v in h.state_dict().items()] if holders else []


# -- spellings ---------------------------------------------------------------------------------------------------------------


def test_as_a_decorator_with_and_without_options():
    @trace
    def f(x):
        """The doc."""
        return x * 2 + 1

    @trace(symbolic=True, capture_as_const=True)
    def g(x, *, k=3):
        return x * k

    assert f(Tensor([1.0, 2.0])).tolist() == [3, 5] and f.__name__ == "f" and f.__doc__ == "The doc."
    assert g(Tensor([1.0])).tolist() == [3] and g(Tensor([1.0]), k=4).tolist() == [4]
    assert trace(symbolic=False, without_host=True, opt_level=2)(f.function)(Tensor(1.0)).item() == 3
    with pytest.raises(TypeError, match="no option 'symbolc'"):
        trace(symbolc=True)(f.function)


def test_pytorch_1_0_spelling():
    net = mlp()
    x, _ = batch()
    traced = trace(net, example_input=x)
    assert len(traced.stats()) == 1
    assert traced(x).numpy().tobytes() == net(x).numpy().tobytes()
    both = trace(lambda a, b: a + b, example_input=(x, x))
    assert both(x, x).tolist() == (x + x).tolist()


def test_megengine_1_0_spelling():
    def train(on):
        trace.enabled = on
        net = mlp()
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        @trace
        def train_func(data, label, *, opt, net):
            pred = net(data)
            loss = F.cross_entropy_with_softmax(pred, label)
            opt.backward(loss)
            return loss, pred

        losses = []
        for i in range(4):
            opt.zero_grad()
            loss, _ = train_func(*batch(seed=i), opt=opt, net=net)
            opt.step()
            losses.append(loss.numpy().tobytes())

        @trace(symbolic=True)
        def val_func(data, *, net):
            return net(data)

        val_func.trace(batch()[0], net=net)
        return losses, val_func(batch()[0], net=net).numpy().tobytes(), state(net)

    assert train(True) == train(False)


def test_megengine_1_13_spelling():
    def train(on):
        trace.enabled = on
        net = mlp()
        gm = GradManager().attach(net.parameters())
        opt = optim.Adam(net.parameters(), lr=0.01)

        @trace(symbolic=True)
        def train_func(data, label):
            with gm:
                loss = F.nn.cross_entropy(net(data), label)
                gm.backward(loss)
                opt.step().clear_grad()
            return loss

        losses = [train_func(*batch(seed=i)).numpy().tobytes() for i in range(4)]
        return losses, state(net), [p.grad for p in net.parameters()]

    assert train(True) == train(False)


def test_programs_are_dumped_and_loaded(tmp_path):
    net, (x, _) = mlp(), batch()
    want = net(x).numpy().tobytes()

    @trace
    def val_func(data, *, net):
        return net(data)

    @trace(symbolic=True, capture_as_const=True)
    def infer(data):
        return net(data)

    val_func.trace(x, net=net)
    infer(x)
    for name, f in {"1.0": val_func, "1.13": infer, "torch": trace(net, example_input=x)}.items():
        path = str(tmp_path / f"{name}.mge")
        info = f.dump(path, arg_names=["data"])
        assert "data" in str(info.inputs)
        loaded = tengen.load_graph(path)
        assert loaded(x).numpy().tobytes() == want and loaded(data=x).numpy().tobytes() == want


def test_methods_and_copies_of_their_objects():
    class Scale:
        def __init__(self, k):
            self.w = Parameter([float(k)])

        @trace
        def apply(self, x):
            self.w += 1
            return x * self.w

    a = Scale(2)
    assert a.apply(Tensor([1.0])).tolist() == [3]
    b, c = Scale(10), copy.deepcopy(a)
    assert [o.apply(Tensor([1.0])).item() for o in (b, a, c, a)] == [11, 4, 4, 5]
    assert a.w.item() == 5 and c.w.item() == 4


def test_traced_functions_call_each_other():
    inner = trace(lambda x: x + 1)
    outer = trace(lambda x: inner(x) * inner(x * 2))
    assert outer(Tensor(3.0)).item() == 28


# -- signatures --------------------------------------------------------------------------------------------------------------


def test_new_shapes_dtypes_and_values_are_recorded_anew():
    runs = []

    @trace
    def f(x, k, mode="a"):
        runs.append((x.shape, k, mode))
        return x * k if mode == "a" else x - k

    x = Tensor([1.0, 2.0])
    for _ in range(2):
        assert f(x, 2).tolist() == [2, 4] and f(x, 3).tolist() == [3, 6] and f(x, 2, mode="b").tolist() == [-1, 0]
        assert f(Tensor([1, 2]), 2).tolist() == [2, 4] and f(Tensor([1.0]), 2).tolist() == [2]
        assert f(x, True).dtype == "float32" and f(x, 2.0).tolist() == [2, 4]
    assert len(runs) == 7


def test_signed_zeros_and_nan_are_values():
    f = trace(lambda x, k: x * k)
    x = Tensor([1.0])
    assert np.signbit(f(x, 0.0).numpy()).tolist() == [False] and np.signbit(f(x, -0.0).numpy()).tolist() == [True]
    assert np.isnan(f(x, float("nan")).item())


def test_nested_structures():
    Point = namedtuple("Point", "x y")

    @trace
    def f(d, *pairs, flag, other=None):
        a, (b, c) = d["a"], d["b"]
        s = a + b * c
        for p, q in pairs:
            s = s + p * q
        return {
            "s": s,
            "list": [s, (s * 2, None, "text")],
            "point": Point(s, 1),
            "flag": flag,
            "other": other,
            "o": OrderedDict(k=a),
        }

    t = [Tensor(float(i)) for i in range(6)]
    for _ in range(2):
        r = f({"a": t[1], "b": [t[2], t[3]]}, (t[4], t[5]), (t[1], 2), flag=True)
        assert r["s"].item() == 29 and r["list"][1][0].item() == 58 and r["list"][1][1:] == (None, "text")
        assert isinstance(r["point"], Point) and r["point"].x.item() == 29 and r["flag"] is True and r["o"]["k"].item() == 1


def test_arrays_are_arguments():
    f = trace(lambda a: a * 2)
    assert [f(np.full(2, k, np.float32)).tolist() for k in (1, 2, 3)] == [[2, 2], [4, 4], [6, 6]] and len(f.stats()) == 1


def test_results_may_be_arguments_states_and_twice_the_same():
    p = Parameter([1.0])

    @trace
    def f(x):
        old = p.detach()
        p._reset(p + x)
        y = x * 2
        return x, y, y, old, p.detach(), y.reshape(1, 1)

    for k in (1.0, 2.0):
        x, y, z, old, new, v = f(Tensor([5.0]))
        assert [t.tolist() for t in (x, y, z, v)] == [[5], [10], [10], [[10]]] and new.item() == old.item() + 5 == 1 + 5 * k
    y += 1
    assert z.item() == 10 and p.item() == 11


def test_views_and_layouts_as_arguments():
    f = trace(lambda x: x.sum(1))
    x = Tensor(np.arange(12.0).reshape(3, 4))
    assert f(x).tolist() == f(x.T.T).tolist() and f(x.T).tolist() == x.numpy().T.sum(1).tolist()


# -- states ------------------------------------------------------------------------------------------------------------------


def test_states_are_read_anew_and_written():
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.0)
    gm = GradManager().attach(net.parameters())

    @trace
    def step(x, t):
        with gm:
            loss = F.cross_entropy(net(x), t)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    x, t = batch()
    first = step(x, t).item()
    assert step(x, t).item() == first
    opt.param_groups[0]["lr"] = 0.5
    step(x, t)
    assert step(x, t).item() < first
    saved = mlp(seed=9).state_dict()
    net.load_state_dict(saved)
    assert step(x, t).item() == F.cross_entropy(mlp(seed=9)(x), t).item()
    assert len(step.stats()) == 1


def test_states_of_another_type_are_recorded_anew():
    p = Parameter([1.0, 2.0])
    f = trace(lambda: p * 2)
    assert f().tolist() == [2, 4]
    p._reset(Tensor([1, 2, 3]))
    assert f().tolist() == [2, 4, 6] and f().dtype == "int64"


def test_several_models_in_one_function():
    @trace
    def f(x, *, net):
        return net(x)

    a, b = mlp(1), mlp(2)
    x, _ = batch()
    for net in (a, b, a, b):
        assert f(x, net=net).numpy().tobytes() == net(x).numpy().tobytes()


def test_copies_made_before_training_do_not_change():
    net = mlp()
    best, shared = copy.deepcopy(net), net.parameters().__next__().detach()
    before = state(best)
    kept = [p.numpy() for p in net.parameters()]
    values = [k.copy() for k in kept]

    @trace
    def f():
        for p in net.parameters():
            p._reset(p + 1)

    f()
    f()
    assert state(best) == before and all((k == v).all() for k, v in zip(kept, values))
    assert (shared.numpy() == values[0]).all()
    assert all((p.numpy() == v + 1 + 1).all() for p, v in zip(net.parameters(), values))


def test_tensors_that_share_memory_are_different_states():
    teacher = Parameter([1.0, 2.0])
    student = copy.deepcopy(teacher)

    @trace
    def f():
        d = teacher - student
        student._reset(student * 2)
        return d

    assert [f().tolist() for _ in range(3)] == [[0, 0], [-1, -2], [-3, -6]] and teacher.tolist() == [1, 2]
    a = Parameter([1.0])
    b = copy.deepcopy(a)

    @trace
    def g():
        b._reset(b + 1)
        a._reset(a + 10)

    g()
    g()
    assert (a.item(), b.item()) == (21, 3)


def test_states_change_places_and_turn_round():
    a, b, c = Parameter([1.0, 2.0]), Parameter([3.0, 4.0]), Parameter(np.arange(9.0).reshape(3, 3))

    @trace
    def f():
        x, y = a.detach(), b.detach()
        a._reset(y)
        b._reset(x)
        c._reset(c.T)

    for k in range(1, 4):
        f()
        assert (a.tolist(), b.tolist()) == (([3, 4], [1, 2]) if k % 2 else ([1, 2], [3, 4]))
        want = np.arange(9.0).reshape(3, 3)
        assert (c.numpy() == (want.T if k % 2 else want)).all()


def test_two_traces_of_the_same_parameters_and_eager_between():
    p = Parameter([1.0, 1.0])
    double, add = trace(lambda: p._reset(p * 2)), trace(lambda x: p._reset(p + x))
    for _ in range(2):
        double()
        add(Tensor([1.0, 2.0]))
        p += 1
    assert p.tolist() == [10, 13]


def test_a_state_that_is_a_view_of_another_tensor():
    x = Tensor(np.arange(6.0))
    p = Parameter([0.0, 0.0, 0.0])
    p._reset(F.split(x, 2)[1] if "split" in dir(F) else x.reshape(2, 3).sum(0))
    before = x.tolist()
    f = trace(lambda: p._reset(p + 1))
    f()
    f()
    assert x.tolist() == before


def test_gradients_accumulate_over_calls():
    def train(on):
        trace.enabled = on
        net = mlp()
        opt = optim.SGD(net.parameters(), lr=0.1)
        gm = GradManager().attach(net.parameters())

        @trace
        def add(x, t):
            with gm:
                gm.backward(F.cross_entropy(net(x), t))

        @trace
        def update():
            opt.step().clear_grad()

        for i in range(6):
            add(*batch(seed=i))
            if i % 3 == 2:
                grads = [p.grad.numpy().tobytes() for p in net.parameters()]
                update()
                assert all(p.grad is None for p in net.parameters())
        return grads, state(net)

    assert train(True) == train(False)


def test_an_update_without_gradients_does_nothing_and_then_something():
    p = Parameter([1.0])
    opt = optim.SGD([p], lr=0.5)
    step = trace(lambda: opt.step())
    with pytest.warns(UsageWarning, match="nothing was updated"):
        step()
    assert p.item() == 1
    p.grad = Tensor([1.0])
    step()
    assert p.item() == 0.5 and p.grad.item() == 1
    p.grad = None
    step()
    assert p.item() == 0.5


def test_gradients_of_arguments():
    gm = GradManager()

    @trace
    def f(x):
        gm.attach([x])
        with gm:
            gm.backward((x * x).sum())
        return x.grad

    for k in (1.0, 2.0):
        x = Tensor([k, 3.0])
        assert f(x).tolist() == [2 * k, 6] and x.grad.tolist() == [2 * k, 6]


def test_grad_functions_inside_a_trace():
    f = trace(grad(lambda x: x * x * x))
    g = trace(grad(grad(lambda x: x * x * x)))
    assert f(Tensor(2.0)).item() == 12 and g(Tensor(2.0)).item() == 12


def test_a_gradient_through_a_traced_function_is_whole():
    w = Parameter([2.0])
    f = trace(lambda x: x * w)
    assert f(Tensor([3.0])).item() == 6
    for _ in range(2):
        w.grad = None
        gm = GradManager().attach([w])
        with gm:
            gm.backward(f(Tensor([3.0])))
        assert w.grad.item() == 3
        assert f(Tensor([4.0])).item() == 8
    x = Tensor([5.0])
    assert grad(lambda x: f(x).sum())(x).item() == 2


def test_random_numbers_and_dropout_are_eager_s():
    def run(on):
        trace.enabled = on
        random.seed(11)

        @trace
        def f(x):
            a = random.uniform(size=(3,))
            y = F.dropout(x, 0.5)
            return a, y, random.normal(size=(2, 2)), random.randint(0, 10, (4,))

        x = F.ones((4, 5))
        return [[t.numpy().tobytes() for t in f(x)] for _ in range(3)], random.uniform(size=(2,)).tolist()

    on, off = run(True), run(False)
    assert on == off and on[0][0] != on[0][1]


def test_capture_as_const_bakes_and_refuses_changes():
    p = Parameter([1.0])
    f = trace(lambda x: x * p, capture_as_const=True)
    assert f(Tensor([3.0])).item() == 3
    p._reset(Tensor([5.0]))
    assert f(Tensor([3.0])).item() == 3
    with pytest.raises(TraceError, match="capture_as_const=True"):
        trace(lambda: p._reset(p + 1), capture_as_const=True)()


# -- errors ------------------------------------------------------------------------------------------------------------------


def test_an_exception_leaves_everything_as_it_was():
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gm = GradManager().attach(net.parameters())
    fail = [True]

    @trace
    def step(x, t):
        with gm:
            gm.backward(F.cross_entropy(net(x), t))
        opt.step()
        if fail[0]:
            raise KeyError("stop")
        opt.clear_grad()

    before, x = state(net), batch()
    with pytest.raises(KeyError, match="stop"):
        step(*x)
    assert state(net) == before and all(p.grad is None for p in net.parameters()) and not step.stats()
    assert all(p._node is None for p in net.parameters())
    assert (Tensor([1.0]) + 1).item() == 2
    fail[0] = False
    step(*x)
    assert state(net) != before


def test_changing_an_argument_is_refused():
    @trace
    def f(x):
        x += 1
        return x

    with pytest.raises(TraceError, match=r"test_trace.py:[0-9]+: argument 0 \(f32\[1\]\) is changed in place.*help: "):
        f(Tensor([1.0]))


def test_a_leaked_tensor_says_so():
    kept = []
    f = trace(lambda x: kept.append(x * 2), symbolic=True)
    with pytest.warns(TraceWarning, match=r"the result of mul \(f32\[1\], made at"):
        f(Tensor([1.0]))
    with pytest.raises(TraceError, match=r"add\(.*a trace that has ended.*help: return it"):
        kept[0] + 1
    for ask in (kept[0].numpy, kept[0].tolist, lambda: bool(kept[0]), lambda: float(kept[0])):
        with pytest.raises(TraceError, match=r"test_trace.py:[0-9]+: the values of f32\[1\].*a trace that has ended.*help: return it"):
            ask()
    with pytest.raises(TraceError, match="another trace"):
        trace(lambda x: x + kept[0])(Tensor([1.0]))
    with pytest.raises(TraceError, match="has not been traced"):
        _ = trace(lambda x: x).graph


def test_a_state_keeps_its_type():
    p = Parameter([1.0])
    with pytest.raises(TraceError, match=r"f32\[1\] was given a value of type f32\[1,1\].*help: "):
        trace(lambda: p._reset(p.reshape(1, 1)))()
    assert p.shape == (1,)


def test_python_decisions_are_refused():
    @trace(symbolic=True)
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(TraceError, match="test_trace.py.*functional.where"):
        f(Tensor([1.0]))


@trace(symbolic=True, max_programs=3, on_excess="error")
def halved(x):
    return x * 0.5


def tripled(x):
    return x * 3


def test_copies_have_the_options():
    run = trace(tripled, name="three", dynamic_axes={0: "n"}, max_programs=1, on_excess="error", capture_as_const=True)
    for other in (copy.copy(run), copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert other is not run and other._options() == run._options() and other._options()["name"] == "three"
        assert other(Tensor([1.0, 2.0])).tolist() == [3, 6] and other(Tensor([1.0])).tolist() == [3] and len(other.stats()) == 1
        with pytest.raises(TraceError):
            other(Tensor([[1.0]]))
    assert pickle.loads(pickle.dumps(halved)) is halved, "a decorated function is found by its name"


def test_what_a_trace_shows():
    run = trace(tripled, max_programs=4)
    assert repr(run) == "<trace of tripled(max_programs=4): nothing recorded yet>"
    run(Tensor([1.0]))
    assert repr(run) == "<trace of tripled(max_programs=4): 1 recording, 1 program>"
    assert "<li><code>x: f32[1]</code>: the first call</li>" in run._repr_html_()
