"""Exact arithmetic for the interpreter, on NumPy arrays: fma, casts, shifts and divisions that round once or not at all.

In and out: arrays (or NumPy scalars) of one dtype each, broadcast against one another. NumPy itself has no fma, does not define
casts of large floats, shifts by the width, or division by zero; all are defined here, as `lang.py` says.
"""

from __future__ import annotations

import numpy as np

from tengen.base.dtype import DType, bfloat16, bool_, float64
from tengen.base.errors import VerifyError


def _odd(s: np.ndarray, rest: np.ndarray, bits: type) -> np.ndarray:
    """`s + rest` rounded to odd, where `s` is that sum rounded to nearest and `rest` has the sign of what was lost.
    A value rounded to odd may be rounded again to fewer bits without error."""
    even = (s.view(bits) & bits(1)) == 0
    fix = np.isfinite(s) & (rest != 0) & even
    return np.where(fix, np.nextafter(s, np.where(rest > 0, s.dtype.type(np.inf), s.dtype.type(-np.inf))), s)


def _two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a, b):
    def halves(x):
        t = x * 134217729.0
        high = t - (t - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def fma32(a, b, c):
    """a * b + c of float32, rounded once. The product is exact in float64. The sum is rounded twice, which differs only where the
    first rounding gives a number half way between two float32: there, and among the small ones, it is rounded to odd first."""
    p = np.multiply(a, b, dtype=np.float64)
    s = p + c
    half_way = (s.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    small = np.abs(s) < 2.0**-125
    if not np.count_nonzero(half_way) and not (np.count_nonzero(small) and np.count_nonzero(small & (s != 0))):
        return s.astype(np.float32)
    s, rest = _two_sum(p, np.asarray(c, np.float64))
    return _odd(np.asarray(s), np.asarray(rest), np.int64).astype(np.float32)


def _flushed(x, like=None):
    """x, or a zero of x's sign where it (or `like`) is smaller than any normal float32."""
    return np.where(np.abs(x if like is None else like) < 2.0**-126, np.copysign(np.float32(0), x), x).astype(np.float32)


def _fma_flushed(a, b, c):
    """a * b + c of float32 (a, b with 8 significant bits), rounded once; zero where it would be small with any exponent."""
    s, rest = _two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    exact = _odd(np.asarray(s), np.asarray(rest), np.int64)
    scaled = np.where(np.abs(exact) < 1, exact * 2.0**64, 1.0).astype(np.float32)  # the exponent is not at its end here
    return _flushed(exact.astype(np.float32), scaled.astype(np.float64) * 2.0**-64)


def dot2(total, a, b):
    """See `dots.dot2`."""
    total, a, b = (np.asarray(x) for x in np.broadcast_arrays(total, a, b))
    high, sixteen = np.uint32(0xFFFF0000), np.uint32(16)
    halves = ((a << sixteen, b << sixteen), (a & high, b & high))
    first, second = ([_flushed(x.astype(np.uint32).view(np.float32)) for x in xs] for xs in halves)
    return _fma_flushed(*first, _fma_flushed(*second, _flushed(total)))


def dot2i(total, a, b):
    """See `dots.dot2i`."""
    halves = lambda x: [(np.asarray(x, np.uint32) >> np.uint32(s)).astype(np.uint16).view(np.int16).astype(np.int64) for s in (0, 16)]
    (a0, a1), (b0, b1) = halves(a), halves(b)
    return (np.asarray(total, np.int64) + a0 * b0 + a1 * b1).astype(np.int32)


def dot4(total, a, b, signed: bool = True, least: int = -128):
    """See `dots.dot4i`; `dots.dot4u`, where the first operand is not `signed`; and `dots.dot4n`, where the second is `least` at least."""
    parts = lambda x, d: np.ascontiguousarray(x, "<u4")[..., None].view(d).astype(np.int64)
    products = parts(a, np.int8 if signed else np.uint8) * np.maximum(parts(b, np.int8), least)
    return (np.asarray(total, np.int64) + products.sum(-1)).astype(np.int32)


def dot4s(total, a, b):
    """See `dots.dot4s`."""
    parts = lambda x, d: np.ascontiguousarray(x, "<u4")[..., None].view(d).astype(np.int64)
    products = parts(a, np.uint8) * parts(b, np.int8)
    pairs = np.clip(products.reshape(*products.shape[:-1], 2, 2).sum(-1), -(1 << 15), (1 << 15) - 1)
    return (np.asarray(total, np.int64) + pairs.sum(-1)).astype(np.int32)


def swizzle(x, index):
    """See `lang.swizzle`."""
    x, index = np.broadcast_arrays(x, index)
    return np.where(index < 128, np.take_along_axis(x, index.astype(np.int64) % x.shape[-1], -1), np.uint8(0))


def quad4(total, a, b, signed: bool):
    """See `dots.quad4i` and, where the first operand is not `signed`, `dots.quad4u`: `dot4` of both halves of each row and column."""
    quads = lambda x: np.reshape(x, (*np.shape(x)[:-1], -1, 2, 2))
    a, b, sums = quads(a)[..., :, None, :], quads(b)[..., None, :, :], quads(total)
    for half in (0, 1):
        sums = dot4(sums, *np.broadcast_arrays(a[..., half], b[..., half]), signed=signed)
    return sums.reshape(*sums.shape[:-3], -1)


def dot2h(total, a, b):
    """See `dots.dot2h`."""
    bytes_ = lambda x, d: np.ascontiguousarray(x, "<u4")[..., None].view(d).astype(np.int64)
    products = (bytes_(a, np.uint8) & 0x7F) * bytes_(b, np.int8)
    halves = np.ascontiguousarray(total, "<u4")[..., None].view(np.int16) + products.reshape(*products.shape[:-1], 2, 2).sum(-1)
    return halves.astype(np.int16).view("<u4")[..., 0]


def fma64(a, b, c):
    """a * b + c of float64, rounded once: error-free transformations (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", 2008) where no part can over- or underflow, else fractions."""
    a, b, c = np.broadcast_arrays(a, b, c)
    p = a * b
    uh, ul = _two_product(a, b)
    th, tl = _two_sum(c, ul)
    vh, vl = _two_sum(uh, th)
    z, rest = _two_sum(tl, vl)
    r = vh + _odd(np.asarray(z), np.asarray(rest), np.int64)
    trivial = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b) | np.isnan(c)
    r = np.where(trivial, p + c, r)
    size = lambda x: (np.abs(x) > 1e-270) & (np.abs(x) < 1e270)
    easy = trivial | (size(a) & size(b) & size(p) & (size(c) | (c == 0)))
    if easy.all():
        return r
    r = np.array(r)
    for i in np.argwhere(~easy):
        j = tuple(i)
        r[j] = _fma_exact(float(a[j]), float(b[j]), float(c[j]))
    return r


def _fma_exact(a: float, b: float, c: float) -> float:
    from fractions import Fraction  # slow to load, and seldom needed

    if c in (np.inf, -np.inf):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return exact.numerator / exact.denominator  # rounds once, to nearest even
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float64 or an integer, rounded once."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        far = np.abs(x.astype(np.float64)) >= 2.0**53  # fold the low bits into one that float64 keeps
        low = x.dtype.type(0x7FF)
        x = np.where(far, (x & ~low) | (((x & low) != 0).astype(x.dtype) << x.dtype.type(11)), x)
    x = x.astype(np.float64)
    y = x.astype(np.float32)
    return _odd(y, np.where(np.isfinite(y), x - y, 0.0), np.int32).astype(bfloat16.numpy)


def convert(x, src: DType, dst: DType):
    """The value in another dtype, as `lang.cast` says."""
    x = np.asarray(x)
    if dst is bool_:
        return x != 0
    if src.is_float and dst.is_int:
        low = -(2 ** (dst.bits - 1)) if dst.kind == "i" else 0
        high, to = low + 2**dst.bits - 1, dst.numpy.type
        wide = x.astype(np.float64)
        inside = (wide > low) & (wide < float(high + 1) if dst.bits == 64 else wide < high)
        r = np.where(inside, wide, 0.0).astype(to)
        return np.where(inside, r, np.where(np.isnan(wide), to(0), np.where(wide > 0, to(high), to(low))))
    if dst is bfloat16 and (src is float64 or src.is_int):
        return _to_bfloat16(x)
    if src.is_float and src.bits == 16:
        x = x.astype(np.float32)
    return x.astype(dst.numpy)


def shift_left(a, b):
    """a << b; 0 when b is negative, or the width and more."""
    ok = (b >= 0) & (b < a.dtype.itemsize * 8)
    return np.where(ok, a << np.where(ok, b, b.dtype.type(0)), a.dtype.type(0))


def shift_right(a, b):
    """a >> b; 0, or the sign of a signed a, when b is negative, or the width and more."""
    ok = (b >= 0) & (b < a.dtype.itemsize * 8)
    past = a >> a.dtype.type(a.dtype.itemsize * 8 - 1) if a.dtype.kind == "i" else a.dtype.type(0)
    return np.where(ok, a >> np.where(ok, b, b.dtype.type(0)), past)


def floor_division(a, b, remainder: bool):
    """The quotient rounded down, or the remainder with the divisor's sign; 0 by zero; the least number by -1 wraps."""
    one, zero = a.dtype.type(1), a.dtype.type(0)
    minus = b < 0 if a.dtype.kind == "u" else b == -1
    safe = np.where((b == 0) | minus, one, b)
    r = np.where(minus, zero if remainder else zero - a, a % safe if remainder else a // safe)
    return np.where(b == 0, zero, r)


def index_division(a, b, remainder: bool):
    """The same by divisors above 0. Errors: VerifyError for others."""
    if (b <= 0).any():
        raise VerifyError(f"quo and rem take divisors > 0, got {a} and {b}; help: floordiv and floormod")
    return a % b if remainder else a // b
