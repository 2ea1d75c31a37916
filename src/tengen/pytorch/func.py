"""`torch.func`: gradients, maps and derivatives of functions of tensors in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tengen import autodiff
from tengen import module as M
from tengen.base.arguments import flags_of_functions
from tengen.base.errors import UnknownName
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def _tensors(x: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dicts, in order."""
    if isinstance(x, Tensor):
        return [x]
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (tuple, list)) else ()
    return [t for part in parts for t in _tensors(part)]


def _rebuilt(x: Any, new: Iterator[Any]) -> Any:
    """x with other things in the places of its tensors."""
    if isinstance(x, Tensor):
        return next(new)
    if isinstance(x, dict):
        return {k: _rebuilt(v, new) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_rebuilt(v, new) for v in x))
    return type(x)(_rebuilt(v, new) for v in x) if isinstance(x, (tuple, list)) else x


def grad_and_value(func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """A function that returns (gradient, value), with has_aux (gradient, (value, what the function returned beside it)).

    >>> grad_and_value(lambda x: (x * x).sum())(Tensor([3.0]))[0].tolist()
    [6.0]
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        kept: list[Any] = []

        def scalar(*args: Any, **kwargs: Any) -> Any:
            out = func(*args, **kwargs)
            if has_aux:
                out, aux = out
                kept[:] = [_rebuilt(aux, iter([t.detach() for t in _tensors(aux)]))]
            return out

        value, found = autodiff.value_and_grad(scalar, argnums)(*args, **kwargs)
        return found, ((value, kept[0]) if has_aux else value)

    return run


def grad(func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """The gradient of a function of one element as a function; it nests. has_aux: the function returns (value, anything).

    >>> grad(grad(lambda x: x**3))(Tensor(2.0)).item()
    12.0
    """
    if not has_aux:
        return autodiff.grad(func, argnums)
    both = grad_and_value(func, argnums, True)

    def run(*args: Any, **kwargs: Any) -> Any:
        found, (_, aux) = both(*args, **kwargs)
        return found, aux

    return run


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), a function from the result's gradient to those of the primals), with has_aux what it returned beside it too."""
    given, kept = _tensors(primals), []

    def flat(*xs: Tensor) -> Any:
        out = func(*_rebuilt(primals, iter(xs)))
        if has_aux:
            out, aux = out
            kept[:] = [aux]
        shape.append(out)
        return tuple(_tensors(out))

    shape: list[Any] = []
    outs, pull = autodiff.vjp(flat, *given)
    out = _rebuilt(shape[0], iter(outs))

    def back(*cotangents: Any) -> Any:
        found = _rebuilt(primals, iter(pull(_tensors(cotangents))))
        return found

    return (out, back, kept[0]) if has_aux else (out, back)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """(func(*primals), its derivative along the tangents)."""
    given, along = _tensors(primals), _tensors(tangents)
    shape: list[Any] = []
    kept: list[Any] = []

    def flat(*xs: Tensor) -> Any:
        out = func(*_rebuilt(primals, iter(xs)))
        if has_aux:
            out, aux = out
            kept[:] = [aux]
        shape[:] = [out]
        return tuple(_tensors(out))

    outs, slopes = autodiff.jvp(flat, given, along)
    made = _rebuilt(shape[0], iter(outs)), _rebuilt(shape[0], iter(slopes))
    return (*made, kept[0]) if has_aux else made


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(func(*primals), the linear function of tangents that func is near the primals). That function evaluates func's derivative in each call.

    >>> y, along = linearize(lambda x: x**2, Tensor([3.0]))
    >>> y.tolist(), along(Tensor([1.0])).tolist()
    ([9.0], [6.0])
    """
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(func: Callable, argnums: int | Sequence[int] = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Callable:
    """The Jacobian as a function, of the shape of the output and then of the input.

    Args: argnums: of which arguments; they, and the output, may be tensors in tuples, lists and dicts: then there is a Jacobian in each place.
        has_aux: the function returns (output, anything), the Jacobian (Jacobian, that). chunk_size: accepted; it changes no number.

    >>> jacrev(lambda p: p["w"] * 3)({"w": Tensor([1.0, 2.0])})["w"].tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    several = not isinstance(argnums, int)
    nums = [argnums] if isinstance(argnums, int) else list(argnums)

    def run(*args: Any, **kwargs: Any) -> Any:
        chosen = [args[n] for n in nums]
        out: list[Any] = []

        def flat(*xs: Tensor) -> tuple[Tensor, ...]:
            full = list(args)
            for n, x in zip(nums, _rebuilt(chosen, iter(xs))):
                full[n] = x
            out[:] = [func(*full, **kwargs)]
            return tuple(_tensors(out[0][0] if has_aux else out[0]))

        given = _tensors(chosen)
        rows = autodiff.jacobian(flat, tuple(range(len(given))))(*given)
        each = [_rebuilt(chosen, iter(row)) for row in rows]
        found = _rebuilt(out[0][0] if has_aux else out[0], iter([tuple(e) if several else e[0] for e in each]))
        return (found, _rebuilt(out[0][1], iter([t.detach() for t in _tensors(out[0][1])]))) if has_aux else found

    return run


jacfwd = jacrev


def hessian(func: Callable, argnums: int = 0) -> Callable:
    """The Hessian of a function of one element as a function; of tensors in a dict a dict of dicts."""
    return jacrev(jacrev(func, argnums), argnums)


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: Any = "error", *, chunk_size: int | None = None) -> Callable:
    """The function for all examples along an axis of its arguments, which may stand in tuples, lists and dicts.

    Args: in_dims: the axis of the examples, one for all arguments, or one for each, nested as they are; None: the same for all examples.
        out_dims: the same of the results. randomness: "error", "same" or "different". chunk_size: accepted; it changes no number.

    >>> vmap(lambda x, y: (x * y).sum())(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.0, 1.0], [2.0, 2.0]])).tolist()
    [3.0, 14.0]
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        axes = _spread(args, in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args))
        shape: list[Any] = []
        out_axes: list[Any] = []  # of each tensor of the result, known once the function has run

        def flat(*xs: Tensor) -> Any:
            out = func(*_rebuilt(args, iter(xs)), **kwargs)
            shape[:], out_axes[:] = [out], _spread((out,) if isinstance(out, Tensor) and type(out_dims) in (tuple, list) else out, out_dims)
            return tuple(_tensors(out))

        outs = autodiff.vmap(flat, tuple(axes), out_axes, randomness)(*_tensors(args))
        return _rebuilt(shape[0], iter(outs))

    return run


def _spread(x: Any, axes: Any) -> list[Any]:
    """The axis of each tensor of x, whose structure that of `axes` begins."""
    if isinstance(x, Tensor):
        return [axes]
    if isinstance(x, dict):
        return [a for k, v in x.items() for a in _spread(v, axes[k] if isinstance(axes, dict) else axes)]
    if isinstance(x, (tuple, list)):
        per = axes if isinstance(axes, (tuple, list)) else [axes] * len(x)
        return [a for v, own in zip(x, per) for a in _spread(v, own)]
    return []


@contextmanager
def _with_values(module: M.Module, values: dict[str, Any]) -> Iterator[None]:
    """The module with other tensors under these dotted names."""
    before: list[tuple[dict, str, Any]] = []
    try:
        for name, value in values.items():
            path, _, last = name.rpartition(".")
            owner = vars(module.get_submodule(path))
            if not isinstance(owner.get(last), Tensor):
                raise UnknownName(f"functional_call: {type(module).__name__} has no tensor {name!r}; help: names of named_parameters()")
            before.append((owner, last, owner[last]))
            owner[last] = value
        yield
    finally:
        for owner, last, old in reversed(before):
            owner[last] = old


def functional_call(module: M.Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Any = None, **how: Any) -> Any:
    """module(*args, **kwargs) with other tensors in the places of its parameters and buffers.

    Args: parameter_and_buffer_dicts: tensors by dotted name, one dict or several. args: a tuple, or one argument.
    Errors: KeyError for a name that the module does not have.
    """
    dicts = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, dict) else list(parameter_and_buffer_dicts)
    with _with_values(module, {k: v for d in dicts for k, v in d.items()}):
        return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))


def stack_module_state(models: Sequence[M.Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(Parameters, buffers) of several modules of one kind, each stacked along a new first axis, for `vmap`."""
    stack = REGISTRY["stack"]
    params = {n: stack([dict(m.named_parameters())[n].detach() for m in models], 0) for n, _ in models[0].named_parameters()}
    for p in params.values():
        p.requires_grad = True
    buffers = {n: stack([dict(m.named_buffers())[n] for m in models], 0) for n, _ in models[0].named_buffers()}
    return params, buffers


__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
flags_of_functions(globals(), __all__)
