"""`cond`, `while_loop`, `scan`, `fori_loop`: the bits of the same ops called one after another by Python, eagerly, traced, from a file and
in an artifact; and what cannot be."""

import os
import subprocess
import sys

import numpy as np
import pytest
from control_flow_cases import RNG, T, W, by_python, cell, equal, zeros

import tengen
from tengen import Tensor, load_graph, random, trace
from tengen import functional as F
from tengen.autodiff import grad, vmap
from tengen.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError, TraceError
from tengen.deploy import compile_model
from tengen.deploy.verify import verify
from tengen.ir.text import parse_graph, print_graph
from tengen.module import BatchNorm1d
from tengen.runtime import compile as compiling


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    xs = T(7, 3, 6)
    (h, c), hs = by_python(xs, reverse)
    run = lambda xs, h, c: F.scan(cell, (h, c), xs, reverse=reverse)
    for f in (run, trace(run)):
        for _ in range(2):
            (h1, c1), made = f(xs, *zeros(3))
            equal(h1, h), equal(c1, c), equal(made["h"], hs)


def test_scan_of_what_it_takes():
    total, none = F.scan(lambda s, x: (s + 1, None), 0, length=5)
    assert total.item() == 5 and none is None
    (a, b), ys = F.scan(lambda s, x: ((s[1], s[0]), s[0] * x["k"][0]), (T(2), T(2)), {"k": [T(3, 2)]})  # exchanged each time
    assert ys.shape == (3, 2)
    first, second = T(2), T(2)
    (a, b), _ = F.scan(lambda s, x: ((s[1], s[0]), None), (first, second), length=3)
    equal(a, second), equal(b, first)
    last, ys = F.scan(lambda s, x: (s * x, s), T(4), F.zeros((0, 4)))
    assert ys.shape == (0, 4)
    xs = T(5, 3)
    strided = Tensor(np.arange(24, dtype="float32").reshape(4, 6)).T[::2]
    equal(F.scan(lambda s, x: (s, x), 0, strided)[1], strided + 0)
    kept, old = F.scan(lambda s, x: (x, s), xs[0], xs)  # the old state leaves, and the new one is a slice
    equal(kept, xs[4]), equal(old[1:], xs[:4])


def test_loops_in_loops_and_branches():
    def f(x):
        def inner(i, s):
            return F.cond(s.sum() > i, lambda s: s * 0.5, lambda s: F.while_loop(lambda t: t.sum() < 3, lambda t: t + 1.25, s), s)

        return F.scan(lambda s, y: (F.fori_loop(0, 3, inner, s + y), s), F.zeros_like(x[0]), x)

    def python(x):
        s, made = np.zeros_like(x[0]), []
        for y in x:
            made.append(s)
            s = s + y
            for i in range(3):
                if s.sum() > i:
                    s = s * np.float32(0.5)
                else:
                    while s.sum() < 3:
                        s = s + np.float32(1.25)
        return s, np.stack(made)

    x = T(5, 2)
    want = python(x.numpy())
    for f_ in (f, trace(f)):
        for got, w in zip(f_(x), want):
            assert got.numpy().tobytes() == w.tobytes()


@pytest.mark.parametrize("n", [2, 8, 40])
def test_products_with_slices_that_differ_in_each_iteration(n):
    """What a product packs of a slice is packed anew in each iteration, and in each loop over the same sequence."""
    rng = np.random.default_rng(n)
    ks = Tensor(rng.standard_normal((3, 2, n, n), np.float32))
    q = Tensor(rng.standard_normal((2, n, n), np.float32))
    step = lambda s, k: (s + F.matmul(q, k), F.matmul(s, k))

    def twice(q, ks):
        a, ys = F.scan(step, q, ks)
        b, zs = F.scan(step, q * 2, ks, reverse=True)
        return a, ys, b, zs

    def plainly(q, ks):
        found = []
        for first, order in ((q, range(3)), (q * 2, reversed(range(3)))):
            s, ys = first, {}
            for t in order:
                s, ys[t] = step(s, ks[t])
            found += [s, F.stack([ys[t] for t in range(3)], 0)]
        return found

    want = [x.numpy().tobytes() for x in plainly(q, ks)]
    assert [x.numpy().tobytes() for x in twice(q, ks)] == want
    assert [x.numpy().tobytes() for x in trace(twice)(q, ks)] == want


