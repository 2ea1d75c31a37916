"""`debug.check_finite`: which op made the first NaN or infinity, eagerly, in programs, in bodies and in gradients; what is allowed; and that
neither bits nor states change."""

import numpy as np
import pytest
from each import each

from tengen import Tensor, autodiff, debug, load_graph, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.dtype import dtype
from tengen.base.errors import NonFiniteError
from tengen.debug.carries import carried
from tengen.debug.finite import Marked
from tengen.debug.marks import largest_magnitude, marked
from tengen.ops.define import dispatch
from tengen.optimizer import SGD
from tengen.passes.pipeline import optimize

INF = float("inf")
X = Tensor([1.0, 0.0, 2.0])
STEPS = Tensor([1.0, 2.0, 0.0, 4.0])


@pytest.fixture(autouse=True)
def off_again():
    yield
    debug.set_check_finite(False)


def logs(xs):
    return F.scan(lambda c, v: (c * v, F.log(c)), Tensor(1.0), xs)[1]


def nested(xs):
    def step(c, v):
        y = F.cond(v > 0, lambda a: F.sqrt(a), lambda a: F.sqrt(a - 1.0), v)
        return c + y, y

    return F.scan(step, Tensor(0.0), xs)[0]


def grows(x):
    return F.while_loop(lambda a: a < 1.0, lambda a: F.log(a) * -1e-3, x)


CASES = {  # name: (function, argument, what is said)
    "op": (lambda x: F.log(x) + 1, X, r"log makes an infinity: f32\[3\] with 1 of 3 elements infinite, the first at \[1\]; .* in \[0, 2\]"),
    "operator": (lambda x: x / 0.0, X, r"div makes a NaN: f32\[3\] with 1 of 3 elements NaN"),
    "overflow": (lambda x: (x + 1) * 3e38, X, r"mul makes an infinity: .* 2 of 3|mul makes an infinity: .* 1 of 3"),
    "fused": (lambda x: F.relu(F.exp(x * 1000) - 1) @ X, X, r"exp makes an infinity"),
    "matmul": (lambda x: (x * 1e38) @ (X * 10), X, r"(mul|matmul) makes an infinity"),
    "float64": (lambda x: F.log(x.astype("float64")), X, r"log makes an infinity: f64"),
    "float16": (lambda x: (x * 4e4).astype("float16") * 2, X, r"(astype|mul) makes an infinity: f16"),
    "scalar": (lambda x: F.sqrt(-x.sum()), X, r"sqrt makes a NaN: f32\[\] with 1 of 1"),
    "scan": (logs, STEPS, r"log makes an infinity: .* inside of scan, iteration 3"),
    "cond in scan": (nested, STEPS, r"sqrt makes a NaN: .* inside of scan, iteration 2 inside of cond, where it is False"),
    "while": (grows, Tensor(0.0), r"log makes an infinity: .* inside of while_loop, iteration 0"),
    "backward": (autodiff.grad(lambda x: F.sqrt(x).sum()), X, r"in the gradient of sqrt \(called at .*finite.py:\d+\): .* makes an infinity"),
    "argument": (lambda x: x * 2 + 1, Tensor([1.0, np.nan]), "mul is given a NaN, which nothing in the block made"),
}


@pytest.mark.parametrize("how", ["eager", "traced"])
@pytest.mark.parametrize("name", CASES)
def test_the_first_op_is_named(name, how):
    function, x, told = CASES[name]
    run = function if how == "eager" else trace(function)
    before = run(x).numpy().tobytes()
    with debug.check_finite():
        with pytest.raises(NonFiniteError, match=rf"(?s){told}.*\[at .*test_check_finite.py:\d+\]"):
            run(x)
    assert run(x).numpy().tobytes() == before  # behind the block nothing is checked, and no bit is another
    with debug.check_finite(allow_inf=True, allow=["log", "sqrt", "div", "mul", "exp", "add", "sqrt.d0"]):
        run(x), run(x)


def test_infinities_that_were_there_are_no_error():
    mask = Tensor([0.0, -INF, 0.0])
    runs = [lambda x: F.softmax(x + mask), lambda x: F.where(x > 1, x, -INF).sum(), lambda x: F.relu(x + mask) + 1, lambda x: -mask]
    for f in runs:
        wanted = f(X).numpy().tobytes()
        with debug.check_finite():
            t = trace(f)
            assert f(X).numpy().tobytes() == t(X).numpy().tobytes() == t(X).numpy().tobytes() == wanted
    run = trace(lambda x: x + mask)
    with debug.check_finite():
        run(X), run(X)  # from now on only NaNs are looked for in this value
        with pytest.raises(NonFiniteError, match="add makes a NaN"):
            run(Tensor([1.0, INF, 2.0]))


