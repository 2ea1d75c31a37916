"""The CTC loss of sequences whose alignment with their labels is not known; kernels in `kernels/recurrent/ctc.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import DTypeError, GradientError, IndexOutOfRange, ShapeError
from tengen.ir.types import TensorType
from tengen.loops.lang import as_int
from tengen.ops.attributes import Count
from tengen.ops.define import Case, Violation, check_floats, check_shape, lookup, primitive
from tengen.ops.indexing import outside

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive(own=(1, 2, 3), autocast="high")
def ctc(log_probs: Tensor, labels: Tensor, steps: Tensor, lengths: Tensor, blank: Count = 0) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of each sample's labels, summed over all alignments.

    Shapes:  log_probs (T, N, C), labels (N, S), steps (N) in 0..T, lengths (N) in 0..S -> losses (N), and for the gradient the
        likelihoods of beginnings (N, T, 2 S + 3)
    Returns: inf where there is no alignment, where the gradient is 0
    """


def _check(log_probs: TensorType, labels: TensorType, steps: TensorType, lengths: TensorType, blank: int) -> None:
    check_floats(log_probs)
    if not (labels.dtype.is_int and steps.dtype.is_int and lengths.dtype.is_int):
        raise DTypeError(f"labels and lengths must be integers, got {labels}, {steps} and {lengths}")
    if log_probs.ndim != 3 or labels.ndim != 2:
        raise ShapeError(f"takes scores (T, N, C) and labels (N, S), got {log_probs} and {labels}")
    n = log_probs.shape[1]
    check_shape("labels", labels.shape, (n, labels.shape[1]))
    check_shape("the lengths of scores", steps.shape, (n,))
    check_shape("the lengths of labels", lengths.shape, (n,))
    classes = as_int(log_probs.shape[2])
    if classes is not None and blank >= classes:
        raise ShapeError(f"blank={blank} is no class of {log_probs}")


@ctc.infer
def _(log_probs, labels, steps, lengths, blank):
    _check(log_probs, labels, steps, lengths, blank)
    t, n, _ = log_probs.shape
    return TensorType((n,), log_probs.dtype), TensorType((n, t, labels.shape[1] * 2 + 3), log_probs.dtype.compute)


@ctc.lower
def _(lo, ins, outs, blank):
    kernels.recurrent.ctc.ctc_forward(lo, ins, outs[0], outs[1], blank)


@ctc.check
def _(inputs, blank) -> Iterator[Violation]:
    log_probs, labels, steps, lengths = inputs
    t, _, c = log_probs.shape
    for x, most, what in (
        (labels, c - 1, "a label is no class"), (steps, t, "more steps than scores"), (lengths, labels.shape[1], "more labels than there are"),
    ):  # fmt: skip
        if as_int(x.size) != 0:
            bad = outside(x, lookup("extent_op")(0, "int64"), lookup("extent_op")(most + 1, "int64"))
            yield Violation(bad, IndexOutOfRange, f"ctc_loss: {what}; numbers must be in 0 .. {most}")


@ctc.vjp
def _(g, log_probs, labels, steps, lengths, *, out, blank):
    if g[1] is not None:
        raise GradientError("ctc: the likelihoods of beginnings have no gradient; help: differentiate the losses")
    return ctc_grad(g[0], log_probs, labels, steps, lengths, out[0], out[1], blank), None, None, None


@primitive(own=(2, 3, 4, 6), autocast="high")
def ctc_grad(
    grad: Tensor, log_probs: Tensor, labels: Tensor, steps: Tensor, lengths: Tensor, loss: Tensor, alpha: Tensor, blank: Count = 0
) -> Tensor:
    """The gradient of `ctc` with respect to log_probs, from its results."""


@ctc_grad.infer
def _(grad, log_probs, labels, steps, lengths, loss, alpha, blank):
    _check(log_probs, labels, steps, lengths, blank)
    t, n, _ = log_probs.shape
    check_shape("the gradient", grad.shape, (n,))
    check_shape("the losses", loss.shape, (n,))
    check_shape("alpha", alpha.shape, (n, t, labels.shape[1] * 2 + 3))
    check_floats(grad, loss, alpha)
    return log_probs


