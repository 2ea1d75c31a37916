"""`GradScaler`: losses are multiplied by a large number, so that small gradients do not vanish in float16, and gradients
divided by it again; the number adapts itself.

In: losses, gradients, optimizers. Out: gradients without the factor; steps that leave everything as it is where a gradient is not
finite. All that changes from step to step are 0-d tensors, so a trace keeps it as states.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.autodiff import GradManager
from tengen.base.arguments import Checked
from tengen.functional import isfinite, logical_and, logical_not, logical_or, maximum, where
from tengen.ops.update import unscale
from tengen.optimizer import Optimizer
from tengen.optimizer.clip import owner_of
from tengen.tensor import Parameter, Tensor

LEAST = float(np.finfo(np.float32).tiny)  # a scale whose inverse is finite


class GradScaler(Checked):
    """Scales losses, and skips the steps whose gradients overflowed.

    Args:
        init_scale: the factor at first. growth_factor: what it is multiplied by after `growth_interval` good steps in a row.
        backoff_factor: what it is multiplied by after a step whose gradients were not finite. growth_interval: 0 keeps the
            factor, and looks at no gradient. enabled: False does nothing at all.

    As in MegEngine, `backward` does all of it, and `opt.step()` is then the step:

    Errors: ValueError for factors or intervals out of range, TypeError for a device as the first argument

    >>> from tengen import Parameter, amp, autodiff, optimizer
    >>> w = Parameter([2.0])
    >>> gm, opt = autodiff.GradManager().attach([w]), optimizer.SGD([w], lr=0.25)
    >>> scaler = amp.GradScaler(init_scale=1024.0)
    >>> with gm:
    ...     scaler.backward(gm, (w * w).sum())
    >>> opt.step().clear_grad()
    >>> w.tolist(), scaler.scale_factor
    ([1.0], 1024.0)

    As in PyTorch, step by step:

    >>> with gm:
    ...     gm.backward(scaler.scale((w * float("inf")).sum()))
    >>> scaler.step(opt)
    >>> _ = scaler.update()
    >>> w.tolist(), scaler.scale_factor
    ([1.0], 512.0)

    A step that is skipped leaves parameters and the optimizer's state as they were; inside a trace it selects the old values, so
    nothing is decided while recording.
    """

    def __init__(
        self, init_scale: float = 2.0**4, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        *, enabled: bool = True,
    ):  # fmt: skip
        if isinstance(init_scale, str):
            raise TypeError(f"GradScaler({init_scale!r}): the first argument is `init_scale`; help: leave the device out, there is one")
        if not init_scale > 0 or growth_factor < 1 or not 0 < backoff_factor <= 1 or growth_interval < 0:
            raise ValueError(
                f"GradScaler: init_scale={init_scale}, growth_factor={growth_factor}, backoff_factor={backoff_factor}, "
                f"growth_interval={growth_interval} are out of range"
            )
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, operator.index(growth_interval)
        self.enabled = enabled
        self._scale = Tensor(np.float32(init_scale))
        self._good = Tensor(np.int32(0))  # steps in a row
        self._found = Tensor(np.bool_(False))  # a gradient since the last update was not finite
        self._skip = Tensor(np.bool_(False))  # the same, and stays so until other gradients are looked at
        self._unscaled: list[Optimizer] = []  # since the last update

    @property
    def scale_factor(self) -> float:
        """The factor of now."""
        return float(self._scale.item())

    @scale_factor.setter
    def scale_factor(self, value: float) -> None:
        self._scale._reset(Tensor(np.float32(value)))

    def get_scale(self) -> float:
        """PyTorch's name for `scale_factor`."""
        return self.scale_factor

    # -- in one go, as in MegEngine ----------------------------------------------------------------------------------------
    def backward(
        self, gm: GradManager, y: Tensor | Sequence[Tensor] | None = None, dy: Tensor | Sequence[Tensor] | None = None, *,
        unscale_grad: bool = True, update_scale: bool | str = "if_unscale_grad",
    ) -> None:  # fmt: skip
        """`gm.backward(y, dy)` of the scaled y; then the gradients without the factor, and the factor for the next step.

        Args:
            unscale_grad: False leaves the gradients scaled, for more of them to be added; call `unscale` and `update` later.
            update_scale: whether the factor is updated; by default, if gradients are unscaled.
        """
        ys = [] if y is None else [y] if isinstance(y, Tensor) else list(y)
        gm.backward([self.scale(t) for t in ys], dy)
        if unscale_grad:
            self.unscale(gm.attached_tensors())
        if unscale_grad if update_scale == "if_unscale_grad" else update_scale:
            self.update()

    def unscale(self, grad_tensors: Iterable[Tensor | None]) -> GradScaler:
        """Divides the gradients of tensors by the factor, and looks whether they are finite, in all processes that have a part of them.
        Returns self."""
        if not self.enabled:
            return self
        tensors = [t for t in grad_tensors if t is not None]
        owner = owner_of(tensors)
        tensors = [t for t in (tensors if owner is None else owner.pieces(tensors)) if t.grad is not None]
        inverse = 1.0 / self._scale
        finite = []
        for t in tensors:
            if self.growth_interval:
                t.grad, ok = unscale(t.grad, inverse)
                finite.append(ok)
            else:
                t.grad = (t.grad * inverse).astype(t.grad.dtype)
        if finite or (owner is not None and self.growth_interval):
            bad = logical_not(_all(finite)) if finite else Tensor(False)
            bad = bad if owner is None else owner.anywhere(bad)
            self._found._reset(logical_or(self._found, bad))
            self._skip._reset(self._found.detach())
            for p in tensors:
                if isinstance(p, Parameter):
                    p.overflow = self._skip
        return self

    def update(self, new_scale: float | Tensor | None = None) -> GradScaler:
        """The factor for the next step: smaller where a gradient was not finite, larger after `growth_interval` good steps, or
        `new_scale`. Returns self."""
        if self.enabled and self.growth_interval:
            if new_scale is not None:
                new = new_scale if isinstance(new_scale, Tensor) else Tensor(np.float32(new_scale))
                self._scale._reset(new.astype("float32").detach())
            else:
                self._adapt()
            self._found._reset(logical_and(self._found, False))
        self._unscaled.clear()
        return self

    def _adapt(self) -> None:
        good = where(self._found, 0, self._good + 1).astype("int32")
        larger = self._scale * self.growth_factor
        grows = good >= self.growth_interval
        kept = where(logical_and(grows, isfinite(larger)), larger, self._scale)
        self._scale._reset(where(self._found, maximum(self._scale * self.backoff_factor, LEAST), kept))
        self._good._reset(where(grows, 0, good).astype("int32"))

    # -- step by step, as in PyTorch ---------------------------------------------------------------------------------------
    def scale(self, outputs: Any) -> Any:
        """A loss, or losses in a list or tuple, times the factor; at least in float32."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(t) for t in outputs)
        return outputs * self._scale if self.enabled else outputs

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of an optimizer's parameters by the factor, before they are clipped, say.

        Errors: RuntimeError where that was done since the last `update`.
        """
        if any(o is optimizer for o in self._unscaled):
            raise RuntimeError("unscale_() was called for this optimizer since the last update()")
        self._unscaled.append(optimizer)
        self.unscale(p for g in optimizer.param_groups for p in g["params"])

    def step(self, optimizer: Optimizer) -> None:
        """`unscale_` where it was not called, and a step of the optimizer, which is skipped if gradients are not finite."""
        if not any(o is optimizer for o in self._unscaled):
            self.unscale_(optimizer)
        optimizer.step()

    # -- state ---------------------------------------------------------------------------------------------------------------
    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensors that it keeps, with names for a file."""
        for name, t in (("scale", self._scale), ("growth_tracker", self._good), ("found_inf", self._found), ("skip", self._skip)):
            yield f"grad_scaler.{name}", t

    def state_dict(self) -> dict[str, Any]:
        """The numbers that it goes on from, as plain data."""
        return {
            "scale": self.scale_factor, "growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval, "_growth_tracker": int(self._good.item()),
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave (MegEngine's, with ``scale_factor``, too).

        Errors: KeyError where a number is missing, ValueError where one is out of range; nothing is changed then.
        """
        scale = state_dict["scale"] if "scale" in state_dict else state_dict["scale_factor"]
        growth, backoff, interval, good = (state_dict[k] for k in ("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"))
        other = GradScaler(float(scale), float(growth), float(backoff), int(interval))  # checks them
        good = np.int32(operator.index(good))
        self.growth_factor, self.backoff_factor, self.growth_interval = other.growth_factor, other.backoff_factor, other.growth_interval
        self.scale_factor = float(scale)
        self._good._reset(Tensor(good))


def _all(flags: list[Tensor]) -> Tensor:
    found = flags[0]
    for f in flags[1:]:
        found = logical_and(found, f)
    return found
