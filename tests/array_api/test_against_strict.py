"""Every function of the array API standard, compared with `array_api_strict`: results, dtypes, shapes, and what is refused.

Each call is made for one dtype here, another one each time; `python tests/array_api/test_against_strict.py` makes all of them.
"""

import inspect
import itertools
import sys

import numpy as np
import pytest
from agreeing import COMPLEX, DTYPES, REAL, REFUSALS, difference, flat, outcome, sample, values
from calls import CALLS, FFT, LINALG, ONCE
from exhaustive import but

import tengen.array_api as xp
from tengen.arrays.elementwise import BINARY, UNARY

strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed (pip install array-api-strict)")
strict.set_array_api_strict_flags(api_version="2024.12")
ROUNDED = {  # functions whose values may differ by some units in the last place; all others are equal
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "hypot",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "pow",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "mean",
    "prod",
    "std",
    "sum",
    "var",
    "matmul",
    "tensordot",
    "vecdot",
    "linspace",
    "cumulative_sum",
    "cumulative_prod",
}
OF_COMPLEX = {"abs", "divide", "multiply", "reciprocal", "sign", "sqrt", "square"}  # rounded more than once of complex numbers
# exp(y log x) has |y log x| times the roundings of y log x, in NumPy as here: each is off by up to 16 units for the numbers of `values`
COMPLEX_UNITS = {"pow": 32}
# what the standard leaves open, and the two answer differently
OPEN = {("pow", "float32", 0.5): "pow(-0.0, 0.5) is 0.0 in C99, and sqrt(-0.0) in NumPy", ("pow", "float64", 0.5): "the same"}


def compared(name, call, *arrays, ulps=None):
    """What differs between the call's outcome for Tengen and for array_api_strict, or None."""
    both = []
    for ns in (xp, strict):
        args = [ns.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]
        both.append(outcome(call, ns, *args))
    (got, refused), (want, wants_refusal) = both
    if "would lose the imaginary parts" in str(refused):
        return None  # NumPy casts complex numbers to real ones with a warning
    if (refused is None) != (wants_refusal is None):
        return f"Tengen {refused or 'takes it'!r}, array_api_strict {wants_refusal or 'takes it'!r}"
    if refused is not None:
        return None
    got, want = flat(got), flat(want)
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    some, scale = (4, None) if name in UNARY or name in BINARY else (8, 1.0)
    rounded = ROUNDED
    if any(str(a.dtype) in COMPLEX for a in arrays):
        rounded, some = ROUNDED | OF_COMPLEX, COMPLEX_UNITS.get(name, some)
    found = (difference(a, b, ulps or (some if name in rounded else 0), scale) for a, b in zip(got, want))
    return next(filter(None, found), None)


def elementwise_calls(name, every=False):
    """(what is said of the call, the call, arrays): for one operand all dtypes; for two each dtype with itself, with one other, and with
    Python's numbers."""
    if name in UNARY:
        return [(d, lambda ns, x: getattr(ns, name)(x), (values(d),)) for d in DTYPES]
    turn = sorted(BINARY).index(name)
    small = name in ("bitwise_left_shift", "bitwise_right_shift")
    made = []
    for i, d in enumerate(DTYPES):
        others = DTYPES if every else {d, DTYPES[(3 * i + turn) % len(DTYPES)]}
        for e in others:
            # shifts by too much and negative powers of integers are not defined
            few = e not in ("bool", *REAL, *COMPLEX) and (small or name == "pow")
            y = np.abs(sample(e, (5,))) % 4 if few else values(e)
            made.append(((d, e), lambda ns, x, y: getattr(ns, name)(x, y), (values(d)[:, None], y)))
        numbers = (True, 2, 0.5, -1, 1000)
        for v in numbers if every else (numbers[(i + turn) % len(numbers)],):
            if small and v in (-1, 1000):
                continue
            made.append(((d, v), lambda ns, x, v=v: getattr(ns, name)(x, v), (values(d),)))
            if not small:
                made.append(((v, d), lambda ns, x, v=v: getattr(ns, name)(v, x), (values(d),)))
    return made


@but(every=3)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise(name):
    for said, call, arrays in elementwise_calls(name):
        if (name, *said) not in OPEN:
            found = compared(name, call, *arrays)
            assert found is None, f"{name} of {said}: {found}"


def made_of(call, d):
    return lambda ns: call(ns, lambda dtype, shape: ns.asarray(sample(dtype, shape)), d)


@but(every=3)
@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    turn = list(CALLS).index(name)
    for i, call in enumerate(CALLS[name]):
        d = DTYPES[(i + turn) % len(DTYPES)]
        found = compared(name, made_of(call, d))
        assert found is None, f"{name}, call {i}, of {d}: {found}"


@but(every=3)
@pytest.mark.parametrize("name", FFT)
def test_fft(name):
    for call in FFT[name]:
        for d in (*REAL, *COMPLEX, "int32"):
            found = compared("matmul", made_of(call, d))  # as much may be rounded
            assert found is None, f"{name} of {d}: {found}"
    assert {*FFT} == {*dir(xp.fft)}


