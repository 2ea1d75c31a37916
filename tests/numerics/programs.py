"""Programs by chance, as plain data: what a random generator draws, what every way of running must agree on.

A `Chance` has inputs (NumPy arrays) and steps (op, which values it reads, attributes); it is run on tensors by `call`. The
generator draws from `random.Random` alone, so Hypothesis can drive it and a subprocess can repeat it from a seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tengen import Tensor
from tengen.base.errors import DTypeError
from tengen.ir.types import TensorType
from tengen.ops.define import REGISTRY, Case, Op

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-42, 3e38, 1e-30, 88.5, -104.0]


def special_numbers(op: Op) -> Case:
    """Of an elementwise op: numbers of its domain with special ones among them; 37 of them, so that a part of a vector is left."""

    def inputs(rng):
        domains = op.domain if isinstance(op.domain[0], tuple) else [op.domain] * len(op.tensors)
        xs = [rng.uniform(*d, 37) for d in domains]
        for x in xs:
            x[rng.permutation(37)[: len(SPECIAL)]] = SPECIAL
        return tuple(xs)

    return Case(inputs)


@dataclass
class Chance:
    """A program: `steps` are (op's name, indices of values or None, attributes); the values are the inputs, then the results.

    `batched` counts the inputs, from the first, whose first axis is the batch; the others are weights."""

    inputs: list[np.ndarray]
    steps: list[tuple[str, tuple, dict]] = field(default_factory=list)
    batched: int = 1

    def call(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The results of all steps that no later step reads, and of a few that one does."""
        values = list(tensors)
        for name, ids, attrs in self.steps:
            if name == "strided_slice":  # of whatever batch is given
                attrs = {**attrs, "sizes": (values[ids[0]].shape[0], *attrs["sizes"][1:])}
            values += apply(REGISTRY[name], [None if i is None else values[i] for i in ids], attrs)
        read = {i for _, ids, _ in self.steps for i in ids}
        n = len(self.inputs)
        return tuple(v for i, v in enumerate(values[n:], n) if i not in read or i % 5 == 0)

    def __repr__(self) -> str:
        ins = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.inputs)
        return f"Chance({ins}; " + "; ".join(f"{n}{ids}{attrs or ''}" for n, ids, attrs in self.steps) + ")"


def apply(op: Op, tensors: list, attrs: dict) -> list[Tensor]:
    """Calls an op with its tensors and attributes by name; the results as a list."""
    names = op.tensors
    if op.variadic:
        n = len(tensors) - len(names) + 1
        out = op.call(**{names[0]: tensors[:n]}, **dict(zip(names[1:], tensors[n:])), **attrs)
    else:
        out = op.call(**dict(zip(names, tensors)), **attrs)
    return list(out) if isinstance(out, (tuple, list)) else [out]


def numbers(rng: random.Random, shape, dtype="float32", special: bool = True) -> np.ndarray:
    """Numbers of many sizes, now and then a special one."""
    r = np.random.default_rng(rng.randrange(1 << 30))
    x = r.standard_normal(shape)
    if rng.random() < 0.3:
        x = x * 10.0 ** r.integers(-6, 6, shape)
    if special and rng.random() < 0.3 and x.size:
        at = r.random(shape) < 0.1
        x = np.where(at, r.choice(SPECIAL, shape), x)
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(dtype))


SHAPES = [(7,), (16,), (33,), (1,), (3, 5), (2, 17), (4, 6, 5), (3, 8, 8), (1, 1), (2, 9, 4)]
DTYPES = ("float32", "float64", "float16")


def pointwise(operands: int) -> list[str]:
    """The elementwise ops of so many operands that give floats for floats of every dtype that programs are of."""
    found = []
    for name, op in sorted(REGISTRY.items()):
        ours = op.fn.__module__.startswith("tengen.") and "::" not in name  # examples of docstrings define some
        if op.kind == "elementwise" and "." not in name and ours and len(op.tensors) == operands:
            try:
                outs = [op.infer_types([TensorType((1,), d)] * operands, {})[0] for d in DTYPES]
            except DTypeError:  # it takes integers alone, or as `nextafter` no float16
                continue
            found += [name] if all(t.dtype.is_float for t in outs) else []
    return found


UNARY, BINARY = pointwise(1), pointwise(2)
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "var", "logsumexp"]


