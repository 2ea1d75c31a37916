"""L-BFGS: steps along directions that curvature of the last steps has bent, with PyTorch's rules of when to stop.

In: a closure that computes loss and gradients, called several times in a step. It decides by the values of losses and slopes, so a
step asks for values, so a trace runs it in parts; the closure may call a traced function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.ops.define import REGISTRY
from tengen.optimizer.optimizer import Optimizer, as_real, refuse, zeros
from tengen.tensor import Tensor, tracing

Evaluate = Callable[[float], tuple[float, Tensor, float]]  # step along a direction -> loss, gradient, slope


class LBFGS(Optimizer):
    """Limited-memory BFGS (J. Nocedal and S. Wright, "Numerical optimization", 2006, algorithm 7.5), with PyTorch's arguments and
    its rules of when to stop (``torch/optim/lbfgs.py``). One group of parameters, all gradients at once.

    Args:
        max_iter: directions in a step. max_eval: calls of the closure in a step; default: 5/4 of max_iter.
        tolerance_grad: no element of the gradient is larger: done. tolerance_change: nor does an element, nor the loss, change by
            more: done. history_size: pairs of steps and changes of the gradient that are kept.
        line_search_fn: None takes steps of size lr; "strong_wolfe" looks for one that fulfils Wolfe's conditions.

    >>> from tengen import Parameter, autodiff, optimizer
    >>> p = Parameter([-1.0, 1.0])
    >>> gm, opt = autodiff.GradManager().attach([p]), optimizer.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.clear_grad()
    ...     with gm:
    ...         loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2
    ...         gm.backward(loss)
    ...     return loss
    >>> first = opt.step(closure)
    >>> closure().item() < first.item() / 4
    True
    """

    elementwise = False

    def __init__(
        self, params, lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ):  # fmt: skip
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        if max_iter < 1 or max_eval < 1 or history_size < 1:
            refuse(self, f"max_iter={max_iter}, max_eval={max_eval} and history_size={history_size} must be at least 1")
        if line_search_fn not in (None, "strong_wolfe"):
            refuse(self, f"line_search_fn={line_search_fn!r}; help: None or 'strong_wolfe'")
        values = {"max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad, "history_size": history_size}
        super().__init__(
            params, {"lr": lr, **values, "tolerance_change": tolerance_change, "line_search_fn": line_search_fn}
        )  # fmt: skip
        self._memory = Memory()

    def add_param_group(self, param_group: dict) -> None:
        """Adds the parameters; there is one group only, and it goes down."""
        if param_group.get("maximize"):
            refuse(self, "maximize is not there; help: return the loss with another sign")
        if self.param_groups:
            refuse(self, "takes one group of parameters; help: one list of them")
        super().add_param_group(param_group)

    def _create_state(self, p, group):
        return {}

    # -- parameters as one vector ------------------------------------------------------------------------------------------
    def _gradient(self) -> Tensor:
        """All gradients, one after the other; zeros where there is none."""
        parts = [as_real(zeros(p) if p.grad is None else p.grad.detach()) for p, _ in self._params()]
        return F.concat([g.reshape(-1) for g in parts])

    def _move(self, start: list[Tensor], t: float, d: Tensor) -> None:
        """Puts the parameters at start + t d."""
        at = 0
        for (p, _), x in zip(self._params(), start):
            pairs = as_real(x)
            moved = (pairs + d[at : at + pairs.size].reshape(pairs.shape) * t).astype(pairs.dtype)
            p._reset((REGISTRY["view_as_complex"](moved) if x.dtype.is_complex else moved).detach())
            at += pairs.size

    # -- a step --------------------------------------------------------------------------------------------------------------
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to max_iter directions. Returns the loss that the first call of `closure` returned.

        Args:
            closure: clears the gradients, computes them anew for the parameters of now, and returns the loss.
        Errors: TypeError without a closure; RuntimeError inside of a trace
        """
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that computes gradients and returns the loss; help: see its example")
        if tracing.recorder is not None and not tracing.recorder.answers:
            raise RuntimeError("LBFGS decides by the value of the loss, which a trace does not know; help: trace what the closure calls")
        found = closure()
        if any((skip := getattr(p, "overflow", None)) is not None and skip.item() for p, _ in self._params()):
            return found
        if all(p.grad is None for p, _ in self._params()):
            self._nothing_to_do()
        group, m = self.param_groups[0], self._memory
        loss, gradient = _number(found), self._gradient()
        m.evaluations += 1
        calls = 1
        done = _largest(gradient) <= group["tolerance_grad"]
        for i in range(1, group["max_iter"] + 1):
            if done:
                break
            d = m.direction(gradient, group["history_size"])
            before, start = loss, [p.detach() for p, _ in self._params()]
            m.step = float(group["lr"]) * (min(1.0, 1.0 / _total(gradient)) if m.iterations == 1 else 1.0)
            slope = _dot(gradient, d)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is None:
                self._move(start, m.step, d)
                if i < group["max_iter"]:
                    loss, gradient, used = _number(closure()), self._gradient(), 1
            else:

                def evaluate(t: float, d: Tensor = d, start: list[Tensor] = start) -> tuple[float, Tensor, float]:
                    self._move(start, t, d)
                    value, g = _number(closure()), self._gradient()
                    return value, g, _dot(g, d)

                limits = (group["max_eval"] - calls, _largest(d))
                loss, gradient, m.step, used = strong_wolfe(evaluate, m.step, loss, gradient, slope, *limits)
                self._move(start, m.step, d)
            calls += used
            m.evaluations += used
            least = group["tolerance_change"]
            small = _largest(d) * m.step <= least or (used > 0 and abs(loss - before) < least)
            done = calls >= group["max_eval"] or small or _largest(gradient) <= group["tolerance_grad"]
        return found

    # -- state ---------------------------------------------------------------------------------------------------------------
    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors that it keeps: the learning rate, the last direction and gradient, and the pairs of the history."""
        yield "lr", self.param_groups[0].lr
        for name, value in self._memory.arrays().items():
            yield f"lbfgs.{name}", Tensor(value)

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Hyperparameters and the memory, which belongs to all parameters together, at the first of them."""
        saved = super().state_dict(keep_var)
        arrays = self._memory.arrays()
        saved["state"][0] = {name: Tensor(a) for name, a in arrays.items()} if keep_var else arrays
        return saved

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave."""
        saved = dict(state["state"])
        arrays = saved.pop(0, None) or saved.pop("0", {})
        size = sum(p.size for p, _ in self._params())
        if arrays and ("numbers" not in arrays or any(k != "numbers" and np.shape(v)[-1] != size for k, v in arrays.items())):
            refuse(self, f"state {({k: np.shape(v) for k, v in arrays.items()})} does not fit parameters of {size} elements")
        empty: dict[int, dict] = {i: {} for i, _ in enumerate(self._params())}
        super().load_state_dict({**state, "state": empty})
        self._memory = Memory.of({k: np.asarray(v) for k, v in arrays.items()})


class Memory:
    """What L-BFGS remembers: the last direction, step and gradient, and pairs (change of the gradient, step)."""

    def __init__(self) -> None:
        self.iterations = self.evaluations = 0
        self.step, self.scale = 0.0, 1.0
        self.last_direction: Tensor | None = None
        self.last_gradient: Tensor | None = None
        self.pairs: list[tuple[Tensor, Tensor, float]] = []  # and their product

    def direction(self, gradient: Tensor, most: int) -> Tensor:
        """The next direction, by the two loops over the pairs; keeps the pair of the last step where it curves up."""
        self.iterations += 1
        if self.last_direction is not None and self.last_gradient is not None:
            y, s = gradient - self.last_gradient, self.last_direction * self.step
            curvature = _dot(y, s)
            if curvature > 1e-10:
                self.pairs = [*self.pairs, (y, s, curvature)][-most:]
                self.scale = curvature / _dot(y, y)
        q, factors = -gradient, []
        for y, s, product in reversed(self.pairs):
            factors.append(_dot(s, q) / product)
            q = q - y * factors[-1]
        q = q * self.scale if self.last_direction is not None else q
        for (y, s, product), a in zip(self.pairs, reversed(factors)):
            q = q + s * (a - _dot(y, q) / product)
        self.last_direction, self.last_gradient = q, gradient
        return q

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a file; empty before the first step."""
        if self.last_direction is None or self.last_gradient is None:
            return {}
        found = {
            "numbers": np.array([self.iterations, self.evaluations, self.step, self.scale]),
            "direction": self.last_direction.numpy().copy(), "gradient": self.last_gradient.numpy().copy(),
        }  # fmt: skip
        if self.pairs:
            found["changes"] = np.stack([y.numpy() for y, _, _ in self.pairs])
            found["steps"] = np.stack([s.numpy() for _, s, _ in self.pairs])
        return found

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> Memory:
        """The memory that these arrays came from."""
        m = Memory()
        if arrays:
            iterations, evaluations, m.step, m.scale = map(float, arrays["numbers"])
            m.iterations, m.evaluations = int(iterations), int(evaluations)
            m.last_direction, m.last_gradient = Tensor(arrays["direction"]), Tensor(arrays["gradient"])
            if "changes" in arrays:
                pairs = [(Tensor(y), Tensor(s)) for y, s in zip(arrays["changes"], arrays["steps"])]
                m.pairs = [(y, s, _dot(y, s)) for y, s in pairs]
        return m


