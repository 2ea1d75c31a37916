"""What a body of a script must not do, since it is recorded once: change sets, arrays, iterators and what library functions fill, draw Python's
random numbers, ask which tensor another one is. And numbers that a branch has set, beside those of plain Python."""

import bisect
import collections
import heapq
import itertools
import random
import re

import numpy as np
import pytest
from each import each

import tengen.functional as F
from tengen import Tensor, script, trace
from tengen.base.errors import ScriptError

X = Tensor([0.5, -1.0, 2.0])


def a_set(x):
    seen = set()
    if x.sum() > 0:
        seen.add(1)
    return x * len(seen)


def a_deque(x):
    last = collections.deque(maxlen=2)
    for v in x:
        last.append(v)
    return last[0] + last[1]


def a_kind_of_dict(x):
    count = collections.defaultdict(int)
    for v in x:
        if v > 0:
            count["positive"] += 1
    return x * count["positive"]


def an_array(x):
    mask = np.zeros(3, "float32")
    for i in range(3):
        if x[i] > 0:
            mask[i] = 1
    return x * Tensor(mask)


def an_iterator(x):
    weights, total = iter([1.0, 2.0, 3.0]), x[0] * 0
    for v in x:
        total = total + v * next(weights)
    return total


def an_iterator_in_others(x):
    weights, total = enumerate(zip([1.0, 2.0, 3.0], "abc")), x[0] * 0
    for v in x:
        total = total + v * next(weights)[0]
    return total


def a_count(x):
    numbers, total = itertools.count(), x[0] * 0
    for v in x:
        total = total + v * next(numbers)
    return total


def a_generator(x):
    numbers = (i for i in range(4))
    if x.sum() > 0:
        next(numbers)
    return x * next(numbers)


def a_heap(x):
    heap = [3, 5]
    if x.sum() > 0:
        heapq.heappush(heap, 1)
    return x * heap[0]


def a_sorted_list(x):
    some = [3, 5]
    for _ in x:
        bisect.insort(some, 1)
    return x * len(some)


def a_method_of_the_class(x):
    some = [1.0]
    if x.sum() > 0:
        list.append(some, 2.0)
    return x * len(some)


def fill(some, v):
    some.append(v)


def a_list_that_a_function_fills(x):
    some = []
    for v in x:
        fill(some, v)
    return some


def a_set_of_an_inner_function(x):
    seen = set()

    def note(v):
        seen.add(1)
        return v * 2

    y = note(x) if x.sum() > 0 else x
    return y * len(seen)


class Holder:
    def __init__(self):
        self.value, self.heap = 1.0, [3]


def an_attribute_by_setattr(x):
    h, name = Holder(), "value"
    if x.sum() > 0:
        setattr(h, name, 2.0)
    return x * h.value


def a_list_of_an_object(x):
    h = Holder()
    if x.sum() > 0:
        heapq.heappush(h.heap, 1)
    return x * h.heap[0]


CHANGES = [
    a_set, a_deque, a_kind_of_dict, an_array, an_iterator, an_iterator_in_others, a_count, a_generator, a_heap, a_sorted_list,
    a_method_of_the_class, a_list_that_a_function_fills, a_set_of_an_inner_function, an_attribute_by_setattr, a_list_of_an_object,
]  # fmt: skip


@each("f", CHANGES)
def test_what_a_region_cannot_change(f):
    with pytest.raises(ScriptError, match=r"is changed where a condition is a tensor, or in a loop over tensors(.*\n)+ *\^$"):
        script(f)(X)


def test_what_is_changed_behind_a_region_or_in_a_known_loop():
    def f(x):
        seen, mask, weights, heap = set(), np.zeros(3, "float32"), iter([1.0, 2.0]), [3]
        y = x * 2 if x.sum() > 0 else x
        for i in range(2):
            seen.add(i)
            mask[i] = next(weights)
            heapq.heappush(heap, i)
        return y * Tensor(mask) * len(seen) + heap[0]

    for x in (X, -X):
        assert script(f)(x).numpy().tobytes() == f(x).numpy().tobytes()


def pythons_numbers(x):
    total = x[0] * 0
    for v in x:
        total = total + v * random.random()
    return total


def numpys_numbers(x):
    draws = np.random.default_rng(0)
    return x * float(draws.random()) if x.sum() > 0 else x


def which_of_a_branch(x):
    y = x
    if x.sum() > 0:
        y = x * 2
    return x + 1 if y is x else y - 1


def which_of_a_loop(x):
    first = best = x[0]
    for v in x:
        if v > best:
            best = v
    return best * 0 if best is first else best


def which_of_a_list(x):
    some = [x, x * 2]
    y = some[1] if x.sum() > 0 else some[0]
    return x * len([v for v in some if v is y])


def elements_of_a_comprehension(x):
    return [v for v in x if v > 0]


def a_key(x):
    k = 1
    if x.sum() > 0:
        k = 2
    return x * {1: 10.0, 2: 20.0}.get(k, 5.0)


def a_list_times_a_number(x):
    k = 1
    if x.sum() > 0:
        k = 2
    return [x] * k


def a_text_that_is_compared(x):
    return x * 2 if f"{x.sum()}" == "1.5" else x


def a_text_that_is_returned(x):
    return f"{x.sum()}"


def add_one(v):
    v += 1


def names_of_one_tensor(change):
    """A function in which y is z, or not, when one of them is changed."""

    def f(x):
        y = z = x * 1
        if x.sum() > 0:
            y = y * 2
        change(y)
        return y, z

    return f


def changed_by_another_name(x):
    y = z = x * 1
    if x.sum() > 0:
        y = y * 2
    w = y
    w += 1
    return y, z


def changed_behind_a_loop(x):
    y = z = x * 1
    for v in x:
        y = y * v
    add_one(z)
    return y, z