@ctc_grad.lower
def _(lo, ins, outs, blank):
    g, *arrays, loss, alpha = ins
    kernels.recurrent.ctc.ctc_backward(lo, g, arrays, loss, alpha, outs[0], blank)


@ctc_grad.vjp
def _(g, *inputs, blank):
    raise GradientError("the CTC loss has no second derivative here; help: differentiate it once")


# ---- reference and samples -------------------------------------------------------------------------------------------


def _states(labels: Sequence[int], blank: int) -> list[int]:
    return [blank, *(c for label in labels for c in (int(label), blank))]


def _np_alpha(log_probs, states, blank):
    """alpha (T, states) of one sample."""
    low = -np.inf
    alpha = np.full((len(log_probs), len(states)), low)
    for t, scores in enumerate(log_probs):
        for s, c in enumerate(states):
            if t == 0:
                before = [0.0] if s < 2 else [low]
            else:
                skips = s >= 2 and c != blank and c != states[s - 2]
                before = [alpha[t - 1, s - o] for o in range(3 if skips else 2) if s - o >= 0]
            alpha[t, s] = np.logaddexp.reduce(before) + scores[c]
    return alpha


def _np_ctc(log_probs, labels, steps, lengths, blank=0):
    t, n, _ = log_probs.shape
    losses, alphas = np.zeros(n), np.full((n, t, labels.shape[1] * 2 + 3), -np.inf)
    for i in range(n):
        states = _states(labels[i, : lengths[i]], blank)
        alpha = _np_alpha(log_probs[: steps[i], i], states, blank)
        alphas[i, : steps[i], 2 : 2 + len(states)] = alpha
        if steps[i]:
            losses[i] = -np.logaddexp.reduce(alpha[-1, -2:])
        elif lengths[i]:
            losses[i] = np.inf
    return losses, alphas


def _np_ctc_grad(grad, log_probs, labels, steps, lengths, loss, alpha, blank=0):
    """By walking both ways: what passes a state is a beginning and, read backwards, a beginning of the rest."""
    out = np.zeros(log_probs.shape)
    for i in range(log_probs.shape[1]):
        if not steps[i] or not np.isfinite(loss[i]):
            continue
        states = _states(labels[i, : lengths[i]], blank)
        scores = log_probs[: steps[i], i]
        back = _np_alpha(scores[::-1], states[::-1], blank)[::-1, ::-1]
        for t in range(steps[i]):
            for s, c in enumerate(states):
                out[t, i, c] -= grad[i] * np.exp(alpha[i, t, 2 + s] + back[t, s] - scores[t, c] + loss[i])
    return out


def _spoken(t, n, c, s, steps, lengths):
    def inputs(r):
        log_probs = r.uniform(-3, -0.25, (t, n, c))
        labels = r.integers(1, c, (n, s))
        labels[0, 1:2] = labels[0, :1]  # the same label twice: a blank must lie between
        return log_probs, labels, np.array(steps), np.array(lengths)

    return inputs


def _with_results(inputs):
    def more(r):
        given = inputs(r)
        rough = (np.where(np.isfinite(v), np.round(v * 256) / 256, v) for v in _np_ctc(*given))  # the same on every machine
        return (r.normal(size=given[0].shape[1]), *given, *rough)

    return more


ctc.reference(_np_ctc)
_cases = [
    _spoken(7, 3, 5, 3, [7, 6, 5], [3, 2, 1]),
    _spoken(24, 2, 4, 10, [24, 23], [10, 0]),
    _spoken(1, 2, 3, 1, [1, 1], [1, 0]),
]
ctc_grad.reference(_np_ctc_grad)
ctc.cases(*(Case(f, grad=False) for f in _cases))  # of alpha there is none: tests/ops/test_ctc.py differentiates the losses
ctc_grad.cases(*(Case(_with_results(f), grad=False) for f in _cases))
