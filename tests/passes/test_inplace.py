"""Results that are computed over an operand: whose memory that is, and when it must not be."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.codegen.targets import Target
from tengen.ops.define import REGISTRY
from tengen.passes.lower import lower

put, lstm = REGISTRY["index_put"], REGISTRY["lstm"]
R = np.random.default_rng(0)


def launches(run, *args):
    """What a traced function launches, by the kernels' names: the buffers of each."""
    run(*args)
    return {launch.kernel.name: launch.ids for launch in lower(run.graph, Target.host())[0].launches}


def put_and(more):
    def put_ones(i, x, v):
        base = x * 2.0
        y = put([i], base, v, (0,), 0, "add")
        return more(base, y)

    return put_ones


@pytest.mark.parametrize(
    ("more", "copies"),
    [
        (lambda base, y: y, False),
        (lambda base, y: y * 3.0, False),
        (lambda base, y: y.reshape(-1), False),
        (lambda base, y: base + y, True),  # it is read later
        (lambda base, y: y + base.reshape(-1)[0], True),  # through a view
        (lambda base, y: (base, y), True),  # it is a result
    ],
)
def test_an_operand_that_nobody_reads_later_is_written_over(more, copies):
    i, x, v = (Tensor(a) for a in (np.array([1, 3, 1]), R.normal(size=(5, 7)), R.normal(size=(3, 7))))
    run = trace(put_and(more), symbolic=True)
    eager, traced = put_and(more)(i, x, v), run(i, x, v)
    for a, b in zip(eager, traced) if isinstance(eager, tuple) else [(eager, traced)]:
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert ("index_put_base" in launches(run, i, x, v)) == copies


def test_what_was_not_made_by_the_program_is_not_written_over():
    i, x, v = (Tensor(a) for a in (np.array([1, 3, 1]), R.normal(size=(5, 7)), R.normal(size=(3, 7))))
    before = x.numpy().copy()
    for base in (lambda x: x, lambda x: x.reshape(7, 5).reshape(5, 7)):
        run = trace(lambda i, x, v, base=base: put([i], base(x), v, (0,), 0, "add"), symbolic=True)
        assert "index_put_base" in launches(run, i, x, v)
        assert x.numpy().tobytes() == before.tobytes()
    twice = trace(lambda i, x: put([i], x * 2.0, x[:3] * 2.0, (0,), 0, "add"), symbolic=True)
    assert twice(i, x).numpy().tobytes() == put([i], x * 2.0, x[:3] * 2.0, (0,), 0, "add").numpy().tobytes()


@pytest.mark.parametrize(("hidden", "batch"), [(17, 3), (16, 6), (300, 5)])
def test_gates_lie_over_the_projected_input_and_their_gradients_over_them(hidden, batch):
    shapes = (3, batch, 4 * hidden), (4 * hidden, hidden), (batch, hidden), (4, batch, hidden)
    p, w, h, g = (Tensor(R.uniform(-0.5, 0.5, s).astype(np.float32)) for s in shapes)

    def both(p, w, h, g):
        hs, cs, gates = lstm(p * 2.0, w, h, h)
        return hs, *REGISTRY["lstm_grad"](g, None, None, w, cs, gates)

    run = trace(both, symbolic=True)
    for a, b in zip(both(p, w, h, g), run(p, w, h, g)):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    dz = ("out", 1)
    ids = launches(run, p, w, h, g)
    assert dz in ids["mul"] and all(dz in ids[name] for name in ids if name in ("lstm_step", "lstm_gates", "lstm_grad_step"))


def writing(way):
    """A function that changes a tensor it reaches, and the tensor."""
    c = Tensor(np.arange(12.0).reshape(4, 3))
    i = Tensor(np.array([2]))

    def index(v):
        c[i] = v
        return c * 2.0

    def static(v):
        c[1:3] = v
        return c.sum()

    def twice(v):
        c[i] = v
        c[0] = v * 2.0
        return c + 0.0

    def moved(v):
        c[1:] = c[:-1]
        return v

    def old(v):
        before = c * 1.0
        c[i] = v
        return before

    def late(v):
        before = c[:2]
        c[i] = v
        return before + c[2:]

    def itself(v):
        c[i] = c[3]
        return v

    return {f.__name__: f for f in (index, static, twice, moved, old, late, itself)}[way], c


