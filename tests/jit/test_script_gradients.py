"""Gradients of scripts where a branch or a loop is inside of a `no_grad`, and where a loop gives nothing that is read: as in plain Python."""

import numpy as np

from tengen import Tensor, script, trace
from tengen import functional as F
from tengen.autodiff import enable_grad, grad, no_grad, vmap

X = Tensor(np.array([1.0, 2.0], "float32"))
Y = Tensor(np.array([1.0, 3.0], "float32"))


def another_name(x, y):
    with no_grad():
        if y.sum() > 0:
            z = x
        else:
            z = x * 2
        w = z * 3
    return (z * y + w).sum()


def returned_early(x, y):
    with no_grad():
        if y.sum() > 0:
            return (x * 1).sum() + y.sum()
        if x.sum() > 0:
            return x.sum()
        q = x
    return (q * y).sum()


def changed_in_place(x, y):
    z = x * 2
    with no_grad():
        if y.sum() > 0:
            z += 1
    return (z * y).sum()


def enabled_again(x, y):
    with no_grad():
        if y.sum() > 0:
            with enable_grad():
                z = x * 2
        elif x.sum() > 0:
            z = x
        else:
            z = y * 1
        u = z * 5
    return (z * y * u).sum()


def carried(x, y):
    z, w, n = x * 2, y, x.sum()
    with no_grad():
        for v in y:
            if v < 0:
                continue
            z = z * v
            w = x
            break
        while n < 3:
            n = n + 4
            if x[0] > 0:
                w = w * 2
    return (z * w * y).sum() + n


def unread(x, y):
    for v in x:
        z = v * 2
        for w in y:
            z = w * v
    while x.sum() < 0:
        z = y * 2
        break
    if y.sum() > 0:
        z = x  # noqa: F841  (what nobody reads is the point)
    return (y * 3).sum()


def test_gradients_behind_branches_in_no_grad_and_loops_that_nobody_reads():
    for f in (another_name, returned_early, changed_in_place, enabled_again, carried, unread):
        s = script(f)
        ways = [grad(way, argnums=(0, 1)) for way in (s, trace(s, symbolic=True), lambda x, y, s=s: s(x, y))]
        ways.append(trace(grad(s, argnums=(0, 1))))
        for x, y in ((X, Y), (-X, Y), (X, -Y), (-X, -Y)):
            wanted = [v.tolist() for v in grad(f, argnums=(0, 1))(x, y)]
            assert all([v.tolist() for v in way(x, y)] == wanted for way in ways), f.__name__
        xs, ys = F.stack([X, -X, X]), F.stack([Y, Y, -Y])
        assert vmap(s)(xs, ys).tolist() == [f(x, y).item() for x, y in zip(xs, ys)]
