"""A traced function that asks for values is run in parts: each call is compared as bytes with the function itself, over calls that
take different paths; and what is compiled, counted, warned of and refused."""

import contextlib
import dataclasses
import io
import pickle
import random
import threading
import warnings

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, autodiff, trace
from tengen.amp import GradScaler, autocast
from tengen.autodiff import GradManager
from tengen.base.errors import GradientError, IndexOutOfRange, TraceError, TraceWarning
from tengen.jit import exclude_from_trace
from tengen.optimizer import LBFGS, SGD, Adam, clip_grad_norm

CALLS = 6


def data(i, *shape):
    return Tensor(np.random.default_rng(i).normal(size=shape or (4, 6)).astype("float32"))


class Case:
    """A function with all that it reads and changes: `state` is compared after each call. args: of call i."""

    def __init__(self, f, args=lambda i: (data(i),), state=lambda: ()):
        self.f, self.args, self.state = f, args, state


def a_number():
    return Case(lambda x: x * (x * x).sum().item())


def a_branch():
    def f(x):
        y = F.exp(x) - 1
        if y.mean() > 0.6:
            return y * 2
        if (y.max() > 3).item():
            y = y + 1
        return y / 3

    return Case(f)


def in_one_branch_only():
    log = []

    def f(x, often):
        y = F.tanh(x @ x.T)
        if often:
            log.append(float(y.sum()))
        return y * y

    return Case(f, lambda i: (data(i), i % 3 == 0), lambda: log)


def a_mask():
    return Case(lambda x: F.exp(x[x > 0.3]).sum() * x[x <= 0.3])


def a_mask_that_is_written():
    def f(x):
        y = x * 2
        y[y > 1] = 0
        if y.sum() > 0:
            y[0, y[0] < 0] = y.max()
        return y, y[y != 0]

    return Case(f)


def positions():
    def f(x):
        rows, columns = F.nonzero(x > 0.5)
        return rows + columns, F.topk(x, int((x > 0).sum().item() % 4) + 1)

    return Case(f)


def printing():
    out = io.StringIO()

    def f(x):
        y = x.sum(1)
        with contextlib.redirect_stdout(out):
            print(y, f"{y[0]:.3f}", f"{y}")
        return y + 1

    return Case(f, state=out.getvalue)


def a_shape():
    def f(x, n):
        rows = (n * 2).sum()
        return x.reshape(int(rows), -1) + F.zeros((int(rows), 1))

    return Case(f, lambda i: (data(i), Tensor([1 + i % 2, 0, 0])))


def a_loop_that_stops_early():
    def f(a):
        x = F.ones((6,))
        steps = 0
        while True:
            new = F.tanh(a @ x)[:6] * 0.9
            error = F.abs(new - x).max()
            x = new
            steps += 1
            if error.item() < 0.05 or steps > 12:
                return x, steps

    return Case(f, lambda i: (data(i, 6, 6) * 0.3,))


def python_between():
    counts = {"calls": 0, "sum": 0.0, "seen": []}
    chance = random.Random(5)

    def f(x):
        counts["calls"] += 1
        y = x * chance.random()
        counts["sum"] += y.sum().item()
        z = y * counts["calls"]
        counts["seen"].append(z.detach())
        return z + counts["sum"]

    return Case(f, state=lambda: (counts["calls"], counts["sum"], [t.numpy().tobytes() for t in counts["seen"]]))


def network(*extents, opt=SGD, **options):
    layers = [layer for i, o in zip(extents, extents[1:]) for layer in (M.Linear(i, o), M.ReLU())]
    net = M.Sequential(*layers[:-1])
    rng = np.random.default_rng(0)
    for p in net.parameters():
        p._reset(Tensor((rng.normal(size=p.shape) * 0.5).astype("float32")))
    return net, GradManager().attach(net.parameters()), opt(net.parameters(), **({"lr": 0.1} | options))


