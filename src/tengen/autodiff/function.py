"""`Function`: an operation with a gradient of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.autodiff.functions import vjp
from tengen.base.errors import GradientError
from tengen.ops.batching import everywhere
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.batched import Mapping, innermost_of
from tengen.tensor.batching import examples, whole
from tengen.tensor.control import run_function
from tengen.tensor.nodes import Level, TapeNode, levels, limits, on_tape, visible_node
from tengen.tensor.recording import tracing
from tengen.tensor.tape import FunctionOp, cut


def _with_node(x: Tensor) -> Tensor:
    t = x._off_tape()
    t._node = x._node
    return t


class Function:
    """Subclass it with `forward(*inputs)` and `backward(*output_grads)`, and call an instance. `backward` returns the
    gradient of each input, or None; what it needs, `forward` keeps on self.

    Gradients of gradients differentiate `backward`, also by what `forward` kept.

    Inside of `vmap` its ops are those of all examples. A class may have a way of its own: a static method `vmap(size, in_axes, *inputs)`,
    which is given how many examples there are, for each input the axis of the examples, 0, or None, and the whole inputs; it returns
    (outputs, out_axes), with an axis or None for each output. Gradients of all examples, inside and around, are those of what it calls:
    ops, or another `Function`. There its inputs are tensors of floats.

    Errors: `GradientError` where `forward` uses a tensor that a gradient is recorded for and that is not among the inputs:
    `backward` has no place for it. Pass it as an input, or `detach()` it. Also for a number of gradients that does not fit.

    >>> from tengen import Tensor, autodiff
    >>> class Clipped(autodiff.Function):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def backward(self, dy):
    ...         return dy * 100
    >>> autodiff.grad(lambda x: Clipped()(x).sum())(Tensor([1.0])).tolist()
    [100.0]
    """

    _is_recorded = True  # in a body of a loop or a branch: its forward() and backward() as graphs

    def forward(self, *inputs: Any) -> Any:
        """Computes the outputs, off the tape of the innermost gradient."""
        raise NotImplementedError(f"{type(self).__name__} needs forward()")

    def backward(self, *grads: Any) -> Any:
        """Computes the inputs' gradients."""
        raise NotImplementedError(f"{type(self).__name__} needs backward()")

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        mapping = innermost_of(self._name(), tensors)
        in_body = tracing.recorder is not None and tracing.recorder.of_a_body
        if mapping is not None:
            own = getattr(self, "vmap", None)
            if in_body and own is not None:
                tracing.recorder.function = f"{self._name()} by its rule for vmap"
            return self._for_all(mapping, inputs, tensors) if own is None else self._by_its_rule(own, mapping, inputs, tensors)
        if in_body and self._is_recorded:
            return self._in_body(inputs, tensors)
        if in_body:
            tracing.recorder.function = self._name()
        nested = len(levels) > 1  # what forward() keeps may be differentiated
        given = [x._off_tape() for x in tensors]
        with Level() as level:
            starts = [level.start(t)[0] for t in given] if nested else []
            rest = iter(given)
            out = self.forward(*(next(rest) if isinstance(x, Tensor) else x for x in inputs))
            outs = out if isinstance(out, tuple) else (out,)
            if any(o._node is not None for o in cut(self._made(outs), level)):
                raise GradientError(
                    f"{self._name()}.forward() uses a tensor whose gradient is being recorded and that is not among its inputs, so that "
                    "the gradient would be lost; help: pass it as an input, or detach() it"
                )
            for start, x in zip(starts, tensors):  # now they lead to the inputs
                start.saved = [(None, x._layout, x._node)] if x._node is not None else []
        for t, x in zip(given, tensors):
            t._node = x._node if nested and t._data is x._data else t._node
        if not any(on_tape(x) for x in tensors):
            return out if not limits else tuple(o._off_tape() for o in outs) if isinstance(out, tuple) else out._off_tape()
        outs = self._on_tape(tuple(o._off_tape() for o in outs), inputs, tensors)
        return outs if isinstance(out, tuple) else outs[0]

    def _in_body(self, inputs: tuple, tensors: list[Tensor]) -> Any:
        """The call in the body of a loop or a branch, which is differentiated as a graph."""

        def forward(*given: Tensor) -> Any:
            rest = iter(given)
            return self.forward(*(next(rest) if isinstance(x, Tensor) else x for x in inputs))

        def backward(*grads: Tensor | None) -> tuple:
            found = self.backward(*grads)
            found = found if isinstance(found, tuple) else (found,)
            return tuple(r for r, x in zip(found, inputs) if isinstance(x, Tensor)) if len(found) == len(inputs) else found

        several, outs = run_function(forward, backward, tensors, self._name())
        return tuple(outs) if several else outs[0]

    def _name(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def _made(self, outs: tuple) -> list[Tensor]:
        """The tensors that forward() has made."""
        return [o for o in outs if isinstance(o, Tensor)]

    def _on_tape(self, outs: tuple[Tensor, ...], inputs: tuple, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        """The results, on the tape of the inputs."""
        node = (visible_node if limits else TapeNode)(self._rule(len(outs), inputs), tuple(_with_node(x) for x in tensors), ())
        for i, o in enumerate(outs):
            if o.dtype.is_inexact:
                o._node = node if len(outs) == 1 else (node, i)
        return outs

    def _for_all(self, mapping: Mapping, inputs: tuple, tensors: list[Tensor]) -> Any:
        """The call inside of `vmap`, for all examples: as one function of the tensors that hold them, which are on the tapes around
        the `vmap`, and as this one on those inside of it."""
        pairs = iter([whole(x, mapping) for x in tensors])
        wholes = [next(pairs) if isinstance(x, Tensor) else (x, False) for x in inputs]
        out = _ForAll(self, mapping, [b for _, b in wholes])(*(x for x, _ in wholes))
        outs = tuple(examples(o, mapping) for o in (out if isinstance(out, tuple) else (out,)))
        if any(on_tape(x) for x in tensors):
            outs = self._on_tape(outs, inputs, tensors)
        return outs if isinstance(out, tuple) else outs[0]

    def _by_its_rule(self, rule: Any, mapping: Mapping, inputs: tuple, tensors: list[Tensor]) -> Any:
        """The call inside of `vmap` by the class's own rule, whose ops are those of the tensors that hold all examples."""
        wholes = [whole(x, mapping) for x in tensors]
        several = True

        def run(*given: Tensor) -> tuple[Tensor, ...]:
            nonlocal several
            found, left = iter(given), iter(wholes)
            pairs = [next(left) if isinstance(x, Tensor) else (x, False) for x in inputs]
            full = [next(found) if isinstance(x, Tensor) else x for x in inputs]
            several, outs = self._outputs(rule(mapping.size, tuple(0 if b else None for _, b in pairs), *full), mapping.size)
            return outs

        if not any(on_tape(x) for x in tensors):
            outs = tuple(examples(o, mapping) for o in run(*(x for x, _ in wholes)))
            return outs if several else outs[0]
        wholes = [(everywhere(x, b, mapping.size), True) for x, b in wholes]  # each example has a gradient of its own
        made, pull = vjp(run, *(x for x, _ in wholes))
        outs = tuple(examples(o, mapping) for o in made)
        outs = _Ruled(mapping, run, pull, made)._on_tape(outs, inputs, tensors)
        return outs if several else outs[0]

    def _outputs(self, made: Any, size: Any) -> tuple[bool, tuple[Tensor, ...]]:
        """(Whether a rule returned a tuple of outputs, the outputs with all examples along axis 0). Errors: GradientError for what is
        no (outputs, out_axes)."""
        if not isinstance(made, tuple) or len(made) != 2:
            raise GradientError(f"{self._name()}.vmap() returned a {type(made).__name__}; help: a pair, (outputs, out_axes)")
        out, axes = made
        outs, places = (out, axes) if isinstance(out, tuple) else ((out,), (axes,))
        if not isinstance(places, tuple) or len(places) != len(outs) or not all(a is None or isinstance(a, int) for a in places):
            raise GradientError(f"{self._name()}.vmap() gave {len(outs)} outputs and the axes {axes!r}; help: an axis or None for each")
        found = []
        for o, axis in zip(outs, places):
            fits = isinstance(o, Tensor) and (axis is None or (-o.ndim <= axis < o.ndim and o.shape[axis] == size))
            if not fits:
                said = repr(o._layout.type) if isinstance(o, Tensor) else f"a {type(o).__name__}"
                raise GradientError(f"{self._name()}.vmap() gave {said}, which has not {size} examples along axis {axis}")
            found.append(everywhere(o if axis in (0, None) else REGISTRY["moveaxis"].call(o, axis, 0), axis is not None, size))
        return isinstance(out, tuple), tuple(found)

    def _rule(self, n_outs: int, inputs: tuple) -> Any:
        """What the backward walk asks of an op."""
        which = [i for i, x in enumerate(inputs) if isinstance(x, Tensor)]

        def rule(g, *xs, **attrs):
            r = self.backward(*(g if isinstance(g, tuple) else (g,)))
            r = r if isinstance(r, tuple) else (r,)
            if len(r) not in (len(inputs), len(which)):
                raise GradientError(f"{type(self).__name__}.backward() gave {len(r)} gradients for {len(inputs)} inputs")
            return tuple(r[i] for i in which) if len(r) == len(inputs) else r

        return FunctionOp(type(self).__name__, rule, n_outs)


class _Ruled(Function):
    """The gradient, for each example, of what a rule for `vmap` computed.

    Attributes:
        run: the rule, of the tensors that hold all examples. pull: its pullback. made: what it computed.
    """

    def __init__(self, mapping: Mapping, run: Callable, pull: Callable, made: Sequence[Tensor]):
        self.mapping, self.run, self.pull, self.made = mapping, run, pull, made

    def _rule(self, n_outs: int, inputs: tuple) -> Any:
        node = super()._rule(n_outs, inputs)

        def rule(g: Any, *xs: Tensor, **attrs: Any) -> tuple:
            gs = [g] if isinstance(g, Tensor) else list(g)
            gs = [examples(REGISTRY["zeros_like"](o), self.mapping) if g is None else g for g, o in zip(gs, self.made)]
            if any(on_tape(t) for t in (*gs, *xs)):  # a gradient of the gradient is being recorded
                return _Pull(self.run, len(gs))(*gs, *xs)
            full = [everywhere(*whole(g, self.mapping), self.mapping.size) for g in gs]
            return tuple(examples(r, self.mapping) for r in self.pull(full))

        node.rules.vjp = rule
        return node


class _Pull(Function):
    """The pullback of a rule for `vmap` as a function of gradients of its outputs and of its inputs, which has a rule itself."""

    def __init__(self, run: Callable, n_outs: int):
        def rule(size: Any, in_axes: tuple, *tensors: Tensor) -> tuple:
            full = [everywhere(x, axis is not None, size) for x, axis in zip(tensors, in_axes)]
            found = vjp(run, *full[n_outs:])[1](full[:n_outs])
            return found, (0,) * len(found)

        self.vmap = rule


class _ForAll(Function):
    """A function inside of `vmap` as one of the tensors that hold all examples.

    Attributes:
        function: the user's, of one example. batched: which inputs have the examples along axis 0.
    """

    def __init__(self, function: Function, mapping: Mapping, batched: list[bool]):
        self.function, self.mapping, self.batched = function, mapping, batched

    def forward(self, *inputs: Any) -> Any:
        self.tensors = [b for x, b in zip(inputs, self.batched) if isinstance(x, Tensor)]
        with self.mapping:
            out = self.function.forward(*(examples(x, self.mapping) if b else x for x, b in zip(inputs, self.batched)))
            outs = out if isinstance(out, tuple) else (out,)
            self.inside = [o for o in outs if isinstance(o, Tensor)]
            made = tuple(everywhere(*whole(o, self.mapping), self.mapping.size) for o in outs)
        return made if isinstance(out, tuple) else made[0]

    def _made(self, outs: tuple) -> list[Tensor]:
        inside, self.inside = self.inside, []
        return [*super()._made(outs), *inside]

    def _name(self) -> str:
        return self.function._name()

    def backward(self, *grads: Any) -> Any:
        with self.mapping:
            found = self.function.backward(*(None if g is None else examples(g, self.mapping) for g in grads))
            found = found if isinstance(found, tuple) else (found,)
            batched = self.batched if len(found) == len(self.batched) else self.tensors
            return tuple(None if g is None else self._of_all(g, b) for g, b in zip(found, batched))

    def _of_all(self, g: Tensor, is_batched: bool) -> Tensor:
        """A gradient for all examples; of an input that is the same in all, the sum."""
        full = everywhere(*whole(g, self.mapping), self.mapping.size)
        return full if is_batched else REGISTRY["sum"].call(full, 0)
