"""An LSTM over a sequence: a loop of the program with one or two kernels for each step, so that any length is one program.

    for step t:
        z = h[t] @ weight.T + projected[t]                              # the sums of the gates: input, forget, cell, output
        i, f, g, o = sigmoid(z_i), sigmoid(z_f), tanh(z_g), sigmoid(z_o)
        c[t + 1] = f * c[t] + i * g;  h[t + 1] = o * tanh(c[t + 1])

In: the input's part of the gates for all steps, the recurrent weights, the state before the first step. Out: states and gates
of every step (`lstm`), from which `lstm_grad` computes gradients backwards in time. A step, forward or back, is one kernel
where the registers hold the sums of all gates (`gate_product.py`); else it is a product and a pointwise kernel. Gates may lie
over the input's part, and gradients of their sums over the gates. Read next: `lowering.py` (`Lowering.repeat`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    """All steps of an LSTM.

    Shapes: projected (T, N, 4 H), weight (4 H, H), h0, c0 (N, H) -> hs, cs (T + 1, N, H), gates (T, N, 4 H)
    Args:
        reverse: begins with the last step; then hs[t + 1] comes before hs[t].
    """
    steps, transposed = projected.shape[0], _transposed(lo, weight, h0.shape[0])
    copy(lo, h0, _at(hs, steps if reverse else 0), "lstm_h0")
    copy(lo, c0, _at(cs, steps if reverse else 0), "lstm_c0")
    with lo.repeat(steps, [projected, transposed]) as i:
        t = steps - 1 - i if reverse else i
        old, new = (t + 1, t) if reverse else (t, t + 1)
        _step(lo, _at(projected, t), transposed, _at(gates, t), (_at(hs, old), _at(cs, old)), (_at(hs, new), _at(cs, new)))


def _transposed(lo: Lowering, weight: Array, batch: Index) -> Array:
    """weight.T; a copy that is dense along its columns where the batch is small: then every step reads it where it lies."""
    transposed, n = weight.permute((1, 0)), as_int(batch)
    if n is None or n > FEW_ROWS:
        return transposed
    dense = lo.temp(weight.dtype, transposed.shape)
    copy(lo, transposed, dense, "lstm_weight")
    return dense


def _step(
    lo: Lowering, from_input: Array, transposed: Array, z: Array, before: tuple[Array, Array], after: tuple[Array, Array]
) -> None:
    """One step: from (h, c) before it to those after it, and its gates."""
    n, outs = as_int(z.shape[0]), [*_gates(z), after[1], after[0]]
    if (n is None or n > FEW_ROWS) and tile_of(4, transposed, lo.target)[0]:
        return _step_at_once(lo, from_input, transposed, before, outs)

    of, sums = _Values(z.dtype, before[1].shape), lo.temp(z.dtype.compute, z.shape)
    contract(lo, before[0], transposed, sums, 0, 1, 1, 1, name="lstm_matmul")  # not into z, where the input's part may lie
    add = [of.stored(of.sum(Leaf(s), x)) for s, x in zip(_gates(sums), _gates(from_input))]
    pointwise(lo, _cell(add, before[1]), outs, "lstm_gates", elements=CELL_PIECE_ELEMENTS)


def _step_at_once(
    lo: Lowering, from_input: Array, transposed: Array, before: tuple[Array, Array], outs: Sequence[Array]
) -> None:
    """`_step` as one kernel."""
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
    """From the sums of the four gates, and c: the gates, the next c and the next h."""
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
    """The gradients of `lstm` with respect to projected (dz), h0 and c0, from those of its three results (None: zero)."""
    steps, d, first = gates.shape[0], gates.dtype, gates.shape[0] if reverse else 0
    n, of, start = as_int(dh0.shape[0]), _Values(d, dh0.shape), [a and _at(a, first) for a in (grad_h, grad_c)]
    dc, zero = lo.temp(d.compute, dh0.shape), Literal(0, d.compute, dh0.shape)

    def ends(dh: Source) -> list[Source]:
        return [of.stored(of.sum(x, a)) for x, a in zip((dh, Leaf(dc)), start)]

    def step(i: Index) -> _Back:
        t = i if reverse else steps - 1 - i
        old, new = (t + 1, t) if reverse else (t, t + 1)
        given = [None if a is None else _at(a, new) for a in (grad_h, grad_c)]
        more = None if grad_gates is None else _gates(_at(grad_gates, t))
        return _Back(dc, given, more, (_at(cs, old), _at(cs, new)), _gates(_at(gates, t)), _at(dz, t))

    if (n is None or n > FEW_ROWS) and tile_of(1, weight, lo.target)[0]:
        pointwise(lo, [zero], [dc], "lstm_grad_zeros")
        return _back_at_once(lo, step, ends, steps, weight, [dh0, dc0], [dc, *(a for a in start if a is not None)])
    dh = lo.temp(d.compute, dh0.shape)
    pointwise(lo, [zero, zero], [dh, dc], "lstm_grad_zeros")
    with lo.repeat(steps, [weight]) as i:
        back = step(i)
        pointwise(lo, back.made(Leaf(dh)), back.outs, "lstm_grad_gates", elements=CELL_PIECE_ELEMENTS)
        contract(lo, back.dz, weight, dh, 0, 1, 1, 1, name="lstm_grad_matmul")
    pointwise(lo, ends(Leaf(dh)), [dh0, dc0], "lstm_grad_start")


def _back_at_once(
    lo: Lowering,
    step: Callable[[Index], _Back],
    ends: Callable[[Source], list[Source]],
    steps: Index,
    weight: Array,
    outs: Sequence[Array],
    touched: Sequence[Array],
) -> None:
    """All steps back, each as one kernel: the product of the later step's gradients with the weights, and the gates'
    arithmetic. The gradients are also stored in `kept`, in rows that the next product reads where they lie; it has room for two
    steps, as one is read while the other is written."""
    h, rows = Given(outs[0].shape, weight.dtype.compute), weight.shape[0]
    kept = lo.temp(outs[0].dtype, (2, outs[0].shape[0], rows + LANES))

    def at(i: Index) -> Array:
        one = _at(kept, i % 2)
        return replace(one, shape=(one.shape[0], rows))

    def finisher(made: Sequence[Source], outs: Sequence[Sequence[Array]]):
        def finish(k, values, where):
            where.memo[h] = values[0]
            for source, some in zip(made, outs):
                for out in some:
                    store_at(k, out, where, source.at(k, where))

        return finish

    with lo.repeat(steps, [weight]) as i:
        back = step(i)
        beside = _gates(at(i))
        finish = finisher(back.made(h), [*zip(back.outs, beside), back.outs[-1:]])
        near = [*back.read, *back.outs, *beside]  # what lies beside was last read by other threads
        gate_product(lo, at(i + 1), weight, 1, finish, "lstm_grad_step", near, as_expr(i) > 0)
    finish = finisher(ends(h), [[x] for x in outs])
    gate_product(lo, at(steps + 1), weight, 1, finish, "lstm_grad_start", touched, as_expr(steps) > 0)


@dataclass
class _Back:
    """One step back: from the gradients of h and c after it (of later steps: dh and `dc`; of the results: `given`) to those of
    its gates' sums, `dz`; the gradient of c before it goes to `dc`."""

    dc: Array
    given: Sequence[Array | None]
    more: Sequence[Array] | None
    cells: tuple[Array, Array]
    gates: Sequence[Array]
    dz: Array

    @property
    def outs(self) -> list[Array]:
        """Where what is made goes."""
        return [*_gates(self.dz), self.dc]

    @property
    def read(self) -> list[Array]:
        """What is read."""
        return [*self.gates, *self.cells, *(self.more or ()), *(a for a in self.given if a is not None)]

    def made(self, dh: Source) -> list[Source]:
        """What is made of the gradient of h."""
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
    """Makes sources of one shape that compute in the wider dtype of `dtype`."""

    def __init__(self, dtype, shape: tuple[Index, ...]):
        self.dtype, self.shape = dtype, shape

    def __call__(self, fn: Callable[..., Expr], *operands: Source) -> Source:
        wide = lambda *values: fn(*(cast(v, self.dtype.compute) for v in values))
        return Elementwise(wide, operands, self.shape, self.dtype.compute)

    def sum(self, a: Source, b: Array | None) -> Source:
        """a, and b where there is one."""
        return a if b is None else self(lambda x, y: x + y, a, Leaf(b))

    def stored(self, x: Source) -> Source:
        """The value as it is stored."""
        return Elementwise(lambda v: cast(v, self.dtype), [x], self.shape, self.dtype)


def _function(name: str) -> Callable[[Expr], Expr]:
    return lambda x: call(name, x)


def _at(a: Array, t: Index) -> Array:
    """The array's part at index t of its first axis."""
    return replace(a, shape=a.shape[1:], strides=a.strides[1:], offset=a.offset + t * a.strides[0])


def _gates(a: Array) -> list[Array]:
    """The four parts (N, H) of an array (N, 4 H)."""
    n, h = a.shape[0], a.shape[1] // 4
    return [replace(a, shape=(n, h), offset=a.offset + j * h * a.strides[1]) for j in range(4)]
