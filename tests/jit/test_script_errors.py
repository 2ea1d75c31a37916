"""What `script` refuses, checks in the program, and calls of Python."""

import importlib.util
import re
import sys
import traceback

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, jit, load_graph, script, trace
from tengen.base.errors import DTypeError, ScriptError, ShapeError

A = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
UP, DOWN = Tensor(np.abs(A)), Tensor(-np.abs(A))


# ---- outside of the subset -------------------------------------------------------------------------------------------

REFUSED = {
    "try:\n        x = x + 1\n    except ValueError:\n        pass": "try is not a part of script; help: a condition before",
    "global q": "global is not a part of script; help: a local variable",
    "yield x": "yield is not",
    "class Q:\n        pass": "a class is not",
    "y = [(z := r) for r in x]": ":= in a comprehension or a lambda is not a part of script; help: a loop, or a function with def",
    "x += (x := x * 2)": ":= is not a part of script here; help: an assignment on a line of its own",
    "assert x.sum() > 0, (y := 3)": ":= is not a part of script here",
    "with a as b, (y := b):\n        pass": ":= is not a part of script here",
    "match 3:\n        case 3 if (y := x) is None:\n            pass": ":= is not a part of script here",
    "def g(v=(y := 3)):\n        pass": ":= is not a part of script here",
    "async def g():\n        pass": "an async function is not",
    "if x.sum() > 0:\n        raise": "raise without an error is not",
}