def test_what_is_allowed():
    log, line = trace(lambda x: F.log(x) * 2), "test_check_finite.py:"
    for allowed in ({"allow_inf": True}, {"allow": ["log"]}, {"allow": [f"{line}{test_what_is_allowed.__code__.co_firstlineno + 1}"]}):
        with debug.check_finite(**allowed):
            log(X), log(X)
    with debug.check_finite(allow_inf=True):
        for run in (log, lambda x: F.log(x)):
            with pytest.raises(NonFiniteError, match="log makes a NaN"):
                run(-X - 1)
    with debug.check_finite(allow=["exp"]), pytest.raises(NonFiniteError):
        log(X)


def test_the_switch_and_blocks_nest():
    run = trace(lambda x: F.log(x))
    debug.set_check_finite(True)
    with debug.check_finite(allow_inf=True):
        run(X), F.log(X)
    for f in (run, F.log, lambda x: 1.0 / x, lambda x: x / x):
        with pytest.raises(FloatingPointError):
            f(X)
    debug.set_check_finite(False)
    assert run(X).tolist()[1] == F.log(X).tolist()[1] == -INF


def test_blocks_in_a_loop_compile_once(monkeypatch):
    """And a trace is called directly in them, where it writes no state: each call finds the NaN, and none is stale."""
    made, init = [], Marked.__init__
    monkeypatch.setattr(Marked, "__init__", lambda self, exe, lenient: (made.append(dict(lenient)), init(self, exe, lenient))[1])
    w, count = Tensor([1.0, 1.0, 1.0]), Tensor(0.0)

    @trace
    def reads(x):
        return F.log(x * w).sum()

    @trace
    def writes(x):
        count._reset(count + 1)
        return F.log(x * w).sum()

    good, calls = Tensor([1.0, 2.0, 3.0]), []
    for f in (reads, writes):
        for _ in range(3):
            for fill in (1.0, 2.0):
                w[:] = fill
                with debug.check_finite():
                    calls.append(f(good).item() == F.log(good * fill).sum().item())
                    with pytest.raises(NonFiniteError, match="log makes an infinity"):
                        f(X)
            with debug.check_finite(allow=["log"]):
                calls.append(f(X).item() == -INF)
    assert all(calls) and len(calls) == 18 and count.item() == 9
    assert list(map(bool, made)) == [False, False, True] * 2, "one program for each set of what is allowed, and one for what was found"


def training(check):
    random.seed(3)
    net = M.Sequential(M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.Flatten() if hasattr(M, "Flatten") else M.Identity())
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    @trace
    def step(x):
        with gm:
            loss = (F.dropout(net(x), 0.5) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("f4"))
    losses = [step(x)]
    with debug.check_finite() if check else autodiff.enable_grad():
        losses += [step(x), step(x)]
    losses.append(step(x))
    return [t.numpy().tobytes() for t in (*losses, *net.parameters(), *net.buffers())], step, x, net


def test_a_training_step_keeps_its_bits_and_its_states():
    plain, *_ = training(False)
    looked, step, x, net = training(True)
    assert looked == plain
    states = [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())]
    with debug.check_finite(), pytest.raises(NonFiniteError, match=r"step: .* makes"):
        step(x * 1e30)
    assert [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())] == states  # the run that failed wrote nothing
    step(x)


def test_what_is_written_in_place_is_looked_at():
    w = M.Linear(2, 2)
    gm, opt = GradManager().attach(w.parameters()), SGD(w.parameters(), lr=1e38)
    with debug.check_finite(), pytest.raises(NonFiniteError, match="sgd_update makes an infinity"):
        with gm:
            gm.backward((w(Tensor([[100.0, 1.0]])) * 10).sum())
        opt.step()
    x = Tensor([1.0, 2.0])
    with debug.check_finite(), pytest.raises(NonFiniteError, match="set_slice is given a NaN"):
        x[0] = np.nan


def test_most_values_need_no_check():
    _, step, _, net = training(False)
    graph = optimize(step.graph)
    checked = len(marked(graph, {}).checks) - len(graph.checks)
    assert 0 < checked <= 15 and checked < len(graph.nodes) / 2, (checked, len(graph.nodes))


def test_the_gradient_of_a_loop_names_the_line_in_its_body():
    def body(s, i):
        return F.sqrt(s), i + 1

    loops = {
        "while": lambda x: F.while_loop(lambda s, i: i < 3, body, x, Tensor(0))[0].sum(),
        "scan": lambda x: F.scan(lambda s, i: (body(s, 0)[0], None), x, length=3)[0].sum(),
    }
    line = body.__code__.co_firstlineno + 1
    for f in loops.values():
        for run in (autodiff.grad(f), trace(autodiff.grad(f))):
            with pytest.raises(NonFiniteError, match=rf"sqrt.* inside of .*test_check_finite.py:{line}\]"), debug.check_finite():
                run(Tensor([0.0, 2.0]))
    with debug.check_finite(allow="log"):  # a name alone is one name
        assert F.log(Tensor(0.0)).item() == -np.inf


