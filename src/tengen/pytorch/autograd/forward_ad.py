"""`torch.autograd.forward_ad`: derivatives along a direction, of what is computed in a block.

A derivative is had from the recorded calls, by a walk back and one through that walk (`tengen.autodiff.jvp`): it costs about three times the
function, and every operation that has a gradient has it.

>>> from tengen.pytorch import tensor
>>> with dual_level():
...     x = make_dual(tensor([3.0]), tensor([1.0]))
...     y, slope = unpack_dual(x * x)
>>> y.tolist(), slope.tolist()
([9.0], [6.0])
"""

from __future__ import annotations

from typing import Any

from tengen.base.errors import GradientError, ShapeError
from tengen.base.record import NamedTuple
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.nodes import Level, node_of
from tengen.tensor.tape import cut, gradients


class UnpackedDualTensor(NamedTuple):
    """primal: the values. tangent: how they change; None where they do not depend on a dual tensor."""

    primal: Tensor
    tangent: Tensor | None


class _Block:
    """A level: what records, and the places of the dual tensors with their tangents."""

    def __init__(self) -> None:
        self.level = Level()
        self.duals: list[tuple[Any, Tensor]] = []


_blocks: list[_Block] = []


def enter_dual_level() -> int:
    """Begins a level. Returns its number. Errors: GradientError inside of another one"""
    if _blocks:
        raise GradientError("dual_level() inside of another one; help: nest torch.func.jvp")
    _blocks.append(_Block())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level: dual tensors of it are plain ones from now on."""
    _blocks.pop().level.end()


class dual_level:
    """A block in which `make_dual` may be called."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor with a direction in which it moves, a tensor of its shape and dtype.

    Errors: GradientError outside of a level and for tensors that are not of floats, ShapeError for another shape
    """
    if not _blocks:
        raise GradientError("make_dual() outside of a level; help: with torch.autograd.forward_ad.dual_level():")
    if not tensor.dtype.is_inexact or tangent.dtype is not tensor.dtype:
        raise GradientError(f"make_dual: {tensor._layout.type!r} along {tangent._layout.type!r}; help: both of one dtype of floats")
    if tensor.shape != tangent.shape:
        raise ShapeError(f"make_dual: the tangent has the shape {tangent.shape}, the tensor {tensor.shape}; help: they must be equal")
    block = _blocks[-1]
    dual = block.level.copy(tensor)
    block.duals.append((node_of(dual), tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(The values, their derivative along the directions of all dual tensors of the level together)."""
    if not _blocks:
        return UnpackedDualTensor(tensor, None)
    block = _blocks[-1]
    plain = cut([tensor], block.level)[0]
    if not tensor.dtype.is_inexact or node_of(tensor)[0] is None or not block.duals:
        return UnpackedDualTensor(plain, None)
    with Level() as around:
        weight = around.copy(REGISTRY["zeros_like"](tensor._off_tape()))
        place = node_of(weight)
        found = gradients([tensor], [weight], [place for place, _ in block.duals], block.level, True)
        pairs = [(g, tangent) for g, (_, tangent) in zip(found, block.duals) if g is not None]
        if not pairs:
            return UnpackedDualTensor(plain, None)
        on = [(g, t) for g, t in pairs if node_of(g)[0] is not None]
        slope = gradients([g for g, _ in on], [t for _, t in on], [place], around)[0] if on else None
    return UnpackedDualTensor(plain, REGISTRY["zeros_like"](plain) if slope is None else slope)


__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]