def values(net, opt=None):
    there = [p.numpy() for p in net.parameters()] + [b.numpy() for b in net.buffers()]
    grads = [None if p.grad is None else p.grad.numpy().tobytes() for p in net.parameters()]
    return [x.tobytes() for x in there], grads


def batch(i):
    return data(i, 8, 6), Tensor(np.random.default_rng(i).integers(0, 3, 8).astype("int32"))


def a_step_that_stops_for_its_loss():
    net, gm, opt = network(6, 5, 3, momentum=0.9)
    seen = []

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            seen.append(loss.item())
            if loss > 1.2:
                loss = loss * 0.5
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Case(step, batch, lambda: (values(net), seen))


def clipping_by_a_number():
    net, gm, opt = network(6, 5, 3, opt=Adam)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        norm = sum((p.grad**2).sum().item() for p in net.parameters()) ** 0.5
        if norm > 0.5:
            for p in net.parameters():
                p.grad = p.grad * (0.5 / norm)
        opt.step()
        opt.clear_grad()
        return loss, norm

    return Case(step, batch, lambda: values(net))


def clipping_kept_gradients():
    net, gm, opt = network(6, 5, 3)

    def step(x, y):
        opt.clear_grad()
        with gm:
            gm.backward(F.loss.cross_entropy(net(x), y))
        total = clip_grad_norm(net.parameters(), 0.3)
        if total.item() > 0.4:
            opt.step()
        return total

    return Case(step, batch, lambda: values(net))


def two_networks():
    g, gm_g, opt_g = network(4, 6, 6)
    d, gm_d, opt_d = network(6, 5, 1)
    log = []

    def step(noise, real):
        with gm_d:
            fake = g(noise)
            loss_d = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake.detach())).mean()
            gm_d.backward(loss_d)
        opt_d.step().clear_grad()
        if loss_d.item() > 0.5:
            log.append(("d", loss_d.item()))
        with gm_g:
            loss_g = -d(g(noise)).mean()
            gm_g.backward(loss_g)
        opt_g.step().clear_grad()
        log.append(("g", float(loss_g)))
        return loss_d, loss_g

    return Case(step, lambda i: (data(i, 8, 4), data(i + 50, 8, 6)), lambda: (values(g), values(d), log))


def dropout_between():
    net = M.Sequential(M.Linear(6, 8), M.Dropout(0.5), M.Linear(8, 2))
    rng = np.random.default_rng(0)
    for p in net.parameters():
        p._reset(Tensor(rng.normal(size=p.shape).astype("float32")))

    def f(x):
        y = net(x)
        if y.sum().item() > 0:
            y = F.nn.dropout(y, 0.3)
        return net[1](y) + tengen.random.normal(size=(2,)) * y.mean().item()

    return Case(f)


def running_means():
    net = M.Sequential(M.Conv2d(2, 3, 3), M.BatchNorm2d(3), M.ReLU())

    def f(x):
        y = net(x)
        if net[1].running_mean.sum().item() > 0.001:
            y = net(x * 2)
        return y.sum((2, 3))

    return Case(f, lambda i: (data(i, 2, 2, 6, 6),), lambda: values(net))


def numbers_as_arguments():
    return Case(lambda x, s: (x * s).sum().item() + x * s + 0.5, lambda i: (data(i), 0.5 * i if i % 2 else -0.0))


def arguments_in_place():
    kept = [data(90, 6)]

    def f(x):
        if x.mean().item() > 0:
            x[0] = kept[0]
            x += 1
        kept[0] = kept[0] * x.max().item()
        x *= 2
        return x

    given = []

    def args(i):
        given[:] = [data(i)]
        return given

    return Case(f, args, lambda: [t.numpy().tobytes() for t in (*given, *kept)])


def views_before_a_write():
    buffer = data(91, 4, 6)

    def f(x):
        before = buffer[1:]
        buffer[1] = x[0]
        n = buffer.sum().item()
        buffer[2] = n
        return before + 0, buffer.T, before.sum()

    return Case(f, state=lambda: buffer.numpy().tobytes())


