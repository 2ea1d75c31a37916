"""Calls of ops by chance, right and wrong, in a process of its own, so that a crash is seen: python random_calls.py seed ...

Before each call its description is written to standard output; after it what came of it. A call that takes longer than
`PATIENCE` seconds ends the process.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))
from bounds import beyond, conditions, roundoff

from tengen import Tensor
from tengen.base.dtype import ALL, dtype
from tengen.base.errors import TengenError
from tengen.ops.define import REGISTRY, Op

PATIENCE = 20
EXPECTED = (TengenError, ValueError, TypeError, IndexError, OverflowError, MemoryError)
NAMES = sorted(n for n in REGISTRY if "." not in n)
EXTENTS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 16, 17)


NUMBERS = (0, 1, 2, 3, -1, -2, 4, 5, 7, 100, -100, True, False, 1.5, 0.0, -0.5, float("nan"), float("inf"), 1 << 40, 1 << 70)
WORDS = (None, True, False, 0.5, 1e-5, "float32", "int8", "mean", "", "x", dtype("int32"), {}, 1j)
TUPLES = ((), ((0, 1), (1, 0)), (1.5,), ("a", None))


def anything(r: random.Random):
    """A value for an attribute of which nothing is known."""
    roll = r.random()
    if roll < 0.45:
        return r.choice(NUMBERS) if r.random() < 0.3 else r.randint(-3, 4)
    if roll < 0.75:
        return tuple(r.randint(-2, 4) for _ in range(r.randint(0, 4)))
    return r.choice(WORDS + TUPLES)


def tensor(r: random.Random, shapes: list) -> np.ndarray | None:
    """A small array, often of a shape that fits those before it."""
    roll = r.random()
    if shapes and roll < 0.55:
        shape = r.choice(shapes)
    elif shapes and roll < 0.65:
        shape = tuple(r.choice([1, d]) for d in r.choice(shapes))
    elif roll < 0.67:
        return None
    else:
        shape = tuple(r.choice(EXTENTS) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3, 4, 4, 5])))
    shapes.append(shape)
    kind = "float32" if r.random() < 0.5 else r.choice(ALL).name
    rng = np.random.default_rng(r.randrange(1 << 30))
    with np.errstate(all="ignore"):
        return np.asarray((rng.standard_normal(shape) * r.choice([1, 1, 3, 100])).astype(dtype(kind).numpy))


def draw(r: random.Random) -> tuple[Op, list, dict]:
    """An op, arrays for its tensors, attributes. Half of them start from one of the op's own sample inputs."""
    op = REGISTRY[r.choice(NAMES)]
    case = r.choice(op.samples) if op.samples and r.random() < 0.6 else None
    shapes: list = []
    if case is not None:
        found = case.inputs(np.random.default_rng(r.randrange(1 << 30)))
        flat = [a for x in found for a in (x if isinstance(x, (list, tuple)) else [x])]
        arrays = [None if a is None else np.asarray(a) for a in flat]
        kind = r.choice(["float32", "float32", "float64"])
        arrays = [a.astype(kind) if a is not None and a.dtype == np.float64 else a for a in arrays]
        attrs = dict(case.attrs)
        shapes += [a.shape for a in arrays if a is not None]
        if arrays and r.random() < 0.4:
            arrays[r.randrange(len(arrays))] = tensor(r, shapes)
        if op.attrs and r.random() < 0.6:
            attrs[r.choice(op.attrs)] = anything(r)
    else:
        n = r.randint(0, 4) if op.variadic else len(op.tensors)
        arrays = [tensor(r, shapes) for _ in range(n)]
        attrs = {name: anything(r) for name in op.attrs if r.random() < 0.7}
    return op, arrays, attrs


def apply(op: Op, arrays: list, attrs: dict):
    tensors = [None if a is None else Tensor(a, dtype=dtype(a.dtype)) for a in arrays]
    names = op.tensors
    if op.variadic:
        n = max(len(tensors) - len(names) + 1, 0)
        return op.call(**{names[0]: tensors[:n]}, **dict(zip(names[1:], tensors[n:])), **attrs)
    return op.call(**dict(zip(names, tensors)), **attrs)


