"""Names for users: ops say in which submodule of `tengen.functional` they stand, and each submodule takes its ops over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.base.errors import TengenError
from tengen.ops import statistics  # noqa: F401  (defines the ops that load with `functional`)
from tengen.ops.define import REGISTRY, Op, each_op


def export(scope: dict[str, Any], *submodules: str) -> list[str]:
    """Puts the functions of the ops that say to stand in these submodules into a namespace; of those, too, that are defined later.

    Returns their names, as far as there are ops by now.
    """

    def find(op: Op) -> dict[str, Callable]:
        found = {name: op.call for submodule, name in op.functional if submodule in submodules}
        for name in found:
            if scope.get(name, op.call) is not op.call:
                what = f"{scope['__name__']}.{name} is something else already; help: another name in `functional`"
                raise TengenError(f"op {op.name!r}: {what}")
        return found

    each_op(find, scope.__setitem__)
    return sorted({name for op in REGISTRY.values() for name in find(op)})
