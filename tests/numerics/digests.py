"""The promise across machines and versions: what a few hundred programs compute, as digests in `digests.json`.

`python tests/numerics/digests.py` compares, `--write` writes the file anew: a change of bits is a visible diff of that file, and needs
a line under "Bits" in the changelog. A digest is of dtypes, shapes and bytes of all results, every NaN as one. Inputs come from
`exact.py`, so they depend on nothing but that file and the samples of the ops.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from exact import Exact, coarse
from programs import apply, special_numbers

import tengen.debug  # noqa: F401  (what it looks with is an op, too)
import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, amp, models, optimizer, random, trace
from tengen.autodiff import GradManager, vjp
from tengen.base.dtype import dtype
from tengen.base.errors import GradientError, TengenError
from tengen.module import init
from tengen.ops.complex_forms import load_rules
from tengen.ops.define import REGISTRY, Case, Op

FILE = Path(__file__).with_name("digests.json")
Found = Iterator[tuple[str, list]]  # (name, results as tensors or arrays)


def digest(results) -> str:
    """Of dtypes, shapes and bytes, every NaN as one."""
    h = hashlib.blake2b(digest_size=8)
    for r in results:
        a = np.array(r.numpy() if isinstance(r, Tensor) else r, order="C")
        h.update(f"{a.dtype.name} {a.shape} ".encode())
        a = a[..., None].view(a.real.dtype) if a.dtype.kind == "c" else a
        if a.dtype.kind not in "iub":  # bfloat16 is of kind V
            with np.errstate(invalid="ignore"):
                nan = np.isnan(a.astype(np.float64))
            a = np.where(nan, (1 << 8 * a.itemsize) - 1, a.view(f"u{a.itemsize}")).astype(f"u{a.itemsize}")
        h.update(a.tobytes())
    return h.hexdigest()


# ---- ops ------------------------------------------------------------------------------------------------------------------


def is_ours(op: Op) -> bool:
    """Whether Tengen defines the op: other tests define some for a while, and examples of docstrings some with a name of their own."""
    return op.fn.__module__.startswith("tengen.") and "::" not in op.name


def op_cases() -> list[tuple[str, Op, Case]]:
    """Every op with all its samples."""
    found = []
    for name, op in sorted(REGISTRY.items()):
        if "." in name or not is_ours(op):
            continue
        own = [special_numbers(op)] if op.kind == "elementwise" and not (op.attrs and op.samples) else []
        found += [(f"{name} {i}", op, case) for i, case in enumerate([*own, *op.samples])]
    return found


def _inputs(case: Case, name: str) -> list:
    """The case's arrays, laid out flat, floats in a dtype."""
    found = [a for x in case.inputs(Exact(5)) for a in (x if isinstance(x, (list, tuple)) else [x])]
    arrays = [None if a is None else coarse(np.asarray(a)) for a in found]
    if name == "int32":  # of small numbers: what a cast makes of NaN and of large ones is the processor's
        arrays = [np.clip(np.where(np.isnan(a), 0, a), -99, 99) if a is not None and a.dtype == np.float64 else a for a in arrays]
    with np.errstate(all="ignore"):
        return [a.astype(dtype(name).numpy) if a is not None and a.dtype == np.float64 else a for a in arrays]


def _gradients(op: Op, arrays: list, attrs: dict) -> list:
    """Of all float results, weighted, with respect to all float inputs; none where the op has none."""
    xs = [None if a is None else Tensor(a) for a in arrays]
    wrt = [i for i, x in enumerate(xs) if x is not None and x.dtype.is_inexact]
    which: list[int] = []

    def f(*given):
        full = list(xs)
        for i, x in zip(wrt, given):
            full[i] = x
        out = apply(op, full, attrs)
        which[:] = [i for i, y in enumerate(out) if y.dtype.is_inexact]
        return tuple(out[i] for i in which)

    if not wrt or op.why_no_vjp is not None:
        return []
    values, pull = vjp(f, *(xs[i] for i in wrt))
    rng = Exact(6)
    seeds = tuple(Tensor(rng.uniform(0.5, 1.5, y.shape).astype(y.dtype.numpy)) for y in values)
    try:
        return list(pull(seeds)) if values else []
    except GradientError:  # it has none for these attributes
        return []


