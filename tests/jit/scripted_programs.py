"""Small programs for the tests of `script`: branches, functions, lists under several names, and other corners. PROGRAMS has them with
what they are called with; `scripted_loops.py` puts its own there too."""

import numpy as np
import pytest

import tengen.functional as F
from tengen.autodiff import no_grad

A = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
B = np.abs(A) + 1
PROGRAMS = []


def program(*calls):
    """Puts a function into the table, with arrays or numbers it is called with."""

    def put(f):
        PROGRAMS.append(pytest.param(f, [c if isinstance(c, tuple) else (c,) for c in calls], id=f.__name__))
        return f

    return put


# ---- branches --------------------------------------------------------------------------------------------------------


@program(A, -A)
def if_else(x):
    if x.sum() > 0:
        t = x * 2
        y = t + 1
    else:
        y = x - 1
    return y


@program(A, A * 0, -A)
def elif_(x):
    s, sign = x.sum(), 0
    if s > 0:
        sign = 1
    elif s < 0:
        sign = -1
    return sign, x * sign


@program(A, -A, A * 0)
def continue_in_an_if_in_an_if(x):
    total, n = x[0].sum() * 0, 2
    for row in x:
        if row.sum() > 0:
            if row[0] > 0:
                continue
            total = total + 1
        elif n == 2:
            with_one = row + 1
            if with_one[1] > 0:
                if with_one[2] > 0:
                    continue
                total = total * 2
        total = total + row.sum()
    return total


@program((A, 0.3), (-A, 0.3), (A, 9.0))
def continue_and_break_in_ifs(x, y):
    total, seen = x[0].sum() * 0, 0
    for row in x:
        for e in row:
            if e > 0:
                if e > y:
                    continue
                total = total + e
            if total > 1:
                if e < -y:
                    break
                seen += 1
            total = total - 0.25
        if row.max() > 1:
            if row.min() < -1:
                continue
            if row.sum() > 2:
                return total, seen
        total = total + 0.5
    return total, seen


@program((A, 1.0), (-A, 0.1))
def continue_in_a_with(x, y):
    total = x[0].sum() * 0
    for row in x:
        with no_grad():
            if row.sum() > 0:
                if row[0] > y:
                    continue
            total = total + row[1]
        total = total * 2
    return total


@program(A, -A)
def early_return(x):
    if x.sum() > 0:
        return x * 2
    y = x + 1
    if y.max() > 2 or y.min() < -1:
        return y
    return y - 1


@program(A, -A)
def conditional_expressions(x):
    return (x * 2 if x.sum() > 0 else x) if not (x.max() < 0 or x.min() > 9) else x + 7


@program(A, A * 100)
def chained_comparison(x):
    s = x.sum()
    if -10 < s < 10 and s != 0:
        return s
    return -s


@program((A, True), (A, False))
def known_condition(x, double):
    if double:
        x = x * 2
    return x


@program(A, -A, A * 0)
def many_ways_out(x):
    n = 0
    if x.sum() > 0:
        if x[0, 0] > 10:
            return x * 2, n
        n = 1
    if x[1, 1] > 0:
        if x[0, 1] > 10:
            return x * 3, n
    elif x[1, 2] < 0:
        n = n + 2
    if x[2, 2] > 0:
        x = x + 1
        if x[0, 1] > 10:
            return x * 4, n
    if x[2, 2] < 0:
        if x[0, 1] > 10:
            return x * 5, n
    return x, n


@program(A, -A)
def nested_branches(x):
    y = x
    if x.sum() > 0:
        if x[0, 0] > 0:
            y = x * 2
        else:
            y = x * 3
        y = y + 1
    return y


@program(A, -A)
def in_place_with_alias(x):
    y = x * 1
    z = y
    if y.sum() > 0:
        y += 1
    for r in x:
        y[0] += r
    return y, z


@program(A, -A)
def dicts_in_branches(x):
    d = {"a": x, "n": 1}
    if x.sum() > 0:
        d["a"] = x * 2
        d["n"] = 2
    return d


