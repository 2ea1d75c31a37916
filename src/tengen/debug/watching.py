"""`watch`: a value, each time that it is computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import ArgumentError, UsageWarning, user_line
from tengen.compiler.arrays import dense, new_buffer
from tengen.debug.replay import Place, inputs_of, of_a_call, replay
from tengen.ops.calls import Run
from tengen.ops.define import Op, dispatch
from tengen.tensor import Tensor, tracing
from tengen.tensor.executable import Executable
from tengen.tensor.looking import looking
from tengen.tensor.methods import see_operators, unsee_operators
from tengen.tensor.tensor import Buffer

Callback = Callable[[str, Tensor], Any]


def _print(label: str, value: Tensor) -> None:
    print(f"{label}: {value!r}")


def _is_meant(name: str, op: str, where: str | None) -> bool:
    """Whether a name is that of an op, or of the line where it is called."""
    return op == name or (":" in name and where is not None and (where == name or where.endswith("/" + name)))


@contextmanager
def watch(name: str, callback: Callback | None = None) -> Iterator[list[tuple[str, Tensor]]]:
    """In this block, a value is seen each time that it is computed: eagerly, in traced programs and in loops.

    Args:
        name: the name of an op ("softmax", "matmul"), or a line ("model.py:42"), whose results are seen. callback: is given a label, the
            op with its line, and the value; it may raise. Default: they are printed.

    Gives a list of what was seen: (label, value). Where that is nothing, a UsageWarning says so at the end of the block.

    Programs run op by op in the block, with the bits that they have as one program, and much slower. A composite has no node in a
    program: its parts are seen under their own names.

    Errors: ArgumentError for a name that is none.

    >>> from tengen import Tensor, debug, functional as F, trace
    >>> square_root = trace(lambda x: F.sqrt(x + 1) * 2)
    >>> with debug.watch("sqrt", lambda label, value: None) as seen:
    ...     square_root(Tensor([3.0]))
    Tensor([4.], dtype=float32)
    >>> [value.tolist() for _, value in seen]
    [[2.0]]
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"watch({name!r}): the name of an op, or a line as 'model.py:42', is needed")
    seen: list[tuple[str, Tensor]] = []
    depth = 0

    def tell(op: str, where: str | None, inside: Sequence[str], outs: Any) -> None:
        if not _is_meant(name, op, where):
            return
        label = f"{op}{''.join(f' inside of {x}' for x in inside)} at {where}"
        for t in outs if isinstance(outs, (tuple, list)) else (outs,):
            if isinstance(t, Tensor) and type(t._data) is Buffer:
                seen.append((label, t.detach()))
                (callback or _print)(label, t.detach())

    def see(at: Place, ins: Any, outs: Any) -> None:
        if at.inside:
            tell(at.node.op, at.node.where, at.inside, outs)

    def look(op: Op, inputs: tuple, out: Any) -> None:
        if tracing.active is None and not depth:
            tell(op.name, user_line(), (), out)

    def around(go: Run) -> Run:
        def run(op: Op, inputs: tuple, attrs: tuple) -> Any:
            nonlocal depth
            eager = tracing.active is None and not depth
            out = go(op, inputs, attrs)
            look(op, inputs, out)
            if eager and op.has_bodies and all(type(x._data) is Buffer for x in inputs):
                depth += 1
                try:  # what is in its body is seen by a second run, node by node
                    replay(*of_a_call(op, inputs, attrs), see)
                finally:
                    depth -= 1
            return out

        return run

    def programs(exe: Executable, buffers: list[Any], extents: tuple[int, ...]) -> list[Tensor]:
        nonlocal depth
        depth += 1
        try:
            return _op_by_op(exe, buffers, extents, lambda at, ins, outs: tell(at.node.op, at.node.where, at.inside, outs))
        finally:
            depth -= 1

    before = looking.by(programs)
    dispatch.add_filter(around)
    see_operators(look)
    try:
        yield seen
        if not seen:
            message = f"watch({name!r}) saw nothing: no op of this name, and no line, gave a result in its block"
            warnings.warn(UsageWarning(f"{message}; help: print(f.graph) of a trace shows its ops and lines"), stacklevel=3)
    finally:
        unsee_operators(look)
        dispatch.remove_filter(around)
        looking.by(before)


def _op_by_op(exe: Executable, buffers: list[Any], extents: tuple[int, ...], see: Callable[[Place, Any, Any], None]) -> list[Tensor]:
    """A run of a program, node by node: its outputs. New values of states take the places of the old ones in `buffers`."""
    graph, given = inputs_of(exe, buffers, extents)
    outs, written = replay(graph, given, see)
    for i, name in enumerate(graph.states):
        if name in written:
            buffers[len(graph.inputs) + i] = new_buffer(dense(written[name].numpy())[0])
    return [t.detach() for t in outs]
