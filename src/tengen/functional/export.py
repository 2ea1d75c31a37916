"""Names for users: ops say in which submodule of `tengen.functional` they stand, and each submodule has the functions of its ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tengen.base.errors import TengenError
from tengen.base.lazy import names_of
from tengen.ops.define import REGISTRY, Op, each_op
from tengen.ops.names import IN_FUNCTIONAL


def export(scope: dict[str, Any], *submodules: str, elsewhere: Mapping[str, str] | None = None) -> list[str]:
    """Gives a module, whose namespace `scope` is, the functions of the ops that say to stand in these submodules: each when it is first asked
    for, with the op's file; of ops that are defined later, too. It gets a `__getattr__` and a `__dir__` for that.

    Args: elsewhere: {another module: names of it, as words} that the module has as well.
    Returns: the names, as far as they are known by now.
    """
    home = scope["__name__"]
    ops = {name: op for s in submodules for name, op in IN_FUNCTIONAL[s].items()}
    others = {name for names in (elsewhere or {}).values() for name in names.split()}
    not_an_op = names_of(home, elsewhere or {})

    def find(op: Op) -> dict[str, Callable]:
        found = {name: op.call for submodule, name in op.functional if submodule in submodules}
        for name in found:
            free = ops.get(name, op.name) == op.name and name not in others and scope.get(name, op.call) is op.call
            if not free:
                raise TengenError(
                    f"op {op.name!r}: {home}.{name} is something else already; help: another name in `functional`"
                )
        return found

    def asked_for(name: str) -> Any:
        value = REGISTRY[ops[name]].call if name in ops else not_an_op(name)
        scope[name] = value
        return value

    def names() -> list[str]:
        return sorted({*scope, *ops, *others, *scope["__all__"]})

    scope["__getattr__"], scope["__dir__"] = asked_for, names
    each_op(find, scope.__setitem__)
    return sorted({*ops, *others, *(name for op in REGISTRY.loaded() for name in find(op))})
