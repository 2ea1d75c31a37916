"""If, Loop and Scan: by Python while values are there, as regions of the graph while a program is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import tengen.functional as F
from tengen.base.errors import TengenError, TraceError, Undecided
from tengen.interop.onnx.reader import NodeOf, PortOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, known, recording
from tengen.tensor import Tensor, tracing

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope


BRANCH_ERRORS = (TengenError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError)
LONGEST = 1024  # steps of a loop that are written out one after the other, where the loop stacks nothing
MOST_RETRIES = 64  # branches that are recorded once more, since the other one cannot be: graphs in graphs could double the work each


def scoped(f):
    """An op that runs graphs of its own: it is called with the scope first."""
    f.scoped = True
    return f


@op("If")
@scoped
def if_(scope: Scope, n: NodeOf, condition: Value) -> tuple[Value, ...]:
    """One of two graphs, which read what is around them."""
    if not recording() or isinstance(condition, np.ndarray):
        return tuple(scope.inner(n["then_branch"] if bool(known(condition).reshape(-1)[0]) else n["else_branch"], ()))
    failed: list[bool] = []
    chosen = as_tensor(condition).reshape(())

    def branch(when: bool) -> Callable[[], tuple[Tensor, ...]]:
        def run() -> tuple[Tensor, ...]:
            try:
                return tuple(map(as_tensor, scope.inner(n["then_branch" if when else "else_branch"], ())))
            except BRANCH_ERRORS as e:
                if not isinstance(e, (Undecided, TraceError)):
                    failed.append(when)
                raise

        return run

    try:
        return tuple(F.cond(chosen, branch(True), branch(False)))
    except BRANCH_ERRORS as e:
        scope.network.retries += 1
        if not failed or scope.network.retries > MOST_RETRIES:
            raise
        why = f"{n.name or 'an If'} takes its branch for {failed[0]}, which these shapes rule out: {e}"
        made = branch(not failed[0])()  # an error is that of both
    bad = chosen if failed[0] else F.logical_not(chosen)
    tracing.recorder.check(bad, "ValueError", why, None)
    return made


@op("Loop")
@scoped
def loop(scope: Scope, n: NodeOf, most: Value = None, condition: Value = None, *state: Value) -> tuple[Value, ...]:
    """A body while a condition holds and a count is not reached; what it gives besides its state is stacked."""
    body = n["body"]
    count = None if most is None else most
    if recording() and not (isinstance(condition, np.ndarray | None) and isinstance(count, np.ndarray)):
        return recorded_loop(scope, n, count, condition, state)
    limit = float("inf") if count is None else int(known(count).reshape(-1)[0])
    go = True if condition is None else bool(known(condition).reshape(-1)[0])
    values, stacked = list(state), [[] for _ in range(len(body.outputs) - 1 - len(state))]
    i = 0
    while go and i < limit:
        made = scope.inner(body, [np.array(i, np.int64), np.array(go), *values])
        if recording() and (not isinstance(made[0], np.ndarray) or i >= LONGEST and not stacked and all(isinstance(v, Tensor) for v in state)):
            return recorded_loop(scope, n, count, condition, state)
        go, values = bool(known(made[0]).reshape(-1)[0]), made[1 : 1 + len(state)]
        for one, v in zip(stacked, made[1 + len(state) :]):
            one.append(as_tensor(v))
        i += 1
    ports = body.outputs[1 + len(state) :]
    return (*values, *(F.stack(s, 0) if s else nothing(p) for p, s in zip(ports, stacked)))


def nothing(p: PortOf) -> Tensor:
    """What a loop stacks that does not run: no slices, of the declared type; extents that are not declared are 0."""
    return F.zeros((0, *(d if isinstance(d, int) else 0 for d in p.shape or ())), p.dtype or "float32")


def recorded_loop(scope: Scope, n: NodeOf, count: Value, condition: Value, state: tuple[Value, ...]) -> tuple[Value, ...]:
    """A loop whose end is decided while it runs, without outputs that are stacked."""
    body = n["body"]
    if len(body.outputs) > 1 + len(state):
        raise TraceError(
            "a loop whose length depends on values stacks outputs, whose shape would depend on them too; to_module runs it"
        )
    limit = np.iinfo(np.int64).max if count is None else count
    first = F.full((), True, dtype="bool") if condition is None else as_tensor(condition).reshape(())

    def go(i: Tensor, c: Tensor, *_: Tensor) -> Tensor:
        return F.logical_and(
            c, F.less(i, as_tensor(np.asarray(limit)).reshape(()) if isinstance(limit, (int, np.ndarray)) else limit)
        )

    def once(i: Tensor, c: Tensor, *values: Tensor):
        made = scope.inner(body, [i, c, *values])
        return (i + 1, as_tensor(made[0]).reshape(()), *map(as_tensor, made[1:]))

    zero = as_tensor(np.array(0, np.int64))
    return tuple(F.while_loop(go, once, zero, first, *map(as_tensor, state))[2:])


@op("Scan")
@scoped
def scan(scope: Scope, n: NodeOf, *inputs: Value) -> tuple[Value, ...]:
    """A body over the slices of sequences, carrying a state."""
    body, count = n["body"], n["num_scan_inputs"]
    if n.since < 9:
        return batched_scan(scope, n, *inputs)
    state, sequences = inputs[: len(inputs) - count], [as_tensor(v) for v in inputs[len(inputs) - count :]]
    axes = n.get("scan_input_axes") or [0] * count
    backwards = n.get("scan_input_directions") or [0] * count
    outs = len(body.outputs) - len(state)
    out_axes, out_back = n.get("scan_output_axes") or [0] * outs, n.get("scan_output_directions") or [0] * outs
    xs = []
    for s, a, back in zip(sequences, axes, backwards):
        s = s if a == 0 else F.moveaxis(s, a, 0)
        xs.append(F.flip(s, 0) if back else s)

    def once(carried, now):
        made = [as_tensor(v) for v in scope.inner(body, [*carried, *now])]
        return tuple(made[: len(state)]), tuple(made[len(state) :])

    last, ys = F.scan(once, tuple(map(as_tensor, state)), tuple(xs))
    made = []
    for y, a, back in zip(ys, out_axes, out_back):
        y = F.flip(y, 0) if back else y
        made.append(y if a == 0 else F.moveaxis(y, 0, a))
    return (*last, *made)


def batched_scan(scope: Scope, n: NodeOf, lengths: Value, *inputs: Value) -> tuple[Value, ...]:
    """Opset 8's: every input has the batch as its first axis."""
    if lengths is not None:
        raise ValueError("Scan of opset 8 with lengths of its own for each example")
    attributes = {**n.attributes, "scan_input_directions": n.get("directions")}
    newer = NodeOf(n.op, n.domain, n.name, n.inputs, n.outputs, attributes, 9, n.proto)
    batch = as_tensor(inputs[0]).shape[0]
    each = [scan(scope, newer, *(as_tensor(v)[i] for v in inputs)) for i in range(batch)]
    return tuple(F.stack([as_tensor(one[j]) for one in each], 0) for j in range(len(each[0])))