def described(op: Op, arrays: list, attrs: dict) -> str:
    return f"{op.name}({', '.join('None' if a is None else f'{a.dtype}{list(a.shape)}' for a in arrays)}; {attrs})"


# How many roundings of a result's size explain what an op may be off by (`bounds.py`): elementwise functions are within 3 units
# in the last place, and twice that where they are composed; sums of n terms, in chunks of 256 or 16 lanes, are off like a random
# walk of at most 4 sqrt(n) roundings, and calls here sum at most some hundred terms; Winograd's transforms lose another factor of 8.
ROUNDINGS = 64
# Numbers near 1 are subtracted from 1, or have a logarithm, so that a result is as far off as that number's rounding, times a factor.
NEAR_ONE = {
    "logsoftmax": lambda x: 1.0,  # the logarithm of a sum of exponentials, of which the largest is 1
    # g - exp(y) sum(g), over an axis of one element, or none: g (1 - exp(y))
    "logsoftmax_grad": lambda g, y: np.abs(g).max(initial=0),
}
# An element is off by roundings of its matrix's Frobenius norm, not of its own size: rotations and reflections mix them all.
NORMWISE = {
    "complex_eigh": "vectors are products of reflections and the vectors of a real matrix",
    "complex_svd": "vectors are products of reflections and the vectors of a real matrix",
    "complex_hessenberg": "the matrix is multiplied by reflections on both sides",
    "pinv": "the inverse is the product of factors of the singular value decomposition",
    "complex_pinv": "the inverse is the product of factors of the singular value decomposition",
}
TABLES = ("dft",)  # an operand is a table of constants, and what others than these give has no meaning
STEPS = ("floor_div", "mod")  # quotients that rounding takes to the next integer, in float64 elsewhere than in float32


def _several(x) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _parts(x: np.ndarray) -> np.ndarray:
    """Of complex numbers the real and the imaginary parts, along one more axis."""
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


# Factors of a matrix A whose error is normwise: they are those of a matrix within some roundings of |A|, so that vectors are off by
# |A| / gap times as much, whatever the algorithm: float32 LAPACK is off by more here. By name: (A as it is read, left, values, right).
FACTORS = {
    "eigh": lambda a, values, v: (np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2), v, values, np.swapaxes(v, -1, -2)),
    "svd": lambda a, u, values, vh: (a, u, values, vh),
}


def _no_factors(name: str, found: list, a: np.ndarray, wants: Sequence[np.ndarray]) -> str | None:
    """Why some factors are none of a matrix: their product is another one, they are not orthogonal, or values are not the reference's."""
    u = ROUNDINGS * roundoff(found[0].dtype)
    whole, left, values, right = FACTORS[name](a, *(x.astype(np.float64) for x in found))
    best = FACTORS[name](a, *wants)[2]
    k = values.shape[-1]
    size = np.abs(best).max(-1, keepdims=True, initial=0)
    if not (np.abs(values - best) <= u * size).all():
        return f"values {values}, the reference has {best}"
    off = np.abs((left[..., :k] * values[..., None, :]) @ right[..., :k, :] - whole)
    if not (off <= u * size[..., None]).all():
        return f"a product of factors that is off by {off.max()}"
    for q in (left, np.swapaxes(right, -1, -2)):
        off = np.abs(np.swapaxes(q, -1, -2) @ q - np.eye(q.shape[-1]))
        if not (off <= u).all():
            return f"vectors that are not orthonormal by {off.max()}"
    return None


def _norms(x: np.ndarray) -> np.ndarray:
    """For each element the Frobenius norm of its matrix, or the norm of a single row."""
    return np.broadcast_to(np.sqrt((x**2).sum(tuple(range(x.ndim))[-2:], keepdims=True)), x.shape)


