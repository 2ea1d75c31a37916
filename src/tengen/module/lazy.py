"""Layers that learn how many features they take from their first input, under PyTorch's names: `LazyLinear`, `LazyConv2d` and others.

Such a layer is built without that number; its first call makes it the plain layer, whose class it has from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

from tengen.base.errors import ArgumentError, ShapeError, TraceError
from tengen.module.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tengen.module.linear import Linear
from tengen.module.module import Module
from tengen.module.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from tengen.module.pytorch_layers import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from tengen.tensor import Tensor, tracing


class _Lazy(Module):
    """The base: the arguments of `becomes` but the first, which is the extent of the first input's `axis`.

    Errors: TypeError for other arguments; ArgumentError where its parameters are asked for before its first call; TraceError for a first call
        inside of a trace; ShapeError for an input without that axis
    """

    becomes: ClassVar[type[Module]]
    axis: ClassVar[int] = 1

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        parameters = list(inspect.signature(self.becomes.__init__).parameters.values())[2:]  # without self and the number
        inspect.Signature(parameters).bind(*args, **kwargs)
        known = {p.name for p in parameters} | {"name", "device", "dtype"}
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}")
        self._given = args, kwargs

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """It has none."""
        return iter(())

    def _attributes(self) -> NoReturn:
        raise ArgumentError(
            f"{type(self).__name__} has no parameters before its first call; help: call the network on an example before an optimizer, a "
            "GradManager, a state dict or a cast asks for them"
        )

    def forward(self, x: Tensor) -> Tensor:
        """Makes this module the plain layer, and calls it."""
        if tracing.recorder is not None:
            raise TraceError(f"{type(self).__name__} makes its parameters in its first call, which must not be traced; help: call it before")
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(f"{type(self).__name__}: an input of shape {x.shape} has no axis {self.axis}, of which it learns its features")
        (args, kwargs), name, training, plain = self._given, self._name, self.training, self.becomes
        features = x.shape[self.axis]
        del self._given
        self.__class__ = plain
        plain.__init__(self, features, *args, **kwargs)
        self._name = name
        return self.train(training).forward(x)

    def __repr__(self) -> str:
        args, kwargs = self._given
        return f"{type(self).__name__}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def lazy(becomes: type[Module], what: str, axis: int = 1) -> type[_Lazy]:
    name = f"Lazy{becomes.__name__}"
    doc = f"`{becomes.__name__}` that takes {what} from its first input, and is one from then on. Args: those of it without that number."
    return type(name, (_Lazy,), {"becomes": becomes, "axis": axis, "__doc__": doc, "__module__": __name__, "__qualname__": name})


class LazyLinear(_Lazy):
    """`Linear` that takes in_features from its first input, and is one from then on. Args: out_features, bias, ...

    >>> from tengen import functional as F, module as M
    >>> net = M.Sequential(M.Flatten(), M.LazyLinear(5))
    >>> net(F.ones((2, 3, 4))).shape, net[1]
    ((2, 5), Linear(in_features=12, out_features=5, bias=True))
    """

    becomes, axis = Linear, -1


LazyConv1d, LazyConv2d, LazyConv3d = (lazy(c, "in_channels") for c in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    lazy(c, "in_channels") for c in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (lazy(c, "num_features") for c in (BatchNorm1d, BatchNorm2d, BatchNorm3d))
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    lazy(c, "num_features") for c in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
)
__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip
