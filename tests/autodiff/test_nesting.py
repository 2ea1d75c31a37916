"""Gradients inside of gradients: programs by chance, nested to depth 3, whose functions close over whatever is around them. What
they compute is held against derivatives taken symbolically (here, in a few lines), outermost ones also against finite differences."""

import random

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, trace
from tengen import functional as F
from tengen.autodiff import Function, GradManager, grad, value_and_grad, vjp

# An expression is ("const", c), ("var", name), ("add", a, b), ("mul", a, b), ("sin", a), ("cos", a), or
# ("d", mode, name, body, at): the derivative of the body with respect to the name, where the name is `at`.
# A body also uses names from around it. Everything is elementwise.

MODES = ("grad", "value_and_grad", "vjp", "manager", "result")


def program(r, names, depth, size):
    kind = r.choice(["add", "mul", "sin", "leaf", "d", "d"] if depth else ["add", "mul", "sin", "leaf"])
    if size <= 0 or kind == "leaf":
        return ("var", r.choice(names)) if r.random() < 0.85 else ("const", r.choice([-1.5, 0.5, 2.0]))
    if kind == "d":
        name = f"v{len(names)}"
        body = ("mul", ("var", name), program(r, [*names, name], depth - 1, size - 1))
        return ("d", r.choice(MODES), name, ("add", body, program(r, [*names, name], depth - 1, size - 2)), program(r, names, 0, 1))
    return (kind, *(program(r, names, depth, size - 1) for _ in range(1 if kind == "sin" else 2)))


def replaced(e, name, by):
    if e[0] == "var":
        return by if e[1] == name else e
    return e if e[0] == "const" else (e[0], *(replaced(x, name, by) for x in e[1:]))


def derived(e, name):
    match e:
        case ("const", _): return ("const", 0.0)  # fmt: skip
        case ("var", v): return ("const", float(v == name))  # fmt: skip
        case ("add", a, b): return ("add", derived(a, name), derived(b, name))  # fmt: skip
        case ("mul", a, b): return ("add", ("mul", derived(a, name), b), ("mul", a, derived(b, name)))  # fmt: skip
        case ("sin", a): return ("mul", ("cos", a), derived(a, name))  # fmt: skip
        case ("cos", a): return ("mul", ("mul", ("const", -1.0), ("sin", a)), derived(a, name))  # fmt: skip


def plain(e):
    """The expression without derivatives."""
    if e[0] == "d":
        _, _, name, body, at = e
        return replaced(derived(plain(body), name), name, plain(at))
    return e if e[0] in ("const", "var") else (e[0], *(plain(x) for x in e[1:]))


def expected(e, env):
    """The value of an expression without derivatives. The rules of products use an expression many times: it is computed once."""
    values = {}

    def value(e):
        if id(e) not in values:
            values[id(e)] = of(e)
        return values[id(e)]

    def of(e):
        match e:
            case ("const", c): return np.full_like(next(iter(env.values())), c)  # fmt: skip
            case ("var", v): return env[v]  # fmt: skip
            case ("add", a, b): return value(a) + value(b)  # fmt: skip
            case ("mul", a, b): return value(a) * value(b)  # fmt: skip
            case ("sin", a): return np.sin(value(a))  # fmt: skip
            case ("cos", a): return np.cos(value(a))  # fmt: skip

    return value(e)


def computed(e, env):
    match e:
        case ("const", c): return next(iter(env.values())).detach() * 0.0 + c  # fmt: skip
        case ("var", v): return env[v]  # fmt: skip
        case ("add", a, b): return computed(a, env) + computed(b, env)  # fmt: skip
        case ("mul", a, b): return computed(a, env) * computed(b, env)  # fmt: skip
        case ("sin", a): return F.sin(computed(a, env))  # fmt: skip
        case ("d", mode, name, body, at):
            return derivative(mode, lambda y: computed(body, env | {name: y}), computed(at, env))


