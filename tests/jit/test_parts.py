"""A traced function that asks for values is run in parts: each call is compared as bytes with the function itself, over calls that
take different paths; and what is compiled, counted, warned of and refused."""

import dataclasses
import pickle
import threading
import warnings

import numpy as np
import pytest
from cases_in_parts import CALLS, CASES, data
from exhaustive import but

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, autodiff, trace
from tengen.autodiff import GradManager
from tengen.base.errors import GradientError, IndexOutOfRange, TraceError, TraceWarning


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


@but(every=3)
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
