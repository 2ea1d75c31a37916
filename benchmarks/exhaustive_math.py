"""Checks math functions on float32 inputs, all 2^32 of them or every n-th, in machine code from the project's own generator.

    python benchmarks/exhaustive_math.py                       every function, every 61st input
    python benchmarks/exhaustive_math.py --stride 1 exp log    exp and log on all 2^32 inputs

The reference is float64 (NumPy's, and SciPy's erf and erfc), itself within a few units of float64: so an error is known to
about 2^-26 of a float32 ULP, which certifies a bound such as 2 ULP but does not decide correct rounding near a tie.
Zeros, infinities and NaNs must agree, and the signs of zeros. Prints the largest error and where, and the speed on one thread.
"""

from __future__ import annotations

import argparse
import ctypes
import time

import numpy as np

from tengen.base.dtype import float32
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.lang import call
from tengen.loops.math import FUNCTIONS
from tengen.runtime.compile import compile_object, load_object

BLOCK = 1 << 20


def _scipy(name: str):
    import scipy.special

    return getattr(scipy.special, name)


REFERENCES = {
    # fmt: off
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": lambda x: _scipy("erf")(x), "erfc": lambda x: _scipy("erfc")(x), "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "softplus": lambda x: np.logaddexp(0, x),
    "normal_cdf": lambda x: _scipy("ndtr")(x),
    "lgamma": lambda x: _scipy("gammaln")(x), "digamma": lambda x: _scipy("digamma")(x),
    # fmt: on
}


class Compiled:
    """A unary function as machine code: `f(x, out)` on flat arrays."""

    def __init__(self, name: str, dt=float32):
        k = Builder("f")
        x, y, n = k.input("x", dt), k.output("y", dt), k.int("n")
        for i, count in k.vector_loop(0, n):
            k.store(y, i, call(name, k.load(x, i, lanes=16, count=count)), count=count)
        target = Target.host()
        self._code = load_object(compile_object(emit_module([k.build()], target), target), target)
        args = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        self._f = ctypes.CFUNCTYPE(None, *args)(self._code.address("f"))

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        buffers = (ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data)
        ints = (ctypes.c_int64 * 1)(x.size)
        self._f(ctypes.addressof(buffers), ctypes.addressof(ints), 0, 1)


def errors(y: np.ndarray, exact: np.ndarray, absolute: bool = False) -> np.ndarray:
    """The distance of float32 results from float64 ones, in units of float32's last place (absolute: of that of 1/2); infinite
    where they disagree."""
    if absolute:
        return np.where(np.isnan(y) & np.isnan(exact), 0.0, np.abs(y.astype(np.float64) - exact) * 2.0**24)
    ulp = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
    e = np.abs(y.astype(np.float64) - exact) / ulp
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    special = ~np.isfinite(rounded) | ~np.isfinite(y) | (exact == 0)
    # a result beyond the largest float may still round to it, or to infinity, within the bound
    same = (y == rounded) & (np.signbit(y) == np.signbit(rounded)) | (np.isnan(y) & np.isnan(rounded))
    near = np.isfinite(exact) & (np.abs(exact) > 3.4028234e38) & (np.abs(exact) < 3.4028237e38)
    return np.where(special, np.where(same | near, 0.0, np.inf), e)


def check(name: str, stride: int) -> float:
    """Prints and returns the largest error of one function."""
    f = Compiled(name)
    reference = REFERENCES.get(name) or getattr(np, name)
    worst, where, spent, done = 0.0, 0.0, 0.0, 0
    total = (2**32 + stride - 1) // stride
    out = np.empty(BLOCK, np.float32)
    for first in range(-BLOCK, total, BLOCK):
        if first < 0:  # whatever the stride, the neighbourhoods of 0, infinity, 1 and their negatives
            n = 6 * 1024
            middles = np.array([[0], [0x7F800000], [0x3F800000], [0x80000000], [0xFF800000], [0xBF800000]], np.int64)
            bits = (middles + np.arange(-512, 512)).astype(np.uint32).ravel()
        else:
            n = min(BLOCK, total - first)
            bits = (np.arange(first, first + n, dtype=np.uint64) * np.uint64(stride)).astype(np.uint32)
        x = bits.view(np.float32)
        started = time.perf_counter()
        f(x, out[:n])
        spent += time.perf_counter() - started
        done += n
        with np.errstate(all="ignore"):
            e = errors(out[:n], reference(x.astype(np.float64)), FUNCTIONS[name].absolute)
        i = int(np.argmax(e))
        if e[i] > worst:
            worst, where = float(e[i]), float(x[i])
        print(f"\r{name:9} {min(100 * done / total, 100):5.1f} %  max {worst:.4f} ULP", end="", flush=True)
    print(f"\r{name:9} {done} inputs  max {worst:.4f} ULP at {where!r}  {done / spent / 1e9:.2f} G/s")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help="names (default: every function of one operand)")
    parser.add_argument("--stride", type=int, default=61, help="every how many-th input; 1 is all (default 61)")
    args = parser.parse_args()
    names = args.functions or [n for n, f in FUNCTIONS.items() if f.operands == 1]
    results = {name: check(name, args.stride) for name in names}
    over = [name for name, worst in results.items() if not worst <= 2.0]
    raise SystemExit(f"above 2 ULP: {', '.join(over)}" if over else 0)


if __name__ == "__main__":
    main()
