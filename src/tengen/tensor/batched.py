"""What a tensor is inside of `vmap`: one example, whose users see its type, over a tensor that holds all examples.

In `vmap(f)(x)`, f is called once, with a tensor of the type of one example. Its `Layout` is a `Batched`, which belongs to a
`Mapping`, the run of `vmap` that it is inside of; its data is the whole tensor, with the examples along axis 0. Ops on such a
tensor are brought to ops on whole tensors by `tengen.tensor.batching`. The whole tensor may itself be an example of a `vmap`
around this one, be recorded by a trace, or lie on the tape, so all of these nest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tengen.base.errors import VmapError, user_line
from tengen.kernels.lowering import contiguous_strides, product

if TYPE_CHECKING:
    from tengen.ir.types import TensorType
    from tengen.tensor.tensor import Tensor


class _Active(threading.local):
    def __init__(self) -> None:
        self.mappings: list[Mapping] = []


_active = _Active()


class Mapping:
    """One run of `vmap`. As a context manager it is active inside of the block, also a second time.

    Attributes:
        size: how many examples. randomness: "error", "same" or "different".
    """

    __slots__ = ("size", "randomness")

    def __init__(self, size: Any, randomness: str = "error"):
        self.size, self.randomness = size, randomness

    def __enter__(self) -> Mapping:
        _active.mappings.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _active.mappings.pop()

    @property
    def active(self) -> bool:
        """Whether its function is being called, by this thread."""
        return self in _active.mappings

    @property
    def depth(self) -> int:
        """How many blocks of this thread the latest one of this run is inside of: a backward that enters an ended run once more, in a
        `vmap` of its own, is inside of that one. The run has to be active."""
        return len(_active.mappings) - 1 - _active.mappings[::-1].index(self)


def innermost() -> Mapping | None:
    """The innermost run of `vmap` that this thread is in."""
    return _active.mappings[-1] if _active.mappings else None


def mappings() -> tuple[Mapping, ...]:
    """The runs of `vmap` that this thread is in, the outermost first; each once."""
    return tuple(dict.fromkeys(_active.mappings))


class Batched:
    """What stands in for a `Layout` inside of `vmap`: the type of one example.

    Attributes:
        mapping: the run of `vmap` along whose axis the examples lie.
    """

    __slots__ = ("shape", "dtype", "type", "size", "strides", "device", "contiguous", "order", "mapping")

    def __init__(self, t: TensorType, device: Any, mapping: Mapping):
        self.type, self.shape, self.dtype, self.device, self.mapping = t, t.shape, t.dtype, device, mapping
        self.size, self.strides = product(t.shape), contiguous_strides(t.shape)
        self.contiguous, self.order = True, None


def mapping_of(t: Any) -> Mapping | None:
    """The innermost run of `vmap` of which a tensor is an example; None for a tensor that is the same in all."""
    layout = getattr(t, "_layout", None)
    return layout.mapping if type(layout) is Batched else None


def innermost_of(what: str, tensors: Iterable[Any]) -> Mapping | None:
    """The innermost run of `vmap` of which one of the tensors is an example; None where all are the same in all examples.

    Args:
        what: what they are operands of, for the message.
    Errors: VmapError for an example of a run that has ended.
    """
    found = {m for x in tensors if (m := mapping_of(x)) is not None}
    if not all(m.active for m in found):
        raise VmapError(
            f"{what}: an operand stands for one example of a vmap that has ended; help: return it from the function instead of keeping "
            "it in an attribute or a list"
        )
    return max(found, key=lambda m: m.depth, default=None)


def check_same_mapping(target: Tensor, value: Tensor) -> None:
    """VmapError where a tensor that is the same for all examples of a `vmap` would take a value that differs by example."""
    if mapping_of(target) is not mapping_of(value):
        raise VmapError(
            f"{user_line()}: inside of vmap a tensor {target._layout.type!r} that is the same for all examples is given a value that "
            "differs by example; help: return the value, or begin with a tensor that is made of an argument (x * 0)"
        )


def check_has_values(t: Any) -> None:
    """VmapError for an example of a `vmap`."""
    if mapping_of(t) is not None:
        raise VmapError(
            f"{user_line()}: the values of {t._layout.type!r} are asked for inside of vmap (by numpy(), item(), bool(), float() or the "
            "like), where a tensor stands for every example at once; help: return the tensor, or use functional.where and friends "
            "instead of Python decisions"
        )
