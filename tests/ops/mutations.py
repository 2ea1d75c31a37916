"""Operands and attributes changed by chance: what an op's rules accept is lowered and interpreted, with every access checked.

In: an op and a seed. Out: what is wrong, as texts. A file names any op with any types and attributes, so the rules "canon" and
"infer" are all that stands between it and memory. For what they accept there is no error afterwards, no access outside of a
buffer, and no element of a result that depends on what memory held before. What they refuse is refused by an error of Tengen's
that names the op.

    python tests/ops/mutations.py [seeds [op ...]]      hunts for longer
"""

from __future__ import annotations

import functools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))
import remembered

import tengen  # noqa: F401  (sets up what the mutants import)
from tengen.base.dtype import ALL, COMPLEX, DType, dtype, float32
from tengen.base.errors import SizeError, TengenError, VerifyError
from tengen.codegen.targets import Target
from tengen.deploy.loader import stands_in_files
from tengen.ir.types import TensorType
from tengen.ir.verify import check_attr, check_type
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.pointwise import copy
from tengen.kernels.steps import Loop, Step, While
from tengen.loops.interp import TooLong, evaluate, interpreter
from tengen.loops.lang import as_int
from tengen.ops.define import REGISTRY, Op, lookup

MOST_ELEMENTS = 3000  # of all buffers of a call that is run
MOST_STATEMENTS = 60_000  # of its kernels
LONG = {"random_binomial": 1, "random_gamma": 3, "random_poisson": 3, "svd": 6}  # seconds in the interpreter: how many changes of a call
TARGETS = [Target.named(n) for n in ("x86-64-v3", "x86-64-v4", "aarch64")]
Call = tuple[tuple["TensorType | None", ...], dict]


def ops() -> list[str]:
    """The ops that a file may name, with one gradient of each elementwise op; not loops and branches, whose bodies are changed in
    `robustness/file_fuzz.py`."""
    named = [n for n, op in REGISTRY.items() if "." not in n and stands_in_files(op) and not op.has_bodies]
    derived = []
    for n in named:
        if REGISTRY[n].kind == "elementwise":
            try:
                derived.append(lookup(f"{n}.d0").name)
            except (TengenError, TypeError):  # it is no function of floats
                continue
    return named + derived


# ---- calls that are right ----------------------------------------------------------------------------------------------


def bases(op: Op) -> list[Call]:
    """Calls of an op that are right, in canonical form: from its samples, made small."""
    found: list[Call] = []
    for case in op.samples:
        xs = case.inputs(np.random.default_rng(7))
        flat = [a for x in xs for a in (x if isinstance(x, list) else [x])]
        types = tuple(None if a is None else _type_of(np.asarray(a)) for a in flat)
        attrs = dict(zip(op.attrs, (case.attrs.get(a, _default(op, a)) for a in op.attrs)))
        for some in (_smaller(types, 2 if op.name in LONG else 7), types):
            try:
                canonical = op.canonical(some, tuple(attrs.values()))
                op.infer_types(some, canonical)
            except TengenError:
                continue
            found.append((some, canonical))
            break
    if op.kind == "elementwise":
        attrs = {a: _default(op, a) for a in op.attrs}
        for d in ("float32", "int32", "bool", "bfloat16"):
            types = tuple(TensorType(s, d) for s in ((2, 3), (3,), (2, 1), ())[: len(op.tensors)])
            try:
                canonical = op.canonical(types, tuple(attrs.values()))
                op.infer_types(types, canonical)
            except TengenError:
                continue
            found.append((types, canonical))
    return found


def _default(op: Op, name: str):
    import inspect

    f = op.fn if "." not in op.name else lookup(op.name.partition(".")[0]).fn
    d = inspect.signature(f).parameters[name].default
    return 0.5 if d is inspect.Parameter.empty else d


def _type_of(a: np.ndarray) -> TensorType:
    return TensorType(a.shape, float32 if a.dtype == np.float64 else dtype(a.dtype))


def _smaller(types, most: int):
    few = lambda d: d if d <= most else min(most, 5 if d % 2 else 4)
    return tuple(None if t is None else TensorType(tuple(map(few, t.shape)), t.dtype) for t in types)


# ---- changes -----------------------------------------------------------------------------------------------------------