def function_of(tmp_path, body, name="f"):
    path = tmp_path / "users.py"
    path.write_text(f"def {name}(x):\n    {body}\n    return x\n")
    spec = importlib.util.spec_from_file_location("users", path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    return path, getattr(module, name)


@pytest.mark.parametrize("body", REFUSED)
def test_refused_when_it_is_compiled(tmp_path, body):
    path, f = function_of(tmp_path, body)
    with pytest.raises(ScriptError, match=REFUSED[body].replace("(", r"\(")) as e:
        script(f)
    first, line, caret = str(e.value).splitlines()
    number = int(first.removeprefix(f"{path}:").split(":")[0])
    assert line.strip() == path.read_text().splitlines()[number - 1].strip()
    assert caret.strip() == "^" and line[len(caret) - 1] != " "  # the caret points at something


def test_refused_when_it_is_recorded(tmp_path):
    for body, words in (("y = eval('x')", r"eval\(\) is not a part of script"), ("locals()", r"locals\(\) is not")):
        _, f = function_of(tmp_path, body)
        with pytest.raises(ScriptError, match=words):
            script(f)(UP)


def test_what_has_no_source():
    scope = {}
    exec("def f(x): return x", scope)
    with pytest.raises(ScriptError, match="the source of f is not there"):
        script(scope["f"])
    with pytest.raises(ScriptError, match="no function with a `def`"):
        script(lambda x: x)
    for odd in (3, int):
        with pytest.raises(TypeError, match=r"script\(\) takes a function, a method or a module"):
            script(odd)


# ---- types that do not agree -----------------------------------------------------------------------------------------


def shapes_of_branches(x):
    if x.sum() > 0:
        y = x
    else:
        y = x[0]
    return y


def dtypes_of_results(x):
    if x.sum() > 0:
        return x
    return x.astype("float64")


def falls_off_the_end(x):
    if x.sum() > 0:
        return x


def set_in_one_branch(x):
    if x.sum() > 0:
        y = x
    return y


def list_of_several_lengths(x):
    rows = []
    for r in x:
        if r.sum() > 0:
            rows.append(r)
    return rows


def state_grows(x):
    s = x[:1]
    for _ in x:
        s = F.concat([s, s])
    return s


def state_grows_in_while(x):
    s = x[:1]
    while s.sum() < 100:
        s = F.concat([s, s])
    return s


def state_grows_in_a_loop_of_a_loop(x):
    total = None
    for r in x:
        s = x[:1]
        while s.sum() < 100:
            s = F.concat([s, s + r])
        total = s.sum()
    return total


def list_grows_in_while(x):
    rows = []
    while x.sum() > 1:
        x = x / 2
        rows.append(x)
    return rows


def not_set_without_iterations(x):
    while x.sum() > 1:
        x, y = x / 2, x
    return y


def several_elements(x):
    return x if x > 0 else -x


class Holder:
    value = None


HOLDER, ROWS = Holder(), []


def attribute_in_a_branch(x):
    if x.sum() > 0:
        HOLDER.value = x
    return x


def global_list_in_a_loop(x):
    for r in x:
        ROWS.append(r)
    return x


def names_of_one_tensor(x):
    total, best = x[0].sum(), x[0].sum()
    for r in x:
        total += r.sum()
        if total > best:
            best = total  # the next total += ... changes best, too
    return best


def another_name_behind_the_branch(x):
    y = z = x * 1
    if x.sum() > 0:
        y = y * 2
    y += 1  # changes z, too, if the branch was not taken
    return z


def another_name_behind_the_loop(x):
    y = z = x[0] * 1
    for r in x:
        y = y + r
    y += 1
    return z + y


def endless_recursion(x):
    if x.sum() > 1:
        return endless_recursion(x / 2)
    return x


def changes_what_it_goes_over(x):
    y, total = x + 0, 0.0
    for row, again in zip(x + 0, reversed(y)):
        y -= row
        total = total + again.sum()
    return total


def changes_and_sets_what_it_goes_over(x):
    y, total = x + 0, 0.0
    for row in y:
        y[1] = total
        total = total + row.sum()
        y = y * 2
    return total


def another_name_by_an_expression(x):
    y = x * 2
    z = x if x.sum() < 0 else y if x.sum() > 0 else x * 3
    y += 1
    return z


DISAGREE = [
    (another_name_by_an_expression, ScriptError, "is changed in place that may be both `[yz]` and `[yz]`"),
    (changes_what_it_goes_over, ScriptError, "the loop changes a tensor in place that it goes over; help: go over a copy, `x . 0`"),
    (changes_and_sets_what_it_goes_over, ScriptError, "the loop changes a tensor in place that it goes over"),
    (shapes_of_branches, ShapeError, r"`y` is a tensor f32\[5,3\] where .* true \(line 2\) and a tensor f32\[3\] where .* false \(line 4\)"),
    (dtypes_of_results, DTypeError, r"what is returned is a tensor f32\[5,3\] .* and a tensor f64\[5,3\]"),
    (falls_off_the_end, ScriptError, "what is returned is a tensor .* and None where it is false"),
    (set_in_one_branch, ScriptError, "`y` is a tensor .* and not set where it is false; help: .* set it before the `if`"),
    (list_of_several_lengths, ScriptError, r"`rows` is a list of 1 where the condition is true \(line 4\) and a list of 0"),
    (state_grows, ShapeError, r"`s` is a tensor f32\[1,3\] before an iteration of the loop and a tensor f32\[2,3\] behind it \(line 3\)"),
    (state_grows_in_while, ShapeError, r"`s` is a tensor f32\[1,3\] before an iteration .* a tensor f32\[2,3\] behind it \(line 3\)"),
    (state_grows_in_a_loop_of_a_loop, ShapeError, r"`s` is a tensor f32\[1,3\] before .* a tensor f32\[2,3\] behind it \(line 5\)"),
    (list_grows_in_while, ScriptError, r"`rows` grows in a loop whose number of iterations is known only when the program runs"),
    (not_set_without_iterations, ScriptError, r"`y` has no value if the loop does not run \(line 2\); help: set it before the loop"),
    (several_elements, ShapeError, r"the condition is b1\[5,3\]; help: one bool"),
    (attribute_in_a_branch, ScriptError, "a Holder is changed where a condition is a tensor"),
    (global_list_in_a_loop, ScriptError, "a list that is no local variable is changed"),
    (names_of_one_tensor, ScriptError, "is changed in place that may be both `best` and `total`"),
    (another_name_behind_the_branch, ScriptError, "is changed in place that may be both `[yz]` and `[yz]`"),
    (another_name_behind_the_loop, ScriptError, "is changed in place that may be both `[yz]` and `[yz]`"),
    (endless_recursion, ScriptError, r"test_script_errors.py:\d+: endless_recursion calls itself without end while it is recorded(.*\n)+ *\^$"),
]  # fmt: skip


@pytest.mark.parametrize("f, error, words", DISAGREE, ids=[f.__name__ for f, _, _ in DISAGREE])
def test_types_that_do_not_agree(f, error, words):
    first = f.__code__.co_firstlineno
    with pytest.raises(error) as e:
        script(f)(UP)
    text = str(e.value)
    for n in range(9, 0, -1):
        text = text.replace(f"(line {first + n})", f"(line {n})")
    assert re.search(words, text), text
    assert __file__ in text or error is ScriptError
    assert HOLDER.value is None and ROWS == []


# ---- errors of the program -------------------------------------------------------------------------------------------


class Mine(ValueError):
    pass


def fails(v):
    if v.sum() < 0:
        raise Mine("negative")
    return v


def asserts(x):
    assert x.sum() > 0, f"the sum {x.sum()} of {x.shape} is bad"
    return x * 2


def raises_in_a_helper(x):
    return fails(x) + 1


def raises_in_loops(x):
    for r in x:
        assert r.sum() < 100, "big row"
        for i in range(3):
            if r[i] < 0:
                raise KeyError(f"row {r}")
    return x


def does_not_converge(x):
    n = 0
    while True:
        x, n = x * 0.5, n + 1
        if n > 40:
            raise RuntimeError("does not converge")
        if x.sum() > 0:
            return x


def does_not_converge_inside(x):
    total = 0.0
    for _ in range(2):
        while x.max() < 1:
            x = x * 0.5
            if x.min() > -1e-20:
                raise OverflowError("too small")
        total = total + x.sum()
    return total


@script
def always_fails(x):
    raise ValueError("from inside")


def raises_in_a_script_that_it_calls(x):
    if x.sum() < 0:
        always_fails(x)
    return x


FAIL = [
    (raises_in_a_script_that_it_calls, ValueError, "from inside"),
    (asserts, AssertionError, r"the sum x.sum\(\) of \(5, 3\) is bad"), (raises_in_a_helper, ValueError, "negative"),
    (raises_in_loops, KeyError, "row r"), (does_not_converge, RuntimeError, "does not converge"),
    (does_not_converge_inside, OverflowError, "too small"),
]  # fmt: skip


@pytest.mark.parametrize("f, error, words", FAIL, ids=[f.__name__ for f, _, _ in FAIL])
def test_errors_that_depend_on_tensors(f, error, words, tmp_path):
    s, good = script(f), UP + 1
    assert s(good).numpy().tobytes() == f(good).numpy().tobytes()
    with pytest.raises(error) as plain:
        f(DOWN)
    s.dump(tmp_path / "f.tgn")
    with pytest.raises(error, match=words):
        load_graph(tmp_path / "f.tgn")(DOWN)
    values = type(plain.value) is Mine or "Tensor(" in str(plain.value)  # then the program raises the error itself
    for call in (s, trace(lambda x: s(x))):
        with pytest.raises(error, match=None if values else words) as e:
            call(DOWN)
        assert not values or type(e.value) is type(plain.value) and plain.value.args[0].startswith(e.value.args[0])
    assert s(good).numpy().tobytes() == f(good).numpy().tobytes()  # an error harms no later call


def known_error(x, wrong=True):
    if wrong:
        raise KeyError("known")
    return x


def test_errors_that_are_known_are_raised_at_once():
    with pytest.raises(KeyError, match="known") as e:
        script(known_error)(UP)
    assert traceback.extract_tb(e.value.__traceback__)[-1].lineno == known_error.__code__.co_firstlineno + 2
    assert script(known_error)(UP, wrong=False).shape == (5, 3)


def wrong_shapes(x):
    for r in x:
        y = r @ F.ones((7, 2))
    return y


def test_tracebacks_show_the_users_lines():
    with pytest.raises(ShapeError) as e:
        script(wrong_shapes)(UP)
    frames = [f for f in traceback.extract_tb(e.value.__traceback__) if f.filename == __file__ and f.name == "wrong_shapes"]
    first = wrong_shapes.__code__.co_firstlineno
    assert [f.lineno - first for f in frames] == [1, 2]  # the loop, and the line in it
    assert frames[1].line == "y = r @ F.ones((7, 2))"


@jit.unused
def report(x):
    return x


def reports(x):
    if x.sum() < 0:
        return report(x)
    return x


def test_unused_functions():
    s = script(reports)
    assert s(UP) is not None and report(3) == 3
    with pytest.raises(NotImplementedError, match="report has jit.unused, and a script has called it"):
        s(DOWN)


def far_off(x):
    total = x.sum()
    if total > 100:
        raise ValueError(f"a sum of {total.item():.1f} in {x.shape}")
    return x * 2


def test_a_text_with_a_value_in_a_script_that_a_trace_calls():
    s = script(far_off)
    for run in (far_off, s, trace(lambda x: s(x)), script(calls_far_off)):
        assert run(Tensor([1.0])).item() == 2.0
        with pytest.raises(ValueError, match=r"a sum of 200\.0 in \(1,\)"):
            run(Tensor([200.0]))


def calls_far_off(x):
    return far_off(x)
