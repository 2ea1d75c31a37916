"""`torch.autograd.graph`: the recorded calls, and functions that keep what they save.

>>> from tengen.pytorch import ones
>>> w = ones(2, requires_grad=True)
>>> with saved_tensors_hooks(lambda x: x.to("float16"), lambda packed: packed.to("float32")):
...     y = (w * w).sum()
>>> y.backward()
>>> w.grad.tolist(), y.grad_fn.name()
([2.0, 2.0], 'SumBackward0')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.tensor import Tensor, saved
from tengen.tensor.hooks import HookHandle, put
from tengen.tensor.leaves import is_leaf
from tengen.tensor.nodes import SPENT, TapeNode, node_of, on_tape

_NAMES = {"concat": "Cat", "astype": "ToCopy", "matmul": "Mm", "copy": "Clone", "strided_slice": "Slice", "getitem": "Index"}


class Node:
    """A recorded call, or, with the name "AccumulateGrad", a leaf: what `tensor.grad_fn` is, and what stands in its `next_functions`."""

    def __init__(self, node: TapeNode):
        self._node = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other._node is self._node

    def __hash__(self) -> int:
        return hash(id(self._node))

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def name(self) -> str:
        """What PyTorch calls it: the operation's name, and "Backward0"."""
        if self._node.op is None:
            return "AccumulateGrad"
        words = _NAMES.get(self._node.op.name) or "".join(w.capitalize() for w in self._node.op.name.replace(".", "_").split("_"))
        return f"{words}Backward0"

    @property
    def variable(self) -> Tensor:
        """The leaf. Errors: AttributeError of a call"""
        leaf = self._node.attrs() if self._node.op is None and callable(self._node.attrs) else None
        if leaf is None:
            raise AttributeError(f"{self.name()} has no variable, or nobody holds it any more")
        return leaf

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """(The call that made an operand, which of its results it is) for each operand; (None, 0) for one that requires no gradient."""
        if self._node.op is None or self._node.attrs is SPENT:
            return ()
        places = [None if s is None else s[2] for s in self._node.saved]
        return tuple((None, 0) if p is None else (Node(p[0]), p[1]) if isinstance(p, tuple) else (Node(p), 0) for p in places)

    def register_prehook(self, fn: Callable[[tuple], Any]) -> HookHandle:
        """Calls fn((gradient,)) when the gradient of the call's first result is there; what it returns, if anything, takes its place."""
        if not hasattr(self._node, "hooks"):
            self._node.hooks = {}

        def hook(g: Tensor) -> Any:
            new = fn((g,))
            return new[0] if isinstance(new, tuple) else new

        return put(self._node.hooks, (0, hook))

    def register_hook(self, fn: Callable[[tuple, tuple], Any]) -> HookHandle:
        """Calls fn(gradients of the operands, gradients of the results) when a walk has computed the former, with None where there is none.
        A tuple that it returns takes their place. Of a leaf: fn((), (gradient,)) once the gradient was added to `grad`.

        Errors: GradientError, in the walk, for a tuple of another length, or gradients of another shape or dtype

        >>> from tengen.pytorch import ones
        >>> w = ones(2, requires_grad=True)
        >>> y = w * 3.0
        >>> handle = y.grad_fn.register_hook(lambda of_operands, of_results: (of_operands[0] * 2.0, None))
        >>> y.sum().backward()
        >>> w.grad.tolist()
        [6.0, 6.0]
        """
        if self._node.op is None:
            return self.variable.register_post_accumulate_grad_hook(lambda leaf: fn((), (leaf.grad,)))
        if not hasattr(self._node, "hooks"):
            self._node.hooks = {}
        return put(self._node.hooks, (None, fn))


def grad_fn(t: Tensor) -> Node | None:
    """The recorded call whose result the tensor is; None of a leaf."""
    return None if is_leaf(t) else Node(node_of(t)[0])


class saved_tensors_hooks:
    """A block in which what calls save for their gradients is kept as pack_hook(tensor) gives it; unpack_hook makes a tensor of the same shape
    and dtype of that again, each time a gradient needs it.

    Operands and results that a call's gradient may need are packed, those that PyTorch would not save too; views' operands are not.

    Errors: RuntimeError inside of `disable_saved_tensors_hooks`; GradientError, in the walk, where unpack_hook gives another tensor
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _disabled:
            raise RuntimeError(_disabled[-1])
        saved.begin(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        saved.end()


class save_on_cpu:
    """A block that changes nothing: what calls save lies on the processor. pin_memory, device_type: accepted."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        pass

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


class allow_mutation_on_saved_tensors(save_on_cpu):
    """A block that changes nothing: what is written in place here never changes what a call has saved."""

    def __init__(self) -> None:
        pass


_disabled: list[str] = []


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Any:
    """A block, or a function so decorated, in which `saved_tensors_hooks` raises a RuntimeError with this message."""
    _disabled.append(error_message)
    try:
        yield
    finally:
        _disabled.pop()


class _Handles:
    """Several handles as one."""

    def __init__(self, handles: Sequence[HookHandle]):
        self._handles = tuple(handles)

    def remove(self) -> None:
        """The hook is not called any more."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _Handles:
    """Calls fn(gradients) once the gradients of all these tensors are there, each of which a walk has to reach; mode="any":
    fn(gradient) of the first of them in each walk that ends after all were reached. Returns: what takes it off.

    Errors: ArgumentError for another mode, GradientError for a tensor that requires no gradient

    >>> from tengen.pytorch import ones
    >>> a, b, seen = ones(1, requires_grad=True), ones(1, requires_grad=True), []
    >>> handle = register_multi_grad_hook([a, b], lambda grads: seen.append([g.item() for g in grads]))
    >>> (a * 2 + b * 3).backward()
    >>> seen
    [[2.0, 3.0]]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"register_multi_grad_hook: mode={mode!r} must be 'all' or 'any'")
    there: dict[int, Tensor] = {}

    def arrived(i: int, g: Tensor) -> None:
        there[i] = g
        if mode == "any" and len(there) == 1:
            fn(g)
        if len(there) == len(tensors):
            if mode == "all":
                fn([there[k] for k in range(len(tensors))])
            there.clear()

    return _Handles([t.register_hook(lambda g, i=i: arrived(i, g)) for i, t in enumerate(tensors)])


class GradientEdge:
    """The place of a tensor among the recorded calls. Attributes: node: a `Node`; output_nr: which of its results it is."""

    def __init__(self, node: Node, output_nr: int):
        self.node, self.output_nr = node, output_nr


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of a tensor. Errors: ArgumentError for one that requires no gradient"""
    if not on_tape(tensor):
        raise ArgumentError(f"get_gradient_edge of {tensor._layout.type!r}, which requires no gradient")
    node, index = node_of(tensor)
    return GradientEdge(Node(node), index)


__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "register_multi_grad_hook",
    "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip
