"""Programs that people write for a compiler of Python: their bits are those of plain Python, in a script and in its file."""

import math

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, script
from tengen.base.errors import IndexOutOfRange, ScriptError, ShapeError, TraceError

RNG = np.random.default_rng(3)
X, ROWS = (Tensor(RNG.standard_normal(s).astype("float32")) for s in ((4,), (5, 3)))


def numbers_of_tensors(x):
    n, s = x.abs().max().item(), int(x.argmax().item())
    if n > 0.5 and s >= 0:
        x = x * n + s
    while n > 0.1:
        n = n / 2
        x = x + n
    return x, n, s, (x > 0).all().item()


def any_and_all(rows):
    sums = [r.sum() for r in rows]
    if any(s > 1 for s in sums) and not all(s > 1 for s in sums):
        rows = rows * 2
    return rows * (1 + any([])), all(sums), any(s > 2 for s in sums)


def an_element_by_a_tensor(x, i):
    tensors, known = [x, x * 2, x * 3], (10, 20, 30)
    return tensors[i] + known[i], tensors[-i] * 0.5, tensors[i - 1][1:]


def sieve(limit):
    count, last = 0, 0
    for n in range(2, limit):
        is_prime = True
        d = 2
        while d * d <= n:
            if n % d == 0:
                is_prime = False
                break
            d += 1
        if is_prime:
            count += 1
            last = n
    return count, last


def best_pair(rows):
    best, at = F.zeros(()), (0, 0)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if i != j and (a * b).sum() > best:
                best, at = (a * b).sum(), (i, j)
    return best, at


def layers_with_two_states(rows):
    layers = [(rows[0], rows[1]), (rows[2], rows[3])]
    for x in rows:
        new = []
        for h, c in layers:
            x = F.tanh(h + x)
            new.append((x, c * 0.5 + x))
        layers = new
    return layers


def layers_that_a_tensor_replaces(rows):
    layers = [rows[0], rows[1]]
    for r in rows:
        if r.sum() > 0:
            new = []
            for h in layers:
                new.append(h + r)
            layers = new
        layers[0] = layers[0] * 0.5
    return layers


def queues_in_a_dict(rows):
    state = {"last": [rows[0], rows[1]], "kept": [[rows[2]], [rows[3]]]}
    last = state["last"]
    for r in rows:
        state["last"].pop(0)
        state["last"].append(r * 2)
        if r.sum() > 0:
            state["kept"][0].append(r)
            state["kept"][0].pop(0)
    return state["last"], state["kept"], last


def lists_in_a_list(rows):
    found = []
    for r in rows:
        row = []
        for v in r:
            row.append(v * 2)
        found.append(row)
    return found[1][2], F.stack(found[0])


def returns_from_two_loops(rows):
    """The numbers that it returns differ: where the loops are left, and behind them."""
    for i in range(5):
        r = rows[i]
        if r.sum() > 2:
            return r, i
        for v in r:
            if v < -1:
                return r * 0 + v, -i
    return rows[0], 99


PROGRAMS = {
    numbers_of_tensors: [(X,), (X * 0.01,)], any_and_all: [(ROWS,), (ROWS * 0,), (ROWS.abs() + 1,)],
    an_element_by_a_tensor: [(X, Tensor(1)), (X, Tensor(2)), (X, Tensor(-2))], sieve: [(Tensor(50),), (Tensor(3),)],
    best_pair: [(ROWS,), (-ROWS * 3,)], layers_with_two_states: [(ROWS,)], layers_that_a_tensor_replaces: [(ROWS,), (-ROWS,)],
    queues_in_a_dict: [(ROWS,), (-ROWS,)], lists_in_a_list: [(ROWS,)],
    returns_from_two_loops: [(ROWS,), (-ROWS,), (ROWS.abs(),), (ROWS * 0,)],
}  # fmt: skip


