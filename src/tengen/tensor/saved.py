"""What the tape saves for gradients, kept by functions of the user's: PyTorch's `saved_tensors_hooks`.

In: nodes as they are made, and (pack, unpack). Out: nodes that hold what pack made of their operands and results; when a gradient needs
one, unpack makes the tensor again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from tengen.base.errors import GradientError
from tengen.tensor import nodes
from tengen.tensor.nodes import TapeNode
from tengen.tensor.tensor import Buffer, Tensor, tensor_over

Pack, Unpack = Callable[[Tensor], Any], Callable[[Any], Tensor]


class Packed:
    """What stands in a node in the place of a value's memory."""

    __slots__ = ("content", "unpack")

    def __init__(self, content: Any, unpack: Unpack):
        self.content, self.unpack = content, unpack

    def memory(self, layout: Any) -> tuple[Any, Any]:
        """The value's memory and layout. Errors: GradientError where unpack gives a tensor of another shape or dtype, or none"""
        made = self.unpack(self.content)
        if not isinstance(made, Tensor) or made.shape != layout.shape or made.dtype is not layout.dtype:
            found = repr(made._layout.type) if isinstance(made, Tensor) else f"a {type(made).__name__}"
            raise GradientError(f"saved_tensors_hooks: {layout.type!r} was packed, and unpack gave {found}; help: the same shape and dtype")
        return made._data, made._layout


packing: dict[int, list[tuple[Pack, Unpack]]] = {}  # thread -> the pairs of functions in force, the innermost last


def begin(pack: Pack, unpack: Unpack) -> None:
    """From now on the calling thread's nodes hold what pack makes of what they save."""
    if not nodes.unpacking:
        nodes.unpacking.append(unpacked)
    if not packing:
        nodes.watch(_pack)
    packing.setdefault(get_ident(), []).append((pack, unpack))


def end() -> None:
    """Takes back the last `begin` of the calling thread."""
    mine = packing[get_ident()]
    mine.pop()
    if not mine:
        del packing[get_ident()]
    if not packing:
        nodes.unwatch(_pack)


def kept(t: Tensor) -> Any:
    """What is kept of a tensor: itself, or what the pack that is in force makes of it, which computes without being watched."""
    pairs = packing.pop(get_ident(), None)
    if not pairs:
        return t
    try:
        pack, unpack = pairs[-1]
        return Packed(pack(t.detach()), unpack)
    finally:
        packing[get_ident()] = pairs


def _pack(node: TapeNode) -> None:
    if get_ident() not in packing or node.op is None or node.op.kind == "view":  # a view's gradient needs no values
        return
    node.saved = [(kept(tensor_over(*s[:2])), *s[1:]) if s is not None and type(s[0]) is Buffer else s for s in node.saved]
    for o in node.outputs or ():
        if type(o._data) is Buffer:
            o._data = kept(tensor_over(o._data, o._layout))


def unpacked(node: TapeNode) -> tuple[list, tuple | None]:
    """A node's saved operands and results; those that were packed are made again."""
    saved = [s if s is None or type(s[0]) is not Packed else (*s[0].memory(s[1]), s[2]) for s in node.saved]
    made = [o if type(o._data) is not Packed else tensor_over(*o._data.memory(o._layout)) for o in node.outputs or ()]
    return saved, tuple(made) if node.outputs else node.outputs
