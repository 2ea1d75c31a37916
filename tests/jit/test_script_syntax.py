"""Smaller pieces of Python's syntax in scripts (`:=`, `match`, `else` of loops, `del`, iterators, texts): plain Python's bits, or an error."""

# ruff: noqa: UP031, UP032  (texts are made in all ways)

import functools
import inspect
from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest
from each import each
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, load_graph, script
from tengen.base.errors import ScriptError
from tengen.tensor.structure import flatten

A = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
X, Y = Tensor(A), Tensor(np.abs(A) + 1)


def told(x):
    """What a result is, as bytes; numbers of a program are tensors."""
    if isinstance(x, (tuple, list)):
        return [told(v) for v in x]
    if isinstance(x, dict):
        return {k: told(v) for k, v in x.items()}
    a = x.numpy() if isinstance(x, Tensor) else np.asarray(x)
    return a.dtype.name, a.shape, a.tobytes()


def tensors_of(x):
    found = []
    flatten(x, found)
    return found


def is_plain(f, folder=None):
    """Whether a script gives the bits of plain Python for several tensors, and from a file those of the last one."""
    s = script(f, dynamic_axes=None)
    for x, y in ((X, Y), (-X, Y), (Y, X), (X[:2], Y[:2])):
        made = s(x, y)
        assert told(made) == told(f(x, y)), f"{told(made)} is not {told(f(x, y))}"
    if folder is not None:
        s.dump(folder / "f.tgn")
        out = load_graph(folder / "f.tgn")(x, y)
        assert told(tensors_of(out)) == told(tensors_of(made))


PLAIN = []


def plain(f):
    PLAIN.append(f)
    return f


# ---- := --------------------------------------------------------------------------------------------------------------


@plain
def named_in_conditions(x, y):
    n = 0
    if (s := x.sum()) > 0 and n == 0:
        n = 1
    elif (s := s + 1) > 0:
        n = 2
    while (s := s / 2) > 0.1 or n < 3:
        n += 1
        if n > 30:
            continue
        s = s * 0.9
    return s, n


@plain
def named_where_it_may_not_be_reached(x, y):
    b = s = t = y.sum()
    if x.sum() > 0 and (s := x.max()) < 100 or (t := x.min()) > 0:
        s = s * 2
    chained = 0 < (a := s + 1) < (b := a * 2) < 50
    return s, t, a, b, chained, (u if (u := x.sum()) > 0 else -u)


@plain
def named_in_the_order_of_python(x, y):
    a = 1
    numbers = [a + (a := 5) + a, f"{(k := 3)}{k:>4}" == "3   3", {(p := 7): p, "z": (p := 8), p: 1}[8]]
    rows = []
    for r in x:
        rows.append(q := r * 2)
    assert (rows_ := len(rows)) > 0
    z = (c := x + 1) * c[(i := 1) : i + 1] + max(2, (d := 3))
    return z, numbers, rows_, q, d, functools.reduce(lambda v, w: v * 2 + w, rows)


# ---- else of a loop --------------------------------------------------------------------------------------------------


@plain
def else_of_loops(x, y):
    t = 0
    for r in x:
        for q in y:
            if (r * q).sum() > 5:
                break
        else:
            t += 1
            continue
        t += 10
        if t > 15:
            break
    else:
        t += 1000
    return t


@plain
def else_of_known_loops_and_of_while(x, y):
    for i in range(3):
        if i == 1:
            break
    else:
        x = x * 100
    for _ in range(2):
        y = y + 1
    else:
        y = y * 2
    n = 0
    while x.abs().sum() > 1:
        x, n = x / 2, n + 1
        if n == 3:
            break
    else:
        n = n + 100
    return x, y, n, i


@plain
def a_flag_that_break_sets(x, y):
    found, i = False, 0
    for i in range(int(y.max() * 4)):
        if i * i > 10:
            found = True
            break
    return found, i


# ---- match -----------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    kind: str
    at: object