INTS = (0, 1, 2, 3, 4, 5, 7, -1, -2, -3, 100, -100, 1 << 31, (1 << 31) - 1, 1 << 40, -(1 << 40), (1 << 62) - 1, 1 << 62,
        -(1 << 62), (1 << 63) - 1, -(1 << 63), 1 << 64, 1 << 70)  # fmt: skip
OTHERS = (None, True, False, 3.0, 1.0, 0.0, -0.0, 1.5, float("nan"), float("inf"), "", "edge", "se+t", "set", "add", "none", "x",
          (), (0,), (1, 1), ((0, 1), (1, 0)), dtype("float64"), dtype("int8"))  # fmt: skip


def changed(r: random.Random, call: Call) -> Call:
    """A call with some things changed: extents and dtypes everywhere alike, which rules often accept, and things by themselves."""
    types, attrs = list(call[0]), dict(call[1])
    alike = r.choice((0, 0, 1, 2))
    for _ in range(alike):
        types, attrs = _alike(r, types, attrs)
    for _ in range(r.choice((0, 1, 1, 2) if alike else (1, 1, 1, 2, 2, 3))):
        roll = r.random()
        if attrs and (roll < 0.55 or not types):
            k = r.choice(list(attrs))
            attrs[k] = _other_attr(r, attrs[k])
        elif roll < 0.95 and types:
            i = r.randrange(len(types))
            types[i] = _other_type(r, types[i], types)
        elif types:
            if r.random() < 0.5:
                types.insert(r.randrange(len(types) + 1), r.choice(types))
            else:
                types.pop(r.randrange(len(types)))
    return tuple(types), attrs


def _alike(r: random.Random, types: list, attrs: dict) -> tuple[list, dict]:
    """One extent, or one dtype, replaced wherever it is; an extent sometimes in attributes, too."""
    there = [t for t in types if t is not None]
    if r.random() < 0.3 and there:
        old, new = r.choice(there).dtype, r.choice(ALL + COMPLEX)
        return [t if t is None or t.dtype is not old else _typed(t.shape, new, t) for t in types], attrs
    extents = sorted({d for t in there for d in t.shape})
    if not extents:
        return types, attrs
    old, new = r.choice(extents), r.choice((0, 1, 2, 3, 4, 6, 8, 9, 17))
    if r.random() < 0.3:
        tuples = lambda a: tuple(map(tuples, a)) if isinstance(a, tuple) else new if type(a) is int and a == old else a
        attrs = {k: tuples(a) for k, a in attrs.items()}
    return [t if t is None else _typed([new if d == old else d for d in t.shape], t.dtype, t) for t in types], attrs


def _other_attr(r: random.Random, a):
    roll = r.random()
    if isinstance(a, tuple) and a and roll < 0.75:
        items, i = list(a), r.randrange(len(a))
        if roll < 0.1:
            items.pop(i)
        elif roll < 0.2:
            items.insert(i, items[i])
        elif roll < 0.3:
            r.shuffle(items)
        else:
            items[i] = _other_attr(r, items[i])
        return tuple(items)
    if isinstance(a, bool):
        return not a if roll < 0.6 else r.choice(INTS + OTHERS)
    if isinstance(a, int):
        near, odd = a + r.choice((-2, -1, 1, 2)), r.choice((float(a % 97), str(a), (a,), None))
        return near if roll < 0.4 else r.choice(INTS) if roll < 0.85 else odd
    if isinstance(a, float):
        return r.choice((0.0, 1.0, -1.5, 2, 1e300, float("nan"), float("inf"))) if roll < 0.5 else r.choice(INTS + OTHERS)
    if isinstance(a, DType):
        return r.choice(ALL) if roll < 0.7 else r.choice(INTS + OTHERS)
    return r.choice(INTS + OTHERS)