def changed_by_a_method(x):
    y = z = x * 1
    if x.sum() > 0:
        y = y * 2
    y.add_(1)
    return y, z


def test_a_tensor_that_may_have_two_names_is_not_changed():
    """Whoever changes it: the function itself, one that it calls, or through a list."""
    for change in (add_one, lambda v: v.add_(1), lambda v: v._reset(v + 1), lambda v: v.__setitem__(0, 5.0)):
        with pytest.raises(ScriptError, match="is changed in place that may be both `y` and `z`, as a tensor decides"):
            script(names_of_one_tensor(change))(X)
    with pytest.raises(ScriptError, match="is changed in place that may be both `y` and `z`, as a tensor decides"):
        script(changed_behind_a_loop)(X)
    for f in (changed_by_another_name, changed_by_a_method):
        with pytest.raises(ScriptError, match="is changed in place that may be both `y` and `z`, as a tensor decides"):
            script(f)(X)


def means_that_move(x, c):
    steps = 0
    for _ in range(5):
        near = F.argmin((x.reshape(-1, 1) - c.reshape(1, -1)) ** 2, 1)
        new = []
        for j in range(2):
            m = (near == j).astype("float32")
            new.append((x * m).sum() / m.sum() if m.sum() > 0 else c[j])
        new = F.stack(new)
        moved = F.abs(new - c).max()
        c, steps = new, steps + 1
        if moved < 1e-4:
            break
    return c, steps


def test_a_name_of_a_list_and_of_a_tensor():
    """A list that grows changes no tensor in place."""
    for c in (Tensor([0.0, 1.0]), Tensor([-5.0, 9.0])):
        got, wanted = script(means_that_move)(X, c), means_that_move(X, c)
        assert got[0].numpy().tobytes() == wanted[0].numpy().tobytes() and got[1].item() == wanted[1]


REFUSED = {
    pythons_numbers: "Python's or NumPy's random numbers", numpys_numbers: "Python's or NumPy's random numbers",
    which_of_a_branch: "whether two tensors are one is asked", which_of_a_loop: "whether two tensors are one is asked",
    which_of_a_list: "whether two tensors are one is asked", elements_of_a_comprehension: "a tensor decides which elements a comprehension has",
    a_key: "is the key of a dict", a_list_times_a_number: "a list and a number that a branch or a loop has set",
    a_text_that_is_compared: "a text with the value of a tensor is known when the program runs",
    a_text_that_is_returned: "a text with the value of a tensor is known when the program runs",
}  # fmt: skip


@each("f, words", REFUSED.items())
def test_what_only_a_run_knows(f, words):
    with pytest.raises(ScriptError, match=words):
        script(f)(X)


def annotated(x: Tensor, n: int = 3) -> Tensor:
    y: Tensor = x
    k: int
    for k in range(n):
        y: Tensor = y + k if y.sum() > 0 else y - k
    return y


def kinds_of_numbers(x):
    n, a = -7, 0.5
    if x.sum() > 0:
        n, a = 9, 2.5
    y = x * 2 if isinstance(n, int) and type(a) is float and not isinstance(a, (int, str)) else x
    return y, divmod(n, 4), divmod(20, n), n ** 2, 2.0 ** n, a ** n, a % 0.3, n == "a", n != [1]


def found_in(x):
    n = 1
    for v in x:
        if v > 0:
            n += 1
    y = x * 2 if n in (3, 5) else x
    return y - 1 if n not in [1, 2] and 3 in [n, 7] else y


def plain(made):
    return [v.numpy().tolist() if isinstance(v, Tensor) else plain(v) if isinstance(v, tuple) else v for v in made]


@each("f", (annotated, kinds_of_numbers, found_in))
def test_numbers_and_annotations_are_those_of_plain_python(f):
    for x in (X, -X, X * 0):
        got, wanted = (m if isinstance(m, tuple) else (m,) for m in (script(f)(x), f(x)))
        assert plain(got) == plain(wanted)


def divided(x, by):
    n = 2
    if x.sum() > 0:
        n = 0
    return 1 / n if by == "/" else 7 // n if by == "//" else 7 % n if by == "%" else (n - 1.5) ** -0.5 if by == "**" else (n * 0.5) ** -1.0


@each("by", ("/", "//", "%", "0**"))
def test_a_number_divided_by_zero_is_an_error_as_in_python(by):
    s = script(divided)
    assert s(-X, by).item() == divided(-X, by)
    with pytest.raises(ZeroDivisionError) as wanted:
        divided(X, by)
    powers = "0.0 cannot be raised to a negative power"  # Python 3.14 has other words for it
    with pytest.raises(ZeroDivisionError, match=powers if by == "0**" else re.escape(str(wanted.value))):
        s(X, by)


def test_powers_that_are_no_floats():
    with pytest.raises(ValueError, match="a negative number is raised to a fraction, which gives a complex number"):
        script(divided)(X, "**")
    big = script(power)
    assert big(-X).item() == power(-X)
    with pytest.raises(OverflowError, match="Numerical result out of range"):
        big(X)


def power(x):
    n = 2.0
    if x.sum() > 0:
        n = 5000.0
    return 10.0**n


class Coded(Exception):
    def __init__(self, code):
        self.code = code
        super().__init__(f"code {code:d}")


def raises_coded(x):
    for i, v in enumerate(x):
        if v > 1.5:
            raise Coded(i)
    return x


def test_errors_whose_class_computes_its_text():
    for f in (script(raises_coded), trace(lambda x: script(raises_coded)(x))):
        with pytest.raises(Coded) as e:
            f(X)
        assert str(e.value) == "code 2" and e.value.code == 2
        assert f(-X).numpy().tobytes() == (-X).numpy().tobytes()