@plain
def matches(x, y):
    t = 0.0
    for kind in ("a", "b", ("mul", 2, 3), {"k": 3, "x": x}, Point("p", y), x, None, 7, [1, 2]):
        match kind:
            case "a" | "c":
                t = t + 1
            case "b" as what:
                if x.sum() > 0:
                    t = t * 2
            case ("mul", *rest):
                t = t + sum(rest) * x.max()
            case {"k": int(k), **others} if k > 2:
                t = t + others["x"].min() * k
            case Point(kind="p", at=at):
                t = t + at.sum()
            case Tensor():
                for r in kind:
                    t = t + r.sum()
            case None:
                continue
            case 7 if t is None:
                return x
        t = t + 0.5
    return t, what == "b", k


# ---- del, and lists that grow in dicts -------------------------------------------------------------------------------


@plain
def deleted(x, y):
    d, xs = {"a": x, "b": y, "n": 0}, [x, y, x + y, x]
    del d["a"], xs[0], xs[-1:]
    for r in x:
        z = r * 2
        d["b"] = d["b"] + z
        d["n"] += 1
        del z
    if x.sum() > 0:
        del xs[0]
        xs.append(x)
    w = x
    del w
    return d, xs


@plain
def lists_in_dicts_grow(x, y):
    out, first = {"h": [], "deep": {"s": [y[0].sum()]}, "n": [[], []]}, []
    shared = {"rows": first}
    for r in x:
        for q in y:
            out["n"][1].append(r * q)
        out["h"].append(r)
        out["deep"]["s"].append(r.sum())
        shared["rows"].append(r + 1)
    out["h"].append(y[0])
    return F.stack(out["h"]), F.stack(out["deep"]["s"]), first, len(out["n"][1]), out["h"][-1]


@plain
def lists_in_other_dicts_and_of_known_loops(x, y):
    out, none = defaultdict(list), {}
    for r in [x, y]:
        out["h"].append(r)
    for r in []:
        none["missing"].append(r)
    return out["h"], len(none)


@plain
def two_names_of_a_list_that_both_grow(x, y):
    a = b = []
    for r in x:
        a.append(r)
        b.append(r * 2)
    return a, b


# ---- iterators -------------------------------------------------------------------------------------------------------


def absolute(r):
    if r.sum() > 0:
        return r
    return -r


@plain
def iterators(x, y):
    t = 0.0
    for a, b in zip(map(absolute, x), map(lambda p, q: p * q, x, y), strict=True):
        t = t + (a * b).sum()
    for i, (a, *rest) in enumerate(zip(x, y, x), start=2):
        t = t + (a * rest[0] * rest[1]).sum() * i
    for a in map(absolute, x.split(2)):
        t = t + a.sum()
    return t


@plain
def comprehensions_over_tensors(x, y):
    pairs = list(zip(x, y))
    total = sum((a * b).sum() for i, a in enumerate(x) for j, b in enumerate(y) if i != j)
    it = iter(zip(x, y))
    first, second = next(it), next(it)
    return pairs[1], total, dict(enumerate(x)), tuple(reversed(x)), [[a * b for b in (1, 2)] for a in reversed(x)], first, second


@plain
def functions_of_python(x, y):
    rows = [r for r in x]
    best = max(rows, key=lambda r: r.sum())
    least = min(map(absolute, rows), key=lambda r: r[0])
    known = sorted([3, 1, 2], reverse=True), sorted("bca", key=ord) == ["a", "b", "c"], max([], default=4), min(3, 2, 5)
    return best, least, known, list(filter(None, [0, 1])), functools.reduce(lambda a, b: a if a.sum() > b.sum() else b, rows)


@but(every=2)
@pytest.mark.parametrize("f", PLAIN, ids=[f.__name__ for f in PLAIN])
def test_the_bits_of_plain_python(f, tmp_path):
    is_plain(f, tmp_path)


def open_length(x, y):
    out, t = {"h": [], "s": []}, 0.0
    for a, b in zip(map(lambda r: r * 2, x), y, strict=True):
        out["h"].append(a * b)
        out["s"].append(a.sum())
    for i, r in enumerate(reversed(x)):
        if r.sum() > 5:
            break
        t = t * 2 + r.sum() * i
    else:
        t = t * 100
    return F.stack(out["h"]), F.concat(out["h"]), F.stack(out["s"]) / len(out["s"]), t, len(x) * y