@program(A)
def min_max_abs(x):
    a, b = x[0, 0], x[1, 1]
    return max(a, b), min(a, b, x[2, 2]), abs(a), float(b), int(b * 10), bool(b > 0)


# ---- functions -------------------------------------------------------------------------------------------------------


def helper(v, k=2, *, more=0.0):
    if v.sum() > 0:
        return v * k + more
    return v - k


@program(A)
def calls(x):
    return helper(x) + helper(-x, k=3) + helper(x, more=1.0)


@program(A)
def nested_functions(x):
    scale = 0.5

    def inner(v):
        if v.max() > 1:
            v = v / v.max()
        return v * scale

    twice = lambda v: inner(v) if v.sum() > 0 else v * 2
    return [twice(r) for r in (x, x * 0.1, -x)], {n: inner(x) for n in "ab"}


@program(A)
def with_blocks(x):
    from tengen.autodiff import no_grad

    with no_grad():
        if x.sum() > 0:
            return x * 2
        y = x + 1
    return y


@program(A)
def unpacking(x):
    (a, *b), c = x, x[0]
    a, c = c, a
    return a + c, b[0] + b[-1]


# ---- lists under several names, and other corners --------------------------------------------------------------------


@program(A)
def number_of_the_first(x):
    best, n, least = None, 0, None
    for i, row in enumerate(x):
        s = row.sum()
        if i == 0 or s > best:
            best = s
    while True:
        if n == 0 or x[0, 0] - n < least:
            least = x[0, 0] - n
        n += 1
        if n > x.sum() + 10:
            return best, least


@program(A)
def alias_list(x):
    a = [x]
    b = a
    if x.sum() > -1e9:
        a[0] = a[0] * 2
    return b


@program(A)
def grown_alias(x):
    a = []
    b = a
    for r in x:
        a.append(r)
    return b, a


@program(A)
def grown_by_helper(x):
    def fill(lst, xs):
        for r in xs:
            lst.append(r)
        return len(lst)

    a = [x[0]]
    k = fill(a, x)
    return a, k


@program(A)
def grown_twice(x):
    a = []
    for r in x:
        a.append(r)
    b = a
    for r in x:
        a.append(r * 2)
    return F.stack(b), F.stack(a)


@program(A)
def none_after(x):
    best = None
    for r in x:
        if best is None or r.sum() > best.sum():
            best = r
    return best


@program(A)
def float_state(x):
    lr = 0.1
    y = x[0]
    for r in x:
        y = y - lr * r
        lr *= 0.9
    return y, lr


@program(A)
def int_bool(x):
    k = int(x.sum() > 0) + int(x[0, 0] * 10)
    return k, float(k) / 3, k // 2, k % 3, -k, k**2


@program(A)
def nested_list_growth(x):
    rows = []
    for r in x:
        inner = []
        for v in r:
            inner.append(v * 2)
        rows.append(F.stack(inner))
    return F.stack(rows)


@program(A)
def while_nested(x):
    n = 0
    while n < 3:
        k = 0
        y = x * 1
        while y.sum() > 0.1 and k < 5:
            y = y * 0.5
            k += 1
        x = x + y
        n += 1
    return x, n, k


@program(A)
def aug_sub(x):
    y = F.zeros((5,))
    for i, r in enumerate(x):
        y[i] = r.sum()
        y[i] += 1
    return y


@program(A)
def dead_list(x):
    a = [x]
    b = {"q": a}
    for r in x:
        a[0] = a[0] + r
    return b


@program(A)
def two_level_break(x):
    out = x[0] * 0
    for r in x:
        for v in r:
            if v < 0:
                break
            out = out + v
        else_ = out
    return out, else_


@program(A, A * 0)
def nested_return(x):
    for r in x:
        for v in r:
            if v > 0.5:
                return v
    return x[0, 0]


@program(A)
def while_flag(x):
    done = False
    n = 0
    while not done:
        n += 1
        x = x * 0.5
        done = bool(x.abs().sum() < 0.01) or n > 40
    return x, n
