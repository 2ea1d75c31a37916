"""Elementwise functions: every op of the elementwise families, as it is defined there."""

from __future__ import annotations

from tengen.ops import activation, division, elementwise, logic
from tengen.ops.define import Op

__all__ = []
for _family in (elementwise, division, logic, activation):
    for _op in list(vars(_family).values()):
        if isinstance(_op, Op) and _op.fn.__module__ == _family.__name__:
            globals()[_op.name] = _op.call
            __all__.append(_op.name)
__all__ = sorted(set(__all__))