def of_op(name: str, op: Op, case: Case, in_float32_alone: bool = False) -> Found:
    """Results in float32, and the gradients; of an op's first sample also in float16 and float64, of an elementwise one in int32."""
    kinds = ("float32", "float16", "float64", "int32")[: 3 + (op.kind == "elementwise")]
    for kind in kinds if name.endswith(" 0") and not in_float32_alone else ("float32",):
        arrays = _inputs(case, kind)
        try:
            out = apply(op, [None if a is None else Tensor(a) for a in arrays], case.attrs)
        except TengenError:  # it takes no such numbers: then the entry is not there, and a test says so if it was
            continue
        yield f"op {name} {kind}", out
        if kind == "float32" and (found := _gradients(op, arrays, case.attrs)):
            yield f"op {name} {kind} gradient", found


def of_complex() -> Found:
    """Elementwise ops and products of complex numbers."""
    load_rules()
    rng = Exact(7)
    z, w = (coarse(rng.uniform(-2, 2, (6, 11))) + 1j * coarse(rng.uniform(-2, 2, (6, 11))) for _ in range(2))
    for kind in ("complex64", "complex128"):
        x, y = Tensor(z.astype(kind)), Tensor(w.astype(kind))
        for name, op in sorted(REGISTRY.items()):
            if op.kind == "elementwise" and op.rules.complex is not None and is_ours(op) and not op.own:
                yield f"complex {name} {kind}", [op(*(x, y, x)[: len(op.tensors)])]
        yield f"complex products {kind}", [x @ y.mH, F.prod(x, 1), F.cumprod(x, 1), F.sum(x), F.var(x)]


# ---- random numbers -------------------------------------------------------------------------------------------------------


def of_random() -> Found:
    draws = {
        "uniform": lambda: random.uniform(-1.5, 2.5, (3, 67)), "normal": lambda: random.normal(1.0, 3.0, (3, 67)),
        "randint": lambda: random.randint(-5, 1000, (201,)), "permutation": lambda: random.permutation(301),
        "dropout": lambda: F.dropout(F.ones((5, 41)), 0.3),
    }  # fmt: skip
    for name, draw in draws.items():
        random.manual_seed(2**40 + 7)
        yield f"random {name}", [draw(), draw()]
    rng = random.RNG(seed=3)
    yield "random generator of its own", [rng.uniform(size=(65,)), rng.normal(size=(7, 5)), rng.randint(9, size=(33,))]
    random.manual_seed(1)
    traced = trace(lambda x: F.dropout(x, 0.5) + random.uniform(size=(9, 9)))
    yield "random traced", [traced(F.ones((9, 9))) for _ in range(3)]


def of_initialisers() -> Found:
    fills = sorted(name for name in vars(init) if name.endswith("_") and not name.startswith("_"))
    for name in fills:
        random.manual_seed(5)
        weight = Parameter(np.zeros((6, 5) if name in ("eye_", "sparse_") else (6, 5, 3, 3), np.float32))
        getattr(init, name)(weight, *((0.25,) if name in ("fill_", "constant_", "sparse_") else ()))
        yield f"init {name}", [weight]
    layers = {
        "Linear": lambda: M.Linear(7, 5), "Conv2d": lambda: M.Conv2d(4, 6, 3), "grouped Conv2d": lambda: M.Conv2d(4, 6, 3, groups=2),
        "ConvTranspose2d": lambda: M.ConvTranspose2d(4, 6, 3), "Embedding": lambda: M.Embedding(11, 6), "LSTM": lambda: M.LSTM(3, 4),
        "BatchNorm2d": lambda: M.BatchNorm2d(5), "MultiHeadAttention": lambda: M.MultiHeadAttention(8, 2),
    }  # fmt: skip
    for name, layer in layers.items():
        random.manual_seed(6)
        yield f"init of {name}", [p for _, p in sorted(layer().named_parameters())]


