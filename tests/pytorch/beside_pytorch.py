"""Calls made by PyTorch and by `tengen.pytorch` with the same values, and what differs; `pytorch_samples.py` has the calls."""

from __future__ import annotations

import builtins
import collections
import contextlib
import traceback
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree

import tengen.pytorch as ours
from tengen import Tensor
from tengen.base.errors import TengenError

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "complex64": 5e-5, "complex128": 1e-11, "float16": 4e-3, "bfloat16": 3e-2}
# what is found, the worst first
CLASSES = (
    "numbers", "gradient", "not raised", "dtype", "shape", "structure", "crash", "refused", "missing", "other error", "hang", "not compared",
)  # fmt: skip


class Found(NamedTuple):
    """A difference: its class, the call, and what was seen."""

    kind: str
    call: str
    text: str


class Differs(AssertionError):
    """Raised by comparisons. kind: one of CLASSES."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


# ---- values of one library as the other's ------------------------------------------------------------------------------------


def array_of(x: torch.Tensor) -> np.ndarray:
    """The values of PyTorch's tensor, with its strides where they are at least 0."""
    x = x.detach().resolve_conj().resolve_neg()
    x = torch.zeros_like(x) if x._is_zerotensor() else x
    return x.float().numpy().astype(ml_dtypes.bfloat16) if x.dtype is torch.bfloat16 else x.numpy()


def tensor_of(x: torch.Tensor) -> Tensor:
    """PyTorch's tensor as Tengen's: a copy, whose axes lie in memory in the order that PyTorch's do."""
    order = sorted(range(x.ndim), key=lambda i: -x.stride(i))
    array = np.ascontiguousarray(array_of(x).transpose(order))
    made = Tensor(array.reshape([x.shape[i] for i in order]), dtype=str(array.dtype))
    if order != sorted(order):
        made = made.transpose([order.index(i) for i in range(x.ndim)])
    elif x.ndim and x.shape[-1] > 1 and not x.is_contiguous():
        wide = np.repeat(array, 2, -1)
        made = Tensor(wide, dtype=str(array.dtype))[..., ::2]
    return made


