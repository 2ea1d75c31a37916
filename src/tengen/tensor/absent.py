"""Tensors whose memory is away, and comes back when an op, or a gradient, asks for their values.

In: tensors and nodes of the tape that hold memory which somebody else can give again. Out: the same without it. What stands in
for the memory is an `Absent` layout, which knows whom to ask; a call of an op finds no plan for it, and settles it first
(`tensor.settled`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tengen.compiler.plans import Layout
from tengen.tensor.elsewhere import Placed
from tengen.tensor.nodes import node_of
from tengen.tensor.tensor import Tensor


class Absent:
    """The layout of a tensor whose memory is away.

    Args: layout: the tensor's own. fetch: gives the memory. type, shape, dtype, size, strides, device, contiguous: as of `layout`.
    """

    __slots__ = ("layout", "fetch", "shape", "dtype", "type", "size", "strides", "device", "contiguous", "graph")

    def __init__(self, layout: Layout, fetch: Callable[[], Any]):
        self.layout, self.fetch, self.graph = layout, fetch, None
        self.shape, self.dtype, self.type, self.size = layout.shape, layout.dtype, layout.type, layout.size
        self.strides, self.device, self.contiguous = layout.strides, layout.device, layout.contiguous

    def settle(self, t: Tensor) -> bool:
        """Gives the tensor its memory back."""
        data = self.fetch()
        t._data, t._layout = data, self.layout
        return True

    def __repr__(self) -> str:
        return f"{self.layout!r}, absent"


def let_go(t: Tensor, fetch: Callable[[], Any]) -> None:
    """A tensor's memory goes; `fetch` will give it again. Its place on the tape stays."""
    t._data, t._layout = None, Absent(t._layout.layout if type(t._layout) is Absent else t._layout, fetch)


def bring(t: Tensor, value: Tensor) -> None:
    """A tensor has the memory of another one from now on. Its place on the tape stays."""
    t._data, t._layout = value._data, value._layout


def forget(outputs: Sequence[Tensor], since: int, fetches: Mapping[int, Callable[[], Any]]) -> None:
    """Calls that were recorded since then, and led to these results, let go of what they hold for their gradients: of the memory of which
    `fetches` has the identity. Memory that an offset is added to stays."""
    stack = [n for t in outputs if (n := node_of(t)[0]) is not None and n.order >= since]
    seen = {id(n) for n in stack}
    while stack:
        node = stack.pop()
        for i, s in enumerate(node.saved):
            if s is not None and type(s[1]) is Placed:
                if (fetch := fetches.get(id(s[0]._data))) is not None:
                    let_go(s[0], fetch)
            elif s is not None and (fetch := fetches.get(id(s[0]))) is not None:
                node.saved[i] = (None, Absent(s[1], fetch), s[2])
        for m in node.parents():
            if id(m) not in seen and m.order >= since:
                seen.add(id(m))
                stack.append(m)