# ---- networks and training ------------------------------------------------------------------------------------------------

TOKENS = (7,)
NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "gpt": ({"layers": 2, "width": 24, "heads": 3, "context": 16, "vocabulary": 50}, TOKENS),
    "lenet": ({}, (1, 32, 32)),
    "lstm": ({"vocabulary": 50, "embedding": 12, "hidden": 20}, TOKENS),
    "mlp": ({"sizes": (48, 33, 10)}, (3, 4, 4)),
    "mobilenet_v2": ({"width": 0.25, "num_classes": 7, "stages": [(1, 16, 1, 1), (6, 24, 2, 2)]}, (3, 32, 32)),
    "resnet": ({"depths": (1, 1), "width": 16, "num_classes": 7, "bottleneck": True}, (3, 32, 32)),
    "unet": ({"width": 8, "depth": 1}, (3, 16, 16)),
    "vit_tiny": ({"image": 32, "patch": 8, "width": 24, "heads": 3, "depth": 2, "num_classes": 7}, (3, 32, 32)),
}  # fmt: skip


def network(name: str) -> M.Module:
    """With matrices and filters from `Exact`, scaled by a power of two about as fans are; what else there is as it begins."""
    net = models.create(name, **NETWORKS[name][0])
    rng = Exact(8)
    for _, p in sorted(net.named_parameters()):
        if p.ndim > 1:
            scale = 2.0 ** -round(math.log2(max(math.prod(p.shape[1:]), 1)) / 2)
            p._reset(Tensor((rng.uniform(-1.5, 1.5, p.shape) * scale).astype(np.float32)))
    return net


def sample(name: str, batch: int = 3, seed: int = 9) -> Tensor:
    rng, shape = Exact(seed), (batch, *NETWORKS[name][1])
    return Tensor(rng.integers(0, 50, shape).astype(np.int32) if shape[1:] == TOKENS else rng.uniform(-2, 2, shape).astype(np.float32))


def _first(y):
    return y[0] if isinstance(y, tuple) else y


def of_network(name: str) -> Found:
    net, x = network(name).eval(), sample(name)
    yield f"network {name}", [_first(net(x)), _first(trace(net)(x))]
    net.train()
    random.manual_seed(2)  # of its dropout
    gm, opt = GradManager().attach(net.parameters()), optimizer.SGD(net.parameters(), lr=0.0625, momentum=0.875, weight_decay=2.0**-10)

    @trace
    def step(x):
        with gm:
            y = _first(net(x))
            loss = (y * y).mean() - F.logsoftmax(y, axis=1).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = [step(sample(name, seed=i)) for i in range(3)]
    yield f"network {name} after three steps", [*losses, *(t for _, t in sorted(net.named_tensors()))]


OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda ps: optimizer.SGD(ps, lr=0.1), "SGD momentum": lambda ps: optimizer.SGD(ps, lr=0.1, momentum=0.9),
    "SGD nesterov": lambda ps: optimizer.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda ps: optimizer.Adam(ps, lr=0.01, weight_decay=0.01), "AdamW": lambda ps: optimizer.AdamW(ps, lr=0.01),
    **{
        name: lambda ps, make=getattr(optimizer, name): make(ps, lr=0.01)
        for name in ("Adadelta", "Adagrad", "Adamax", "LAMB", "Lion", "NAdam", "RAdam", "RMSprop", "Rprop", "SparseAdam")
    },
}  # fmt: skip


def of_optimizer(name: str) -> Found:
    rng = Exact(4)
    w = Parameter(rng.uniform(-1, 1, (5, 9)).astype(np.float32))
    opt, gm = OPTIMIZERS[name]([w]), GradManager().attach([w])
    for _ in range(3):
        with gm:
            gm.backward((w * Tensor(rng.uniform(-2, 2, (5, 9)).astype(np.float32))).sum())
        optimizer.clip_grad_norm([w], 4.0)
        opt.step().clear_grad()
    yield f"optimizer {name} after three steps", [w]


