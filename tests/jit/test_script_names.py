"""Tensors, lists and dicts with two names, one of them in a list, a dict, an attribute, a caller's variable or what a function returns: what is
changed in place behind a branch or a loop that sets one of them is refused, and the rest gives the bits of plain Python."""

import re

import numpy as np
import pytest
from each import each

import tengen.functional as F
from tengen import Tensor, script
from tengen.base.errors import ScriptError

UP = np.array([[1, 2], [3, -1], [0.5, 1]], "float32")
T = Tensor([1.0, 2.0])


def the_element_of_a_dict(x):
    y = x * 1
    d = {"v": y}
    if x.sum() > 0:
        d["v"] = y * 2
    y += 1
    return d["v"], y


def elements_of_two_lists(x):
    l = [x * 1]
    m = [l[0], x]
    if x.sum() > 0:
        l[0] = l[0] * 2
    l[0] += 1
    return l, m


def appended_and_then_changed(x):
    out, h = [], x[0] * 0
    for r in x:
        h += r
        out.append(h)
    return F.stack(out)


def appended_and_changed_behind_the_loop(x):
    out, h = [], x[0] * 0
    for r in x:
        h = h + r
        out.append(h)
    h += 1
    return F.stack(out)


def the_callers_name(x):
    def helper(a):
        if a.sum() > 0:
            a = a * 2
        a += 1
        return a
    y = x * 1
    return helper(y), y


def one_of_two_that_is_returned(x):
    def pick(a, b):
        if a.sum() > 0:
            return a
        return b
    y, z = x * 1, x * 3
    w = pick(y, z)
    w += 1
    return w, y, z


def elements_of_a_list_that_has_grown(x):
    out = []
    for r in x:
        out.append(r * 2)
    for o in out:
        o += 1
    return F.stack(out)


def an_element_set_to_another(x):
    d = {"a": x[0] * 1, "b": x[0] * 2}
    for r in x:
        d["a"] = d["b"]
        d["b"] += r
    return d


def changed_behind_a_branch_in_the_loop(x):
    y = z = x[0] * 1
    for r in x:
        if r.sum() > 0:
            y = y * 2
        y += 1
    return y, z


def the_largest_of_two(x):
    y, z = x * 1, x * 2
    s, t = y.sum(), z.sum()
    w = max(s, t)
    w += 1
    return w, s, t


def a_list_in_a_tuple(x):
    y = x * 1
    t = (y, [y])
    if x.sum() > 0:
        t = (y * 2, [y])
    t[1][0] += 1
    return t, y


def a_list_made_anew(x):
    v = x[0] * 1
    l = [v]
    for r in x:
        if r.sum() > 0:
            l = [l[0] + r]
    v += 1
    return l, v


def two_names_of_a_list(x):
    a = [x * 1]
    b = a
    if x.sum() > 0:
        a = [x * 2]
    a[0] = x * 5
    return a, b


def a_list_in_a_dict(x):
    inner = [x * 1]
    d = {"s": inner}
    if x.sum() > 0:
        d["s"] = [x * 2]
    return d["s"], inner


def one_of_two_lists_that_is_returned(x):
    def pick(a, b):
        if a[0].sum() > 0:
            return a
        return b
    a, b = [x * 1], [x * 2]
    w = pick(a, b)
    w[0] = x * 7
    return w, a, b


def a_list_with_two_names(x):
    a = [x[0] * 1]
    b = a
    for r in x:
        a[0] = a[0] + b[0] + r
    return a, b


def lists_that_change_places(x):
    a, b = [x * 1], [x * 2]
    for r in x:
        a, b = b, a
        a[0] = a[0] + r.sum()
    return a, b


def an_element_as_a_sum(x):
    rows = [x[0] * 1, x[1] * 1]
    t = rows[0]
    for r in x:
        t += r
    return rows, t


def sums_in_a_dict(x):
    d = {"a": x[0] * 1}
    for r in x:
        d["a"] += r
        if r.sum() > 0:
            d["a"] *= 2
    return d


def a_list_from_a_function(x):
    def gen(s):
        if s[0].sum() > 0:
            return s
        return [t * 2 for t in s]
    s = [x * 1]
    for _ in range(3):
        s = gen(s)
    return s


