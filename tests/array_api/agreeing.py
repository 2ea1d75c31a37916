"""Calls of the array API's functions by `array_api_strict` (NumPy behind the standard's own checks) and by Tengen, compared: the dtype, the
shape and every value, or that both refuse.
"""

import warnings

import numpy as np

REAL = ("float32", "float64")
SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
DTYPES = ("bool", *SIGNED, *UNSIGNED, *REAL, *COMPLEX)
REFUSALS = (TypeError, ValueError, IndexError, OverflowError, AttributeError, NotImplementedError)


def values(name):
    """The numbers at which functions of a dtype are likely to differ."""
    if name == "bool":
        return np.array([False, True])
    if name in REAL:
        d = np.dtype(name).type
        f = np.finfo(name)
        some = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, -7.0, 0.25, 10.0, np.inf, -np.inf, np.nan]
        return np.array([*some, f.tiny, -f.tiny, f.smallest_subnormal, f.max, -f.max, d(1) + f.eps, d(1) - f.epsneg], name)
    if name in COMPLEX:  # tests/ops/test_complex.py has infinities and NaNs
        some = [0.0, 1.0, -1.0, 0.5, -2.5, 3.0]
        return np.array([complex(x, y) for x in some for y in some], name)
    i = np.iinfo(name)
    return np.array([0, 1, 2, 3, 7, 100, i.max, i.max - 1, i.min, *([-1, -2, -3, -100] if i.min < 0 else [])], name)


def sample(name, shape, seed=0):
    """Small numbers of a dtype, with ties."""
    rng = np.random.default_rng([seed, *shape, *name.encode()])
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in COMPLEX:
        return (rng.integers(-9, 10, shape) / 4 + 1j * rng.integers(-9, 10, shape) / 2).astype(name)
    if name in REAL:
        return (rng.integers(-12, 13, shape) / 4).astype(name)
    return rng.integers(-5 if name in SIGNED else 0, 9, shape).astype(name)


def outcome(call, *args, **kwargs):
    """(result, None), or (None, the error) where the call refuses its arguments."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call(*args, **kwargs), None
        except REFUSALS as e:
            return None, e


def flat(result):
    """Arrays and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in flat(part)]
    return [result]


def difference(got, want, ulps=0, scale=None):
    """How a Tensor differs from an array of array_api_strict, in words; None where it does not.

    ulps: so many units in the last place of the value, or of `scale` where that is given and larger, may be between.
    """
    if not hasattr(want, "shape"):
        return None if got == want and type(got) is type(want) else f"{got!r}, not {want!r}"
    name = str(want.dtype).rpartition(".")[2]
    if got.dtype.name != name:
        return f"dtype {got.dtype}, not {name}"
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {got.shape}, not {want.shape}"
    a, b = got.numpy(), np.asarray(want._array)
    same = (a == b) | (a != a) & (b != b)
    if name in REAL:
        same &= (np.signbit(a) == np.signbit(b)) | (a != a)
    if name in COMPLEX:  # what is infinite or NaN in one part is open in the other
        same |= ~np.isfinite(a) & ~np.isfinite(b)
    if ulps and name in REAL + COMPLEX:
        with np.errstate(all="ignore"):
            unit = np.spacing(np.maximum(np.abs(b), scale or 0).astype(b.real.dtype))
            near = np.abs(a.astype(complex) - b.astype(complex)) <= ulps * unit
        same = same | near & ((a != 0) | (b != 0))
    if np.all(same):
        return None
    at = tuple(np.argwhere(~same)[0])
    return f"{a[at]!r} at {at}, not {b[at]!r}"