def of_amp() -> Found:
    a, b = (Tensor(Exact(i).uniform(-1, 1, shape).astype(np.float32)) for i, shape in enumerate([(5, 601), (601, 33)]))
    yield "amp product of pairs", apply(REGISTRY["matmul"], [a, b], {"precision": "bfloat16"})
    for low in ("float16", "bfloat16"):
        net, x = network("lenet"), sample("lenet")
        gm, opt, scaler = GradManager().attach(net.parameters()), optimizer.SGD(net.parameters(), lr=0.0625), amp.GradScaler(init_scale=8.0)
        with amp.autocast(low_prec_dtype=low):
            y = net(x)
            with gm:
                loss = F.loss.cross_entropy(net(x), Tensor(np.array([1, 2, 3], np.int32)))
                scaler.backward(gm, loss)
        opt.step()
        yield f"amp {low} step", [y, loss, *(t for _, t in sorted(net.named_tensors()))]


def of_loops() -> Found:
    """Loops and branches, whose ops have no samples: their bodies are graphs."""
    w, u = (Tensor(Exact(i).uniform(-1, 1, (7, 7)).astype(np.float32)) for i in (1, 2))
    xs = Tensor(Exact(3).uniform(-1, 1, (5, 3, 7)).astype(np.float32))
    cell = lambda h, x: F.cond((h * x).sum() > 0, lambda h: F.tanh(x @ w + h @ u), lambda h: F.sigmoid(h @ u - x), h)
    by_scan = lambda xs: F.scan(lambda h, x: (cell(h, x), h), F.zeros_like(xs[0]), xs)
    grown = lambda xs: F.while_loop(lambda s: s.max() < 9, lambda s: s * 1.25 + F.abs(s), xs, max_iterations=9)
    for name, f in (("scan", by_scan), ("while", lambda xs: (grown(xs),))):
        y, pull = vjp(f, xs)
        yield f"loops {name}", [*y, *trace(f)(xs), *pull(tuple(F.cos(t) for t in y))]


def shipped() -> tuple[trace, np.ndarray]:
    """The model that tests compile ahead of time, traced, and its input."""
    return trace(network("lenet").eval(), capture_as_const=True), sample("lenet", 2).numpy()


def of_artifact() -> Found:
    run, x = shipped()
    yield "artifact lenet", [run(Tensor(x))]


# ---- all of them ----------------------------------------------------------------------------------------------------------


def groups() -> dict[str, Callable[[], Found]]:
    """What makes results, by name."""
    found: dict[str, Callable[[], Found]] = {}
    for name, op, case in op_cases():
        found[f"op {name}"] = lambda a=(name, op, case): of_op(*a)
    found |= {f"network {name}": lambda n=name: of_network(n) for name in NETWORKS}
    found |= {f"optimizer {name}": lambda n=name: of_optimizer(n) for name in OPTIMIZERS}
    found |= {"complex": of_complex, "random": of_random, "init": of_initialisers, "amp": of_amp}
    return found | {"loops": of_loops, "artifact": of_artifact}


def computed(which: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
    """The digests of all programs, or of those in some groups."""
    return {name: digest(out) for group, make in groups().items() if which(group) for name, out in make()}


def differences(got: dict[str, str], want: dict[str, str]) -> list[str]:
    """What differs, by name and kind of difference."""
    return (
        [f"{n}: {got[n]}, the file has {want[n]}" for n in sorted(got.keys() & want.keys()) if got[n] != want[n]]
        + [f"{n}: the file has it, and it is not computed" for n in sorted(want.keys() - got.keys())]
        + [f"{n}: it is not in the file" for n in sorted(got.keys() - want.keys())]
    )


def main(args: list[str]) -> int:
    from tengen.runtime import compile as compiler

    got = computed()
    print(f"{len(got)} digests, {compiler.compilations} programs compiled")
    if "--write" in args:
        FILE.write_text("{\n" + ",\n".join(f'"{n}": "{d}"' for n, d in sorted(got.items())) + "\n}\n")
    found = differences(got, json.loads(FILE.read_text()))
    print("\n".join(found) or f"as in {FILE.name}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