def _number(loss: Any) -> float:
    return float(loss.item() if isinstance(loss, Tensor) else loss)


def _dot(a: Tensor, b: Tensor) -> float:
    return float(F.dot(a, b).item())


def _largest(x: Tensor) -> float:
    return float(F.abs(x).max().item()) if x.size else 0.0


def _total(x: Tensor) -> float:
    return float(F.abs(x).sum().item())


# ---- line search -------------------------------------------------------------------------------------------------------


def strong_wolfe(
    evaluate: Evaluate, t: float, f: float, g: Tensor, slope: float, most: int, d_norm: float, c1: float = 1e-4, c2: float = 0.9,
    least: float = 1e-9,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """A step that fulfils the strong Wolfe conditions, by bracketing and zooming with cubic interpolation (Nocedal and Wright,
    algorithms 3.5 and 3.6), in the order of PyTorch's `_strong_wolfe`.

    Args: t: the first step to try. f, g, slope: loss, gradient and slope at 0. most: calls. d_norm: largest element of the direction.

    Returns: loss and gradient at the step, the step, and the number of calls.
    """
    start = (0.0, f, g, slope)
    last, new = start, (t, *evaluate(t))
    calls = 1
    n = 0
    while n < most:
        if new[1] > f + c1 * new[0] * slope or (n > 1 and new[1] >= last[1]):
            bracket = [last, new]
            break
        if abs(new[3]) <= -c2 * slope:
            return new[1], new[2], new[0], calls
        if new[3] >= 0:
            bracket = [last, new]
            break
        t = cubic(last, new, new[0] + 0.01 * (new[0] - last[0]), new[0] * 10)
        last, new = new, (t, *evaluate(t))
        calls, n = calls + 1, n + 1
    else:
        bracket = [start, new]
    low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
    stuck = False
    while n < most and abs(bracket[1][0] - bracket[0][0]) * d_norm >= least:
        left, right = sorted((bracket[0][0], bracket[1][0]))
        t = cubic(bracket[0], bracket[1], left, right)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = (t, *evaluate(t))
        calls, n = calls + 1, n + 1
        if new[1] > f + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
            continue
        finished = abs(new[3]) <= -c2 * slope
        if not finished and new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
        if finished:
            break
    return bracket[low][1], bracket[low][2], bracket[low][0], calls


def cubic(a: tuple, b: tuple, least: float, most: float) -> float:
    """Where the cubic through two points (place, value, ..., slope) has its minimum, within bounds; their middle where it has
    none."""
    (x1, f1, _, g1), (x2, f2, _, g2) = (a, b) if a[0] <= b[0] else (b, a)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2) if x1 != x2 else math.nan
    square = d1**2 - g1 * g2
    d2 = math.sqrt(square) if square >= 0 else math.nan
    over = g2 - g1 + 2 * d2
    if over == 0 or math.isnan(over):
        return (least + most) / 2
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / over), least), most)