def the_best_so_far(x):
    acc = x[0] * 0
    best = acc
    for r in x:
        acc = acc + r
        if acc.sum() > best.sum():
            best = acc
    return best, acc


def changed_behind_a_break(x):
    y = x * 1
    for r in x:
        if r.sum() > 0:
            break
        y += r
    y += 1
    return y


class Holder:
    def __init__(self, total):
        self.total = total

    def add(self, x):
        y = self.total
        if x.sum() > 0:
            y = y * 2
        y += 1
        return y


def an_attribute(x):
    return Holder(x * 1).add(x)


def a_global(x):
    y = T
    if x.sum() > 0:
        y = y * 2
    y += 1
    return y


def returned_or_changed(x):
    """What is returned is not written by what follows where it is not."""

    def f(y):
        if y.sum() > 0:
            return y
        y += 1
        return y * 2

    y = x * 1
    return f(y), y


def nothing_in_one_branch(x):
    h = None
    if x.sum() > 0:
        h = x * 2
    return x if h is None else h


def the_callers_name_is_the_same(x):
    def helper(y):
        if y.sum() > 0:
            y = y * 2
        y += 1
        return y

    y = x * 1
    return helper(y), y


def the_callers_list_of_the_same_name(x):
    def helper(y):
        for r in x:
            y = [y[0] + r]
        return y

    y = [x[0] * 1]
    return helper(y), y


REFUSED = {
    the_callers_name_is_the_same: "`y` and the caller's `y`",
    the_element_of_a_dict: "`d['v']` and `y`",
    elements_of_two_lists: "`l[0]` and `m[0]`",
    appended_and_then_changed: "`out[0]` and `h`",
    appended_and_changed_behind_the_loop: "`h` and `out[0]`",
    the_callers_name: "`a` and `y`",
    one_of_two_that_is_returned: "what is returned and `y`",
    elements_of_a_list_that_has_grown: "an element of a list that a loop has filled",
    an_element_set_to_another: "`d['a']` and `d['b']`",
    changed_behind_a_branch_in_the_loop: "`y` and `z`",
    the_largest_of_two: "what is returned and `t`",
    a_list_in_a_tuple: "`t[0]` and `y`",
    a_list_made_anew: "`l[0]` and `v`",
    two_names_of_a_list: "`a` and `b` are one list, which is changed in place",
    a_list_in_a_dict: "`d['s']` and `inner` are one list, which is changed in place",
    one_of_two_lists_that_is_returned: "a list is changed in place that may be both what is returned and `a`",
    an_attribute: "`y` and `self.total`",
    a_global: "`y` and `T`",
    nothing_in_one_branch: "a tensor of that type in the place of None, and a bool that says whether it is one",
}


@each("f, words", REFUSED.items(), ids=lambda f: getattr(f, "__name__", f))
def test_what_has_two_names_is_not_changed(f, words):
    with pytest.raises(ScriptError, match=re.escape(words)):
        script(f)(Tensor(UP))


def test_the_error_names_both_lines():
    with pytest.raises(ScriptError) as told:
        script(the_element_of_a_dict)(Tensor(UP))
    line = the_element_of_a_dict.__code__.co_firstlineno
    assert f":{line + 5}: a tensor is changed" in str(told.value) and f"(line {line + 3}) set one of them" in str(told.value)


def numbers_of(x):
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else None
    return x.numpy().tobytes() if parts is None else [numbers_of(v) for v in parts]


TAKEN = [
    a_list_with_two_names,
    lists_that_change_places,
    an_element_as_a_sum,
    sums_in_a_dict,
    a_list_from_a_function,
    the_best_so_far,
    changed_behind_a_break,
    returned_or_changed,
    the_callers_list_of_the_same_name,
]


@each("f", TAKEN, ids=lambda f: f.__name__)
def test_what_is_taken_has_the_bits_of_plain_python(f):
    scripted = script(f)
    for sign in (1, -1):
        assert numbers_of(scripted(Tensor(sign * UP))) == numbers_of(f(Tensor(sign * UP)))
