"""Numbers that a branch or a loop has set: dtypes beside tensors, bools in arithmetic, and ints beyond 64 bits."""

import numpy as np
import pytest

from tengen import Tensor, script
from tengen.base.errors import ScriptError

X = Tensor(np.array([[3, -1], [2, 5]], "int32"))


def counted(x):
    n = 1
    for row in x:
        if row.sum() > 0:
            n = n + 1
    return n


def beside_tensors(x):
    n = counted(x)
    a, few, many = x[0], n == 3, n > 1
    weak = [a * (n & 1), a + (n << 2), a + ~n, a | n, a * round(n * 0.75), a + (few + many), many + few + a, (few + many) * a]
    asked = [bool(a[0] > 0) + bool(x[1, 0] > 0), (not a[0] > 0) + 1]
    bools = [few + many, few * 2.5, -few, few / 2, sum([few, few, many]), +few, many - few]
    kinds = [isinstance(few, bool), isinstance(not a[0] > 0, int), type(many) is bool, isinstance(a[0] > 0, Tensor), isinstance(n, bool)]
    return (*weak, *asked, *bools, *kinds, few & many, n ^ 3, n >> 1, 1 << n, round(n), round(n, 2), round(n * 0.5), [5, 6, 7][few + many])


def test_numbers_keep_pythons_dtypes_and_values():
    for x in (X, -X, X.astype("int8")):
        for got, wanted in zip(script(beside_tensors)(x), beside_tensors(x), strict=True):
            got = got if isinstance(got, Tensor) else Tensor(got)  # what is known
            assert got.tolist() == (wanted.tolist() if isinstance(wanted, Tensor) else wanted)
            assert not isinstance(wanted, Tensor) or got.dtype is wanted.dtype
            assert isinstance(wanted, Tensor) or type(got.item()) is type(wanted)


def grown(x, by):
    n = 2**61
    if x.sum() > 0:
        n = n + 1
    if by == "add":
        return n + (n - 1) + (n - 1) + n - 2  # 2**63 - 1 where n is 2**61
    if by == "mul":
        return (n - 1) * 4
    if by == "sub":
        return -n - n - n - n + 2
    if by == "shift":
        return (n - 2**61) << 63
    if by == "pow":
        return (n - 2**61 + 2) ** 40
    return abs(-(2**63 - 1) - (n - 2**61))


def test_an_int_beyond_64_bits_is_an_error_at_its_line():
    s = script(grown)
    for by in ("add", "mul", "sub", "shift", "pow", "abs"):
        for x in (-X, X):
            wanted = grown(x, by)
            if -(2**63) <= wanted < 2**63:
                assert s(x, by).item() == wanted, by
                continue
            with pytest.raises(OverflowError, match=r"an int beyond 64 bits; help: a float \[at .*test_script_numbers.py:\d+"):
                s(x, by)
    assert -(2**63) <= grown(-X, "add") < 2**63 <= grown(X, "add")  # the checks are exact


def shifted(x, n):
    k = 1
    if x.sum() > 0:
        k = k - 2
    return n << k


def test_what_python_refuses_of_numbers():
    assert script(shifted)(-X, 3).item() == 6
    with pytest.raises(ValueError, match="negative shift count"):
        script(shifted)(X, 3)
    with pytest.raises(ScriptError, match="an int beyond 64 bits beside a number"):
        script(too_large)(X)
    with pytest.raises(ScriptError, match="to decimal digits of a number that the program has"):
        script(to_digits)(X)


def too_large(x):
    return counted(x) + 2**70


def to_digits(x):
    return round(counted(x) / 7, 2)