def draw(rng: random.Random, most: int = 7) -> Chance:
    """A program whose results all have the batch as first axis and compute each row from that row alone."""
    n = rng.choice([1, 2, 3, 5])
    shape = (n, *rng.choice(SHAPES))
    p = Chance([numbers(rng, shape, rng.choice(["float32"] * 4 + [*DTYPES]))])
    if rng.random() < 0.5:
        p.inputs.append(numbers(rng, shape, p.inputs[0].dtype))
        p.batched = 2
    plan: list[tuple] = []
    # Weights are inputs too, and inputs come first: steps are drawn with results named by negative numbers, renumbered below.
    values: list[tuple[object, tuple[int, ...]]] = [(i, a.shape) for i, a in enumerate(p.inputs)]
    for k in range(rng.randint(1, most)):
        name, ids, attrs, out = _move(rng, p, values)
        plan.append((name, ids, attrs))
        values.append((("r", k), out))
    base = len(p.inputs)
    p.steps = [
        (name, tuple(i if i is None or isinstance(i, int) else base + i[1] for i in ids), attrs) for name, ids, attrs in plan
    ]
    return p


def _move(rng: random.Random, p: Chance, values):
    """One more step: (op, inputs, attributes, the result's shape)."""
    at, shape = rng.choice(values[-3:])
    dtype = p.inputs[0].dtype

    def weight(*dims):
        p.inputs.append(numbers(rng, dims, dtype, special=False))
        return len(p.inputs) - 1

    rank = len(shape)
    moves = ["unary", "binary", "weighted", "same"]
    moves += ["reduce", "softmax", "layer_norm", "flatten", "matmul"] if rank >= 2 else []
    moves += ["permute", "slice"] if rank >= 3 else []
    moves += ["conv", "conv", "pool"] if rank == 4 and min(shape[2:]) >= 3 else []
    match rng.choice(moves):
        case "unary":
            return rng.choice(UNARY), (at,), {}, shape
        case "same":
            fitting = [v for v, s in values if s == shape]
            return rng.choice(BINARY), (at, rng.choice(fitting)), {}, shape
        case "binary":
            fitting = [v for v, s in values if len(s) == rank and all(a in (b, 1) for a, b in zip(s, shape))]
            pair = (at, rng.choice(fitting))
            return rng.choice(BINARY), pair if rng.random() < 0.5 else pair[::-1], {}, shape
        case "weighted":
            return rng.choice(BINARY), (at, weight(*(rng.choice([1, d]) for d in shape[1:]))), {}, shape
        case "reduce":
            axes = sorted(rng.sample(range(1, rank), rng.randint(1, rank - 1)))
            keep = rng.random() < 0.7
            out = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
            name = rng.choice(REDUCTIONS)
            return name, (at,), {"axis": axes, "keepdims": keep}, out
        case "softmax":
            return rng.choice(["softmax", "logsoftmax"]), (at,), {"axis": rng.randint(1, rank - 1)}, shape
        case "layer_norm":
            k = rng.randint(1, rank - 1)
            w = (weight(*shape[-k:]), weight(*shape[-k:])) if rng.random() < 0.5 else (None, None)
            return "layer_norm", (at, *w), {"n_axes": k, "eps": 1e-5}, shape
        case "flatten":
            out = (shape[0], int(np.prod(shape[1:])))
            return "reshape", (at,), {"shape": (-1, out[1])}, out
        case "matmul":
            m = rng.choice([1, 4, 10, 17])
            if rank == 2 and rng.random() < 0.5:
                return "linear", (at, weight(m, shape[-1]), weight(m)), {}, (shape[0], m)
            return "matmul", (at, weight(shape[-1], m)), {"transpose_a": False, "transpose_b": False}, (*shape[:-1], m)
        case "permute":
            axes = [0, *rng.sample(range(1, rank), rank - 1)]
            return "permute", (at,), {"axes": axes}, tuple(shape[a] for a in axes)
        case "slice":
            sizes = tuple(d if i == 0 else rng.randint(1, d) for i, d in enumerate(shape))
            starts = tuple(rng.randint(0, d - s) for d, s in zip(shape, sizes))
            return "strided_slice", (at,), {"starts": starts, "sizes": sizes, "steps": (1,) * rank}, sizes
        case "conv":
            c, m, k, pad = shape[1], rng.choice([1, 4, 9]), rng.choice([1, 3]), rng.choice([0, 1])
            w, b = weight(m, c, k, k), weight(1, m, 1, 1)
            attrs = {"stride": (1, 1), "padding": (pad, pad), "dilation": (1, 1), "groups": 1}
            attrs["algorithm"] = rng.choice(["direct", "winograd2", "winograd4"]) if k == 3 else "auto"
            return "conv_bias", (at, w, b), attrs, (shape[0], m, *(d + 2 * pad - k + 1 for d in shape[2:]))
        case "pool":
            attrs = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
            return "max_pool", (at,), attrs, (*shape[:2], *(d // 2 for d in shape[2:]))
    raise AssertionError