def _no_eigenpairs(found: list, re: np.ndarray, im: np.ndarray) -> str | None:
    """Why values and vectors are not those of general matrices A: some A v is not v w, some v has another length than 1, or values are
    missing. Values may be ill-conditioned, and come in no order; they are exact for a matrix within some roundings of |A|, which
    bounds how far the sums of their powers are from the traces of A's powers."""
    u = ROUNDINGS * roundoff(found[0].dtype)
    w, v = (x.astype(np.float64) + 1j * y for x, y in (found[:2], found[2:]))
    a, n = re + 1j * im, re.shape[-1]
    size = np.sqrt((np.abs(a) ** 2).sum((-2, -1)))
    off = np.abs(a @ v - v * w[..., None, :])
    if not (off <= u * size[..., None, None]).all():
        return f"pairs with A v - v w of {off.max()}"
    off = np.abs(np.sqrt((np.abs(v) ** 2).sum(-2)) - 1)
    if not (off <= u).all():
        return f"vectors whose length is off by {off.max()}"
    power = a
    for k in range(1, n + 1):
        off = np.abs((w**k).sum(-1) - np.trace(power, axis1=-2, axis2=-1))
        if not (off <= u * n * k * size**k).all():
            return f"values whose sum of {k}th powers is off by {off.max()}"
        power = power @ a
    return None


def differs(op: Op, arrays: list, attrs: dict, out) -> str | None:
    """What is wrong with a result, by the op's independent reference; None where nothing is, or nothing is known. Every element
    counts; integers and truth values are exact."""
    plain = all(a is not None and a.dtype in (np.float32, np.float64) and np.isfinite(a).all() for a in arrays)
    if op.rules.reference is None or not plain or op.variadic or op.name in TABLES:
        return None
    meaning = lambda *xs: tuple(_parts(np.asarray(y)) for y in _several(op.rules.reference(*xs, **attrs)))
    wide = [a.astype(np.float64) for a in arrays]
    with np.errstate(all="ignore"):
        try:
            wants = meaning(*wide)
        except Exception:  # a reference need not take what the op takes (an attribute in another form)
            return None
        slopes = conditions(meaning, wide)
    found = [_parts(np.asarray(t.numpy())) for t in _several(out)]
    for got, want in zip(found, wants):
        if got.shape != want.shape:
            return f"shape {got.shape}, the reference has {want.shape}"
    if op.name in FACTORS:
        return _no_factors(op.name, found, wide[0], wants)
    if op.name == "general_eig":
        return _no_eigenpairs(found, *wide)
    if op.name in NORMWISE:
        slopes = [_norms(s + np.abs(y)) for s, y in zip(slopes, wants)]
    for got, want, slope in zip(found, wants, slopes):
        if got.dtype.kind == "f":
            coarsest = max((got.dtype, *(a.dtype for a in arrays)), key=roundoff)
            wrong = beyond(got, want.astype(np.float64), slope, ROUNDINGS, coarsest)
            if op.name in NEAR_ONE:
                wrong &= ~(np.abs(got - want) <= ROUNDINGS * roundoff(coarsest) * NEAR_ONE[op.name](*wide))
        else:
            wrong = (got != want) & ((slope == 0) | (op.name not in STEPS))
        if wrong.any():
            return f"{got[wrong][:3]}, the reference has {want[wrong][:3]}"
    return None


def main(seeds) -> None:
    for seed in seeds:
        op, arrays, attrs = draw(random.Random(seed))
        print(f"{seed} {described(op, arrays, attrs)}", flush=True)
        signal.alarm(PATIENCE)
        try:
            out = apply(op, arrays, attrs)
        except EXPECTED as e:
            print(f"  {type(e).__name__}: {str(e)[:300]!r}", flush=True)
        except Exception as e:
            print(f"  BAD {type(e).__name__}: {str(e)[:300]!r}", flush=True)
        else:
            wrong = differs(op, arrays, attrs, out)
            print("  a result" if wrong is None else f"  BAD {wrong}", flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main(range(int(sys.argv[1]), int(sys.argv[2])))