def derivative(mode, body, at):
    if mode == "vjp":
        value, pull = vjp(body, at)
        return pull(value.detach() * 0.0 + 1.0)[0]
    if mode in ("grad", "value_and_grad"):
        g = (grad if mode == "grad" else value_and_grad)(lambda y: body(y).sum())(at)
        return g if mode == "grad" else g[1]
    y = at * 1.0 if mode == "result" else Tensor(at)  # at itself may be used around here by its own name
    gm = GradManager().attach(y)
    with gm:
        gm.backward(body(y))
    return y.grad


def whole(seed):
    """A program of two numbers, whose outermost operation is a derivative."""
    r = random.Random(seed)
    return ("d", r.choice(MODES), "t", ("mul", ("var", "t"), program(r, ["x", "w", "t"], 2, 6)), program(r, ["x", "w"], 0, 2))


def inputs(seed):
    r = np.random.default_rng(seed)
    return r.uniform(-1, 1, 2), r.uniform(-1, 1, 2)


def attached_by_others(f, x, w):
    """(f(x, w), x.grad, w.grad), where a manager around it asks for the gradients of both."""
    gm = GradManager().attach([x, w])
    with gm:
        y = f(x, w)
        gm.backward(y)
    found = y.detach(), x.grad, w.grad
    x.grad = w.grad = None
    return found


@but(every=4)
@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed):
    e = ("add", whole(seed), ("mul", ("var", "x"), ("var", "w")))
    x, w = inputs(seed)
    f = lambda x, w: computed(e, {"x": x, "w": w})
    want = plain(e)
    value, gx, gw = attached_by_others(f, Tensor(x), Tensor(w))
    for got, ex in ((value, want), (gx, derived(want, "x")), (gw, derived(want, "w"))):
        np.testing.assert_allclose(got.numpy(), expected(ex, {"x": x, "w": w}), rtol=1e-9, atol=1e-11)
    found = grad(lambda p: f(p["x"], p["w"]).sum())({"x": Tensor(x), "w": Tensor(w)})
    h = 1e-5
    for name, g, (dx, dw) in (("x", gx, (h, 0)), ("w", gw, (0, h))):
        np.testing.assert_allclose(found[name].numpy(), g.numpy(), rtol=1e-12, atol=1e-13)
        near = [f(Tensor(x + k * dx), Tensor(w + k * dw)).numpy() for k in (1, -1, 2, -2)]
        np.testing.assert_allclose(g.numpy(), (8 * (near[0] - near[1]) - (near[2] - near[3])) / (12 * h), rtol=1e-6, atol=1e-6)
        assert found[name]._node is None and g._node is None, "nobody asks for more"


@but(every=4)
@pytest.mark.parametrize("seed", range(0, 80, 8))
def test_traced_they_have_the_same_bits(seed):
    e = whole(seed)
    x, w = (Tensor(a) for a in inputs(seed))
    f = lambda x, w: computed(e, {"x": x, "w": w})
    step = lambda x, w: attached_by_others(f, x, w)
    numbers = lambda ts: [t if t is None else t.numpy().tobytes() for t in ts]
    same = lambda a, b: numbers(a) == numbers(b)
    assert same(trace(step)(x, w), step(x, w)), "the whole of it traced"
    assert same(attached_by_others(trace(f), x, w), step(x, w)), "a traced function inside of a gradient"
    assert same([trace(f)(x, w)], [f(x, w)])


# -- the examples of the literature --------------------------------------------------------------------------------------------


def t(*v):
    return Tensor(np.array(v if len(v) != 1 else v[0], "float64"))