def exceptions_of_python():
    w, seen = Tensor(np.zeros(3, "float32")), []

    def f(x):
        try:
            w._reset(w + x.sum())
            if w.sum().item() > 1:
                w._reset(w * 0.5)
                raise KeyError("enough")
            w._reset(w + 1)
        except KeyError:
            seen.append(w.sum().item())
        return w * 2

    return Case(f, state=lambda: (w.numpy().tobytes(), seen))


def checks_that_are_caught():
    w, table = Tensor(np.zeros(3, "float32")), Tensor(np.arange(12, dtype="float32").reshape(4, 3))

    def f(i):
        w._reset(w + 1)
        try:
            rows = F.nn.embedding(i, table)
            return rows.sum().item() + w
        except IndexOutOfRange:
            return w * 100

    return Case(f, lambda i: (Tensor([i, 1]),), lambda: w.numpy().tobytes())


def excluded():
    seen = []

    def f(x):
        y = F.exp(x)
        with exclude_from_trace():
            z = y.sum(0) * len(seen)
            seen.append(z.numpy().tobytes())
        return y * z

    return Case(f, state=lambda: seen)


def hooks():
    w = tengen.Parameter(np.ones((6, 2), "float32"))
    gm, seen = GradManager().attach([w], callbacks=lambda p, g: seen.append(g.sum().item())), []

    def f(x):
        with gm:
            y = F.tanh(x @ w)
            y.register_hook(lambda g: g * 2 if g.max().item() > 0.1 else None)
            gm.backward(y.sum() * y.mean().item())
        w._reset(w - w.grad * 0.1)
        w.grad = None
        return y

    return Case(f, state=lambda: (w.numpy().tobytes(), seen))


def gradients_of_gradients():
    def f(x):
        slope = autodiff.grad(lambda t: (t**3).sum() * t.max().item())(x)
        return slope * 2, autodiff.grad(lambda t: autodiff.grad(lambda s: (s**4).sum())(t).sum())(x)

    return Case(f)


