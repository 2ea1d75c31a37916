"""Changes the operators that the tests run, one by one, as TFLite files (their constants, inputs, shapes, dtypes, scales, options, and which
operator it is), reads the files and runs them: each gives results or one of the errors that are promised. No package is needed.

    python benchmarks/fuzz/tflite_operators.py [seconds] [first seed]

A seed is one file. Ends at the first other error, with its seed; prints how many files were read, run and refused.
"""

import copy
import os
import random
import resource
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("TENGEN_NUM_THREADS", "1")
sys.path[:1] = [str(Path(__file__).resolve().parents[2] / "tests" / "interop")]  # the folder of this file has a module of a package's name

import numpy as np  # noqa: E402  (after the path is set)
import tflite_cases  # noqa: E402  (after the path is set)
from tflite_integer_ops import integers  # noqa: E402  (after the path is set)
from tflite_ops import floats  # noqa: E402  (after the path is set)

from tengen.base.errors import TengenError  # noqa: E402  (after the path is set)
from tengen.interop.tflite import to_module  # noqa: E402  (after the path is set)

CASES = [*floats(), *integers()]
OPS = sorted({c.op for c in CASES})
NUMBERS = (0, 1, -1, 2, 3, 5, 7, 127, -128, 255, 1000, 1 << 16, (1 << 31) - 1, -(1 << 31))
DTYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, float("inf"), float("nan"))
LARGEST = 8 << 30  # bytes that the process may have


def changed_array(r: random.Random, a: np.ndarray) -> np.ndarray:
    """An array with an element that is another, of another shape, or of another dtype."""
    way = r.randrange(4)
    if way == 0 and a.size:
        a = a.copy()
        value = r.choice(FLOATS if a.dtype.kind in "fc" else NUMBERS)
        with np.errstate(all="ignore"):
            a.reshape(-1)[r.randrange(a.size)] = np.asarray(value).astype(a.dtype)
        return a
    if way == 1 and a.ndim:
        return np.take(a, [], axis=0) if r.random() < 0.2 else np.repeat(a, r.choice((1, 2, 3)), axis=r.randrange(a.ndim))
    if way == 2:
        return a[None] if r.random() < 0.5 else a.reshape(-1)
    return a if a.dtype.kind in "USO" else a.real.astype(r.choice(DTYPES))


def changed(r: random.Random, c: tflite_cases.Case) -> tflite_cases.Case:
    """A case with something that is other."""
    c = copy.deepcopy(c)
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        there = [t for t in c.inputs if t is not None]
        way = r.randrange(7)
        if way <= 2 and there:
            t = r.choice(there)
            if t.value is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    t.value = changed_array(r, t.array)
                t.dtype = "" if t.dtype not in ("text", "table") else t.dtype
        elif way == 3 and c.options:
            key = r.choice(list(c.options))
            old = c.options[key]
            c.options[key] = np.full_like(old, r.choice(NUMBERS)) if isinstance(old, np.ndarray) and old.dtype == np.int32 else old
            c.options[key] = r.choice((-1, 0, 1, 2, 3, 100)) if isinstance(old, int) and not isinstance(old, bool) else c.options[key]
        elif way == 4 and len(c.inputs) > 1:
            c.inputs.pop(r.randrange(len(c.inputs))) if r.random() < 0.5 else r.shuffle(c.inputs)
        elif way == 5 and there:
            t = r.choice(there)
            t.quant = r.choice((None, (0.5, 0, 0), (0.01, -7, 0), (0.0, 0, 0), (1e30, 0, 0)))
        elif way == 6:
            c.op, t = (r.choice(OPS), None) if r.random() < 0.3 else (c.op, r.choice(there) if there else None)
            if t is not None:
                t.fixed = not t.fixed
    return c


def one(seed: int, found: Counter[str]) -> None:
    """Tries a file."""
    r = random.Random(seed)
    case = changed(r, r.choice(CASES))
    try:
        data, given = tflite_cases.to_bytes(case), tflite_cases.given(case)
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError):  # the table of options does not hold it
        found["not written"] += 1
        return
    found["files"] += 1
    try:
        net = to_module(data).eval()
    except TengenError:
        found["refused"] += 1
        return
    found["read"] += 1
    try:
        net(*given)
        found["run"] += 1
    except (TengenError, MemoryError) as e:
        found[type(e).__name__] += 1


def main() -> None:
    """Runs for so many seconds."""
    seconds, seed = [float(a) for a in sys.argv[1:3]] + [60.0, 0.0][len(sys.argv[1:3]) :]
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    warnings.simplefilter("ignore")
    found: Counter[str] = Counter()
    end, at = time.monotonic() + seconds, int(seed)
    while time.monotonic() < end:
        try:
            one(at, found)
        except BaseException:
            print(f"seed {at}, {dict(found)}")
            raise
        at += 1
        if not at % 1000:
            print(at, dict(found), flush=True)
    print(f"{found['files']} files, up to seed {at}: {dict(found)}")


if __name__ == "__main__":
    main()
