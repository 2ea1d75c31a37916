"""Calls of a trace that are repeated go a short way; whatever changes between two of them, they do what a first call would."""

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.optimizer import SGD
from tengen.runtime import native


def numbers(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def same(a, b):
    assert a.numpy().tobytes() == b.numpy().tobytes()


def test_arguments_of_every_kind_after_a_repeated_call():
    calls = []

    @trace
    def f(x, y=2.0):
        calls.append(1)
        return x @ x * y

    a, b = numbers(4, 4), numbers(5, 5, seed=1)
    for _ in range(3):
        same(f(a), a @ a * 2.0)
    assert len(calls) == 1 and f.graph.inputs[0].type.shape == (4, 4)
    for x in (b, a, a.T, a.reshape(2, 8)[:, ::2].reshape(4, 2)[:, :1] * numbers(1, 4), b):
        for _ in range(2):
            same(f(x), x @ x * 2.0)
    for _ in range(2):
        same(f(a, y=3.0), a @ a * 3.0)
        same(f(a, 4.0), a @ a * 4.0)
        same(f(a.numpy()), a @ a * 2.0)
    f(b)
    assert f.graph.inputs[0].type.shape == (5, 5)


def test_what_the_tape_records_is_not_repeated_off_it():
    net = M.Linear(3, 2)
    run, x = trace(net), numbers(4, 3)
    for _ in range(2):
        same(run(x), net(x))
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(run(x).sum())
    got = [p.grad.numpy().copy() for p in net.parameters()]
    for p in net.parameters():
        p.grad = None
    with gm:
        gm.backward(net(x).sum())
    assert all((p.grad.numpy() == g).all() for p, g in zip(net.parameters(), got))


def test_states_that_others_see_are_copied_before_a_repeated_step():
    net = M.Linear(3, 2)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.5, momentum=0.9)

    @trace
    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    x = numbers(4, 3)
    step(x), step(x)
    seen, kept = net.weight.numpy(), net.weight.detach()
    before = seen.copy()
    step(x)
    assert (seen == before).all() and (kept.numpy() == before).all() and (net.weight.numpy() != before).any()
    both = numbers(2, 3, 3, seed=2)
    net.weight._reset(both[1, :2])  # a view: the rest of its memory is another's
    old = both.numpy().copy()
    step(x), step(x)
    assert (both.numpy() == old).all()


def test_gradients_that_appear_are_seen():
    p = tengen.Parameter([1.0, 2.0])

    @trace
    def f(x):
        return x if p.grad is None else x + p.grad

    x = Tensor([1.0, 1.0])
    assert [f(x).tolist() for _ in range(2)] == [[1.0, 1.0]] * 2
    p.grad = Tensor([1.0, 2.0])
    assert [f(x).tolist() for _ in range(2)] == [[2.0, 3.0]] * 2
    p.grad = Tensor([5.0, 5.0])
    assert f(x).tolist() == [6.0, 6.0]
    p.grad = None
    assert f(x).tolist() == [1.0, 1.0]


def test_autocast_and_profiles_are_seen():
    f = trace(lambda x: F.matmul(x, x))
    x = numbers(8, 8)
    wide = [f(x) for _ in range(2)][1]
    with tengen.amp.autocast(low_prec_dtype="bfloat16"):
        assert f(x).dtype.name == "bfloat16" and f(x).dtype.name == "bfloat16"
    same(f(x), wide)
    with tengen.profile() as p:
        f(x)
    assert "matmul" in str(p)
    trace.enabled = False
    try:
        same(f(x), wide)
    finally:
        trace.enabled = True
    whole = trace(lambda x: f(x) + 1)  # inside another recording its body is recorded
    same(whole(x), wide + 1)


def test_open_extents_are_repeated_for_each_number():
    f = trace(lambda x: x.sum(axis=0) / x.shape[0], dynamic_axes={0: "n"})
    for n in (3, 5, 3, 5, 1, 3):
        x = numbers(n, 4, seed=n)
        same(f(x), x.sum(axis=0) / n)
    assert len(f.stats()) == 1


def test_borrowed_buffers():
    own = native.new_buffer(64)
    assert (
        not native.borrowed(own)
        and native.borrowed(native.view(own, 0))
        and native.borrowed(native.wrap(native.address(own), own))
    )
    for wrong in ((), (own, own), (1,)):
        with pytest.raises(TypeError, match="borrowed"):
            native.borrowed(*wrong)