@pytest.mark.parametrize(
    ("way", "copies"),
    [("index", 0), ("static", 0), ("twice", None), ("moved", None), ("old", 0), ("late", None), ("itself", None)],
)
def test_some_elements_of_a_state_are_written_in_place(way, copies):
    eager, a = writing(way)
    traced, b = writing(way)
    seen, view = b.numpy(), b.numpy().copy()
    run = trace(traced, symbolic=True)
    for k in range(3):
        v = Tensor(R.normal(size=(1, 3)))
        assert eager(v).numpy().tobytes() == run(v).numpy().tobytes() and a.numpy().tobytes() == b.numpy().tobytes(), k
    assert seen.tobytes() == view.tobytes()
    names = [launch.kernel.name for launch in lower(run.graph, Target.host())[0].launches]
    if copies == 0:
        assert not [n for n in names if "base" in n or "write_state" in n], names


def looping(way):
    """A function of a number of iterations, whose loop changes a tensor that it reaches, and the tensor."""
    c = Tensor(np.arange(12.0).reshape(4, 3))
    rows = Tensor(np.array([2, 0, 3]))

    def step(i):
        c[i.reshape(1)] = c[i] * 2.0 + c[1]

    def over(n):
        F.scan(lambda s, i: (step(i), (s, None))[1], (), rows)
        return c.sum()

    def until(n):
        return F.while_loop(lambda i: i < n, lambda i: (step(i), i + 1)[1], Tensor(0))

    def read_later(n):
        before = c[1:]
        F.scan(lambda s, i: (step(i), (s, None))[1], (), rows)
        return before + c[:3]

    def read_besides(n):
        top = c[0]  # each iteration reads what it was before the loop
        F.scan(lambda s, i: (step(i), (s + top, None))[1], top * 0.0, rows)
        return c * 1.0

    def given_back(n):
        first = F.scan(lambda s, i: (s + i.astype("float64"), None), c, rows)[0]
        second = F.scan(lambda s, i: (s * 2.0, None), c, rows)[0]
        c[...] = first + second
        return first

    def exchanged(n):
        a, b = F.scan(lambda s, i: ((s[1], s[0] + 1.0), None), (c[0], c[1]), rows)[0]
        c[0], c[1] = a, b
        return c * 1.0

    def none(n):
        return F.scan(lambda s, i: (step(i), (s, None))[1], (), rows[:0])[1] or c * 1.0

    return {f.__name__: f for f in (over, until, read_later, read_besides, given_back, exchanged, none)}[way], c


@pytest.mark.parametrize(
    ("way", "copies"),
    [("over", 0), ("until", 0), ("none", 0), ("read_later", 1), ("read_besides", 1), ("given_back", None), ("exchanged", None)],
)
def test_a_loop_changes_a_state_where_it_lies(way, copies):
    """But where its value before the loop is read in the loop or behind it."""
    eager, a = looping(way)
    traced, b = looping(way)
    run = trace(traced, symbolic=True)
    for k in range(3):
        n = Tensor(np.array(3))
        assert eager(n).numpy().tobytes() == run(n).numpy().tobytes() and a.numpy().tobytes() == b.numpy().tobytes(), k
    want = np.arange(12.0).reshape(4, 3)
    for i in [2, 0, 3] * 3:
        want[i] = want[i] * 2.0 + want[1]
    assert way not in ("over", "read_later") or (b.numpy() == want).all()
    lo, _ = lower(run.prepared(n)[0].graph, Target.host())
    large = [a for launch in lo.launches if launch.kernel.name in ("begin_loop", "write_state") for a in launch.ids if a[0] == "state"]
    assert copies is None or bool(large) == bool(copies), [launch.kernel.name for launch in lo.launches]