def leaves(x):
    """Bytes of tensors and numbers, nested in any way: a script returns numbers as tensors."""
    if isinstance(x, (tuple, list)):
        return [v for y in x for v in leaves(y)]
    if isinstance(x, Tensor) and x.ndim:
        return [(str(x.dtype), x.shape, x.numpy().tobytes())]
    return [x.item() if isinstance(x, Tensor) else x]


@but(every=2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_bits_of_plain_python(program, tmp_path):
    s = script(program)
    for args in PROGRAMS[program]:
        assert leaves(s(*args)) == leaves(program(*args))
    assert len(s.stats()) == 1
    s.dump(tmp_path / "s.tgn")
    model = load_graph(tmp_path / "s.tgn")
    for args in PROGRAMS[program]:
        assert leaves(model(*args)) == leaves(program(*args))


class Running(M.Module):
    def __init__(self):
        super().__init__()
        self.total, self.steps = M.Buffer(F.zeros(4)) if hasattr(M, "Buffer") else F.zeros(4), 0

    def forward(self, x):
        if x.sum() > 0:
            self.total += x
        else:
            self.total -= x * 2
        for v in x:
            self.total *= v
        return self.total * 2


class Counting(Running):
    def forward(self, x):
        if x.sum() > 0:
            self.steps += 1
        return x


def test_an_attribute_that_is_changed_in_place_where_a_tensor_decides():
    plain, scripted = Running(), Running()
    s = script(scripted)
    for x in (X, -X, X * 3):
        assert s(x).numpy().tobytes() == plain(x).numpy().tobytes()
        assert scripted.total.numpy().tobytes() == plain.total.numpy().tobytes()
    with pytest.raises(ScriptError, match="a Counting is changed where a condition is a tensor"):  # a number cannot change in place
        script(Counting())(X)


def asks_for_a_value(x):
    if x.sum() > 0:
        x = x + math.exp(x[0])
    return x


def another_type(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    return y


def fills(x):
    found = []
    while x.sum() < 10:
        x = x + 1
        found.append(x)
    return found


def does_not_fit(x):
    for _ in range(2):
        y = x + F.ones(3)
    return y


def of_several_types(x, i):
    return [x, x.sum()][i]


def grows_in_a_dict(x):
    found = {"rows": []}
    for v in x:
        found["rows"].append(v)
        found["rows"][0] = v
    return found


def has_two_names_later(x):
    layers = new = [x]
    for v in x:
        new = []
        for h in layers:
            new.append(h + v)
        layers = new
    new[0] = x * 2
    return layers


ERRORS = {
    asks_for_a_value: (TraceError, "asked for in a script.* help: conditions, int", "math.exp(x[0])"),
    another_type: (ScriptError, "`y` is a tensor .* and None", "if x.sum() > 0:"),
    fills: (ScriptError, "`found` grows in a loop whose number of iterations", "while x.sum() < 10:"),
    does_not_fit: (ShapeError, "extents 4 and 3", "x + F.ones(3)"),
    grows_in_a_dict: (ScriptError, r"`found` is a dict .* help: .* a list that grows is a variable, or", "for v in x:"),
    has_two_names_later: (ScriptError, "`layers` and `new` are one list, which is changed in place", "for v in x:"),
    of_several_types: (ScriptError, "which element of a list is read, which has f32.4., f32..", "[x, x.sum()][i]"),
}  # fmt: skip


@pytest.mark.parametrize("program", ERRORS, ids=lambda p: p.__name__)
def test_errors_show_the_line_and_a_caret(program):
    error, words, at = ERRORS[program]
    args = (X, Tensor(1)) if program is of_several_types else (X,)
    with pytest.raises(error, match=words) as e:
        script(program)(*args)
    line, caret = str(e.value).splitlines()[-2:]
    assert line[caret.index("^") :].startswith(at), str(e.value)
    assert f"{__file__}:" in str(e.value)


def test_an_index_beyond_a_list_is_found_by_the_run():
    with pytest.raises(IndexOutOfRange):
        script(an_element_by_a_tensor)(X, Tensor(3))