def test_open_lengths_are_one_program():
    s = script(open_length)
    for n in (5, 4, 3):
        assert told(s(X[:n], Y[:n])) == told(open_length(X[:n], Y[:n]))
    assert len(s.stats()) == 2


# ---- texts -----------------------------------------------------------------------------------------------------------


def prints(x, y):
    s = x.sum()
    print("{:.2f} {n!r:>40}|{{}}".format(s, n=x.max()), "%s and %08.3f%%" % (s, x.max()), "%d" % 3, sep="|")
    print([s, (1, s)], {"k": s}, repr(s), str([s]), f"{[s]}", format(s, ".1f"), ", ".join(["a", str(s), f"{s:.1f}"]))
    for r in x:
        print("row {}".format(r.sum().item()), 7 % 4)
    return x


def test_texts_have_values_however_they_are_made(capsys):
    s = script(prints)
    for x in (X, X + 1, Y):
        prints(x, x)
        wanted = capsys.readouterr().out
        s(x, x)
        assert capsys.readouterr().out == wanted
    assert "traced" not in wanted


def test_texts_in_errors(tmp_path):
    def f(x):
        if x.sum() > 0:
            raise ValueError("{:.2f} of %s".format(x.max()), [x.min()])
        return x

    s = script(f)
    s(-Y)
    with pytest.raises(ValueError) as plain_error:
        f(Y)
    with pytest.raises(ValueError) as e:
        s(Y)
    assert str(e.value.args) == str(plain_error.value.args)
    s.dump(tmp_path / "f.tgn")
    with pytest.raises(ValueError, match=r"\{:.2f\} of %s"):
        load_graph(tmp_path / "f.tgn")(Y)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def filled_in_a_helper(x):
    def fill(to, some):
        for r in some:
            to["h"].append(r)

    out = {"h": [x[0]]}
    same = out["h"]
    fill(out, x)
    fill(out, x * 2)
    return out, same


def test_an_argument_is_filled_in_place():
    assert told(script(filled_in_a_helper)(X)) == told(filled_in_a_helper(X))


@each("value", [np.nan, np.inf, -np.inf, 3e38, 2.0**63, -(2.0**63) * 1.5])
def test_int_of_what_is_no_int(value):
    def f(x):
        return int(x)

    s = script(f)
    assert s(Tensor(-2.75)).item() == -2
    x = Tensor(np.float32(value))
    with pytest.raises((ValueError, OverflowError)) as e:
        s(x)
    if not np.isfinite(value):
        with pytest.raises(type(e.value)) as plain_error:
            f(x)
        assert str(plain_error.value) in str(e.value)


# ---- what is refused -------------------------------------------------------------------------------------------------


def again(x):
    pairs, t = zip(x, x), 0.0
    for a, b in pairs:
        t = t + (a * b).sum()
    for a, _ in pairs:  # nothing is left
        t = t + a.sum()
    return t


def iterator_from_outside(x):
    rows, t = enumerate(x), 0.0
    for r in x:
        for _, a in rows:
            t = t + (a * r).sum()
    return t


def zip_of_other_lengths(x):
    t = 0.0
    for a, b in zip(x, x[:2], strict=True):
        t = t + (a * b).sum()
    return t


def read_by_another_name(x):
    rows = [x[0]]
    other = {"rows": (rows,)}
    for r in x:
        rows.append(r + other["rows"][0][-1])
    return rows


def read_by_a_closure(x):
    rows = []

    def count():
        return len(rows)

    for r in x:
        rows.append(r + count())
    return rows


def read_by_a_partial_default(x):
    rows = []

    def count(some=rows):
        return len(some)

    found = functools.partial(count)
    for r in x:
        rows.append(r + found())
    return rows


ROWS: list = []


def length_of_the_global():
    return len(ROWS)


def read_by_a_global(x):
    ROWS.clear()
    rows = ROWS
    for r in x:
        rows.append(r + length_of_the_global())
    return rows


