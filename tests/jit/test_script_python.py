"""Python that a script calls: `print`, functions with `jit.ignore`, errors with values. The script is one program all the same."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen.functional as F
from tengen import Tensor, jit, script, trace
from tengen.autodiff import GradManager, grad, vmap
from tengen.base.errors import DTypeError, GradientError, ShapeError, TraceError, TraceWarning, VerifyError, VmapError
from tengen.deploy.loader import derived_types, load_graph
from tengen.ir.types import TensorType

X = Tensor(np.arange(6, dtype="float32").reshape(3, 2))
SEEN: list = []


@jit.ignore
def note(x):
    SEEN.append(x.tolist())
    return x * 2


@jit.ignore
def said(x, at: int = 0) -> None:
    SEEN.append((x.tolist() if isinstance(x, Tensor) else x, at))


@jit.ignore
def half(x) -> float:
    return x.item() / 2


def one_program(s):
    """Whether a script is a single program, with no part that runs op by op."""
    made = s.stats()
    return len(made) == 1 and made.programs == 1 if hasattr(made, "programs") else [r.programs for r in made] == [1]


# ---- print -----------------------------------------------------------------------------------------------------------


def prints(x, limit=3):
    print("begin", x.sum(), [x[0], {"k": x[1]}], sep=" | ")
    total, n = 0.0, 0
    for i, r in enumerate(x):
        if r.sum() > limit:
            print(f"row {i}: {r.sum():.2f}" + "!", end=";")
            n += 1
        total = total + r.sum()
    while total > 4:
        total = total / 2
        print(f"{total!r:>30} {n} {x.shape[0]:03d}")
    print(str(total))
    return total


def test_print_prints_in_every_run_what_plain_python_does(capsys):
    s = script(prints, dynamic_axes=None)
    for x in (X, X + 1, X * 0, -X):
        wanted = prints(x).numpy().tobytes()
        plain = capsys.readouterr().out
        assert s(x).numpy().tobytes() == wanted
        assert capsys.readouterr().out == plain and plain.startswith("begin | ")
    assert one_program(s)


def test_print_with_open_extents_inside_of_a_trace(capsys):
    s = script(prints)
    t = trace(lambda x: s(x) + 1)
    for rows in (2, 3, 4, 5):
        x = Tensor(np.ones((rows, 2), "float32"))
        prints(x)
        plain = capsys.readouterr().out
        s(x)
        assert capsys.readouterr().out == plain
        t(x)
        assert capsys.readouterr().out == plain


def test_a_loop_that_is_differentiated_prints_once_for_each_iteration():
    @script
    def f(x):
        def loss(v):
            total = v.sum() * 0
            for r in v:
                said(r.sum())
                total = total + (r * r).sum()
            return total

        return grad(loss)(x)

    SEEN.clear()
    assert f(X).numpy().tobytes() == (X * 2).numpy().tobytes()
    assert [x for x, _ in SEEN] == [1.0, 5.0, 9.0]


# ---- ignore ----------------------------------------------------------------------------------------------------------


def notes(x):
    total = 0.0
    for r in x:
        total = total + note(r.sum())
    return total


def test_what_an_ignored_function_returns_is_known_after_the_first_call():
    SEEN.clear()
    s, wanted = script(notes), notes(X)
    for _ in range(3):
        assert s(X).numpy().tobytes() == wanted.numpy().tobytes()
    assert len(SEEN) == 12 and SEEN[:3] == SEEN[3:6] == SEEN[6:9] == SEEN[9:]
    assert one_program(s)


def test_annotated_results_are_known_at_once():
    @script
    def f(x):
        total = 0.0
        for i, r in enumerate(x):
            said(r.sum(), at=i)
            total = total + half(r.sum()) + 1
        said("end", at=7)
        return total

    SEEN.clear()
    assert f(X).item() == 0.5 + 2.5 + 4.5 + 3
    assert SEEN == [(1.0, 0), (5.0, 1), (9.0, 2), ("end", 7)] and one_program(f)


def test_python_inside_may_compute_and_raise():
    inner = trace(lambda v: F.softmax(v @ v.T))
    results = []

    @jit.ignore
    def compute(x) -> None:
        results.append(inner(x).numpy().tobytes())
        if len(results) > 1:
            raise ZeroDivisionError(f"at {len(results)}")

    @script
    def f(x):
        total = x.sum()
        for _ in x:
            compute(x)
        while total > -1:  # without an end, but for the error
            total = total * 1
        return total

    with pytest.raises(ZeroDivisionError, match="at 2"):
        f(X)
    assert len(results) == 2 and results[0] == inner(X).numpy().tobytes()  # what came behind was left out


@pytest.mark.parametrize("returns", [True, False])
def test_a_run_that_raises_leaves_states_as_they_were(returns):
    fails = []

    def maybe(x) -> float:
        if fails:
            raise RuntimeError("no")
        return 2.0

    def nothing(x) -> None:
        maybe(x)

    call, state, other = jit.ignore(maybe if returns else nothing), Tensor([1.0, 2.0]), Tensor(np.zeros(5, "float32"))

    @script
    def f(x):
        other[1:3] = other[1:3] + 1
        s = call(x)
        state[:] = state + (x if s is None else x * s)
        return state.sum()

    x = Tensor([1.0, 3.0])
    f(x)
    f(x)
    before = state.tolist(), other.tolist()
    fails.append(1)
    for _ in range(2):  # as a first call finds the program, and directly
        with pytest.raises(RuntimeError, match="no"):
            f(x)
        assert (state.tolist(), other.tolist()) == before
    fails.clear()
    f(x)
    assert other.tolist() == [0.0, 3.0, 3.0, 0.0, 0.0]


class Bad(Exception):
    def __init__(self, text, row):
        super().__init__(text)
        self.row = row


def raises(x):
    for r in x:
        if r.sum() > 5:
            y = r * 2
            raise Bad(f"row {y[0]:.1f}", r)
    return x


def test_errors_of_the_users_own_classes_have_their_values(tmp_path):
    s = script(raises)
    assert s(X * 0).shape == (3, 2)
    for call in (s, trace(lambda x: s(x))):
        with pytest.raises(Bad) as e:
            call(X)
        assert str(e.value) == "row 8.0" and e.value.row.tolist() == [4.0, 5.0]
    s.dump(tmp_path / "f.tgn")
    with pytest.raises(RuntimeError, match=r"row y\[0\]"):
        load_graph(tmp_path / "f.tgn")(X)


# ---- what cannot be ----------------------------------------------------------------------------------------------------


def test_other_results_than_in_the_call_before():
    given = []

    @jit.ignore
    def odd(x):
        given.append(x)
        return x if len(given) < 3 else x.astype("int32") if len(given) == 3 else x.reshape(2, 3) if len(given) == 4 else (x, x)

    s = script(lambda_of(odd))
    s(X)
    s(X)
    with pytest.raises(DTypeError, match=r"odd\(\).* returned i32\[3,2\], and f32\[3,2\] is said"):
        s(X)
    with pytest.raises(ShapeError, match=r"returned f32\[2,3\], and f32\[3,2\] is said"):
        s(X)
    with pytest.raises(TraceError, match="returned another structure"):
        s(X)


def lambda_of(f):
    def call(x):
        return f(x) + 1

    return call


def test_files_vmap_constants_and_gradients_are_refused(tmp_path):
    s = script(prints)
    s(X)
    with pytest.raises(TraceError, match=r"print\(\) calls Python, and a graph or a file holds no Python"):
        s.dump(tmp_path / "f.tgn")
    with pytest.raises(TraceError, match="holds no Python"):
        trace(lambda x: s(x)).trace(X).dump(tmp_path / "f.tgn")
    with pytest.raises(TraceError, match="capture_as_const=True"):
        script(prints, capture_as_const=True)(X)
    notes(X)  # what `note` returns is known
    with pytest.raises(GradientError, match=r"note\(\), a function with jit.ignore"):
        script(gradient_of_notes)(X)
    with pytest.raises(VmapError, match="Python is called inside of vmap"):
        script(lambda_of(vmap(lambda r: said_of(r))))(X)


def of_rows(x):
    total = x.sum()
    for r in x:
        total = total + note(r.sum())
    return total


def test_a_file_that_calls_python_is_refused():
    number = TensorType((), "int64")
    for name, types, attrs in (
        ("host_call", [number, number], {"likes": (), "name": "print"}),
        ("page_out", [TensorType((3,), "float32")], {"store": -1, "order": (0,)}),
    ):
        with pytest.raises(VerifyError, match=f"the op '{name}' does not stand in files"):
            derived_types(name, types, attrs)


def gradient_of_notes(x):
    return grad(of_rows)(x)


@script
def said_of(r):
    said(r)
    return r


def test_a_gradient_outside_runs_op_by_op():
    x = Tensor(X.numpy())
    notes(X)  # what `note` returns is known
    SEEN.clear()
    s = script(notes)
    with GradManager().attach([x]) as gm, pytest.warns(TraceWarning, match="notes runs op by op: it calls Python"):
        gm.backward(s(x))
    assert x.grad.tolist() == [[2.0, 2.0]] * 3 and len(SEEN) == 3


@exhaustive
def test_another_process_finds_the_program_and_calls_its_own_function(tmp_path):
    code = """
        import sys, tengen
        from tengen import Tensor, jit, script
        @jit.ignore
        def a(x) -> None: print("a", x.item())
        @jit.ignore
        def b(x) -> None: print("b", x.item())
        if sys.argv[1] == "other":
            a, b = b, a
        @script
        def f(x):
            a(x)
            b(x + 1)
            return x
        f(Tensor(1.0))
        """
    file = tmp_path / "f.py"
    file.write_text(textwrap.dedent(code))
    env = os.environ | {"TENGEN_CACHE_DIR": str(tmp_path / "cache")}
    os.mkdir(tmp_path / "cache", 0o700)
    outs = [
        subprocess.run([sys.executable, str(file), how], env=env, capture_output=True, text=True, check=True).stdout
        for how in ("one", "one", "other")
    ]
    assert outs == ["a 1.0\nb 2.0\n"] * 2 + ["b 1.0\na 2.0\n"]


def halved_or_refused(x):
    if x.sum() > 100:
        raise ValueError("too large")
    y = x
    for i in range(3):
        if y[0] > 1:
            y = y / 2
        elif i == 2:
            return y - 1
    return y


def test_ifs_inside_of_vmap():
    wanted = F.stack([halved_or_refused(x) for x in X])
    for run in (script(of_all_rows), vmap(script(halved_or_refused)), trace(vmap(script(halved_or_refused)))):
        assert run(X).numpy().tobytes() == wanted.numpy().tobytes()
        with pytest.raises(ValueError, match="too large"):
            run(X * 100)


def of_all_rows(x):
    return vmap(halved_or_refused)(x)


@pytest.mark.parametrize("rows", [False, True])
def test_errors_in_a_function_that_asks_for_values(rows):
    run, x = (vmap(script(halved_or_refused)), X) if rows else (script(halved_or_refused), X[0] * 0 + 1)

    @trace
    def asks(x):
        x.sum().item()
        return run(x)

    for _ in range(3):
        asks(x / 100)
        with pytest.raises(ValueError, match="too large"):
            asks(x * 100)
