"""Groups of parameters: which ones get a weight decay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tengen.tensor import Parameter

if TYPE_CHECKING:
    from tengen.module import Module


def decay_groups(net: Module, weight_decay: float, skip: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The usual two groups for an optimizer: weights of products and convolutions (and embeddings) with `weight_decay`, biases and
    the parameters of norms with none. PyTorch's habit ``p.ndim <= 1`` does not find those here, since shapes are MegEngine's:
    biases of convolutions and norms of images are (1, C, 1, 1).

    A module says by its attribute `weights_decay` whether its parameters other than biases decay; where it is None, those do that
    have at least two extents besides 1. What has `bias` in its name never does.

    Args:
        skip: names, or last parts of names, of further parameters that get no decay: ``"position"``, ``"head.weight"``.

    Errors: ValueError where a name of `skip` is no parameter's, or the net has no parameters.

    >>> from tengen import module as M, optimizer
    >>> net = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.Linear(8, 1))
    >>> [len(g["params"]) for g in optimizer.decay_groups(net, 0.01)]
    [2, 4]
    """
    unused, decayed, plain = set(skip), [], []
    seen: set[int] = set()
    for prefix, m in net.named_modules():
        for own, p in m.named_parameters(recursive=False):
            if id(p) in seen:
                continue
            seen.add(id(p))
            name = f"{prefix}.{own}" if prefix else own
            named = {s for s in skip if name == s or name.endswith(f".{s}")}
            unused -= named
            (decayed if not named and _decays(m, own, p) else plain).append(p)
    if not seen:
        raise ValueError(f"decay_groups: {type(net).__name__} has no parameters")
    if unused:
        raise ValueError(f"decay_groups: no parameter is called {sorted(unused)}; help: names are those of net.named_parameters()")
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]


def _decays(m: Module, name: str, p: Parameter) -> bool:
    if "bias" in name.rpartition(".")[2]:
        return False
    if m.weights_decay is not None:
        return m.weights_decay
    return sum(d != 1 for d in p.shape) >= 2
