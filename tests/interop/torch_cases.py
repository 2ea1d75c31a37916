"""Calls of PyTorch's operators beside Tengen's functions for them.

`python tests/interop/torch_cases.py` runs PyTorch's own samples of its operators (`torch.testing`'s op_db) and compares every call of an op of
the table that they come down to.
"""

import collections
import sys
import traceback
import types
import unittest
import warnings

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tengen import Tensor
from tengen.autodiff import vjp
from tengen.interop.torch.ops import OPS
from tengen.interop.torch.reader import array_of, bound, op_name, plain
from tengen.interop.torch.registry import SCOPED

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
RANDOM = (
    "rand randn randperm bernoulli native_dropout randint dropout rand_like randn_like empty new_empty empty_like empty_strided"
).split()  # or not set
ROUNDING = {"float32": 2e-5, "float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}


def as_tengen(v):
    """An argument of PyTorch's as Tengen's functions take it."""
    if isinstance(v, torch.Tensor):
        return Tensor(array_of(v))
    if isinstance(v, Tensor):
        return v
    if isinstance(v, (list, tuple)):
        return [as_tengen(e) for e in v]
    return plain(None, v)


def call(target, args, kwargs, wanted=range(8)):
    """What Tengen makes of a call of a PyTorch op."""
    args, kwargs = bound(target, args, kwargs)
    args, kwargs = [as_tengen(v) for v in args], {k: as_tengen(v) for k, v in kwargs.items()}
    f = OPS[op_name(target)]
    return f(*args, **kwargs, **({"wanted": frozenset(wanted)} if f.wants else {}))


def compare(want, have, rounding=None):
    """Shapes and dtypes are equal, values within rounding: of the largest element's size, by as many roundings as a sum has."""
    if isinstance(want, (list, tuple)):
        assert len(want) == len(have), (len(want), len(have))
        for w, h in zip(want, have):
            compare(w, h, rounding)
        return
    if not isinstance(want, torch.Tensor):
        assert want == have or (want is None), (want, have)
        return
    assert isinstance(have, Tensor), type(have)
    a, b = array_of(want), have.numpy()
    assert a.dtype == b.dtype, f"dtype {b.dtype}, PyTorch's {a.dtype}"
    assert a.shape == b.shape, f"shape {b.shape}, PyTorch's {a.shape}"
    if a.dtype.kind not in "fcV" and a.dtype.name != "bfloat16":
        assert (a == b).all(), f"{(a != b).sum()} of {a.size} elements differ: {b.ravel()[:8]}, PyTorch's {a.ravel()[:8]}"
        return
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    tolerance = rounding or ROUNDING[have.dtype.name]
    finite = np.isfinite(a)
    scale = max(1.0, float(np.abs(a[finite]).max(initial=0)))
    np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def gradients(target, args, kwargs):
    """(PyTorch's, Tengen's) gradients of the first output of a call, weighted by chance, for each tensor of floats among the arguments; None
    where PyTorch has none."""
    leaf = lambda a: a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
    given = [[leaf(b) for b in a] if isinstance(a, list) else leaf(a) for a in args]
    xs = [b for a in given for b in (a if isinstance(a, list) else [a]) if isinstance(b, torch.Tensor) and b.requires_grad]
    try:
        out = target(*given, **kwargs)
        out = out[0] if isinstance(out, (list, tuple)) else out
        if not xs or not isinstance(out, torch.Tensor) or not out.requires_grad:
            return None
        weight = torch.randn_like(out)
        want = torch.autograd.grad(out, xs, weight, allow_unused=True)
    except (RuntimeError, NotImplementedError):  # ops without a derivative of their own
        return None

    def first(*tensors):
        rest = iter(tensors)
        take = lambda a: next(rest) if isinstance(a, torch.Tensor) and a.requires_grad else a
        made = call(target, [[take(b) for b in a] if isinstance(a, list) else take(a) for a in given], kwargs, [0])
        return made[0] if isinstance(made, (list, tuple)) else made

    _, pull = vjp(first, *(as_tengen(x) for x in xs))
    return [torch.zeros_like(x) if g is None else g for g, x in zip(want, xs)], list(pull(as_tengen(weight)))


class Beside(TorchDispatchMode):
    """While it is entered, each call of an op of the table is made by Tengen too, and compared."""

    def __init__(self):
        super().__init__()
        self.seen = collections.Counter()
        self.wrong = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = op_name(func)
        f = OPS.get(name)
        if f is None or f in SCOPED or name.partition(".")[2].partition(".")[0] in RANDOM or func._schema.is_mutable:
            return func(*args, **kwargs)
        leaves = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        if any(v.layout != torch.strided or v.dtype not in DTYPES or v.numel() > 20_000 for v in leaves):
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        made = pytree.tree_leaves(out)
        if any(isinstance(v, torch.Tensor) and v.dtype not in DTYPES for v in made):
            return out
        self.seen[name] += 1
        if self.seen[name] > 40:
            return out
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if name.startswith("aten._embedding_bag"):  # what else it returns is for PyTorch's own gradient
                    compare(out[0], call(func, args, kwargs, [0])[0])
                else:
                    compare(out, call(func, args, kwargs))
        except Exception as e:
            shown = ", ".join(f"{v.dtype}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v) for v in args)
            self.wrong.setdefault(name, []).append((f"{name}({shown}, {kwargs})", e, traceback.format_exc()))
        return out


def main(names):
    """Runs the samples of op_db and prints what differs."""
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # of which the samples need nothing
    from torch.testing._internal.common_methods_invocations import op_db

    beside, skipped = Beside(), 0
    for info in op_db:
        if names and info.name not in names:
            continue
        if info.name.startswith(("linalg", "torch.", "special", "sparse", "_refs", "svd", "logcumsumexp")) and not names:
            continue
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            try:
                samples = list(info.sample_inputs("cpu", dtype))[:6]
            except Exception:
                skipped += 1
                continue
            for sample in samples:
                try:
                    with beside, warnings.catch_warnings(), torch.no_grad():
                        warnings.simplefilter("ignore")
                        info.op(sample.input, *sample.args, **sample.kwargs)
                except Exception:
                    skipped += 1
    for name, found in sorted(beside.wrong.items()):
        what, e, trace = found[0]
        print(f"{name}: {len(found)} of {min(40, beside.seen[name])} wrong, as {what[:200]}")
        print(f"    {type(e).__name__}: {' '.join(str(e).split())[:300]}")
        if names:
            print(trace)
    print(
        f"{sum(beside.seen.values())} calls of {len(beside.seen)} ops; {len(beside.wrong)} ops differ; {skipped} samples not run"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
