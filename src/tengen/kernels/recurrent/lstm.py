"""An LSTM over a sequence: a loop of the program with one or two kernels for each step, so that any length is one program.

    for step t:                                                         # an iteration of the program, not of a kernel
        z = h[t] @ weight.T + projected[t]                              # (N, 4 H): the sums of the gates
        z_i, z_f, z_g, z_o = the four parts (N, H) of z                 # input, forget, cell and output gate
        i, f, g, o = sigmoid(z_i), sigmoid(z_f), tanh(z_g), sigmoid(z_o)
        c[t + 1] = f * c[t] + i * g
        h[t + 1] = o * tanh(c[t + 1])

In: `projected`, what the input contributes to the gates of all steps; the recurrent weights; the state (h, c) before the first
step. Out: states and gates of all steps (`lstm`), from which `lstm_grad` computes gradients, backwards in time. A step, forward
or back, is one kernel where the registers hold enough sums of a gate (`gate_product.py`); else it is a contraction and a
pointwise kernel. The gates may be stored over `projected`, and the gradients of their sums over the gates. Read next:
`lowering.py` (`Lowering.loop`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tengen.base.record import record
from tengen.kernels.axes import store_at
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.unpacked import FEW_ROWS
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import copy, pointwise
from tengen.kernels.recurrent.gate_product import gate_product, tile_of
from tengen.kernels.source import Elementwise, Given, Leaf, Literal, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, call, cast

CELL_PIECE_ELEMENTS = 1024  # elements of a piece of the pointwise kernels: each takes five functions of dozens of operations


def lstm(
    lo: Lowering, projected: Array, weight: Array, h0: Array, c0: Array, hs: Array, cs: Array, gates: Array, reverse: bool
) -> None:
    """Launches all steps of an LSTM.

    Shapes: projected (T, N, 4 H), weight (4 H, H), h0, c0 (N, H) -> hs, cs (T + 1, N, H), gates (T, N, 4 H)
    Args:
        hs, cs: the states before each step, and after the last one. gates: i, f, g and o of each step.
        reverse: whether the sequence is read from its end. Then hs[t + 1] is the state before step t, and hs[t] that after it.
    """
    steps, transposed = projected.shape[0], _transposed(lo, weight, h0.shape[0])
    copy(lo, h0, _at(hs, steps if reverse else 0), "lstm_h0")
    copy(lo, c0, _at(cs, steps if reverse else 0), "lstm_c0")
    with lo.loop(steps, [projected, transposed]) as i:
        t = steps - 1 - i if reverse else i
        old, new = (t + 1, t) if reverse else (t, t + 1)
        _step(lo, _at(projected, t), transposed, _at(gates, t), (_at(hs, old), _at(cs, old)), (_at(hs, new), _at(cs, new)))


def _transposed(lo: Lowering, weight: Array, batch: Index) -> Array:
    """weight.T. Where the batch is small it is a copy, dense along its columns, that the contraction of each step reads without
    packing."""
    transposed, n = weight.permute((1, 0)), as_int(batch)
    if n is None or n > FEW_ROWS:
        return transposed
    dense = lo.temp(weight.dtype, transposed.shape)
    copy(lo, transposed, dense, "lstm_weight")
    return dense


def _step(
    lo: Lowering, from_input: Array, transposed: Array, z: Array, before: tuple[Array, Array], after: tuple[Array, Array]
) -> None:
    """Launches one step.

    Args:
        from_input: the step's part of `projected`. transposed: weight.T. z: where the gates are stored.
        before, after: (h, c) before the step, and where those after it are stored.
    """
    n, outs = as_int(z.shape[0]), [*_gates(z), after[1], after[0]]
    if (n is None or n > FEW_ROWS) and tile_of(4, transposed, lo.target)[0]:
        return _step_as_gate_product(lo, from_input, transposed, before, outs)

    of, sums = _Values(z.dtype, before[1].shape), lo.temp(z.dtype.compute, z.shape)
    contract(lo, before[0], transposed, sums, 0, 1, 1, 1, name="lstm_matmul")  # not into z: from_input may be the same memory
    add = [of.stored(of.sum(Leaf(s), x)) for s, x in zip(_gates(sums), _gates(from_input))]
    pointwise(lo, _cell(add, before[1]), outs, "lstm_gates", elements=CELL_PIECE_ELEMENTS)


def _step_as_gate_product(
    lo: Lowering, from_input: Array, transposed: Array, before: tuple[Array, Array], outs: Sequence[Array]
) -> None:
    """`_step` as one kernel: z = h @ weight.T + from_input, whose `finish` computes gates and states."""
    dtype, inputs = outs[0].dtype, [Leaf(x) for x in _gates(from_input)]
    sums = [Given(x.shape, dtype) for x in inputs]
    made = _cell(sums, before[1])

    def finish(k, values, at):
        for s, value, x in zip(sums, values, inputs):
            at.memo[s] = k.let(cast(value + cast(x.at(k, at), value.dtype), dtype))
        for source, out in zip(made, outs):
            store_at(k, out, at, source.at(k, at))

    gate_product(lo, before[0], transposed, 4, finish, "lstm_step", [*_gates(from_input), before[1], *outs])


def _cell(z: Sequence[Source], c: Array) -> list[Source]:
    """The results of a step, as sources: the four gates, the next c, and the next h. z: the sums of the four gates. c: before
    the step."""
    of = _Values(z[0].dtype, c.shape)
    i, f, g, o = (of(_function(name), x) for name, x in zip(("sigmoid", "sigmoid", "tanh", "sigmoid"), z))
    after = of(lambda i, f, g, c: f * c + i * g, i, f, g, Leaf(c))
    h = of(lambda o, c: o * call("tanh", c), o, after)
    return [of.stored(x) for x in (i, f, g, o, after, h)]


def lstm_grad(
    lo: Lowering,
    grad_h: Array | None,
    grad_c: Array | None,
    grad_gates: Array | None,
    weight: Array,
    cs: Array,
    gates: Array,
    dz: Array,
    dh0: Array,
    dc0: Array,
    reverse: bool,
) -> None:
    """Launches the gradients of `lstm` with respect to projected (`dz`), h0 (`dh0`) and c0 (`dc0`).

        for step t, backwards:
            dh += grad_h[t + 1];  dc += grad_c[t + 1]
            dc += dh * o * (1 - tanh(c[t + 1])^2)
            dz[t] = gradients of z_i, z_f, z_g, z_o from dc and dh
            dh = dz[t] @ weight;  dc = dc * f

    Args:
        grad_h, grad_c, grad_gates: the gradients with respect to hs, cs and gates; None: zero.
        weight, cs, gates, reverse: what `lstm` was given, and what it stored.
    """
    steps, d, first = gates.shape[0], gates.dtype, gates.shape[0] if reverse else 0
    n, of, start = as_int(dh0.shape[0]), _Values(d, dh0.shape), [a and _at(a, first) for a in (grad_h, grad_c)]
    dc, zero = lo.temp(d.compute, dh0.shape), Literal(0, d.compute, dh0.shape)

    def first_states(dh: Source) -> list[Source]:
        """The gradients of h0 and c0: those of the states before the first step, and what the results have for them."""
        return [of.stored(of.sum(x, a)) for x, a in zip((dh, Leaf(dc)), start)]

    def step(i: Index) -> _StepBack:
        t = i if reverse else steps - 1 - i
        old, new = (t + 1, t) if reverse else (t, t + 1)
        given = [None if a is None else _at(a, new) for a in (grad_h, grad_c)]
        more = None if grad_gates is None else _gates(_at(grad_gates, t))
        return _StepBack(dc, given, more, (_at(cs, old), _at(cs, new)), _gates(_at(gates, t)), _at(dz, t))

    if (n is None or n > FEW_ROWS) and tile_of(1, weight, lo.target)[0]:
        pointwise(lo, [zero], [dc], "lstm_grad_zeros")
        touched = [dc, *(a for a in start if a is not None)]
        return _back_as_gate_products(lo, step, first_states, steps, weight, [dh0, dc0], touched)
    dh = lo.temp(d.compute, dh0.shape)
    pointwise(lo, [zero, zero], [dh, dc], "lstm_grad_zeros")
    with lo.loop(steps, [weight]) as i:
        back = step(i)
        pointwise(lo, back.results(Leaf(dh)), back.outs, "lstm_grad_gates", elements=CELL_PIECE_ELEMENTS)
        contract(lo, back.dz, weight, dh, 0, 1, 1, 1, name="lstm_grad_matmul")
    pointwise(lo, first_states(Leaf(dh)), [dh0, dc0], "lstm_grad_start")


def _back_as_gate_products(
    lo: Lowering,
    step: Callable[[Index], _StepBack],
    first_states: Callable[[Source], list[Source]],
    steps: Index,
    weight: Array,
    outs: Sequence[Array],
    touched: Sequence[Array],
) -> None:
    """Launches all steps back, each as one kernel: dh = (dz of the iteration before) @ weight, whose `finish` computes this
    step's dz and dc. A last kernel computes the gradients of the first states. Each dz is also stored in `buffer`, in rows that
    the next product reads without packing; it has room for two steps, as one is read while the other is written.

    Args:
        first_states: gradient of h0, from later steps -> what is stored in `outs`. touched: arrays that this reads.
    """
    h, rows = Given(outs[0].shape, weight.dtype.compute), weight.shape[0]
    buffer = lo.temp(outs[0].dtype, (2, outs[0].shape[0], rows + LANES))

    def at(i: Index) -> Array:
        """The half of the buffer that iteration i writes."""
        one = _at(buffer, i % 2)
        return replace(one, shape=(one.shape[0], rows))

    def finisher(results: Sequence[Source], outs: Sequence[Sequence[Array]]):
        """The `finish` that stores each of the results, which depend on `h`, in some arrays."""

        def finish(k, values, where):
            where.memo[h] = values[0]
            for source, some in zip(results, outs):
                for out in some:
                    store_at(k, out, where, source.at(k, where))

        return finish

    with lo.loop(steps, [weight]) as i:
        back = step(i)
        beside = _gates(at(i))
        finish = finisher(back.results(h), [*zip(back.outs, beside), back.outs[-1:]])
        near = [*back.read, *back.outs, *beside]  # the buffer's other half was last read by other threads: it is prefetched too
        gate_product(lo, at(i + 1), weight, 1, finish, "lstm_grad_step", near, as_expr(i) > 0)
    finish = finisher(first_states(h), [[x] for x in outs])
    gate_product(lo, at(steps + 1), weight, 1, finish, "lstm_grad_start", touched, as_expr(steps) > 0)


@record
class _StepBack:
    """One step back in time.

    Attributes:
        dc: the gradient of c after the step, from later steps; that of c before the step is stored in its place.
        given: the gradients of h and c after the step as results of the LSTM; None: zero.
        more: those of the four gates as results; None: zero.
        cells: c before and after the step. gates: i, f, g and o. dz: where the gradients of the gates' sums are stored.
    """

    dc: Array
    given: Sequence[Array | None]
    more: Sequence[Array] | None
    cells: tuple[Array, Array]
    gates: Sequence[Array]
    dz: Array

    @property
    def outs(self) -> list[Array]:
        """Where the `results` are stored."""
        return [*_gates(self.dz), self.dc]

    @property
    def read(self) -> list[Array]:
        """The arrays that the `results` are computed from."""
        return [*self.gates, *self.cells, *(self.more or ()), *(a for a in self.given if a is not None)]

    def results(self, dh: Source) -> list[Source]:
        """The gradients of the sums of the four gates, and of c before the step. dh: the gradient of h after the step, from
        later steps."""
        of = _Values(self.gates[0].dtype, self.dc.shape)
        i, f, g, o = map(Leaf, self.gates)
        before, after = map(Leaf, self.cells)
        dh, later = of.sum(dh, self.given[0]), of.sum(Leaf(self.dc), self.given[1])
        tanh = of(_function("tanh"), after)
        dc = of(lambda dc, dh, o, y: dc + dh * o * (1 - y * y), later, dh, o, tanh)
        by_gate = [
            of(lambda d, g: d * g, dc, g), of(lambda d, c: d * c, dc, before), of(lambda d, i: d * i, dc, i),
            of(lambda d, y: d * y, dh, tanh),
        ]  # fmt: skip
        if self.more is not None:
            by_gate = [of(lambda x, y: x + y, x, Leaf(a)) for x, a in zip(by_gate, self.more)]
        slopes = [of(lambda y: y * (1 - y), x) if x is not g else of(lambda y: 1 - y * y, g) for x in (i, f, g, o)]
        grads = [of.stored(of(lambda x, s: x * s, x, s)) for x, s in zip(by_gate, slopes)]
        return [*grads, of(lambda d, f: d * f, dc, f)]


class _Values:
    """Makes sources of one shape whose arithmetic is done in the computing dtype of `dtype`."""

    def __init__(self, dtype, shape: tuple[Index, ...]):
        self.dtype, self.shape = dtype, shape

    def __call__(self, fn: Callable[..., Expr], *operands: Source) -> Source:
        wide = lambda *values: fn(*(cast(v, self.dtype.compute) for v in values))
        return Elementwise(wide, operands, self.shape, self.dtype.compute)

    def sum(self, a: Source, b: Array | None) -> Source:
        """a + b; a alone where b is None."""
        return a if b is None else self(lambda x, y: x + y, a, Leaf(b))

    def stored(self, x: Source) -> Source:
        """The value cast to the dtype that it is stored in."""
        return Elementwise(lambda v: cast(v, self.dtype), [x], self.shape, self.dtype)


def _function(name: str) -> Callable[[Expr], Expr]:
    return lambda x: call(name, x)


def _at(a: Array, t: Index) -> Array:
    """a[t]."""
    return replace(a, shape=a.shape[1:], strides=a.strides[1:], offset=a.offset + t * a.strides[0])


def _gates(a: Array) -> list[Array]:
    """The four parts (N, H) of an array (N, 4 H): input, forget, cell and output gate."""
    n, h = a.shape[0], a.shape[1] // 4
    return [replace(a, shape=(n, h), offset=a.offset + j * h * a.strides[1]) for j in range(4)]
