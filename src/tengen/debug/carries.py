"""Which operands' NaNs and infinities are sure to be seen in a result: if an element of the operand is not finite, some element of the
result is not. What is read by such a node needs no check of its own, as the node's result has one.

inf * 0, inf - inf and 0 / 0 are NaN, so sums and products carry both; relu, exp, a maximum or a choice may hide an infinity.
"""

from __future__ import annotations

from tengen.ir.graph import Graph, Node, Value
from tengen.loops.lang import as_int

ALL = frozenset(
    "add sub mul fma neg abs square sqrt astype copy sum mean matmul reshape permute broadcast_to".split()
)  # whose every operand is carried


def carried(n: Node, i: int) -> set[int]:
    """Positions of the results of a node in which what is not finite of operand i is seen."""
    if n.op == "fused":
        body: Graph = n.attrs["body"]
        return {k for k, v in enumerate(body.outputs) if v in _reached(body, body.inputs[i])}
    return {0} if _carries(n, i) else set()


def _reached(body: Graph, start: Value) -> set[Value]:
    found = {start}
    for m in body.nodes:
        if any(v in found and _carries(m, i) for i, v in enumerate(m.inputs)):
            found.add(m.outputs[0])
    return found


def _carries(n: Node, i: int) -> bool:
    if len(n.outputs) != 1 or not n.outputs[0].type.dtype.is_float or any(as_int(d) in (0, None) for d in n.outputs[0].type.shape):
        return False
    if n.op in ALL:
        return True
    if n.op == "div":
        return i == 0
    if n.op in ("conv", "conv_weight_grad", "conv_transposed"):
        return _convolution_carries(n, i)
    return False


def _convolution_carries(n: Node, i: int) -> bool:
    """Every pixel of an image is in some window, and every pixel of results reaches into the image."""
    a = n.attrs
    first, second = n.inputs[0], n.inputs[1]
    assert first is not None and second is not None
    if i > 1:
        return False
    if n.op == "conv_transposed":
        extents = second.type.shape[-len(a["stride"]) :]
        return i == 0 and all(p <= d * (k - 1) for p, d, k in zip(a["padding"], a["dilation"], extents))
    results = n.outputs[0] if n.op == "conv" else second
    extents = (second if n.op == "conv" else n.outputs[0]).type.shape[-len(a["stride"]) :]
    reaches = all(p <= d * (k - 1) for p, d, k in zip(a["padding"], a["dilation"], extents))
    if i == 1:
        return n.op == "conv_weight_grad" and reaches
    covers = (
        d == 1 and s <= k and (o - 1) * s + k - p >= size
        for d, s, k, p, o, size in zip(a["dilation"], a["stride"], extents, a["padding"], results.type.shape[2:], first.type.shape[2:])
    )
    return all(covers)