def test_levels_are_told_apart():
    x, y = t(3.0), t(5.0)
    assert grad(lambda x: x * grad(lambda y: x + y)(y))(x).item() == 1  # perturbation confusion gives 2
    assert grad(lambda x: x * grad(lambda y: x * y)(x))(x).item() == 2 * 3
    assert grad(lambda x: grad(lambda y: x * y)(x))(x).item() == 1
    assert grad(lambda x: grad(lambda x: x * x * x)(x) * x)(x).item() == 9 * 9
    shifted = lambda f: lambda u: grad(lambda h: f(u + h))(t(0.0))  # "Perturbation confusion in forward AD", section 5
    assert abs(shifted(shifted(F.sin))(x).item() + np.sin(3.0)) < 1e-12


def test_managers_tell_what_is_theirs():
    w = t(2.0)
    outer, inner = GradManager().attach(w), GradManager()
    with outer:
        x = w * w
        inner.attach([w, x])
        with inner:
            inner.backward(x * w)  # x is a number here, though the outer manager knows where it comes from
        assert w.grad.item() == 4 and x.grad.item() == 2
        first, w.grad = w.grad, None
        outer.backward(first * w)  # w^2 w
    assert w.grad.item() == 12 and w._node is None


def test_an_inner_gradient_stays_out_of_what_is_attached_outside():
    w, x = t(2.0), t(3.0)
    gm = GradManager().attach(w)
    with gm:
        g = grad(lambda x: w * w * x)(x)
        assert w.grad is None and x.grad is None
        gm.backward(g)
    assert w.grad.item() == 4 and x.grad is None


@pytest.mark.parametrize("first", [0, 1])
def test_managers_end_in_any_order(first):
    x = t(2.0)
    both = [GradManager().attach(x), GradManager().attach(x)]
    with both[0], both[1]:
        y = x * x * x
        for k in (first, 1 - first):
            both[k].backward(y)
            assert x.grad.item() == 12
            x.grad = None
            later = x * 5.0
        assert not both[0].level and not both[1].level
    assert x._node is None
    with both[0], both[1]:
        both[first].release()
        y = x * x
        both[1 - first].backward(y)
    assert x.grad.item() == 4 and x._node is None and later.item() == 10


def test_changed_in_place_inside_of_an_inner_manager():
    x, w = t(2.0), t(3.0)
    outer, inner = GradManager().attach([x, w]), GradManager().attach(x)
    with outer:
        with inner:
            x *= w
            inner.backward(x * x)
        assert x.grad.item() == 2 * 6 * 3
        x.grad = None
        outer.backward(x * x)  # x^2 w^2 of the first x
    assert x.grad.item() == 2 * 2 * 9 and w.grad.item() == 4 * 2 * 3


def test_structures_of_arguments():
    f = lambda p, q: (p["a"] * p["b"][0]).sum() * q[0] + q[1].sum()
    p, q = {"a": t(1.0, 2.0), "b": [t(3.0, 4.0)]}, (t(2.0), t(5.0, 6.0))
    gp, gq = grad(f, argnums=(0, 1))(p, q)
    assert gp["a"].tolist() == [6, 8] and gp["b"][0].tolist() == [2, 4]
    assert gq[0].item() == 11 and gq[1].tolist() == [1, 1] and type(gq) is tuple
    assert grad(f, argnums=-1)(p, q)[0].item() == 11


class Power(Function):
    """x^3 y; keeps an intermediate result."""

    def forward(self, x, y):
        self.x, self.y, self.square = x, y, x * x
        return self.square * x * y

    def backward(self, g):
        return g * self.square * self.y * 3.0, g * self.square * self.x


def test_functions_of_one_s_own_are_differentiated_again():
    x, y = t(2.0), t(5.0)
    f = lambda x, y: Power()(x, y)
    second = grad(grad(f))
    assert second(x, y).item() == 6 * 2 * 5 and grad(grad(f), 1)(x, y).item() == 12 and grad(grad(f, 1))(x, y).item() == 12
    assert grad(second)(x, y).item() == 30 and grad(second, 1)(x, y).item() == 12
    assert trace(second)(x, y).item() == 60