@but(every=3)
@pytest.mark.parametrize("name", LINALG)
def test_linalg(name):
    for i, call in enumerate(LINALG[name]):
        for d in REAL if name == "matrix_rank" else (*REAL, "int32"):  # of integers it is not defined
            found = compared("linalg", made_of(call, d), ulps=400)
            assert found is None, f"{name}, call {i}, of {d}: {found}"
    assert {*LINALG} == {*dir(xp.linalg)}


@pytest.mark.parametrize("name", ONCE)
def test_functions_without_arrays(name):
    for i, call in enumerate(ONCE[name]):
        found = compared(name, call)
        assert found is None, f"{name}, call {i}: {found}"


def test_promotion():
    """The standard's tables, from array_api_strict's: which dtypes promote, to what, which casts there are, and what a dtype is."""
    for a in DTYPES:
        for b in DTYPES:
            for f in ("result_type", "can_cast", "isdtype"):
                got, want = (
                    outcome(lambda ns, f=f, a=a, b=b: getattr(ns, f)(getattr(ns, a), getattr(ns, b)), ns) for ns in (xp, strict)
                )
                assert (got[1] is None) == (want[1] is None), (f, a, b)
                assert str(got[0]) == str(want[0]).rpartition(".")[2], (f, a, b)
        for number in (True, 1, 2.0):
            got, want = (
                outcome(lambda ns, a=a, number=number: ns.result_type(getattr(ns, a), number), ns) for ns in (xp, strict)
            )
            assert (got[1] is None) == (want[1] is None) and str(got[0]) == str(want[0]).rpartition(".")[2], (a, number)
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
            for k in (kind, (kind, xp.int8), ("bool", kind)):
                theirs = tuple(strict.int8 if v is xp.int8 else v for v in k) if isinstance(k, tuple) else k
                assert xp.isdtype(getattr(xp, a), k) == strict.isdtype(getattr(strict, a), theirs), (a, k)
    assert all(isinstance(outcome(xp.isdtype, xp.int8, k)[1], REFUSALS) for k in ("integer", ((xp.int8,),), 3))


def arguments_lacked(ours, theirs):
    """Parameters of a function of array_api_strict that ours does not take at the same place, or by the same name."""
    ours, theirs = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
    for place, (p, mine) in enumerate(itertools.zip_longest(theirs.values(), list(ours.values())[: len(theirs)])):
        by_name = ours.get(p.name)
        if p.kind is p.KEYWORD_ONLY:
            fits = by_name and by_name.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        else:
            by_place = mine and mine.kind is not p.KEYWORD_ONLY
            fits = by_place and (p.kind is not p.POSITIONAL_OR_KEYWORD or (mine.name, mine.kind) == (p.name, p.kind))
        if not fits or p.default is not p.empty and by_name and by_name.default is p.empty:
            yield f"{p} at {place}"


@pytest.mark.parametrize("space, names", [(None, {*UNARY, *BINARY, *CALLS, *ONCE}), ("linalg", LINALG), ("fft", FFT)])
def test_arguments(space, names):
    """What the standard lets a caller give by place, by name, or not at all, can be given so."""
    ours, theirs = (getattr(ns, space) if space else ns for ns in (xp, strict))
    lacked = {n: [*arguments_lacked(getattr(ours, n), f)] for n in names if inspect.isfunction(f := getattr(theirs, n, None))}
    assert len(lacked) > 10 and not any(lacked.values()), {n: v for n, v in lacked.items() if v}


def test_every_function_is_called():
    """What array_api_strict has of 2024.12, the namespace has and these tests call."""
    later = {"broadcast_shapes", "isin"}  # of 2025.12
    own = {
        "ArrayAPIStrictFlags",
        "Device",
        "ModuleType",
        "get_array_api_strict_flags",
        "reset_array_api_strict_flags",
        "set_array_api_strict_flags",
    }
    theirs = {n for n in dir(strict) if not n.startswith("_")} - later - own
    assert theirs <= {*dir(xp)}
    called = {
        *UNARY,
        *BINARY,
        *CALLS,
        *ONCE,
        "result_type",
        "can_cast",
        "isdtype",
        "nan",
        "e",
        "inf",
        "pi",
        "newaxis",
        "conj",
        "real",
        "imag",
    }
    assert theirs <= called | {*DTYPES}


def main() -> int:
    """All calls for all dtypes: prints what differs and how many calls there were."""
    count, found = 0, []
    for name in (*UNARY, *BINARY):
        for said, call, arrays in elementwise_calls(name, every=True):
            count += 1
            if (d := compared(name, call, *arrays)) and (name, *said) not in OPEN:
                found.append((name, said, d))
    for name, calls in CALLS.items():
        for i, call in enumerate(calls):
            for d in DTYPES:
                count += 1
                if m := compared(name, made_of(call, d)):
                    found.append((name, i, d, m))
    print(*found, f"{count} calls, {len(found)} differ", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