def _other_type(r: random.Random, t: TensorType | None, all_types) -> TensorType | None:
    roll = r.random()
    there = [x for x in all_types if x is not None]
    if t is None:
        return r.choice(there) if there else None
    shape = list(t.shape)
    if roll < 0.25:
        return _typed(shape, r.choice(ALL), t)
    if roll < 0.3:
        return None
    if roll < 0.4:
        return r.choice(there)
    if roll < 0.5 and shape:
        shape.pop(r.randrange(len(shape)))
    elif roll < 0.6:
        shape.insert(r.randrange(len(shape) + 1), r.choice((0, 1, 2, 3)))
    elif roll < 0.7:
        r.shuffle(shape)
    elif shape:
        i = r.randrange(len(shape))
        shape[i] = r.choice((0, 1, 1, 2, 3, 4, 5, 8, shape[i] + 1, shape[i] * 2, max(shape[i] - 1, 0), 1 << 40, 1 << 57))
    return _typed(shape, t.dtype, t)


def _typed(shape, d, other: TensorType) -> TensorType:
    """A type; another one where no machine has the memory: that is refused wherever a type is made."""
    try:
        return TensorType(shape, d)
    except SizeError:
        return other


# ---- what must be so ---------------------------------------------------------------------------------------------------


def check(op: Op, call: Call, seed: int) -> str:
    """"refused", "ran", or why the call was not run ("large", "long"). AssertionError for a defect."""
    types, attrs = call
    try:
        for t in types:
            if t is not None:
                check_type(t)
        for a in attrs.values():
            check_attr(a)
    except VerifyError:
        return "no data of a graph"
    try:
        canonical = op.canonical(types, tuple(attrs.values()))
        outs = op.infer_types(types, canonical)
    except MemoryError:
        return "large"
    except TengenError as e:
        assert op.name in str(e), f"the error does not name the op: {e}"
        assert "does not take these arguments (" not in str(e), f"a rule failed: {e}"
        return "refused"
    for t in outs:
        check_type(t)
    again = op.canonical(types, tuple(canonical.values()))
    assert repr(again) == repr(canonical), f"canonical form {canonical} becomes {again}"
    sizes = [int(np.prod(t.shape, dtype=object)) for t in (*types, *outs) if t is not None]
    if sum(sizes) > MOST_ELEMENTS:
        return "large"
    return _run(op, types, outs, canonical, seed)


def _run(op: Op, types, outs, attrs: dict, seed: int) -> str:
    lo = Lowering(TARGETS[seed % len(TARGETS)])
    ins = [None if t is None else Array(("in", i), t.dtype, t.shape, contiguous_strides(t.shape)) for i, t in enumerate(types)]
    if op.kind == "view":
        return _view(op, ins[0], outs[0], attrs)
    orders = [op.axis_order(ins, t, attrs) for t in outs]
    places = [Array(("out", i), t.dtype, t.shape, contiguous_strides(t.shape, o)) for i, (t, o) in enumerate(zip(outs, orders))]
    if all(0 in t.shape for t in outs):  # nothing is computed
        return "ran"
    op.lower_to(lo, ins, places, attrs)
    temps = {i: (d, as_int(n) if as_int(n) is not None else int(evaluate(n, {}))) for i, (d, n) in lo.temps.items()}
    if sum(n for _, n in temps.values()) > 5 * MOST_ELEMENTS:
        return "large"
    given = {("in", i): _values(t, np.random.default_rng(seed + i)) for i, t in enumerate(types) if t is not None}
    results: list[list[np.ndarray]] = []
    kernels = functools.cache(interpreter)
    for held in (0x55, 0x2A):  # what memory holds before
        memory = {i: a.copy() for i, a in given.items()}
        memory |= {("out", i): _held(t.dtype, int(np.prod(t.shape)), held) for i, t in enumerate(outs)}
        memory |= {i: _held(d, n, held) for i, (d, n) in temps.items()}
        if remembered.run(lo, memory, MOST_STATEMENTS, functools.partial(_interpret, lo.steps, memory, kernels)):
            return "long"
        for i, a in given.items():
            assert memory[i].tobytes() == a.tobytes(), f"it writes its operand {i[1]}"
        results.append([memory["out", i] for i in range(len(outs))])
    for i, (a, b) in enumerate(zip(*results)):
        differ = np.flatnonzero(_bytes(a) != _bytes(b))
        assert not differ.size, f"elements {differ[:5]} of result {i} ({outs[i]}) depend on what memory held"
    return "ran"