def under_autocast():
    net, gm, opt = network(6, 5, 3)

    def step(x, y):
        with autocast(), gm:
            scores = net(x)
            if scores.sum().item() > 0:
                scores = scores + net(x * 2)
            loss = F.loss.cross_entropy(scores, y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Case(step, batch, lambda: values(net))


def a_scaled_step():
    net, gm, opt = network(6, 5, 3)
    scaler = GradScaler(init_scale=4.0, growth_interval=2)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            scaler.backward(gm, loss)
        if loss.item() < 2:
            opt.step()
        opt.clear_grad()
        return loss

    return Case(step, batch, lambda: values(net))


def loops_of_the_graph():
    def f(x):
        total, _ = F.scan(lambda s, row: (s * 0.5 + row, None), F.zeros((6,)), x)
        if total.sum() > 0:
            total = F.cond(total[0] > 0, lambda t: t * 2, lambda t: t - 1, total)
        return total * total.max().item()

    return Case(f)


def examples_of_vmap():
    def f(x):
        y = autodiff.vmap(lambda row: row * row.sum())(x)
        k = y.mean().item()
        return autodiff.vmap(lambda row: F.exp(row * 0.1) * k)(y)

    return Case(f)


def other_structures():
    def f(d, *, extra):
        y = {"a": d["x"] * 2, "b": [d["x"], extra]}
        y["n"] = y["a"].sum().item()
        y["b"].append(y["a"] * y["n"])
        return y

    return Case(lambda d: f(d, extra=d["x"] + 1), lambda i: ({"x": data(i)},))


def steps_of_lbfgs():
    p = tengen.Parameter(np.array([3.0, -2.0], "float32"))
    gm, opt = GradManager().attach([p]), LBFGS([p], max_iter=2)

    def f(target):
        def closure():
            opt.clear_grad()
            with gm:
                loss = ((p * p - target) ** 2).sum()
                gm.backward(loss)
            return loss

        return opt.step(closure)

    return Case(f, lambda i: (data(1, 2),), lambda: p.numpy().tobytes())


CASES = [
    a_number, a_branch, in_one_branch_only, a_mask, a_mask_that_is_written, positions, printing, a_shape, a_loop_that_stops_early,
    python_between, a_step_that_stops_for_its_loss, clipping_by_a_number, clipping_kept_gradients, two_networks, dropout_between,
    running_means, numbers_as_arguments, other_structures, arguments_in_place, views_before_a_write, exceptions_of_python,
    checks_that_are_caught, excluded, steps_of_lbfgs,
    hooks, gradients_of_gradients, under_autocast, a_scaled_step, loops_of_the_graph, examples_of_vmap,
]  # fmt: skip


def plain(x):
    """What can be compared: bytes of tensors."""
    if isinstance(x, Tensor):
        return x.shape, x.dtype, x.numpy().tobytes()
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return type(x), np.array(x).tobytes() if isinstance(x, float) else x


def made(make):
    """A case whose networks begin with the same numbers."""
    tengen.random.seed(3)
    return make()


def ran(case, f):
    """The results and states of all calls."""
    tengen.random.seed(7)
    results = []
    for i in range(CALLS):
        results.append((plain(f(*case.args(i))), plain(case.state())))
    return results


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", CASES, ids=lambda m: m.__name__)
def test_parts_have_the_bits_of_eager_calls(make):
    case = made(make)
    want = ran(case, case.f)
    case = made(make)
    traced = trace(case.f)
    got = ran(case, traced)
    for i, (a, b) in enumerate(zip(got, want)):
        assert a == b, (i, a, b)
    stats = traced.stats()
    assert len(stats.parts) >= 2 and len(stats) <= 1 and stats.cuts, stats
    assert sum(p.calls for p in stats.parts) >= CALLS


# -- what is compiled --------------------------------------------------------------------------------------------------------


def programs(f):
    return sum(p.programs for p in f.stats().parts)


def test_numbers_that_differ_become_operands():
    """A first program has them as constants; the next one, of the same structure, serves all."""
    f = trace(lambda x: x * x.max().item() + 0.25)
    first = f(data(0)), programs(f)
    for i in range(1, 8):
        x = data(i)
        assert f(x).numpy().tobytes() == (x * x.max().item() + 0.25).numpy().tobytes()
    assert first[1] == 2 and programs(f) == 3
    for x in (np.float32(-0.0), np.float32(np.nan), np.float32(np.inf)):
        x = Tensor(np.full((4, 6), x))
        assert f(x).numpy().tobytes() == (x * x.max().item() + 0.25).numpy().tobytes()
    assert programs(f) == 3


def test_parts_that_differ_in_shapes_are_compiled_when_they_are_met_again():
    """How many elements a mask selects differs in nearly every call: such parts are run op by op, and the bits are the same."""
    f = trace(lambda x: F.exp(x[x > 0]) * 2 + 1)
    for i in [*range(12), 0, 0, 0]:
        x = data(i, 40)
        assert f(x).numpy().tobytes() == (F.exp(x[x > 0]) * 2 + 1).numpy().tobytes()
    assert programs(f) <= 6, f.stats()


def test_a_part_that_gives_more_serves_a_call_that_needs_less():
    kept = []

    def f(x, keep):
        y = x * 2
        z = y + 1
        if keep:
            kept.append(y)
        del y
        return z * z.sum().item()

    traced = trace(f)
    for keep in (True, False, True, False):
        assert traced(data(1), keep).numpy().tobytes() == f(data(1), keep).numpy().tobytes()
    assert [t.numpy().tobytes() for t in kept] == [(data(1) * 2).numpy().tobytes()] * 4
    assert max(p.programs for p in traced.stats().parts) <= 2


def test_what_asks_for_nothing_is_one_program():
    f = trace(lambda x: F.exp(x) * 2)
    f(data(0)), f(data(1))
    assert len(f.stats()) == 1 and f.stats().programs == 1 and not f.stats().parts and f._direct


def test_what_was_recorded_before_the_first_question_stays():
    """A recording whose guards hold is still run directly."""

    class Holder:
        asks = False

    holder = Holder()

    def f(x):
        y = x * 3
        return y * y.sum().item() if holder.asks else y + 1

    traced = trace(f)
    for asks in (False, True, False, True, False):
        holder.asks = asks
        assert traced(data(2)).numpy().tobytes() == f(data(2)).numpy().tobytes()
    assert len(traced.stats()) == 1 and len(traced.stats().parts) == 2


def test_stats_name_parts_and_lines():
    def f(x):
        y = x * 2
        k = y.sum().item()
        return y * k

    traced = trace(f)
    for i in range(3):
        traced(data(i))
    first, last = traced.stats().parts
    line = f"{__file__}:{f.__code__.co_firstlineno + 2}"
    assert (first.nodes, first.calls, first.programs, first.where) == (2, 3, 1, line) and last.where is None and last.nodes == 1
    assert traced.stats().cuts == {line: 3}
    assert f"part of 2 ops up to {line}: run 3 times, 1 program" in repr(traced.stats())
    assert f"asks for values at {line}: 3 times" in repr(traced.stats())
    assert repr(traced) == "<trace of f: run in 2 parts>"


def test_very_many_parts_are_warned_of_once():
    def f(x):
        for _ in range(25):
            x = x * 0.5 if x.max() > 1 else x + 1
        return x

    traced, where = trace(f), f"test_parts.py:{f.__code__.co_firstlineno + 2} \\(25 times\\)"
    with pytest.warns(TraceWarning, match=f"asks for values 25 times in a call.*{where}.*help: "):
        traced(data(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert traced(data(1)).numpy().tobytes() == f(data(1)).numpy().tobytes()


# -- where it ends ---------------------------------------------------------------------------------------------------------


def test_questions_to_what_is_recorded_as_a_whole(tmp_path):
    def f(x):
        return x * x.sum().item()

    for whole in (lambda: trace(f, symbolic=True)(data(0)), lambda: trace(f).trace(data(0)), lambda: trace(f, example_input=data(0))):
        with pytest.raises(TraceError, match="test_parts.py.*functional.cond.*jit.script"):
            whole()
    traced = trace(f)
    traced(data(0))
    for ask in (lambda: traced.dump(tmp_path / "x.tgn"), lambda: traced.graph):
        with pytest.raises(TraceError, match="asks for values of tensors .*test_parts.py.*functional.cond.*jit.script"):
            ask()
    with pytest.raises(TraceError, match="inside a trace"):
        trace(f, dynamic_axes={0: "n"})(data(0))


def test_errors_leave_what_eager_calls_leave():
    def make():
        w, table = Tensor(np.zeros(3, "float32")), Tensor(np.arange(12, dtype="float32").reshape(4, 3))

        def f(i, then):
            w._reset(w + 1)
            w.sum().item()
            w._reset(w * 3)
            rows = F.nn.embedding(i, table)
            if then:
                raise KeyError(then)
            w._reset(w + rows.sum())
            return rows.sum().item()

        return w, f

    eager, f = make()
    traced, g = make()
    g = trace(g)
    for i, then in ((1, ""), (2, "mine"), (9, ""), (2, ""), (9, "mine"), (1, "")):
        errors = []
        for call in (f, g):
            try:
                call(Tensor([i]), then)
            except (KeyError, IndexOutOfRange) as e:
                errors.append(type(e))
        assert errors == ([] if (i, then) in ((1, ""), (2, "")) else [IndexOutOfRange if i == 9 else KeyError] * 2), (i, then)
        assert eager.numpy().tobytes() == traced.numpy().tobytes(), (i, then)


@dataclasses.dataclass
class State:
    h: Tensor
    n: float


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("fails", ["", "mine", "check", "question"])
def test_errors_leave_arguments_as_eager_calls_leave_them(fails, as_array):
    """In the first call, which the function begins with copies of the arguments, as in later ones."""
    table = Tensor(np.arange(12, dtype="float32").reshape(4, 3))

    def f(x, batch, state, i):
        batch["rows"].append(x)
        n = state.n + x.sum().item()
        state.n, batch["n"] = n, [n]
        state.h += x
        if fails == "mine":
            try:
                raise ValueError("the cause")
            except ValueError as e:
                raise KeyError("mine") from e
        del batch["old"]
        row = F.nn.embedding(i, table)
        state.h *= 2  # not done where the row is not there
        if fails == "question":
            row.sum().item()
        return row

    g = trace(f)
    for _ in range(3):
        found = []
        for call in (f, g):
            x, i = np.ones(3, "float32"), Tensor([9 if fails in ("check", "question") else 1])
            batch, state = {"rows": [], "old": 1}, State(Tensor(x * 2), 1)
            rows, h, e = batch["rows"], state.h, None
            try:
                call(x if as_array else Tensor(x), batch, state, i)
            except (KeyError, IndexOutOfRange) as raised:
                e = type(raised), type(raised.__cause__)
            assert batch["rows"] is rows and state.h is h
            found.append((e, len(rows), batch["n"], "old" in batch, state.n, h.tolist()))
        assert found[0] == found[1]
        assert (found[0][0] is None) == (fails == "")


def test_a_gradient_that_is_recorded_outside():
    def make():
        w = tengen.Parameter(np.full((6, 3), 0.25, "float32"))
        return w, GradManager().attach([w]), lambda x: F.tanh(x @ w) * F.abs(x).max().item()

    found = []
    for wrap in (lambda f: f, trace):
        w, gm, f = make()
        f = wrap(f)
        for i in range(3):
            w.grad = None
            with gm:
                gm.backward((f(data(i)) ** 2).sum())
            found.append(w.grad.numpy().tobytes())
    assert found[:3] == found[3:]


def test_traces_inside_of_one_and_vmap_around_it():
    inner = trace(lambda x: x * x.sum().item())
    outer = trace(lambda x: inner(x + 1) - 1)
    x = data(3)
    want = ((x + 1) * (x + 1).sum().item() - 1).numpy().tobytes()
    assert outer(x).numpy().tobytes() == want and outer(x).numpy().tobytes() == want and not inner.stats().parts
    rows = trace(lambda x: F.exp(x) * (x.sum() if x.ndim else x))
    assert autodiff.vmap(rows)(x).numpy().tobytes() == autodiff.vmap(rows.function)(x).numpy().tobytes()
    with pytest.raises(tengen.base.errors.VmapError, match="asked for inside of vmap"):
        autodiff.vmap(inner)(x)


def test_what_a_call_keeps_has_values():
    kept = {}

    def f(x):
        kept["y"] = x * 2
        kept["copy"] = Tensor(kept["y"])
        kept["n"] = kept["y"].sum().item()
        kept["late"] = Tensor(kept["copy"] + kept["n"])
        return x

    x = data(0)
    assert trace(f)(x) is x, "the argument itself is returned"
    for name, t in (("y", x * 2), ("copy", x * 2), ("late", x * 2 + kept["n"])):
        assert kept[name].numpy().tobytes() == t.numpy().tobytes(), name
    assert trace(lambda t: t + kept["copy"])(x).numpy().tobytes() == (x + x * 2).numpy().tobytes()
    assert pickle.loads(pickle.dumps(kept["late"])).numpy().tobytes() == kept["late"].numpy().tobytes()


def test_threads_go_on_meanwhile():
    """While a call waits for another thread, that one computes, records traces and asks for values."""
    helper = trace(lambda x: F.softmax(x, 1) * x.max().item())

    def f(x):
        y = x * 2
        k = y.sum().item()
        found = []
        t = threading.Thread(target=lambda: found.extend([helper(x), F.softmax(x, 0), trace(lambda v: v * 3)(x)]))
        t.start()
        t.join(60)
        assert not t.is_alive()
        return y * k, *found

    traced = trace(f)
    for i in range(3):
        assert plain(traced(data(i))) == plain(f(data(i)))


def test_arrays_among_the_arguments_are_tensors_in_every_call():
    seen = []

    def f(x, rest):
        seen.append((type(x), type(rest["y"][0])))
        return x * rest["y"][0] * x.sum().item()

    traced, x = trace(f), np.ones((2, 3), "float32")
    made = [traced(x, {"y": [x * 2]}).numpy().tobytes() for _ in range(3)]
    assert seen == [(Tensor, Tensor)] * 3 and made == [(x * 12).tobytes()] * 3


def test_arrays_among_the_results_stay_arrays_in_every_call():
    """Also in the first one, which is recorded as a whole until it asks, and beside an argument that is given back."""

    def f(x):
        a = (x + 1).numpy()
        return a, {"x": x, "first": a[0]}

    traced = trace(f)
    for i in range(3):
        x = data(i, 3)
        a, rest = traced(x)
        assert type(a) is np.ndarray and a.tobytes() == f(x)[0].tobytes() and rest["x"] is x and rest["first"] == a[0]


def test_attributes_of_zero_are_told_apart():
    """0.0 and -0.0 are equal in Python, and other operations."""
    f = trace(lambda x, low: F.clip(x * 2, low, 1.0) + F.full((1,), low) * x.max().item())
    for low in (0.0, -0.0, 0.0, -0.0, 1, 1.0, True):
        x = Tensor(np.array([-1, -0.0, 0.25], "float32"))
        assert f(x, low).numpy().tobytes() == f.function(x, low).numpy().tobytes(), low


def test_hooks_in_bodies_of_loops_are_refused():
    """A body is differentiated as a graph; a hook of a Parameter sees its whole gradient, as without a loop."""
    w = tengen.Parameter(np.full((3, 3), 0.1, "float32"))
    gm, net, x = GradManager().attach([w]), M.Linear(3, 3), data(5, 4, 3)
    net.register_full_backward_hook(lambda m, given, taken: None)

    def tensors(s, row):
        y = F.tanh(s @ w + row)
        y.register_hook(lambda g: g * 2)
        return y, None

    for body, said in ((tensors, "body of a loop or a branch"), (lambda s, row: (net(s @ w) + row, None), "a module's backward hook")):
        with pytest.raises(GradientError, match=said), gm:
            gm.backward(F.scan(body, F.zeros((3,)), x)[0].sum())
    found, seen = [], []
    w.register_hook(lambda g: seen.append(g.numpy().tobytes()) or g * 3)
    for loop in (True, False):
        with gm:
            s = F.zeros((3,))
            if loop:
                s = F.scan(lambda s, row: (F.tanh(s @ w + row), None), s, x)[0]
            for row in () if loop else x:
                s = F.tanh(s @ w + row)
            gm.backward(s.sum())
        found.append(w.grad.numpy())
        w.grad = None
    assert len(seen) == 2
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_both_settings_are_kept_by_copies():
    for symbolic in (False, True):
        assert trace(lambda x: x, symbolic=symbolic).__copy__().symbolic is symbolic
    assert trace(lambda x: x).symbolic is False


def test_a_question_in_a_function_without_tensors_among_its_arguments():
    held = Tensor([1.0, -2.0])

    def doubled_or_not(k=2):
        return held * (k if held.sum().item() > 0 else 3)

    run = trace(doubled_or_not)
    for _ in range(2):
        assert run().tolist() == doubled_or_not().tolist() == [3.0, -6.0]
    held._reset(Tensor([4.0, -2.0]))
    assert run(5).tolist() == doubled_or_not(5).tolist() == [20.0, -10.0]
    assert len(run.stats().parts) > 0