def test_models_and_open_extents(tmp_path):
    run = trace(lambda x: F.log(x).sum(), dynamic_axes={0: "n"})
    run(X)
    run.dump(tmp_path / "m.tgn", arg_names=["x"])
    model = load_graph(tmp_path / "m.tgn")
    with debug.check_finite():
        for f in (run, model):
            assert f(Tensor([1.0, 1.0])).item() == 0
            for x in (X, Tensor([0.0, 3.0])):
                with pytest.raises(NonFiniteError, match="log makes an infinity"):
                    f(x)


def test_what_carries_is_seen():
    """Each op that is said to carry what is not finite does, from any place of its operand."""
    a, b = np.ones((2, 3, 5, 6), "f4"), Tensor(np.ones((4, 3, 3, 3), "f4"))
    flat = Tensor(np.zeros((6, 2), "f4"))
    functions = [
        lambda x: x + 1, lambda x: x * 0.0, lambda x: 1 - x, lambda x: -x, lambda x: x / 3, lambda x: x.sum(1), lambda x: x.mean(),
        F.abs, F.square, F.sqrt, lambda x: x.astype("float64"), lambda x: x @ flat, lambda x: F.relu(x), lambda x: F.exp(x),
        lambda x: F.conv2d(x, b * 0, padding=1), lambda x: F.conv2d(x, b, stride=2), lambda x: F.conv2d(x, b, stride=(2, 3)),
        lambda x: F.conv2d(x, b, dilation=2), lambda x: F.maximum(x, 0.5), lambda x: 1 / x, lambda x: x.reshape(6, -1),
    ]  # fmt: skip
    carrying = 0
    for f in functions:
        t = trace(f, dynamic_axes=None)
        t.trace(Tensor(a))
        graph = t.graph
        node = next((n for n in graph.nodes if graph.inputs[0] in n.inputs), None)
        if node is None or not carried(node, node.inputs.index(graph.inputs[0])) or len(graph.nodes) > 1:
            continue
        carrying += 1
        for value in (np.nan, INF, -INF):
            for at in [(0, 0, 0, 0), (1, 2, 4, 5), (1, 1, 4, 0), (0, 2, 0, 5)]:
                x = a.copy()
                x[at] = value
                assert not np.isfinite(t(Tensor(x)).numpy()).all(), (node, value, at)
    assert carrying >= 12


@each("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_largest_magnitude_is_that_of_the_bits(name):
    """Beside NumPy's in float64, of all lengths around those of vectors and chunks, with and without a NaN or an infinity anywhere."""
    kind = dtype(name).numpy
    for n in (1, 2, 15, 17, 63, 65, 300, 5000):
        for odd in (None, np.nan, -np.nan, np.inf, -np.inf):
            a = (np.random.default_rng(n).standard_normal(n) * 3).astype(kind)
            a[n // 2] = a[n // 2] if odd is None else odd
            for some in (a, a[::-1], np.stack([a, a])[:, ::2]):
                np.testing.assert_array_equal(largest_magnitude(Tensor(some)).numpy().astype("float64"), np.abs(some.astype("float64")).max())


def test_what_a_loop_is_given_for_each_iteration():
    """One kernel behind the value, which it stores; nothing else in the loop."""
    run = trace(lambda h: F.fori_loop(0, 5, lambda i, s: F.tanh(s), h), example_input=Tensor(np.ones((3, 4), "float32")))
    before, after = (next(n for n in g.nodes if n.op == "scan") for g in (run.graph, marked(run.graph, {})))
    ops = [[n.op for n in s.attrs["body"].nodes] for s in (before, after)]
    assert ops[1] == [*ops[0], "largest_magnitude"] and len(after.outputs) == len(before.outputs) + 1


def test_blocks_leave_nothing_behind_and_nest_with_watch():
    x, zero = Tensor([1.0, -1.0]), Tensor([0.0, 0.0])
    F.log(x * x)  # takes away what an earlier test may have left
    before = Tensor.__add__, dispatch.run, dispatch.slow
    with debug.check_finite():
        pass
    assert (x / zero).tolist() == [np.inf, -np.inf]  # the first call behind the block takes away what was put there
    assert (Tensor.__add__, dispatch.run, dispatch.slow) == before
    seen = []
    with debug.check_finite():
        with debug.watch("div", lambda label, value: seen.append(value.tolist())):
            x / x
        with pytest.raises(FloatingPointError, match="div makes an infinity"):
            x / zero
    with debug.watch("div", lambda label, value: seen.append(value.tolist())):
        with debug.check_finite(), pytest.raises(FloatingPointError):
            F.log(zero)
        x / 2
    assert seen == [[1.0, 1.0], [0.5, -0.5]]
    F.log(x * x)
    assert (Tensor.__add__, dispatch.run, dispatch.slow) == before
    with debug.check_finite(allow_inf=True):
        x / zero
        with debug.check_finite(), pytest.raises(FloatingPointError):
            x / zero
        x / zero
    x / zero
    assert (Tensor.__add__, dispatch.run, dispatch.slow) == before