def _view(op: Op, a: Array, out: TensorType, attrs: dict) -> str:
    v = op.make_view(a, out, attrs)
    if v is None:
        v = op.make_view(Array("dense", a.dtype, a.shape, contiguous_strides(a.shape)), out, attrs)
    assert v.dtype is out.dtype and tuple(v.shape) == tuple(out.shape)
    assert all(abs(s) < 1 << 62 for s in v.strides), f"strides {v.strides}"
    if 0 not in v.shape:
        ends = [s * (d - 1) for s, d in zip(v.strides, v.shape)]
        low, high = v.offset + sum(min(e, 0) for e in ends), v.offset + sum(max(e, 0) for e in ends)
        size = int(np.prod(a.shape, dtype=object))
        size = size * a.dtype.size // v.dtype.size  # in elements of the view, which may be parts of complex numbers
        assert 0 <= low <= high < size, f"elements {low} to {high} of {size}"
    lo = Lowering(TARGETS[0])
    if int(np.prod(v.shape, dtype=object)) <= MOST_ELEMENTS:
        copy(lo, v, Array(("out", 0), v.dtype, v.shape, contiguous_strides(v.shape)))
    return "ran"


def _values(t: TensorType, rng) -> np.ndarray:
    """Any elements; indices are out of range now and then. Of complex numbers the parts, which is what kernels see."""
    n = int(np.prod(t.shape)) * (1 + t.dtype.is_complex)
    with np.errstate(all="ignore"):
        if t.dtype.kind == "b":
            return rng.integers(0, 2, n).astype(bool)
        if t.dtype.is_int:
            return rng.choice(np.array([-(2**62), -9, -3, -2, -1, 0, 0, 1, 1, 2, 3, 4, 9, 2**62]), n).astype(t.dtype.numpy)
        return rng.choice(np.array([0.0, -0.0, 0.5, -0.5, 1, -2, 3, 1e-3, np.nan, np.inf]), n).astype(t.dtype.part.numpy)


def _held(d: DType, n: int, byte: int) -> np.ndarray:
    return np.full(n, byte == 0x55, bool) if d.kind == "b" else np.full(n * d.size, byte, np.uint8).view(d.part.numpy)


def _bytes(a: np.ndarray) -> np.ndarray:
    """An element's bits, of which those of NaNs are one."""
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        a = np.where(np.isnan(a.astype(np.float64)), np.array(np.nan, a.dtype), a)
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def _interpret(steps: Iterable[Step], memory: dict, kernels: Callable) -> str | None:
    try:
        _launch(steps, memory, kernels)
    except TooLong:
        return "long"


def _launch(steps: Iterable[Step], memory: dict, kernels: Callable, iterations: tuple[int, ...] = ()) -> None:
    for s in steps:
        if isinstance(s, Loop):
            for i in range(as_int(s.count)):
                _launch(s.body, memory, kernels, (*iterations, i))
        elif isinstance(s, While):
            for i in range(as_int(s.limit)):  # every one here has a limit
                _launch(s.condition, memory, kernels, (*iterations, i))
                if not memory[s.flag.id][s.flag.offset]:
                    break
                _launch(s.body, memory, kernels, (*iterations, i))
        else:
            ints = dict(zip((str(v.attr) for v in s.kernel.ints), iterations))
            kernels(s.kernel)([memory[i] for i in s.ids], ints, most=MOST_STATEMENTS)


def hunt(name: str, seeds: range) -> Iterator[tuple[str, str]]:
    """(what came of it, a defect or "") for each seed."""
    op = lookup(name)
    right = bases(op)
    assert right, f"{name} has no sample that its rules accept"
    for seed in seeds:
        r = random.Random(f"{name} {seed}")
        call = r.choice(right)
        call = changed(r, call) if seed else call
        try:
            yield check(op, call, seed), ""
        except Exception as e:
            attrs = ", ".join(f"{k}={v!r}" for k, v in call[1].items())
            yield "a defect", f"{seed} {name}({', '.join(map(str, call[0]))}; {attrs}): {type(e).__name__}: {e}"


def main(seeds: int, names: list[str]) -> None:
    for name in names or ops():
        counts: Counter = Counter()
        for what, wrong in hunt(name, range(seeds)):
            counts[what] += 1
            if wrong:
                print("  " + wrong[:600], flush=True)
        print(name, dict(counts), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:])
