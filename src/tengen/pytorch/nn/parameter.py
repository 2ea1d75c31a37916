"""`torch.nn.parameter`."""

from __future__ import annotations

from typing import Any

from tengen.base.arguments import flags_of_functions
from tengen.pytorch.functions import creation
from tengen.tensor import Parameter as _Parameter
from tengen.tensor import Tensor


class _AnyParameter(type):
    """Every Parameter of Tengen's is one."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, _Parameter) if cls.__dict__.get("_stands_for_all") else super().__instancecheck__(x)


class Parameter(_Parameter, metaclass=_AnyParameter):
    """Tengen's `Parameter`, with ``requires_grad``. Every Parameter of Tengen's is an instance.

    >>> Parameter(creation.ones(2)).requires_grad, Parameter(creation.ones(2), requires_grad=False).requires_grad
    (True, False)
    """

    _stands_for_all = True

    def __init__(self, data: Any = None, requires_grad: bool = True, **mge: Any):
        super().__init__(creation.as_tensor([] if data is None else data).detach(), **mge)
        if not requires_grad:
            self.requires_grad = False


class Buffer(Tensor):
    """A tensor that a module lists among its buffers: here any tensor that is no Parameter."""

    def __init__(self, data: Any = None, *, persistent: bool = True):
        super().__init__(creation.as_tensor(data).detach())


__all__ = ["Buffer", "Parameter"]
flags_of_functions(globals(), __all__)
