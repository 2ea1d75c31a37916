"""The form of a kernel: a key that is equal for kernels which differ in nothing but their own name.

In: a kernel. Out: nested tuples of its expressions, which are hash-consed, so that comparing them costs nothing. It tells apart
what the kernel's text tells apart, and is made in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Hashable

from tengen.loops.statements import External, For, If, Kernel, Load, Prefetch, Store


def form(kernel: Kernel) -> Hashable:
    """The kernel's form. Buffers are their names, of which a kernel has each once."""
    buffers = tuple([(b.role, b.name, b.dtype, b.size) for b in (*kernel.buffers, *kernel.scratch)])
    return buffers, len(kernel.buffers), tuple(kernel.ints), kernel.pieces, kernel.piece, _block(kernel.body)


def _block(body: list) -> Hashable:
    return tuple([_statement(s) for s in body])


def _statement(s) -> Hashable:
    kind = type(s)
    if kind is For:
        return kind, s.var, s.start, s.stop, s.step, _block(s.body)
    if kind is If:
        return kind, s.cond, _block(s.body), _block(s.orelse)
    if kind is Load:
        return kind, s.var, s.buffer.name, s.index, s.count, s.other
    if kind is Store:
        return kind, s.buffer.name, s.index, s.value, s.count, s.stream
    if kind is Prefetch:
        return kind, s.buffer.name, s.index
    if kind is External:
        return kind, s.var, s.symbol, tuple([(b.name, i) for b, i in s.places]), s.shapes, s.numbers
    return kind, s.var, s.value