def default_that_is_changed(x):
    def add(v, seen=[]):  # noqa: B006  # what is tested
        seen.append(v)
        return len(seen)

    t = 0.0
    for r in x:
        t = t + r.sum() * add(r)
    return t


def changed_in_a_deque(x):
    out = {"h": deque()}
    for r in x:
        out["h"].append(r)
    return x


def pattern_and_tensor(x):
    match x.sum():
        case 0:
            return x
    return x * 2


def pattern_and_number(x):
    n = 0
    for _ in x:
        n += 1
    match (n, x):
        case (int(), y):
            return y
    return x * 2


def pattern_and_bool(x):
    flag = False
    for r in x:
        if r.sum() > 3:
            flag = True
    match flag:
        case True:
            return x
    return x * 2


OUT: dict = {"rows": []}


def element_of_a_global(x):
    for r in x:
        OUT["rows"].append(r)
    return x


def guard_of_a_tensor(x):
    match "a":
        case "a" if x.sum() > 0:
            return x
    return x * 2


def filtered_by_tensors(x):
    return list(filter(lambda r: r.sum() > 0, x))


def sorted_by_tensors(x):
    return sorted(x, key=lambda r: r.sum())


def range_of_floats(x):
    t = 0
    for i in range(x.max()):
        t += i
    return t


def list_in_a_dict_that_is_read(x):
    out = {"h": []}
    for r in x:
        out["h"].append(r * len(out["h"]))
    return out


REFUSED = [
    (again, ScriptError, r"an iterator over tensors \(zip, enumerate, reversed, map\) is gone over again; help: make it where"),
    (iterator_from_outside, ScriptError, "is gone over in a branch or a loop over tensors, and was made outside of it"),
    (zip_of_other_lengths, ValueError, r"zip\(\) argument 2 is shorter than argument 1"),
    (read_by_another_name, ScriptError, "`rows` grows in a loop that also uses `other`, through which it can be read"),
    (read_by_a_closure, ScriptError, "`rows` grows in a loop that also uses `count`"),
    (read_by_a_partial_default, ScriptError, "`rows` grows in a loop that also uses `found`"),
    (read_by_a_global, ScriptError, "`rows` grows in a loop that also uses `length_of_the_global`"),
    (default_that_is_changed, ScriptError, r"`add` \(list\) is changed where a condition is a tensor"),
    (changed_in_a_deque, ScriptError, "a deque in a dict is changed"),
    (pattern_and_tensor, ScriptError, "a pattern of match is compared with a tensor.* help: if, elif and else"),
    (pattern_and_number, ScriptError, "match looks at a number that a branch or a loop has set"),
    (pattern_and_bool, ScriptError, "match looks at a bool that a tensor decides"),
    (element_of_a_global, ScriptError, "a list that is no local variable is changed"),
    (guard_of_a_tensor, ScriptError, "a tensor decides whether a case of match is taken; help: an `if` inside of the case"),
    (filtered_by_tensors, ScriptError, r"a tensor decides which elements a comprehension has, or filter\(\) gives"),
    (sorted_by_tensors, ScriptError, r"sorted\(\) by tensors.*; help: F.sort, F.argsort or F.topk"),
    (range_of_floats, TypeError, r"range\(\) takes ints, got f32\[\]; help: int\(x\)"),
    (list_in_a_dict_that_is_read, ScriptError, r"`out` is a dict of 1 .*\(line \d+\).* or an element with a constant key, of which"),
]  # fmt: skip


@each("f, error, words", REFUSED, ids=lambda v: getattr(v, "__name__", v))
def test_refused_when_it_is_recorded(f, error, words):
    with pytest.raises(error, match=words) as e:
        script(f)(Y)
    if error is ScriptError:
        first, line, caret = str(e.value).splitlines()
        lines, start = inspect.getsourcelines(f)
        assert first.startswith(f"{__file__}:") and line.strip() == lines[int(first.split(":")[1]) - start].strip(), str(e.value)
        assert caret.strip() == "^" and line[len(caret) - 1] != " "
