"""`Proxy`: what stands for a value while a function is traced; what is done with it becomes steps of a graph."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from opcode import opmap
from typing import TYPE_CHECKING, Any

from tengen.base.errors import TraceError, user_line

if TYPE_CHECKING:
    from tengen.pytorch.fx.node import Node
    from tengen.pytorch.fx.tracer import TracerBase


class Proxy:
    """The result of a step. Attributes: node: the step. tracer: who makes steps of what is done with it."""

    def __init__(self, node: Node, tracer: TracerBase):
        self.node, self.tracer = node, tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1)
        code, at = caller.f_code.co_code, caller.f_lasti
        if code[at] == opmap["UNPACK_SEQUENCE"]:  # a, b = x: so many are wanted
            return iter([self[i] for i in range(code[at + 1])])
        raise TraceError(
            f"{user_line()}: symbolic_trace cannot loop over {self.node.name}, whose length is not known; help: a leaf module, or fx.wrap"
        )

    def __bool__(self) -> bool:
        raise TraceError(
            f"{user_line()}: symbolic_trace cannot decide by {self.node.name}, whose value is not known; help: concrete_args for flags, a leaf "
            "module, or fx.wrap of the function that decides"
        )

    def __len__(self) -> int:
        raise TraceError(f"{user_line()}: symbolic_trace does not know the length of {self.node.name}; help: x.size(0), or fx.wrap of len")

    def __index__(self) -> int:
        raise TraceError(f"{user_line()}: symbolic_trace does not know the number {self.node.name}; help: fx.wrap of what needs it")

    def __hash__(self) -> int:
        return id(self)

    def keys(self) -> Proxy:
        """A step that calls keys()."""
        return self.tracer.create_proxy("call_method", "keys", (self,), {})

    def __getitem__(self, key: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


class Attribute(Proxy):
    """An attribute of a value: a step when it is used, or a method's name when it is called."""

    def __init__(self, root: Proxy, attr: str):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]  # which is an attribute of others
        """The step that reads it."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _binary(op: Any, swapped: bool = False) -> Any:
    def method(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", op, (other, self) if swapped else (self, other), {})

    return method


def _unary(op: Any) -> Any:
    def method(self: Proxy) -> Proxy:
        return self.tracer.create_proxy("call_function", op, (self,), {})

    return method


for _name in "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split():
    _op, _plain = getattr(operator, _name), _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _binary(_op))
    setattr(Proxy, f"__r{_plain}__", _binary(_op, True))
for _name in "lt le gt ge eq ne".split():
    setattr(Proxy, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in "neg invert pos abs".split():
    setattr(Proxy, f"__{_name}__", _unary(getattr(operator, _name)))