def as_ours(value: Any, leaves: list | None = None) -> Any:
    """An argument of PyTorch's as `tengen.pytorch` takes it. leaves: gets (PyTorch's, Tengen's) tensors that require gradients."""
    if isinstance(value, torch.Tensor):
        if leaves is not None and (known := [mine for theirs, mine in leaves if theirs is value]):
            return known[0]
        made = tensor_of(value)
        if leaves is not None and value.requires_grad:
            made = made.detach().requires_grad_() if made.is_leaf else made
            leaves.append((value, made))
        return made
    if isinstance(value, torch.dtype):
        return getattr(ours, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        return getattr(ours, str(value).removeprefix("torch."), str(value))
    if isinstance(value, slice):
        return slice(*(as_ours(v, leaves) for v in (value.start, value.stop, value.step)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(as_ours(v, leaves) for v in value)
    if isinstance(value, (list, tuple)):
        made_of = tuple if isinstance(value, tuple) else list
        return made_of(as_ours(v, leaves) for v in value)
    if isinstance(value, dict):
        return {k: as_ours(v, leaves) for k, v in value.items()}
    if isinstance(value, torch.nn.Module):
        return module_of(value)
    if callable(value) and str(getattr(value, "__module__", "")).startswith(("torch.nn.functional", "torch._C._nn")):
        return at_path(ours, f"nn.functional.{value.__name__}")
    return value


def module_of(net: torch.nn.Module) -> Any:
    """Ours for a module of PyTorch's that has no parameters, or that transformers are made of."""
    if isinstance(net, (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)):
        attention, linear = net.self_attn, net.linear1
        made = at_path(ours, f"nn.{type(net).__name__}")(
            attention.embed_dim, attention.num_heads, linear.out_features, net.dropout.p, as_ours(net.activation), net.norm1.eps,
            attention.batch_first, net.norm_first, linear.bias is not None,
        )  # fmt: skip
        made.to(as_ours(linear.weight.dtype)).load_state_dict({k: tensor_of(v) for k, v in net.state_dict().items()})
        return made
    return at_path(ours, f"nn.{type(net).__name__}")()


def at_path(root: Any, path: str) -> Any:
    """root.a.b for "a.b". Errors: Differs of what is missing"""
    at = root
    for name in path.split("."):
        try:
            at = getattr(at, name)
        except AttributeError:
            raise Differs("missing", path) from None
    return at


def shown(value: Any) -> str:
    """A short text of an argument: tensors by dtype, shape and, if few, values."""
    if isinstance(value, (torch.Tensor, Tensor)):
        kind = str(value.dtype).removeprefix("torch.")
        few = str(value.tolist()) if 0 < value.numel() <= 4 else ""
        strides = "" if isinstance(value, Tensor) or value.is_contiguous() else f" strides {value.stride()}"
        return f"{kind}{list(value.shape)}{strides}{few}"
    if isinstance(value, (list, tuple)):
        return f"{'[' if isinstance(value, list) else '('}{', '.join(map(shown, value))}{']' if isinstance(value, list) else ')'}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={shown(v)}" for k, v in value.items())
    return repr(value)


# ---- comparisons -------------------------------------------------------------------------------------------------------------


def compare(want: Any, have: Any, elementwise: bool = False, values: bool = True, what: str = "numbers") -> None:
    """Raises Differs unless both have the same structure, dtypes, shapes and, with `values`, numbers within rounding.

    elementwise: each element by its own size; else an element may be off by the rounding of the largest.
    """
    if isinstance(want, (list, tuple)) and not isinstance(want, torch.Size):
        if not isinstance(have, (list, tuple)) or len(want) != len(have):
            here = len(have) if isinstance(have, (list, tuple)) else type(have).__name__
            raise Differs("structure", f"{len(want)} results of PyTorch, here {here}")
        for field in getattr(want, "_fields", ()):
            if not hasattr(have, field):
                raise Differs("structure", f"PyTorch's result has the field {field}")
        for i, (w, h) in enumerate(zip(want, have)):
            try:
                compare(w, h, elementwise, values, what)
            except Differs as e:
                raise Differs(e.kind, f"result {i}: {e}") from None
        return
    if isinstance(want, dict):
        if not isinstance(have, dict) or list(want) != list(have):
            raise Differs("structure", f"a dict of {list(want)} in PyTorch, here {type(have).__name__}")
        return compare(list(want.values()), list(have.values()), elementwise, values, what)
    if not isinstance(want, torch.Tensor):
        plain = str(want).removeprefix("torch.") if isinstance(want, (torch.dtype, torch.device, torch.layout)) else want
        other = str(have) if isinstance(plain, str) else have
        same = other == plain or (plain != plain and other != other)
        if type(want) in (bool, int, float, complex, str, torch.Size, type(None)) and not same:
            raise Differs(what, f"{other!r}, PyTorch's {plain!r}")
        return
    if not isinstance(have, Tensor):
        raise Differs("structure", f"a {type(have).__name__}, PyTorch's a tensor")
    a, b = array_of(want), have.detach().numpy()
    if a.shape != b.shape:
        raise Differs("shape", f"shape {b.shape}, PyTorch's {a.shape}")
    if a.dtype != b.dtype:
        raise Differs("dtype", f"dtype {b.dtype}, PyTorch's {a.dtype}")
    if values:
        compare_arrays(a, b, elementwise, what)


def compare_arrays(a: np.ndarray, b: np.ndarray, elementwise: bool, what: str) -> None:
    """The numbers of two arrays of one shape and dtype; a is PyTorch's."""
    name = a.dtype.name
    if name not in TOLERANCE:
        bad = a != b
    else:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b, tolerance = a.astype(wide), b.astype(wide), TOLERANCE[name]
        finite = np.isfinite(a)
        scale = tolerance * 1e-2 if elementwise else tolerance * max(1.0, float(np.abs(a[finite]).max(initial=0)))
        bad = ~np.isclose(b, a, rtol=tolerance, atol=scale, equal_nan=True)
        if a.dtype.kind == "c":  # a NaN is one whatever part has it
            bad &= ~(np.isnan(a) & np.isnan(b))
    if bad.any():
        at = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
        raise Differs(what, f"{int(bad.sum())} of {a.size} elements of {name}, first at {at}: {b[at]!r}, PyTorch's {a[at]!r}")


def refusal(error: Exception) -> Differs:
    """The class of an exception of ours for a call that PyTorch takes."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('/tengen/')[2]}:{last.lineno}"
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:260]}"
    if isinstance(error, TengenError) or type(error) in (ValueError, NotImplementedError):
        return Differs("refused", text)
    if isinstance(error, TypeError) and "argument" in str(error):
        return Differs("refused", text)
    return Differs("crash", f"{text} at {where}")


def make(call: Any) -> Any:
    """What call() gives, of ours. Errors: Differs for what it raises"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (Differs, TimeoutError):
            raise
        except Exception as e:
            raise refusal(e) from e


def loss_of(library: Any, made: Any, weights: list[np.ndarray]) -> Any:
    """The sum of all results of floats, times fixed weights. weights: is filled by the first of the two libraries."""
    total = None
    for i, t in enumerate(pytree.tree_leaves(made)):
        if not isinstance(t, (torch.Tensor, Tensor)) or "float" not in str(t.dtype) and "complex" not in str(t.dtype):
            weights += [np.zeros(())] * (len(weights) == i)
            continue
        if len(weights) == i:
            weights.append(np.random.default_rng(i).uniform(0.5, 1.5, tuple(t.shape)))
        if not t.requires_grad:
            continue
        w = library.from_numpy(weights[i]).to(t.dtype)
        part = (t * w).sum()
        part = part.real + 0.5 * part.imag if "complex" in str(part.dtype) else part
        total = part if total is None else total + part
    return total


def gradients_differ(pairs: list, want_loss: Any, made: Any, weights: list[np.ndarray]) -> None:
    """Raises Differs unless the gradients of the leaves are equal. pairs: (PyTorch's leaf, Tengen's)."""
    leaves = [w for w, _ in pairs]
    try:
        want = torch.autograd.grad(want_loss, leaves, allow_unused=True)
    except RuntimeError:  # no derivative in PyTorch
        return

    def pulled() -> None:
        loss = loss_of(ours, made, weights)
        if loss is None:
            if any(g is not None and bool((g != 0).any()) for g in want):
                raise Differs("gradient", "no result requires a gradient here")
            return
        loss.backward()

    make(pulled)
    for i, (g, (leaf, mine)) in enumerate(zip(want, pairs)):
        have = mine.grad
        expected = torch.zeros_like(leaf) if g is None else g.to_dense() if g.layout is not torch.strided else g
        a = array_of(expected)
        b = np.zeros_like(a) if have is None else have.detach().numpy()
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Differs("gradient", f"of leaf {i}: {b.dtype}{b.shape}, PyTorch's {a.dtype}{a.shape}")
        try:
            compare_arrays(a, b, False, "gradient")
        except Differs as e:
            raise Differs("gradient", f"of leaf {i} {shown(leaf)[:60]}: {e}") from None


class Report:
    """Collects differences by name, and writes them. Args: expected: gives the reason of a difference that is meant, or None. path: a file."""

    def __init__(self, expected: Any = None, path: str | None = None):
        self.path = path
        self.found: dict[str, list[Found]] = collections.defaultdict(list)
        self.ran: collections.Counter[str] = collections.Counter()
        self.expected = expected or (lambda name, found: None)
        self.meant: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def case(self, name: str, call: str) -> Any:
        """A comparison of one call; what differs is kept."""
        self.ran[name] += 1
        try:
            yield
        except Differs as e:
            self.add(name, Found(e.kind, call, str(e)))
        except TimeoutError:
            self.add(name, Found("hang", call, "longer than the limit"))
            raise

    def add(self, name: str, found: Found) -> None:
        """Keeps a difference, unless it is meant."""
        reason = self.expected(name, found)
        if reason is None:
            self.found[name].append(found)
        else:
            self.meant[reason] += 1

    def write(self) -> None:
        """The report so far, to the file."""
        if self.path:
            with open(self.path, "w", encoding="utf-8") as f:
                f.write("\n".join(self.lines()) + "\n")

    def lines(self) -> list[str]:
        """The report: each class with its names, how many calls differ, and one example of each."""
        by_kind: dict[str, list[str]] = collections.defaultdict(list)
        for name, all_of_it in self.found.items():
            for kind in CLASSES:
                these = [f for f in all_of_it if f.kind == kind]
                if these:
                    texts = list(dict.fromkeys(f"      {f.call[:230]}\n        {f.text[:330]}" for f in these))
                    by_kind[kind].append("\n".join([f"  {name}: {len(these)} of {self.ran[name]} calls", *texts[:3]]))
        made = []
        for kind in CLASSES:
            if by_kind[kind]:
                made += [f"== {kind}: {len(by_kind[kind])} names", *by_kind[kind]]
        made += [f"meant: {n} times: {reason}" for reason, n in self.meant.items()]
        total = builtins.sum(self.ran.values())
        made.append(f"{total} calls of {len(self.ran)} names; " + ", ".join(
            f"{kind} {len(by_kind[kind])}" for kind in CLASSES if by_kind[kind]) + f"; clean {len(self.ran) - len(self.found)}")
        return made