def test_while_and_fori():
    steps = lambda n: F.while_loop(lambda n, i: n != 1, lambda n, i: (F.where(n % 2 == 0, n // 2, 3 * n + 1), i + 1), n, 0)[1]
    assert [steps(Tensor(k)).item() for k in (1, 2, 27)] == [0, 1, 111]
    f = trace(steps)
    assert [f(Tensor(k)).item() for k in (1, 2, 27)] == [0, 1, 111]
    assert F.while_loop(lambda x: x < 100.0, lambda x: x * 2, 1.0, max_iterations=3).item() == 8
    assert F.while_loop(lambda x: x < 100.0, lambda x: x * 2, 1.0, max_iterations=0).item() == 1
    for stop in (6, Tensor(6)):
        assert F.fori_loop(2, stop, lambda i, s: s * i, Tensor(1)).item() == 120
    assert F.fori_loop(3, 3, lambda i, s: s * i, Tensor(7)).item() == 7


def test_cond():
    x, w = T(5), T(5)
    f = lambda p, x: F.cond(p, lambda x: {"a": F.sin(x) * w, "b": None}, lambda x: {"a": x**2, "b": None}, x)["a"]
    for p, want in ((Tensor(True), F.sin(x) * w), (Tensor(0), x**2), (Tensor([[2]]), F.sin(x) * w), (True, F.sin(x) * w)):
        equal(f(p, x), want)
    g = trace(f)
    equal(g(Tensor(True), x), F.sin(x) * w), equal(g(Tensor(False), x), x**2)
    mine = Tensor([1.0, 2.0])

    def change(p):  # what a branch changes stays changed where it ran
        F.cond(p, lambda: mine.__setitem__(0, mine[0] * 3), lambda: None)
        return mine + 0

    assert change(Tensor(False)).tolist() == [1.0, 2.0] and change(Tensor(True)).tolist() == [3.0, 2.0]
    assert trace(change)(Tensor(True)).tolist() == [9.0, 2.0]


def test_a_violated_check_ends_a_loop():
    table = Tensor([1.0, 2.0, 3.0])
    f = lambda x: F.while_loop(lambda s, i: s > -1.0, lambda s, i: (s + table[i], i + 1), x, Tensor(0))[0]
    for run in (f, trace(f)):
        with pytest.raises(IndexOutOfRange, match="extent 3"):
            run(Tensor(1.0))


def test_random_numbers_and_running_means():
    drawn = lambda: F.scan(lambda s, _: (s, F.dropout(F.ones(9), 0.5, True)), 0, length=4)[1]
    random.seed(3)
    want = F.stack([F.dropout(F.ones(9), 0.5, True) for _ in range(8)])
    for f in (drawn, trace(drawn)):
        random.seed(3)
        equal(F.concat([f(), f()]), want)
    norms = [BatchNorm1d(3) for _ in range(3)]
    x = T(5, 4, 3)
    for v in x:
        norms[0](v)
    F.scan(lambda s, v: (s, norms[1](v)), 0, x)
    trace(lambda x: F.scan(lambda s, v: (s, norms[2](v)), 0, x)[1])(x)
    for n in norms[1:]:
        equal(n.running_mean, norms[0].running_mean), equal(n.running_var, norms[0].running_var)


def test_open_extents_and_one_compilation():
    f = trace(lambda xs, h, c: F.scan(cell, (h, c), xs)[1]["h"], dynamic_axes={"xs": {0: "n", 1: "b"}, "h": {0: "b"}, "c": {0: "b"}})
    for n, b in ((7, 3), (9, 2), (1, 5), (0, 2)):
        xs = T(n, b, 6)
        got, before = f(xs, *zeros(b)), compiling.compilations
        if n:
            equal(got, by_python(xs)[1])
        assert got.shape == (n, b, 4)
    f(T(30, 4, 6), *zeros(4))
    assert compiling.compilations == before


def test_what_must_not_be_in_a_body_is_found():
    table, run = T(3), lambda i: F.scan(lambda s, i: (s + table[i], None), 0.0, i)[0]
    good, bad = Tensor([0, 1, 2]), Tensor([0, 7, 1])
    f = trace(run)
    equal(f(good), run(good))
    for g in (run, f):
        with pytest.raises(IndexOutOfRange):
            g(bad)
    pick = lambda p, i: F.cond(p, lambda i: table[i], lambda i: table[0], i)
    equal(pick(Tensor(False), Tensor(9)), table[0])  # the branch that does not run looks at nothing
    with pytest.raises(IndexOutOfRange):
        pick(Tensor(True), Tensor(9))


def test_files_text_and_artifacts(tmp_path):
    def f(x, n):
        s = F.while_loop(lambda s, i: i < n, lambda s, i: (F.cond(s.sum() > 1, lambda s: s * 0.5, lambda s: s + 1, s), i + 1), x[0], 0)[0]
        return F.scan(lambda s, x: (s + x, s), s, x)[1]

    t = trace(f, capture_as_const=True)
    x, n = T(6, 5), Tensor(9)
    want = t(x, n)
    equal(f(x, n), want)
    t.dump(tmp_path / "f.tgn", arg_names=["x", "n"])
    model = load_graph(tmp_path / "f.tgn")
    equal(model(x, n), want)
    again = parse_graph(print_graph(model.graph), {c.name: c.data for g in model.graph.graphs() for c in g.constants.values()})
    assert print_graph(again) == print_graph(model.graph)
    made = compile_model(model, "x86-64-v3", tmp_path / "out")
    assert made.files and verify(tmp_path / "f.tgn", tmp_path / "out").differing == 0


def test_branches_in_branches_are_written_with_their_lines_and_no_paths(tmp_path):
    def chain(x, i=0):
        return x * 2 if i == 14 else F.cond(x < i, lambda: x + i, lambda: chain(x, i + 1))

    f = trace(chain)
    assert f(Tensor(3.5)).item() == 7.5 and f(Tensor(40.0)).item() == 80.0
    f.dump(tmp_path / "f.tgn", arg_names=["x"])
    model = load_graph(tmp_path / "f.tgn")
    assert model(Tensor(3.5)).item() == 7.5 and model(Tensor(40.0)).item() == 80.0
    lines = {n.where for g in model.graph.graphs() for n in g.nodes if n.where}
    assert len(list(model.graph.graphs())) == 29 and all(line.startswith("test_control_flow.py:") for line in lines)
    one = trace(lambda x: F.cond(x > 0, lambda: F.exp(x), lambda: x))
    two = trace(lambda x: F.cond(x > 0, lambda: F.exp(x), lambda: x))  # an equal body, whose line is this one
    own = [[n.where for g in f.graph.graphs() for n in g.nodes if n.op == "exp"] for f in (one, two) if f(Tensor(1.0)) is not None]
    assert len(own[0]) == len(own[1]) == 1 and own[0] != own[1]


def test_examples_of_vmap():
    xs = T(4, 3)
    product = lambda x: F.scan(lambda s, x: (s * x, s), Tensor(1.0), x)
    last, all_ = vmap(product)(xs)
    for i in range(4):
        a, b = product(xs[i])
        equal(last[i], a), equal(all_[i], b)
    grads = lambda x: grad(lambda x: sum(y.sum() for y in product(x)))(x)
    for g in (vmap(grads), trace(vmap(grads)), grad(lambda xs: sum(y.sum() for y in vmap(product)(xs)))):
        equal(g(xs), F.stack([grads(x) for x in xs]))
    x = T(3)
    outside = lambda x: F.scan(lambda s, _: (s + x, None), Tensor(0.0), length=2)[0]
    equal(vmap(outside)(x), x + x)
    equal(vmap(vmap(outside))(xs), xs + xs)
    equal(grad(lambda xs: vmap(vmap(outside))(xs).sum())(xs), xs * 0 + 2)


def test_branches_of_examples():
    """Both branches are computed for all examples, each has its own; gradients are those of the example's branch alone."""
    xs = Tensor([[4.0, 9.0], [-1.0, -4.0], [0.25, 0.0], [0.0, 0.0]])

    def f(x, w=2.0):
        flag = x.sum() > 0
        y = F.cond(flag, lambda: F.sqrt(x) * w, lambda: F.cond(x[0] < 0, lambda: x - 1, lambda: x * 3))
        return F.cond(w is not None, lambda: y + 1, lambda: y)

    wanted = F.stack([f(x) for x in xs])
    for run in (vmap(f), trace(vmap(f)), lambda xs: vmap(vmap(f))(xs[None])[0]):
        equal(run(xs), wanted)
    total = lambda x: f(x).sum()
    gradients = F.stack([grad(total)(x) for x in xs[:2]])
    for run in (vmap(grad(total)), trace(vmap(grad(total))), grad(lambda xs: vmap(total)(xs).sum())):
        equal(run(xs[:2]), gradients)
    same = lambda x: F.cond(xs.sum() > 0, lambda: x * 2, lambda: x)  # one condition for all
    equal(vmap(same)(xs), xs * 2)
    ends = lambda x: F.cond(x[0] > 0, lambda: F.while_loop(lambda v: v.sum() > 1, lambda v: v / 2, x), lambda: x)
    equal(vmap(ends)(xs), F.stack([ends(x) for x in xs]))  # the loop has no end where it is not asked for
    picked = lambda x: F.cond(x[0] > 3, lambda: xs[x[0].astype("int32") - 2].sum(), lambda: x.sum())
    equal(vmap(picked)(xs[:2]), F.stack([picked(x) for x in xs[:2]]))  # a check of the branch that is not taken is none
    with pytest.raises(IndexOutOfRange):
        vmap(lambda x: F.cond(x[0] > 3, lambda: xs[x[0].astype("int32")].sum(), lambda: x.sum()))(xs)


BAD = {
    "state's shape": (lambda: F.scan(lambda s, x: (F.tile(s, 2), None), T(2), length=3), ShapeError, "f32[2] before an iteration and f32[4]"),
    "state's dtype": (lambda: F.while_loop(lambda s: s < 3, lambda s: s + 0.5, 1), DTypeError, "i64[] before an iteration and f32[]"),
    "state's structure": (lambda: F.scan(lambda s, x: ((s, s), None), T(2), length=3), ArgumentError, "another structure"),
    "what scan returns": (lambda: F.scan(lambda s, x: s, T(2), length=3), ArgumentError, r"returns \(state, what to stack\)"),
    "extents": (lambda: F.scan(lambda s, x: (s, None), 0, (T(2), T(3))), ShapeError, "over 2 slices and over 3"),
    "no axis": (lambda: F.scan(lambda s, x: (s, None), 0, Tensor(3)), ShapeError, r"i64\[\] has none"),
    "no length": (lambda: F.scan(lambda s, x: (s, None), 0), ArgumentError, "neither xs nor a length"),
    "condition": (lambda: F.while_loop(lambda s: s < 3, lambda s: s + 1, T(3)), ShapeError, r"b1\[3\]; help: one bool"),
    "no condition": (lambda: F.while_loop(lambda s: None, lambda s: s + 1, 1), ArgumentError, "the condition of while_loop is None"),
    "text as a condition": (lambda: F.cond("a", lambda: 1, lambda: 2), ArgumentError, "the condition of cond is 'a'"),
    "no next state": (lambda: F.while_loop(lambda s: s < 3, lambda s: None, 1), ArgumentError, "was given: nothing; help: it returns the next"),
    "half an iteration": (lambda: F.while_loop(lambda s: s < 3, lambda s: s + 1, 1, max_iterations=2.5), ArgumentError, "max_iterations=2.5"),
    "fewer than none": (lambda: F.scan(lambda s, x: (s, s), 0, length=-3), ArgumentError, "scan: length=-3; help: an int of at least 0"),
    "a float as a bound": (lambda: F.fori_loop(0, 2.5, lambda i, s: s, 0), ArgumentError, "fori_loop: stop is 2.5; help: an int"),
    "a tensor of floats as one": (lambda: F.fori_loop(Tensor(1.0), 2, lambda i, s: s, 0), ArgumentError, "start is f32[]; help"),
    "several bounds": (lambda: F.fori_loop(0, Tensor([1, 2]), lambda i, s: s, 0), ArgumentError, "stop is i64[2]; help"),
    "no state": (lambda: F.while_loop(lambda: True, lambda: ()), ArgumentError, "no state"),
    "branches' shapes": (lambda: F.cond(Tensor(True), lambda x: x, lambda x: x[0], T(3)), ShapeError, "f32[3]] where the condition is true"),
    "branches' structures": (lambda: F.cond(Tensor(True), lambda x: x, lambda x: [x], T(3)), ArgumentError, "different structures"),
    "branches' numbers of tensors": (lambda: F.cond(Tensor(True), lambda x: x, lambda x: (x, x), T(3)), ArgumentError, "different structures"),
    "a branch without a result": (lambda: F.cond(Tensor(True), lambda x: x, lambda x: None, T(3)), ArgumentError, "different structures"),
    "a branch that is none": (lambda: F.cond(Tensor(True), T(3), T(3)), ArgumentError, "cond: then is a Tensor; help: a function"),
    "another that is none": (lambda: F.cond(True, lambda: 1, 2), ArgumentError, "cond: else_ is a int; help: a function"),
    "a condition that is none": (lambda: F.while_loop(True, lambda s: s, 1), ArgumentError, "while_loop: cond is a bool; help: a function"),
    "a body that is none": (lambda: F.scan(T(2), 0, T(3)), ArgumentError, "scan: body is a Tensor; help: a function"),
    "fori_loop's body": (lambda: F.fori_loop(0, 2, 1, 0), ArgumentError, "fori_loop: body is a int; help: a function"),
    "a result": (lambda: F.cond(Tensor(True), lambda: object(), lambda: object()), ArgumentError, "a result is a object"),
    "values": (lambda: F.scan(lambda s, x: (s + float(x), None), 0.0, T(3)), TraceError, "inside a trace"),
    "a grad": (lambda: F.scan(lambda s, x: (s + (W.grad or 0), None), 0.0, T(3)), TraceError, "autodiff.grad"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be(case):
    call, error, text = BAD[case]
    with pytest.raises(error) as e:
        call()
    assert text.replace("\\", "") in str(e.value), str(e.value)
    assert F.scan(lambda s, x: (s + 1, None), 0, length=2)[0].item() == 2  # nothing is left behind


def test_complex_numbers():
    x, w = (Tensor(RNG.standard_normal((n, 2)).astype("float32") + 1j * RNG.standard_normal((n, 2)).astype("float32")) for n in (3, 1))
    assert x.dtype == "complex64"

    def loss(scan):
        def f(x, w):
            s, made = F.zeros_like(w), []
            if scan:
                s, ys = F.scan(lambda s, y: (s * w + y, s * y), s, x)
            else:
                for y in x:
                    made.append(s * y)
                    s = s * w + y
                ys = F.stack(made)
            return F.square(F.abs(s)).sum() + F.square(F.abs(ys)).sum()

        return f

    got = grad(loss(True), (0, 1))(x, w)
    for a, b, c in zip(got, grad(loss(False), (0, 1))(x, w), trace(grad(loss(True), (0, 1)))(x, w)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
        equal(a, c)
    with tengen.config.scope(check=True):
        assert F.while_loop(lambda z: F.abs(z) < 4, lambda z: z * (1 + 1j), Tensor(1 + 0j)).item() == -4


def test_a_later_process_finds_the_programs_of_eager_loops(tmp_path):
    code = (
        "from tengen import Tensor, functional as F; from tengen.runtime import compile as c;"
        "print(F.scan(lambda s, x: (s + x * 0.5, s), 0.0, Tensor([1.0, 2.0]))[0].item(), c.compilations)"
    )
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path), "TENGEN_QUICK_COMPILE": "0"}
    found = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout.split() for _ in range(2)]
    assert [v for v, _ in found] == ["1.5", "1.5"] and int(found[0][1]) > 0 and found[1][1] == "0"


def test_a_range_up_to_an_open_extent():
    def f(x):
        last = lambda i, s: s + x[i] * x.shape[0] + x[x.shape[0] - 1 - i]
        return F.fori_loop(1, x.shape[0], last, F.zeros((3,))), grad(lambda x: F.fori_loop(0, x.shape[0], last, x[0]).sum())(x)

    t = trace(f, dynamic_axes={0: "n"})
    for n in (2, 5, 9):
        x = T(n, 3)
        for a, b in zip(t(x), f(x)):
            equal(a, b)
    assert len(t.stats()) == 1


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (17,)])
def test_states_that_are_made_of_each_other(shape):
    """Each new value is computed over an old one that the other new value reads: of one element too, all is read before any is written."""

    def body(a, b):
        new = a + 1
        return b * 0.5 - F.maximum(new, 1.0), new

    def plain(a, b):
        for _ in range(4):
            a, b = body(a, b)
        return a, b

    def loop(a, b):
        return F.fori_loop(0, 4, lambda i, s: body(*s), (a, b))

    def steps(a, b):
        return F.while_loop(lambda n, a, b: n < 4, lambda n, a, b: (n + 1, *body(a, b)), Tensor(0), a, b)[1:]

    start = [Tensor(np.full(shape, x, "float32")) for x in (0.25, -1.5)]
    wanted = [t.numpy().tobytes() for t in plain(*start)]
    for f in (loop, trace(loop), steps, trace(steps), trace(plain)):
        assert [t.numpy().tobytes() for t in f(*start)] == wanted
    a, b = (Tensor(t.numpy()) for t in start)

    @trace
    def step():
        new = body(a, b)
        a._reset(new[0])
        b._reset(new[1])

    for _ in range(4):
        step()
    assert [a.numpy().tobytes(), b.numpy().tobytes()] == wanted


def test_a_body_that_asks_the_same_several_times_carries_one_bool():
    """Rows of several tables at one place, each with its check; the message is that of the first."""
    tables = [Tensor(np.arange(6.0).reshape(3, 2) + k) for k in range(3)]
    body = lambda s, i: (sum((t[i] for t in tables), s), None)
    run = trace(lambda x, i: F.scan(body, x, i)[0], symbolic=True)
    x, i = Tensor(np.zeros(2)), Tensor(np.array([2, 0]))
    assert run(x, i).tolist() == [18.0, 24.0]
    [node] = [n for n in run.graph.nodes if n.op == "scan"]
    assert [str(v.type.dtype) for v in node.outputs] == ["float64", "bool"]
    with pytest.raises(IndexError, match="out of"):
        run(x, Tensor(np.array([0, 3])))
