"""`torch.nn.utils.parametrize`: weights that are computed from other tensors by modules, each time they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tengen import module as M
from tengen.base.arguments import flags_of_functions
from tengen.pytorch.nn.module import Module, ModuleDict
from tengen.pytorch.nn.utils import computed
from tengen.tensor import Parameter, Tensor

_cache: dict[tuple[int, str], Any] | None = None


class ParametrizationList(Module):
    """The modules that compute a tensor, one after the other, from `original` (or `original0`, `original1`, ... where the first module's
    `right_inverse` gives several). They are `self[0]`, `self[1]`, ...

    Errors: ValueError where they give another shape or dtype than the tensor's, unless `unsafe`; TypeError for what is no module
    """

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False):
        super().__init__()
        self.unsafe, self._length = unsafe, 0
        parts: Any = original.detach()
        for f in reversed(list(modules)):
            parts = f.right_inverse(parts) if hasattr(f, "right_inverse") else parts
        self._parts = ["original"] if isinstance(parts, Tensor) else [f"original{i}" for i in range(len(parts))]
        for name, part in zip(self._parts, [parts] if isinstance(parts, Tensor) else parts):
            _put_as(original, self, name, part)
        for f in modules:
            self.append(f, original)

    def append(self, parametrization: Any, like: Tensor | None = None) -> None:
        """One more module behind the others. Errors: those of the class."""
        if not isinstance(parametrization, M.Module):
            raise TypeError(f"a parametrization is a module, got {parametrization!r}")
        before = self() if like is None else like
        setattr(self, str(self._length), parametrization)
        self._length += 1
        after = self()
        if not self.unsafe and (after.shape != before.shape or after.dtype != before.dtype):
            self._length -= 1
            delattr(self, str(self._length))
            raise ValueError(
                f"{type(parametrization).__name__} gives {after.dtype}{list(after.shape)} for a tensor that is "
                f"{before.dtype}{list(before.shape)}; "
                "help: unsafe=True allows it"
            )

    def right_inverse(self, value: Tensor) -> None:
        """Sets what the tensor is computed from, so that it becomes `value`. Errors: RuntimeError where a module has no `right_inverse`."""
        found: Any = value
        for f in reversed(list(self)):
            if not hasattr(f, "right_inverse"):
                raise RuntimeError(f"{type(f).__name__} has no right_inverse, which setting a parametrized tensor needs")
            found = f.right_inverse(found)
        for name, part in zip(self._parts, [found] if isinstance(found, Tensor) else found):
            getattr(self, name)._reset(part.detach())

    def forward(self) -> Tensor:
        first, *rest = self
        x = first(*(getattr(self, name) for name in self._parts))
        for f in rest:
            x = f(x)
        return x

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Any:
        return getattr(self, str(range(self._length)[i]))

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(i)) for i in range(self._length))


def register_parametrization(module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False) -> Any:
    """The parameter or buffer of this name is computed by `parametrization` from now on, of what it was; a second one computes further.
    What it is computed from is ``module.parametrizations.<name>.original``, which is trained and saved. A module with `right_inverse`
    says what it must be for the present value. Setting the tensor sets it.

    Args: unsafe: the result may have another shape or dtype. Returns the module.
    Errors: ValueError where there is no such tensor, and for another shape or dtype; TypeError for what is no module

    >>> from tengen.pytorch import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if is_parametrized(module, tensor_name):
        found = module.parametrizations[tensor_name]
        found.unsafe = found.unsafe or unsafe
        found.append(parametrization)
        return module
    tensor = module.__dict__.get(tensor_name)
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    if not isinstance(parametrization, M.Module):
        raise TypeError(f"a parametrization is a module, got {parametrization!r}")
    made = ParametrizationList([parametrization], tensor, unsafe)
    if "parametrizations" not in module.__dict__:
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made

    def read(m: Any) -> Tensor:
        found = m.parametrizations[tensor_name]
        if _cache is None:
            return found()
        key = id(m), tensor_name
        if key not in _cache:
            _cache[key] = found()
        return _cache[key]

    def write(m: Any, value: Tensor) -> None:
        m.parametrizations[tensor_name].right_inverse(value)

    computed.put(module, tensor_name, read, write)
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or any of its, is computed by `register_parametrization`."""
    found = module.__dict__.get("parametrizations")
    return found is not None and len(found) > 0 and (tensor_name is None or tensor_name in found)


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """The tensor is a parameter or buffer again: of the computed value, or with leave_parametrized=False of what it was computed from.

    Errors: ValueError for a tensor that is not parametrized, and for leave_parametrized=False where it is computed from several
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__} has no parametrization on {tensor_name!r}")
    made = module.parametrizations[tensor_name]
    if not leave_parametrized and made._parts != ["original"]:
        raise ValueError(f"remove_parametrizations: {tensor_name!r} is computed from {len(made._parts)} tensors; help: leave_parametrized=True")
    first = getattr(made, made._parts[0])
    value = made().detach() if leave_parametrized else first.detach()
    computed.take(module, tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
    _put_as(first, module, tensor_name, value)
    return module


def _put_as(original: Tensor, module: Any, name: str, value: Tensor) -> None:
    """A copy of a value as an attribute: a parameter where the original is one, which trains as that does, else a buffer."""
    if isinstance(original, Parameter):
        made = Parameter(value.detach())
        made.requires_grad = original.requires_grad
        setattr(module, name, made)
    else:
        module.register_buffer(name, Tensor(value.detach()))


def type_before_parametrizations(module: Any) -> type:
    """The class that the module had before."""
    return computed.plain_class(module)


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once, when it is first read."""
    global _cache
    before, _cache = _cache, {} if _cache is None else _cache
    try:
        yield
    finally:
        _cache = before


__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations", "type_before_parametrizations",
]  # fmt: skip
flags_of_functions(globals(), __all__)
